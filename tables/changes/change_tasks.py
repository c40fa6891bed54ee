"""Change tasks: a step cut into parts of equal bytes, each of which can be run anywhere."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pyarrow as pa

from ...sqlite.header import Header
from ...volume.errors import BadInput
from ...volume.pageset import PageSet
from ..scan_plan import Engine, Plan
from ..splits import SPLIT_BYTES
from ..trees import pages_of, walk
from .change_batch import CHANGE_TYPE
from .diff_sides import Side, SideScan, side_scan
from .leaf_ranges import NO_LEAVES, Leaves, Range, cut_ranges, joined_ranges

SideScans = tuple[SideScan | None, SideScan | None]


def feed_schema(feed: Plan) -> pa.Schema:
    """The feed's columns, and what happened. A rowid is null for rows of a time when the table was WITHOUT ROWID."""
    fields = [pa.field(reading.column.name, reading.type) for reading in feed.readings]
    if feed.rowid is not None:
        fields.insert(0, pa.field(feed.rowid, pa.int64()))
    return pa.schema([*fields, pa.field(CHANGE_TYPE, pa.string(), nullable=False)])


@dataclass(frozen=True, slots=True, eq=False)
class ChangeTask:
    """A part of a step. Without `old` all its rows are inserts, without `new` deletes.

    `ranges` are its rowids, in order; none for WITHOUT ROWID. The page engine reads all rows of `old_leaves` and
    `new_leaves`, and of `look_leaves`, which are the same in both, those whose chains come to one of `candidates`.
    `cells_tell`: rows whose cells are equal are the same, but for those.
    """

    number: int
    size_bytes: int
    feed: Plan
    old: SideScan | None
    new: SideScan | None
    ranges: tuple[Range, ...] = ()
    old_leaves: Leaves = NO_LEAVES
    new_leaves: Leaves = NO_LEAVES
    look_leaves: Leaves = NO_LEAVES
    candidates: PageSet = field(default_factory=PageSet)
    cells_tell: bool = False

    @property
    def by_pages(self) -> bool:
        return by_pages((self.old, self.new))

    @property
    def schema(self) -> pa.Schema:
        return feed_schema(self.feed)


def by_pages(scans: SideScans) -> bool:
    return all(scan is None or scan.plan.engine == Engine.PAGES for scan in scans)


@dataclass(frozen=True, slots=True)
class Cut:
    """Makes tasks. `count` and `split_bytes` as those of splits."""

    feed: Plan
    count: int | None = None
    split_bytes: int | None = None

    def __post_init__(self) -> None:
        if (self.count is not None and self.count < 1) or (self.split_bytes is not None and self.split_bytes < 1):
            raise BadInput("the number of splits, and their bytes, must be at least 1")

    def alone(self, old: Side | None, new: Side | None) -> tuple[ChangeTask, ...]:
        """All rows of the one side that is given."""
        side = old or new
        assert side is not None
        scans = side_scan(old, self.feed) if old else None, side_scan(new, self.feed) if new else None
        tree = walk(side.source, side.relation.root, side.header)
        if not tree.table:
            return (ChangeTask(0, len(pages_of(tree)) * side.header.page_size, self.feed, *scans),)
        leaves = Leaves.of(tree)
        return self.by_rowid(scans, (leaves if old else NO_LEAVES, leaves if new else NO_LEAVES), side.header)

    def by_rowid(
        self,
        scans: SideScans,
        leaves: tuple[Leaves, Leaves],
        header: Header,
        look: Leaves = NO_LEAVES,
        candidates: PageSet | None = None,
        *,
        cells_tell: bool = False,
    ) -> tuple[ChangeTask, ...]:
        """Tasks of ranges of rowids: those that these leaves may hold, and no others."""
        sides = (*leaves, look)
        pages = sum(map(len, sides))
        count = self.count or -(-pages * header.page_size // (self.split_bytes or SPLIT_BYTES))
        wanted = joined_ranges(sides)
        small = by_pages(scans)
        if small:
            scans = _without_schema(scans[0]), _without_schema(scans[1])
        tasks: list[ChangeTask] = []
        for low, high in cut_ranges(sides, count):
            ranges = tuple(
                (max(first, low), min(last, high)) for first, last in wanted if first <= high and last >= low
            )
            some = [side.between((low, high)) for side in sides]
            size = sum(map(len, some)) * header.page_size
            task = ChangeTask(len(tasks), size, self.feed, *scans, ranges, cells_tell=cells_tell)
            if small:
                task = replace(
                    task,
                    old_leaves=some[0],
                    new_leaves=some[1],
                    look_leaves=some[2],
                    candidates=candidates or PageSet(),
                )
            if ranges:
                tasks.append(task)
        return tuple(tasks)


def _without_schema(scan: SideScan | None) -> SideScan | None:
    return scan and replace(scan, schema=None)
