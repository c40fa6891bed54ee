"""Checksum: one number for a table's rows, whatever their order and whoever read them.

A row's hash is 64 bits, and the checksum is the sum of all rows' hashes modulo 2^64. So parts add up, in any order and
any batches; a row that was there twice counts twice; and a merge needs no second look at what it left alone: the sum
loses the rows as they were and gains the rows as they are.

    row      fmix(sum over its columns of fmix(value's hash + column's seed)): a value in another column is another row
    seed     xxh3 of the column's name, so that a reader may give the columns in another order
    value    of integers, dates (days), timestamps (microseconds since 1970, UTC), booleans (0, 1): the number
             of doubles: the bits, where -0.0 is 0.0, which equals it, and every NaN is the same NaN
             of decimals: the unscaled number, as two halves
             of text and bytes: their bytes, and how many: "" is neither NULL nor a zero byte
             NULL is a number of its own, and so no value's but by chance

A type's width and whether its offsets are 32 or 64 bits don't count: int32 7 equals int64 7, a large_string equals a
string. fmix is MurmurHash3's 64-bit finalizer, under which every bit of a number moves half the others. It tells
mistakes, not forgeries: two tables that differ have equal checksums with a chance of about 2^-64, unless somebody made
them so.

All of it runs on whole columns. Text of up to SHORT bytes is hashed eight bytes at a time for all rows together; what
is longer goes through xxh3, a value at a time. Which way is taken depends on the value's length alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from ...volume.errors import Unsupported

MODULUS: Final = 1 << 64
SHORT: Final = 128

_WORD: Final = 8
_NULL: Final = np.uint64(0x6E756C6C_9E3779B9)
_NAN: Final = np.uint64(0x7FF80000_00000000)
_BYTES: Final = np.uint64(0x27D4EB2F_165667C5)
_ROUND: Final = np.uint64(0x9E3779B1_85EBCA87)
_FIRST: Final = np.uint64(0xFF51AFD7_ED558CCD)
_SECOND: Final = np.uint64(0xC4CEB9FE_1A85EC53)
_SHIFT: Final = np.uint64(33)
_MASKS: Final = np.array([(1 << (8 * size)) - 1 for size in range(_WORD + 1)], np.uint64)

Hashes = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Sum:
    """Rows counted, and their checksum. Sums add up and can be taken from each other."""

    rows: int = 0
    checksum: int = 0

    def __add__(self, other: Sum) -> Sum:
        return Sum(self.rows + other.rows, (self.checksum + other.checksum) % MODULUS)

    def __str__(self) -> str:
        return f"{self.rows:,} rows (checksum {self.checksum:016x})"

    def __sub__(self, other: Sum) -> Sum:
        return Sum(self.rows - other.rows, (self.checksum - other.checksum) % MODULUS)


NOTHING: Final = Sum()


def total(batches: Iterable[pa.RecordBatch]) -> Sum:
    found = NOTHING
    for batch in batches:
        found += sum_of(batch)
    return found


def sum_of(batch: pa.RecordBatch) -> Sum:
    return Sum(batch.num_rows, int(row_hashes(batch).sum(dtype=np.uint64)))


def row_hashes(batch: pa.RecordBatch) -> Hashes:
    """A hash for each row. Raises Unsupported for a column of a type that no export has."""
    rows = np.zeros(batch.num_rows, np.uint64)
    for number, name in enumerate(batch.schema.names):
        seed = np.uint64(xxhash.xxh3_64_intdigest(name.encode()))
        column: pa.Array[Any] = batch.column(number)  # pyright: ignore[reportUnknownVariableType]
        rows += _fmix(_values(name, column) + seed)
    return _fmix(rows)


def _fmix(numbers: Hashes) -> Hashes:
    """In place; the numbers are nobody else's."""
    numbers ^= numbers >> _SHIFT
    numbers *= _FIRST
    numbers ^= numbers >> _SHIFT
    numbers *= _SECOND
    numbers ^= numbers >> _SHIFT
    return numbers


def _values(name: str, column: pa.Array[Any]) -> Hashes:
    kind = column.type
    if isinstance(column, pa.DictionaryArray):
        return _values(name, cast("pa.Array[Any]", column.dictionary_decode()))
    if pa.types.is_null(kind):
        return np.full(len(column), _NULL)
    if pa.types.is_integer(kind):
        hashes = _integers(column)
    elif pa.types.is_floating(kind):
        hashes = _doubles(column)
    elif pa.types.is_boolean(kind):
        hashes = _integers(column.cast(pa.uint8()))
    elif pa.types.is_date(kind):
        hashes = _integers(column.cast(pa.date32()).cast(pa.int32()))
    elif pa.types.is_timestamp(kind):
        hashes = _integers(column.cast(pa.timestamp("us", kind.tz)).cast(pa.int64()))
    elif pa.types.is_decimal(kind):
        hashes = _decimals(column)
    elif _is_bytes(kind):
        hashes = _bytes(column.cast(pa.large_binary()))
    else:
        raise Unsupported(f"column {name} is {kind}, of which there is no checksum")
    if column.null_count:
        hashes[column.is_null().to_numpy(zero_copy_only=False)] = _NULL
    return hashes


def _is_bytes(kind: pa.DataType) -> bool:
    types = pa.types
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return True
    return (
        types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_binary_view(kind)
        or types.is_fixed_size_binary(kind)
    )


def _integers(column: pa.Array[Any]) -> Hashes:
    signed = column if pa.types.is_uint64(column.type) else column.cast(pa.int64())
    return _fmix(_buffer(signed, 1, np.dtype(np.uint64)).copy())


def _doubles(column: pa.Array[Any]) -> Hashes:
    values = _buffer(column.cast(pa.float64()), 1, np.dtype(np.float64))
    # Adding 0.0 turns -0.0 into 0.0 and leaves all else. (Where there is null, what lies there may be no number.)
    with np.errstate(invalid="ignore"):
        hashes = (values + 0.0).view(np.uint64)
    hashes[np.isnan(values)] = _NAN
    # What the integer with the same bits has is to be another value's.
    return _fmix(hashes ^ _ROUND)


def _decimals(column: pa.Array[Any]) -> Hashes:
    kind = cast("pa.Decimal128Type[Any, Any]", column.type)
    # A reader may give the narrowest type that holds the precision, or a wider one.
    wide = column.cast(pa.decimal128(38, kind.scale))
    halves = _buffer(wide, 2, np.dtype(np.uint64)).reshape(-1, 2)
    return _fmix(halves[:, 0] + _fmix(halves[:, 1] ^ _ROUND))


def _buffer(column: pa.Array[Any], per_value: int, kind: np.dtype[Any]) -> npt.NDArray[Any]:
    """The values as they lie in memory; where there is null, anything."""
    data = column.buffers()[1]
    if data is None:
        return np.zeros(len(column) * per_value, kind)
    values = np.frombuffer(memoryview(data), kind)
    return values[column.offset * per_value : (column.offset + len(column)) * per_value]


def _bytes(column: pa.Array[Any]) -> Hashes:
    """Of a large_binary array."""
    _, offsets_buffer, data_buffer = column.buffers()
    if len(column) == 0 or offsets_buffer is None:
        return np.zeros(len(column), np.uint64)
    offsets = np.frombuffer(memoryview(offsets_buffer), np.int64)[column.offset : column.offset + len(column) + 1]
    first, last = int(offsets[0]), int(offsets[-1])
    # A word is read from wherever a value ends: the last one reaches beyond the data.
    data = np.zeros(last - first + _WORD, np.uint8)
    if data_buffer is not None:
        data[:-_WORD] = np.frombuffer(memoryview(data_buffer), np.uint8)[first:last]
    words: Hashes = np.ndarray((len(data) - _WORD + 1,), np.dtype("<u8"), data, strides=(1,))
    starts, sizes = offsets[:-1] - first, np.diff(offsets)
    hashes = (sizes.astype(np.uint64) + _NULL) * _BYTES
    _short(hashes, words, starts, sizes)
    bytes_ = data.data
    for row in np.flatnonzero(sizes > SHORT).tolist():
        start = int(starts[row])
        hashes[row] = xxhash.xxh3_64_intdigest(bytes_[start : start + int(sizes[row])])
    return _fmix(hashes)


def _short(hashes: Hashes, words: Hashes, starts: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]) -> None:
    """Round by round the next eight bytes of all values that have any left; only those are looked at."""
    rows = np.flatnonzero((sizes > 0) & (sizes <= SHORT))
    at, left = starts[rows], sizes[rows]
    state = hashes[rows]
    while len(rows):
        state ^= words[at] & _MASKS[np.minimum(left, _WORD)]
        state *= _ROUND
        state ^= state >> _SHIFT
        left = left - _WORD
        done = left <= 0
        if done.any():
            hashes[rows[done]] = state[done]
            more = ~done
            rows, at, left, state = rows[more], at[more], left[more], state[more]
        at = at + _WORD
