"""Pipeline: one export's way through its tables; run.py says what each step is for.

What is known of a table is its `_TableExport`, whose mode (write_mode.py) is decided on the way. Once it has an error
no later step touches it.
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
from ..source.pushed_filters import PushedFilters
from ..source.scan import ScanTask, plan_scan
from .checksum import Sum
from .files import join
from .incremental import ChangePiece, ChangeSummary, MergeBase, Range, TargetFiles, check_merged, plan_merge, run_piece
from .job import run_in_threads, run_job
from .lease_keeper import LeaseKeeper
from .lock import Locks
from .parquet import ParquetTarget
from .results import Action, Result
from .table_selection import ChosenVolume, Selection, SourceTable, SurveyedVolume, folder_name, survey
from .target import COMMITTED, WRITTEN, DataFile, State, StateLost, Target
from .verify import checksum_rows, compare
from .write import Compression, Write, write_rows
from .write_mode import ACTIONS, NEXT, WriteMode

if TYPE_CHECKING:
    from pyspark import SparkContext

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
class ExportSettings:
    """What was asked for."""

    to: str
    format: str
    run: str
    selection: Selection
    incremental: bool
    verify: bool
    replace: bool
    compression: Compression
    split_bytes: int | None
    catalog: str
    retain_seconds: float | None


@dataclass(slots=True, eq=False)
class _TableExport:
    """`before` and `target_files` are what its target holds; `files` were written by this run."""

    source: SourceTable
    target: Target
    mode: WriteMode = WriteMode.UNDECIDED
    reason: str = ""
    folder: str = ""
    before: State | None = None
    target_files: TargetFiles | None = None
    changed: ChangeSummary = field(default_factory=ChangeSummary)
    files: list[DataFile] = field(default_factory=list[DataFile])
    after: State | None = None
    seconds: float = 0.0
    verified: bool = False
    error: BudwoodError | None = None

    def decide(self, mode: WriteMode, reason: str = "") -> None:
        assert mode in NEXT[self.mode], f"{self.mode} never becomes {mode}"
        self.mode, self.reason = mode, reason

    @property
    def base(self) -> tuple[State, TargetFiles]:
        assert self.before is not None
        assert self.target_files is not None
        return self.before, self.target_files

    def kept(self) -> list[DataFile]:
        return self.base[1].kept(self.changed.touched)

    def ranges(self) -> list[Range]:
        return self.base[1].ranges(self.changed.touched)


_Ranges = Callable[[_TableExport], list[Range]]
_Pieces = list[tuple[_TableExport, Piece]]


class Pipeline:
    """One export."""

    def __init__(
        self,
        settings: ExportSettings,
        cluster: Callable[[], SparkContext],
        leases: LeaseKeeper,
        locks: Locks,
        progress: Progress | None,
    ) -> None:
        self._settings = settings
        self._cluster = cluster
        self._leases = leases
        self._locks = locks
        self._progress = progress
        self._begun = time.monotonic()
        self._results: list[Result] = []

    def run(self, chosen: Sequence[ChosenVolume | tuple[str, BudwoodError]]) -> list[Result]:
        for name, error in (each for each in chosen if not isinstance(each, ChosenVolume)):
            self._add_failed(name, "", error)
        tables = self._survey([each for each in chosen if isinstance(each, ChosenVolume)])
        self._check_types(tables)
        self._each(tables, self._decide)
        self._read(tables)
        self._each(tables, self._commit)
        for table in tables:
            self._clean_up(table)
        if self._settings.verify:
            self._verify([table for table in tables if table.error is None])
        return self._results + [self._result(table) for table in tables]

    def _survey(self, chosen: list[ChosenVolume]) -> list[_TableExport]:
        found = self._spread("surveying", chosen, partial(survey, selection=self._settings.selection))
        self._leases.add(each.lease for each in found if isinstance(each, SurveyedVolume))
        tables: list[_TableExport] = []
        for one, each in zip(chosen, found, strict=True):
            if isinstance(each, BudwoodError):
                self._add_failed(one.ref.name, "", each)
                continue
            for failed in each.failed:
                self._add_failed(one.ref.name, failed.name, failed.error)
            if each.skipped:
                self._add_skipped(each)
            tables += [_TableExport(source, self._target(source)) for source in each.tables]
        return tables

    def _check_types(self, tables: Sequence[_TableExport]) -> None:
        """A column that is named for a type must be one of some table's: else its name was mistaken."""
        known = {name for table in tables for name in table.source.options.types}
        unknown = [name for name in self._settings.selection.options.types if name not in known]
        if unknown and tables and not any(result.error for result in self._results):
            raise BadInput(
                f"none of the tables has a column {unknown[0]!r}, for which option type.{unknown[0]} is given"
            )

    def _decide(self, table: _TableExport) -> None:
        source, settings, target = table.source, self._settings, table.target
        self._locks.take(target.url)
        target.sweep()
        before = table.before = self._state(target)
        if before is not None and not settings.replace:
            _check_volume(before, source, target.url)
            if before.lsn == source.view.lsn and before.columns == source.columns:
                table.after = before
                table.decide(WriteMode.UNCHANGED, f"LSN {before.lsn} stands there already")
                return
        table.folder = target.folder(settings.run)
        whole = _why_whole(source, before) if before is not None and settings.incremental else ""
        if before is None or not settings.incremental or whole:
            table.decide(WriteMode.OVERWRITE, whole)
        else:
            table.target_files = TargetFiles(target.files())
            table.decide(WriteMode.MERGE)

    def _state(self, target: Target) -> State | None:
        try:
            return target.state()
        except StateLost:
            if not self._settings.replace:
                raise
            return None

    def _read(self, tables: list[_TableExport]) -> None:
        """Rows of what is written whole, and changes, as one job; then rows of files that hold a change."""
        pieces = self._compare(_in_mode(tables, WriteMode.MERGE))
        pieces += self._plan_writes(_in_mode(tables, WriteMode.OVERWRITE), lambda _: [_EVERYWHERE])
        self._run("writing", pieces)
        merging = _in_mode(tables, WriteMode.MERGE)
        for table in merging:
            if not table.changed.touched:
                # Pages changed, and no row: a row that came and went, a VACUUM.
                self._nothing_changed(table)
        self._run("merging", self._plan_writes(_in_mode(merging, WriteMode.MERGE), _TableExport.ranges))

    def _compare(self, tables: list[_TableExport]) -> _Pieces:
        """What is to be read of what changed. A table that can't be merged, or needn't be, is known as such then."""
        pieces: _Pieces = []
        for table, plan in zip(
            tables, self._spread("comparing", [_merge_base(table) for table in tables], plan_merge), strict=True
        ):
            if isinstance(plan, BudwoodError):
                table.error = plan
            elif plan.whole:
                table.decide(WriteMode.OVERWRITE, plan.whole)
            elif not plan.pieces:
                self._nothing_changed(table)
            else:
                self._leases.add([plan.lease])
                pieces += [(table, piece) for piece in plan.pieces]
        return pieces

    def _nothing_changed(self, table: _TableExport) -> None:
        table.decide(WriteMode.ADVANCE, f"nothing of it changed since LSN {table.base[0].lsn}")

    def _plan_writes(self, tables: list[_TableExport], ranges: _Ranges) -> _Pieces:
        pieces: _Pieces = []
        for table, task in self._plan_scans(tables, ranges):
            schema = table.target.written(table.source.schema)
            rowid = table.source.key[0] if table.source.by_rowid else None
            pieces.append((table, Write(task, schema, table.folder, self._settings.compression, rowid)))
        return pieces

    def _plan_scans(self, tables: list[_TableExport], ranges: _Ranges) -> list[tuple[_TableExport, ScanTask]]:
        plan = partial(_scan_tasks, split_bytes=self._split_bytes(tables))
        selection = [(table.source, ranges(table)) for table in tables]
        planned: list[tuple[_TableExport, ScanTask]] = []
        for table, tasks in zip(tables, self._spread("planning", selection, plan), strict=True):
            if isinstance(tasks, BudwoodError):
                table.error = tasks
            else:
                planned += [(table, task) for task in tasks]
        return planned

    def _split_bytes(self, tables: list[_TableExport]) -> int:
        """What nobody said is chosen so that all cores have something to do, and files are not small."""
        if self._settings.split_bytes is not None or not tables:
            return self._settings.split_bytes or SPLIT_BYTES
        volumes = {table.source.view.vid: table.source.view.length for table in tables}
        share = sum(volumes.values()) // (self._cluster().defaultParallelism * _TASKS_A_CORE)
        return min(max(share, _LEAST_SPLIT_BYTES), SPLIT_BYTES)

    def _run(self, doing: str, pieces: _Pieces) -> None:
        for table, found in self._job(doing, pieces, _run_piece):
            match found:
                case ChangeSummary():
                    table.changed += found
                case DataFile():
                    table.files.append(found)
                case None:
                    pass

    def _commit(self, table: _TableExport) -> None:
        target, source = table.target, table.source
        if table.mode == WriteMode.UNCHANGED:
            target.refresh()
        else:
            after = table.after = _new_state(table)
            WRITTEN()
            match table.mode:
                case WriteMode.ADVANCE:
                    target.advance(after)
                case WriteMode.MERGE:
                    target.replace([*table.kept(), *table.files], source.schema, after)
                case _:
                    target.replace(table.files, source.schema, after, force=self._settings.replace)
            COMMITTED()
            target.sweep()
        if self._settings.retain_seconds is not None:
            target.retain(self._settings.retain_seconds)
        table.seconds = time.monotonic() - self._begun

    def _clean_up(self, table: _TableExport) -> None:
        """What a table that failed has written takes room that it may have failed for; else the next run removes it."""
        if table.error is not None and table.folder:
            with suppress(BudwoodError):
                table.target.sweep()

    def _verify(self, tables: list[_TableExport]) -> None:
        """A job of its own, so that nothing is compared with itself."""
        sums = dict.fromkeys(tables, Sum())
        for table, found in self._job("verifying", self._plan_scans(tables, lambda _: []), checksum_rows):
            sums[table] += found
        self._each(tables, lambda table: self._check_sums(table, sums[table]))

    def _check_sums(self, table: _TableExport, source: Sum) -> None:
        compare(table.target, table.source, source)
        table.verified = True

    def _each(self, tables: Sequence[_TableExport], do: Callable[[_TableExport], None]) -> None:
        """On the driver, for all that have no error yet."""
        tables = [table for table in tables if table.error is None]
        for table, found in zip(tables, run_in_threads(tables, do), strict=True):
            table.error = found

    def _spread(self, doing: str, pieces: Sequence[P], do: Callable[[P], A]) -> list[A | BudwoodError]:
        if len(pieces) <= _FEW:
            return run_in_threads(pieces, do)
        return run_job(self._cluster(), f"budwood: {doing}", pieces, [1] * len(pieces), do)

    def _job(
        self, doing: str, pieces: list[tuple[_TableExport, P]], do: Callable[[P], A]
    ) -> list[tuple[_TableExport, A]]:
        """What became of each piece that did not fail; where one did, its table has."""
        pieces = [(table, piece) for table, piece in pieces if table.error is None]
        if not pieces:
            return []
        sizes = [_size_bytes(piece) for _, piece in pieces]
        progress = partial(self._progress, doing) if self._progress else None
        answers = run_job(self._cluster(), f"budwood: {doing}", [piece for _, piece in pieces], sizes, do, progress)
        done: list[tuple[_TableExport, A]] = []
        for (table, _), found in zip(pieces, answers, strict=True):
            if isinstance(found, BudwoodError):
                table.error = table.error or found
            else:
                done.append((table, found))
        return done

    def _target(self, source: SourceTable) -> Target:
        url = join(self._settings.to, folder_name(source.ref.name), folder_name(source.name))
        match self._settings.format:
            case "parquet":
                return ParquetTarget(url)
            case "delta":
                from .delta import DeltaTarget

                return DeltaTarget(url)
            case _:
                from .iceberg import IcebergTarget

                return IcebergTarget(url, catalog=self._settings.catalog)

    def _add_failed(self, volume: str, table: str, error: BudwoodError) -> None:
        seconds = time.monotonic() - self._begun
        self._results.append(Result(volume, table, Action.FAILED, 0, 0, 0, seconds, "", str(error), error=error))

    def _add_skipped(self, found: SurveyedVolume) -> None:
        seconds = time.monotonic() - self._begun
        self._results.append(Result(found.ref.name, "", Action.SKIPPED, found.lsn, 0, 0, seconds, "", found.skipped))

    def _result(self, table: _TableExport) -> Result:
        state = table.after
        return Result(
            volume=table.source.ref.name,
            table=table.source.name,
            action=Action.FAILED if table.error else ACTIONS[table.mode],
            lsn=table.source.view.lsn,
            rows=state.rows if state and not table.error else 0,
            size_bytes=sum(file.size_bytes for file in table.files),
            seconds=table.seconds or time.monotonic() - self._begun,
            url=table.target.url,
            reason=str(table.error) if table.error else table.reason,
            verified=table.verified,
            error=table.error,
        )


def _in_mode(tables: list[_TableExport], mode: WriteMode) -> list[_TableExport]:
    """Those that have not failed."""
    return [table for table in tables if table.mode == mode and table.error is None]


def _check_volume(before: State, source: SourceTable, url: str) -> None:
    if before.volume != str(source.ref.vid):
        raise AlreadyExists(
            f"{url} holds another volume, {before.volume}, which was called {before.name!r}: take another folder, or"
            " replace it (--replace)"
        )
    if before.lsn > source.view.lsn:
        raise AlreadyExists(
            f"{url} holds LSN {before.lsn}, which is newer than {source.view.lsn}: take another folder, or replace it"
            " (--replace)"
        )


def _why_whole(source: SourceTable, before: State) -> str:
    """What is known without looking at the volume."""
    if before.volume != str(source.ref.vid):
        return "another volume stood there"
    if before.lsn >= source.view.lsn:
        return f"LSN {before.lsn} stood there"
    if not source.key:
        return "it has no key to tell its rows by"
    if before.key != source.key:
        return "its key changed"
    if before.columns != source.columns:
        return "its columns changed"
    return ""


def _merge_base(table: _TableExport) -> MergeBase:
    before, target_files = table.base
    whole = ""
    if not table.source.by_rowid:
        whole = "its key is no rowid, by which files are told apart"
    elif not target_files.has_rowids:
        whole = "its files don't tell which rowids they hold"
    return MergeBase(table.source, before, target_files.firsts, whole)


def _new_state(table: _TableExport) -> State:
    source = table.source
    if table.mode == WriteMode.OVERWRITE:
        found = reduce(Sum.__add__, (Sum(file.rows, file.checksum or 0) for file in table.files), Sum())
    else:
        before, _ = table.base
        found = Sum(before.rows, before.checksum) - table.changed.gone + table.changed.came
    if table.mode == WriteMode.MERGE:
        check_merged(table.target.url, found, [*table.kept(), *table.files])
    return State(
        volume=str(source.ref.vid),
        name=source.ref.name,
        table=source.name,
        lsn=source.view.lsn,
        time_ms=source.view.time,
        rows=found.rows,
        checksum=found.checksum,
        columns=source.columns,
        key=source.key,
    )


def _scan_tasks(selection: tuple[SourceTable, list[Range]], split_bytes: int) -> list[ScanTask]:
    """Of each range; without any, of the whole in whatever order. Runs anywhere."""
    source, ranges = selection
    wanted = [PushedFilters(rowids=each) for each in ranges] if source.by_rowid and ranges else [None]
    tasks: list[ScanTask] = []
    for pushed in wanted:
        scan = plan_scan(
            source.ref,
            source.view,
            table=source.name,
            options=source.options,
            rowid=source.rowid,
            split_bytes=split_bytes,
            pushed=pushed,
            lease=source.lease,
        )
        tasks += scan.tasks
    return tasks


def _run_piece(piece: Piece) -> DataFile | ChangeSummary | None:
    return write_rows(piece) if isinstance(piece, Write) else run_piece(piece)


def _size_bytes(piece: object) -> int:
    match piece:
        case Write() | ChangePiece():
            return piece.task.size_bytes
        case ScanTask():
            return piece.size_bytes
        case _:
            raise AssertionError(f"{piece} is no piece of work")
