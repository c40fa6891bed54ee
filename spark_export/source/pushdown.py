"""Push-down: Spark's filters become PushedFilters where its answer is exactly Spark's; all others go back to Spark.

Literals come from Spark by way of Java's and Variant's types, and some are not what the query said by then. So these go
back, and with them whatever is not listed here:

    a decimal of 28 digits or more    it was rounded to 28 on its way
    a date or time before 1900        Java's old calendar moved it: 1582-10-07 comes as 1582-10-15
    NaN                               Spark takes it for the greatest number; Arrow for none
    0.0 in an IN list                 whether -0.0 is in a list depends on how long the list is, in Spark
    a list longer than MOST_VALUES    it would be sent along with every task
    a literal of another type         against a long column, Spark compares a double as a double, and a decimal exactly

Conditions of the INTEGER PRIMARY KEY, or of the column that shows the rowid, become a range of rowids where they are
one. An IN list narrows the range even where it goes back: Spark drops what lies outside it.

Spark must be told with `spark.sql.python.filterPushdown.enabled`, and even then a reader has `pushFilters` only where
the option `pushDownPredicate` asks for it. For Spark 4.3 keeps one plan for each load(), and any further query of the
same DataFrame, with another filter or with none, is answered by the plan that was made last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from math import isnan
from typing import Any, Final

import pyarrow as pa
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

from ...tables.scan_plan import Plan, Target
from ...tables.splits import GREATEST_ROWID, LEAST_ROWID
from .pushed_filters import NO_ROWS, Condition, Operator, PushedFilters

MOST_VALUES: Final = 1000

_OLDEST: Final = datetime(1900, 1, 2, tzinfo=UTC)
"""From then on both calendars, and every zone's time, are the same for Java."""

_SURE_DIGITS: Final = 27

_OPERATORS: Final[dict[type[Filter], Operator]] = {
    EqualTo: Operator.EQUAL,
    EqualNullSafe: Operator.SAME,
    GreaterThan: Operator.GREATER,
    GreaterThanOrEqual: Operator.GREATER_EQUAL,
    LessThan: Operator.LESS,
    LessThanOrEqual: Operator.LESS_EQUAL,
    In: Operator.IN,
    IsNull: Operator.IS_NULL,
    IsNotNull: Operator.NOT_NULL,
    StringStartsWith: Operator.STARTS,
    StringEndsWith: Operator.ENDS,
    StringContains: Operator.CONTAINS,
}
_TEXT: Final = (Operator.STARTS, Operator.ENDS, Operator.CONTAINS)
_OPPOSITE: Final = {
    Operator.LESS: Operator.GREATER_EQUAL,
    Operator.LESS_EQUAL: Operator.GREATER,
    Operator.GREATER: Operator.LESS_EQUAL,
    Operator.GREATER_EQUAL: Operator.LESS,
    Operator.IS_NULL: Operator.NOT_NULL,
    Operator.NOT_NULL: Operator.IS_NULL,
}


def push(filters: Sequence[Filter], plan: Plan) -> tuple[PushedFilters, list[Filter]]:
    """What a scan of the plan answers itself, and the filters that remain Spark's. The same for the same filters."""
    types = {reading.column.name: reading.type for reading in plan.readings}
    rowid_columns = {reading.column.name for reading in plan.readings if reading.column.rowid}
    rowid_columns &= {reading.column.name for reading in plan.readings if reading.target == Target.LONG}
    if plan.rowid is not None:
        types[plan.rowid] = pa.int64()
        rowid_columns.add(plan.rowid)
    first, last = LEAST_ROWID, GREATEST_ROWID
    conditions: list[Condition] = []
    remaining: list[Filter] = []
    for one in filters:
        condition = _condition(one, types)
        if condition is None:
            remaining.append(one)
            continue
        done = False
        if condition.column in rowid_columns:
            low, high, done = _rowids(condition)
            first, last = max(first, low), min(last, high)
        if condition.operator == Operator.IN and len(condition.values) > MOST_VALUES:
            remaining.append(one)
        elif not done:
            conditions.append(condition)
    rowids = None if (first, last) == (LEAST_ROWID, GREATEST_ROWID) else (first, last) if first <= last else NO_ROWS
    return PushedFilters(rowids, tuple(_needed(conditions))), remaining


def _needed(conditions: list[Condition]) -> list[Condition]:
    """Spark sends `a IS NOT NULL` along with each `a = 1`; by itself it is kept."""
    there = Condition("", Operator.NOT_NULL)
    sure = {one.column for one in conditions if one.null_is_dropped and one.operator != Operator.NOT_NULL}
    return [one for one in dict.fromkeys(conditions) if one.column not in sure or replace(one, column="") != there]


def _condition(filter_: Filter, types: Mapping[str, pa.DataType]) -> Condition | None:
    """The filter as a condition; None if it is to go back."""
    negated = False
    while isinstance(filter_, Not):
        filter_, negated = filter_.child, not negated
    operator = _OPERATORS.get(type(filter_))
    path: tuple[str, ...] = getattr(filter_, "attribute", ())
    if operator is None or len(path) != 1 or path[0] not in types:
        return None
    type_ = types[path[0]]
    given: Any = getattr(filter_, "value", None)
    values: tuple[Any, ...]
    match operator:
        case Operator.IS_NULL | Operator.NOT_NULL:
            values = ()
        case Operator.IN:
            values = tuple(given)
            if not any(value is not None for value in values) or not all(
                value is None or (_exact(value, type_) and (type(value) is not float or value != 0)) for value in values
            ):
                return None
        case _:
            values = (given,)
            if given is None:
                if operator != Operator.SAME:
                    return None
            elif not _exact(given, type_) or (operator in _TEXT and not pa.types.is_string(type_)):
                return None
    return Condition(path[0], operator, values, negated)


def _exact(value: object, type_: pa.DataType) -> bool:
    """Whether this literal is the one that the query has, and compares in Arrow as it does in Spark."""
    match value:
        case bool():
            return pa.types.is_boolean(type_)
        case int():
            return pa.types.is_int64(type_) and LEAST_ROWID <= value <= GREATEST_ROWID
        case float():
            return pa.types.is_float64(type_) and not isnan(value)
        case str():
            return pa.types.is_string(type_) and not any("\ud800" <= letter <= "\udfff" for letter in value)
        case bytes():
            return pa.types.is_binary(type_)
        case Decimal():
            return pa.types.is_decimal128(type_) and _holds(type_, value)
        case datetime():
            return pa.types.is_timestamp(type_) and value.tzinfo is not None and value >= _OLDEST
        case date():
            return pa.types.is_date32(type_) and value >= _OLDEST.date()
        case _:
            return False


def _holds(type_: pa.Decimal128Type[Any, Any], value: Decimal) -> bool:
    if not value.is_finite():
        return False
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    whole = len(digits) + exponent if value else 0
    return len(digits) <= _SURE_DIGITS and -exponent <= type_.scale and whole <= type_.precision - type_.scale


def _rowids(condition: Condition) -> tuple[int, int, bool]:
    """The rowids outside which it is not true, and whether it is true of all of them. A rowid is never null."""
    operator, negated = condition.operator, condition.negated
    if negated and operator in _OPPOSITE:
        operator, negated = _OPPOSITE[operator], False
    values = sorted(value for value in condition.values if isinstance(value, int))
    if negated or (operator not in (Operator.IS_NULL, Operator.NOT_NULL) and not values):
        # Unequal to something; or `<=> null`, which is true of no rowid.
        nothing = not negated and operator == Operator.SAME
        return (*NO_ROWS, True) if nothing else (LEAST_ROWID, GREATEST_ROWID, False)
    match operator:
        case Operator.EQUAL | Operator.SAME:
            return values[0], values[0], True
        case Operator.LESS:
            return LEAST_ROWID, values[0] - 1, True
        case Operator.LESS_EQUAL:
            return LEAST_ROWID, values[0], True
        case Operator.GREATER:
            return values[0] + 1, GREATEST_ROWID, True
        case Operator.GREATER_EQUAL:
            return values[0], GREATEST_ROWID, True
        case Operator.IN:
            # Without gaps, the list is the range.
            return values[0], values[-1], values[-1] - values[0] < len(set(values))
        case Operator.NOT_NULL:
            return LEAST_ROWID, GREATEST_ROWID, True
        case _:
            return (*NO_ROWS, True)
