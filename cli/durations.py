"""Durations at the command line: `20ms`, `90s`, `15m`, `12h`, `7d`, `4w`, `1y`. A year has 365 days."""

from __future__ import annotations

import re
from typing import Final

from ..volume.errors import BadInput

_UNITS: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400, "y": 365 * 86_400}
_DURATION: Final = re.compile(rf"(\d{{1,9}}(?:\.\d{{1,9}})?)({'|'.join(_UNITS)})", re.ASCII)
_SAID_IN: Final = "ydhms"
"""A week is seven days to whoever reads it."""


def seconds_of(text: str) -> float:
    """Raises BadInput."""
    found = _DURATION.fullmatch(text)
    seconds = float(found[1]) * _UNITS[found[2]] if found else 0.0
    if not seconds:
        raise BadInput(f"{text!r} is no time to last: write 20ms, 90s, 15m, 12h, 7d, 4w or 1y")
    return seconds


def duration_of(ms: int) -> str:
    """In the largest unit that it is a whole number of."""
    unit = next((unit for unit in _SAID_IN if ms % (1000 * _UNITS[unit]) == 0), "")
    return f"{ms // (1000 * _UNITS[unit])}{unit}" if unit else f"{ms / 1000:.3f}s"
