"""General engine: what the page engine can't read, stock SQLite reads, from a sparse file with the pages that it needs.

    a rowid table        its interior pages, the leaves of the rowids wanted and the next one (SQLite steps onto it to
                         see that the range has ended), all chains of these. NOT INDEXED: no index's pages are there
    SQLite's own schema  its whole tree
    WITHOUT ROWID        its whole tree; INDEXED BY it, for the same reason
    a view, a query      the trees of every table that SQLite says it reads, and of their indexes
    a virtual table      the whole snapshot: its module reads what it likes. The same for a view or query over one, and
                         over the pragmas that check

Nothing is left to chance: a hole that SQLite came to would read as zeros, and zeros may pass for a value. So the pages
are told beforehand, by the tree or by SQLite's own compilation of the statement (its authorizer).

With a predicate its columns are converted first, and all others only for the rows that it keeps, as the page engine
does. SQLite knows nothing of it: it would compare by other rules.

It is the standard library's sqlite3, which hands over the bytes of a text even if they are no UTF-8. A schema
that needs a newer SQLite than Python has is refused with SQLite's words. The schema is trusted, as SQLite does unless
told otherwise: else it refuses a view over a full-text table. Nothing can be loaded, and nothing written.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from sys import getsizeof
from typing import Any, Final

import pyarrow as pa

from ..sqlite.header import DATABASE
from ..sqlite.names import same_name
from ..sqlite.record import Value
from ..volume.errors import BadInput, BudwoodError, Corrupt, Unsupported
from .conversion import Objects, RawText, convert
from .page_source import PageSource
from .scan_plan import Plan, Predicate
from .schema import Kind, Relation, Schema
from .sparse_database import SparseDatabase

BATCH_ROWS: Final = 8192
BATCH_BYTES: Final = 64 * 1024 * 1024

_DAMAGED: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_NOT_STORED: Final = (
    "json_each",
    "json_tree",
    "sqlite_schema",
    "sqlite_master",
    "sqlite_temp_schema",
    "sqlite_temp_master",
)
_ROWID_NAMES: Final = ("rowid", "_rowid_", "oid")

Row = tuple[Value | RawText, ...]


class GeneralEngine:
    """Reads the rows of a plan through SQLite. Each call of `batches` makes a file of its own and removes it."""

    def __init__(
        self,
        source: PageSource,
        schema: Schema,
        plan: Plan,
        directory: Path | None = None,
        predicate: Predicate | None = None,
    ) -> None:
        self._source = source
        self._schema = schema
        self._plan = plan
        self._directory = directory
        self._predicate = predicate
        extra = [reading for reading in predicate.plan.readings if reading not in plan.readings] if predicate else []
        self._columns = [reading.column.name for reading in (*plan.readings, *extra)]
        relation = plan.relation
        self._has_rowid = relation.kind in (Kind.TABLE, Kind.SHADOW) and not relation.without_rowid
        self._by_place = relation.kind in (Kind.VIEW, Kind.QUERY)

    def batches(self, rowids: tuple[int, int] | None = None) -> Generator[pa.RecordBatch]:
        """All rows, or those between two rowids, both included. Raises BadInput, Corrupt, Unsupported."""
        done = 0
        for rows in self._answered(rowids, BATCH_ROWS):
            yield from self._batches(rows, done)
            done += len(rows)

    def first(self, count: int, rowids: tuple[int, int] | None = None) -> dict[str, Objects]:
        """The plan's columns in the first rows of all, or of these, as they are. Raises as `batches`."""
        nothing: list[Row] = []
        with closing(self._answered(rowids, count)) as answered:
            _, columns = self._columns_of(next(answered, nothing))
        return {name: Objects(values) for name, values in columns.items()}

    def _answered(self, rowids: tuple[int, int] | None, count: int) -> Generator[list[Row]]:
        """So many rows at a time."""
        if rowids and not self._has_rowid:
            raise BadInput(f"{self._plan.relation.kind.words} {self._plan.relation.name} has no rowids to be read by")
        with SparseDatabase(self._source, self._schema.header, self._directory) as file:
            file.add(self._schema.pages)
            self._add_pages(file, rowids)
            with self._opened(file) as connection:
                cursor = connection.execute(self._statement(rowids, connection), rowids or ())
                while rows := some_rows(cursor, count):
                    yield rows

    def _add_pages(self, file: SparseDatabase, rowids: tuple[int, int] | None) -> None:
        relation = self._plan.relation
        if relation.kind == Kind.VIRTUAL:
            file.add_all()
        elif relation.kind in (Kind.VIEW, Kind.QUERY):
            self._add_what_is_read(file)
        elif relation.without_rowid or rowids is None or relation.root == 1:
            file.add_tree(relation.root)
        else:
            file.add_tree(relation.root, (rowids,))

    def _add_what_is_read(self, file: SparseDatabase) -> None:
        tables: set[str] = set()

        def authorize(action: int, first: str | None, *_: str | None) -> int:
            if action == sqlite3.SQLITE_READ and first:
                tables.add(first)
            return sqlite3.SQLITE_OK

        try:
            with self._opened(file) as connection:
                connection.set_authorizer(authorize)
                connection.execute(f"EXPLAIN {self._statement(None, connection)}").close()
        except BudwoodError:
            # A virtual table's module may have come to a hole when it was loaded; else it fails again with all pages.
            if not self._schema.has_virtual_tables:
                raise
            file.add_all()
            return
        for table in tables:
            if not self._known(table):
                file.add_all()
                return
        for table in tables:
            for root in self._schema.roots_of(table):
                file.add_tree(root)

    def _known(self, table: str) -> bool:
        """Whether it is known where the table's rows lie: in a tree, or nowhere in the database."""
        name = table.lower()
        if name in _NOT_STORED or (name.startswith("pragma_") and not name.endswith("_check")):
            return True
        return any(
            same_name(entry.name, table) and (entry.type == "view" or entry.root > 0)
            for entry in self._schema.entries
            if entry.type in ("table", "view")
        )

    def _statement(self, rowids: tuple[int, int] | None, connection: sqlite3.Connection) -> str:
        plan, relation = self._plan, self._plan.relation
        if relation.kind == Kind.QUERY:
            return f"SELECT * FROM (\n{relation.sql}\n)"
        if self._by_place:
            return f"SELECT * FROM main.{quoted(relation.name)}"
        names = [quoted(name) for name in self._columns]
        if relation.kind == Kind.VIRTUAL or relation.without_rowid:
            by = f" INDEXED BY {own_index(connection, relation)}" if relation.without_rowid else ""
            return f"SELECT {', '.join(names) or 'NULL'} FROM main.{quoted(relation.name)}{by}"
        rowid = rowid_name(relation)
        if rowid is None and (plan.rowid is not None or rowids):
            raise BadInput(f"table {relation.name} hides its rowid behind columns named rowid, _rowid_ and oid")
        names.insert(0, rowid or "NULL")
        where = f" WHERE {rowid} BETWEEN ? AND ?" if rowids else ""
        return f"SELECT {', '.join(names)} FROM main.{quoted(relation.name)} NOT INDEXED{where}"

    def _batches(self, rows: list[Row], before: int) -> Generator[pa.RecordBatch]:
        """The rows that are kept, as one batch, if there are any."""
        numbers: Sequence[int] = range(before + 1, before + len(rows) + 1)
        if self._predicate:
            mask = self._predicate.keep(self._batch(rows, numbers, self._predicate.plan)).to_pylist()
            kept = [place for place, keep in enumerate(mask) if keep]
            rows, numbers = [rows[place] for place in kept], [numbers[place] for place in kept]
        if rows:
            yield self._batch(rows, numbers, self._plan)

    def _batch(self, rows: list[Row], numbers: Sequence[int], plan: Plan) -> pa.RecordBatch:
        """`numbers` are the rows' own, among all that SQLite answers."""
        rowids, stored = self._columns_of(rows)

        def row_name(row: int) -> str:
            return f"rowid {rowids[row]}" if rowids and rowids[row] is not None else f"row {numbers[row]}"

        arrays: list[pa.Array[Any]] = [
            convert(plan, reading, Objects(stored[reading.column.name]), row_name) for reading in plan.readings
        ]
        if plan.rowid is not None:
            assert rowids is not None
            arrays.insert(0, pa.array(rowids, pa.int64()))
        return plan.batch(arrays, len(rows))

    def _columns_of(self, rows: list[Row]) -> tuple[Sequence[Any] | None, dict[str, Row]]:
        """The rowids, if there are any, and each column by its name."""
        columns: list[Row] = list(zip(*rows, strict=True))
        rowids = columns.pop(0) if self._has_rowid and columns else None
        names = [column.name for column in self._plan.relation.columns] if self._by_place else self._columns
        # A view, or a statement, may answer a NULL that nobody asked for, if no column was.
        return rowids, dict(zip(names, columns, strict=False))

    @contextmanager
    def _opened(self, file: SparseDatabase) -> Generator[sqlite3.Connection]:
        relation = self._plan.relation
        try:
            with stock_sqlite(file, relation) as connection:
                yield connection
        except sqlite3.Error as error:
            if relation.kind == Kind.QUERY:
                raise BadInput(f"the query can't be answered: {error}") from error
            version = sqlite3.sqlite_version
            raise Unsupported(f"SQLite {version} can't read {relation.kind.words} {relation.name}: {error}") from error


@contextmanager
def stock_sqlite(file: SparseDatabase, relation: Relation) -> Generator[sqlite3.Connection]:
    """A connection that reads the relation; text comes as RawText. Raises Corrupt where SQLite finds damage, and its
    other errors as they are."""
    try:
        with closing(sqlite3.connect(file.uri, uri=True, isolation_level=None)) as connection:
            connection.text_factory = RawText
            yield connection
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGED:
            raise Corrupt(DATABASE, f"SQLite says of {relation.kind.words} {relation.name}: {error}") from error
        raise


def some_rows(cursor: sqlite3.Cursor, count: int = BATCH_ROWS) -> list[Row]:
    """The next rows, `count` at most and no more than make a batch; what is larger than that is a single one."""
    rows: list[Row] = []
    size = 0
    for row in cursor:
        rows.append(row)
        size += sum(map(getsizeof, row))
        if len(rows) == count or size >= BATCH_BYTES:
            break
    return rows


def rowid_name(relation: Relation) -> str | None:
    for column in relation.columns:
        if column.rowid:
            return quoted(column.name)
    taken = {column.name.lower() for column in relation.columns}
    return next((name for name in _ROWID_NAMES if name not in taken), None)


def own_index(connection: sqlite3.Connection, relation: Relation, schema: str = "main") -> str:
    """What SQLite calls the tree that a table WITHOUT ROWID lies in.

    Else it scans an index that has all that is asked, whose pages aren't here; NOT INDEXED doesn't keep it from that.
    """
    found = "SELECT name FROM pragma_index_list(?, ?) WHERE origin = 'pk'"
    ((name,),) = connection.execute(found, (relation.name, schema)).fetchall()
    return quoted(bytes(name).decode())


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
