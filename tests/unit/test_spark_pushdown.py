"""Push-down's corners: what goes back to Spark, and which rowids conditions of the key come to."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import apsw
import pytest
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
    StringStartsWith,
)
from tests.images import ImagePages

from budwood.spark_export.source.pushdown import MOST_VALUES, push
from budwood.spark_export.source.pushed_filters import NO_ROWS, Condition, Operator, PushedFilters
from budwood.tables.page_source import database
from budwood.tables.scan_plan import Options, Plan, Target, make_plan
from budwood.tables.schema import read_relation, read_schema

LEAST, GREATEST = -(1 << 63), (1 << 63) - 1
ID = ("id",)


def plan_of(options: Options | None = None, rowid: str | None = None) -> Plan:
    db = apsw.Connection(":memory:")
    db.execute(
        "CREATE TABLE t (id INTEGER PRIMARY KEY, l INT, d REAL, s TEXT, b BLOB, c DECIMAL(38, 5), o BOOLEAN, t DATE, "
        "w TIMESTAMP)"
    )
    source, header = database(ImagePages(db.serialize("main")))
    schema = read_schema(source, header)
    options = options or Options(decimals=True, booleans=True, dates=True, timestamps=True)
    return make_plan(schema, read_relation(source, schema, "t"), options=options, rowid=rowid)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("l", 5.0),
        ("l", Decimal(5)),
        ("l", "5"),
        ("l", True),
        ("l", 1 << 63),
        ("l", -(1 << 63) - 1),
        ("l", None),
        ("id", 5.0),
        ("id", Decimal("5.5")),
        ("d", 5),
        ("d", float("nan")),
        ("d", Decimal("0.5")),
        ("s", b"x"),
        ("s", "\ud800"),
        ("s", 5),
        ("b", "x"),
        ("c", 5),
        ("c", 5.0),
        ("c", Decimal("0.123456")),
        ("c", Decimal("NaN")),
        ("c", Decimal("Infinity")),
        ("c", Decimal(10) ** 33),
        ("c", Decimal("1234567890123456789012.345678")),
        ("c", Decimal("12345678901234567890123.45678")),
        ("o", 1),
        ("o", "true"),
        ("t", datetime(2024, 1, 1, tzinfo=UTC)),
        ("t", date(1582, 10, 15)),
        ("t", "2024-01-01"),
        ("w", date(2024, 1, 1)),
        ("w", datetime(2024, 1, 1)),
        ("w", datetime(1900, 1, 1, tzinfo=UTC)),
        ("nowhere", 5),
    ],
)
def test_a_literal_that_is_not_the_columns_type_or_not_what_the_query_said_goes_back(column: str, value: Any) -> None:
    path = (column,)
    asked: list[Filter] = [kind(path, value) for kind in (EqualTo, GreaterThan, GreaterThanOrEqual, LessThan)]
    asked += [In(path, (value,)), In(path, ()), Not(EqualTo(path, value))]
    if value is not None:
        asked.append(EqualNullSafe(path, value))
    assert push(asked, plan_of()) == (PushedFilters(), asked)


def test_what_is_no_filter_of_a_column_goes_back() -> None:
    class Newer(Filter):
        attribute = ("l",)
        value = 5

    asked: list[Filter] = [
        Newer(),
        Not(Newer()),
        IsNull(("s", "inner")),
        EqualTo((), 5),
        StringStartsWith(("l",), "5"),
        StringStartsWith(("b",), "5"),
        In(("d",), (0.0, 1.0)),
        In(("d",), (-0.0,)),
        In(("l",), (5, "6")),
        In(("l",), (None,)),
    ]
    assert push(asked, plan_of()) == (PushedFilters(), asked)


def test_a_long_list_goes_back_but_narrows_the_rowids() -> None:
    longest = tuple(range(0, 2 * MOST_VALUES, 2))
    assert push([In(("l",), longest)], plan_of())[1] == []
    too_long = In(("l",), (*longest, -1))
    assert push([too_long], plan_of()) == (PushedFilters(), [too_long])
    keys = In(ID, (*longest, 2 * MOST_VALUES))
    assert push([keys], plan_of()) == (PushedFilters((0, 2 * MOST_VALUES)), [keys])


@pytest.mark.parametrize(
    ("filters", "rowids"),
    [
        ([EqualTo(ID, 5)], (5, 5)),
        ([EqualNullSafe(ID, 5)], (5, 5)),
        ([GreaterThan(ID, 5)], (6, GREATEST)),
        ([GreaterThanOrEqual(ID, 5)], (5, GREATEST)),
        ([LessThan(ID, 5)], (LEAST, 4)),
        ([LessThanOrEqual(ID, 5)], (LEAST, 5)),
        ([Not(LessThan(ID, 5)), Not(GreaterThan(ID, 9))], (5, 9)),
        ([Not(LessThanOrEqual(ID, 5)), Not(GreaterThanOrEqual(ID, 9))], (6, 8)),
        ([Not(Not(EqualTo(ID, 5)))], (5, 5)),
        ([EqualTo(ID, LEAST)], (LEAST, LEAST)),
        ([EqualTo(ID, GREATEST)], (GREATEST, GREATEST)),
        ([GreaterThanOrEqual(ID, LEAST), LessThanOrEqual(ID, GREATEST)], None),
        ([IsNotNull(ID)], None),
        ([Not(IsNull(ID))], None),
        ([GreaterThan(ID, GREATEST)], NO_ROWS),
        ([LessThan(ID, LEAST)], NO_ROWS),
        ([EqualTo(ID, 5), EqualTo(ID, 6)], NO_ROWS),
        ([GreaterThan(ID, 5), LessThan(ID, 6)], NO_ROWS),
        ([IsNull(ID)], NO_ROWS),
        ([Not(IsNotNull(ID))], NO_ROWS),
        ([EqualNullSafe(ID, None)], NO_ROWS),
        ([In(ID, (7, 5, 6, 6))], (5, 7)),
        ([In(ID, (5, 6, None))], (5, 6)),
        ([In(("_rowid",), (5,))], (5, 5)),
    ],
)
def test_conditions_of_the_key_become_a_range_of_rowids(
    filters: Sequence[Filter], rowids: tuple[int, int] | None
) -> None:
    assert push(filters, plan_of(rowid="_rowid")) == (PushedFilters(rowids), [])


def test_conditions_of_the_key_that_are_no_range_remain_conditions() -> None:
    def condition(operator: Operator, *values: object, negated: bool = False) -> Condition:
        return Condition("id", operator, values, negated)

    for one, pushed in [
        (In(ID, (5, 9)), PushedFilters((5, 9), (condition(Operator.IN, 5, 9),))),
        (In(ID, (LEAST, GREATEST)), PushedFilters(None, (condition(Operator.IN, LEAST, GREATEST),))),
        (Not(In(ID, (5, 6))), PushedFilters(None, (condition(Operator.IN, 5, 6, negated=True),))),
        (Not(EqualTo(ID, 5)), PushedFilters(None, (condition(Operator.EQUAL, 5, negated=True),))),
        (Not(EqualNullSafe(ID, None)), PushedFilters(None, (condition(Operator.SAME, None, negated=True),))),
    ]:
        assert push([one], plan_of()) == (pushed, [])


def test_a_key_that_is_read_as_another_type_is_compared_as_that_type() -> None:
    as_double = plan_of(Options(types={"id": Target.DOUBLE}))
    pushed, remaining = push([GreaterThan(ID, 5.5), EqualTo(ID, 5)], as_double)
    assert (pushed.rowids, pushed.columns, remaining) == (None, ("id",), [EqualTo(ID, 5)])


def test_is_not_null_is_only_asked_where_nothing_else_drops_nulls() -> None:
    there = [IsNotNull(("l",)), IsNotNull(("d",)), IsNotNull(("s",))]
    pushed, _ = push(
        [*there, GreaterThan(("l",), 5), Not(EqualNullSafe(("d",), 1.0)), In(("s",), ("x", None))], plan_of()
    )
    assert [(one.column, one.operator) for one in pushed.conditions] == [
        ("d", Operator.NOT_NULL),
        ("l", Operator.GREATER),
        ("d", Operator.SAME),
        ("s", Operator.IN),
    ]
    assert pushed.columns == ("d", "l", "s")


def test_a_plan_without_conditions_has_no_predicate_and_one_with_some_reads_only_their_columns() -> None:
    plan = plan_of(rowid="_rowid")
    assert PushedFilters((5, 9)).predicate(plan) is None
    pushed, _ = push([EqualTo(("s",), "x"), Not(EqualTo(("_rowid",), 5)), LessThan(("d",), 1.5)], plan)
    predicate = pushed.predicate(plan)
    assert predicate
    assert predicate.plan.schema.names == ["_rowid", "d", "s"]
