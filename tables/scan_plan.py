"""Scan plan: which columns are read, as which types, by which engine, decided before a row is read.

Types (SQLite's are of values, not of columns, so each has one class of values that it takes as they are):

    long       INTEGER                                           INT affinity
    double     REAL; an INTEGER that a double holds exactly      REAL affinity
    string     TEXT that is UTF-8                                TEXT affinity
    binary     BLOB                                              what is found, or by option
    text       any, as words: see conversion.py                    by option, and for `typeMismatch=string`
    decimal, boolean, date, timestamp        what the declared type says, by option: see conversion.py

A declaration of NUMERIC affinity (DATE, DECIMAL, BOOLEAN, whatever SQLite has no rule for), a BLOB and none at all say
nothing of what a column holds. Options may; else it is looked at before the plan is made: see type_inference.py.

A value of another class is never turned into something else silently: conversion.py says what becomes of it.

Engines: `pages` decodes a table's leaves itself, `general` asks stock SQLite. The page engine does what it is sure to
do; for all else `reason` says why it is not taken.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, cast

import pyarrow as pa

from ..sqlite.names import same_name
from ..volume.errors import BadInput
from .schema import Affinity, Column, Generated, Kind, Relation, Schema


class Engine(StrEnum):
    PAGES = "pages"
    GENERAL = "general"


class Mismatch(StrEnum):
    """What becomes of a value whose class isn't its column's.

    A column is read as one type from the first row to the last, so under STRING every column whose class SQLite doesn't
    enforce (as it does for a rowid, and in STRICT tables) is read as text, unless `types` says otherwise.
    """

    FAIL = "fail"
    NULL = "null"
    STRING = "string"


class Target(StrEnum):
    LONG = "long"
    DOUBLE = "double"
    STRING = "string"
    BINARY = "binary"
    TEXT = "text"
    DECIMAL = "decimal"
    BOOLEAN = "boolean"
    DATE = "date"
    TIMESTAMP = "timestamp"


_TYPES: Final[dict[Target, pa.DataType]] = {
    Target.LONG: pa.int64(),
    Target.DOUBLE: pa.float64(),
    Target.STRING: pa.string(),
    Target.TEXT: pa.string(),
    Target.BINARY: pa.binary(),
    Target.BOOLEAN: pa.bool_(),
    Target.DATE: pa.date32(),
    Target.TIMESTAMP: pa.timestamp("us", "UTC"),
}


@dataclass(frozen=True, slots=True)
class Options:
    """`types` names a column's target outright; the flags believe what a NUMERIC column's declared type says.

    `numeric` and `untyped` are for columns of NUMERIC affinity, and without a declared type; None: as `inferred`
    says, by the column's own name. type_inference.py fills that in; it stays with the options from then on.
    """

    mismatch: Mismatch = Mismatch.FAIL
    numeric: Target | None = None
    untyped: Target | None = None
    decimals: bool = False
    booleans: bool = False
    dates: bool = False
    timestamps: bool = False
    types: Mapping[str, Target] = field(default_factory=dict[str, Target])
    inferred: Mapping[str, Target] = field(default_factory=dict[str, Target])


@dataclass(frozen=True, slots=True)
class Reading:
    """How one column is read. `precision` and `scale` are a decimal's."""

    column: Column
    target: Target
    precision: int = 0
    scale: int = 0

    @property
    def type(self) -> pa.DataType:
        return pa.decimal128(self.precision, self.scale) if self.target == Target.DECIMAL else _TYPES[self.target]


@dataclass(frozen=True, slots=True)
class Plan:
    """`rowid`, if any, is the name of a further first column, not null, that holds each row's rowid.

    `found` is that of the options, for another plan of the same columns.
    """

    relation: Relation
    readings: tuple[Reading, ...]
    engine: Engine
    reason: str
    mismatch: Mismatch = Mismatch.FAIL
    rowid: str | None = None
    inferred: Mapping[str, Target] = field(default_factory=dict[str, Target])

    @property
    def schema(self) -> pa.Schema:
        fields = [pa.field(reading.column.name, reading.type) for reading in self.readings]
        if self.rowid is not None:
            fields.insert(0, pa.field(self.rowid, pa.int64(), nullable=False))
        return pa.schema(fields)

    def batch(self, arrays: list[pa.Array[Any]], rows: int) -> pa.RecordBatch:
        """The columns as a batch of `schema`; without columns it still has its number of rows."""
        if not arrays:
            empty = pa.Array.from_buffers(pa.struct([]), rows, [None])
            return pa.RecordBatch.from_struct_array(cast("pa.StructArray", empty))
        return pa.record_batch(arrays, schema=self.schema)


@dataclass(frozen=True, slots=True)
class Predicate:
    """`keep` answers a mask for a batch of `plan`'s columns; a null in it drops the row.

    A mismatch in another column of a row that is dropped is not met, and so doesn't fail.
    """

    plan: Plan
    keep: Callable[[pa.RecordBatch], pa.BooleanArray]


def make_plan(
    schema: Schema,
    relation: Relation,
    *,
    columns: Sequence[str] | None = None,
    options: Options | None = None,
    rowid: str | None = None,
    engine: Engine | None = None,
) -> Plan:
    """`columns` in the order wanted, all unless named; `engine` insists on one. Raises NotFound, BadInput.

    Columns that aren't told are read as `options.inferred` says: `infer_types` fills it.
    """
    options = options or Options()
    for name in options.types:
        relation.column(name)
    chosen = chosen_columns(relation, columns)
    if len({column.name for column in chosen}) < len(chosen):
        raise BadInput("a column is named twice")
    if rowid is not None and (relation.without_rowid or relation.kind in (Kind.VIEW, Kind.QUERY, Kind.VIRTUAL)):
        raise BadInput(f"{relation.kind.words} {relation.name} has no rowid to read")
    if rowid is not None and any(same_name(column.name, rowid) for column in relation.columns):
        raise BadInput(f"{relation.name} has a column {rowid!r}: name the rowid otherwise")
    readings = tuple(_reading(column, options) for column in chosen)
    refused = page_engine_refuses(schema, relation, chosen)
    if engine == Engine.PAGES and refused:
        raise BadInput(f"the page engine can't read {relation.name}: {refused}")
    if engine is None:
        engine = Engine.GENERAL if refused else Engine.PAGES
    reason = refused or (
        "a rowid table of UTF-8 text" if engine == Engine.PAGES else "the general engine was asked for"
    )
    return Plan(relation, readings, engine, reason, options.mismatch, rowid, options.inferred)


def chosen_columns(relation: Relation, columns: Sequence[str] | None) -> list[Column]:
    """Those named, in their order, else all but a virtual table's arguments. Raises NotFound."""
    if columns is not None:
        return [relation.column(name) for name in columns]
    return [column for column in relation.columns if column.generated != Generated.HIDDEN]


def page_engine_refuses(schema: Schema, relation: Relation, columns: Sequence[Column]) -> str:
    """Why the page engine can't read these columns; "" if it can."""
    if relation.kind == Kind.QUERY:
        return "it is a query"
    if relation.kind in (Kind.VIEW, Kind.VIRTUAL):
        return f"it is a {relation.kind.words}"
    if relation.without_rowid:
        return "it is WITHOUT ROWID"
    if relation.root <= 1:
        return "it is SQLite's own schema"
    if schema.header.codec != "utf-8":
        return f"its text is {schema.header.codec.upper()}"
    for column in columns:
        if column.stored < 0:
            return f"its column {column.name} is generated when it is read"
    return ""


_DECIMAL: Final = re.compile(r"(?:DECIMAL|NUMERIC|DEC|NUMBER)\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)", re.IGNORECASE)
_MOST_DIGITS: Final = 38
_BOOLEANS: Final = ("BOOL", "BOOLEAN")
_TIMESTAMPS: Final = ("DATETIME", "TIMESTAMP")
_TIMES: Final = ("DATE", "TIME")
"""In whatever type has one of them in its name, text is what most keep."""


def has_known_type(column: Column, options: Options) -> bool:
    """Whether the declaration and the options say what the column is read as, so that nobody need look."""
    return _known_reading(column, options) is not None


def default_target(column: Column) -> Target:
    """What a column that isn't told is read as where no value of it was met."""
    if column.affinity == Affinity.BLOB:
        return Target.BINARY if column.declared else Target.STRING
    return Target.STRING if any(part in column.declared.upper() for part in _TIMES) else Target.DOUBLE


def _reading(column: Column, options: Options) -> Reading:
    return _known_reading(column, options) or Reading(
        column, options.inferred.get(column.name) or default_target(column)
    )


def _known_reading(column: Column, options: Options) -> Reading | None:
    named = next((target for name, target in options.types.items() if same_name(name, column.name)), None)
    words = options.mismatch == Mismatch.STRING and not column.enforced
    if words and named in (None, Target.STRING):
        return Reading(column, Target.TEXT)
    if named == Target.DECIMAL or (named is None and options.decimals and column.affinity == Affinity.NUMERIC):
        found = _DECIMAL.fullmatch(column.declared.strip())
        if found:
            precision, scale = int(found[1]), int(found[2] or 0)
            if 1 <= precision <= _MOST_DIGITS and scale <= precision:
                return Reading(column, Target.DECIMAL, precision, scale)
        if named:
            raise BadInput(f"column {column.name} is declared {column.declared!r}, which is no DECIMAL(1 to 38, scale)")
    target = named or _declared(column, options) or _by_affinity(column, options)
    return Reading(column, target) if target else None


def _declared(column: Column, options: Options) -> Target | None:
    declared = column.declared.strip().upper()
    if options.booleans and declared in _BOOLEANS:
        return Target.BOOLEAN
    if options.dates and declared == "DATE":
        return Target.DATE
    if options.timestamps and declared in _TIMESTAMPS:
        return Target.TIMESTAMP
    return None


def _by_affinity(column: Column, options: Options) -> Target | None:
    match column.affinity:
        case Affinity.INTEGER:
            return Target.LONG
        case Affinity.REAL:
            return Target.DOUBLE
        case Affinity.TEXT:
            return Target.STRING
        case Affinity.BLOB:
            return options.untyped if not column.declared or column.declared.upper() == "ANY" else _enforced(column)
        case Affinity.NUMERIC:
            return options.numeric


def _enforced(column: Column) -> Target | None:
    return Target.BINARY if column.enforced else None
