"""Traced: a command whose spans go to OpenTelemetry, where BUDWOOD_TRACES is set (volume/opentelemetry_tracer.py)."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from typing import Final

from .exit_status import Call

SWITCH: Final = "BUDWOOD_TRACES"


def traced(service: str) -> AbstractContextManager[object]:
    """Raises Call where OpenTelemetry isn't installed; BadInput where its exporter isn't."""
    if not os.environ.get(SWITCH):
        return nullcontext()
    try:
        from ..volume.opentelemetry_tracer import exporting
    except ModuleNotFoundError as error:
        raise Call(f"{SWITCH} is set, and traces need {error.name!r}: pip install 'budwood[otel]'") from error
    return exporting(service)
