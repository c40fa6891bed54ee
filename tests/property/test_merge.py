"""Merge against three contents: each page is what the side that changed it made of it, and so is the length; it is
refused only where both sides have touched a page, or made the length another, and then nothing has changed.
"""

from __future__ import annotations

import random
from contextlib import closing
from pathlib import Path

import pytest

from budwood.sync.edge import open as open_edge
from budwood.sync.merge import Merged, merge
from budwood.sync.volume import Volume
from budwood.volume.errors import Diverged
from budwood.volume.protocols import Durability

PAGE = 512
PAGES = 24


class Side:
    """One side's content, and the pages that it has touched: written, or cut off."""

    def __init__(self, volume: Volume, content: bytes) -> None:
        self.volume = volume
        self.content = content
        self.touched: set[int] = set()

    def change(self, dice: random.Random, among: list[int]) -> None:
        writer = self.volume.writer(page_size=PAGE)
        for _ in range(dice.randrange(1, 4)):
            if dice.random() < 0.15:
                length = dice.randrange(0, PAGES * PAGE)
                if dice.random() < 0.5:
                    length -= length % PAGE
                writer.truncate(length)
                if length < len(self.content):
                    self.touched |= set(range(length // PAGE + 1, PAGES + 1))
                self.content = self.content[:length].ljust(length, b"\0")
                continue
            for page in dice.sample(among, dice.randrange(1, 4)):
                data = dice.choice((bytes(PAGE), dice.randbytes(PAGE)))
                writer.write(page, data)
                self.touched.add(page)
                end = page * PAGE
                before = self.content.ljust(end, b"\0")
                self.content = before[: end - PAGE] + data + before[end:]
        made = writer.commit(Durability.ORDERED)
        if made is not None:
            made.close()


def content(volume: Volume) -> bytes:
    with closing(volume.snapshot()) as snapshot:
        pages = -(-snapshot.length // PAGE)
        return b"".join(snapshot.read(page) for page in range(1, pages + 1))[: snapshot.length]


def pages(whole: bytes) -> list[bytes]:
    """Zeros beyond the end."""
    whole = whole.ljust(PAGES * PAGE, b"\0")
    return [whole[start : start + PAGE] for start in range(0, PAGES * PAGE, PAGE)]


def changed(base: bytes, whole: bytes) -> set[int]:
    """The pages of other bytes, from 1."""
    return {page for page, pair in enumerate(zip(pages(base), pages(whole), strict=True), 1) if pair[0] != pair[1]}


def merged(base: bytes, ours: bytes, theirs: bytes) -> bytes:
    """Three-way, by page."""

    def either(base_page: bytes, our_page: bytes, their_page: bytes) -> bytes:
        return our_page if our_page != base_page else their_page

    length = len(ours) if len(ours) != len(base) else len(theirs)
    return b"".join(map(either, pages(base), pages(ours), pages(theirs)))[:length]


@pytest.mark.parametrize("block", range(4))
def test_each_page_is_what_the_side_that_changed_it_made_of_it(tmp_path: Path, block: int) -> None:
    outcomes: list[str] = []
    for seed in range(block * 12, block * 12 + 12):
        dice = random.Random(seed)
        store, folder = f"file://{tmp_path}/store{seed}", tmp_path / f"{seed}"
        with open_edge(home=folder / "a", remote=store) as one, open_edge(home=folder / "b", remote=store) as two:
            first = Side(one.create("v", page_size=PAGE), b"")
            everywhere = list(range(1, PAGES + 1))
            for _ in range(3):
                first.change(dice, everywhere)
            first.volume.push()
            base = content(first.volume)
            assert base == first.content
            ours, theirs = Side(two.volume("v"), base), Side(first.volume, base)
            ours.volume.pull()
            even, odd = everywhere[::2], everywhere[1::2]
            for _ in range(dice.randrange(1, 3)):
                ours.change(dice, even)
                theirs.change(dice, odd if dice.random() < 0.8 else everywhere)
                theirs.volume.push()
            outcomes.append(check(base, ours, theirs))
            if outcomes[-1] == "merged":
                ours.volume.push()
                theirs.volume.pull()
                assert content(theirs.volume) == content(ours.volume)
    assert "merged" in outcomes


def check(base: bytes, ours: Side, theirs: Side) -> str:
    assert content(ours.volume) == ours.content
    assert content(theirs.volume) == theirs.content
    unpushed = ours.volume.status(count=False)["unpushed"]
    lengths = len(base) != len(ours.content) != len(theirs.content) != len(base)
    try:
        told = merge(ours.volume)
    except Diverged:
        told = None
    if told is None:
        assert ours.touched & theirs.touched or lengths
        assert content(ours.volume) == ours.content
        assert ours.volume.status(count=False)["unpushed"] == unpushed
        return "refused"
    assert not lengths
    assert not changed(base, ours.content) & changed(base, theirs.content)
    after = content(ours.volume)
    assert after == merged(base, ours.content, theirs.content)
    for side in (ours, theirs):
        for page in changed(base, side.content):
            assert pages(after)[page - 1] == pages(side.content)[page - 1], f"what was made of page {page} is lost"
    if unpushed and theirs.content != base:
        assert told != Merged(0, 0)
    return "merged"
