"""Iceberg: a table of a catalog, by the library `pyiceberg`, with neither Spark nor a JVM.

Where its tables are is a catalog's to know. Unless one is named it is a SQLite file beside the tables, CATALOG_FILE in
the folder exported to, for a folder on a local file system; else that of a URL (sqlite:///…, postgresql://…), or one
that pyiceberg's own configuration knows by name (.pyiceberg.yaml, PYICEBERG_CATALOG__NAME__URI, …). The volume's name
is the namespace, the table's the table.

The data files are those that executors wrote; the driver reads their footers, for the statistics by which readers skip
files, and makes one commit, which is one snapshot, also where nothing but the state changes:

    schema            a new one where columns changed: iceberg_schema.py
    snapshot          files taken out and put in; its summary has `budwood`, the state as JSON, and `budwood-run`
    properties        `budwood`: the state again, for the day that its snapshot is expired

A commit lands on exactly the snapshot that its run saw when it began, or not at all: pyiceberg's own retries, which
would put it on top of somebody else's, are off. Compaction may be done to the table by anyone; but if somebody else
changes its rows, the export refuses it, for a rerun would lose that work unsaid.

Files that a commit took out stay for older snapshots, until these are expired (`retain`, or anyone). Paths in Iceberg
are absolute: a table can't be moved by moving its folder.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from ...volume.errors import BadInput, Conflict, UsageError
from ...volume.thread_pool import ThreadPool
from .arrow import footer, plain
from .files import failed, file_errors, join, local_path, locate, names_in, remove, within
from .iceberg_expiry import Expiry
from .runs import DATA, Runs
from .s3_location import S3Location, is_s3, s3_location
from .target import METADATA_FOLDER, PROPERTY, DataFile, State

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.manifest import DataFile as IcebergFile
    from pyiceberg.table import Table, Transaction
    from pyiceberg.table.snapshots import Snapshot

CATALOG_FILE: Final = "iceberg-catalog.db"

_RUN: Final = "budwood-run"
_READERS: Final = 8
_METADATA: Final = "metadata"
_RETRIES: Final = "commit.retry.num-retries"
_DELETE_METADATA: Final = "write.metadata.delete-after-commit.enabled"


class IcebergTarget:
    """`catalog`: nothing, a URL, or a name. `namespace` and `table` are the last parts of `url` unless said."""

    format = "iceberg"

    def __init__(self, url: str, *, catalog: str = "", namespace: str = "", table: str = "") -> None:
        self._runs = Runs(url)
        self.url = self._runs.url
        parts = [unquote(part) for part in urlsplit(self.url).path.split("/")]
        if len(parts) < 3 and not (namespace and table):
            raise BadInput(f"{self.url} names no table: it ends in the volume's and the table's name")
        self._catalog = catalog
        self._identifier = (namespace or _namespace(parts[-2]), table or parts[-1])
        # pyiceberg takes a path as it is; of a file's URL it decodes nothing.
        self._place = str(local_path(self.url) or self.url.partition("?")[0])
        self._expiry = Expiry(self.url, self._place)
        self._run = ""
        self._base: tuple[int, int] | None = None

    def state(self) -> State | None:
        with self._opened() as (_, table):
            return None if table is None else self._state(table)

    def written(self, schema: pa.Schema) -> pa.Schema:
        """The schema in which data files are to be written: with the ids that its columns will have."""
        from .iceberg_schema import evolved, with_ids

        with self._opened() as (_, table):
            return with_ids(schema, evolved(table.metadata if table is not None else None, schema))

    def folder(self, run: str) -> str:
        with self._opened() as (_, table):
            self._base = _base(table)
        self._run = run
        return self._runs.begin(run, self._base[0] + 1)

    def replace(self, files: Sequence[DataFile], schema: pa.Schema, state: State, *, force: bool = False) -> None:
        from .iceberg_schema import same_columns

        with self._opened() as (catalog, table):
            if table is not None and not force and self._state(table) == state:
                return
            self._check_base(table)
            there = {file.file_path: file for file, _ in _files(table)} if table is not None else {}
            given = {file.path for file in files}
            old = [file for path, file in there.items() if path not in given]
            if table is not None and len(old) < len(there) and not same_columns(table.metadata, schema):
                raise BadInput(f"somebody changed the columns of {self._name}: export it whole, without --incremental")
            self._commit(catalog, table, old, [file for file in files if file.path not in there], schema, state)

    def files(self) -> tuple[DataFile, ...]:
        from .iceberg_schema import bounds

        with self._opened() as (_, opened):
            table = self._there(opened)
            key = self._state(table).key
            return tuple(
                DataFile(
                    file.file_path,
                    file.record_count,
                    file.file_size_in_bytes,
                    rowids=None if deletes else bounds(file, table.schema(), key),
                )
                for file, deletes in _files(table)
            )

    def advance(self, state: State) -> None:
        with self._opened() as (catalog, opened):
            table = self._there(opened)
            if self._state(table) != state:
                self._check_base(table)
                self._commit(catalog, table, [], [], None, state)

    def refresh(self) -> None:
        """A property of the table says its state, whatever was expired."""

    def read(self) -> pa.RecordBatchReader:
        with self._opened() as (_, opened):
            return plain(self._there(opened).scan().to_arrow_batch_reader())

    def retain(self, seconds: float) -> None:
        from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException

        with self._opened() as (_, opened):
            table = self._there(opened)
            table.metadata.properties[_RETRIES] = "0"
            try:
                self._expiry.expire(table, 1000 * seconds, time.time_ns() // 1_000_000)
            except CommitFailedException as error:
                raise self._raced() from error
            except CommitStateUnknownException as error:
                raise failed(f"old snapshots of {self._name} can't be expired", error) from error

    def sweep(self) -> None:
        if not self._runs.unfinished() and not self._expiry.unfinished():
            return
        with self._opened() as (_, table):
            if table is not None:
                self._expiry.remove_files(table)

            def committed(number: int, run: str) -> bool:
                assert table is not None
                for snapshot in table.metadata.snapshots:
                    if snapshot.sequence_number == number:
                        return _said(snapshot, _RUN) == run
                # That snapshot is expired; what it added may still be there.
                return any(f"/{number:020}-{run}/" in file.file_path for file, _ in _files(table))

            def abandon(mark: str) -> None:
                for name in names_in(metadata := join(self.url, _METADATA)):
                    if str(_commit_id(mark)) in name:
                        remove(join(metadata, name))

            self._runs.sweep(_base(table)[0], committed, abandon)

    @property
    def _name(self) -> str:
        return ".".join(self._identifier)

    @contextmanager
    def _opened(self) -> Generator[tuple[Catalog, Table | None]]:
        """The catalog, as long as it is needed, and the table. Raises BadInput where something else is."""
        check_library()
        from pyiceberg.exceptions import NoSuchTableError, RESTError
        from sqlalchemy.exc import SQLAlchemyError

        try:
            with file_errors(self.url):
                catalog = self._open_catalog()
                try:
                    table = catalog.load_table(self._identifier)
                except NoSuchTableError:
                    self._check_empty()
                    table = None
                except FileNotFoundError as error:
                    raise BadInput(
                        f"the catalog has a table {self._name}, whose files are gone: drop it there"
                    ) from error
                yield catalog, table
        except (RESTError, SQLAlchemyError) as error:
            raise failed(f"the catalog of {self._name} can't be asked or told", error) from error

    def _open_catalog(self) -> Catalog:
        from .iceberg_catalog import open_beside, open_named

        if self._catalog:
            return open_named(self._catalog, s3_location(self.url) if is_s3(self.url) else S3Location())
        folder = local_path(self.url)
        if folder is None:
            raise UsageError(f"Iceberg tables at {self.url} need a catalog: name one, by --catalog NAME or URL")
        return open_beside(folder.parent.parent / CATALOG_FILE)

    def _check_empty(self) -> None:
        there = set(names_in(self.url))
        # A run that was killed while it created the table leaves its metadata.
        if there and not {METADATA_FOLDER} <= there <= {METADATA_FOLDER, DATA, _METADATA}:
            raise BadInput(
                f"{self.url} holds {min(there)!r}, and the catalog has no table {self._name}: export to another folder"
            )

    def _there(self, table: Table | None) -> Table:
        if table is None:
            raise BadInput(f"the catalog has no table {self._name}: export it whole first")
        return table

    def _state(self, table: Table) -> State:
        snapshot = table.metadata.current_snapshot()
        while snapshot is not None:
            said = _said(snapshot, PROPERTY)
            if said is not None:
                return State.from_json(said, self._name)
            if _said(snapshot, "operation") != "replace":
                raise BadInput(
                    f"no export of budwood made snapshot {snapshot.snapshot_id} of {self._name}: export elsewhere"
                )
            parent = snapshot.parent_snapshot_id
            snapshot = table.metadata.snapshot_by_id(parent) if parent is not None else None
        if PROPERTY not in table.properties:
            raise BadInput(f"{self._name} is a table that no export of budwood made: export to another folder")
        return State.from_json(table.properties[PROPERTY], self._name)

    def _check_base(self, table: Table | None) -> None:
        """What is committed next lands on this table, or fails; so it must be the one that the run saw."""
        if self._base is not None and self._base != _base(table):
            raise self._raced()

    def _commit(
        self,
        catalog: Catalog,
        table: Table | None,
        old: Sequence[IcebergFile],
        new: Iterable[DataFile],
        schema: pa.Schema | None,
        state: State,
    ) -> None:
        """`schema` None: it stays."""
        if table is not None and not table.spec().is_unpartitioned():
            raise BadInput(f"{self._name} is partitioned: export to another folder")
        given = [file for file in new if file.rows]
        self._runs.keep(file.path for file in given)
        with self._checked_outcome():
            change = self._transaction(catalog, table, schema)
            change.set_properties({PROPERTY: state.to_json(), **_upkeep(table)})
            self._snapshot(change, old, self._added(given, change), state)
            change.commit_transaction()
        self._base = None

    def _transaction(self, catalog: Catalog, table: Table | None, schema: pa.Schema | None) -> Transaction:
        """That makes the table, or gives it this schema. It is committed as it is, or fails."""
        from pyiceberg.table.update import AddSchemaUpdate, AssertCurrentSchemaId, SetCurrentSchemaUpdate

        from .iceberg_catalog import make_namespace
        from .iceberg_schema import evolved

        if table is None:
            assert schema is not None
            make_namespace(catalog, self._identifier[:-1])
            return catalog.create_table_transaction(self._identifier, evolved(None, schema), location=self._place)
        # This object's own copy of the properties, which is what the library asks how often to retry.
        table.metadata.properties[_RETRIES] = "0"
        change = table.transaction()
        new = evolved(table.metadata, schema) if schema is not None else table.schema()
        seen = AssertCurrentSchemaId.model_validate({"current-schema-id": table.metadata.current_schema_id})
        updates = () if new is table.schema() else (AddSchemaUpdate(schema=new), SetCurrentSchemaUpdate())
        change._apply(updates, (seen,))  # pyright: ignore[reportPrivateUsage]  # update_schema can't swap a column.
        return change

    def _snapshot(self, change: Transaction, old: Sequence[IcebergFile], new: list[IcebergFile], state: State) -> None:
        from .iceberg_manifests import keep_live_manifests

        said = {PROPERTY: state.to_json(), _RUN: self._run}
        snapshot = change.update_snapshot(snapshot_properties=said)
        with snapshot.overwrite() if old else snapshot.fast_append() as update:
            update.commit_uuid = _commit_id(self._runs.mark)
            keep_live_manifests(update)
            for file in old:
                update.delete_data_file(file)
            for file in new:
                update.append_data_file(file)

    def _added(self, files: Sequence[DataFile], change: Transaction) -> list[IcebergFile]:
        from .iceberg_schema import added

        metadata = change.table_metadata

        def read(file: DataFile) -> IcebergFile:
            system, path = locate(file.path)
            with file_errors(file.path), system.open_input_file(path) as source:
                return added(file, f"{self._place}/{within(self.url, file.path)}", footer(source), metadata)

        with ThreadPool(_READERS) as readers:
            return list(readers.map(read, files))

    @contextmanager
    def _checked_outcome(self) -> Generator[None]:
        """A commit that failed, or whose answer was lost: the catalog knows what came of it."""
        from pyiceberg.exceptions import (
            CommitFailedException,
            CommitStateUnknownException,
            TableAlreadyExistsError,
            ValidationException,
        )
        from sqlalchemy.exc import SQLAlchemyError

        try:
            yield
        except (CommitFailedException, TableAlreadyExistsError, ValidationException) as error:
            raise self._raced() from error
        except (CommitStateUnknownException, SQLAlchemyError, OSError) as error:
            with self._opened() as (_, table):
                snapshot = table.metadata.current_snapshot() if table is not None else None
            if snapshot is None or not self._run or _said(snapshot, _RUN) != self._run:
                raise failed(f"{self._name} can't be committed to", error) from error

    def _raced(self) -> Conflict:
        return Conflict(f"somebody else committed to {self._name} meanwhile: run the export again")


def _namespace(volume: str) -> str:
    """A dot parts the levels of a namespace, of which none may be empty: there it is written as folders write signs."""
    return volume if all(volume.split(".")) else volume.replace(".", "~2E")


def check_library() -> None:
    try:
        import_module("pyiceberg.catalog.sql")
    except ImportError as error:
        raise UsageError("Iceberg needs the library pyiceberg: pip install 'budwood[lake]'") from error


def _upkeep(table: Table | None) -> dict[str, str]:
    """Properties that nobody has said otherwise of. Each commit writes all that is known of the table anew; the newest
    of these files are kept, and not every one there ever was."""
    return {} if table is not None and _DELETE_METADATA in table.properties else {_DELETE_METADATA: "true"}


def _base(table: Table | None) -> tuple[int, int]:
    """The number of the newest snapshot, and of the schema."""
    if table is None:
        return 0, -1
    # Tables of version 1, which no export makes, have none.
    return int(getattr(table.metadata, "last_sequence_number", 0)), table.metadata.current_schema_id


def _commit_id(mark: str) -> uuid.UUID:
    """In the names of a commit's manifests: a run's mark tells which ones it may have left."""
    return uuid.uuid5(uuid.NAMESPACE_OID, mark) if mark else uuid.uuid4()


def _said(snapshot: Snapshot, name: str) -> str | None:
    """What a snapshot's summary says."""
    summary = snapshot.summary
    if summary is None:
        return None
    return str(summary.operation.value) if name == "operation" else summary.additional_properties.get(name)


def _files(table: Table) -> list[tuple[IcebergFile, bool]]:
    """The data files of the table as it is, and whether rows of theirs are deleted by other files."""
    return [(task.file, bool(task.delete_files)) for task in table.scan().plan_files()]
