"""Incremental: what changed in a table since the LSN that its target holds, and what the target is given of that.

Only a change that is known by pages is merged. Where it would take comparing every row, or the table has no key, or
the old LSN can't be read any more, the table is written whole, which reads less; it is said why.

Executors read the changes and hand back which of the target's files hold a row that changed, and how many rows went and
came and what they sum up to: so the new checksum is known without reading what stayed. The rowids of these files are
then read anew from the source, by executors as well, and the files written anew; the others stay. Which rowids a file
holds is told by its format: it is the first column of a table's key. Where whoever compacts a table has mixed them,
files that overlap are taken for one (`TargetFiles`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...tables.changes.change_batch import CHANGE_TYPE
from ...tables.changes.change_plan import Method, plan_changes
from ...tables.changes.change_tasks import ChangeTask
from ...tables.changes.page_diff import run_changes
from ...tables.splits import GREATEST_ROWID, LEAST_ROWID
from ...volume.errors import BadInput, Corrupt, Forgotten, NotFound
from ...volume.wire import SnapshotInfo
from ..source.lease import Lease, take_lease
from ..source.page_reader import open_volume
from .checksum import NOTHING, Sum, sum_of
from .table_selection import SourceTable
from .target import DataFile, State

Range = tuple[int, int]

SMALL_BYTES: Final = 1024 * 1024

_GONE: Final = ("delete", "update_preimage")
_compute: Final[Any] = pc
"""Its annotations leave the types of values open."""


@dataclass(frozen=True, slots=True)
class MergeBase:
    """A table whose target holds an earlier LSN; it pickles."""

    source: SourceTable
    state: State
    firsts: tuple[int, ...]
    """Of `TargetFiles`."""
    whole: str = ""
    """Why changes can't be merged; that there are none still counts."""


@dataclass(frozen=True, slots=True)
class ChangePiece:
    """A piece of work: it pickles."""

    base: MergeBase
    before: SnapshotInfo
    task: ChangeTask
    lease: Lease


@dataclass(frozen=True, slots=True)
class MergePlan:
    """`whole` says why it can't be merged, or nothing. Without pieces nothing changed."""

    whole: str = ""
    pieces: tuple[ChangePiece, ...] = ()
    lease: Lease | None = None
    """Of the earlier LSN, while the pieces are read."""


@dataclass(frozen=True, slots=True)
class ChangeSummary:
    """What a piece came to. It adds up with others."""

    gone: Sum = NOTHING
    came: Sum = NOTHING
    touched: frozenset[int] = frozenset()
    """The numbers, in `TargetFiles`, of the target's files that hold a changed row."""

    def __add__(self, other: ChangeSummary) -> ChangeSummary:
        return ChangeSummary(self.gone + other.gone, self.came + other.came, self.touched | other.touched)


def plan_merge(base: MergeBase) -> MergePlan:
    """How to come from the target's LSN to the source's. Runs anywhere."""
    source, state = base.source, base.state
    volume = open_volume(source.ref)
    try:
        before = volume.snapshot(lsn=state.lsn)
        changed = volume.changed(state.lsn, source.view.lsn)
        if not changed:
            return MergePlan()
        lease = take_lease(source.ref, state.lsn, source.lease.seconds)
    except (Forgotten, NotFound):
        return MergePlan(whole=f"LSN {state.lsn}, which the target holds, is forgotten")
    with ExitStack() as unless_merged:
        unless_merged.callback(lease.release)
        try:
            plan = plan_changes(
                volume.pages(before) if before.length else None,
                volume.pages(source.view),
                changed,
                source.name,
                options=source.options,
                rowid=source.rowid,
            )
        except BadInput as error:
            return MergePlan(whole=str(error))
        if plan.method == Method.NONE:
            return MergePlan()
        if plan.method != Method.PAGES or base.whole:
            return MergePlan(whole=base.whole or plan.reason)
        unless_merged.pop_all()
        return MergePlan(pieces=tuple(ChangePiece(base, before, task, lease) for task in plan.tasks), lease=lease)


def run_piece(piece: ChangePiece) -> ChangeSummary:
    """Read the changes of a piece."""
    base, source = piece.base, piece.base.source
    volume = open_volume(source.ref)
    found = ChangeSummary()
    for batch in run_changes(piece.task, volume.pages(piece.before), volume.pages(source.view)):
        piece.lease.renew_if_due()
        source.lease.renew_if_due()
        gone = _compute.is_in(_compute.cast(batch.column(CHANGE_TYPE), pa.string()), pa.array(_GONE, pa.string()))
        rows = batch.select(source.schema.names)
        came = rows.filter(_compute.invert(gone))
        found += ChangeSummary(
            sum_of(rows.filter(gone)), sum_of(came), touched(base.firsts, rows.column(source.key[0]).to_numpy())
        )
    return found


def touched(firsts: Sequence[int], rowids: npt.NDArray[np.int64]) -> frozenset[int]:
    """A rowid belongs to the last file that doesn't begin behind it; what lies before all, to the first."""
    places = np.searchsorted(np.array(firsts, np.int64), rowids, side="right") - 1
    return frozenset(np.unique(np.maximum(places, 0)).tolist())


class TargetFiles:
    """The target's files in the order of their rowids; files that overlap are one, by whichever number they have.

    A file has the rowids from its first up to the next one's, whether rows had them or not; the first one, all before.
    What lies behind the last goes to that one only while it is small: so rows that are added take no reading of others,
    and don't make a file a time either.
    """

    def __init__(self, files: Iterable[DataFile]) -> None:
        files = list(files)
        self.has_rowids = all(file.rowids for file in files)
        self._files: list[list[DataFile]] = []
        firsts: list[int] = []
        last = LEAST_ROWID
        for (low, high), file in sorted(
            ((file.rowids, file) for file in files if file.rowids), key=lambda pair: pair[0]
        ):
            if not firsts or low > last:
                self._files.append([])
                firsts.append(low)
            self._files[-1].append(file)
            last = max(last, high)
        if firsts and last < GREATEST_ROWID and sum(file.size_bytes for file in self._files[-1]) >= SMALL_BYTES:
            self._files.append([])
            firsts.append(last + 1)
        self.firsts = tuple(firsts)

    def kept(self, touched: frozenset[int]) -> list[DataFile]:
        """The files of no number among these."""
        return [file for number, files in enumerate(self._files) if number not in touched for file in files]

    def ranges(self, touched: frozenset[int]) -> list[Range]:
        """The rowids of these: neighbours' in one range, so that what has grown or shrunk is cut anew."""
        made: list[Range] = []
        for number in sorted(touched):
            first = self.firsts[number] if number else LEAST_ROWID
            last = self.firsts[number + 1] - 1 if number + 1 < len(self.firsts) else GREATEST_ROWID
            if made and made[-1][1] + 1 == first:
                made[-1] = (made[-1][0], last)
            else:
                made.append((first, last))
        return made


def check_merged(url: str, wanted: Sum, files: Iterable[DataFile]) -> None:
    """Two ways to the same number: what changed, and what the target is to hold. Raises Corrupt."""
    found = Sum()
    summed = True
    for file in files:
        found += Sum(file.rows, file.checksum or 0)
        summed = summed and file.checksum is not None
    if found.rows != wanted.rows or (summed and found != wanted):
        raise Corrupt(
            url, f"with what changed it should have {wanted}, and has {found}: export it whole, without --incremental"
        )
