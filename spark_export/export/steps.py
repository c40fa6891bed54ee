"""Steps: one export's way through its tables; run.py says what each step is for.

A table's `_Work` goes along and gathers what is known of it. Once it has an error no later step touches it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import TYPE_CHECKING, Final, TypeVar

from ...tables.splits import GREATEST_ROWID, LEAST_ROWID, SPLIT_BYTES
from ...volume.errors import AlreadyExists, BadInput, BudwoodError, Corrupt
from ..source.pushed import Pushed
from ..source.scan import ScanTask, plan_scan
from .checksum import Sum
from .files import join
from .incremental import Changed, ChangePiece, Range, Since, Step, ranges_of, run_piece, step_since
from .job import run_job, side_by_side
from .leases import Leases
from .lock import Locks
from .parquet import ParquetTarget
from .results import Action, Result
from .target import COMMITTED, WRITTEN, Changes, DataFile, KeepsFiles, MergesRows, State, Target
from .units import Asked, Chosen, Surveyed, Unit, folder_name, survey
from .verify import checksum_rows, compare
from .write import Compression, Write, write_rows

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["Order", "Progress", "Steps"]

P = TypeVar("P")
A = TypeVar("A")

Progress = Callable[[str, int, int], None]
"""Told what is being done, how many bytes of the source it has come to, and of how many."""

_FEW: Final = 8
"""So many volumes, or tables, are looked at from here; more are spread over the cluster."""
_TASKS_A_CORE: Final = 2
_LEAST_SPLIT_BYTES: Final = 8 * 1024 * 1024
_EVERYWHERE: Final[Range] = (LEAST_ROWID, GREATEST_ROWID)


@dataclass(frozen=True, slots=True)
class Order:
    """What was asked for."""

    to: str
    format: str
    run: str
    asked: Asked
    incremental: bool
    verify: bool
    replace: bool
    compression: Compression
    split_bytes: int | None
    catalog: str


@dataclass(slots=True)
class _Work:
    number: int
    unit: Unit
    target: Target | None = None
    before: State | None = None
    action: Action = Action.WRITTEN
    reason: str = ""
    since: Since | None = None
    folder: str = ""
    ranges: list[Range] = field(default_factory=list[Range])
    tasks: list[ScanTask] = field(default_factory=list[ScanTask])
    pieces: list[ChangePiece] = field(default_factory=list[ChangePiece])
    changed: Changed = field(default_factory=Changed)
    kept: list[DataFile] = field(default_factory=list[DataFile])
    files: list[DataFile] = field(default_factory=list[DataFile])
    after: State | None = None
    verified: bool = False
    error: BudwoodError | None = None
    seconds: float = 0.0

    @property
    def there(self) -> Target:
        assert self.target is not None
        return self.target


class Steps:
    """One export."""

    def __init__(
        self,
        order: Order,
        cluster: Callable[[], SparkContext],
        leases: Leases,
        held: Locks,
        progress: Progress | None,
    ) -> None:
        self._order = order
        self._cluster = cluster
        self._leases = leases
        self._held = held
        self._progress = progress
        self._begun = time.monotonic()
        self._results: list[Result] = []

    def take(self, chosen: Sequence[Chosen | tuple[str, BudwoodError]]) -> list[Result]:
        for name, error in (each for each in chosen if not isinstance(each, Chosen)):
            self._lost(name, "", error)
        works = self._survey([each for each in chosen if isinstance(each, Chosen)])
        self._check_types(works)
        self._each(works, self._decide)
        self._plan([work for work in works if work.action != Action.UNCHANGED])
        self._read(works)
        self._each(works, self._commit)
        for work in works:
            self._tidy(work)
        if self._order.verify:
            self._verify(works)
        return self._results + [self._result(work) for work in works]

    def _survey(self, chosen: list[Chosen]) -> list[_Work]:
        found = self._spread("surveying", chosen, partial(survey, asked=self._order.asked))
        self._leases.add(each.hold for each in found if isinstance(each, Surveyed))
        works: list[_Work] = []
        for one, each in zip(chosen, found, strict=True):
            if isinstance(each, BudwoodError):
                self._lost(one.place.name, "", each)
                continue
            for lost in each.lost:
                self._lost(one.place.name, lost.table, lost.error)
            if each.skipped:
                self._passed_over(each)
            works += [_Work(len(works) + number, unit) for number, unit in enumerate(each.units)]
        return works

    def _check_types(self, works: Sequence[_Work]) -> None:
        """A column that is named for a type must be one of some table's: else its name was mistaken."""
        known = {name for work in works for name in work.unit.options.types}
        unknown = [name for name in self._order.asked.options.types if name not in known]
        if unknown and works and not any(result.error for result in self._results):
            raise BadInput(
                f"none of the tables has a column {unknown[0]!r}, for which option type.{unknown[0]} is given"
            )

    def _decide(self, work: _Work) -> None:
        unit, order = work.unit, self._order
        target = work.target = self._target(unit)
        self._held.take(target.url)
        target.sweep()
        before = work.before = target.state()
        if before is not None and not order.replace:
            _check_place(before, unit, target.url)
            if before.lsn == unit.view.lsn and before.columns == unit.columns:
                work.action, work.after = Action.UNCHANGED, before
                work.reason = f"LSN {before.lsn} stands there already"
                return
        work.folder = target.folder(order.run)
        if before is None or not order.incremental:
            return
        work.reason = self._why_whole(unit, before, target)
        if not work.reason:
            kept = _firsts(target)
            work.since = Since(work.number, unit, before, kept, work.folder, order.compression, _unmerged(unit, target))

    def _why_whole(self, unit: Unit, before: State, target: Target) -> str:
        """What is known without looking at the volume."""
        if before.volume != str(unit.place.vid):
            return "another volume stood there"
        if before.lsn >= unit.view.lsn:
            return f"LSN {before.lsn} stood there"
        if not unit.key:
            return "it has no key to tell its rows by"
        if before.key != unit.key:
            return "its key changed"
        if before.columns != unit.columns:
            return "its columns changed"
        return ""

    def _plan(self, works: list[_Work]) -> None:
        works = [work for work in works if work.error is None]
        merged = [work for work in works if work.since is not None]
        sinces = [work.since for work in merged if work.since is not None]
        for work, step in zip(merged, self._spread("comparing", sinces, step_since), strict=True):
            if isinstance(step, BudwoodError):
                work.error = step
            elif step.whole:
                work.reason, work.since = step.whole, None
            else:
                self._leases.add([step.hold])
                self._begin_merge(work, step)
        self._plan_scans([work for work in works if work.since is None], lambda _: [_EVERYWHERE])

    def _begin_merge(self, work: _Work, step: Step) -> None:
        work.pieces = list(step.pieces)
        work.action = Action.MERGED
        if not step.pieces:
            self._nothing_changed(work)

    def _nothing_changed(self, work: _Work) -> None:
        assert work.before is not None
        work.action = Action.UNCHANGED
        work.reason = f"nothing of it changed since LSN {work.before.lsn}"

    def _plan_scans(self, works: list[_Work], ranges: Callable[[_Work], list[Range]]) -> None:
        works = [work for work in works if work.error is None]
        plan = partial(_scan_tasks, split_bytes=self._split_bytes(works))
        asked = [(work.unit, ranges(work)) for work in works]
        for work, tasks in zip(works, self._spread("planning", asked, plan), strict=True):
            if isinstance(tasks, BudwoodError):
                work.error = tasks
            else:
                work.tasks = tasks

    def _split_bytes(self, works: list[_Work]) -> int:
        """What nobody said is chosen so that all cores have something to do, and files are not small."""
        if self._order.split_bytes is not None or not works:
            return self._order.split_bytes or SPLIT_BYTES
        volumes = {work.unit.view.vid: work.unit.view.length for work in works}
        share = sum(volumes.values()) // (self._cluster().defaultParallelism * _TASKS_A_CORE)
        return min(max(share, _LEAST_SPLIT_BYTES), SPLIT_BYTES)

    def _read(self, works: list[_Work]) -> None:
        """Rows of what is written whole, and changes, as one job; then rows of files that hold a change."""
        self._read_now(works, "writing")
        for work in works:
            if work.error is None and work.action == Action.MERGED and not work.changed.rows:
                # Pages did, and no row: a row that came and went, a VACUUM.
                self._nothing_changed(work)
        again = [work for work in works if work.error is None and work.since and work.since.firsts is not None]
        again = [work for work in again if work.changed.touched]
        for work in again:
            self._keep_files(work)
        self._plan_scans(again, lambda work: work.ranges)
        self._read_now(again, "merging")

    def _read_now(self, works: list[_Work], doing: str) -> None:
        pieces: list[Write | ChangePiece] = []
        owners: list[_Work] = []
        for work in works:
            if work.error is None and (work.tasks or work.pieces):
                schema = work.there.written(work.unit.schema)
                folder, compression = work.folder, self._order.compression
                some = [Write(work.number, task, schema, folder, compression) for task in work.tasks]
                pieces += [*some, *work.pieces]
                owners += [work] * (len(some) + len(work.pieces))
                work.tasks, work.pieces = [], []
        for work, found in zip(owners, self._job(doing, pieces, _do), strict=True):
            match found:
                case BudwoodError():
                    work.error = work.error or found
                case Changed():
                    work.changed += found
                case DataFile():
                    work.files.append(found)
                case None:
                    pass

    def _keep_files(self, work: _Work) -> None:
        assert work.since is not None
        assert work.since.firsts is not None
        assert isinstance(work.target, KeepsFiles)
        ordered = _ordered(work.target.files())
        work.kept = [file for number, file in enumerate(ordered) if number not in work.changed.touched]
        work.ranges = ranges_of(work.since.firsts, work.changed.touched)

    def _commit(self, work: _Work) -> None:
        target, unit = work.there, work.unit
        if work.after is None:
            work.after = self._new_state(work)
            WRITTEN()
            if work.since is None:
                target.replace(work.files, unit.schema, work.after, again=self._order.replace)
            elif work.action == Action.UNCHANGED:
                target.advance(work.after)
            elif isinstance(target, KeepsFiles):
                target.replace([*work.kept, *work.files], unit.schema, work.after)
            else:
                assert isinstance(target, MergesRows)
                target.merge(_changes(work), unit.schema, work.after)
            COMMITTED()
            target.sweep()
        work.seconds = time.monotonic() - self._begun

    def _tidy(self, work: _Work) -> None:
        """What a table that failed has written takes room that it may have failed for; else the next run removes it."""
        if work.error is not None and work.target is not None and work.folder:
            with suppress(BudwoodError):
                work.target.sweep()

    def _new_state(self, work: _Work) -> State:
        unit, before = work.unit, work.before
        if work.since is None:
            found = _sum_of(work.files)
        else:
            assert before is not None
            found = Sum(before.rows, before.checksum) - work.changed.gone + work.changed.came
            if isinstance(work.target, KeepsFiles) and work.action == Action.MERGED:
                # Two ways to the same number: what changed, and what is there now.
                there = _sum_of([*work.kept, *work.files])
                if there != found:
                    raise Corrupt(
                        work.there.url,
                        f"with what changed it should have {found}, and has {there}: export it whole, without"
                        " --incremental",
                    )
        return State(
            volume=str(unit.place.vid),
            name=unit.place.name,
            table=unit.table,
            lsn=unit.view.lsn,
            time_ms=unit.view.time,
            rows=found.rows,
            checksum=found.checksum,
            columns=unit.columns,
            key=unit.key,
        )

    def _verify(self, works: list[_Work]) -> None:
        """A job of its own, so that nothing is compared with itself."""
        works = [work for work in works if work.error is None]
        self._plan_scans(works, lambda _: [])
        works = [work for work in works if work.error is None]
        tasks = [task for work in works for task in work.tasks]
        owners = [work for work in works for _ in work.tasks]
        sums: dict[int, Sum] = {work.number: Sum() for work in works}
        for work, found in zip(owners, self._job("verifying", tasks, checksum_rows), strict=True):
            if isinstance(found, BudwoodError):
                work.error = work.error or found
            else:
                sums[work.number] += found
        self._each(works, lambda work: self._compare(work, sums[work.number]))

    def _compare(self, work: _Work, source: Sum) -> None:
        compare(work.there, work.unit, source)
        work.verified = True

    def _each(self, works: Sequence[_Work], do: Callable[[_Work], None]) -> None:
        """On the driver, for all that have no error yet."""
        works = [work for work in works if work.error is None]
        for work, found in zip(works, side_by_side(works, do), strict=True):
            work.error = found

    def _spread(self, doing: str, pieces: Sequence[P], work: Callable[[P], A]) -> list[A | BudwoodError]:
        if len(pieces) <= _FEW:
            return side_by_side(pieces, work)
        return run_job(self._cluster(), f"budwood: {doing}", pieces, [1] * len(pieces), work)

    def _job(self, doing: str, pieces: Sequence[P], work: Callable[[P], A]) -> list[A | BudwoodError]:
        if not pieces:
            return []
        sizes = [_size_bytes(piece) for piece in pieces]
        progress = partial(self._progress, doing) if self._progress else None
        return run_job(self._cluster(), f"budwood: {doing}", pieces, sizes, work, progress)

    def _target(self, unit: Unit) -> Target:
        url = join(self._order.to, folder_name(unit.place.name), folder_name(unit.table))
        match self._order.format:
            case "parquet":
                return ParquetTarget(url)
            case "delta":
                from .delta import DeltaTarget

                return DeltaTarget(url)
            case _:
                from .iceberg import IcebergTarget

                return IcebergTarget(url, catalog=self._order.catalog)

    def _lost(self, volume: str, table: str, error: BudwoodError) -> None:
        seconds = time.monotonic() - self._begun
        self._results.append(Result(volume, table, Action.FAILED, 0, 0, 0, seconds, "", str(error), error=error))

    def _passed_over(self, found: Surveyed) -> None:
        seconds = time.monotonic() - self._begun
        self._results.append(Result(found.place.name, "", Action.SKIPPED, found.lsn, 0, 0, seconds, "", found.skipped))

    def _result(self, work: _Work) -> Result:
        state = work.after
        return Result(
            volume=work.unit.place.name,
            table=work.unit.table,
            action=Action.FAILED if work.error else work.action,
            lsn=work.unit.view.lsn,
            rows=state.rows if state and not work.error else 0,
            size_bytes=sum(file.size_bytes for file in (*work.files, *work.changed.files)),
            seconds=work.seconds or time.monotonic() - self._begun,
            url=work.target.url if work.target else "",
            reason=str(work.error) if work.error else work.reason,
            verified=work.verified,
            error=work.error,
        )


def _check_place(before: State, unit: Unit, url: str) -> None:
    if before.volume != str(unit.place.vid):
        raise AlreadyExists(
            f"{url} holds another volume, {before.volume}, which was called {before.name!r}: take another folder, or"
            " replace it (--replace)"
        )
    if before.lsn > unit.view.lsn:
        raise AlreadyExists(
            f"{url} holds LSN {before.lsn}, which is newer than {unit.view.lsn}: take another folder, or replace it"
            " (--replace)"
        )


def _unmerged(unit: Unit, target: Target) -> str:
    """Why it is written whole if anything of it changed, or nothing."""
    if isinstance(target, KeepsFiles) and not unit.by_rowid:
        return "it is WITHOUT ROWID, and Parquet files are told apart by rowids"
    if isinstance(target, KeepsFiles) and not all(file.rowids for file in target.files()):
        return "its files don't tell which rowids they hold"
    return ""


def _firsts(target: Target) -> tuple[int, ...] | None:
    if not isinstance(target, KeepsFiles):
        return None
    return tuple(file.rowids[0] for file in _ordered(target.files()) if file.rowids)


def _ordered(files: Iterable[DataFile]) -> list[DataFile]:
    return sorted(files, key=lambda file: file.rowids or _EVERYWHERE)


def _scan_tasks(asked: tuple[Unit, list[Range]], split_bytes: int) -> list[ScanTask]:
    """Of each range; without any, of the whole in whatever order. Runs anywhere."""
    unit, ranges = asked
    wanted = [Pushed(rowids=each) for each in ranges] if unit.by_rowid and ranges else [None]
    tasks: list[ScanTask] = []
    for pushed in wanted:
        scan = plan_scan(
            unit.place,
            unit.view,
            table=unit.table,
            options=unit.options,
            rowid=unit.rowid,
            split_bytes=split_bytes,
            pushed=pushed,
            hold=unit.hold,
        )
        tasks += scan.tasks
    return tasks


def _do(piece: Write | ChangePiece) -> DataFile | Changed | None:
    return write_rows(piece) if isinstance(piece, Write) else run_piece(piece)


def _size_bytes(piece: object) -> int:
    match piece:
        case Write() | ChangePiece():
            return piece.task.size_bytes
        case ScanTask():
            return piece.size_bytes
        case _:
            raise AssertionError(f"{piece} is no piece of work")


def _sum_of(files: Iterable[DataFile]) -> Sum:
    return reduce(Sum.__add__, (Sum(file.rows, file.checksum) for file in files), Sum())


def _changes(work: _Work) -> Changes:
    changed = work.changed
    return Changes(changed.files, changed.inserted, changed.updated, changed.deleted, work.unit.key)
