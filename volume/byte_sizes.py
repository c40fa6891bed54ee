"""Byte sizes as people write and read them: `500000`, `64K`, `2GiB`; 512 B, 4.0 KiB. Units are powers of 1024."""

from __future__ import annotations

import re
from typing import Final

from .errors import BadInput

_UNITS: Final = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}
_NAMES: Final = ("KiB", "MiB", "GiB", "TiB", "PiB")
_SIZE: Final = re.compile(r"(\d{1,15})(?:([KMGT])(?:i?B)?)?", re.ASCII | re.IGNORECASE)


def bytes_in(text: str) -> int:
    """Raises BadInput."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise BadInput(f"{text!r} is no size in bytes: write 500000, 64K, 500M, 2G or 1T; 0 for no limit")
    return int(found[1]) << 10 * _UNITS[(found[2] or "").upper()]


def bytes_of(size_bytes: int) -> str:
    """Bytes with a unit, three digits at most before the point: 512 B, 4.0 KiB, 103 MiB."""
    if size_bytes < 1024:
        return f"{size_bytes} B"
    power = min((size_bytes.bit_length() - 1) // 10, len(_NAMES))
    value = size_bytes / 1024**power
    if value >= 1000 and power < len(_NAMES):
        power, value = power + 1, value / 1024
    return f"{value:.1f} {_NAMES[power - 1]}" if value < 100 else f"{value:.0f} {_NAMES[power - 1]}"
