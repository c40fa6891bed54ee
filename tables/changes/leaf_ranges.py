"""Leaf ranges: leaves of a table in key order, each with the rowids that it may hold, and ranges of rowids cut by them.

Two snapshots' leaves don't end at the same rowids, so both are cut by ranges of rowids that suit them together; a leaf
that reaches over a cut belongs to both ranges, and who reads it takes the rows of its own range.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...volume.pageset import PageSet
from ..splits import GREATEST_ROWID, LEAST_ROWID
from ..trees import Tree

Ints = npt.NDArray[np.int64]
Range = tuple[int, int]
"""The first and the last rowid."""


@dataclass(frozen=True, slots=True, eq=False)
class Leaves:
    """`numbers[i]` is a page that holds no rowid outside `first[i]` … `last[i]`."""

    numbers: Ints
    first: Ints
    last: Ints

    def __len__(self) -> int:
        return len(self.numbers)

    @staticmethod
    def of(tree: Tree) -> Leaves:
        bounds = np.array(tree.bounds, np.int64)
        first = np.concatenate(([LEAST_ROWID], bounds + 1))
        return Leaves(np.array(tree.leaves, np.int64), first, np.concatenate((bounds, [GREATEST_ROWID])))

    def within(self, pages: PageSet) -> Leaves:
        """Those that are among `pages`."""
        mask = np.isin(self.numbers, np.array(pages & self.pages(), np.int64), kind="sort")
        return Leaves(self.numbers[mask], self.first[mask], self.last[mask])

    def between(self, rowids: Range) -> Leaves:
        """Those that may hold a rowid of the range."""
        begin = int(np.searchsorted(self.last, rowids[0], "left"))
        end = int(np.searchsorted(self.first, rowids[1], "right"))
        return Leaves(self.numbers[begin:end], self.first[begin:end], self.last[begin:end])

    def pages(self) -> PageSet:
        return PageSet(self.numbers.tolist())


NO_LEAVES = Leaves(*(np.zeros(0, np.int64) for _ in range(3)))


def cut_ranges(sides: Sequence[Leaves], count: int, rowids: Range = (LEAST_ROWID, GREATEST_ROWID)) -> list[Range]:
    """Up to `count` ranges that together are `rowids`, each with about as many of all sides' leaves as any other."""
    ends = np.sort(np.concatenate([leaves.last for leaves in sides]))
    count = max(1, min(count, len(ends)))
    wanted = [number * len(ends) // count - 1 for number in range(1, count)]
    cuts: list[int] = np.unique(ends[wanted]).tolist() if wanted else []
    cuts = [cut for cut in cuts if rowids[0] <= cut < rowids[1]]
    return list(zip([rowids[0], *(cut + 1 for cut in cuts)], [*cuts, rowids[1]], strict=True))


def joined_ranges(sides: Sequence[Leaves]) -> list[Range]:
    """The rowids that these leaves may hold, as few ranges that don't touch."""
    first = np.concatenate([leaves.first for leaves in sides])
    last = np.concatenate([leaves.last for leaves in sides])
    order = np.argsort(first, kind="stable")
    joined: list[Range] = []
    for low, high in zip(first[order].tolist(), last[order].tolist(), strict=True):
        if joined and low <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(joined[-1][1], high))
        else:
            joined.append((low, high))
    return joined
