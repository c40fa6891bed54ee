"""Change plan: how it is found out what became of one table's rows in one step, from one snapshot to a later one.

    none     nothing: no page of the table changed. Known from page 1, the schema and the table's interior pages
    pages    leaves that are in one of the trees alone, or changed, are compared row by row; a row of any other leaf is
             the same in both snapshots, but for what lies in overflow pages: see overflow_candidates.py
    full     all rows of both snapshots are compared; `reason` says why

A leaf that is in both trees and not among the changed pages holds the same rows in both, whatever happened between: so
nothing need be known of splits, moved roots, VACUUM, or pages that came from another table. Equal records may only be
shown as different rows if the columns changed; then the method is full, and so it is where pages can't be compared
(page size, encoding), and for WITHOUT ROWID, where rows lie in interior pages too.

Rows are the same row if they have the same rowid, or WITHOUT ROWID the same primary key. A table is known by its name:
one that was renamed ended under its old name and began under its new one; a column too. Where it was made anew with
another kind of key, or in a database of another encoding, all its old rows are deleted and all its new ones inserted.

Tasks are ranges of rowids; a table WITHOUT ROWID is one task, which takes disk for both its states and no memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import pyarrow as pa

from ...sqlite.header import Header
from ...volume.errors import BadInput, NotFound
from ...volume.pageset import PageSet, rescaled
from ..page_source import PageSource
from ..scan_plan import Options, Plan, make_plan
from ..schema import Relation
from ..trees import Tree, pages_of, walk
from .change_batch import CHANGE_TYPE
from .change_tasks import ChangeTask, Cut, by_pages, feed_schema
from .diff_sides import (
    SharedCacheSource,
    Side,
    SideScan,
    find_table,
    is_table,
    opened,
    same_key,
    same_values,
    side_scan,
)
from .leaf_ranges import NO_LEAVES, Leaves
from .overflow_candidates import OverflowCandidates, find_candidates


class Method(StrEnum):
    NONE = "none"
    PAGES = "pages"
    FULL = "full"


@dataclass(frozen=True, slots=True, eq=False)
class ChangePlan:
    """`plan` is the feed's; `relation` is the table as it is in the new snapshot, None where there is none."""

    method: Method
    reason: str
    plan: Plan
    relation: Relation | None
    tasks: tuple[ChangeTask, ...] = ()

    @property
    def schema(self) -> pa.Schema:
        return feed_schema(self.plan)


def plan_changes(
    old: PageSource | None,
    new: PageSource | None,
    changed: PageSet,
    table: str,
    *,
    feed: Plan | None = None,
    columns: Sequence[str] | None = None,
    options: Options | None = None,
    rowid: str | None = None,
    count: int | None = None,
    split_bytes: int | None = None,
) -> ChangePlan:
    """`changed`: the pages of the volume that may differ, none left out. A snapshot is None before the first commit.

    `feed` is the plan of the whole feed's end where this is not its last step; else it is made of `columns`, `options`
    and `rowid`, the options as `infer_types` answers them. `count` and `split_bytes` cut tasks as splits are cut.
    Raises NotFound, BadInput, Corrupt.
    """
    ends = opened(old), opened(new)
    pages = _pages_to_compare(*ends, changed, new.page_size if new else 0)
    before, after = _sides(ends, table, None if isinstance(pages, str) else pages)
    if feed is None:
        feed = _make_feed(after or before, table, columns, options, rowid)
    before, after = (side if side and is_table(side) else None for side in (before, after))
    cut = Cut(feed, count, split_bytes)
    if before and after:
        if isinstance(pages, PageSet) and same_key(before.relation, after.relation):
            assert ends[0]
            assert ends[1]
            found = _compared_by_pages(cut, (before, after), (ends[0][0], ends[1][0]), pages)
        else:
            found = _compared_in_full(cut, before, after, "" if isinstance(pages, PageSet) else pages)
    elif before or after:
        found = Method.FULL, f"table {table} {'is gone' if before else 'is new'}", cut.alone(before, after)
    else:
        found = Method.NONE, f"there is no table {table}", ()
    method, reason, tasks = found
    return ChangePlan(method, reason, feed, after.relation if after else None, tasks)


_Found = tuple[Method, str, tuple[ChangeTask, ...]]
_End = tuple[PageSource, Header]


def _pages_to_compare(old: _End | None, new: _End | None, changed: PageSet, page_size: int) -> PageSet | str:
    """The changed pages, of `page_size`, in pages of the database; or why pages of the two can't be compared."""
    if old is None or new is None:
        return "there was no database"
    facts = [(header.page_size, header.usable_bytes, header.codec) for _, header in (old, new)]
    for what, one, other in zip(("page size", "usable page size", "text encoding"), *facts, strict=True):
        if one != other:
            return f"the database's {what} changed from {one} to {other}"
    return rescaled(changed, page_size, new[1].page_size)


def _sides(
    ends: tuple[_End | None, _End | None], table: str, changed: PageSet | None
) -> tuple[Side | None, Side | None]:
    shared: dict[int, bytes] = {}
    before, after = (end and (SharedCacheSource(end[0], changed, shared), end[1]) for end in ends)
    old = find_table(*before, table) if before else None
    return old, find_table(*after, table, old) if after else None


def _make_feed(
    end: Side | None, table: str, columns: Sequence[str] | None, options: Options | None, rowid: str | None
) -> Plan:
    if end is None:
        raise NotFound(f"there is no table {table!r} in either snapshot")
    if not is_table(end):
        kind = "SQLite's own schema" if end.relation.root == 1 else f"a {end.relation.kind.words}"
        raise BadInput(f"{table} is {kind}: changes can be told of tables alone; ask for those that it is made of")
    feed = make_plan(end.schema, end.relation, columns=columns, options=options, rowid=rowid)
    for name in feed.schema.names:
        if name.lower() == CHANGE_TYPE:
            raise BadInput(f"column {name} of table {table} has a feed's own name: leave it out of the columns")
    return feed


def _compared_in_full(cut: Cut, old: Side, new: Side, reason: str) -> _Found:
    if not same_key(old.relation, new.relation) or old.header.codec != new.header.codec:
        tasks = (*cut.alone(old, None), *cut.alone(None, new))
        tasks = tuple(replace(task, number=number) for number, task in enumerate(tasks))
        return Method.FULL, reason or "its rows have another key than before", tasks
    scans = side_scan(old, cut.feed), side_scan(new, cut.feed)
    return _all_rows(cut, scans, _trees(old, new, None), new.header, reason)


def _all_rows(
    cut: Cut, scans: tuple[SideScan, SideScan], trees: tuple[Tree, Tree], header: Header, reason: str
) -> _Found:
    if trees[1].table:
        tasks = cut.by_rowid(scans, (Leaves.of(trees[0]), Leaves.of(trees[1])), header)
    else:
        size = sum(len(pages_of(tree)) * header.page_size for tree in trees)
        tasks = (ChangeTask(0, size, cut.feed, *scans),)
    return Method.FULL, reason, tasks


def _compared_by_pages(
    cut: Cut, sides: tuple[Side, Side], sources: tuple[PageSource, PageSource], changed: PageSet
) -> _Found:
    """`sources` are the sides' own; they keep nothing of what is read by the way."""
    old, new = sides
    scans = side_scan(old, cut.feed), side_scan(new, cut.feed)
    trees = _trees(old, new, changed)
    why_full = same_values(*scans)
    if why_full:
        return _all_rows(cut, scans, trees, new.header, why_full)
    alike = (pages_of(trees[0]) & pages_of(trees[1])) - changed
    differing = [Leaves.of(tree).within(pages_of(tree) - alike) if tree.table else NO_LEAVES for tree in trees]
    candidates = find_candidates(sides, trees, changed, (differing[0], differing[1]), sources)
    unchanged = not any(map(len, differing)) if trees[1].table else alike == pages_of(trees[0]) == pages_of(trees[1])
    if unchanged and not candidates.pages:
        return Method.NONE, f"pages that changed, none of them the table's: {len(changed)}", ()
    if not trees[1].table:
        return _all_rows(cut, scans, trees, new.header, "it is WITHOUT ROWID, and some of its pages changed")
    if candidates.leaves is None and not by_pages(scans):
        why_full = f"{_candidates_in_words(candidates)}; it is read by SQLite: {scans[1].plan.reason}"
        return _all_rows(cut, scans, trees, new.header, why_full)
    leaves = Leaves.of(trees[1])
    look = leaves.within(alike if candidates.leaves is None else alike & candidates.leaves)
    tasks = cut.by_rowid(scans, (differing[0], differing[1]), new.header, look, candidates.pages, cells_tell=True)
    before, after = (f"{len(some)} of {len(tree.leaves)}" for some, tree in zip(differing, trees, strict=True))
    reason = f"leaves that differ: {before} before, {after} now"
    if candidates.pages:
        reason += f"; {_candidates_in_words(candidates)}"
        reason += f"; leaves that stayed and are looked at, with their chains: {len(look)}"
    return Method.PAGES, reason, tasks


def _candidates_in_words(candidates: OverflowCandidates) -> str:
    whose = "which may be any row's" if candidates.leaves is None else "by the pointer map of this table's rows"
    return f"overflow pages that changed, {whose}: {len(candidates.pages)}"


def _trees(old: Side, new: Side, changed: PageSet | None) -> tuple[Tree, Tree]:
    """Both, or one twice where no page above its leaves changed."""
    tree = walk(old.source, old.relation.root, old.header)
    above = PageSet((tree.root, *tree.interior))
    if changed is not None and old.relation.root == new.relation.root and above.isdisjoint(changed):
        return tree, tree
    return tree, walk(new.source, new.relation.root, new.header)
