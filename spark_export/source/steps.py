"""Steps: a table's changes from LSN to LSN, cut into tasks. pyspark isn't known here.

Each LSN is one step, from the LSN before it; also a whole table is a step, from nothing.

A small step is planned by the task that runs it, together with its neighbours (snapshot_chain.py), so that who plans
the job reads no pages for it. A large one is planned with the job, and cut.

Rows of a step follow from its two snapshots and the plan alone; so a task that runs again, here or elsewhere, has the
same rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...tables.changes.change_plan import ChangePlan, plan_changes
from ...tables.changes.change_tasks import ChangeTask
from ...tables.changes.page_diff import run_changes
from ...tables.page_source import PageSource
from ...tables.splits import SPLIT_BYTES
from ...volume.calls import PULL_COMMITS, RangeRequest
from ...volume.errors import Forgotten
from ...volume.pageset import PageSet, encode_pages
from ...volume.wire import CommitInfo, SnapshotInfo
from .feed_table import FeedTable, check_columns
from .lease import Lease
from .options import Request
from .page_reader import RemoteVolume, open_volume
from .remotes import spill_folder
from .snapshot_chain import Link, links, open_chain

STEPS_A_TASK: Final = 32
"""So many small steps make a task at most: each takes a round trip or two."""


@dataclass(frozen=True, slots=True)
class StepTask:
    """Some steps in a row, or a part of one; it pickles. `base` is None where the step is from nothing."""

    number: int
    feed_table: FeedTable
    base: SnapshotInfo | None
    links: tuple[Link, ...]
    part: ChangeTask | None = None
    leases: tuple[Lease, ...] = ()


def commits_between(volume: RemoteVolume, after: int, to: int) -> list[CommitInfo]:
    """Every commit of (after, to]. Raises Forgotten."""
    found: list[CommitInfo] = []
    while after < to:
        some = volume.remote.ask(PULL_COMMITS, RangeRequest(volume.ref.vid.raw, after=after, to=to)).commits
        volume.requests += 1
        if not some or some[0].lsn != after + 1:
            oldest = some[0].lsn if some else 0
            raise Forgotten(f"LSN {after + 1} of volume {volume.ref.name!r} is forgotten", oldest=oldest)
        found += some
        after = some[-1].lsn
    return found


def plan_snapshot(feed_table: FeedTable, view: SnapshotInfo, leases: Sequence[Lease] = ()) -> list[StepTask]:
    """The whole table, as inserts."""
    link = Link(view, encode_pages(PageSet()))
    return _numbered(_parts(feed_table, None, link, tuple(leases), _task_bytes(feed_table.request, view.length)))


def plan_steps(feed_table: FeedTable, pairs: Sequence[tuple[int, int]], leases: Sequence[Lease] = ()) -> list[StepTask]:
    """The steps between LSNs, each of which begins where the one before it ends. Raises Forgotten, NotFound, …"""
    if not pairs:
        return []
    volume = open_volume(feed_table.ref)
    base = volume.snapshot(lsn=pairs[0][0])
    made = _links(volume, base, pairs)
    sizes = [len(link.changed) * base.page_size for link in made]
    most = _task_bytes(feed_table.request, sum(sizes))
    tasks: list[StepTask] = []
    run: list[Link] = []
    start, weight = base, 0

    def end_run() -> None:
        nonlocal run, weight
        if run:
            tasks.append(StepTask(0, feed_table, start, tuple(run), leases=tuple(leases)))
        run, weight = [], 0

    each = _steps_a_task(feed_table, len(made))
    before = base
    for link, size in zip(made, sizes, strict=True):
        if run and (weight + size > most or len(run) == each):
            end_run()
        if size > most:
            tasks += _parts(feed_table, before, link, tuple(leases), most)
        else:
            start = start if run else before
            run.append(link)
            weight += size
        before = link.view
    end_run()
    return _numbered(tasks)


def _links(volume: RemoteVolume, base: SnapshotInfo, pairs: Sequence[tuple[int, int]]) -> list[Link]:
    if len(pairs) == 1 and pairs[0][1] - pairs[0][0] > 1:
        after, to = pairs[0]
        return [Link(volume.snapshot(lsn=to), encode_pages(volume.changed(after, to)))]
    return links(base, commits_between(volume, pairs[0][0], pairs[-1][1]))


def _steps_a_task(feed_table: FeedTable, steps: int) -> int:
    wanted = feed_table.request.partitions
    return STEPS_A_TASK if wanted is None else max(1, -(-steps // wanted))


def _task_bytes(request: Request, total: int) -> int:
    """The changed pages of a task, about."""
    return request.split_bytes or (
        SPLIT_BYTES if request.partitions is None else max(1, -(-total // request.partitions))
    )


def _numbered(tasks: list[StepTask]) -> list[StepTask]:
    return [replace(task, number=number) for number, task in enumerate(tasks)]


def _parts(
    feed_table: FeedTable, base: SnapshotInfo | None, link: Link, leases: tuple[Lease, ...], most: int
) -> list[StepTask]:
    """A step that is planned here, and cut."""
    old, new = _sources(feed_table, base, link)
    planned = _planned(feed_table, old, new, link, most)
    return [StepTask(0, feed_table, base, (link,), part, leases) for part in planned.tasks]


def _sources(feed_table: FeedTable, base: SnapshotInfo | None, link: Link) -> tuple[PageSource | None, PageSource]:
    volume = open_volume(feed_table.ref)
    if base is None:
        return None, volume.pages(link.view)
    old, new = open_chain(volume, base, (link,))
    return old, new


def _planned(
    feed_table: FeedTable, old: PageSource | None, new: PageSource, link: Link, most: int | None = None
) -> ChangePlan:
    planned = plan_changes(
        old, new, link.changed, feed_table.table, feed=feed_table.plan, count=None if most else 1, split_bytes=most
    )
    if feed_table.fixed and planned.relation is not None and link.view.lsn > feed_table.at:
        check_columns(feed_table, planned.relation, link.view.lsn)
    return planned


def run_steps(task: StepTask) -> Iterator[pa.RecordBatch]:
    """The rows of a task, on whichever machine, in the order of their LSNs."""
    for lease in task.leases:
        lease.renew_if_due()
    for batch in _batches(task):
        yield batch
        for lease in task.leases:
            lease.renew_if_due()


def _batches(task: StepTask) -> Iterator[pa.RecordBatch]:
    feed_table = task.feed_table
    if task.part is not None:
        (link,) = task.links
        old, new = _sources(feed_table, task.base, link)
        for batch in run_changes(task.part, old, new, spill_folder()):
            yield _with_commit(feed_table, batch, link.view)
        return
    assert task.base is not None
    sources = open_chain(open_volume(feed_table.ref), task.base, task.links)
    for link, (old, new) in zip(task.links, pairwise(sources), strict=True):
        for part in _planned(feed_table, old, new, link).tasks:
            for batch in run_changes(part, old, new, spill_folder()):
                yield _with_commit(feed_table, batch, link.view)
        for lease in task.leases:
            lease.renew_if_due()


def _with_commit(feed_table: FeedTable, batch: pa.RecordBatch, view: SnapshotInfo) -> pa.RecordBatch:
    """With the LSN and its time."""
    rows = batch.num_rows
    lsns = pa.array(np.full(rows, view.lsn, np.int64))
    times = pa.array(np.full(rows, view.time * 1000, np.int64)).cast(feed_table.schema.types[-1])
    columns: list[pa.Array[Any]] = [*batch.columns, lsns, times]  # pyright: ignore[reportUnknownMemberType]
    return pa.record_batch(columns, schema=feed_table.schema)


def distinct(batch: pa.RecordBatch, name: str) -> list[Any]:
    column: pa.Array[Any] = batch.column(name)  # pyright: ignore[reportUnknownVariableType]
    found: list[Any] = pc.unique(column).to_pylist()
    return found
