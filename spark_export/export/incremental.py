"""Incremental: what changed in a table since the LSN that its target holds, and what the target is given of that.

Only a change that is known by pages is merged. Where it would take comparing every row, or the table has no key, or
the old LSN can't be read any more, the table is written whole, which reads less; it is said why.

What executors hand back depends on the target (target.py):

    KeepsFiles   which of its files hold a row that changed; these ranges of rowids are then read anew from the source
    MergesRows   a file of the changed rows

and in any case how many rows went and came and what they sum up to, so that the new checksum is known without reading
what stayed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...tables.changes.change_plan import Method, plan_changes
from ...tables.changes.change_tasks import ChangeTask
from ...tables.changes.page_diff import run_changes
from ...tables.splits import GREATEST_ROWID, LEAST_ROWID
from ...volume.errors import BadInput, Forgotten, NotFound
from ...volume.wire import SnapshotInfo
from ..source.hold import Hold, hold
from ..source.reach import reach
from .checksum import NOTHING, Sum, sum_of
from .target import CHANGE_TYPE, DataFile, State
from .units import Unit
from .write import Compression, write_file

__all__ = ["ChangePiece", "Changed", "Since", "Step", "ranges_of", "run_piece", "step_since"]

Range = tuple[int, int]

_GONE: Final = ("delete", "update_preimage")
_compute: Final[Any] = pc
"""Its annotations leave the types of values open."""


@dataclass(frozen=True, slots=True)
class Since:
    """A unit whose target holds an earlier LSN; it pickles."""

    number: int
    unit: Unit
    state: State
    firsts: tuple[int, ...] | None
    """The first rowid of each of the target's files, ascending, where those are kept; None where rows are merged."""
    folder: str
    compression: Compression
    whole: str = ""
    """Why changes can't be merged; that there are none still counts."""


@dataclass(frozen=True, slots=True)
class ChangePiece:
    """A piece of work: it pickles."""

    since: Since
    before: SnapshotInfo
    task: ChangeTask
    hold: Hold


@dataclass(frozen=True, slots=True)
class Step:
    """`whole` says why it can't be merged, or nothing. Without pieces nothing changed."""

    whole: str = ""
    pieces: tuple[ChangePiece, ...] = ()
    hold: Hold | None = None
    """Of the earlier LSN, while the pieces are read."""


@dataclass(frozen=True, slots=True)
class Changed:
    """What a piece came to. It adds up with others."""

    gone: Sum = NOTHING
    came: Sum = NOTHING
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    touched: frozenset[int] = frozenset()
    """The numbers of the target's files that hold a changed row."""
    files: tuple[DataFile, ...] = ()

    @property
    def rows(self) -> int:
        """That changed."""
        return self.inserted + self.updated + self.deleted

    def __add__(self, other: Changed) -> Changed:
        return Changed(
            self.gone + other.gone,
            self.came + other.came,
            self.inserted + other.inserted,
            self.updated + other.updated,
            self.deleted + other.deleted,
            self.touched | other.touched,
            self.files + other.files,
        )


def step_since(since: Since) -> Step:
    """How to come from the target's LSN to the unit's. Runs anywhere."""
    unit, state = since.unit, since.state
    reached = reach(unit.place)
    try:
        before = reached.snapshot(lsn=state.lsn)
        changed = reached.changed(state.lsn, unit.view.lsn)
    except (Forgotten, NotFound):
        return Step(whole=f"LSN {state.lsn}, which the target holds, is forgotten")
    if not changed:
        return Step()
    try:
        lease = hold(unit.place, state.lsn, unit.hold.seconds)
    except Forgotten:
        return Step(whole=f"LSN {state.lsn}, which the target holds, is forgotten")
    try:
        plan = plan_changes(
            reached.pages(before) if before.length else None,
            reached.pages(unit.view),
            changed,
            unit.table,
            options=unit.options,
            rowid=unit.rowid,
        )
    except BadInput as error:
        lease.release()
        return Step(whole=str(error))
    except BaseException:
        lease.release()
        raise
    if plan.method != Method.PAGES or since.whole:
        lease.release()
        return Step() if plan.method == Method.NONE else Step(whole=since.whole or plan.reason)
    return Step(pieces=tuple(ChangePiece(since, before, task, lease) for task in plan.tasks), hold=lease)


def run_piece(piece: ChangePiece) -> Changed:
    """Read the changes of a piece; write them where rows are merged."""
    since, unit = piece.since, piece.since.unit
    reached = reach(unit.place)
    found = Changed()

    def told() -> Iterator[pa.RecordBatch]:
        nonlocal found
        for batch in run_changes(piece.task, reached.pages(piece.before), reached.pages(unit.view)):
            piece.hold.renew_if_due()
            unit.hold.renew_if_due()
            found += _counted(batch, since)
            yield batch.filter(_compute.not_equal(batch.column(CHANGE_TYPE), "update_preimage"))

    if since.firsts is not None:
        for _ in told():
            pass
        return found
    file = write_file(told(), piece.task.schema, since.folder, since.compression)
    return replace(found, files=(file,)) if file else found


def _counted(batch: pa.RecordBatch, since: Since) -> Changed:
    kinds = _compute.cast(batch.column(CHANGE_TYPE), pa.string())
    gone = _compute.is_in(kinds, pa.array(_GONE, pa.string()))
    rows = batch.select(since.unit.schema.names)
    return Changed(
        gone=sum_of(rows.filter(gone)),
        came=sum_of(rows.filter(_compute.invert(gone))),
        inserted=_count(kinds, "insert"),
        updated=_count(kinds, "update_postimage"),
        deleted=_count(kinds, "delete"),
        touched=_touched(rows, since),
    )


def _count(kinds: pa.Array[Any], kind: str) -> int:
    return int(_compute.sum(_compute.equal(kinds, kind)).as_py() or 0)


def _touched(rows: pa.RecordBatch, since: Since) -> frozenset[int]:
    """A rowid belongs to the last file that doesn't begin behind it; what lies before all, to the first."""
    if since.firsts is None:
        return frozenset()
    rowids: npt.NDArray[np.int64] = rows.column(since.unit.key[0]).to_numpy()
    places = np.searchsorted(np.array(since.firsts, np.int64), rowids, side="right") - 1
    return frozenset(np.unique(np.maximum(places, 0)).tolist())


def ranges_of(firsts: tuple[int, ...], touched: frozenset[int]) -> list[Range]:
    """The rowids of these files: neighbours' in one range, so that what has grown or shrunk is cut anew."""
    made: list[Range] = []
    for number in sorted(touched):
        first = firsts[number] if number else LEAST_ROWID
        last = firsts[number + 1] - 1 if number + 1 < len(firsts) else GREATEST_ROWID
        if made and made[-1][1] + 1 == first:
            made[-1] = (made[-1][0], last)
        else:
            made.append((first, last))
    return made
