"""Splits: a table's leaves cut into runs of equal bytes, by its interior pages alone.

Rowids say nothing about where rows lie: keys are clustered, sparse, of any sign. Leaves do, since each takes one page:
runs of equally many leaves take equally many bytes. A run is contiguous in key order, so it also is a range of rowids,
by which SQLite itself can be asked for the same rows. (What overflows lies outside the leaves and can't be weighed
without reading them.)
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from dataclasses import dataclass
from typing import Final

from ..sqlite.header import Header
from ..volume.errors import BadInput
from .page_source import PageSource
from .trees import Tree, walk

SPLIT_BYTES: Final = 64 * 1024 * 1024
"""What a split takes unless told: as a Parquet row group."""

LEAST_ROWID: Final = -(1 << 63)
GREATEST_ROWID: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Split:
    """A run of leaves in key order, and the rowids that lie in it: from `first` to `last`, both included."""

    number: int
    leaves: array[int]
    first: int
    last: int
    size_bytes: int


def splits(
    source: PageSource,
    root: int,
    header: Header,
    *,
    count: int | None = None,
    split_bytes: int | None = None,
    rowids: tuple[int, int] | None = None,
) -> list[Split]:
    """`count` splits of the table at page `root`, or as many as `split_bytes` asks for; fewer where leaves are few.

    With `rowids`, the first and the last that are wanted, other leaves are left out; the leaves at the ends may hold
    more, so who reads them still looks at each row's rowid. Reads one page set a level. Raises BadInput, Corrupt.
    """
    tree = walk(source, root, header)
    if not tree.table:
        raise BadInput(
            "the table is WITHOUT ROWID: its rows lie in interior pages too, and it can't be split by leaves"
        )
    return cut(tree, source.page_size, count=count, split_bytes=split_bytes, rowids=rowids)


def cut(
    tree: Tree,
    page_size: int,
    *,
    count: int | None = None,
    split_bytes: int | None = None,
    rowids: tuple[int, int] | None = None,
) -> list[Split]:
    """As `splits`, of a tree that was walked before."""
    if (count is not None and count < 1) or (split_bytes is not None and split_bytes < 1):
        raise BadInput("the number of splits, and their bytes, must be at least 1")
    first, last = rowids or (LEAST_ROWID, GREATEST_ROWID)
    if first > last:
        return []
    begin, end = bisect_left(tree.bounds, first), bisect_left(tree.bounds, last) + 1
    leaves = tree.leaves[begin:end]
    if count is None:
        count = -(-len(leaves) * page_size // (split_bytes or SPLIT_BYTES))
    count = min(count, len(leaves))
    made: list[Split] = []
    for number in range(count):
        start, stop = number * len(leaves) // count, (number + 1) * len(leaves) // count
        low = tree.bounds[begin + start - 1] + 1 if begin + start else LEAST_ROWID
        high = tree.bounds[begin + stop - 1] if begin + stop <= len(tree.bounds) else GREATEST_ROWID
        run = leaves[start:stop]
        made.append(Split(number, run, max(low, first), min(high, last), len(run) * page_size))
    return made
