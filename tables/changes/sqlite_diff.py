"""SQLite diff: rows that the page engine can't read are compared by SQLite, in sparse files of both snapshots' tables.

The old database is attached to the new one, and each row looked up by its key in the other: by rowid, or WITHOUT ROWID
by the primary key as its own collations compare it. SQLite leaves out what is equal, value and class; what it hands
over is compared again as it is shown (change_batch.py). So memory is bounded by a batch, whatever the table's size;
both tables' pages, those of the ranges wanted, are on disk meanwhile.

SQLite compares -0.0 as 0.0, so zeros that are REAL are always handed over. A table of more than 999 columns asks for
more result columns than SQLite has; it says so.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ...sqlite.record import Value
from ...volume.errors import BadInput, Unsupported
from ..conversion import Objects, RawText, convert
from ..general_engine import GeneralEngine, own_index, quoted, rowid_name, some_rows, stock_sqlite
from ..page_source import PageSource
from ..schema import Relation
from ..sparse_database import SparseDatabase
from .change_batch import FeedRows, change_batches, columns_of, no_rows
from .change_tasks import ChangeTask
from .diff_sides import SideScan

Row = tuple[Value | RawText, ...]


def run_by_sqlite(
    task: ChangeTask, old: PageSource | None, new: PageSource | None, directory: Path | None = None
) -> Iterator[pa.RecordBatch]:
    """The sources are in pages of the database's size."""
    if task.old and task.new:
        assert old
        assert new
        yield from _compared(task, task.old, task.new, old, new, directory)
    for scan, source, other in ((task.old, old, task.new), (task.new, new, task.old)):
        if scan and source and not other:
            yield from _alone(task, scan, source, directory)


def _alone(task: ChangeTask, scan: SideScan, source: PageSource, directory: Path | None) -> Iterator[pa.RecordBatch]:
    """All rows of the only side."""
    assert scan.schema
    nothing = no_rows(task.feed.schema)
    no_pairs = nothing.order, nothing.order
    for rowids in task.ranges or (None,):
        for batch in GeneralEngine(source, scan.schema, scan.plan, directory).batches(rowids):
            shown = scan.shown(task.feed, columns_of(batch), batch.num_rows)
            old, new = (shown, nothing) if task.old else (nothing, shown)
            yield from change_batches(task.schema, old, new, no_pairs)


def _compared(
    task: ChangeTask, old: SideScan, new: SideScan, before: PageSource, after: PageSource, directory: Path | None
) -> Iterator[pa.RecordBatch]:
    with (
        SparseDatabase(before, old.header, directory) as old_file,
        SparseDatabase(after, new.header, directory) as new_file,
        _opened(new_file, new.plan.relation) as connection,
    ):
        for scan, file in ((old, old_file), (new, new_file)):
            assert scan.schema
            file.add(scan.schema.pages)
            file.add_tree(scan.plan.relation.root, task.ranges)
        connection.execute("ATTACH ? AS old", (old_file.uri,))
        statements = _Statements(connection, task, old, new)
        keys = _shown_keys(task, new)
        for rowids in task.ranges or ((),):
            done = 0
            cursor = connection.execute(statements.old_rows(bool(rowids)), rowids)
            while rows := some_rows(cursor):
                yield from change_batches(task.schema, *_both(task, old, new, rows, done), keys)
                done += len(rows)
            cursor = connection.execute(statements.new_rows(bool(rowids)), rowids)
            while rows := some_rows(cursor):
                nothing = no_rows(task.feed.schema)
                shown = _shown(task, new, rows, done)
                yield from change_batches(task.schema, nothing, shown, (nothing.order, nothing.order))
                done += len(rows)


class _Statements:
    """The two questions: old rows that are gone or differ, each with the new one, and new rows that have come."""

    def __init__(self, connection: sqlite3.Connection, task: ChangeTask, old: SideScan, new: SideScan) -> None:
        relations = old.plan.relation, new.plan.relation
        self._keys = list(zip(*(_key_names(relation) for relation in relations), strict=True))
        self._tables = [
            f"{schema}.{quoted(relation.name)} AS {alias} {_by(connection, relation, schema)}"
            for relation, schema, alias in zip(relations, ("old", "main"), "on", strict=True)
        ]
        self._columns = [
            [f"{alias}.{quoted(reading.column.name)}" for reading in scan.plan.readings]
            for scan, alias in ((old, "o"), (new, "n"))
        ]
        for columns, alias, place in zip(self._columns, "on", (0, 1), strict=True):
            columns.insert(0, f"{alias}.{self._keys[0][place]}")
        self._pairs = [
            (self._columns[0][one + 1] if one >= 0 else "NULL", self._columns[1][other + 1] if other >= 0 else "NULL")
            for one, other in zip(old.places, new.places, strict=True)
        ]

    def old_rows(self, ranged: bool) -> str:
        tests = [f"n.{self._keys[0][1]} IS NULL", *(_differ(*pair) for pair in self._pairs if set(pair) != {"NULL"})]
        return self._statement(self._columns[0] + self._columns[1], 0, _any(tests), ranged)

    def new_rows(self, ranged: bool) -> str:
        return self._statement(self._columns[1], 1, f"o.{self._keys[0][0]} IS NULL", ranged)

    def _statement(self, columns: list[str], outer: int, where: str, ranged: bool) -> str:
        same = " AND ".join(f"o.{one} = n.{other}" if outer else f"n.{other} = o.{one}" for one, other in self._keys)
        rowid = f"{'on'[outer]}.{self._keys[0][outer]}"
        within = f"{rowid} BETWEEN ? AND ? AND " if ranged else ""
        tables = f"{self._tables[outer]} LEFT JOIN {self._tables[1 - outer]} ON {same}"
        return f"SELECT {', '.join(columns)} FROM {tables} WHERE {within}({where})"


def _key_names(relation: Relation) -> list[str]:
    if relation.without_rowid:
        return [quoted(column.name) for column in relation.key]
    name = rowid_name(relation)
    if name is None:
        raise BadInput(f"table {relation.name} hides its rowid behind columns named rowid, _rowid_ and oid")
    return [name]


def _by(connection: sqlite3.Connection, relation: Relation, schema: str) -> str:
    """No other index than the table's own tree, since no other's pages are here."""
    return f"INDEXED BY {own_index(connection, relation, schema)}" if relation.without_rowid else "NOT INDEXED"


def _differ(one: str, other: str) -> str:
    """+ takes the columns' affinities away."""
    return (
        f"(typeof({one}) <> typeof({other}) OR (+{one}) COLLATE BINARY IS NOT (+{other})"
        f" OR (typeof({one}) = 'real' AND {one} = 0))"
    )


def _any(tests: list[str]) -> str:
    """In halves, since SQLite bounds how deep an expression may be."""
    if len(tests) <= 2:
        return " OR ".join(tests)
    half = len(tests) // 2
    return f"({_any(tests[:half])}) OR ({_any(tests[half:])})"


def _shown_keys(task: ChangeTask, new: SideScan) -> list[int]:
    """Where the feed shows parts of a primary key WITHOUT ROWID."""
    if not new.plan.relation.without_rowid:
        return []
    names = {column.name for column in new.plan.relation.key}
    return [place for place, at in enumerate(new.places) if at >= 0 and new.plan.readings[at].column.name in names]


def _both(
    task: ChangeTask, old: SideScan, new: SideScan, rows: list[Row], done: int
) -> tuple[FeedRows, FeedRows, tuple[Any, Any]]:
    width = 1 + len(old.plan.readings)
    matched = [place for place, row in enumerate(rows) if row[width] is not None]
    before = _shown(task, old, rows, done)
    after = _shown(task, new, [rows[place][width:] for place in matched], done)
    places = np.array(matched, np.int64)
    # An update's two rows stand together.
    after = FeedRows(after.columns, before.order[places])
    return before, after, (places, np.arange(len(places)))


def _shown(task: ChangeTask, scan: SideScan, rows: list[Row], done: int) -> FeedRows:
    """`rows` begin with the key's first column: the rowid, where there is one."""
    if not rows:
        return no_rows(task.feed.schema)
    plan = scan.plan
    first, *columns = list(zip(*rows, strict=True))[: 1 + len(plan.readings)]

    def row_name(row: int) -> str:
        return f"rowid {first[row]}" if plan.rowid is not None else f"a row with {first[row]!r} in its key"

    arrays = [
        convert(plan, reading, Objects(column), row_name)
        for reading, column in zip(plan.readings, columns, strict=True)
    ]
    if plan.rowid is not None:
        arrays.insert(0, pa.array(first, pa.int64()))
    return scan.shown(task.feed, arrays, len(rows), done)


@contextmanager
def _opened(file: SparseDatabase, relation: Relation) -> Generator[sqlite3.Connection]:
    try:
        with stock_sqlite(file, relation) as connection:
            connection.execute("PRAGMA trusted_schema = OFF")
            yield connection
    except sqlite3.Error as error:
        raise Unsupported(
            f"SQLite {sqlite3.sqlite_version} can't compare the two states of table {relation.name}: {error}"
        ) from error
