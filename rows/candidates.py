"""Candidates: the rows that may differ between two views, found in the pages that do.

A page that is in a table's tree in both views, and didn't change, holds the same rows in both, whatever happened
between: splits, moved roots, VACUUM. So the candidates are the rows of all other pages of either tree, but for those
whose record lies in both, bit by bit, as it does of most rows that have a changed one beside them. Which of the rest
differ SQLite is asked (row_changes.py).

There is one more way for a row to change: its value may be overwritten in place, in its overflow pages, and its cell
stay as it was, bit by bit. So where a changed page is accounted for by nothing else (no tree's, not free, not in the
chain of a row that is a candidate anyway), each row whose chain comes to it is a candidate, and all leaves are looked
through. The first page in which two such chains differ lies in both, so a page that can be no overflow page in one of
the views is none.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Final, TypeAlias

from ..sqlite.btree import Cell
from ..sqlite.freelist import trunk
from ..sqlite.overflow import gather
from ..sqlite.pointer_map import lock_page, pointer_map_pages
from ..sqlite.record import Value as Stored
from ..sqlite.record import decode_record
from ..volume.errors import Corrupt
from ..volume.pageset import PageSet, span
from .table import Table
from .trees import Tree, cells_of, chain_of, walk
from .view import View, batches

Key: TypeAlias = tuple[Stored, ...]
"""A rowid alone; WITHOUT ROWID the primary key's values, as they are stored."""

Stands: TypeAlias = "tuple[Key, bytes | None]"
"""A row in a tree: where the bytes are the same in two, so is the row. None: what it comes to isn't known."""

_MOST_TRUNKS: Final = 4096


@dataclass(frozen=True, slots=True)
class Compared:
    """Two views of databases whose pages can be compared, and the pages that may differ."""

    before: View
    after: View
    changed: PageSet

    def differing(self, one: Tree, other: Tree) -> tuple[list[int], list[int]]:
        """The pages with rows of either tree that are not the same in both."""
        same = (PageSet(one.rows) & PageSet(other.rows)) - self.changed
        left, right = ([page for page in tree.rows if page not in same] for tree in (one, other))
        return left, right


def all_pages_that_differ(before: View, after: View) -> PageSet:
    """Where it isn't known which may: every page of both is read."""
    found, both = PageSet(), min(before.page_count, after.page_count)
    for some in batches(range(1, both + 1), after.header.page_size):
        for view in (before, after):
            view.fetch(PageSet(some))
        found |= PageSet(page for page in some if before.read(page) != after.read(page))
    return found | span(both + 1, max(before.page_count, after.page_count))


class Candidates:
    """Of tables that both views have, and whose records mean the same in both, by their folded names; `pairs` are the
    two of each."""

    def __init__(self, compared: Compared, pairs: dict[str, tuple[Table, Table]]) -> None:
        self._compared = compared
        self._trees = {
            name: (walk(compared.before, old.root), walk(compared.after, new.root))
            for name, (old, new) in pairs.items()
        }
        self._overwritten = self._find_overwritten()

    def of(self, name: str, table: Table) -> Iterator[Key]:
        """In the order of the rowids; WITHOUT ROWID in no particular one, and each once."""
        views, trees = (self._compared.before, self._compared.after), self._trees[name]
        pages = self._compared.differing(*trees)
        old, new = (_standing(view, table, cells_of(view, own)) for view, own in zip(views, pages, strict=True))
        over = self._rows_over(trees[1], table) if self._overwritten else iter(())
        if table.without_rowid:
            left = dict(old)
            for key, record in new:
                if left.get(key, b"") == record:
                    del left[key]
                else:
                    left[key] = None
            yield from left | dict(over)
        else:
            for key, found in groupby(heapq.merge(old, new, over, key=itemgetter(0)), itemgetter(0)):
                records = [record for _, record in found]
                if len(records) != 2 or None in records or records[0] != records[1]:
                    yield key

    def _rows_over(self, tree: Tree, table: Table) -> Iterator[Stands]:
        view = self._compared.after
        hit = (cell for cell in cells_of(view, tree.rows) if not chain_of(view, cell).isdisjoint(self._overwritten))
        return ((key, None) for key, _ in _standing(view, table, hit))

    def _find_overwritten(self) -> PageSet:
        """Changed pages that may have been overwritten in the chain of a row whose cell stayed as it was."""
        before, after = self._compared.before, self._compared.after
        end = min(before.page_count, after.page_count)
        left = (self._compared.changed & span(2, end)) - PageSet((lock_page(after.header.page_size),))
        for view in (before, after):
            if view.header.auto_vacuum:
                left -= pointer_map_pages(view.header, end)
        own = [tree for pair in self._trees.values() for tree in pair]
        for tree in own:
            left -= tree.pages
        for view in (before, after):
            if left:
                left -= _free(view)
        left = PageSet(page for page in left if self._may_be_a_chains(page))
        for pair in self._trees.values():
            for view, pages in zip((before, after), self._compared.differing(*pair), strict=True):
                for cell in cells_of(view, pages) if left else ():
                    left -= chain_of(view, cell)
        if left:
            left = self._without_other_trees(left)
        return left

    def _may_be_a_chains(self, page: int) -> bool:
        """Each begins with the number of the next."""
        one, other = self._compared.before, self._compared.after
        old, new = one.read(page), other.read(page)
        return (
            old != new
            and int.from_bytes(old[:4], "big") <= one.page_count
            and int.from_bytes(new[:4], "big") <= other.page_count
        )

    def _without_other_trees(self, left: PageSet) -> PageSet:
        changed = self._compared.changed
        for view in (self._compared.before, self._compared.after):
            roots = view.connection.execute("SELECT rootpage FROM sqlite_schema WHERE rootpage > 0")
            for root in [1, *(int(str(row[0])) for row in roots)]:
                tree = walk(view, root)
                left -= tree.pages
                for cell in cells_of(view, [page for page in tree.rows if page in changed]):
                    left -= chain_of(view, cell)
        return left


def _standing(view: View, table: Table, found: Iterator[Cell]) -> Iterator[Stands]:
    if not table.without_rowid:
        for cell in found:
            if cell.rowid is None:
                raise Corrupt(f"the database of {view.name!r}", f"table {table.name} has an index for its tree")
            yield (cell.rowid,), None if cell.overflow else cell.local
        return
    names, header = [part.column for part in table.parts], view.header
    places = [names.index(column) for column in table.key]
    whole = partial(gather, view.read)
    for cell in found:
        payload = whole(cell.local, cell.overflow, cell.payload_bytes, header.usable_bytes)
        # Its primary key's columns come first.
        record = decode_record(payload, header.codec)
        # Keys are held till the end, and whole records would take more.
        yield tuple(record[place] for place in places), hashlib.blake2b(payload, digest_size=16).digest()


def _free(view: View) -> PageSet:
    free, at = PageSet(), view.header.freelist_head
    for _ in range(_MOST_TRUNKS):
        if not 2 <= at <= view.page_count or at in free:
            break
        free.add(at)
        at, leaves = trunk(view.read(at), at, view.header.usable_bytes)
        free.update(leaves)
    return free
