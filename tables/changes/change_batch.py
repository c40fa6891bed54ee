"""Change batch: rows of both snapshots, decoded and matched, become a batch of changes.

Values are compared as the feed shows them, and exactly: null is not empty, -0.0 is not 0.0, text is its bytes. An
update is two rows, `update_preimage` and right after it `update_postimage`; two batches, where rows are too long for
one Arrow array. An update that changes nothing that is shown is left out. Where a key that SQLite takes for the same
is shown otherwise (NOCASE: 'A' became 'a'), it is a delete and an insert, since whoever reads the feed knows rows by
what is shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

CHANGE_TYPE: Final = "_change_type"
KINDS: Final = ("delete", "insert", "update_preimage", "update_postimage")
DELETE, INSERT, PREIMAGE, POSTIMAGE = range(4)
_WORDS: Final = pa.array(list(KINDS), pa.string())
_MOST_BYTES: Final = 1 << 30
"""What two columns may hold together: an Arrow array of strings ends at 2 GiB."""

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class FeedRows:
    """Some rows of one snapshot: the feed's columns, and where each row stands in the order of both snapshots."""

    columns: Sequence[pa.Array[Any]]
    order: Ints

    def __len__(self) -> int:
        return len(self.order)


def columns_of(batch: pa.RecordBatch) -> list[pa.Array[Any]]:
    return cast("list[pa.Array[Any]]", cast("Any", batch).columns)


def nulls(rows: int, kind: pa.DataType) -> pa.Array[Any]:
    return cast("pa.Array[Any]", cast("Any", pa).nulls(rows, kind))


def no_rows(schema: pa.Schema) -> FeedRows:
    return FeedRows([nulls(0, kind) for kind in schema.types], np.zeros(0, np.int64))


def change_batches(
    schema: pa.Schema, old: FeedRows, new: FeedRows, pairs: tuple[Ints, Ints], keys: Sequence[int] = ()
) -> Iterator[pa.RecordBatch]:
    """What happened: `pairs` are the places, in old and in new, of rows that are the same row; `keys` key columns.

    One batch in the rows' order; none where nothing happened.
    """
    before, after = pairs
    differ = np.zeros(len(before), np.bool_)
    moved = np.zeros(len(before), np.bool_)
    for place, (one, other) in enumerate(zip(old.columns, new.columns, strict=True)):
        unlike = _unlike(_taken(one, before), _taken(other, after))
        differ |= unlike
        if place in keys:
            moved |= unlike
    gone, come = np.ones(len(old), np.bool_), np.ones(len(new), np.bool_)
    gone[before[~moved]], come[after[~moved]] = False, False
    updated = differ & ~moved
    lost, made = np.flatnonzero(gone), np.flatnonzero(come)
    takes = (lost, before[updated]), (made, after[updated])
    kinds = [
        np.concatenate([np.full(len(part), kind) for part, kind in zip(take, pair, strict=True)])
        for take, pair in zip(takes, ((DELETE, PREIMAGE), (INSERT, POSTIMAGE)), strict=True)
    ]
    from_old, from_new = (np.concatenate(take) for take in takes)
    if not len(from_old) + len(from_new):
        return
    if sum(column.nbytes for column in (*old.columns, *new.columns)) > _MOST_BYTES:
        if len(from_old):
            yield _batch(schema, [_taken(column, from_old) for column in old.columns], kinds[0])
        if len(from_new):
            yield _batch(schema, [_taken(column, from_new) for column in new.columns], kinds[1])
        return
    both = np.concatenate(kinds)
    order = np.lexsort((both, np.concatenate((old.order[from_old], new.order[from_new]))))
    columns = [
        _taken(pa.concat_arrays([_taken(one, from_old), _taken(other, from_new)]), order)
        for one, other in zip(old.columns, new.columns, strict=True)
    ]
    yield _batch(schema, columns, both[order])


def _batch(schema: pa.Schema, columns: list[pa.Array[Any]], kinds: Ints) -> pa.RecordBatch:
    return pa.record_batch([*columns, _taken(_WORDS, kinds)], schema=schema)


def _taken(column: pa.Array[Any], places: Ints) -> pa.Array[Any]:
    return column.take(pa.array(places, pa.int64()))


def _unlike(one: pa.Array[Any], other: pa.Array[Any]) -> Bools:
    if pa.types.is_floating(one.type):
        # By their bits: 0.0 equals -0.0 otherwise. No NaN comes out of SQLite.
        one, other = one.view(pa.int64()), other.view(pa.int64())
    unlike = _mask(cast("Any", pc).not_equal(one, other).fill_null(False))
    return unlike | (_mask(one.is_null()) ^ _mask(other.is_null()))


def _mask(values: pa.BooleanArray) -> Bools:
    return np.asarray(values.to_numpy(zero_copy_only=False), np.bool_)
