"""Changed rows: what differs, table by table, between two snapshots of a SQLite database that are open side by side
(query_plan.py), `main` the newer and `old` the older.

Rows are told apart by their primary key, or where there is none by their rowid. Values are compared exactly: 1 is not
1.0, and "a" is not "A" whatever a column's collation says. `budwood diff` tells more: it reads only the pages that
changed, knows moved rows, and has no limit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import apsw

from ...sqlite.record import Value
from ..query_plan import first_rows

_AT_ONCE: Final = 100
"""Columns that are compared as one value: a chain of them all may be deeper than an expression may be."""
_ROWIDS: Final = ("rowid", "_rowid_", "oid")
_TABLES: Final = (
    "SELECT name, sql FROM {schema}.sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' "
    "AND sql NOT LIKE 'CREATE VIRTUAL%'"
)

Row = tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class _Table:
    columns: tuple[str, ...]
    key: tuple[str, ...]
    sql: str

    @property
    def others(self) -> tuple[str, ...]:
        return tuple(name for name in self.columns if name not in self.key)


class TableChanges(NamedTuple):
    """Of one table: at most so many rows of each kind as were asked for."""

    name: str
    words: str
    """What became of the table itself: "made", "removed", "defined anew", or nothing; or why nothing is told of it."""
    columns: tuple[str, ...]
    inserted: list[Row]
    updated: list[tuple[Row, Row]]
    """Before, and after."""
    deleted: list[Row]
    is_all: bool


Schemas = tuple[dict[str, _Table], dict[str, _Table]]


def look(connection: apsw.Connection) -> Schemas:
    """The tables of both, by name."""
    return _tables(connection, "main"), _tables(connection, "old")


def nothing_before(connection: apsw.Connection) -> Schemas:
    """The tables of the newer one, as if there had been none."""
    return _tables(connection, "main"), {}


def changes(most: int) -> Callable[[apsw.Connection, Schemas], list[TableChanges]]:
    """Of each table in which anything changed, by name."""

    def ask(connection: apsw.Connection, schemas: Schemas) -> list[TableChanges]:
        new, old = schemas

        def of(name: str) -> TableChanges:
            try:
                return _of_table(connection, name, new.get(name), old.get(name), most)
            except apsw.SQLError as error:
                # It has a function or a collation of some program's.
                return TableChanges(name, f"can't be compared here: {error}", (), [], [], [], is_all=True)

        told = map(of, sorted(new.keys() | old.keys()))
        return [each for each in told if each.words or each.inserted or each.updated or each.deleted]

    return ask


def _tables(connection: apsw.Connection, schema: str) -> dict[str, _Table]:
    found: dict[str, _Table] = {}
    for name, sql in connection.execute(_TABLES.format(schema=schema)).fetchall():
        about = connection.execute(f"PRAGMA {schema}.table_xinfo({_quoted(str(name))})").fetchall()
        # 1 is a hidden column of a virtual table; generated ones are told.
        shown = [row for row in about if row[6] != 1]
        columns = tuple(str(row[1]) for row in shown)
        key = tuple(str(row[1]) for row in sorted(shown, key=lambda row: int(str(row[5]))) if row[5])
        lowered = {column.lower() for column in columns}
        rowid = next((word for word in _ROWIDS if word not in lowered), "")
        found[str(name)] = _Table(columns, key or ((rowid,) if rowid else columns), str(sql))
    return found


def _of_table(
    connection: apsw.Connection, name: str, new: _Table | None, old: _Table | None, most: int
) -> TableChanges:
    if new is None or old is None:
        here = new or old
        assert here is not None
        schema, words = ("main", "made") if new else ("old", "removed")
        rows = first_rows(connection, f"SELECT {_list(here.columns)} FROM {schema}.{_quoted(name)}", (), most)
        made, gone = (rows.rows, list[Row]()) if new else (list[Row](), rows.rows)
        return TableChanges(name, words, here.columns, made, [], gone, rows.is_all)
    words = "" if new.sql == old.sql else "defined anew"
    if (new.columns, new.key) != (old.columns, old.key):
        return TableChanges(name, words or "defined anew", new.columns, [], [], [], is_all=True)
    inserted = first_rows(connection, _without(name, new, "main", "old"), (), most)
    deleted = first_rows(connection, _without(name, new, "old", "main"), (), most)
    updated = first_rows(connection, _updated(name, new), (), most) if new.others else None
    width = len(new.columns)
    pairs = [(row[:width], row[width:]) for row in updated.rows] if updated else []
    is_all = inserted.is_all and deleted.is_all and (updated is None or updated.is_all)
    return TableChanges(name, words, new.columns, inserted.rows, pairs, deleted.rows, is_all)


def _without(name: str, table: _Table, here: str, there: str) -> str:
    """Rows of `here` whose key `there` doesn't have."""
    columns, quoted = _list(table.columns, "a"), _quoted(name)
    return (
        f"SELECT {columns} FROM {here}.{quoted} AS a "
        f"WHERE NOT EXISTS (SELECT 1 FROM {there}.{quoted} AS b WHERE {_same_key(table)})"
    )


def _updated(name: str, table: _Table) -> str:
    quoted = _quoted(name)
    others = table.others
    differs = " OR ".join(_differ(others[at : at + _AT_ONCE]) for at in range(0, len(others), _AT_ONCE))
    return (
        f"SELECT {_list(table.columns, 'b')}, {_list(table.columns, 'a')} "
        f"FROM main.{quoted} AS a JOIN old.{quoted} AS b ON {_same_key(table)} WHERE {differs}"
    )


def _same_key(table: _Table) -> str:
    return " AND ".join(f"a.{column} IS b.{column}" for column in map(_quoted, table.key))


def _differ(columns: Sequence[str]) -> str:
    """Exactly, and by type: 1 is not 1.0, nor 'a' 'A', whatever the columns say."""
    one, other = (
        ", ".join(f"{side}.{_quoted(column)} COLLATE BINARY, typeof({side}.{_quoted(column)})" for column in columns)
        for side in "ab"
    )
    return f"({one}) IS NOT ({other})"


def _list(columns: tuple[str, ...], of: str = "") -> str:
    return ", ".join(f"{of}.{_quoted(column)}" if of else _quoted(column) for column in columns)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
