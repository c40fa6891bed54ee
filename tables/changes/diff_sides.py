"""Diff sides: one table in a step's two snapshots, each read as the feed wants it.

A feed has one shape from its first step to its last, that of its end. Either side is read by the names of the feed's
columns and as the feed's types; what a side lacks is null there, what it has besides is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from ...sqlite.header import HEADER_SIZE, Header, is_sqlite
from ...sqlite.names import same_name
from ...volume.errors import NotFound
from ...volume.pageset import PageSet
from ..page_source import PageSource, database
from ..scan_plan import Engine, Plan, Reading, page_engine_refuses
from ..schema import Column, Generated, Kind, Relation, Schema, read_relation, read_schema
from .change_batch import FeedRows, nulls

_MOST_KEPT: Final = 64 * 1024 * 1024


class SharedCacheSource:
    """A source that keeps what it reads, and shares with its twin what is the same in both. For planning alone."""

    def __init__(self, source: PageSource, own: PageSet | None, shared: dict[int, bytes]) -> None:
        """`own` are the pages that may differ between the twins; None: all."""
        self.page_size, self.page_count = source.page_size, source.page_count
        self._source = source
        self._own = own
        self._shared = shared
        self._kept: dict[int, bytes] = {}

    def read(self, pages: PageSet) -> dict[int, bytes]:
        found = {page: got for page in pages if (got := self._kept.get(page) or self._common(page)) is not None}
        missing = pages - PageSet(found)
        if missing:
            fresh = self._source.read(missing)
            for page, data in fresh.items():
                if (len(self._kept) + len(self._shared)) * self.page_size < _MOST_KEPT:
                    (self._kept if self._own is None or page in self._own else self._shared)[page] = data
            found |= fresh
        return found

    def _common(self, page: int) -> bytes | None:
        return None if self._own is None or page in self._own else self._shared.get(page)


@dataclass(frozen=True, slots=True)
class Side:
    """A snapshot that has the table. `source` is in pages of the database's size."""

    source: PageSource
    header: Header
    schema: Schema
    relation: Relation


@dataclass(frozen=True, slots=True)
class SideScan:
    """How a task reads one side. `places[i]` says which of the plan's readings is the feed's column i, -1: none.

    Of a table with rowids, the plan's rowid is read too, whatever the feed shows. `schema` is there for SQLite alone.
    """

    header: Header
    plan: Plan
    places: tuple[int, ...]
    schema: Schema | None = None

    def shown(self, feed: Plan, columns: Sequence[pa.Array[Any]], rows: int, first: int = 0) -> FeedRows:
        """The feed's columns out of the plan's; rows stand in the order of their rowids, else from `first` on."""
        if self.plan.rowid is None:
            order = np.arange(first, first + rows, dtype=np.int64)
        else:
            rowid, *columns = columns
            order = rowid.to_numpy()
        made: list[pa.Array[Any]] = [
            columns[place] if place >= 0 else nulls(rows, reading.type)
            for reading, place in zip(feed.readings, self.places, strict=True)
        ]
        if feed.rowid is not None:
            # Rows of a state in which the table was WITHOUT ROWID have none.
            made.insert(0, nulls(rows, pa.int64()) if self.plan.rowid is None else pa.array(order, pa.int64()))
        return FeedRows(made, order)


def opened(source: PageSource | None) -> tuple[PageSource, Header] | None:
    """As `database`; None where there is no database: no volume yet, an empty one, other bytes."""
    if source is None or source.page_count == 0:
        return None
    if not is_sqlite(source.read(PageSet((1,)))[1][:HEADER_SIZE]):
        return None
    return database(source)


def find_table(source: PageSource, header: Header, table: str, known: Side | None = None) -> Side | None:
    """The table, view or virtual table of that name, if there is one. `known`: the other side.

    What SQLite says of a table follows from its own statement, so it is asked once where both sides have the same.
    """
    schema = read_schema(source, header)
    entry = schema.entry(table)
    if known and entry and entry.root and known.header.codec == header.codec:
        other = known.schema.entry(table)
        if other and other.root and (other.type, other.name, other.sql) == (entry.type, entry.name, entry.sql):
            return Side(source, header, schema, replace(known.relation, root=entry.root))
    try:
        return Side(source, header, schema, read_relation(source, schema, table))
    except NotFound:
        return None


def is_table(side: Side) -> bool:
    return side.relation.kind in (Kind.TABLE, Kind.SHADOW) and side.relation.root > 1


def side_scan(side: Side, feed: Plan) -> SideScan:
    relation = side.relation
    readings: list[Reading] = []
    places: list[int] = []
    for wanted in feed.readings:
        column = _column(relation, wanted.column.name)
        places.append(-1 if column is None else len(readings))
        if column is not None:
            readings.append(replace(wanted, column=column))
    refused = page_engine_refuses(side.schema, relation, [reading.column for reading in readings])
    engine = Engine.GENERAL if refused else Engine.PAGES
    rowid = None if relation.without_rowid else "rowid"
    plan = Plan(relation, tuple(readings), engine, refused, feed.mismatch, rowid)
    return SideScan(side.header, plan, tuple(places), side.schema)


def same_key(old: Relation, new: Relation) -> bool:
    """Whether rows of both can be matched: by rowid, or by one primary key."""
    if not old.without_rowid or not new.without_rowid:
        return old.without_rowid == new.without_rowid
    one, other = old.key, new.key
    same = (
        same_name(a.name, b.name) and (a.collation, a.affinity) == (b.collation, b.affinity)
        for a, b in zip(one, other, strict=False)
    )
    return len(one) == len(other) and all(same)


def same_values(old: SideScan, new: SideScan) -> str:
    """Why equal records are not shown as equal rows; "" if they are."""
    for one, other, place in zip(old.places, new.places, range(len(new.places)), strict=True):
        if one < 0 and other < 0:
            continue
        if one < 0 or other < 0:
            column = (new if one < 0 else old).plan.readings[max(one, other)].column
            filled = column.rowid or column.default is not None or column.stored < _stored(old.plan.relation)
            if one < 0 and not filled:
                continue  # Records end before it in both: null is what it reads as.
            return f"column {column.name} {'is new' if one < 0 else 'is gone'}"
        if not _same_column(old.plan.relation, old.plan.readings[one].column, new, place):
            return f"column {new.plan.readings[other].column.name} is another than before"
    return ""


def _stored(relation: Relation) -> int:
    return 1 + max((column.stored for column in relation.columns), default=-1)


def _same_column(relation: Relation, before: Column, new: SideScan, place: int) -> bool:
    after = new.plan.readings[new.places[place]].column
    if Generated.VIRTUAL in (before.generated, after.generated) and relation.sql != new.plan.relation.sql:
        return False
    facts = [(c.stored, c.rowid, c.affinity, c.generated, repr(c.default)) for c in (before, after)]
    return facts[0] == facts[1]


def _column(relation: Relation, name: str) -> Column | None:
    return next((column for column in relation.columns if same_name(column.name, name)), None)
