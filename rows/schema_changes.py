"""Schema changes: tables, indexes, views and triggers that came, went or read otherwise."""

from __future__ import annotations

from dataclasses import dataclass

from .view import View, valid_schema


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """`old` and `new` are the statements that make it; None where there is none."""

    type: str
    name: str
    old: str | None
    new: str | None

    @property
    def kind(self) -> str:
        if self.old is None:
            return "created"
        return "dropped" if self.new is None else "changed"


def schema_changes(before: View, after: View) -> list[SchemaChange]:
    """By type and name. What SQLite makes by itself, as for a UNIQUE column, has no statement and is left out."""
    old, new = statements_of(before), statements_of(after)
    return [
        SchemaChange(type_, name, old.get((type_, name)), new.get((type_, name)))
        for type_, name in sorted(old.keys() | new.keys())
        if old.get((type_, name)) != new.get((type_, name))
    ]


def statements_of(view: View) -> dict[tuple[str, str], str]:
    """By type and name, what has made each thing of the schema that has a statement. Raises Unsupported."""
    with valid_schema():
        rows = view.connection.execute("SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL")
        return {(str(type_), str(name)): str(sql) for type_, name, sql in rows}
