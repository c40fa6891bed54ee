"""Read heat: which pages of which volumes are asked for, to be looked at (server/console). In memory; it begins anew
with the process.

Pages are counted in blocks, which grow with what is asked for, so that a volume takes no more than `MOST_BLOCKS`
numbers. Each hour all counts are halved.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import Final

from ...volume.ids import VolumeId
from ...volume.lru_cache import LruCache
from ...volume.pageset import PageSet
from ...volume.store_report import Heat

MOST_VOLUMES: Final = 256
MOST_BLOCKS: Final = 4096
BLOCK_PAGES: Final = 16
HALVED_MS: Final = 3_600_000
_LEAST: Final = 1 / 16
"""What counts for less is forgotten."""


class ReadHeat:
    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._volumes = LruCache[VolumeId, _Blocks](MOST_VOLUMES)

    def read(self, vid: VolumeId, pages: PageSet) -> None:
        blocks = self._volumes.get(vid)
        if blocks is None:
            blocks = _Blocks(self._now_ms())
            self._volumes.put(vid, blocks)
        blocks.cool(self._now_ms())
        blocks.add(pages)

    def of(self, vid: VolumeId) -> Heat:
        blocks = self._volumes.get(vid)
        if blocks is None:
            return Heat(block_pages=BLOCK_PAGES)
        blocks.cool(self._now_ms())
        return Heat(block_pages=blocks.size, blocks=dict(blocks.counts))


class _Blocks:
    """Of one volume."""

    __slots__ = ("_halved_ms", "counts", "size")

    def __init__(self, now_ms: int) -> None:
        self.size = BLOCK_PAGES
        self.counts = dict[int, float]()
        self._halved_ms = now_ms

    def add(self, pages: PageSet) -> None:
        if not pages:
            return
        if len(pages) > MOST_BLOCKS:
            # Not more blocks are counted than are kept, as far as some of the pages tell.
            some = pages[:: 1 + len(pages) // (2 * MOST_BLOCKS)]
            while len({(page - 1) // self.size for page in some}) > MOST_BLOCKS:
                self._widen()
        first, last = pages.min(), pages.max()
        if (last - first) // self.size < len(pages):
            ends = [*range(first - (first - 1) % self.size, last + 1, self.size), last + 1]
            found = {(one - 1) // self.size: pages.range_cardinality(one, other) for one, other in pairwise(ends)}
        else:
            found = Counter((page - 1) // self.size for page in pages)
        counts = self.counts
        for block, count in found.items():
            if count:
                counts[block] = counts.get(block, 0.0) + count
        while len(self.counts) > MOST_BLOCKS:
            self._widen()

    def cool(self, now_ms: int) -> None:
        times = (now_ms - self._halved_ms) // HALVED_MS
        if times > 0:
            self._halved_ms += times * HALVED_MS
            cooled = {block: count / 2.0 ** min(times, 64) for block, count in self.counts.items()}
            self.counts = {block: count for block, count in cooled.items() if count >= _LEAST}

    def _widen(self) -> None:
        self.size *= 2
        self.counts = _joined(self.counts, 2)


def summed(every: Iterable[Heat]) -> Heat:
    """That of several processes."""
    found = list(every)
    size = max(heat.block_pages for heat in found)
    counts = dict[int, float]()
    for heat in found:
        for block, count in _joined(heat.blocks, size // heat.block_pages).items():
            counts[block] = counts.get(block, 0.0) + count
    return Heat(block_pages=size, blocks=counts)


def _joined(counts: Mapping[int, float], times: int) -> dict[int, float]:
    """By blocks that are so many times as large."""
    found = dict[int, float]()
    for block, count in counts.items():
        found[block // times] = found.get(block // times, 0.0) + count
    return found
