"""Tracing: spans from the edge over the node to the store, for whoever has switched them on (opentelemetry.py).

    with tracing.span("push", volume=str(vid)):
        …

Switched off, which it is unless somebody calls `use`, a span is one look at a variable, and nothing of OpenTelemetry is
loaded. Between processes a trace goes on by the header `traceparent` (W3C Trace Context).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Final, Protocol

HEADER: Final = "traceparent"

Attributes = Mapping[str, str | int]


class Tracer(Protocol):
    def span(self, name: str, attributes: Attributes, kind: str) -> AbstractContextManager[object]:
        """The current one inside; what is raised there is its outcome. `kind` is internal, client or server."""
        ...

    def request(self, name: str, attributes: Attributes) -> AbstractContextManager[str]:
        """A request to another process, which is told the `traceparent` that this gives; never the current span."""
        ...

    def served(self, name: str, attributes: Attributes, traceparent: str) -> AbstractContextManager[object]:
        """What another process has asked for, under its span if that was told ("" where not)."""
        ...

    def here(self) -> object:
        """The current span, for `together`; None where there is none."""
        ...

    def together(self, name: str, attributes: Attributes, spans: Sequence[object]) -> AbstractContextManager[object]:
        """What is done for several at once: under the first, linked to the others."""
        ...


_tracer: Tracer | None = None
_NOTHING: Final = nullcontext("")


def use(tracer: Tracer | None) -> None:
    """For this process, from now on; None switches it off."""
    global _tracer
    _tracer = tracer


def span(name: str, kind: str = "internal", **attributes: str | int) -> AbstractContextManager[object]:
    return _NOTHING if _tracer is None else _tracer.span(name, attributes, kind)


def request(name: str, **attributes: str | int) -> AbstractContextManager[str]:
    """Gives the `traceparent` to send along; "" where there is none."""
    return _NOTHING if _tracer is None else _tracer.request(name, attributes)


def served(name: str, traceparent: str, **attributes: str | int) -> AbstractContextManager[object]:
    return _NOTHING if _tracer is None else _tracer.served(name, attributes, traceparent)


def is_on() -> bool:
    return _tracer is not None


def here() -> object:
    return None if _tracer is None else _tracer.here()


def together(name: str, spans: Sequence[object], **attributes: str | int) -> AbstractContextManager[object]:
    return _NOTHING if _tracer is None else _tracer.together(name, attributes, spans)
