"""Trees: which pages a B-tree consists of, found level by level, in as many requests as it has levels.

All leaves of a B-tree lie equally deep, so one look at the first page of a level tells whether it is the last. That
look comes along with the level above, so leaves are never read here (but for the first). Every page is met once; a page
that comes twice, or lies outside the snapshot, is damage.

Chains of overflow pages are followed in turns, one request for the next page of each; since SQLite lays a chain down
in one run where it can, the first request asks for the whole run, and what the links then say otherwise is asked again.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from ..sqlite.btree import Kind, cells, children, parse_page
from ..sqlite.header import DATABASE, Header
from ..sqlite.overflow import chain_pages
from ..volume.errors import Corrupt
from ..volume.pageset import PageSet
from .pages import PageSource, read_pages

__all__ = ["Tree", "overflow_of", "read_chains", "walk", "whole_tree"]

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
        if len(fresh) != len(level) or fresh & seen:
            raise Corrupt(key, f"the tree of page {root} comes to a page twice")
        seen |= fresh
        parsed = parse_page(head, first, key)
        if parsed.kind.table != table:
            raise Corrupt(key, f"page {first} is of another kind than its root, page {root}")
    raise Corrupt(key, f"the tree of page {root} is too deep")


def read_chains(
    source: PageSource, starts: Sequence[tuple[int, int]], usable_bytes: int, key: str = DATABASE
) -> tuple[list[bytes], dict[int, bytes]]:
    """What each chain holds, given its first page and how many bytes lie in it, and all pages that were read.

    Raises Corrupt where a chain ends early or comes back to itself.
    """
    got: dict[int, bytes] = {}
    parts: list[list[bytes]] = [[] for _ in starts]
    met: list[set[int]] = [set() for _ in starts]
    going = [(number, first, rest) for number, (first, rest) in enumerate(starts) if rest > 0]
    wanted = PageSet()
    for _, first, rest in going:
        if 1 <= first <= source.page_count:
            wanted.add_range(first, min(first + chain_pages(rest, usable_bytes), source.page_count + 1))
    while going:
        got |= read_pages(source, (wanted | PageSet(at for _, at, _ in going)) - PageSet(got))
        wanted = PageSet()
        left: list[tuple[int, int, int]] = []
        for number, at, rest in going:
            while rest > 0 and at in got:
                if at in met[number]:
                    raise Corrupt(key, f"the overflow chain from page {starts[number][0]} comes back to itself")
                met[number].add(at)
                page = got[at]
                parts[number].append(page[4 : min(usable_bytes, 4 + rest)])
                rest -= usable_bytes - 4
                at = int.from_bytes(page[:4], "big")
            if rest > 0:
                if at == 0:
                    raise Corrupt(key, f"the overflow chain from page {starts[number][0]} ends early")
                left.append((number, at, rest))
        going = left
    return [b"".join(pieces) for pieces in parts], got


def overflow_of(pages: Iterable[tuple[int, bytes]], header: Header, key: str = DATABASE) -> list[tuple[int, int]]:
    """The chains that begin in these B-tree pages: their first pages, and how many bytes lie in each."""
    starts: list[tuple[int, int]] = []
    for index, page in pages:
        parsed = parse_page(page, index, key)
        if parsed.kind != Kind.INTERIOR_TABLE:
            found = cells(page, parsed, header.usable_bytes, key)
            starts += [(cell.overflow, cell.payload_bytes - len(cell.local)) for cell in found if cell.overflow]
    return starts


def whole_tree(source: PageSource, root: int, header: Header, leaves: Sequence[int] | None = None) -> dict[int, bytes]:
    """Every page of a tree, chains included; or of its leaves only those named, with the interior pages."""
    pages: dict[int, bytes] = {}
    tree = walk(source, root, header, pages.__setitem__)
    pages |= read_pages(source, PageSet(tree.leaves if leaves is None else leaves))
    return pages | read_chains(source, overflow_of(pages.items(), header), header.usable_bytes)[1]
