"""Delta: a table of a Delta Lake, by the library `deltalake`, with neither Spark nor a JVM.

The data files are those that executors wrote; the driver reads their footers, for the statistics by which readers skip
files, and makes one commit. The commit carries, all together:

    add, remove       the files, each with rows, nulls, and least and greatest values where these are exact
    metaData          the schema, where it is a new one; the table's own properties stay as they are
    txn               application `budwood`, version: the LSN
    commitInfo        `budwood`: the state, as JSON; `budwoodRun`: which run it was. `history()` shows both

A commit takes the version after the one that its run saw when it began, or fails: the library is told never to retry.
It skips no transaction by itself, so the state is compared here. OPTIMIZE, VACUUM and the like may be done to the table
by anyone; but if somebody else changes its rows, the export refuses it, for a rerun would lose that work unsaid.

A log is cleaned of commits older than a month or so, by whoever makes its checkpoints. So a run that has nothing to do
says the state again once it is old (`refresh`).

Files that a commit took out stay for readers of older versions, until a VACUUM (`retain`, or anyone's).
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from ...volume.errors import BadInput, Conflict, UsageError
from ...volume.thread_pool import ThreadPool
from .arrow import fields, footer, plain
from .files import failed, file_errors, get, join, local_path, locate, names_in, within
from .runs import DATA, Runs
from .s3_location import is_s3, s3_location
from .target import METADATA_FOLDER, PROPERTY, DataFile, State, StateLost

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from deltalake.transaction import AddAction, CommitProperties, RemoveAction

_RUN: Final = "budwoodRun"
_READERS: Final = 8
_LOG: Final = "_delta_log"
_DELETED_FILES: Final = "delta.deletedFileRetentionDuration"
"""The property that tells everyone's VACUUM for how long what was replaced is kept."""
_OLD_MS: Final = 7 * 86_400_000
_COVERED_MS: Final = 86_400_000
"""A state that was said longer ago is said again; the shorter where others have committed since: their next checkpoint
may have the log cleaned."""
_EXACT_TEXT: Final = 32
"""Longer text has no least and greatest value in the statistics."""

_HARMLESS: Final = frozenset(
    {
        "ADD CONSTRAINT",
        "ADD FEATURE",
        "CLUSTER BY",
        "DROP CONSTRAINT",
        "FSCK",
        "OPTIMIZE",
        "REORG",
        "SET TBLPROPERTIES",
        "UNSET TBLPROPERTIES",
        "UPDATE FIELD METADATA",
        "UPDATE TABLE METADATA",
        "UPGRADE PROTOCOL",
        "VACUUM END",
        "VACUUM START",
    }
)
"""Operations of others that change no row and no column."""

_UNREAD_FEATURES: Final = frozenset({"columnMapping", "deletionVectors"})
"""With these a data file alone doesn't tell the table's rows."""


P = ParamSpec("P")
A = TypeVar("A")


def _in_our_words(method: Callable[Concatenate[DeltaTarget, P], A]) -> Callable[Concatenate[DeltaTarget, P], A]:
    """What the library says, as an error of ours."""

    @wraps(method)
    def call(self: DeltaTarget, /, *args: P.args, **kwargs: P.kwargs) -> A:
        _library()
        from deltalake.exceptions import DeltaError

        with file_errors(self.url):
            try:
                return method(self, *args, **kwargs)
            except DeltaError as error:
                raise failed(f"the Delta table at {self.url} can't be read or committed to", error) from error

    return call


class DeltaTarget:
    """`storage_options` are deltalake's, for stores that need more than the environment says."""

    format = "delta"

    def __init__(self, url: str, *, storage_options: Mapping[str, str] | None = None) -> None:
        self._runs = Runs(url)
        self.url = self._runs.url
        told = s3_location(self.url).delta_options() if is_s3(self.url) else {}
        self._options = {**told, **(storage_options or {})} or None
        # Given a path, the library takes it as it is; a URL of a file it would decode.
        self._place = str(local_path(self.url) or self.url.partition("?")[0])
        self._run = ""
        self._base: int | None = None

    @_in_our_words
    def state(self) -> State | None:
        table = self._open()
        return None if table is None else self._state(table)

    def written(self, schema: pa.Schema) -> pa.Schema:
        """The schema in which data files are to be written: as it is."""
        return schema

    @_in_our_words
    def folder(self, run: str) -> str:
        table = self._open()
        self._base = _version(table)
        self._run = run
        return self._runs.begin(run, self._base + 1)

    @_in_our_words
    def replace(self, files: Sequence[DataFile], schema: pa.Schema, state: State, *, force: bool = False) -> None:
        table = self._open()
        if table is not None and not force and self._state(table) == state:
            return
        self._check_base(table)
        _check_names(schema)
        removes = self._removes(table) if table is not None else {}
        kept = {file.path for file in files} & removes.keys()
        new = self._adds([file for file in files if file.path not in kept], schema)
        if kept:
            self._commit(table, [*(removes[path] for path in removes.keys() - kept), *new], "append", schema, state)
        else:
            self._commit(table, new, "overwrite", schema, state)

    @_in_our_words
    def files(self) -> tuple[DataFile, ...]:
        table = self._there()
        (key, *more) = self._state(table).key or ("",)
        has_bounds = not more and not _UNREAD_FEATURES.intersection(table.protocol().reader_features or ())
        found: list[DataFile] = []
        for row in _files(table):
            low, high = row.get(f"min.{key}"), row.get(f"max.{key}")
            rowids = (low, high) if has_bounds and isinstance(low, int) and isinstance(high, int) else None
            rows = row.get("num_records")
            size = int(row["size_bytes"])
            found.append(DataFile(str(row["path"]), int(rows or 0), size, rowids=rowids if rows is not None else None))
        return tuple(found)

    @_in_our_words
    def advance(self, state: State) -> None:
        table = self._there()
        if self._state(table) != state:
            self._check_base(table)
            self._commit(table, [], "append", _arrow_schema(table), state)

    @_in_our_words
    def refresh(self) -> None:
        table = self._there()
        version, commit = self._said(table)
        age_ms = time.time_ns() // 1_000_000 - int(commit.get("timestamp") or 0)
        if age_ms > (_OLD_MS if version == table.version() else _COVERED_MS):
            with suppress(Conflict):  # Somebody else was quicker; the next run says it.
                self._commit(table, [], "append", _arrow_schema(table), self._parsed(commit))

    @_in_our_words
    def read(self) -> pa.RecordBatchReader:
        return plain(pa.RecordBatchReader.from_stream(self._there().scan()))

    @_in_our_words
    def retain(self, seconds: float) -> None:
        table, hours = self._there(), math.ceil(seconds / 3600)
        # Its commits say again what was exported: the log may be cleaned of the one that did.
        said = self._properties(self._state(table))
        age = f"interval {hours} hours"
        if table.metadata().configuration.get(_DELETED_FILES) != age:
            table.alter.set_table_properties({_DELETED_FILES: age}, commit_properties=said)
        # A vacuum is two commits: it waits until something is overdue by a tenth.
        if table.vacuum(math.ceil(1.1 * hours), dry_run=True, enforce_retention_duration=False, full=True):
            table.vacuum(hours, dry_run=False, enforce_retention_duration=False, commit_properties=said, full=True)

    @_in_our_words
    def sweep(self) -> None:
        if not self._runs.unfinished():
            return
        table = self._open()

        def committed(number: int, run: str) -> bool:
            assert table is not None
            for version, commit in self._commits(table):
                if version + 1 == number:
                    return bool(commit.get(_RUN) == run)
            # The log is cleaned of old commits; what they added may still be there.
            return any(f"/{number:020}-{run}/" in uri for uri in table.file_uris())

        self._runs.sweep(_version(table), committed)

    def _open(self) -> DeltaTable | None:
        """Raises BadInput where something else is."""
        tables = _library()
        if tables.is_deltatable(self._place, storage_options=self._options):
            return tables(self._place, storage_options=self._options)
        there = sorted(names_in(self.url))
        if there and not ({METADATA_FOLDER} <= set(there) <= {METADATA_FOLDER, DATA, _LOG} and self._is_begun()):
            raise BadInput(f"{self.url} holds {there[0]!r} and no Delta table: export to another folder")
        return None

    def _is_begun(self) -> bool:
        """Whether the log has no commit yet. Of a first one that failed, its folder stays, and what was to be moved to
        its name: 00000000000000000000.json#1, or _commit_….json.tmp."""
        return all("#" in name or name.endswith(".tmp") for name in names_in(join(self.url, _LOG)))

    def _there(self) -> DeltaTable:
        table = self._open()
        if table is None:
            raise BadInput(f"there is no Delta table at {self.url}: export it whole first")
        return table

    def _state(self, table: DeltaTable) -> State:
        return self._parsed(self._said(table)[1])

    def _parsed(self, commit: Mapping[str, Any]) -> State:
        return State.from_json(str(commit[PROPERTY]), self.url)

    def _said(self, table: DeltaTable) -> tuple[int, dict[str, Any]]:
        """The newest commit that says what was exported, with its version. Raises BadInput."""
        if table.transaction_version(PROPERTY) is None:
            raise BadInput(f"{self.url} is a Delta table that no export of budwood made: export to another folder")
        for version, commit in self._commits(table):
            if PROPERTY in commit:
                return version, commit
            if commit.get("operation") not in _HARMLESS:
                raise BadInput(
                    f"somebody else changed the table at {self.url} ({commit.get('operation')}, version {version}): "
                    "export to another folder"
                )
        raise StateLost(
            f"the log of {self.url} was cleaned of the commit that says what was exported: replace the table, whatever "
            "became of it since (--replace), or export to another folder"
        )

    def _check_base(self, table: DeltaTable | None) -> None:
        """What is committed next is one above this table, or fails; so it must be the one that the run saw."""
        if self._base is not None and self._base != _version(table):
            raise self._raced()

    def _adds(self, files: Iterable[DataFile], schema: pa.Schema) -> list[AddAction]:
        from deltalake.transaction import AddAction

        def add(file: DataFile) -> AddAction:
            system, path = locate(file.path)
            with file_errors(file.path), system.open_input_file(path) as source:
                stats = _statistics(footer(source), schema, file)
            # A time of the store's, not of this machine's: nothing is told by it but to people.
            modified_ms = (system.get_file_info(path).mtime_ns or 0) // 1_000_000
            return AddAction(within(self.url, file.path), file.size_bytes, {}, modified_ms, True, json.dumps(stats))

        with ThreadPool(_READERS) as readers:
            return list(readers.map(add, files))

    def _commits(self, table: DeltaTable) -> Iterator[tuple[int, dict[str, Any]]]:
        """Versions and what the log says of them, newest first, as far back as the log goes.

        The library's `history` finds nothing where a folder's name has a # or a ?.
        """
        for version in range(table.version(), -1, -1):
            data = get(join(self.url, "_delta_log", f"{version:020}.json"))
            if data is None:
                return
            actions: list[dict[str, Any]] = [json.loads(line) for line in data.splitlines() if b'"commitInfo"' in line]
            infos: list[dict[str, Any]] = [action["commitInfo"] for action in actions if "commitInfo" in action]
            yield version, infos[0] if infos else {}

    def _removes(self, table: DeltaTable) -> dict[str, RemoveAction]:
        """By the paths of the files that the table has."""
        from deltalake.transaction import RemoveAction

        now_ms = time.time_ns() // 1_000_000  # From when on VACUUM counts, which is by clocks whoever runs it.
        return {
            str(row["path"]): RemoveAction(str(row["path"]), True, now_ms, int(row["size_bytes"]), {})
            for row in _files(table)
        }

    def _commit(
        self,
        table: DeltaTable | None,
        actions: Sequence[AddAction | RemoveAction],
        mode: str,
        schema: pa.Schema,
        state: State,
    ) -> None:
        from deltalake import Schema
        from deltalake.exceptions import DeltaError
        from deltalake.transaction import AddAction, create_table_with_add_actions

        if table is not None and table.metadata().partition_columns:
            raise BadInput(f"the table at {self.url} is partitioned: export to another folder")
        adds = [action for action in actions if isinstance(action, AddAction)]
        self._runs.keep(action.path for action in adds)
        properties = self._properties(state)
        try:
            if table is None:
                create_table_with_add_actions(
                    self._place,
                    Schema.from_arrow(schema),
                    adds,
                    mode="error",
                    storage_options=self._options,
                    commit_properties=properties,
                )
            else:
                table.create_write_transaction(
                    list(actions), mode, Schema.from_arrow(schema), commit_properties=properties
                )
        except DeltaError as error:
            self._check_outcome(error)
        self._base = None

    def _properties(self, state: State) -> CommitProperties:
        from deltalake.transaction import CommitProperties, Transaction

        return CommitProperties(
            custom_metadata={PROPERTY: state.to_json(), _RUN: self._run},
            max_commit_retries=0,
            app_transactions=[Transaction(PROPERTY, state.lsn)],
        )

    def _check_outcome(self, error: Exception) -> None:
        """A commit failed, or its answer was lost: the log knows."""
        table = self._open()
        newest = next(self._commits(table), None) if table is not None else None
        if newest is not None and self._run and newest[1].get(_RUN) == self._run:
            return
        if table is not None and _version(table) != (self._base or 0):
            raise self._raced() from error
        raise error

    def _raced(self) -> Conflict:
        return Conflict(f"somebody else committed to {self.url} meanwhile: run the export again")


def check_library() -> None:
    """Raises UsageError where it isn't installed."""
    _library()


def _library() -> type[DeltaTable]:
    try:
        from deltalake import DeltaTable
    except ImportError as error:
        raise UsageError("Delta needs the library deltalake: pip install 'budwood[lake]'") from error
    return DeltaTable


def _version(table: DeltaTable | None) -> int:
    """Commits so far: Delta's versions start at 0."""
    return 0 if table is None else table.version() + 1


def _check_names(schema: pa.Schema) -> None:
    """Readers of Delta compare names without case."""
    seen: dict[str, str] = {}
    for name in schema.names:
        other = seen.setdefault(name.casefold(), name)
        if other != name:
            raise BadInput(
                f"to Delta, columns {other!r} and {name!r} have one name: rename one, or export to another format"
            )


def _files(table: DeltaTable) -> list[dict[str, Any]]:
    return pa.RecordBatchReader.from_stream(table.get_add_actions(flatten=True)).read_all().to_pylist()


def _arrow_schema(table: DeltaTable) -> pa.Schema:
    return pa.RecordBatchReader.from_stream(table.scan()).schema


def _statistics(found: pq.FileMetaData, schema: pa.Schema, file: DataFile) -> dict[str, Any]:
    """What Delta calls `stats`. Least and greatest values only where they are exact and JSON can hold them."""
    if found.schema.to_arrow_schema().names != schema.names or found.num_rows != file.rows:
        raise BadInput(f"{file.path} doesn't hold the columns or the number of rows that it was said to")
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for place, field in enumerate(fields(schema)):
        # pyarrow's stubs know neither has_null_count nor that the values of one column compare.
        chunks: list[Any] = [found.row_group(group).column(place).statistics for group in range(found.num_row_groups)]
        if not chunks or not all(chunk is not None and chunk.has_null_count for chunk in chunks):
            continue
        nulls[field.name] = sum(chunk.null_count for chunk in chunks)
        valued = [chunk for chunk in chunks if chunk.num_values]
        if valued and all(chunk.has_min_max for chunk in valued):
            low = _json_value(min(chunk.min for chunk in valued), field.type)
            high = _json_value(max(chunk.max for chunk in valued), field.type)
            if low is not None and high is not None:
                least[field.name], greatest[field.name] = low, high
    return {"numRecords": found.num_rows, "minValues": least, "maxValues": greatest, "nullCount": nulls}


def _json_value(value: Any, kind: pa.DataType) -> int | float | str | None:
    """None where Delta's form would not be the value itself: binary, decimals, times to the microsecond."""
    if pa.types.is_int64(kind):
        return int(value)
    if pa.types.is_float64(kind):
        return float(value) if math.isfinite(value) else None
    if pa.types.is_string(kind):
        return str(value) if len(value) <= _EXACT_TEXT else None
    if pa.types.is_date32(kind) and isinstance(value, date):
        return value.isoformat()
    return None
