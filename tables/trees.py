"""Trees: which pages a B-tree consists of, found level by level, in as many requests as it has levels.

All leaves of a B-tree lie equally deep, so one look at the first page of a level tells whether it is the last. That
look comes along with the level above, so leaves are never read here (but for the first). Every page is met once; a page
that comes twice, or lies outside the snapshot, is damage.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from ..sqlite.btree import Kind, cells, children, parse_page
from ..sqlite.header import DATABASE, HEADER_SIZE, Header
from ..volume.errors import Corrupt
from ..volume.pageset import PageSet
from .leaf_rows import Buffer, Ints, check_pages, leaf_rows, varints
from .overflow_chains import read_chains
from .page_source import PageSource, read_pages

_MAX_DEPTH: Final = 20
_U32: Final = 0xFFFFFFFF
_INTERIOR_HEAD: Final = 12
_CHILD: Final = 4
_SHORTEST_CELL: Final = 5
_AT_ONCE: Final = 2048
"""Pages of one request: what a level of a very large tree takes is bounded."""


@dataclass(frozen=True, slots=True)
class Tree:
    """A B-tree's pages. `leaves` in key order; of a table's leaf i, `bounds[i]` is the largest rowid it may hold.

    The last leaf has no bound. An index, or a table WITHOUT ROWID, has no bounds at all.
    """

    root: int
    table: bool
    interior: tuple[int, ...]
    leaves: array[int]
    bounds: array[int]


def pages_of(tree: Tree) -> PageSet:
    return PageSet(tree.interior) | PageSet(tree.leaves)


def walk(
    source: PageSource,
    root: int,
    header: Header,
    visit: Callable[[int, bytes], None] | None = None,
    key: str = DATABASE,
) -> Tree:
    """The tree of page `root`. `visit` is shown each interior page. Raises Corrupt."""
    seen = PageSet((root,))
    level = np.array([root], np.int64)
    head = read_pages(source, seen)[root]
    parsed = parse_page(head, root, key)
    table = parsed.kind.table
    interior: list[int] = []
    bounds = np.empty(0, np.int64)
    for _ in range(_MAX_DEPTH):
        if not parsed.right_child:
            return Tree(root, table, tuple(interior), array("I", level.tolist()), array("q", bounds.tolist()))
        first = children(head, int(level[0]), key)[0]
        below: list[Ints] = []
        keys: list[Ints] = []
        got = {int(level[0]): head}
        for start in range(0, len(level), _AT_ONCE):
            numbers: list[int] = level[start : start + _AT_ONCE].tolist()
            wanted = PageSet(numbers) - PageSet(got)
            if start == 0:
                wanted.add(first)
            got |= read_pages(source, wanted)
            if start == 0:
                head = got[first]
            if visit:
                for number in numbers:
                    visit(number, got[number])
            found = _interior_cells(numbers, [got[number] for number in numbers], table, root, key)
            below.append(found.children)
            # Below a page's right-most child lies nothing beyond what its parent says of the page itself.
            upper = bounds[start : start + len(numbers)]
            found.keys[found.lasts[: len(upper)]] = upper
            keys.append(found.keys)
            got = {}
        bounds = np.concatenate(keys)[:-1] if table else bounds
        if (bounds[1:] <= bounds[:-1]).any():
            raise Corrupt(key, f"the keys below page {root} don't ascend")
        interior += level.tolist()
        level = np.concatenate(below)
        fresh = PageSet(level.tolist())
        if fresh.max() > source.page_count:
            raise Corrupt(key, f"the tree of page {root} comes to page {fresh.max()} of {source.page_count}")
        if len(fresh) != len(level) or fresh & seen:
            raise Corrupt(key, f"the tree of page {root} comes to a page twice")
        seen |= fresh
        parsed = parse_page(head, first, key)
        if parsed.kind.table != table:
            raise Corrupt(key, f"page {first} is of another kind than its root, page {root}")
    raise Corrupt(key, f"the tree of page {root} is too deep")


@dataclass(frozen=True, slots=True)
class _Cells:
    """The cells of interior pages, one page's after another's, each page's right-most child as its last.

    `lasts` are the places of these; their keys are not known here. An index's cells have keys of another sort: all 0.
    """

    children: Ints
    keys: Ints
    lasts: Ints


def _interior_cells(indexes: Sequence[int], pages: Sequence[bytes], table: bool, root: int, key: str) -> _Cells:
    size = len(pages[0])
    numbers = np.array(indexes, np.int64)
    buffer = Buffer(pages)
    base = np.arange(len(numbers), dtype=np.int64) * size
    head = base + np.where(numbers == 1, HEADER_SIZE, 0)
    kind = Kind.INTERIOR_TABLE if table else Kind.INTERIOR_INDEX
    check_pages(buffer.data[head] == kind, numbers, key, f"is of another kind than its neighbours below page {root}")
    counts = buffer.halves(head + 3)
    right = buffer.words(head + 8) >> 32 & _U32
    content = head - base + _INTERIOR_HEAD + 2 * counts
    check_pages(content <= size, numbers, key, "can't hold its cells")

    starts = np.cumsum(counts) - counts
    pointers = np.repeat(head + _INTERIOR_HEAD - 2 * starts, counts)
    pointers += np.arange(0, 2 * len(pointers), 2)
    at = buffer.halves(pointers)
    page: Ints = np.repeat(numbers, counts)
    least = _SHORTEST_CELL if table else _CHILD
    good = (at >= np.repeat(content, counts)) & (at <= size - least)
    check_pages(good, page, key, "has a cell outside its content")
    at += np.repeat(base, counts)
    left = buffer.words(at) >> 32 & _U32
    lasts = np.cumsum(counts + 1) - 1
    below = np.empty(len(left) + len(right), np.int64)
    others = np.ones(len(below), np.bool_)
    others[lasts] = False
    below[lasts], below[others] = right, left
    check_pages(below > 0, np.repeat(numbers, counts + 1), key, "has a child numbered 0")
    keys = np.zeros(len(below), np.int64)
    if table:
        keys[others], after = varints(buffer, at + _CHILD)
        check_pages(after <= np.repeat(base + size, counts), page, key, "has a cell that is cut short")
    return _Cells(below, keys, lasts)


def leaves_with_chains(source: PageSource, leaves: Sequence[int], header: Header) -> dict[int, bytes]:
    """A table's leaves, and the chains that begin in them."""
    pages = read_pages(source, PageSet(leaves))
    order = list(pages)
    found: dict[int, bytes] = {}
    for start in range(0, len(order), _AT_ONCE):
        some = order[start : start + _AT_ONCE]
        rows = leaf_rows(some, [pages[index] for index in some], header)
        over = np.flatnonzero(rows.local < rows.size)
        found |= read_chains(source, rows.chains(over), header.usable_bytes)[1]
    return pages | found


def whole_tree(source: PageSource, root: int, header: Header, key: str = DATABASE) -> dict[int, bytes]:
    """Every page of a tree, chains included."""
    pages: dict[int, bytes] = {}
    for some in parts_of_tree(source, root, header, key):
        pages |= some
    return pages


def parts_of_tree(source: PageSource, root: int, header: Header, key: str = DATABASE) -> Generator[dict[int, bytes]]:
    """The same in parts: interior pages, then some leaves at a time, each part with its chains."""
    interior: dict[int, bytes] = {}
    tree = walk(source, root, header, interior.__setitem__, key)
    yield interior
    if not tree.table:
        yield _chains_of_cells(source, interior, header, key)
    del interior
    for start in range(0, len(tree.leaves), _AT_ONCE):
        numbers = tree.leaves[start : start + _AT_ONCE]
        if tree.table and root != 1:
            yield leaves_with_chains(source, numbers, header)
        else:
            pages = read_pages(source, PageSet(numbers))
            yield pages | _chains_of_cells(source, pages, header, key)


def _chains_of_cells(source: PageSource, pages: dict[int, bytes], header: Header, key: str) -> dict[int, bytes]:
    starts: list[tuple[int, int]] = []
    for index, page in pages.items():
        found = cells(page, parse_page(page, index, key), header.usable_bytes, key)
        starts += [(cell.overflow, cell.payload_bytes - len(cell.local)) for cell in found if cell.overflow]
    return read_chains(source, starts, header.usable_bytes, key)[1]
