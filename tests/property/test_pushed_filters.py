"""Pushed filters keep the rows that Spark would: against its three-valued logic, said anew in plain Python."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import cache
from typing import Any

import apsw
import pyarrow as pa
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)
from tests.images import ImagePages

from budwood.spark_export.source.pushdown import push
from budwood.spark_export.source.pushed_filters import PushedFilters
from budwood.tables.general_engine import GeneralEngine
from budwood.tables.page_engine import PageEngine
from budwood.tables.page_source import PageSource, database
from budwood.tables.scan_plan import Engine, Mismatch, Options, Plan, make_plan
from budwood.tables.schema import Relation, Schema, read_relation, read_schema
from budwood.tables.splits import splits
from budwood.volume.errors import BadInput

ENDS = [-(1 << 63), (1 << 63) - 1, (1 << 63) - 2, -(1 << 63) + 1]
IDS = [*ENDS, -1, 0, 1, 5, 6, 7, 40, 200, 1 << 32]
POOLS: dict[str, list[Any]] = {
    "id": IDS,
    "rowid": IDS,
    "l": [*ENDS, 0, 1, -1, 7, 2**53, 2**53 + 1],
    "d": [0.0, -0.0, 1.5, -1.5, float("inf"), float("-inf"), 2.0**53, 1e-300, 2.0**63],
    "s": ["", "a", "A", "ab", "b", "é", "日本", "\U0001f331", "a\0b", "\0", "a ", "\uffff"],
    "b": [b"", b"\0", b"a", b"\x7f", b"\x80", b"\xff", b"a\0b", b"ab"],
    "c": [Decimal("0.00"), Decimal("1.50"), Decimal("-1.50"), Decimal("99999999.99"), Decimal("0.01")],
    "o": [True, False],
    "t": [date(1970, 1, 1), date(2024, 2, 29), date(1900, 1, 2), date(9999, 12, 31), date(1582, 10, 15)],
    "w": [
        datetime(1970, 1, 1, tzinfo=UTC),
        datetime(2024, 2, 29, 12, 30, 0, 1, UTC),
        datetime(2024, 2, 29, 12, 30, tzinfo=UTC),
        datetime(1900, 1, 1, tzinfo=UTC),
    ],
}
STRANGE: list[Any] = [float("nan"), 5, 5.0, True, "5", b"5", Decimal("1.505"), Decimal(5), Decimal(10) ** 30, date.min]
COMPARISONS = (EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)
TEXTS = (StringStartsWith, StringEndsWith, StringContains)


def order(value: Any) -> Any:
    """Texts are compared by their bytes."""
    return value.encode() if isinstance(value, str) else value


def truth(one: Filter, row: dict[str, Any]) -> bool | None:
    """What Spark answers for a row; None is its NULL. Literals have the column's type."""
    match one:
        case Not(child):
            answer = truth(child, row)
            return None if answer is None else not answer
        case IsNull((column,)):
            return row[column] is None
        case IsNotNull((column,)):
            return row[column] is not None
        case EqualNullSafe((column,), literal):
            value = row[column]
            if value is None or literal is None:
                return value is literal
            return bool(value == literal)
        case In((column,), literals):
            value = row[column]
            if value is None:
                return None
            if any(value == literal for literal in literals if literal is not None):
                return True
            return None if None in literals else False
        case _:
            value, literal = row[one.attribute[0]], one.value  # type: ignore[attr-defined]
            if value is None or literal is None:
                return None
            left, right = order(value), order(literal)
            answers: dict[type[Filter], Callable[[], Any]] = {
                EqualTo: lambda: left == right,
                GreaterThan: lambda: left > right,
                GreaterThanOrEqual: lambda: left >= right,
                LessThan: lambda: left < right,
                LessThanOrEqual: lambda: left <= right,
                StringStartsWith: lambda: left.startswith(right),
                StringEndsWith: lambda: left.endswith(right),
                StringContains: lambda: right in left,
            }
            return bool(answers[type(one)]())


@cache
def image() -> ImagePages:
    rng = random.Random(4)
    db = apsw.Connection(":memory:")
    db.execute("PRAGMA page_size = 512")
    db.execute(
        "CREATE TABLE t (id INTEGER PRIMARY KEY, l INT, d REAL, s TEXT COLLATE NOCASE, b BLOB, c DECIMAL(10, 2), "
        "o BOOLEAN, t DATE, w TIMESTAMP)"
    )

    def stored(value: Any) -> Any:
        match value:
            case Decimal():
                return float(value)
            case datetime():
                return value.strftime("%Y-%m-%d %H:%M:%S.%f")
            case date():
                return value.isoformat()
            case _:
                return value

    with db:
        for number in (*IDS, *range(2, 300)):
            values = [rng.choice([None, *POOLS[name]]) for name in "ldsbcotw"]
            db.execute(
                f"INSERT OR IGNORE INTO t VALUES (?{', ?' * len(values)})", [number, *(stored(v) for v in values)]
            )
    return ImagePages(db.serialize("main"))


@cache
def known() -> tuple[PageSource, Schema, Relation]:
    source, header = database(image())
    schema = read_schema(source, header)
    return source, schema, read_relation(source, schema, "t")


def plan_of(engine: Engine) -> Plan:
    _, schema, relation = known()
    options = Options(decimals=True, booleans=True, dates=True, timestamps=True)
    return make_plan(schema, relation, options=options, rowid="rowid", engine=engine)


def read(plan: Plan, pushed: PushedFilters) -> list[dict[str, Any]]:
    source, schema, relation = known()
    predicate = pushed.predicate(plan)
    batches: list[pa.RecordBatch] = []
    for split in splits(source, relation.root, schema.header, count=3, rowids=pushed.rowids):
        if plan.engine == Engine.PAGES:
            engine = PageEngine(source, schema.header, plan, predicate)
            batches += engine.batches(split.leaves, (split.first, split.last))
        else:
            batches += GeneralEngine(source, schema, plan, None, predicate).batches((split.first, split.last))
    return [row for batch in batches for row in batch.to_pylist()]


@cache
def all_rows() -> list[dict[str, Any]]:
    return read(plan_of(Engine.PAGES), PushedFilters())


@st.composite
def filters(draw: st.DrawFn) -> Filter:
    column = draw(st.sampled_from(list(POOLS)))
    path = (column,)
    literal = st.sampled_from(POOLS[column])
    one: Filter
    match draw(st.integers(0, 9)):
        case 0:
            one = draw(st.sampled_from([IsNull(path), IsNotNull(path)]))
        case 1:
            one = draw(st.sampled_from(COMPARISONS))(path, draw(st.sampled_from([*STRANGE, None])))
        case 2:
            one = In(path, tuple(draw(st.lists(st.sampled_from([*STRANGE, *POOLS[column], None]), max_size=3))))
        case 3 | 4:
            one = In(path, tuple(draw(st.lists(st.one_of(literal, st.none()), max_size=14))))
        case 5 | 6 if column in "sb":
            one = draw(st.sampled_from(TEXTS))(path, draw(literal))
        case _:
            one = draw(st.sampled_from(COMPARISONS))(path, draw(literal))
    return Not(one) if draw(st.integers(0, 3)) == 0 else one


@settings(max_examples=min(4 * settings().max_examples, 5000))
@given(st.sampled_from(list(Engine)), st.lists(filters(), min_size=1, max_size=4))
def test_an_engine_keeps_the_rows_of_which_all_filters_that_were_taken_are_true(
    engine: Engine, asked: Sequence[Filter]
) -> None:
    plan = plan_of(engine)
    pushed, remaining = push(asked, plan)
    assert all(any(one is other for other in asked) for one in remaining)
    taken = [one for one in asked if not any(one is other for other in remaining)]
    event(f"{len(taken)} taken of {len(asked)}")
    pushed = pickle.loads(pickle.dumps(pushed))
    want = [row for row in all_rows() if all(truth(one, row) is True for one in taken)]
    # repr tells -0.0 from 0.0, and types.
    assert [repr(row) for row in read(plan, pushed)] == [repr(row) for row in want]


def test_every_kind_of_filter_is_taken_for_every_type_that_it_has_in_spark() -> None:
    plan = plan_of(Engine.PAGES)
    for column, pool in POOLS.items():
        path = (column,)
        for literal in pool:
            old = literal in (date(1582, 10, 15), datetime(1900, 1, 1, tzinfo=UTC))
            asked: list[Filter] = [kind(path, literal) for kind in COMPARISONS]
            if not (column == "d" and literal == 0):
                asked += [In(path, (literal,)), In(path, (literal, None))]
            if column == "s":
                asked += [kind(path, str(literal)) for kind in TEXTS]
            asked += [Not(one) for one in asked]
            assert push(asked, plan)[1] == (asked if old else [])
        asked = [IsNull(path), IsNotNull(path), EqualNullSafe(path, None)]
        assert push(asked, plan)[1] == []


def test_a_value_in_a_dropped_row_is_not_looked_at_but_the_filters_own_column_is() -> None:
    db = apsw.Connection(":memory:")
    db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, a INT, b INT)")
    db.execute("INSERT INTO t VALUES (1, 5, 6), (2, 6, 'no'), (3, 7, 8)")
    source, header = database(ImagePages(db.serialize("main")))
    schema = read_schema(source, header)
    relation = read_relation(source, schema, "t")

    def answer(engine: Engine, *asked: Filter) -> list[tuple[Any, ...]] | str:
        plan = make_plan(schema, relation, options=Options(Mismatch.FAIL), engine=engine)
        pushed, remaining = push(asked, plan)
        assert not remaining
        (split,) = splits(source, relation.root, header, count=1, rowids=pushed.rowids)
        predicate = pushed.predicate(plan)
        try:
            if engine == Engine.PAGES:
                batches = list(PageEngine(source, header, plan, predicate).batches(split.leaves, pushed.rowids))
            else:
                batches = list(GeneralEngine(source, schema, plan, None, predicate).batches(pushed.rowids))
        except BadInput as error:
            return str(error)
        return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]

    for engine in Engine:
        assert answer(engine, EqualTo(("a",), 5)) == [(1, 5, 6)]
        assert answer(engine, GreaterThan(("id",), 2)) == [(3, 7, 8)]
        assert "column b, rowid 2: TEXT 'no' can't be read as long" in answer(engine, GreaterThan(("a",), 5))
        assert "column b, rowid 2: TEXT 'no' can't be read as long" in answer(engine, EqualTo(("b",), 6))


def test_a_row_without_a_rowid_is_named_by_its_place_among_all_rows() -> None:
    db = apsw.Connection(":memory:")
    db.execute(
        "CREATE TABLE t (a INT PRIMARY KEY, b INT) WITHOUT ROWID; INSERT INTO t VALUES (1, 1), (2, 2), (3, 'no')"
    )
    source, header = database(ImagePages(db.serialize("main")))
    schema = read_schema(source, header)
    plan = make_plan(schema, read_relation(source, schema, "t"))
    pushed, _ = push([GreaterThan(("a",), 1)], plan)
    with pytest.raises(BadInput, match="table t, column b, row 3: TEXT 'no'"):
        list(GeneralEngine(source, schema, plan, None, pushed.predicate(plan)).batches())
