"""Trees: which pages a B-tree consists of, found level by level, in as many requests as it has levels.

All leaves of a B-tree lie equally deep, so one look at the first page of a level tells whether it is the last. That
look comes along with the level above, so leaves are never read here (but for the first). Every page is met once; a page
that comes twice, or lies outside the snapshot, is damage.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from ...sqlite.btree import cells, children, parse_page
from ...sqlite.header import DATABASE, Header
from ...volume.errors import Corrupt
from ...volume.pageset import PageSet
from .cells import leaf_rows
from .chains import read_chains
from .pages import PageSource, read_pages

__all__ = ["Tree", "leaves_with_chains", "parts_of_tree", "walk", "whole_tree"]

_MAX_DEPTH: Final = 20
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


def walk(
    source: PageSource,
    root: int,
    header: Header,
    visit: Callable[[int, bytes], None] | None = None,
    key: str = DATABASE,
) -> Tree:
    """The tree of page `root`. `visit` is shown each interior page. Raises Corrupt."""
    seen = PageSet((root,))
    level: list[int] = [root]
    head = read_pages(source, seen)[root]
    parsed = parse_page(head, root, key)
    table = parsed.kind.table
    interior: list[int] = []
    bounds = array("q")
    for _ in range(_MAX_DEPTH):
        if not parsed.right_child:
            return Tree(root, table, tuple(interior), array("I", level), bounds)
        first = children(head, level[0], key)[0]
        upper, below = bounds, array("I")
        bounds = array("q")
        got = {level[0]: head}
        for start in range(0, len(level), _AT_ONCE):
            numbers = level[start : start + _AT_ONCE]
            wanted = PageSet(numbers) - PageSet(got)
            if start == 0:
                wanted.add(first)
            got |= read_pages(source, wanted)
            if start == 0:
                head = got[first]
            for place, number in enumerate(numbers, start):
                page = got[number]
                if visit:
                    visit(number, page)
                parsed = parse_page(page, number, key)
                if not parsed.right_child or parsed.kind.table != table:
                    raise Corrupt(key, f"page {number} is of another kind than its neighbours below page {root}")
                below.extend(children(page, number, key))
                if table:
                    bounds.extend(cell.rowid or 0 for cell in cells(page, parsed, header.usable_bytes, key))
                    if place < len(upper):
                        bounds.append(upper[place])
            got = {}
        if any(one >= other for one, other in pairwise(bounds)):
            raise Corrupt(key, f"the keys below page {root} don't ascend")
        interior += level
        level = below.tolist()
        fresh = PageSet(level)
        if fresh.max() > source.page_count:
            raise Corrupt(key, f"the tree of page {root} comes to page {fresh.max()} of {source.page_count}")
        if len(fresh) != len(level) or fresh & seen:
            raise Corrupt(key, f"the tree of page {root} comes to a page twice")
        seen |= fresh
        parsed = parse_page(head, first, key)
        if parsed.kind.table != table:
            raise Corrupt(key, f"page {first} is of another kind than its root, page {root}")
    raise Corrupt(key, f"the tree of page {root} is too deep")


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
