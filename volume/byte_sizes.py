"""Byte sizes as people write them: `500000`, `64K`, `500M`, `2G`, `2GiB`. Units are powers of 1024."""

from __future__ import annotations

import re
from typing import Final

from .errors import BadInput

_UNITS: Final = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}
_SIZE: Final = re.compile(r"(\d{1,15})(?:([KMGT])(?:i?B)?)?", re.ASCII | re.IGNORECASE)


def bytes_in(text: str) -> int:
    """Raises BadInput."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise BadInput(f"{text!r} is no size in bytes: write 500000, 64K, 500M, 2G or 1T; 0 for no limit")
    return int(found[1]) << 10 * _UNITS[(found[2] or "").upper()]
