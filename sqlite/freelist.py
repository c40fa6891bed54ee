"""Free list: the pages of a database that hold nothing.

A trunk is u32 next trunk, u32 number of leaves, and these, u32 each.
"""

from __future__ import annotations

import struct
from typing import Final

from ..volume.errors import Corrupt
from .header import DATABASE

_unpack_head: Final = struct.Struct(">II").unpack_from


def trunk(page: bytes, index: int, usable_bytes: int, key: str = DATABASE) -> tuple[int, tuple[int, ...]]:
    """The next trunk, 0 for none, and this one's leaves. Raises Corrupt unless they fit."""
    following, count = _unpack_head(page)
    if 8 + 4 * count > usable_bytes:
        raise Corrupt(key, f"page {index} of its free list can't hold {count} numbers")
    return following, struct.unpack_from(f">{count}I", page, 8)
