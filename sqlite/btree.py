"""B-tree pages: kinds, cells, children (sqlite.org/fileformat2, sections 1.5 and 1.6).

    0  1  kind: 2 interior index, 5 interior table, 10 leaf index, 13 leaf table
    1  2  first free block            (not needed to read)
    3  2  cells
    5  2  start of the cell contents  (not needed to read)
    7  1  fragmented free bytes       (not needed to read)
    8  4  right-most child, interior pages only
    …  2  one cell pointer each: where the cell lies, counted from the page's first byte

On page 1 all this begins after the database header, at 100; cell pointers still count from 0. A cell is

    interior table   u32 left child, varint rowid
    leaf table       varint payload size, varint rowid, payload
    interior index   u32 left child, varint payload size, payload
    leaf index       varint payload size, payload

and a payload longer than overflow.py's limit ends with the u32 number of its first overflow page.

A page does not say that it is a B-tree page: the first byte of an overflow, freelist or pointer-map page may look like
a kind. Where the answer only moves bytes about (what lies in a segment's first frames, what is fetched ahead) one look
is enough; where it must be right, walk from a root (tree.py).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from ..volume.errors import Corrupt
from .header import DATABASE, HEADER_SIZE
from .overflow import local_size
from .record import read_varint


class Kind(IntEnum):
    INTERIOR_INDEX = 2
    INTERIOR_TABLE = 5
    LEAF_INDEX = 10
    LEAF_TABLE = 13

    @property
    def interior(self) -> bool:
        return self in INTERIOR

    @property
    def table(self) -> bool:
        return self in (Kind.INTERIOR_TABLE, Kind.LEAF_TABLE)


INTERIOR: Final = frozenset((2, 5))
"""The first byte of a page that lies above others; what begins with it may be any other, too."""
_KINDS: Final = frozenset(int(kind) for kind in Kind)
_unpack_u32: Final = struct.Struct(">I").unpack_from
_unpack_head: Final = struct.Struct(">BxxHxxxI").unpack_from
"""Kind, cells, right-most child; a leaf's page is long enough for the four bytes more."""

_HEAD_SIZE: Final = 12
_LEAF_HEAD_SIZE: Final = 8
_ROWID_SIGN: Final = 1 << 63
_MAX_PAYLOAD: Final = (1 << 31) - 1
"""SQLite stores no longer row; a damaged size must not send anyone after a chain through the whole database."""


@dataclass(frozen=True, slots=True)
class BtreePage:
    """A page's frame: `offsets` are its cells' places in key order; `right_child` is 0 on leaves."""

    index: int
    kind: Kind
    offsets: tuple[int, ...]
    right_child: int


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell. What its kind lacks is 0 (`left_child`, `overflow`, `payload_bytes`) or None (`rowid`).

    `local` is the part of the payload that lies in the page; `overflow` the page where the rest begins.
    """

    left_child: int
    rowid: int | None
    payload_bytes: int
    local: bytes
    overflow: int


def is_skeleton(page: bytes | memoryview, index: int) -> bool:
    """Whether a segment's writer lays the page into the first frames: page 1 and all interior pages. (DESIGN §4)"""
    return index == 1 or (len(page) > 0 and page[0] in INTERIOR)


def parse_page(page: bytes, index: int, key: str = DATABASE) -> BtreePage:
    """Raises Corrupt unless this is a B-tree page whose cells lie between its pointers and its end."""
    start = HEADER_SIZE if index == 1 else 0
    if len(page) < start + _HEAD_SIZE:
        raise Corrupt(key, f"page {index} has only {len(page)} bytes")
    kind, count, right_child = _unpack_head(page, start)
    if kind not in _KINDS:
        raise Corrupt(key, f"page {index} is no B-tree page: its first byte is {kind}")
    interior = kind in INTERIOR
    pointers = start + (_HEAD_SIZE if interior else _LEAF_HEAD_SIZE)
    content = pointers + 2 * count
    if content > len(page):
        raise Corrupt(key, f"page {index} can't hold {count} cells")
    offsets = struct.unpack_from(f">{count}H", page, pointers)
    if count and not (content <= min(offsets) and max(offsets) < len(page)):
        raise Corrupt(key, f"page {index} has a cell outside its content")
    if interior and right_child == 0:
        raise Corrupt(key, f"page {index} has no right-most child")
    return BtreePage(index, Kind(kind), offsets, right_child if interior else 0)


def children(page: bytes, index: int, key: str = DATABASE) -> list[int]:
    """The pages below an interior page, in key order; empty for a leaf. Raises Corrupt unless this is a B-tree page."""
    parsed = parse_page(page, index, key)
    if not parsed.right_child:
        return []
    if parsed.offsets and max(parsed.offsets) + 4 > len(page):
        raise Corrupt(key, f"page {index} has a cell that is cut short")
    below = [_unpack_u32(page, at)[0] for at in parsed.offsets]
    below.append(parsed.right_child)
    if 0 in below:
        raise Corrupt(key, f"page {index} has a child numbered 0")
    return below


def cells(page: bytes, parsed: BtreePage, usable_bytes: int, key: str = DATABASE) -> Iterator[Cell]:
    """The page's cells in key order; `parsed` is its frame, `usable_bytes` Header.usable_bytes. Raises Corrupt."""
    if len(page) < usable_bytes:
        raise Corrupt(key, f"page {parsed.index} has {len(page)} bytes where at least {usable_bytes} belong")
    kind = parsed.kind
    interior, table = kind.interior, kind.table
    for at in parsed.offsets:
        left_child, rowid = 0, None
        if interior:
            if at + 4 > usable_bytes:
                raise Corrupt(key, f"page {parsed.index} has a cell that is cut short")
            (left_child,) = _unpack_u32(page, at)
            if left_child == 0:
                raise Corrupt(key, f"page {parsed.index} has a child numbered 0")
            at += 4
            if table:
                rowid, _ = read_varint(page, at, key)
                yield Cell(left_child, _signed(rowid), 0, b"", 0)
                continue
        payload_bytes, at = read_varint(page, at, key)
        if payload_bytes > _MAX_PAYLOAD:
            raise Corrupt(key, f"page {parsed.index} has a payload of {payload_bytes} bytes")
        if table:
            rowid, at = read_varint(page, at, key)
            rowid = _signed(rowid)
        stop = at + local_size(payload_bytes, usable_bytes, table=table)
        overflows = stop - at < payload_bytes
        if stop + 4 * overflows > usable_bytes:
            raise Corrupt(key, f"page {parsed.index} has a payload that ends beyond it")
        overflow = _unpack_u32(page, stop)[0] if overflows else 0
        yield Cell(left_child, rowid, payload_bytes, page[at:stop], overflow)


def _signed(rowid: int) -> int:
    return rowid - 2 * _ROWID_SIGN if rowid >= _ROWID_SIGN else rowid
