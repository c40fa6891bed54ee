"""Columns: which columns of a table before are which of it now, and whether two rows of it say the same.

Columns of one name are the same. Where a name is gone and at its place a new one stands, the column was renamed. What
else has come counts in a row that isn't new where its value isn't the column's default, since that is what SQLite reads
of rows that were written before.
"""

from __future__ import annotations

from ..sqlite.column_default import column_default
from ..sqlite.names import folded
from ..sqlite.record import Value
from .table import Column, Table
from .view import quoted


def places(old: tuple[str, ...], new: tuple[str, ...]) -> list[int | None]:
    """Of each column now, its place before; None for one that has come."""
    before = {folded(name): place for place, name in enumerate(old)}
    gone = before.keys() - set(map(folded, new))

    def place_of(place: int, name: str) -> int | None:
        renamed = place if place < len(old) and folded(old[place]) in gone else None
        return before.get(folded(name), renamed)

    return [place_of(place, name) for place, name in enumerate(new)]


class Correspondence:
    """Of two states of a table. `same_records`: whether a record that is the same in both is the same row."""

    def __init__(self, old: Table, new: Table) -> None:
        self._places = places(old.columns, new.columns)
        self._defaults = [
            _default(column) if place is None else None for place, column in zip(self._places, new.stored, strict=True)
        ]
        self._alike = self._places == list(range(len(old.columns)))
        both = len(old.columns)
        self.same_records = (
            self._places[:both] == list(range(both))
            and all(one[1:] == other[1:] for one, other in zip(old.stored, new.stored, strict=False))
            and folded(old.integer_key) == folded(new.integer_key)
            and old.without_rowid == new.without_rowid
            and [part.collation for part in old.parts] == [part.collation for part in new.parts]
        )

    def same(self, old: tuple[Value, ...], new: tuple[Value, ...]) -> bool:
        """As SQLite stores them: 1 and 1.0, 0.0 and -0.0 are told apart."""
        if self._alike:
            return exactly(old) == exactly(new)
        was = (
            default if place is None else old[place]
            for place, default in zip(self._places, self._defaults, strict=True)
        )
        return exactly(tuple(was)) == exactly(new)


def exactly(values: tuple[Value, ...]) -> list[tuple[type, str | Value]]:
    return [(type(value), repr(value) if isinstance(value, float) else value) for value in values]


def _default(column: Column) -> Value:
    declared = quoted(column.declared) if column.declared else ""
    return None if column.default is None else column_default(column.default, declared)
