"""Leaf diff: which rows of some leaves differ between two snapshots, by their bytes, before anything is decoded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from ...sqlite.header import DATABASE, Header
from ...volume.errors import Corrupt
from ..leaf_rows import Rows, leaf_rows
from ..page_source import PageSource, read_pages
from .leaf_ranges import Leaves, Range, cut_ranges

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

PORTION_BYTES: Final = 2 * 1024 * 1024
_FETCHED: Final = 8
"""Portions whose leaves are fetched in one request."""


@dataclass(frozen=True, slots=True)
class Joined:
    """The rows of a range of rowids in both snapshots. The i-th pair is `old[pairs[0][i]]` and `new[pairs[1][i]]`.

    `same[i]`: the pair's cells are equal, byte for byte, to where their chains begin.
    """

    old: Rows
    new: Rows
    pairs: tuple[Ints, Ints]
    same: Bools

    def unlike(self) -> tuple[Bools, Bools]:
        """Which rows of old, and of new, have no equal cell on the other side."""
        gone, come = np.ones(len(self.old), np.bool_), np.ones(len(self.new), np.bool_)
        gone[self.pairs[0][self.same]] = False
        come[self.pairs[1][self.same]] = False
        return gone, come


def portions_of_leaves(
    sides: Sequence[tuple[PageSource, Leaves]], page_size: int, rowids: Range
) -> Iterator[tuple[Range, list[tuple[Leaves, dict[int, bytes]]]]]:
    """The leaves of all sides in portions of PORTION_BYTES or so: a range of rowids, each side's leaves and pages."""
    total = sum(len(leaves) for _, leaves in sides)
    if not total:
        return
    ranges = cut_ranges([leaves for _, leaves in sides], -(-total * page_size // PORTION_BYTES), rowids)
    for start in range(0, len(ranges), _FETCHED):
        some = ranges[start : start + _FETCHED]
        whole = (some[0][0], some[-1][1])
        pages = [read_pages(source, leaves.between(whole).pages()) for source, leaves in sides]
        for part in some:
            yield part, [(leaves.between(part), got) for (_, leaves), got in zip(sides, pages, strict=True)]


def rows_of(leaves: Leaves, pages: dict[int, bytes], header: Header, rowids: Range, key: str = DATABASE) -> Rows:
    """The rows of a range of rowids. Raises Corrupt unless their rowids ascend."""
    numbers: list[int] = leaves.numbers.tolist()
    rows = leaf_rows(numbers, [pages[number] for number in numbers], header, key)
    falls = np.flatnonzero(rows.rowid[1:] <= rows.rowid[:-1])
    if len(falls):
        raise Corrupt(key, f"page {rows.page[falls[0] + 1]}: its rowids don't ascend")
    if len(rows) and (rows.rowid[0] < rowids[0] or rows.rowid[-1] > rowids[1]):
        rows = rows.select((rows.rowid >= rowids[0]) & (rows.rowid <= rowids[1]))
    return rows


def join(old: Rows, new: Rows, *, cells_tell: bool = True) -> Joined:
    """`cells_tell`: whether cells can be compared at all, those of one page size and of the same columns."""
    _, before, after = np.intersect1d(old.rowid, new.rowid, assume_unique=True, return_indices=True)
    if not cells_tell:
        return Joined(old, new, (before, after), np.zeros(len(before), np.bool_))
    return Joined(old, new, (before, after), _same_cells(old.select(before), new.select(after)))


def _same_cells(old: Rows, new: Rows) -> Bools:
    """Row by row. What lies in the page follows from the payload's size, and so do the four bytes that name a chain."""
    same: Bools = old.size == new.size
    which = np.flatnonzero(same)
    if not len(which):
        return same
    local = old.local[which] + 4 * (old.local[which] < old.size[which])
    starts = np.cumsum(local) - local
    places = np.arange(int(local.sum()), dtype=np.int64) - np.repeat(starts, local)
    one = old.buffer.data[places + np.repeat(old.at[which], local)]
    other = new.buffer.data[places + np.repeat(new.at[which], local)]
    # A payload has at least the byte that says how long its header is; one without any is damage, and kept for decode.
    solid = np.flatnonzero(local > 0)
    same[which[local == 0]] = False
    if len(solid):
        same[which[solid]] = ~np.logical_or.reduceat(one != other, starts[solid])
    return same
