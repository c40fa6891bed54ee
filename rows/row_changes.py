"""Row changes: which rows are in one view of a database and not in another, or differ.

    for change in row_changes(before, after, changed):    # changed: the pages that may differ, or None
        change.table, change.key, change.old, change.new  # old: None for a row that has come; new: for one that went

The pages say which rows may differ (candidates.py), and SQLite, asked on either side, what they are: so affinities,
encodings, columns that were added later, and rows of any length are its business. Rows are the same row if they have
the same declared primary key; without one, and where a part of it is NULL, the same rowid.

A table is known by its name: one that was renamed went, and came under its new name. Where its columns differ, values
are compared as columns.py has it: by name, or where a column was renamed by its place. Equal records may only read as
different rows if a column's type, default or place changed; then all rows are compared, and so they are where pages
can't be: of another size, or in another encoding.

Rows of any number are gone through with bounded memory, but for a table WITHOUT ROWID, whose candidates' keys are held.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TypeAlias, TypeGuard

import apsw

from ..sqlite.invalid_text import decoded, in_hex
from ..sqlite.names import folded
from ..sqlite.record import Value, lenient
from ..volume.errors import BadInput, Unsupported
from ..volume.pageset import PageSet, rescaled
from .candidates import Candidates, Compared, Key, all_pages_that_differ
from .columns import Correspondence
from .table import KeyPart, Table, tables_of
from .view import View, quoted

Values: TypeAlias = tuple[Value, ...]
Found: TypeAlias = "tuple[int | None, Values]"
"""A row, and its rowid where it has one."""


@dataclass(frozen=True, slots=True)
class RowChange:
    """Of one row. `old` and `new` are by `old_columns` and `new_columns`: those that are stored, generated ones left
    out."""

    table: str
    key_names: tuple[str, ...]
    key: Values
    old: Values | None
    new: Values | None
    old_columns: tuple[str, ...]
    new_columns: tuple[str, ...]
    rowid: int | None = None
    """That it has, or had where it has gone; None WITHOUT ROWID."""

    @property
    def kind(self) -> str:
        if self.old is None:
            return "insert"
        return "delete" if self.new is None else "update"


def row_changes(before: View, after: View, changed: PageSet | None = None) -> Iterator[RowChange]:
    """Table by table, in the order of their names; of each in the order of its rowids. `changed` are pages of the
    volume. Raises Corrupt, BadInput, Unsupported."""
    old, new = tables_of(before), tables_of(after)
    pairs = {name: (old[name], new[name]) for name in old.keys() & new.keys() if _same_identity(old[name], new[name])}
    columns = {name: Correspondence(*pair) for name, pair in pairs.items()}
    candidates = None
    by_pages = {name: pair for name, pair in pairs.items() if columns[name].same_records}
    if by_pages and _comparable(before, after):
        if changed is None:
            pages = all_pages_that_differ(before, after)
        else:
            pages = rescaled(changed, after.snapshot.page_size, after.header.page_size)
        candidates = Candidates(Compared(before, after, pages), by_pages)
    for name in sorted(old.keys() | new.keys()):
        if name in pairs:
            sides = _Rows(before, old[name]), _Rows(after, new[name])
            told = candidates is not None and name in by_pages
            keys = candidates.of(name, new[name]) if candidates is not None and told else _all_keys(*sides)
            yield from _compared(*sides, keys, columns[name])
            continue
        if name in old:
            yield from (_change(rows, key, gone=row) for rows, key, row in _all_rows(before, old[name]))
        if name in new:
            yield from (_change(rows, key, come=row) for rows, key, row in _all_rows(after, new[name]))


def _comparable(before: View, after: View) -> bool:
    """Whether cells of the two mean the same, so that their pages can be compared."""
    if before.empty or after.empty:
        return False
    one, other = before.header, after.header
    return (one.page_size, one.usable_bytes, one.codec) == (other.page_size, other.usable_bytes, other.codec)


def _same_identity(old: Table, new: Table) -> bool:
    """Whether rows of the two can be the same row."""
    names = [tuple(map(folded, table.key)) for table in (old, new)]
    return old.without_rowid == new.without_rowid and names[0] == names[1]


class _Rows:
    """The rows of one table in one view, asked for by one or the other key."""

    def __init__(self, view: View, table: Table) -> None:
        self.view = view
        self.table = table
        columns = ", ".join(quoted(column) for column in table.columns)
        rowid = table.rowid or "NULL"
        self._select = f"SELECT {rowid}, {columns or 'NULL'} FROM {quoted(table.name)} "
        parts = table.parts or [KeyPart(column, "BINARY") for column in table.key]
        each = (f"{quoted(part.column)} = ? COLLATE {quoted(part.collation)}" for part in parts)
        self._by_key = f"{self._select} WHERE {' AND '.join(each)}"
        self._bound = tuple(table.key.index(part.column) for part in parts)
        self._by_rowid = f"{self._select} WHERE {table.rowid} = ?"
        self._places = tuple(table.columns.index(column) for column in table.key)

    def at(self, key: Key) -> Found | None:
        """By the key that the table's tree is ordered by."""
        return self.of(key) if self.table.without_rowid else self._one(self._by_rowid, key)

    def of(self, key: Values) -> Found | None:
        """By the declared key, whose parts are not NULL; the row's own is equal to it, by the key's collation."""
        return self._one(self._by_key, tuple(key[place] for place in self._bound))

    def is_at(self, found: Found | None, key: Key) -> TypeGuard[Found]:
        """Whether the row has just this key, and none that is only equal to it: it is told once, at its own."""
        return found is not None and (not self.table.without_rowid or self.key_of(found[1]) == key)

    def key_of(self, row: Values) -> Values | None:
        """The declared key; None for a row that hasn't got one, and is known by its rowid."""
        key = tuple(row[place] for place in self._places)
        return None if not key or None in key else key

    def all(self) -> Iterator[Found]:
        order = ", ".join(map(quoted, self.table.key)) if self.table.without_rowid else self.table.rowid
        for row in self._run(f"{self._select} ORDER BY {order}", ()):
            yield _split(row)

    def _one(self, sql: str, bindings: Key) -> Found | None:
        return next((_split(row) for row in self._run(sql, bindings)), None)

    def _run(self, sql: str, bindings: Key) -> Iterator[Values]:
        try:
            yield from self._found(sql, bindings)
        except UnicodeEncodeError as error:
            words = f"table {self.table.name} has a key that is a text and isn't valid in the database's encoding"
            raise BadInput(f"{words}, by which no row can be asked for") from error
        except apsw.SQLError as error:
            # A collation, or a function, that is a program's own.
            raise Unsupported(f"rows of table {self.table.name} can't be asked for: {error}") from error

    def _found(self, sql: str, bindings: Key) -> Iterator[Values]:
        """Texts that aren't valid come as record.py gives them."""
        came, codec = 0, self.view.header.codec
        try:
            for row in self.view.connection.execute(sql, bindings):
                yield row
                came += 1
            return
        except UnicodeDecodeError:
            again = self.view.connection.execute(in_hex(sql, 1 + (len(self.table.columns) or 1)), bindings)
        for row in islice(again, came, None):
            yield decoded(row, codec, lenient(codec))


def _split(row: Values) -> Found:
    rowid, *values = row
    return (int(str(rowid)) if rowid is not None else None), tuple(values)


def _all_keys(old: _Rows, new: _Rows) -> Iterator[Key]:
    """Of every row, where the pages can't be compared."""
    for rows in (old, new):
        for rowid, row in rows.all():
            key = rows.key_of(row) if rows.table.without_rowid else (rowid,)
            if key is not None and (rows is old or old.at(key) is None):
                yield key


def _all_rows(view: View, table: Table) -> Iterator[tuple[_Rows, Values, Found]]:
    rows = _Rows(view, table)
    for rowid, row in rows.all():
        yield rows, rows.key_of(row) or (rowid,), (rowid, row)


def _compared(old: _Rows, new: _Rows, keys: Iterator[Key], columns: Correspondence) -> Iterator[RowChange]:
    keyed = old.table.keyed or new.table.keyed
    for at in keys:
        gone, come = old.at(at), new.at(at)
        if old.is_at(gone, at):
            there = _counterpart(old, gone, new, come, keyed=keyed)
            if there is None or not columns.same(gone[1], there[1]):
                yield _pair(old, new, old.key_of(gone[1]) or at, gone, there)
        if new.is_at(come, at) and _counterpart(new, come, old, gone, keyed=keyed) is None:
            yield _pair(old, new, new.key_of(come[1]) or at, None, come)


def _counterpart(own: _Rows, row: Found, other: _Rows, opposite: Found | None, *, keyed: bool) -> Found | None:
    """The same row on the other side; `opposite` is what is there at the row's place."""
    if not keyed:
        return opposite
    key, there = own.key_of(row[1]), None if opposite is None else other.key_of(opposite[1])
    if key == there:
        # One key, or none, and the same rowid.
        return opposite
    return None if key is None else other.of(key)


def _pair(old: _Rows, new: _Rows, key: Values, gone: Found | None, come: Found | None) -> RowChange:
    side = new.table if come is not None else old.table
    rowid = come[0] if come is not None else gone[0] if gone is not None else None
    return RowChange(
        side.name,
        side.key_names,
        key,
        None if gone is None else gone[1],
        None if come is None else come[1],
        old.table.columns,
        new.table.columns,
        rowid,
    )


def _change(
    rows: _Rows,
    key: Values,
    *,
    gone: Found | None = None,
    come: Found | None = None,
) -> RowChange:
    return _pair(rows, rows, key, gone, come)
