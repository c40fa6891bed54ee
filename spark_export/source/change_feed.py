"""Change feed: `readChangeFeed=true`: what every commit changed in a table, from one LSN to another, as rows.

Delta's names and meanings: `startingVersion` and `endingVersion` are both included; `startingTimestamp` is the first
LSN that is not earlier, `endingTimestamp` the last that is not later. Without an end it is the newest LSN, resolved
once, when the DataFrame is loaded, which also fixes the columns: those that the table has at the end.

The step of LSN n needs LSN n - 1, to compare with (LSN 0 is empty). So the first step's is held as well as the end;
what lies between is not: where `since` overtakes a running job, the job fails and says so.

`load()` can't know whether a stream follows, which may go on from a checkpoint and then has no use for a start: what is
wrong with the range is kept, and said when the DataFrame is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from ...volume.errors import BadInput, BudwoodError, NotFound, UsageError
from ...volume.wire import SnapshotInfo
from .feed_table import FeedTable, available_lsns, first_at, is_readable, open_feed_table
from .lease import Lease, take_lease
from .offsets import AvailableLsns, check_start
from .options import Request
from .page_reader import RemoteVolume, open_volume
from .partitions import TaskReader
from .resolution import Resolved
from .steps import StepTask, plan_steps, run_steps


@dataclass(frozen=True, slots=True)
class ChangeFeed:
    """What is read, once and for all; it pickles. LSNs after `after` up to `last`; `refused`: why that can't be."""

    feed_table: FeedTable
    after: int
    last: int
    leases: tuple[Lease, ...]
    refused: BudwoodError | None = None

    @property
    def schema(self) -> pa.Schema:
        return self.feed_table.schema


def plan_feed(resolved: Resolved) -> ChangeFeed:
    """Raises BadInput and NotFound where the table can't be read; see `ChangeFeed.refused` for its range."""
    ref, request = resolved.ref, resolved.request
    try:
        after, end = _range(open_volume(ref), request, resolved.view)
        lsns = sorted({lsn for lsn in (after, end.lsn) if lsn})
        leases = tuple(take_lease(ref, lsn, request.lease_seconds) for lsn in lsns)
    except UsageError as error:
        return ChangeFeed(open_feed_table(ref, request, resolved.view, fixed=False), 0, 0, (), error)
    return ChangeFeed(_feed_table(resolved, after, end), after, end.lsn, leases)


def _range(volume: RemoteVolume, request: Request, newest: SnapshotInfo) -> tuple[int, SnapshotInfo]:
    """The LSN before the first step, and the snapshot at the end."""
    end = _end(volume, request, newest)
    available = available_lsns(volume, newest, end.lsn)
    first = _first(volume, request, available)
    after = first - 1
    if request.starting_ms is not None or request.ending_ms is not None:
        # Between two times there may be no commit.
        after = min(after, end.lsn)
    elif first > end.lsn:
        raise BadInput(f"startingVersion is {first}, and the feed ends at LSN {end.lsn}: give one that is not later")
    oldest = available_lsns(volume, newest, after).oldest
    check_start(after, AvailableLsns(oldest, end.lsn), held=oldest == after + 1 and is_readable(volume, after))
    return after, end


def _end(volume: RemoteVolume, request: Request, newest: SnapshotInfo) -> SnapshotInfo:
    if request.ending_ms is not None:
        return volume.snapshot(at_ms=request.ending_ms)
    if request.ending_version is None or request.ending_version == "latest":
        return newest
    if request.ending_version > newest.lsn:
        raise NotFound(f"endingVersion is {request.ending_version}, and the newest LSN is {newest.lsn}: leave it out")
    return volume.snapshot(lsn=request.ending_version)


def _first(volume: RemoteVolume, request: Request, available: AvailableLsns) -> int:
    if request.starting_ms is not None:
        return first_at(volume, request.starting_ms, available)
    if request.starting_version == "latest":
        raise BadInput("startingVersion=latest is for streams: name an LSN")
    if request.starting_version is None:
        raise BadInput("readChangeFeed needs a start: the option startingVersion (an LSN) or startingTimestamp")
    return request.starting_version


def _feed_table(resolved: Resolved, after: int, end: SnapshotInfo) -> FeedTable:
    """By the schema of the end; of a table that was dropped meanwhile, by that of the beginning."""
    ref, request = resolved.ref, resolved.request
    try:
        return open_feed_table(ref, request, end, fixed=False)
    except NotFound:
        if not 0 < after < end.lsn:
            raise
        return open_feed_table(ref, request, open_volume(ref).snapshot(lsn=after), fixed=False)


class ChangeFeedReader(TaskReader[StepTask]):
    def __init__(self, feed: ChangeFeed) -> None:
        self._feed = feed

    def plan(self) -> list[StepTask]:
        feed = self._feed
        if feed.refused is not None:
            raise feed.refused
        # From here on the whole leases are the job's.
        leases = [lease.renew() for lease in feed.leases]
        pairs = [(lsn - 1, lsn) for lsn in range(feed.after + 1, feed.last + 1)]
        return plan_steps(feed.feed_table, pairs, leases)

    def run(self, task: StepTask) -> Iterator[pa.RecordBatch]:
        return run_steps(task)
