"""Page diff: a change task is run; the changes come as Arrow batches of the feed's columns and `_change_type`.

The page engine's way: leaves of both snapshots in portions of the same rowids; cells that are equal, byte for byte, are
let go before anything is decoded; what is left is decoded by each side's own columns, and told where it is shown
differently. Memory is bounded by a portion of leaves, and by page_engine.PORTION_BYTES of rows that overflow; a single
row may be longer.

Rows that SQLite must read, it compares as well: see sqlite_diff.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from ...sqlite.header import Header
from ...volume.pageset import PageSet
from ..leaf_rows import Rows
from ..overflow_chains import follow
from ..page_engine import PORTION_BYTES, PageEngine
from ..page_source import PageSource, resized
from .change_batch import FeedRows, change_batches, columns_of, no_rows
from .change_tasks import ChangeTask
from .diff_sides import SideScan
from .leaf_diff import Bools, Ints, Joined, join, portions_of_leaves, rows_of
from .leaf_ranges import Range
from .sqlite_diff import run_by_sqlite


def run_changes(
    task: ChangeTask, old: PageSource | None, new: PageSource | None, directory: Path | None = None
) -> Iterator[pa.RecordBatch]:
    """`old` and `new` are the snapshots that the task was planned for; `directory` is for SQLite's files, else that
    of temporary ones. Raises BadInput, Corrupt, Unsupported, Full."""
    before = resized(old, task.old.header) if task.old and old else None
    after = resized(new, task.new.header) if task.new and new else None
    if task.by_pages:
        return _run_by_pages(task, before, after)
    return run_by_sqlite(task, before, after, directory)


def _run_by_pages(task: ChangeTask, old: PageSource | None, new: PageSource | None) -> Iterator[pa.RecordBatch]:
    one = new or old
    either = task.new or task.old
    assert one
    assert either
    readers = _Reader(task, task.old, old), _Reader(task, task.new, new)
    headers = [(scan or either).header for scan in (task.old, task.new, task.new)]
    sides = [(old or one, task.old_leaves), (new or one, task.new_leaves), (new or one, task.look_leaves)]
    rowids = (task.ranges[0][0], task.ranges[-1][1])
    for part, leaves in portions_of_leaves(sides, either.header.page_size, rowids):
        rows = [rows_of(*some, header, part) for some, header in zip(leaves, headers, strict=True)]
        joined = join(rows[0], rows[1], cells_tell=task.cells_tell)
        if task.candidates and new:
            _mark_unequal(joined, new, task)
        gone, come = joined.unlike()
        yield from _changes_of(task, readers, joined.old.select(gone), joined.new.select(come))
        if len(rows[2]) and task.new and new:
            found = rows[2].select(_with_chains_in(new, rows[2], task.new.header, task.candidates))
            yield from _changes_of(task, readers, found, found)


def _mark_unequal(joined: Joined, new: PageSource, task: ChangeTask) -> None:
    """Equal cells whose chains come to a candidate are not the same."""
    assert task.new
    which = np.flatnonzero(joined.same)
    rows = joined.new.select(joined.pairs[1][which])
    joined.same[which[_with_chains_in(new, rows, task.new.header, task.candidates)]] = False


def _with_chains_in(source: PageSource, rows: Rows, header: Header, pages: PageSet) -> Bools:
    """Which of these rows have a chain that comes to one of `pages`."""
    meeting = np.zeros(len(rows), np.bool_)
    over = np.flatnonzero(rows.local < rows.size)
    if len(over) and pages:
        ways = follow(source, rows.chains(over), header.usable_bytes)
        meeting[over] = [not way.isdisjoint(pages) for way in ways]
    return meeting


class _Reader:
    """One side's rows as the feed shows them; a side that isn't there has none."""

    def __init__(self, task: ChangeTask, scan: SideScan | None, source: PageSource | None) -> None:
        self._feed = task.feed
        self._half = scan
        self._engine = PageEngine(source, scan.header, scan.plan) if scan and source else None

    def shown(self, rows: Rows) -> FeedRows:
        if not len(rows) or not self._half or not self._engine:
            return no_rows(self._feed.schema)
        # What is asked for at once fits into one portion of the engine, or is a single row.
        (batch,) = self._engine.rows(rows)
        return self._half.shown(self._feed, columns_of(batch), batch.num_rows)


def _changes_of(task: ChangeTask, readers: tuple[_Reader, _Reader], old: Rows, new: Rows) -> Iterator[pa.RecordBatch]:
    for rowids in _portions(old, new):
        before, after = _between(old, rowids), _between(new, rowids)
        _, *pairs = np.intersect1d(before.rowid, after.rowid, assume_unique=True, return_indices=True)
        yield from change_batches(task.schema, readers[0].shown(before), readers[1].shown(after), (pairs[0], pairs[1]))


def _between(rows: Rows, rowids: Range) -> Rows:
    begin, end = np.searchsorted(rows.rowid, rowids[0], "left"), np.searchsorted(rows.rowid, rowids[1], "right")
    return rows.select(slice(int(begin), int(end)))


def _portions(old: Rows, new: Rows) -> Iterator[Range]:
    """Ranges of rowids, cut where the payloads that overflow fill a portion."""
    ends = [int(rows.rowid[end]) for rows in (old, new) if len(rows) for end in (0, -1)]
    if not ends:
        return
    first = min(ends)
    overflowing = [np.where(rows.local < rows.size, rows.size, 0) for rows in (old, new)]
    if sum(int(sizes.sum()) for sizes in overflowing) > PORTION_BYTES:
        rowids: Ints = np.union1d(old.rowid, new.rowid)
        long = np.zeros(len(rowids), np.int64)
        for rows, sizes in zip((old, new), overflowing, strict=True):
            long[np.searchsorted(rowids, rows.rowid)] += sizes
        filled = 0
        for rowid, size in zip(rowids.tolist(), long.tolist(), strict=True):
            if filled and filled + size > PORTION_BYTES:
                yield first, rowid - 1
                first, filled = rowid, 0
            filled += size
    yield first, max(ends)
