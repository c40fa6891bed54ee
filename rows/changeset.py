"""Changeset: row changes in the form that SQLite's session extension reads, made by it.

The rows of each table go into a temporary database with that table alone: first as they were, then, under a session, as
they are. So the bytes are SQLite's own. A table without a declared primary key is known by its rowid there, as the
extension does it (SQLITE_SESSION_OBJCONFIG_ROWID).

The extension compares keys byte by byte where it writes, and as the key's columns are compared where it applies. So a
row whose key is spelled otherwise goes, and comes in a part of its own behind that; and a table whose key has another
collation than its column is left out. So is, in words, what no changeset can say: rows with NULL in their primary key;
tables that are gone, whose columns changed, or that need a program's own functions or collations; changes of the
schema. SQLite's own tables are left out, too.

The rows lie in temporary files of SQLite's, and of what is written a table's part is made at a time, so memory is
bounded by what the session itself holds of each row: its old values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import groupby

import apsw

from ..sqlite.invalid_text import as_parameter
from ..sqlite.names import folded
from .columns import exactly
from .row_changes import RowChange, Values
from .table import Table
from .view import quoted


@dataclass
class Changeset:
    data: bytes = b""
    left_out: list[str] = field(default_factory=list[str])
    """One line each."""


def changeset(changes: Iterable[RowChange], tables: dict[str, Table]) -> Changeset:
    """Of changes that come table by table; `tables` by their folded names, as they are in the later view."""
    parts = list[bytes]()
    left_out = write_changeset(changes, tables, parts.append)
    return Changeset(b"".join(parts), left_out)


def write_changeset(
    changes: Iterable[RowChange], tables: dict[str, Table], write: Callable[[bytes], object]
) -> list[str]:
    """The same bit by bit; what was left out, a line each."""
    left_out = list[str]()
    with closing(apsw.Connection("")) as scratch:
        scratch.execute("PRAGMA foreign_keys = OFF; PRAGMA ignore_check_constraints = ON; PRAGMA synchronous = OFF")
        scratch.execute("ATTACH '' AS later")
        for name, own in groupby(changes, key=lambda change: change.table):
            words = _write_table(scratch, tables.get(folded(name)), name, own, write)
            if words:
                left_out.append(words)
    return left_out


def _write_table(
    scratch: apsw.Connection,
    table: Table | None,
    name: str,
    changes: Iterator[RowChange],
    write: Callable[[bytes], object],
) -> str:
    """What was left out."""
    if table is None:
        return f"table {name} is gone: drop it where the changeset is applied"
    if table.own:
        return ""
    rows = _Scratch(scratch, table)
    try:
        unkeyed = rows.fill(changes)
        rows.write(write)
    except _NoPlace as error:
        return f"table {name} {error}: its rows are left out"
    except UnicodeEncodeError:
        return f"table {name} has a text that isn't valid in the database's encoding: its rows are left out"
    except apsw.SQLError as error:
        return f"table {name} can't be made anew, so its rows are left out: {error}"
    finally:
        rows.close()
    if not unkeyed:
        return ""
    return f"table {name}: {unkeyed} rows with NULL in their primary key, which a changeset can't name"


class _NoPlace(Exception):
    """What of the table no changeset can say."""


class _Scratch:
    """The one table; its rows as they are wait in a table that leaves each value as it is."""

    def __init__(self, scratch: apsw.Connection, table: Table) -> None:
        self._db = scratch
        self._table = table
        self._by_rowid = not table.key
        self._columns = ", ".join((*((table.rowid,) if self._by_rowid else ()), *map(quoted, table.columns)))
        count = len(table.columns) + self._by_rowid
        self._places = ", ".join("?" * count)
        self._waiting = ", ".join(f"c{place}" for place in range(count))

    def fill(self, changes: Iterator[RowChange]) -> int:
        """How many rows were left out, for want of a key. Raises _NoPlace, apsw.SQLError."""
        db, unkeyed = self._db, 0
        db.execute(self._table.sql)
        for part in self._table.parts:
            if db.column_metadata("main", self._table.name, part.column)[1].upper() != part.collation.upper():
                raise _NoPlace(f"is told apart by another collation than its column {part.column}")
        db.execute(f"CREATE TABLE later.come({self._waiting}); CREATE TABLE later.respelled({self._waiting})")
        was = f"INSERT INTO main.{quoted(self._table.name)}({self._columns})"
        comes, respelled = "INSERT INTO later.come", "INSERT INTO later.respelled"
        with db:
            for change in changes:
                if change.old is not None and change.old_columns != self._table.columns:
                    raise _NoPlace("had other columns")
                if not all(row is None or self._is_keyed(row) for row in (change.old, change.new)):
                    unkeyed += 1
                    continue
                for into, row in ((was, change.old), (respelled if self._is_respelled(change) else comes, change.new)):
                    if row is not None:
                        self._insert(into, (change.rowid, *row) if self._by_rowid else row)
        return unkeyed

    def _insert(self, into: str, row: Values) -> None:
        """Raises UnicodeEncodeError on a text of UTF-16 that isn't valid: a changeset's are in UTF-8."""
        try:
            self._db.execute(f"{into} VALUES ({self._places})", row)
        except UnicodeEncodeError:
            places, values = zip(*map(as_parameter, row), strict=True)
            self._db.execute(f"{into} VALUES ({', '.join(places)})", values)

    def write(self, write: Callable[[bytes], object]) -> None:
        name = quoted(self._table.name)
        inserted = f"INSERT INTO main.{name}({self._columns}) SELECT {self._waiting} FROM later"
        self._write(f"DELETE FROM main.{name}; {inserted}.come", write)
        self._write(f"{inserted}.respelled", write)

    def _write(self, sql: str, write: Callable[[bytes], object]) -> None:
        with closing(apsw.Session(self._db, "main")) as session:
            session.config(apsw.SQLITE_SESSION_OBJCONFIG_ROWID, True)
            session.attach(self._table.name)
            with self._db:
                self._db.execute(sql)

            def take(some: memoryview) -> None:
                write(bytes(some))

            session.changeset_stream(take)

    def close(self) -> None:
        drop = "DROP TABLE IF EXISTS "
        self._db.execute(f"{drop} main.{quoted(self._table.name)}; {drop} later.come; {drop} later.respelled")

    def _is_respelled(self, change: RowChange) -> bool:
        if change.old is None or change.new is None:
            return False
        places = [self._table.columns.index(column) for column in self._table.key]
        old, new = (exactly(tuple(row[at] for at in places)) for row in (change.old, change.new))
        return old != new

    def _is_keyed(self, row: Values) -> bool:
        return all(row[self._table.columns.index(column)] is not None for column in self._table.key)
