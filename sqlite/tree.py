"""Tree: a whole B-tree in key order, from its root page and something that reads pages.

Every page is met once: a page that comes twice, a tree deeper than SQLite's own limit, or one that mixes tables and
indexes is damage. Memory: one page a level, and a bitmap of the pages met. Each leaf is read when the walk
comes to it, so a caller who stops early has read no more than the way there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from ..volume.errors import Corrupt
from ..volume.pageset import PageSet
from .btree import BtreePage, Cell, Kind, cells, parse_page
from .header import DATABASE, Header
from .overflow import gather
from .record import Value, decode_record

Read = Callable[[int], bytes]

_MAX_DEPTH: Final = 20
"""SQLite's own: a cursor has room for no more levels."""


def entries(read: Read, root: int, usable_bytes: int, key: str = DATABASE) -> Iterator[tuple[int, Cell]]:
    """The cells that hold payload, in key order, each with its page; an index keeps some in its interior pages too.

    Raises Corrupt.
    """
    page = read(root)
    parsed = parse_page(page, root, key)
    table = parsed.kind.table
    seen = PageSet((root,))
    ways = [_steps(page, parsed, usable_bytes, key)]
    at = [root]
    while ways:
        step = next(ways[-1], None)
        if step is None:
            ways.pop()
            at.pop()
        elif isinstance(step, Cell):
            yield at[-1], step
        else:
            if step in seen or len(ways) == _MAX_DEPTH:
                raise Corrupt(key, f"the tree of page {root} comes to page {step} twice, or too deep")
            seen.add(step)
            page = read(step)
            parsed = parse_page(page, step, key)
            if parsed.kind.table != table:
                raise Corrupt(key, f"page {step} is of another kind than its root, page {root}")
            ways.append(_steps(page, parsed, usable_bytes, key))
            at.append(step)


def _steps(page: bytes, parsed: BtreePage, usable_bytes: int, key: str) -> Iterator[int | Cell]:
    """What comes next in one page: children (a number) and entries (a cell) in key order."""
    for cell in cells(page, parsed, usable_bytes, key):
        if cell.left_child:
            yield cell.left_child
        if parsed.kind != Kind.INTERIOR_TABLE:
            yield cell
    if parsed.right_child:
        yield parsed.right_child


def table_rows(read: Read, root: int, header: Header, key: str = DATABASE) -> Iterator[tuple[int, tuple[Value, ...]]]:
    """A table's rows by rowid: (rowid, values as stored, see record.py). Raises Corrupt, also for an index's root."""
    for index, cell in entries(read, root, header.usable_bytes, key):
        if cell.rowid is None:
            raise Corrupt(key, f"page {index} belongs to an index, not to a table")
        yield cell.rowid, _values(read, cell, header, key)


def index_rows(read: Read, root: int, header: Header, key: str = DATABASE) -> Iterator[tuple[Value, ...]]:
    """An index's entries in its order, or the rows of a WITHOUT ROWID table, primary key first.

    Raises Corrupt, also for a table's root.
    """
    for index, cell in entries(read, root, header.usable_bytes, key):
        if cell.rowid is not None:
            raise Corrupt(key, f"page {index} belongs to a table, not to an index")
        yield _values(read, cell, header, key)


def _values(read: Read, cell: Cell, header: Header, key: str) -> tuple[Value, ...]:
    payload = gather(read, cell.local, cell.overflow, cell.payload_bytes, header.usable_bytes, key)
    return decode_record(payload, header.codec, key)
