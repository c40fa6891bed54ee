"""Trees: which pages a B-tree has, by its interior pages alone, a level at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from ..sqlite.btree import Cell, Kind, cells, children, parse_page
from ..sqlite.overflow import chain
from ..volume.errors import Corrupt
from ..volume.pageset import PageSet
from .view import View, batches

_MAX_DEPTH: Final = 20
"""SQLite's own."""


@dataclass(frozen=True, slots=True)
class Tree:
    """`leaves` in key order. All leaves of a B-tree lie equally deep, so they are known without being read."""

    table: bool
    interior: tuple[int, ...]
    leaves: tuple[int, ...]

    @property
    def pages(self) -> PageSet:
        return PageSet(self.interior) | PageSet(self.leaves)

    @property
    def rows(self) -> tuple[int, ...]:
        """The pages with rows in them: the leaves; WITHOUT ROWID the others, too."""
        return self.leaves if self.table else self.interior + self.leaves


def walk(view: View, root: int) -> Tree:
    """Raises Corrupt."""
    key = f"the database of {view.name!r}"
    level, interior, seen = [root], list[int](), PageSet((root,))
    table = _parsed(view, root, key).table
    for _ in range(_MAX_DEPTH):
        kind = _parsed(view, level[0], key)
        if kind.table != table:
            raise Corrupt(key, f"page {level[0]} is of another kind than its root, page {root}")
        if not kind.interior:
            return Tree(table, tuple(interior), tuple(level))
        view.fetch(PageSet(level))
        below = [child for page in level for child in children(view.read(page), page, key)]
        fresh = PageSet(below)
        if len(fresh) != len(below) or fresh & seen or fresh.max() > view.page_count:
            raise Corrupt(key, f"the tree of page {root} comes to a page twice, or to one beyond the end")
        seen |= fresh
        interior += level
        level = below
    raise Corrupt(key, f"the tree of page {root} is too deep")


def cells_of(view: View, pages: Sequence[int]) -> Iterator[Cell]:
    """Those that hold payload, of these pages in turn. Raises Corrupt."""
    key = f"the database of {view.name!r}"
    for some in batches(pages, view.header.page_size):
        view.fetch(PageSet(some))
        for page in some:
            data = view.read(page)
            parsed = parse_page(data, page, key)
            if parsed.kind != Kind.INTERIOR_TABLE:
                yield from cells(data, parsed, view.header.usable_bytes, key)


def chain_of(view: View, cell: Cell) -> PageSet:
    """The pages that the rest of its payload lies in."""
    if not cell.overflow:
        return PageSet()
    rest = cell.payload_bytes - len(cell.local)
    key = f"the database of {view.name!r}"
    return PageSet(page for page, _ in chain(view.read, cell.overflow, rest, view.header.usable_bytes, key))


def _parsed(view: View, page: int, key: str) -> Kind:
    return parse_page(view.read(page), page, key).kind
