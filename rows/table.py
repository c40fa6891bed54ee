"""Table: what SQLite says of each table of a view: its columns as they are stored, and by what its rows are known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ..sqlite.names import folded
from ..volume.errors import Unsupported
from .view import View, quoted, valid_schema


class Column(NamedTuple):
    """`declared` and `default` are SQL: a type's name, "" for none, and what a row has that doesn't say."""

    name: str
    declared: str
    default: str | None


class KeyPart(NamedTuple):
    """A column of the primary key's index, and the collation that it is told apart by there. One column may come twice,
    and neither need its collation be the column's own."""

    column: str
    collation: str


@dataclass(frozen=True, slots=True)
class Table:
    """`stored` are its columns without generated ones, whose values follow from the others; `columns` their names.
    `key` are the declared primary key's, in its order; `rowid` is a name that the rowid goes by, "" where it has none
    that isn't a column's."""

    name: str
    root: int
    sql: str
    stored: tuple[Column, ...]
    columns: tuple[str, ...]
    key: tuple[str, ...]
    parts: tuple[KeyPart, ...]
    """Of the key's index, in its order; WITHOUT ROWID a record begins with them. Of a key that is the rowid none."""
    without_rowid: bool
    rowid: str
    integer_key: str = ""
    """The column that is the rowid, where one is."""

    @property
    def keyed(self) -> bool:
        """Whether rows are known by a declared key that isn't the rowid."""
        return bool(self.key) and not self.integer_key

    @property
    def key_names(self) -> tuple[str, ...]:
        """Of a row's key as it is told."""
        return self.key or (self.rowid or "rowid",)

    @property
    def own(self) -> bool:
        """Whether it is one of SQLite's own: sqlite_sequence, sqlite_stat1, …"""
        return folded(self.name).startswith("sqlite_")


def tables_of(view: View) -> dict[str, Table]:
    """All that have a tree of their own, by their folded names. Virtual tables have none: what they keep lies in
    shadow tables, which are among these. Raises Unsupported."""
    sql = "SELECT name, rootpage, sql FROM sqlite_schema WHERE type = 'table' AND rootpage > 0 ORDER BY name"
    with valid_schema():
        found = [(str(name), int(str(root)), str(made or "")) for name, root, made in view.connection.execute(sql)]
        return {folded(name): _table(view, name, root, made) for name, root, made in found}


def _table(view: View, name: str, root: int, sql: str) -> Table:
    db = view.connection
    listed = db.execute("SELECT wr FROM pragma_table_list(?) WHERE schema = 'main'", (name,)).fetchall()
    without_rowid = bool(listed and listed[0][0])
    columns = [
        (Column(str(column), str(declared), None if default is None else str(default)), int(str(place)), bool(hidden))
        for column, declared, default, place, hidden in db.execute(
            "SELECT name, type, dflt_value, pk, hidden FROM pragma_table_xinfo(?)", (name,)
        )
    ]
    key = tuple(column.name for column, place, _ in sorted(columns, key=lambda each: each[1]) if place)
    names = {folded(column.name) for column, *_ in columns}
    rowid = "" if without_rowid else next((word for word in ("rowid", "_rowid_", "oid") if word not in names), "")
    parts = db.execute(
        "SELECT part.name, part.coll FROM pragma_index_list(?) AS made, pragma_index_xinfo(made.name) AS part "
        "WHERE made.origin = 'pk' AND part.key ORDER BY part.seqno",
        (name,),
    ).fetchall()
    # INTEGER PRIMARY KEY is the rowid itself, and has no index.
    alias = key[0] if len(key) == 1 and not without_rowid and not parts else ""
    if not (without_rowid or rowid or alias):
        raise Unsupported(f"table {name} hides its rowid behind columns named rowid, _rowid_ and oid")
    stored = tuple(column for column, _, generated in columns if not generated)
    return Table(
        name,
        root,
        sql,
        stored,
        tuple(column.name for column in stored),
        key,
        tuple(KeyPart(str(column), str(collation)) for column, collation in parts),
        without_rowid,
        quoted(alias) if alias else rowid,
        alias,
    )
