"""Conversion: values of SQLite's five classes become a column of one Arrow type, or it is said which one can't.

    target      takes as they are                                        every other class is a mismatch, and so is
    long        INTEGER
    double      REAL, INTEGER                                            an INTEGER beyond 2^53 that no double equals
    string      TEXT                                                     TEXT that is not UTF-8
    binary      BLOB
    text        TEXT; INTEGER in digits; REAL as its shortest exact      TEXT that is not UTF-8
                decimal, Infinity, -Infinity; BLOB as X'…' in hex
    decimal     INTEGER, REAL by its shortest exact decimal              what has more digits than the type
                (decimals.py)
    boolean     INTEGER 0 and 1                                          other INTEGERs
    date        TEXT YYYY-MM-DD                                          other TEXT
    timestamp   TEXT YYYY-MM-DD[ hh:mm[:ss[.ffffff]]][zone], UTC unless  other TEXT
                it says a zone, as SQLite's own functions take it

NULL is null in each. So is NaN, which SQLite reads as NULL. The plan's `mismatch` says what a mismatch becomes:

    fail      an error of one line, with table, column and row
    null      null
    string    columns are read as text, so that only bad UTF-8 mismatches: it is read with U+FFFD in its place.
              A column whose type was named outright fails
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..sqlite.record import Value
from ..volume.errors import BadInput
from .datetimes import days_of, micros_of
from .decimals import Decimals
from .scan_plan import Mismatch, Plan, Reading, Target

NULL: Final = 0
INTEGER: Final = 1
REAL: Final = 2
TEXT: Final = 3
BLOB: Final = 4
CLASSES: Final = ("NULL", "INTEGER", "REAL", "TEXT", "BLOB")

Bools = npt.NDArray[np.bool_]
_SHOWN: Final = 40


class RawText(bytes):
    """The bytes of a TEXT, which may not be UTF-8."""


class Values(Protocol):
    """One column of some rows, as stored. Each answer has one item a row; rows of another class hold anything in it."""

    @property
    def classes(self) -> npt.NDArray[np.uint8]: ...

    def integers(self) -> npt.NDArray[np.int64]: ...

    def reals(self) -> npt.NDArray[np.float64]: ...

    def binary(self, wanted: int) -> pa.BinaryArray:
        """The rows of class `wanted`, TEXT or BLOB; null elsewhere."""
        ...

    def value(self, row: int) -> Value | RawText:
        """One row's, for an error to show: it may take as long as all of them."""
        ...


class Objects:
    """Values that are Python's: TEXT as RawText, BLOB as bytes."""

    def __init__(self, values: Sequence[Value | RawText]) -> None:
        self._values = values
        self._types = set(map(type, values))
        if len(self._types) == 1:
            self.classes = np.full(len(values), CLASS_OF[type(values[0])], np.uint8)
        else:
            self.classes = np.fromiter(map(CLASS_OF.__getitem__, map(type, values)), np.uint8, len(values))

    def integers(self) -> npt.NDArray[np.int64]:
        if self._types == {int}:
            return np.array(self._values, np.int64)
        return np.array([value if type(value) is int else 0 for value in self._values], np.int64)

    def reals(self) -> npt.NDArray[np.float64]:
        if self._types == {float}:
            return np.array(self._values, np.float64)
        return np.array([value if type(value) is float else 0.0 for value in self._values], np.float64)

    def binary(self, wanted: int) -> pa.BinaryArray:
        kind = RawText if wanted == TEXT else bytes
        if self._types <= {kind, type(None)}:
            return pa.array(self._values, pa.binary())
        return pa.array([value if type(value) is kind else None for value in self._values], pa.binary())

    def value(self, row: int) -> Value | RawText:
        return self._values[row]


CLASS_OF: Final[dict[type, int]] = {type(None): NULL, int: INTEGER, float: REAL, RawText: TEXT, bytes: BLOB}


def convert(plan: Plan, reading: Reading, values: Values, row_name: Callable[[int], str]) -> pa.Array[Any]:
    """The column. `row_name` says which row the i-th is. Raises BadInput for a mismatch that the plan lets fail."""
    return _Conversion(plan, reading, values, row_name).array()


class _Conversion:
    def __init__(self, plan: Plan, reading: Reading, values: Values, row_name: Callable[[int], str]) -> None:
        self._plan = plan
        self._reading = reading
        self._values = values
        self._row_name = row_name
        self._classes = values.classes

    def array(self) -> pa.Array[Any]:
        match self._reading.target:
            case Target.LONG:
                return numbers(pa.int64(), self._values.integers(), self._other_than(INTEGER))
            case Target.DOUBLE:
                return self._double()
            case Target.BINARY:
                self._other_than(BLOB)
                return self._values.binary(BLOB)
            case Target.STRING:
                self._other_than(TEXT)
                return self._string(self._values.binary(TEXT))
            case Target.TEXT:
                return self._text()
            case Target.BOOLEAN:
                null = self._other_than(INTEGER)
                data = self._values.integers()
                odd = (data != 0) & (data != 1) & (self._classes == INTEGER)
                self._refuse(odd)
                return cast("pa.Array[Any]", pa.array(data == 1, mask=odd if null is None else odd | null))
            case Target.DECIMAL:
                return self._decimal()
            case Target.DATE:
                return self._instant(days_of)
            case Target.TIMESTAMP:
                return self._instant(micros_of)

    def _other_than(self, *wanted: int) -> Bools | None:
        """Where there is nothing to take, None if nowhere; mismatches among them are refused."""
        classes = self._classes
        if not len(classes) or (classes.min() == classes.max() and int(classes.min()) in wanted):
            return None
        taken: Bools = classes == wanted[0]
        for other in wanted[1:]:
            taken |= classes == other
        self._refuse(~taken & (classes != NULL))
        return ~taken

    def _refuse(self, bad: Bools) -> None:
        if self._plan.mismatch != Mismatch.NULL and bad.any():
            self._fail(int(np.argmax(bad)))

    def _fail(self, row: int) -> None:
        value = self._values.value(row)
        shown = f"X'{value.hex().upper()}'" if type(value) is bytes else repr(value)
        if isinstance(value, RawText):
            shown = repr(value.decode("utf-8", "backslashreplace"))
        if len(shown) > _SHOWN:
            shown = f"{shown[:_SHOWN]}…"
        raise BadInput(
            f"{self._plan.relation.words}, column {self._reading.column.name}, {self._row_name(row)}: "
            f"{CLASSES[self._classes[row]]} {shown} can't be read as {self._reading.target}: {self._way_out(row)}"
        )

    def _way_out(self, row: int) -> str:
        """The option that helps: another type for the column that this value fits as well, and the policy."""
        target, kind = self._reading.target, int(self._classes[row])
        if target in (Target.TEXT, Target.STRING) and kind == TEXT:
            return "set typeMismatch=string to have U+FFFD for what is no UTF-8, or typeMismatch=null to have null"
        fits = _FITS.get((kind, target), Target.TEXT)
        return f"set type.{self._reading.column.name}={fits}, or typeMismatch=null to have such values as null"

    def _double(self) -> pa.Array[Any]:
        null = self._other_than(REAL, INTEGER)
        data = self._values.reals()
        whole = self._classes == INTEGER
        if whole.any():
            integers = self._values.integers()
            # A double's neighbours: no integer below 2^53 is lost. 2^63 itself is no int64, so it can't be cast back.
            near = integers.astype(np.float64)
            fits = near < 2.0**63
            exact = fits & (np.where(fits, near, 0.0).astype(np.int64) == integers)
            lost = whole & ~exact
            self._refuse(lost)
            data = np.where(whole, near, data)
            null = lost if null is None else null | lost
        return numbers(pa.float64(), data, null)

    def _string(self, raw: pa.BinaryArray) -> pa.Array[Any]:
        try:
            return cast("pa.Array[Any]", raw.cast(pa.string()))
        except pa.ArrowInvalid:
            return pa.array([self._decoded(row, value) for row, value in enumerate(raw.to_pylist())], pa.string())

    def _decoded(self, row: int, raw: bytes | None) -> str | None:
        if raw is None:
            return None
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            if self._plan.mismatch == Mismatch.FAIL:
                self._fail(row)
            return raw.decode("utf-8", "replace") if self._plan.mismatch == Mismatch.STRING else None

    def _text(self) -> pa.Array[Any]:
        texts = self._string(self._values.binary(TEXT))
        kinds = set(np.unique(self._classes).tolist()) - {NULL, TEXT}
        if not kinds:
            return texts
        words: list[str | None] = texts.to_pylist()
        for kind, column in ((INTEGER, self._values.integers), (REAL, self._values.reals)):
            if kind in kinds:
                items = column().tolist()
                for row in np.flatnonzero(self._classes == kind).tolist():
                    words[row] = _INFINITIES.get(items[row]) or repr(items[row])
        if BLOB in kinds:
            blobs = self._values.binary(BLOB)
            for row in np.flatnonzero(self._classes == BLOB).tolist():
                words[row] = f"X'{blobs[row].as_py().hex().upper()}'"
        return pa.array(words, pa.string())

    def _decimal(self) -> pa.Array[Any]:
        self._other_than(INTEGER, REAL)
        made = Decimals(len(self._classes), self._reading.precision, self._reading.scale)
        whole, real = np.flatnonzero(self._classes == INTEGER), np.flatnonzero(self._classes == REAL)
        if len(whole):
            made.put_integers(whole, self._values.integers()[whole])
        if len(real):
            made.put_reals(real, self._values.reals()[real])
        self._refuse(~made.good & (self._classes != NULL))
        return made.array()

    def _instant(self, count: Callable[[pa.BinaryArray], tuple[npt.NDArray[Any], Bools]]) -> pa.Array[Any]:
        """A type that is a number of days, or of microseconds: `count` tells them of texts."""
        self._other_than(TEXT)
        found, good = count(self._values.binary(TEXT))
        text = self._classes == TEXT
        self._refuse(text & ~good)
        return numbers(self._reading.type, found, ~(text & good))


_FITS: Final = {
    (REAL, Target.LONG): Target.DOUBLE,
    (INTEGER, Target.BOOLEAN): Target.LONG,
    (INTEGER, Target.DECIMAL): Target.DOUBLE,
    (REAL, Target.DECIMAL): Target.DOUBLE,
    (TEXT, Target.DATE): Target.STRING,
    (TEXT, Target.TIMESTAMP): Target.STRING,
}
"""By class and type: a type that takes the one and what the other takes. As words anything is."""
_INFINITIES: Final = {float("inf"): "Infinity", float("-inf"): "-Infinity"}


def numbers(type_: pa.DataType, data: npt.NDArray[Any], null: Bools | None) -> pa.Array[Any]:
    """The array over `data` itself, without a copy."""
    valid = None if null is None else as_buffer(np.packbits(~null, bitorder="little"))
    return pa.Array.from_buffers(type_, len(data), [valid, as_buffer(np.ascontiguousarray(data))])


def as_buffer(data: npt.NDArray[Any]) -> pa.Buffer:
    return pa.py_buffer(data.data)
