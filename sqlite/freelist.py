"""Pages of a database that belong to no tree: the free list, the pointer maps of auto-vacuum, the lock page.

A trunk of the free list is u32 next trunk, u32 number of leaves, and these, u32 each. A pointer map comes first of the
pages that it describes, five bytes for each. The page at 2^30 bytes is never used: SQLite's locks lie there.
"""

from __future__ import annotations

import struct
from typing import Final

from ..volume.errors import Corrupt
from ..volume.pageset import PageSet
from .header import DATABASE, Header

__all__ = ["lock_page", "pointer_map_pages", "trunk"]

_LOCK_BYTE: Final = 1 << 30
_POINTER_BYTES: Final = 5
_unpack_head: Final = struct.Struct(">II").unpack_from


def trunk(page: bytes, index: int, usable_bytes: int, key: str = DATABASE) -> tuple[int, tuple[int, ...]]:
    """The next trunk, 0 for none, and this one's leaves. Raises Corrupt unless they fit."""
    following, count = _unpack_head(page)
    if 8 + 4 * count > usable_bytes:
        raise Corrupt(key, f"page {index} of its free list can't hold {count} numbers")
    return following, struct.unpack_from(f">{count}I", page, 8)


def lock_page(page_size: int) -> int:
    """The page that holds SQLite's lock bytes; a database that is smaller hasn't got it."""
    return _LOCK_BYTE // page_size + 1


def pointer_map_pages(header: Header, page_count: int) -> PageSet:
    """Of a database that keeps them, else none."""
    if not header.auto_vacuum:
        return PageSet()
    found = PageSet(range(2, page_count + 1, header.usable_bytes // _POINTER_BYTES + 1))
    lock = lock_page(header.page_size)
    if lock in found:
        # The map gives way to the page that is never used.
        found.remove(lock)
        found.add(lock + 1)
    return found & PageSet(range(1, page_count + 1))
