"""Page engine: table leaves, many at once, become Arrow record batches; no row is ever a Python object.

A batch is two megabytes of pages (512 of 4 KiB): its arrays stay in the processor's cache, and they are long enough for
what each step costs by itself not to count. How records become columns is told in record_columns.py.

With a predicate its columns are decoded first, and all others only for the rows that it keeps. Where these are few,
their payloads are put aside until there are enough for a batch.

Chains are read only where a wanted value lies in one. Rows whose payloads overflow are taken in portions of
PORTION_BYTES, so that memory stays bounded; a single row may be longer.

An INTEGER PRIMARY KEY is the rowid, whatever the record says.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from ..sqlite.header import DATABASE, Header
from ..volume.errors import BadInput
from ..volume.pageset import PageSet
from .conversion import convert, numbers
from .leaf_rows import Bools, Rows, joined, leaf_rows, varints
from .page_source import PageSource, read_pages
from .record_columns import Rowids, Stored, walk_records
from .scan_plan import Engine, Plan, Predicate

BATCH_BYTES: Final = 2 * 1024 * 1024
FETCH_BYTES: Final = 8 * 1024 * 1024
"""Leaves are asked of the source in runs of so many bytes."""
PORTION_BYTES: Final = 64 * 1024 * 1024

_FEW_OF: Final = 8
"""Kept rows are few if they are less than one in so many; what a batch costs is then more than what its rows do."""
_FEW_ROWS: Final = 4096


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
        few = _Few()
        for start in range(0, len(leaves), fetch):
            numbers_ = leaves[start : start + fetch]
            pages = read_pages(self._source, PageSet(numbers_))
            for begin in range(0, len(numbers_), batch):
                some = numbers_[begin : begin + batch]
                rows = leaf_rows(some, [pages[number] for number in some], self._header, self._key)
                if rowids:
                    rows = rows.select((rows.rowid >= rowids[0]) & (rows.rowid <= rowids[1]))
                yield from self._answer(rows, few)
        yield from self._flush(few)

    def rows(self, rows: Rows) -> Generator[pa.RecordBatch]:
        """The same of rows that were found in leaves of this snapshot."""
        few = _Few()
        yield from self._answer(rows, few)
        yield from self._flush(few)

    def _answer(self, rows: Rows, few: _Few) -> Generator[pa.RecordBatch]:
        """The rows that are kept; where they are few, they wait for others in `few`."""
        for portion in _portions(rows):
            kept = self._kept(portion, self._predicate) if self._predicate else portion
            if len(kept) * _FEW_OF <= len(portion) and len(kept):
                few.add(kept)
                if few.full:
                    yield from self._flush(few)
            elif len(kept):
                yield from self._flush(few)
                yield self._batch(kept, self._plan)

    def _flush(self, few: _Few) -> Generator[pa.RecordBatch]:
        for portion in _portions(few.take()):
            yield self._batch(portion, self._plan)

    def _kept(self, rows: Rows, predicate: Predicate) -> Rows:
        answer = predicate.keep(self._batch(rows, predicate.plan)).fill_null(False)
        mask: Bools = np.asarray(answer.to_numpy(zero_copy_only=False), np.bool_)
        return rows if mask.all() else rows.select(np.flatnonzero(mask))

    def _batch(self, rows: Rows, plan: Plan) -> pa.RecordBatch:
        wanted = {reading.column.stored for reading in plan.readings if not reading.column.rowid}
        rows = self._with_chains(rows, wanted)
        rowid = rows.rowid
        # Without a column of theirs, records are not looked at: their headers may lie in chains that weren't read.
        stored = walk_records(rows, wanted, self._key) if wanted else {}
        arrays: list[pa.Array[Any]] = []
        for reading in plan.readings:
            column = reading.column
            values = Rowids(rowid) if column.rowid else Stored(rows.buffer, stored[column.stored], column)
            arrays.append(convert(plan, reading, values, lambda row: f"rowid {rowid[row]}"))
        if plan.rowid is not None:
            arrays.insert(0, numbers(pa.int64(), rowid, None))
        return plan.batch(arrays, len(rows))

    def _with_chains(self, rows: Rows, wanted: set[int]) -> Rows:
        """The rows with all wanted values in the buffer."""
        if not wanted or rows.whole or (rows.local == rows.size).all():
            return rows
        over = np.flatnonzero(rows.local < rows.size)
        some = rows.select(over)
        head, after = varints(some.buffer, some.at)
        cut = (after > some.at + some.local) | (head < 0) | (head > some.local)
        inside = np.flatnonzero(~cut)
        ends = some.at[inside] + some.local[inside]
        beyond = np.zeros(len(inside), np.bool_)
        for field in walk_records(some.select(inside), wanted, self._key, check_ends=False).values():
            beyond |= field.at + field.size > ends
        cut[inside] = beyond
        needed = over[cut]
        return rows.complete(needed, self._source, self._header) if len(needed) else rows


class _Few:
    """Rows that a predicate has kept, a few of each batch, until they are worth a batch of their own."""

    def __init__(self) -> None:
        self._parts: list[Rows] = []
        self._rows = 0
        self._size = 0

    @property
    def full(self) -> bool:
        return self._rows >= _FEW_ROWS or self._size >= BATCH_BYTES

    def add(self, rows: Rows) -> None:
        part = rows.compact()
        self._parts.append(part)
        self._rows += len(part)
        self._size += part.buffer.size

    def take(self) -> Rows | None:
        parts, self._parts, self._rows, self._size = self._parts, [], 0, 0
        return joined(parts) if parts else None


def _portions(rows: Rows | None) -> Iterator[Rows]:
    """The rows, cut where their overflowing payloads fill a portion."""
    if rows is None or not len(rows):
        return
    if rows.whole:
        yield rows
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
