"""Inventory: what is known of a volume beside its rows, as tables with fixed schemas, planned and read in parts.
pyspark isn't known here (metadata.py)

    history      a row for each commit up to the LSN that is read, as far back as is remembered   (timeline.py)
    snapshots    a row for each snapshot up to it that can be read, and what holds it             (timeline.py)
    tables       a row for each table, view and virtual table: columns, engine, size              (catalog.py)
    files        which objects of the store hold which table's pages                              (storage.py)
    pages        every page as it is, with the LSN of the commit that wrote it

All but `tables` are there for a volume that holds no SQLite database, too. The bytes of `pages` are those that an edge
reads: whole pages, zeros where nothing was written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import pyarrow as pa

from ...tables.page_source import database
from ...tables.schema import Schema, read_schema
from ...tables.splits import SPLIT_BYTES
from ...volume.errors import BadInput
from ...volume.pageset import page_count, span
from ...volume.pins import Pin
from ...volume.wire import CommitInfo, SnapshotInfo
from . import catalog, storage, timeline
from .columnar import needed, schema_of
from .lease import Lease
from .page_reader import REQUEST_BYTES, open_volume
from .volume_ref import VolumeRef

PAGES: Final = schema_of(
    {
        "index": needed(pa.int64()),
        "lsn": pa.int64(),
        "bytes": needed(pa.binary()),
    }
)
SCHEMAS: Final[Mapping[str, pa.Schema]] = {
    "history": timeline.HISTORY,
    "tables": catalog.TABLES,
    "files": storage.FILES,
    "snapshots": timeline.SNAPSHOTS,
    "pages": PAGES,
}

TASK_COMMITS: Final = 10_000
TASK_TABLES: Final = 32
BATCH_BYTES: Final = REQUEST_BYTES // 2


@dataclass(frozen=True, slots=True)
class MetadataTask:
    """One part of a metadata table; it pickles. `first` and `last`, both included, are LSNs of `history` and
    `snapshots`, indexes of `pages`; of `snapshots`, first 0 stands for those below `last` that something holds."""

    number: int
    kind: str
    ref: VolumeRef
    view: SnapshotInfo
    first: int = 0
    last: int = 0
    pins: tuple[Pin, ...] = ()
    names: tuple[str, ...] = ()
    schema: Schema | None = field(default=None, repr=False)
    lease: Lease | None = None


def plan_metadata(
    ref: VolumeRef,
    view: SnapshotInfo,
    kind: str,
    *,
    pages: tuple[int, int] | None = None,
    count: int | None = None,
    split_bytes: int | None = None,
    lease: Lease | None = None,
) -> list[MetadataTask]:
    """`pages` are the first and the last index that are wanted, `count` the number of tasks at most.

    Raises BadInput (an unknown kind, `tables` of what is no database), Corrupt, Unavailable, Forgotten.
    """
    if kind not in SCHEMAS:
        raise BadInput(f"there is no metadata {kind!r}: take one of {', '.join(SCHEMAS)}")
    whole = MetadataTask(0, kind, ref, view, lease=lease)
    match kind:
        case "history":
            tasks = _runs(whole, timeline.oldest(open_volume(ref).remote, view), view.lsn, count, TASK_COMMITS)
        case "snapshots":
            tasks = _plan_snapshots(whole, count)
        case "tables":
            tasks = _plan_tables(whole, count)
        case "files":
            tasks = [whole] if view.length else []
        case _:
            first, last = pages or (1, page_count(view.length, view.page_size))
            most = max(1, (split_bytes or SPLIT_BYTES) // view.page_size)
            tasks = _runs(whole, first, min(last, page_count(view.length, view.page_size)), count, most)
    return [replace(task, number=number) for number, task in enumerate(tasks)]


def run_metadata(task: MetadataTask) -> Iterator[pa.RecordBatch]:
    """The rows of a task, on whichever machine. Raises StoreErrors, Forgotten."""
    if task.lease:
        task.lease.renew_if_due()
    for batch in _RUNS[task.kind](task):
        yield batch
        if task.lease:
            task.lease.renew_if_due()


def _runs(whole: MetadataTask, first: int, last: int, count: int | None, most: int) -> list[MetadataTask]:
    """[first, last] in runs of equal length: so many, or as few as are no longer than `most`."""
    total = last - first + 1
    if total <= 0:
        return []
    number = min(total, count or -(-total // most))
    return [
        replace(whole, first=first + at * total // number, last=first + (at + 1) * total // number - 1)
        for at in range(number)
    ]


def _plan_snapshots(whole: MetadataTask, count: int | None) -> list[MetadataTask]:
    remote = open_volume(whole.ref).remote
    own = whole.lease.pin if whole.lease else None
    # The lease of this very job tells nobody anything.
    pins = tuple(pin for pin in timeline.live_pins(remote, whole.view) if pin.pin_id != own)
    oldest = timeline.oldest(remote, whole.view)
    tasks = [
        replace(task, pins=tuple(pin for pin in pins if task.first <= pin.lsn <= task.last))
        for task in _runs(whole, oldest, whole.view.lsn, count, TASK_COMMITS)
    ]
    below = tuple(pin for pin in pins if 0 < pin.lsn < oldest)
    return [replace(whole, last=oldest, pins=below), *tasks] if below else tasks


def _plan_tables(whole: MetadataTask, count: int | None) -> list[MetadataTask]:
    source, header = database(open_volume(whole.ref).pages(whole.view))
    schema = read_schema(source, header)
    names = tuple(schema.names())
    runs = _runs(replace(whole, schema=schema), 0, len(names) - 1, count, TASK_TABLES)
    return [replace(run, names=names[run.first : run.last + 1]) for run in runs]


def _history(task: MetadataTask) -> Iterator[pa.RecordBatch]:
    remote = open_volume(task.ref).remote
    for some in timeline.commits(remote, task.view, task.first, task.last):
        yield timeline.history(some, task.view, f"the answer of {remote.url}")


def _snapshots(task: MetadataTask) -> Iterator[pa.RecordBatch]:
    remote = open_volume(task.ref).remote
    found: Iterator[Sequence[CommitInfo] | Sequence[SnapshotInfo]]
    if task.first:
        found = timeline.commits(remote, task.view, task.first, task.last)
    else:
        found = iter([timeline.held_below(remote, task.view, task.pins, task.last)])
    for some in found:
        yield timeline.snapshots(some, task.view, task.pins)


def _tables(task: MetadataTask) -> Iterator[pa.RecordBatch]:
    assert task.schema is not None
    source, _ = database(open_volume(task.ref).pages(task.view))
    yield catalog.tables(source, task.schema, task.names)


def _files(task: MetadataTask) -> Iterator[pa.RecordBatch]:
    volume = open_volume(task.ref)
    for each in storage.owned(volume.pages(task.view)):
        yield storage.files(volume.remote, task.view, each)


def _pages(task: MetadataTask) -> Iterator[pa.RecordBatch]:
    volume, view = open_volume(task.ref), task.view
    source = volume.pages(view)
    most = max(1, BATCH_BYTES // view.page_size)
    for first in range(task.first, task.last + 1, most):
        wanted = span(first, min(first + most - 1, task.last))
        lsns = np.zeros(len(wanted), np.int64)
        for one in storage.placed(volume.remote, view, wanted):
            lsns[np.array(one.pages, np.int64) - first] = one.lsn
        got = source.read(wanted)
        yield pa.record_batch(
            [
                pa.array(wanted, pa.int64()),
                pa.array(lsns, pa.int64(), mask=lsns == 0),
                pa.array([got[index] for index in wanted], pa.binary()),
            ],
            schema=PAGES,
        )


_RUNS: Final = {"history": _history, "tables": _tables, "files": _files, "snapshots": _snapshots, "pages": _pages}
