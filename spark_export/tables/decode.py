"""Decode: the page engine. Table leaves, many at once, become Arrow record batches; no row is ever a Python object.

A batch is about a megabyte of pages (256 of 4 KiB), so that its arrays stay in the processor's cache. Of each record
only the header is walked, column by column for all rows together, and only as far as the last column that is wanted;
values are gathered where the header says that they lie: integers as eight bytes shifted right, text by Arrow's `take`.

With a predicate its columns are decoded first, and all others only for the rows that it keeps.

Chains are read only where a wanted value lies in one. Rows whose payloads overflow are taken in portions of
PORTION_BYTES, so that memory stays bounded; a single row may be longer.

What SQLite does and so must be done here: a record that ends early is filled with the columns' defaults; an INTEGER
PRIMARY KEY is the rowid, whatever the record says; a REAL column's small whole numbers are stored as integers; NaN
reads as NULL; values beyond the table's last column are not looked at.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...sqlite.header import DATABASE, Header
from ...sqlite.record import Value
from ...volume.errors import BadInput, Corrupt
from ...volume.pageset import PageSet
from .cells import MAX_PAYLOAD, Bools, Buffer, Ints, Rows, leaf_rows, varints
from .columns import Affinity, Column
from .mismatch import BLOB, INTEGER, NULL, REAL, TEXT, RawText, as_buffer, convert, numbers
from .pages import PageSource, read_pages
from .plan import Engine, Plan, Predicate

__all__ = ["FETCH_BYTES", "PORTION_BYTES", "PageEngine", "Predicate"]

BATCH_BYTES: Final = 1024 * 1024
FETCH_BYTES: Final = 8 * 1024 * 1024
"""Leaves are asked of the source in runs of so many bytes."""
PORTION_BYTES: Final = 64 * 1024 * 1024

_LONG: Final = 0x80
"""A serial type of two bytes or more begins with a byte from here on."""

_RESERVED: Final = (10, 11)
_FLOAT: Final = 7
_ZERO: Final = 8
_ONE: Final = 9
_FIRST_BLOB: Final = 12
_SIZES: Final = np.array([0, 1, 2, 3, 4, 6, 8, 8, 0, 0, 0, 0, *((s - 12) // 2 for s in range(12, 256))], np.int64)
_CLASSES: Final = np.array([NULL, *[INTEGER] * 6, REAL, INTEGER, INTEGER, NULL, NULL, *[BLOB, TEXT] * 122], np.uint8)
_SHIFTS: Final = np.array([63, 56, 48, 40, 32, 16, 0, 0, *[63] * 248], np.int64)


class PageEngine:
    """Reads the rows of a plan from leaves. Not for two threads at once."""

    def __init__(
        self, source: PageSource, header: Header, plan: Plan, predicate: Predicate | None = None, key: str = DATABASE
    ) -> None:
        for one in (plan, predicate.plan if predicate else plan):
            if one.engine != Engine.PAGES:
                raise BadInput(f"the page engine can't read {one.relation.name}: {one.reason}")
        self._source = source
        self._header = header
        self._plan = plan
        self._predicate = predicate
        self._key = key

    def batches(self, leaves: Sequence[int], rowids: tuple[int, int] | None = None) -> Generator[pa.RecordBatch]:
        """The rows of these leaves in their order, or those of them between two rowids, both included."""
        fetch, batch = (max(1, some // self._header.page_size) for some in (FETCH_BYTES, BATCH_BYTES))
        for start in range(0, len(leaves), fetch):
            numbers_ = leaves[start : start + fetch]
            pages = read_pages(self._source, PageSet(numbers_))
            for begin in range(0, len(numbers_), batch):
                some = numbers_[begin : begin + batch]
                yield from self.decode(some, [pages[number] for number in some], rowids)

    def decode(
        self, indexes: Sequence[int], pages: Sequence[bytes], rowids: tuple[int, int] | None = None
    ) -> Generator[pa.RecordBatch]:
        """The rows of pages that are here already; one batch, more where payloads overflow, none without rows."""
        rows = leaf_rows(indexes, pages, self._header, self._key)
        if rowids:
            rows = rows.select((rows.rowid >= rowids[0]) & (rows.rowid <= rowids[1]))
        yield from self.rows(rows)

    def rows(self, rows: Rows) -> Generator[pa.RecordBatch]:
        """The same of rows that were found in leaves of this snapshot."""
        for portion in _portions(rows):
            kept = self._kept(portion, self._predicate) if self._predicate else portion
            if len(kept):
                yield self._batch(kept, self._plan)

    def _kept(self, rows: Rows, predicate: Predicate) -> Rows:
        answer = predicate.keep(self._batch(rows, predicate.plan)).fill_null(False)
        mask: Bools = np.asarray(answer.to_numpy(zero_copy_only=False), np.bool_)
        return rows if mask.all() else rows.select(mask)

    def _batch(self, rows: Rows, plan: Plan) -> pa.RecordBatch:
        wanted = {reading.column.stored for reading in plan.readings if not reading.column.rowid}
        rows = self._with_chains(rows, wanted)
        rowid = rows.rowid
        stored = dict(_walk(rows, wanted, self._key))
        arrays: list[pa.Array[Any]] = []
        for reading in plan.readings:
            column = reading.column
            values = _Rowids(rowid) if column.rowid else _Stored(rows.buffer, stored[column.stored], column)
            arrays.append(convert(plan, reading, values, lambda row: f"rowid {rowid[row]}"))
        if plan.rowid is not None:
            arrays.insert(0, numbers(pa.int64(), rowid, None))
        return plan.batch(arrays, len(rows))

    def _with_chains(self, rows: Rows, wanted: set[int]) -> Rows:
        """The rows with all wanted values in the buffer."""
        if not wanted or (rows.local == rows.size).all():
            return rows
        over = np.flatnonzero(rows.local < rows.size)
        some = rows.select(over)
        head, after = varints(some.buffer, some.at)
        cut = (after > some.at + some.local) | (head < 0) | (head > some.local)
        inside = np.flatnonzero(~cut)
        ends = some.at[inside] + some.local[inside]
        beyond = np.zeros(len(inside), np.bool_)
        for _, field in _walk(some.select(inside), wanted, self._key, check_ends=False):
            beyond |= field.at + field.size > ends
        cut[inside] = beyond
        needed = over[cut]
        return rows.complete(needed, self._source, self._header) if len(needed) else rows


def _portions(rows: Rows) -> Iterator[Rows]:
    """The rows, cut where their overflowing payloads fill a portion."""
    if not len(rows):
        return
    long = np.where(rows.local < rows.size, rows.size, 0)
    if long.sum() <= PORTION_BYTES:
        yield rows
        return
    start, filled = 0, 0
    for row, size in enumerate(long.tolist()):
        if filled and filled + size > PORTION_BYTES:
            yield rows.select(slice(start, row))
            start, filled = row, 0
        filled += size
    yield rows.select(slice(start, None))


@dataclass(frozen=True, slots=True)
class _Field:
    """One column of all rows: its serial types' first bytes, its classes, and where its bytes lie.

    `uniform` is the serial type where all rows have the same, short one, else -1. `missing`: records that end before.
    """

    first: npt.NDArray[np.uint8]
    uniform: int
    classes: npt.NDArray[np.uint8] | None
    at: Ints
    size: Ints
    missing: Bools | None


def _walk(rows: Rows, wanted: set[int], key: str, *, check_ends: bool = True) -> Iterator[tuple[int, _Field]]:
    """The wanted columns, by their place in the record; each is to be used, or kept, as it comes.

    The headers must lie in the buffer, and with `check_ends` the values too; else Corrupt is raised.
    """
    data = rows.buffer.data
    limit = rows.at + rows.local
    head, at = varints(rows.buffer, rows.at)
    end = rows.at + head
    _check((head >= 1) & (end <= limit) & (at <= end), rows, key, "a header that doesn't fit")
    value_at = end
    for place in range(max(wanted, default=-1) + 1):
        first = data[at]
        ended: Bools = at >= end
        missing: Bools | None = None
        if ended.any():
            missing = ended
            first = np.where(ended, np.uint8(0), first)
            at = at + ~ended
        else:
            at = at + 1
        low, high = (int(first.min()), int(first.max())) if len(first) else (0, 0)
        uniform = low if low == high and high < _LONG else -1
        classes: npt.NDArray[np.uint8] | None = None
        size = np.broadcast_to(_SIZES[uniform], len(first)) if uniform >= 0 else _SIZES[first]
        if (low <= _RESERVED[1] and high >= _RESERVED[0]) and np.isin(first, _RESERVED).any():
            _check(~np.isin(first, _RESERVED), rows, key, "a serial type that is reserved")
        if high >= _LONG:
            long = np.flatnonzero(first >= _LONG)
            serial, after = varints(rows.buffer, at[long] - 1)
            at[long] = after
            _check(at <= end, rows, key, "a header that is cut short")
            lengths = (serial - _FIRST_BLOB) >> 1
            good = (serial >= _FIRST_BLOB) & (lengths <= MAX_PAYLOAD)
            _check(good, rows.select(long), key, "a serial type that can't be")
            size[long] = lengths
            if place in wanted:
                classes = _CLASSES[first]
                classes[long] = np.where(serial & 1, TEXT, BLOB)
        if place in wanted:
            if check_ends:
                _check(value_at + size <= limit, rows, key, "a value that ends beyond it")
            yield place, _Field(first, uniform, classes, value_at, size, missing)
        value_at = value_at + size


def _check(right: Bools, rows: Rows, key: str, what: str) -> None:
    if not right.all():
        row = int(np.argmin(right))
        raise Corrupt(key, f"page {rows.page[row]}: the record of rowid {rows.rowid[row]} has {what}")


class _Rowids:
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


class _Stored:
    """A column that lies in the records. Answers the protocol `Values`."""

    def __init__(self, buffer: Buffer, field: _Field, column: Column) -> None:
        self._buffer = buffer
        self._field = field
        self._column = column
        default = column.default
        self._default: Value | RawText = RawText(default.encode()) if isinstance(default, str) else default
        self._missing = field.missing if field.missing is not None and default is not None else None
        self._reals: npt.NDArray[np.float64] | None = None
        self._raw = self._raw_classes()
        self.classes = self._shown_classes()

    def _raw_classes(self) -> npt.NDArray[np.uint8]:
        field = self._field
        if field.classes is not None:
            return field.classes
        if field.uniform >= 0:
            return np.full(len(field.first), _CLASSES[field.uniform], np.uint8)
        return _CLASSES[field.first]

    def _shown_classes(self) -> npt.NDArray[np.uint8]:
        """As SQLite answers: NaN is NULL, a REAL column's integers are REAL, what is missing is the default."""
        shown = self._raw
        if self._field.uniform == _FLOAT or (self._field.uniform < 0 and (self._field.first == _FLOAT).any()):
            nan = np.isnan(self.reals())
            if nan.any():
                shown = np.where((shown == REAL) & nan, np.uint8(NULL), shown)
        if self._column.affinity == Affinity.REAL:
            shown = np.where(shown == INTEGER, np.uint8(REAL), shown)
        if self._missing is not None:
            shown = np.where(self._missing, np.uint8(_class_of(self._default)), shown)
        return shown

    def integers(self) -> Ints:
        field = self._field
        if field.uniform in (_ZERO, _ONE):
            values = np.full(len(field.first), field.uniform - _ZERO, np.int64)
        elif field.uniform >= 0:
            values = self._buffer.words(field.at) >> _SHIFTS[field.uniform]
        else:
            values = self._buffer.words(field.at) >> _SHIFTS[field.first]
            constant = (field.first == _ZERO) | (field.first == _ONE)
            if constant.any():
                values[constant] = field.first[constant] - _ZERO
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
        if self._missing is not None and isinstance(self._default, bytes) and _class_of(self._default) == wanted:
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


def _class_of(value: Value | RawText) -> int:
    match value:
        case None:
            return NULL
        case int():
            return INTEGER
        case float():
            return REAL
        case RawText():
            return TEXT
        case _:
            return BLOB


@lru_cache(maxsize=8)
def _odd(count: int) -> pa.Array[Any]:
    return pa.array(np.arange(1, 2 * count, 2, dtype=np.int64))
