"""Record columns: the headers of many records are walked together, and columns' values gathered from where these say.

Of each record only the header is walked, column by column for all rows at once, and only as far as the last column that
is wanted; values are gathered where the header says that they lie: integers as eight bytes shifted right, or as one
byte where none has more, text by Arrow's `take`.

What SQLite does and so must be done here: a record that ends early is filled with the columns' defaults; a REAL
column's small whole numbers are stored as integers; NaN reads as NULL; values beyond the table's last column are not
looked at.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..sqlite.record import Value
from ..volume.errors import BadInput, Corrupt
from .conversion import BLOB, CLASS_OF, INTEGER, NULL, REAL, TEXT, RawText, as_buffer
from .leaf_rows import MAX_PAYLOAD, Bools, Buffer, Ints, Rows, varints
from .schema import Affinity, Column

_LONG: Final = 0x80
"""A serial type of two bytes or more begins with a byte from here on."""

_RESERVED: Final = (10, 11)
_ONE_BYTE: Final = 1
_FLOAT: Final = 7
_ZERO: Final = 8
_ONE: Final = 9
_FIRST_BLOB: Final = 12
_SIZES: Final = np.array([0, 1, 2, 3, 4, 6, 8, 8, 0, 0, 0, 0, *((s - 12) // 2 for s in range(12, 256))], np.int64)
_CLASSES: Final = np.array([NULL, *[INTEGER] * 6, REAL, INTEGER, INTEGER, NULL, NULL, *[BLOB, TEXT] * 122], np.uint8)
_SHIFTS: Final = np.array([63, 56, 48, 40, 32, 16, 0, 0, *[63] * 248], np.int64)


@dataclass(frozen=True, slots=True)
class Field:
    """One column of all rows: its serial types' first bytes, its classes, and where its bytes lie.

    `low` and `high` are the least and the greatest of these bytes. `missing`: records that end before.
    """

    first: npt.NDArray[np.uint8]
    low: int
    high: int
    classes: npt.NDArray[np.uint8] | None
    at: Ints
    size: Ints
    missing: Bools | None

    @property
    def uniform(self) -> int:
        """The serial type where all rows have the same, short one, else -1."""
        return self.low if self.low == self.high < _LONG else -1

    def stored_classes(self) -> npt.NDArray[np.uint8]:
        """As the records have them, what is missing as NULL."""
        if self.classes is not None:
            return self.classes
        if self.low == self.high or (self.low >= _ONE_BYTE and self.high < _FLOAT):
            return np.full(len(self.first), _CLASSES[self.low], np.uint8)
        return _CLASSES.take(self.first)

    def holds(self, least: int, greatest: int) -> bool:
        """Whether there may be serial types from one to another, short ones."""
        return self.low <= greatest and self.high >= least


def walk_records(rows: Rows, wanted: set[int], key: str, *, check_ends: bool = True) -> dict[int, Field]:
    """The wanted columns, by their place in the record.

    The headers must lie in the buffer, and with `check_ends` the values too; else Corrupt is raised.
    """
    data = rows.buffer.data
    found: dict[int, Field] = {}
    limit = rows.at + rows.local
    head, at = varints(rows.buffer, rows.at)
    end = rows.at + head
    _check((head >= 1) & (end <= limit) & (at <= end), rows, key, "a header that doesn't fit")
    # While all serial types are of one byte, no header ends before so many columns.
    sure = int((end - at).min()) if len(rows) else 0
    last = max(wanted, default=-1)
    value_at = end
    for place in range(last + 1):
        first = data[at]
        missing: Bools | None = None
        ended: Bools | None = None if place < sure else at >= end
        if ended is not None and ended.any():
            missing = ended
            first = np.where(ended, np.uint8(0), first)
            at += ~ended
        else:
            at += 1
        low, high = (int(first.min()), int(first.max())) if len(first) else (0, 0)
        classes: npt.NDArray[np.uint8] | None = None
        if low <= _RESERVED[1] and high >= _RESERVED[0]:
            _check(~np.isin(first, _RESERVED), rows, key, "a serial type that is reserved")
        size = np.full(len(first), _SIZES[low]) if low == high else _SIZES.take(first)
        if high >= _LONG:
            sure = 0
            long = np.flatnonzero(first >= _LONG)
            serial, after = varints(rows.buffer, at[long] - 1)
            at[long] = after
            _check(at <= end, rows, key, "a header that is cut short")
            lengths = (serial - _FIRST_BLOB) >> 1
            good = (serial >= _FIRST_BLOB) & (lengths <= MAX_PAYLOAD)
            _check(good, rows.select(long), key, "a serial type that can't be")
            size[long] = lengths
            if place in wanted:
                classes = _CLASSES.take(first)
                classes[long] = np.where(serial & 1, TEXT, BLOB)
        if place in wanted:
            found[place] = Field(first, low, high, classes, value_at, size, missing)
        if place < last or check_ends:
            value_at = value_at + size
    # Values lie one after the other, so where the last ends within the record, all do.
    if check_ends and last >= 0:
        _check(value_at <= limit, rows, key, "a value that ends beyond it")
    return found


def _check(right: Bools, rows: Rows, key: str, what: str) -> None:
    if not right.all():
        row = int(np.argmin(right))
        raise Corrupt(key, f"page {rows.page[row]}: the record of rowid {rows.rowid[row]} has {what}")


class Rowids:
    """An INTEGER PRIMARY KEY. Answers the protocol `Values`."""

    def __init__(self, rowids: Ints) -> None:
        self._rowids = rowids
        self.classes = np.full(len(rowids), INTEGER, np.uint8)

    def integers(self) -> Ints:
        return self._rowids

    def reals(self) -> npt.NDArray[np.float64]:
        return np.zeros(len(self._rowids))

    def binary(self, wanted: int) -> pa.BinaryArray:
        return pa.nulls(len(self._rowids), pa.binary())

    def value(self, row: int) -> Value | RawText:
        return int(self._rowids[row])


class Stored:
    """A column that lies in the records. Answers the protocol `Values`."""

    def __init__(self, buffer: Buffer, field: Field, column: Column) -> None:
        self._buffer = buffer
        self._field = field
        self._column = column
        default = column.default
        self._default: Value | RawText = RawText(default.encode()) if isinstance(default, str) else default
        self._missing = field.missing if field.missing is not None and default is not None else None
        self._reals: npt.NDArray[np.float64] | None = None
        self._raw = field.stored_classes()
        self.classes = self._shown_classes()

    def _shown_classes(self) -> npt.NDArray[np.uint8]:
        """As SQLite answers: NaN is NULL, a REAL column's integers are REAL, what is missing is the default."""
        shown = self._raw
        if self._field.uniform == _FLOAT or (self._field.holds(_FLOAT, _FLOAT) and (self._field.first == _FLOAT).any()):
            nan = np.isnan(self.reals())
            if nan.any():
                shown = np.where((shown == REAL) & nan, np.uint8(NULL), shown)
        if self._column.affinity == Affinity.REAL and self._field.uniform != _FLOAT:
            shown = np.where(shown == INTEGER, np.uint8(REAL), shown)
        if self._missing is not None:
            shown = np.where(self._missing, np.uint8(CLASS_OF[type(self._default)]), shown)
        return shown

    def integers(self) -> Ints:
        field = self._field
        if field.uniform in (_ZERO, _ONE):
            values = np.full(len(field.first), field.uniform - _ZERO, np.int64)
        else:
            if field.high <= _ONE and not ((field.first > _ONE_BYTE) & (field.first < _ZERO)).any():
                values = self._buffer.bytes(field.at)
            else:
                values = self._buffer.words(field.at)
                values >>= _SHIFTS[field.low] if field.low == field.high else _SHIFTS.take(field.first)
            if field.low != field.high and field.holds(_ZERO, _ONE):
                values *= (field.first != _ZERO) & (field.first != _ONE)
                values += field.first == _ONE
        if self._missing is not None and isinstance(self._default, int):
            values = np.where(self._missing, self._default, values)
        return values

    def reals(self) -> npt.NDArray[np.float64]:
        if self._reals is None:
            field = self._field
            values = self._buffer.words(field.at).view(np.float64)
            if self._column.affinity == Affinity.REAL and field.uniform != _FLOAT:
                values = np.where(self._raw == INTEGER, self.integers().astype(np.float64), values)
            if self._missing is not None and isinstance(self._default, float):
                values = np.where(self._missing, self._default, values)
            self._reals = values
        return self._reals

    def binary(self, wanted: int) -> pa.BinaryArray:
        field, data = self._field, self._buffer.data
        count = len(field.first)
        there: Bools = self._raw == wanted
        everywhere = bool(there.all())
        size = field.size if everywhere else np.where(there, field.size, 0)
        if len(data) > MAX_PAYLOAD:
            raise BadInput("a row of this table is too long for the page engine: choose the general one")
        # Arrow's `take` copies [offset i, offset i + 1) for odd i; what lies between two values is never taken.
        offsets = np.zeros(2 * count + 2, np.int32)
        offsets[1:-1:2] = field.at
        offsets[2:-1:2] = field.at + size
        offsets[-1] = len(data)
        spread = pa.Array.from_buffers(pa.binary(), 2 * count + 1, [None, as_buffer(offsets), as_buffer(data)])
        taken = spread.take(_odd(count))
        if not everywhere:
            valid = as_buffer(np.packbits(there, bitorder="little"))
            taken = pa.Array.from_buffers(pa.binary(), count, [valid, *taken.buffers()[1:]])
        if self._missing is not None and isinstance(self._default, bytes) and CLASS_OF[type(self._default)] == wanted:
            taken = pc.if_else(pa.array(self._missing), pa.scalar(bytes(self._default), pa.binary()), taken)
        return cast("pa.BinaryArray", taken)

    def value(self, row: int) -> Value | RawText:
        match int(self.classes[row]):
            case 0:
                return None
            case 1:
                return int(self.integers()[row])
            case 2:
                return float(self.reals()[row])
            case kind:
                raw = self.binary(kind)[row].as_py()
                return RawText(raw) if kind == TEXT else raw


@lru_cache(maxsize=8)
def _odd(count: int) -> pa.Array[Any]:
    return pa.array(np.arange(1, 2 * count, 2, dtype=np.int64))
