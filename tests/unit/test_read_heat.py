"""Read heat: counts by block as counting page by page comes to, in bounded memory, and less the longer ago."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from budwood.server.pagestore.read_heat import BLOCK_PAGES, HALVED_MS, MOST_BLOCKS, MOST_VOLUMES, ReadHeat, summed
from budwood.volume.ids import VolumeId
from budwood.volume.pageset import PageSet, span

VID = VolumeId.new()
PAGES = st.one_of(
    st.sets(st.integers(1, 2**32 - 1), max_size=40).map(PageSet),
    st.tuples(st.integers(1, 5000), st.integers(0, 300)).map(lambda given: span(given[0], sum(given))),
)


class Clock:
    now_ms = 1_000_000

    def __call__(self) -> int:
        return self.now_ms


@given(st.lists(st.tuples(st.booleans(), PAGES), max_size=10))
def test_each_page_counts_once_for_each_time_it_is_asked_for(reads: list[tuple[bool, PageSet]]) -> None:
    nodes = [ReadHeat(Clock()), ReadHeat(Clock())]
    expected = dict[int, float]()
    for second, pages in reads:
        nodes[second].read(VID, pages)
        for page in pages:
            expected[(page - 1) // BLOCK_PAGES] = expected.get((page - 1) // BLOCK_PAGES, 0) + 1
    heat = summed(node.of(VID) for node in nodes)
    assert heat.block_pages == BLOCK_PAGES
    assert heat.blocks == expected


def test_a_volume_takes_so_many_blocks_and_all_of_them_so_many_volumes() -> None:
    heat = ReadHeat(Clock())
    for first in range(0, 40 * MOST_BLOCKS, 8):
        heat.read(VID, PageSet([BLOCK_PAGES * first + 1, BLOCK_PAGES * (first + 1)]))
    told = heat.of(VID)
    assert MOST_BLOCKS // 4 < len(told.blocks) <= MOST_BLOCKS
    assert sum(told.blocks.values()) == 2 * 40 * MOST_BLOCKS // 8
    assert max(told.blocks) == (40 * MOST_BLOCKS - 8) * BLOCK_PAGES // told.block_pages
    other = ReadHeat(Clock())
    other.read(VID, PageSet([1, told.block_pages + 1]))
    both = summed([told, other.of(VID)])
    assert both.block_pages == told.block_pages
    assert both.blocks == {**told.blocks, 0: told.blocks[0] + 1, 1: told.blocks.get(1, 0) + 1}
    for _ in range(MOST_VOLUMES):
        heat.read(VolumeId.new(), PageSet([1]))
    assert heat.of(VID).blocks == {}


def test_what_was_longer_ago_counts_for_less() -> None:
    clock = Clock()
    heat = ReadHeat(clock)
    heat.read(VID, span(1, BLOCK_PAGES))
    clock.now_ms += HALVED_MS - 1
    assert heat.of(VID).blocks == {0: BLOCK_PAGES}
    clock.now_ms += 1
    assert heat.of(VID).blocks == {0: BLOCK_PAGES / 2}
    clock.now_ms += 2 * HALVED_MS
    heat.read(VID, PageSet([1]))
    assert heat.of(VID).blocks == {0: BLOCK_PAGES / 8 + 1}
    clock.now_ms += 10_000 * HALVED_MS
    assert heat.of(VID).blocks == {}
    clock.now_ms -= 20_000 * HALVED_MS
    heat.read(VID, PageSet([1]))
    assert heat.of(VID).blocks == {0: 1}, "a clock that is set back"


@pytest.mark.parametrize("pages", [PageSet(), PageSet([2**32 - 1]), PageSet([1, 2**32 - 1])])
def test_any_pages_can_be_asked_for(pages: PageSet) -> None:
    heat = ReadHeat(Clock())
    heat.read(VID, pages)
    assert sum(heat.of(VID).blocks.values()) == len(pages)


@pytest.mark.parametrize("step", [1, 2, 40, 2**15])
def test_many_pages_are_counted_in_as_many_blocks_as_are_kept(step: int) -> None:
    pages = PageSet(range(5, 5 + 20 * MOST_BLOCKS * step, step))
    heat = ReadHeat(Clock())
    heat.read(VID, pages)
    told = heat.of(VID)
    assert MOST_BLOCKS // 4 < len(told.blocks) <= MOST_BLOCKS
    assert told.blocks == Counter((page - 1) // told.block_pages for page in pages)
