"""Pushed filters: those that a scan answers itself, in Spark's three-valued logic.

They are evaluated on converted values, those that Spark would see. So nothing of SQLite's own comparing is in them: no
collation, no affinity, no order among classes. Both engines convert the columns of the conditions first, and the others
for the rows that are kept. A row is kept where every condition is true: where one is null, Spark drops the row as well.

`rowids` are what the conditions of an INTEGER PRIMARY KEY come to; other leaves are not even read. Both ends belong to
it; the first may lie behind the last, and then there is no such row.

What typeMismatch=fail means with pushed filters: a value that a condition looks at, and every value of a row that is
answered, is right or the scan fails. Rows that are dropped, or whose leaves are not read, are not looked at any
further, and a mismatch in another column of theirs is not met. Without push-down it would be.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final, cast

import pyarrow as pa
import pyarrow.compute as pc

from ...tables.scan_plan import Plan, Predicate

_compute: Final[Any] = pc
"""Its annotations leave the types of values open."""

NO_ROWS: Final = (1, 0)
"""Rowids between which there are none."""


class Operator(StrEnum):
    EQUAL = "="
    SAME = "<=>"
    LESS = "<"
    LESS_EQUAL = "<="
    GREATER = ">"
    GREATER_EQUAL = ">="
    IN = "in"
    IS_NULL = "is null"
    NOT_NULL = "is not null"
    STARTS = "starts with"
    ENDS = "ends with"
    CONTAINS = "contains"


@dataclass(frozen=True, slots=True)
class Condition:
    """One column's. `values` has one item; none for the tests of null; for IN any number, with None for a null."""

    column: str
    operator: Operator
    values: tuple[object, ...] = ()
    negated: bool = False

    @property
    def null_is_dropped(self) -> bool:
        """Whether a row whose value is null is never kept."""
        match self.operator:
            case Operator.IS_NULL:
                return self.negated
            case Operator.NOT_NULL:
                return not self.negated
            case Operator.SAME:
                return self.negated == (self.values[0] is None)
            case _:
                return True

    def mask(self, array: pa.Array[Any]) -> pa.BooleanArray:
        """True, false or null of each value."""
        answer = self._plain(array)
        return cast("pa.BooleanArray", _compute.invert(answer)) if self.negated else answer

    def _plain(self, array: pa.Array[Any]) -> pa.BooleanArray:
        match self.operator:
            case Operator.IS_NULL:
                return array.is_null()
            case Operator.NOT_NULL:
                return array.is_valid()
            case Operator.SAME:
                (value,) = self.values
                if value is None:
                    return array.is_null()
                return cast("pa.BooleanArray", _compute.equal(array, _scalar(array.type, value)).fill_null(False))
            case Operator.IN:
                return self._among(array)
            case Operator.STARTS | Operator.ENDS | Operator.CONTAINS:
                return cast("pa.BooleanArray", _TEXT[self.operator](array, self.values[0]))
            case _:
                return cast("pa.BooleanArray", _COMPARED[self.operator](array, _scalar(array.type, self.values[0])))

    def _among(self, array: pa.Array[Any]) -> pa.BooleanArray:
        """Null where the value is, and where it is none of a list that has a null: it might equal that."""
        found: pa.BooleanArray = _compute.is_in(array, _options(array.type, self.values))
        known = found if None in self.values else array.is_valid()
        return cast("pa.BooleanArray", _compute.if_else(known, found, None))


@dataclass(frozen=True, slots=True)
class PushedFilters:
    """Pickles: each task carries it."""

    rowids: tuple[int, int] | None = None
    conditions: tuple[Condition, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """What the conditions look at, in the order they name it."""
        return tuple(dict.fromkeys(one.column for one in self.conditions))

    def predicate(self, plan: Plan) -> Predicate | None:
        """For the engine that reads the plan; None without conditions. The plan has all `columns`."""
        if not self.conditions:
            return None
        wanted = set(self.columns)
        readings = tuple(reading for reading in plan.readings if reading.column.name in wanted)
        rowid = plan.rowid if plan.rowid in wanted else None
        return Predicate(replace(plan, readings=readings, rowid=rowid), self.mask)

    def mask(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Which rows of a batch with all `columns` are kept: those that are true. There must be conditions."""
        answer: pa.BooleanArray | None = None
        for one in self.conditions:
            mask = one.mask(cast("Any", batch).column(one.column))
            answer = mask if answer is None else cast("pa.BooleanArray", _compute.and_kleene(answer, mask))
        assert answer is not None
        return answer


_COMPARED: Final[dict[Operator, Callable[[Any, Any], Any]]] = {
    Operator.EQUAL: _compute.equal,
    Operator.LESS: _compute.less,
    Operator.LESS_EQUAL: _compute.less_equal,
    Operator.GREATER: _compute.greater,
    Operator.GREATER_EQUAL: _compute.greater_equal,
}
_TEXT: Final[dict[Operator, Callable[[Any, Any], Any]]] = {
    Operator.STARTS: _compute.starts_with,
    Operator.ENDS: _compute.ends_with,
    Operator.CONTAINS: _compute.match_substring,
}


@lru_cache(maxsize=128)
def _scalar(type_: pa.DataType, value: object) -> pa.Scalar[Any]:
    return pa.scalar(value, type_)


@lru_cache(maxsize=32)
def _options(type_: pa.DataType, values: tuple[object, ...]) -> pa.Array[Any]:
    return pa.array([value for value in values if value is not None], type_)
