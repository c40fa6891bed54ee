"""Overflow candidates: pages that changed and may be in the chain of a row whose cell stayed as it was.

SQLite overwrites a value of the same length in place, and so may change an overflow page and leave the row's leaf as it
was, bit by bit. Then nothing in the tree tells that the row changed. What helps: if a cell is the same in both
snapshots, so are its chain's length and its first page; so the first page in which the two chains differ lies in *both*
of them. Hence a changed page that is known, in *either* snapshot, to be something else, is no candidate:

    a page of this tree; beyond the end; a pointer map; the page for locks
    not to be read as an overflow page         that begins with the next one's number, so never with a B-tree page's
                                               kind, which would be a number above 33 million
    free                                       the freelist, as far as it is looked at
    in the chain of a row whose cell changed   this table's leaves that changed are read for it
    in the chain of another tree's cell        other trees' pages that changed are read for it

An auto-vacuum database says in its pointer map whose page it is; that spares all reading of leaves. Elsewhere what
is left may be any row's, and the chains of all of this table's leaves must be looked at: the caller says so.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final

from ...sqlite.btree import Kind, cells, parse_page
from ...sqlite.freelist import trunk
from ...sqlite.header import DATABASE, Header
from ...sqlite.pointer_map import lock_page, owners, pointer_map_pages
from ...volume.errors import Corrupt
from ...volume.pageset import PageSet, span
from ..overflow_chains import follow
from ..page_source import PageSource, read_pages
from ..splits import GREATEST_ROWID, LEAST_ROWID
from ..trees import Tree, pages_of, walk
from .diff_sides import Side
from .leaf_diff import join, portions_of_leaves, rows_of
from .leaf_ranges import Leaves

_AT_ONCE: Final = 2048
_MANY: Final = 1024
_MOST_TRUNKS: Final = 64


@dataclass(frozen=True, slots=True)
class OverflowCandidates:
    """`pages` as above. `leaves`: this tree's pages with the cells of their chains; None where it isn't known."""

    pages: PageSet
    leaves: PageSet | None = None


NONE: Final = OverflowCandidates(PageSet(), PageSet())


def find_candidates(
    sides: tuple[Side, Side],
    trees: tuple[Tree, Tree],
    changed: PageSet,
    differing: tuple[Leaves, Leaves] | None,
    raw: tuple[PageSource, PageSource],
) -> OverflowCandidates:
    """`differing`: the leaves of a table with rowids that are not the same; `raw` are sources that keep nothing."""
    old, new = sides
    own = PageSet()
    for tree in trees:
        own |= pages_of(tree)
    end = min(old.source.page_count, new.source.page_count)
    pages = (changed & span(2, end)) - own
    pages.discard(lock_page(new.header.page_size))
    if old.header.auto_vacuum or new.header.auto_vacuum:
        pages -= pointer_map_pages(new.header, end)
    others: dict[int, PageSet] = {}
    if len(pages) > _MANY:
        # What belongs to a tree is told by its interior pages, so that few are read for many.
        others = _other_trees(new, trees[1].root)
        pages -= PageSet.union(PageSet(), *others.values())
    pages = _readable_as_chains(raw, pages)
    for side in sides:
        if pages:
            pages -= _free(side.source, side.header)
    if pages and new.header.auto_vacuum:
        found = owners(partial(read_pages, new.source), new.source.page_count, new.header, pages)
        if found is not None:
            ours = {page: owner for page, owner in found.items() if owner in pages_of(trees[1])}
            return OverflowCandidates(PageSet(ours), PageSet(ours.values()))
    if pages and differing is not None:
        pages = _not_of_changed_rows(sides, raw, differing, pages)
    if pages:
        others = others or _other_trees(new, trees[1].root)
        pages = _not_of_other_trees(others, raw[1], new.header, changed, pages)
    return OverflowCandidates(pages, None) if pages else NONE


def _free(source: PageSource, header: Header) -> PageSet:
    """Pages of the freelist, those of its first trunks: each names the next, so that a long list takes long."""
    free = PageSet()
    at = header.freelist_head
    for _ in range(_MOST_TRUNKS):
        if not 2 <= at <= source.page_count or at in free:
            break
        free.add(at)
        try:
            at, leaves = trunk(source.read(PageSet((at,)))[at], at, header.usable_bytes)
        except Corrupt:
            break
        free.update(leaves)
    return free


def _readable_as_chains(raw: tuple[PageSource, PageSource], pages: PageSet) -> PageSet:
    """Those that differ, and begin with the number of a next page in both snapshots."""
    left = PageSet()
    for start in range(0, len(pages), _AT_ONCE):
        some = PageSet(pages[start : start + _AT_ONCE])
        new = raw[1].read(some)
        some = PageSet(page for page in some if _link(new[page]) <= raw[1].page_count)
        old = raw[0].read(some) if some else {}
        left |= PageSet(page for page in some if _link(old[page]) <= raw[0].page_count and old[page] != new[page])
    return left


def _link(page: bytes) -> int:
    return int.from_bytes(page[:4], "big")


def _not_of_changed_rows(
    sides: tuple[Side, Side], raw: tuple[PageSource, PageSource], differing: tuple[Leaves, Leaves], pages: PageSet
) -> PageSet:
    header = sides[1].header
    both = list(zip(raw, differing, strict=True))
    for rowids, parts in portions_of_leaves(both, header.page_size, (LEAST_ROWID, GREATEST_ROWID)):
        joined = join(*(rows_of(leaves, got, header, rowids) for leaves, got in parts))
        for source, rows, mask in zip(raw, (joined.old, joined.new), joined.unlike(), strict=True):
            over = (mask & (rows.local < rows.size)).nonzero()[0]
            pages = _without(pages, follow(source, rows.chains(over), header.usable_bytes))
            if not pages:
                return pages
    return pages


def _other_trees(side: Side, root: int) -> dict[int, PageSet]:
    """Each other tree's pages. A page that was freed may still look like one of them, so the trees are walked."""
    roots = (1, *(entry.root for entry in side.schema.entries if entry.root and entry.root != root))
    return {other: pages_of(walk(side.source, other, side.header)) for other in roots}


def _not_of_other_trees(
    others: dict[int, PageSet], raw: PageSource, header: Header, changed: PageSet, pages: PageSet
) -> PageSet:
    for tree in others.values():
        numbers = list(tree & changed)
        for start in range(0, len(numbers), _AT_ONCE):
            got = read_pages(raw, PageSet(numbers[start : start + _AT_ONCE]))
            pages = _without(pages, follow(raw, list(_starts(got, header)), header.usable_bytes))
            if not pages:
                return pages
    return pages


def _starts(pages: dict[int, bytes], header: Header) -> Iterable[tuple[int, int]]:
    for number, page in pages.items():
        parsed = parse_page(page, number, DATABASE)
        if parsed.kind != Kind.INTERIOR_TABLE:
            for cell in cells(page, parsed, header.usable_bytes, DATABASE):
                if cell.overflow:
                    yield cell.overflow, cell.payload_bytes - len(cell.local)


def _without(pages: PageSet, ways: Iterable[PageSet]) -> PageSet:
    for way in ways:
        pages = pages - way
        if not pages:
            break
    return pages
