"""Steps: one export's way through its tables; run.py says what each step is for.

A table's `_Work` goes along, from stage to stage (stages.py). Once it has an error no later step touches it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import TYPE_CHECKING, Final, TypeVar

from ...tables.splits import GREATEST_ROWID, LEAST_ROWID, SPLIT_BYTES
from ...volume.errors import AlreadyExists, BadInput, BudwoodError
from ..source.pushed import Pushed
from ..source.scan import ScanTask, plan_scan
from .checksum import Sum
from .files import join
from .incremental import Changed, ChangePiece, Range, Since, Standing, check_merged, run_piece, step_since
from .job import run_job, side_by_side
from .lease_keeper import Leases
from .lock import Locks
from .parquet import ParquetTarget
from .results import Action, Result
from .stages import ACTIONS, NEXT, Stage
from .target import COMMITTED, WRITTEN, DataFile, State, Target
from .units import Asked, Chosen, Surveyed, Unit, folder_name, survey
from .verify import checksum_rows, compare
from .write import Compression, Write, write_rows

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["Order", "Progress", "Steps"]

P = TypeVar("P")
A = TypeVar("A")
Piece = Write | ChangePiece

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


@dataclass(slots=True, eq=False)
class _Work:
    """`before` and `standing` are what its target holds; `files` were written by this run."""

    unit: Unit
    target: Target
    stage: Stage = Stage.SURVEYED
    reason: str = ""
    folder: str = ""
    before: State | None = None
    standing: Standing | None = None
    changed: Changed = field(default_factory=Changed)
    files: list[DataFile] = field(default_factory=list[DataFile])
    after: State | None = None
    seconds: float = 0.0
    verified: bool = False
    error: BudwoodError | None = None

    def becomes(self, stage: Stage, reason: str = "") -> None:
        assert stage in NEXT[self.stage], f"{self.stage} never becomes {stage}"
        self.stage, self.reason = stage, reason

    @property
    def stood(self) -> tuple[State, Standing]:
        assert self.before is not None
        assert self.standing is not None
        return self.before, self.standing

    def kept(self) -> list[DataFile]:
        return self.stood[1].kept(self.changed.touched)

    def ranges(self) -> list[Range]:
        return self.stood[1].ranges(self.changed.touched)


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
        self._read(works)
        self._each(works, self._commit)
        for work in works:
            self._tidy(work)
        if self._order.verify:
            self._verify([work for work in works if work.error is None])
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
            works += [_Work(unit, self._target(unit)) for unit in each.units]
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
        unit, order, target = work.unit, self._order, work.target
        self._held.take(target.url)
        target.sweep()
        before = work.before = target.state()
        if before is not None and not order.replace:
            _check_place(before, unit, target.url)
            if before.lsn == unit.view.lsn and before.columns == unit.columns:
                work.after = before
                work.becomes(Stage.STANDS, f"LSN {before.lsn} stands there already")
                return
        work.folder = target.folder(order.run)
        whole = _why_whole(unit, before) if before is not None and order.incremental else ""
        if before is None or not order.incremental or whole:
            work.becomes(Stage.WHOLE, whole)
        else:
            work.standing = Standing(target.files())
            work.becomes(Stage.MERGES)

    def _read(self, works: list[_Work]) -> None:
        """Rows of what is written whole, and changes, as one job; then rows of files that hold a change."""
        pieces = self._compare(_at(works, Stage.MERGES))
        pieces += self._plan_writes(_at(works, Stage.WHOLE), lambda _: [_EVERYWHERE])
        self._run("writing", pieces)
        merging = _at(works, Stage.MERGES)
        for work in merging:
            if not work.changed.touched:
                # Pages changed, and no row: a row that came and went, a VACUUM.
                self._nothing_changed(work)
        self._run("merging", self._plan_writes(_at(merging, Stage.MERGES), _Work.ranges))

    def _compare(self, works: list[_Work]) -> list[tuple[_Work, Piece]]:
        """What is to be read of what changed. A table that can't be merged, or needn't be, is known as such then."""
        pieces: list[tuple[_Work, Piece]] = []
        for work, step in zip(
            works, self._spread("comparing", [_since(work) for work in works], step_since), strict=True
        ):
            if isinstance(step, BudwoodError):
                work.error = step
            elif step.whole:
                work.becomes(Stage.WHOLE, step.whole)
            elif not step.pieces:
                self._nothing_changed(work)
            else:
                self._leases.add([step.hold])
                pieces += [(work, piece) for piece in step.pieces]
        return pieces

    def _nothing_changed(self, work: _Work) -> None:
        work.becomes(Stage.ADVANCES, f"nothing of it changed since LSN {work.stood[0].lsn}")

    def _plan_writes(self, works: list[_Work], ranges: Callable[[_Work], list[Range]]) -> list[tuple[_Work, Piece]]:
        pieces: list[tuple[_Work, Piece]] = []
        for work, task in self._plan_scans(works, ranges):
            schema = work.target.written(work.unit.schema)
            rowid = work.unit.key[0] if work.unit.by_rowid else None
            pieces.append((work, Write(task, schema, work.folder, self._order.compression, rowid)))
        return pieces

    def _plan_scans(self, works: list[_Work], ranges: Callable[[_Work], list[Range]]) -> list[tuple[_Work, ScanTask]]:
        plan = partial(_scan_tasks, split_bytes=self._split_bytes(works))
        asked = [(work.unit, ranges(work)) for work in works]
        planned: list[tuple[_Work, ScanTask]] = []
        for work, tasks in zip(works, self._spread("planning", asked, plan), strict=True):
            if isinstance(tasks, BudwoodError):
                work.error = tasks
            else:
                planned += [(work, task) for task in tasks]
        return planned

    def _split_bytes(self, works: list[_Work]) -> int:
        """What nobody said is chosen so that all cores have something to do, and files are not small."""
        if self._order.split_bytes is not None or not works:
            return self._order.split_bytes or SPLIT_BYTES
        volumes = {work.unit.view.vid: work.unit.view.length for work in works}
        share = sum(volumes.values()) // (self._cluster().defaultParallelism * _TASKS_A_CORE)
        return min(max(share, _LEAST_SPLIT_BYTES), SPLIT_BYTES)

    def _run(self, doing: str, pieces: list[tuple[_Work, Piece]]) -> None:
        for work, found in self._job(doing, pieces, _do):
            match found:
                case Changed():
                    work.changed += found
                case DataFile():
                    work.files.append(found)
                case None:
                    pass

    def _commit(self, work: _Work) -> None:
        target, unit = work.target, work.unit
        if work.stage != Stage.STANDS:
            after = work.after = _new_state(work)
            WRITTEN()
            match work.stage:
                case Stage.ADVANCES:
                    target.advance(after)
                case Stage.MERGES:
                    target.replace([*work.kept(), *work.files], unit.schema, after)
                case _:
                    target.replace(work.files, unit.schema, after, again=self._order.replace)
            COMMITTED()
            target.sweep()
        work.seconds = time.monotonic() - self._begun

    def _tidy(self, work: _Work) -> None:
        """What a table that failed has written takes room that it may have failed for; else the next run removes it."""
        if work.error is not None and work.folder:
            with suppress(BudwoodError):
                work.target.sweep()

    def _verify(self, works: list[_Work]) -> None:
        """A job of its own, so that nothing is compared with itself."""
        sums = dict.fromkeys(works, Sum())
        for work, found in self._job("verifying", self._plan_scans(works, lambda _: []), checksum_rows):
            sums[work] += found
        self._each(works, lambda work: self._compare_sums(work, sums[work]))

    def _compare_sums(self, work: _Work, source: Sum) -> None:
        compare(work.target, work.unit, source)
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

    def _job(self, doing: str, pieces: list[tuple[_Work, P]], do: Callable[[P], A]) -> list[tuple[_Work, A]]:
        """What became of each piece that did not fail; where one did, its table has."""
        pieces = [(work, piece) for work, piece in pieces if work.error is None]
        if not pieces:
            return []
        sizes = [_size_bytes(piece) for _, piece in pieces]
        progress = partial(self._progress, doing) if self._progress else None
        answers = run_job(self._cluster(), f"budwood: {doing}", [piece for _, piece in pieces], sizes, do, progress)
        done: list[tuple[_Work, A]] = []
        for (work, _), found in zip(pieces, answers, strict=True):
            if isinstance(found, BudwoodError):
                work.error = work.error or found
            else:
                done.append((work, found))
        return done

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
            action=Action.FAILED if work.error else ACTIONS[work.stage],
            lsn=work.unit.view.lsn,
            rows=state.rows if state and not work.error else 0,
            size_bytes=sum(file.size_bytes for file in work.files),
            seconds=work.seconds or time.monotonic() - self._begun,
            url=work.target.url,
            reason=str(work.error) if work.error else work.reason,
            verified=work.verified,
            error=work.error,
        )


def _at(works: list[_Work], stage: Stage) -> list[_Work]:
    """Those at this stage that have not failed."""
    return [work for work in works if work.stage == stage and work.error is None]


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


def _why_whole(unit: Unit, before: State) -> str:
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


def _since(work: _Work) -> Since:
    before, standing = work.stood
    whole = ""
    if not work.unit.by_rowid:
        whole = "its key is no rowid, by which files are told apart"
    elif not standing.told:
        whole = "its files don't tell which rowids they hold"
    return Since(work.unit, before, standing.firsts, whole)


def _new_state(work: _Work) -> State:
    unit = work.unit
    if work.stage == Stage.WHOLE:
        found = reduce(Sum.__add__, (Sum(file.rows, file.checksum or 0) for file in work.files), Sum())
    else:
        before, _ = work.stood
        found = Sum(before.rows, before.checksum) - work.changed.gone + work.changed.came
    if work.stage == Stage.MERGES:
        check_merged(work.target.url, found, [*work.kept(), *work.files])
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


def _do(piece: Piece) -> DataFile | Changed | None:
    return write_rows(piece) if isinstance(piece, Write) else run_piece(piece)


def _size_bytes(piece: object) -> int:
    match piece:
        case Write() | ChangePiece():
            return piece.task.size_bytes
        case ScanTask():
            return piece.size_bytes
        case _:
            raise AssertionError(f"{piece} is no piece of work")
