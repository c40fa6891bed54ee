"""What a miss in a B-tree asks for, wherever its pages lie: against trees made at random (S2.25)."""

from __future__ import annotations

import random
import struct

from hypothesis import given, settings
from hypothesis import strategies as st

from budwood.sqlite.key_order import FIRST, MOST_BYTES, SEEN, KeyOrder
from budwood.volume.frame import pages_per_frame
from budwood.volume.pageset import PageSet

PAGE_SIZE = 4096
PLACE_PAGES = pages_per_frame(PAGE_SIZE)
MOST = MOST_BYTES // (PLACE_PAGES * PAGE_SIZE)


def interior(below: list[int]) -> bytes:
    """An interior page of a table's B-tree, of these children."""
    page = bytearray(PAGE_SIZE)
    *left, right = below
    struct.pack_into(">BHHHBI", page, 0, 5, 0, len(left), 0, 0, right)
    at = PAGE_SIZE
    for number, child in enumerate(left):
        at -= 5
        struct.pack_into(">IB", page, at, child, 1)
        struct.pack_into(">H", page, 12 + 2 * number, at)
    return bytes(page)


class Reader:
    """Goes through a tree as SQLite does: each page above is read once, when its first child is wanted."""

    def __init__(self, leaves: list[int], fan_out: int, *, frames: bool) -> None:
        self.interior: dict[int, bytes] = {}
        self.here = set[int]()
        self.asked: list[PageSet] = []
        self.leaves = leaves
        self.frames = frames
        self.fan_out = fan_out
        self.seen: list[int] = []
        self.order = KeyOrder(PAGE_SIZE)
        self.trees: list[list[list[int]]] = []
        self.add(leaves)

    def add(self, leaves: list[int]) -> None:
        """Another tree."""
        number, levels = 1_000_000 + len(self.interior), [leaves]
        while len(levels[-1]) > 1:
            above: list[int] = []
            for start in range(0, len(levels[-1]), self.fan_out):
                self.interior[number] = interior(levels[-1][start : start + self.fan_out])
                above.append(number)
                number += 1
            levels.append(above)
        self.trees.append(levels)

    def held(self, page: int) -> bytes | None:
        return self.interior.get(page) or (bytes([13]) + bytes(PAGE_SIZE - 1) if page in self.here else None)

    def missing(self, pages: PageSet) -> PageSet:
        return PageSet([page for page in pages if page not in self.interior and page not in self.here])

    def read(self, page: int) -> None:
        if page not in self.interior and page not in self.here:
            asked = self.order.ask(self, page, self.seen)
            self.asked.append(asked)
            self.here |= set(asked)
            if self.frames:
                places = {each // PLACE_PAGES for each in asked}
                self.here |= {each for each in self.leaves if each // PLACE_PAGES in places}
        if page in self.interior:
            self.seen = [page, *self.seen[: SEEN - 1]]

    def go_through(self, first: int, last: int, *, backward: bool = False) -> None:
        way = range(last - 1, first - 1, -1) if backward else range(first, last)
        for at in way:
            for levels in self.trees:
                for depth in range(len(levels) - 1, 0, -1):
                    step: int = self.fan_out**depth
                    if at == way[0] or (at + backward) % step == 0:
                        self.read(levels[depth][at // step])
                self.read(levels[0][at])


def scattered(count: int, seed: int, spread: int) -> list[int]:
    return random.Random(seed).sample(range(2, 2 + count * spread), count)


@settings(deadline=None, max_examples=60)
@given(
    st.integers(1, 1500), st.integers(2, 300), st.integers(), st.booleans(), st.sampled_from([1, 3, 100]), st.booleans()
)
def test_a_scan_asks_for_what_comes_next_and_for_nothing_else(
    count: int, fan_out: int, seed: int, frames: bool, spread: int, backward: bool
) -> None:
    leaves = scattered(count, seed, spread)
    reader = Reader(leaves, fan_out, frames=frames)
    way = leaves[::-1] if backward else leaves
    place = {page: at for at, page in enumerate(way)}
    reader.go_through(0, count, backward=backward)
    come = set[int]()
    for asked in reader.asked:
        assert not come & set(asked), "asked for twice"
        come |= set(asked)
        assert len({page // PLACE_PAGES for page in asked}) <= MOST
        before = [page for page in way[: min(place[page] for page in asked)] if page not in reader.here]
        assert not before
    if not frames:
        assert come == set(leaves)


@given(st.integers(1, 1500), st.integers(20, 300), st.integers(), st.booleans())
@settings(deadline=None, max_examples=40)
def test_a_scan_of_pages_that_lie_far_apart_takes_few_requests(
    count: int, fan_out: int, seed: int, backward: bool
) -> None:
    reader = Reader(scattered(count, seed, 100), fan_out, frames=False)
    reader.go_through(0, count, backward=backward)
    growing = 2 + (MOST // FIRST).bit_length()
    assert len(reader.asked) <= growing + count * 1.2 / MOST


@given(st.lists(st.integers(0, 999), min_size=1, max_size=40, unique=True), st.integers())
@settings(deadline=None, max_examples=60)
def test_look_ups_at_random_ask_for_their_page_alone(rows: list[int], seed: int) -> None:
    reader = Reader(scattered(1000, seed, 100), 50, frames=False)
    for at, row in enumerate(rows):
        reader.go_through(row, row + 1)
        # Beside one of those before it, it may go on from there: several are gone through at once.
        if reader.asked[-1].min() == reader.leaves[row] and not {row - 1, row + 1} & set(rows[:at]):
            assert len(reader.asked[-1]) == 1


class Held(dict[int, bytes]):
    """Nothing else is here."""

    def held(self, page: int) -> bytes | None:
        return self.get(page)

    def missing(self, pages: PageSet) -> PageSet:
        return pages


@given(st.integers(200, 1500), st.integers(20, 300), st.integers(), st.booleans())
@settings(deadline=None, max_examples=30)
def test_a_join_goes_through_several_trees_at_once(count: int, fan_out: int, seed: int, backward: bool) -> None:
    pages = scattered(3 * count, seed, 100)
    reader = Reader(pages[:count], fan_out, frames=False)
    reader.add(pages[count : 2 * count])
    reader.add(pages[2 * count :])
    reader.go_through(0, count, backward=backward)
    growing = 3 + (MOST // FIRST).bit_length()
    assert len(reader.asked) <= 3 * (growing + count * 1.2 / MOST)
    come = [page for asked in reader.asked for page in asked]
    assert len(come) == len(set(come)) == len(pages)


@given(st.integers(200, 1000), st.integers(40, 300), st.integers(), st.data())
@settings(deadline=None, max_examples=40)
def test_whoever_turns_round_is_followed(count: int, fan_out: int, seed: int, data: st.DataObject) -> None:
    reader = Reader(scattered(count, seed, 100), fan_out, frames=False)
    middle = data.draw(st.integers(60, count - 60))
    reader.go_through(middle, middle + 50)
    reader.go_through(middle - 50, middle + 50, backward=True)
    assert len(reader.asked) <= 2 * (3 + (50 // FIRST).bit_length())
    come = [page for asked in reader.asked for page in asked]
    assert len(come) == len(set(come))


def test_what_only_looks_like_a_page_above_is_no_trouble() -> None:
    reader = Held({7: bytes([5]) + b"\xff" * 4095, 8: b"\x02", 9: interior([20, 30])})
    order = KeyOrder(PAGE_SIZE)
    assert order.ask(reader, 20, [7, 8, 0, 10_000]) == PageSet([20])
    assert order.ask(reader, 20, [7, 9]) == PageSet([20])
    assert order.ask(reader, 30, [7]) == PageSet([30])
