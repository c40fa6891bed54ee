"""Schema: what a database's tables are, in SQLite's own words.

Nothing here parses SQL. The schema's pages are laid into a sparse file, SQLite opens it, and its pragmas tell. So
whatever ALTER TABLE, quoting or an old library did to the text of the schema is understood as SQLite understands it.

A row that was written before ALTER TABLE ADD COLUMN has fewer values than its table has columns; what it reads as is
asked of SQLite as well (sqlite/column_default.py).
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from pathlib import Path

import apsw

from ..sqlite.column_default import column_default
from ..sqlite.header import Header
from ..sqlite.names import same_name
from ..sqlite.record import Value
from ..sqlite.tree import table_rows
from ..volume.errors import BadInput, Corrupt, NotFound, Unsupported
from .page_source import PageSource
from .sparse_database import SparseDatabase, schema_pages


class Affinity(StrEnum):
    INTEGER = "INTEGER"
    TEXT = "TEXT"
    BLOB = "BLOB"
    REAL = "REAL"
    NUMERIC = "NUMERIC"


class Kind(StrEnum):
    TABLE = "table"
    VIEW = "view"
    VIRTUAL = "virtual"
    SHADOW = "shadow"
    QUERY = "query"

    @property
    def words(self) -> str:
        return f"{self} table" if self in (Kind.VIRTUAL, Kind.SHADOW) else str(self)


class Generated(Enum):
    NO = 0
    HIDDEN = 1
    """Of a virtual table: an argument rather than a value."""
    VIRTUAL = 2
    STORED = 3


@dataclass(frozen=True, slots=True)
class Column:
    """`stored` is the column's place in the record; -1 where it isn't there (generated VIRTUAL, views, …).

    `default` is what a record that ends before it reads as. `enforced`: SQLite keeps values of other classes out.
    """

    name: str
    declared: str
    affinity: Affinity
    stored: int = -1
    rowid: bool = False
    not_null: bool = False
    key_place: int = 0
    collation: str = "BINARY"
    default: Value = None
    generated: Generated = Generated.NO
    enforced: bool = False


@dataclass(frozen=True, slots=True)
class Relation:
    """A table, a view, a virtual table or a query. `root` is 0 where there is no tree of its own."""

    name: str
    kind: Kind
    columns: tuple[Column, ...]
    root: int = 0
    without_rowid: bool = False
    strict: bool = False
    sql: str = ""

    @property
    def words(self) -> str:
        return "the query" if self.kind == Kind.QUERY else f"{self.kind.words} {self.name}"

    @property
    def key(self) -> list[Column]:
        """The columns of the declared primary key, in its order."""
        return sorted((column for column in self.columns if column.key_place), key=lambda column: column.key_place)

    def column(self, name: str) -> Column:
        """By its name, as SQLite compares names. Raises NotFound."""
        for column in self.columns:
            if same_name(column.name, name):
                return column
        names = ", ".join(column.name for column in self.columns)
        raise NotFound(f"{self.kind.words} {self.name} has no column {name!r}; it has {names}")


@dataclass(frozen=True, slots=True)
class Entry:
    """A row of sqlite_schema."""

    type: str
    name: str
    table: str
    root: int
    sql: str


@dataclass(frozen=True, slots=True)
class Schema:
    """A snapshot's schema. `pages` are those that SQLite reads to know it; small, and sent along to who reads rows."""

    header: Header
    entries: tuple[Entry, ...]
    pages: dict[int, bytes] = field(repr=False)

    @property
    def has_virtual_tables(self) -> bool:
        """A virtual table's root page is 0, as a view's is."""
        return any(entry.type == "table" and entry.root == 0 for entry in self.entries)

    def names(self) -> list[str]:
        """Tables, virtual tables and views, without SQLite's own."""
        found = [entry for entry in self.entries if entry.type in ("table", "view")]
        return [entry.name for entry in found if not entry.name.lower().startswith("sqlite_")]

    def tables(self) -> list[str]:
        """Those with a tree of their own: no views, and of virtual tables what these keep their rows in."""
        with_rows = {entry.name for entry in self.entries if entry.type == "table" and entry.root}
        return [name for name in self.names() if name in with_rows]

    def entry(self, name: str) -> Entry | None:
        """That of a table or view."""
        return next((e for e in self.entries if e.type in ("table", "view") and same_name(e.name, name)), None)

    def roots_of(self, table: str) -> list[int]:
        """Of the table's tree and of its indexes'."""
        return [entry.root for entry in self.entries if entry.root and same_name(entry.table, table)]


def read_schema(source: PageSource, header: Header) -> Schema:
    """Of a source in pages of the database's size (pages.database). Raises Corrupt."""
    pages = schema_pages(source, header)
    entries: list[Entry] = []
    for rowid, values in table_rows(pages.__getitem__, 1, header):
        match values:
            case (str(kind), str(name), str(table), root, sql, *_):
                tree, words = root if isinstance(root, int) else 0, sql if isinstance(sql, str) else ""
                entries.append(Entry(kind, name, table, tree, words))
            case _:
                raise Corrupt("a SQLite database", f"row {rowid} of its schema is no schema's")
    return Schema(header, tuple(entries), pages)


def read_relation(source: PageSource, schema: Schema, name: str, directory: Path | None = None) -> Relation:
    """A table or view by its name. Raises NotFound, Unsupported where SQLite doesn't know its schema."""
    with _opened(source, schema, directory, whole=_needs_data(schema, name)) as connection:
        found = connection.execute(
            "SELECT name, type, wr, strict FROM pragma_table_list WHERE schema = 'main' AND name = ? COLLATE NOCASE",
            (name,),
        )
        for listed, kind, wr, strict in found.fetchall():
            return _relation(connection, schema, str(listed), Kind(str(kind)), bool(wr), bool(strict))
    there = ", ".join(schema.names()) or "none"
    raise NotFound(f"the database has no table or view {name!r}; it has {there}")


def describe_query(source: PageSource, schema: Schema, sql: str, directory: Path | None = None) -> Relation:
    """What a SELECT answers, as a relation. Raises BadInput with SQLite's words."""
    with _opened(source, schema, directory, whole=schema.has_virtual_tables) as connection:
        columns = query_columns(connection, sql)
    return Relation("query", Kind.QUERY, columns, sql=sql)


def query_columns(connection: apsw.Connection, sql: str) -> tuple[Column, ...]:
    """The columns of a SELECT, by a temporary view of it."""
    try:
        connection.execute(f"CREATE TEMP VIEW budwood_query AS SELECT * FROM (\n{sql}\n)")
        rows = connection.execute("SELECT name, type FROM pragma_table_xinfo('budwood_query')").fetchall()
    except apsw.Error as error:
        raise BadInput(f"the query can't be prepared: {error}; it must be one SELECT") from error
    return tuple(Column(str(name), str(declared), affinity_of(str(declared))) for name, declared in rows)


def affinity_of(declared: str, *, strict: bool = False) -> Affinity:
    """By SQLite's rules (sqlite.org/datatype3, section 3.1), the first that fits."""
    name = declared.upper()
    if strict and name == "ANY":
        return Affinity.BLOB
    for parts, affinity in _RULES:
        if any(part in name for part in parts):
            return affinity
    return Affinity.NUMERIC if name else Affinity.BLOB


_RULES: tuple[tuple[tuple[str, ...], Affinity], ...] = (
    (("INT",), Affinity.INTEGER),
    (("CHAR", "CLOB", "TEXT"), Affinity.TEXT),
    (("BLOB",), Affinity.BLOB),
    (("REAL", "FLOA", "DOUB"), Affinity.REAL),
)


def _needs_data(schema: Schema, name: str) -> bool:
    """Whether SQLite reads tables to tell the columns: a virtual table's module does, and a view may stand on one."""
    found = schema.entry(name)
    return found is not None and found.root == 0 and schema.has_virtual_tables


@contextmanager
def _opened(source: PageSource, schema: Schema, directory: Path | None, *, whole: bool) -> Generator[apsw.Connection]:
    with SparseDatabase(source, schema.header, directory) as file:
        file.add(schema.pages)
        if whole:
            file.add_all()
        flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        try:
            with closing(apsw.Connection(file.uri, flags=flags)) as connection:
                connection.authorizer = _authorize
                connection.execute("PRAGMA temp_store = MEMORY")
                yield connection
        except UnicodeError as error:
            raise Unsupported(f"the database's schema has a name that is not UTF-8: {error}") from error
        except apsw.Error as error:
            # "malformed database schema" may be damage, or words that only a newer SQLite knows.
            if isinstance(error, apsw.CorruptError | apsw.NotADBError) and "schema" not in str(error):
                raise Corrupt("a SQLite database", f"SQLite says: {error}") from error
            raise Unsupported(
                f"SQLite {apsw.sqlite_lib_version()} can't read the database's schema: {error}"
            ) from error


def _authorize(operation: int, *_: str | None) -> int:
    return apsw.SQLITE_DENY if operation == apsw.SQLITE_ATTACH else apsw.SQLITE_OK


def _relation(
    connection: apsw.Connection, schema: Schema, name: str, kind: Kind, without_rowid: bool, strict: bool
) -> Relation:
    entry = schema.entry(name)
    root = entry.root if entry else int(same_name(name, "sqlite_schema"))
    rows = connection.execute(
        "SELECT name, type, [notnull], dflt_value, pk, hidden FROM pragma_table_xinfo(?)", (name,)
    ).fetchall()
    indexes = connection.execute("SELECT origin FROM pragma_index_list(?)", (name,)).fetchall()
    # `INTEGER PRIMARY KEY` is the rowid itself, and so has no index; `INTEGER PRIMARY KEY DESC` has one.
    keys = [row for row in rows if row[4]]
    alias = root != 0 and not without_rowid and len(keys) == 1 and ("pk",) not in indexes
    columns: list[Column] = []
    place = 0
    for column, type_, not_null, default, key_place, hidden in rows:
        declared, generated = str(type_ or ""), Generated(hidden)
        in_record = root != 0 and generated in (Generated.NO, Generated.STORED)
        rowid = alias and bool(key_place) and declared.upper() == "INTEGER"
        affinity = affinity_of(declared, strict=strict)
        collation = connection.column_metadata("main", name, str(column))[1] if root else "BINARY"
        columns.append(
            Column(
                name=str(column),
                declared=declared,
                affinity=affinity,
                stored=place if in_record else -1,
                rowid=rowid,
                not_null=bool(not_null),
                key_place=int(str(key_place)),
                collation=collation.upper(),
                default=_default(str(default), affinity) if default is not None and in_record else None,
                generated=generated,
                enforced=rowid or (strict and declared.upper() != "ANY"),
            )
        )
        place += in_record
    return Relation(name, kind, tuple(columns), root, without_rowid, strict, entry.sql if entry else "")


def _default(expression: str, affinity: Affinity) -> Value:
    return column_default(expression, "" if affinity == Affinity.BLOB else affinity)
