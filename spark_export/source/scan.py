"""Scan: what a job reads of one snapshot, cut into tasks, and how a task reads its part. pyspark isn't known here.

A task holds all that an executor needs, so that no executor asks the one that planned. The page engine's tasks know
their leaves, and read these and nothing else of the tree; the general engine's know their rowids and the pages of the
schema.

Frames hold neighbouring pages, so leaves are best read in the order of their page numbers. Where keys were inserted in
their order that is the tree's own; where it isn't, the runs that tasks get are cut from the leaves in the order of
their pages, so that no two tasks fetch the same frames: rows then come in no particular order, as Spark allows.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from ...sqlite.header import Header
from ...tables.general_engine import GeneralEngine, rowid_name
from ...tables.page_engine import FETCH_BYTES, PageEngine
from ...tables.page_source import PageSource, database, resized
from ...tables.scan_plan import Engine, Options, Plan, make_plan
from ...tables.schema import Kind, Relation, Schema, describe_query, read_relation, read_schema
from ...tables.splits import SPLIT_BYTES, cut
from ...tables.trees import walk
from ...tables.type_inference import infer_types
from ...volume.errors import BadInput
from ...volume.wire import SnapshotInfo
from .lease import Lease, LeasedPages
from .page_reader import open_volume
from .prefetch import Prefetcher
from .remotes import spill_folder
from .volume_ref import VolumeRef

if TYPE_CHECKING:
    from .pushed_filters import PushedFilters

LEAST_BYTES: Final = 4 * 1024 * 1024
_LEAST_PARTS: Final = 4


@dataclass(frozen=True, slots=True)
class ScanTask:
    """One part of a scan; it pickles."""

    number: int
    size_bytes: int
    rowids: tuple[int, int] | None
    """The first and the last that are wanted; None where the leaves alone say it."""
    ref: VolumeRef
    view: SnapshotInfo
    header: Header
    plan: Plan
    leaves: array[int] = field(default_factory=lambda: array("I"), repr=False)
    schema: Schema | None = field(default=None, repr=False)
    """The general engine's alone: it holds pages."""
    pushed: PushedFilters | None = None
    lease: Lease | None = None


@dataclass(frozen=True, slots=True)
class Scan:
    plan: Plan
    tasks: list[ScanTask]


def describe(
    source: PageSource, table: str | None, query: str | None, directory: Path | None = None
) -> tuple[PageSource, Schema, Relation]:
    """The snapshot in pages of its database's size, its schema, and the table or query in it.

    Raises BadInput, NotFound, Unsupported, Corrupt.
    """
    source, header = database(source)
    schema = read_schema(source, header)
    if query is not None:
        return source, schema, describe_query(source, schema, query, directory)
    if table is None:
        raise BadInput("it isn't said which table to read")
    return source, schema, read_relation(source, schema, table, directory)


def plan_rows(
    ref: VolumeRef,
    view: SnapshotInfo,
    *,
    table: str | None = None,
    query: str | None = None,
    columns: Sequence[str] | None = None,
    options: Options | None = None,
    rowid: str | None = None,
    engine: Engine | None = None,
) -> tuple[PageSource, Schema, Plan]:
    """What a scan would read, before it is cut. Raises as `plan_scan`."""
    source, schema, relation = describe(open_volume(ref).pages(view), table, query)
    own = _with_own_names(options or Options(), relation)
    own = infer_types(source, schema, relation, own, columns, spill_folder())
    return source, schema, make_plan(schema, relation, columns=columns, options=own, rowid=rowid, engine=engine)


def plan_scan(
    ref: VolumeRef,
    view: SnapshotInfo,
    *,
    table: str | None = None,
    query: str | None = None,
    columns: Sequence[str] | None = None,
    options: Options | None = None,
    rowid: str | None = None,
    engine: Engine | None = None,
    count: int | None = None,
    split_bytes: int | None = None,
    pushed: PushedFilters | None = None,
    lease: Lease | None = None,
) -> Scan:
    """What to read, and how it is cut. With `pushed.rowids` the runs are in the order of keys, and tell their rowids.

    Raises BadInput, NotFound, Unsupported, Corrupt, Unavailable, Forgotten.
    """
    source, schema, plan = plan_rows(
        ref, view, table=table, query=query, columns=columns, options=options, rowid=rowid, engine=engine
    )
    whole = ScanTask(0, source.page_count * source.page_size, None, ref, view, schema.header, plan)
    whole = replace(whole, pushed=pushed, lease=lease, schema=schema if plan.engine == Engine.GENERAL else None)
    if not _has_leaves(plan.relation) or (plan.engine == Engine.GENERAL and rowid_name(plan.relation) is None):
        return Scan(plan, [whole])
    tree = walk(source, plan.relation.root, schema.header)
    wanted = pushed.rowids if pushed else None
    selective = pushed is not None and bool(pushed.conditions)
    usual = None if count else _usual_bytes(len(tree.leaves) * source.page_size, selective=selective)
    by_key = wanted is not None or plan.engine == Engine.GENERAL
    if not by_key and _is_scattered(tree.leaves):
        tree = replace(tree, leaves=array("I", sorted(tree.leaves)))
    tasks = [
        replace(
            whole,
            number=run.number,
            size_bytes=run.size_bytes,
            rowids=(run.first, run.last) if by_key else None,
            leaves=run.leaves if plan.engine == Engine.PAGES else whole.leaves,
        )
        for run in cut(tree, source.page_size, count=count, split_bytes=split_bytes or usual, rowids=wanted)
    ]
    return Scan(plan, tasks)


def run_scan(task: ScanTask) -> Iterator[pa.RecordBatch]:
    """The rows of a task, on whichever machine. Raises as `plan_scan`, and BadInput for a value that isn't its
    column's (see Options.mismatch)."""
    source = resized(open_volume(task.ref).pages(task.view), task.header)
    if task.lease:
        source = LeasedPages(source, task.lease)
    predicate = task.pushed.predicate(task.plan) if task.pushed else None
    if task.plan.engine == Engine.PAGES:
        with Prefetcher(source, task.leaves, max(1, FETCH_BYTES // task.header.page_size)) as ahead:
            yield from PageEngine(ahead, task.header, task.plan, predicate).batches(task.leaves, task.rowids)
        return
    assert task.schema is not None
    yield from GeneralEngine(source, task.schema, task.plan, spill_folder(), predicate).batches(task.rowids)


def _usual_bytes(table_bytes: int, *, selective: bool) -> int:
    """What a split takes unless told: SPLIT_BYTES, and less for a table that is smaller than the cores are many.

    Nobody tells a source how many there are. Those of the machine that plans, twice, are right for a session on one
    machine, and a start for others. Below LEAST_BYTES a task costs more than it reads; and where few rows are kept,
    the start of a task is much of what it costs, so there are half as many.
    """
    parts = max(_LEAST_PARTS, 2 * (os.cpu_count() or 1)) // (2 if selective else 1)
    return max(LEAST_BYTES, min(SPLIT_BYTES, -(-table_bytes // parts)))


def _is_scattered(leaves: array[int]) -> bool:
    """Whether the tree's order goes back and forth among pages: more often than at one leaf in sixteen."""
    return sum(one > other for one, other in pairwise(leaves)) * 16 > len(leaves)


def _with_own_names(options: Options, relation: Relation) -> Options:
    """Spark hands over names of options in lower case."""
    own = {column.name.lower(): column.name for column in reversed(relation.columns)}
    return replace(options, types={own.get(name.lower(), name): target for name, target in options.types.items()})


def _has_leaves(relation: Relation) -> bool:
    return relation.kind in (Kind.TABLE, Kind.SHADOW) and not relation.without_rowid and relation.root > 0
