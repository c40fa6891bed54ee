"""Restore against a plain list of contents: whatever was written, cut off and grown, an old snapshot comes back to the
byte, here and at another edge, and every LSN before stays what it was. Its commit holds the pages that differ.
"""

from __future__ import annotations

import random
from contextlib import closing
from pathlib import Path

import pytest

from budwood.sync.edge import open as open_edge
from budwood.sync.volume import Volume
from budwood.volume.protocols import Durability

PAGE = 512
PAGES = 40


def content(volume: Volume, lsn: int | None = None) -> bytes:
    with closing(volume.snapshot(lsn=lsn)) as snapshot:
        pages = -(-snapshot.length // PAGE)
        return b"".join(snapshot.read(page) for page in range(1, pages + 1))[: snapshot.length]


def change(volume: Volume, dice: random.Random) -> None:
    writer = volume.writer(page_size=PAGE)
    for _ in range(dice.randrange(1, 4)):
        if dice.random() < 0.4:
            writer.truncate(dice.randrange(0, PAGES * PAGE))
        else:
            for page in dice.sample(range(1, PAGES + 1), dice.randrange(1, 6)):
                writer.write(page, dice.choice((bytes(PAGE), dice.randbytes(PAGE))))
    made = writer.commit(Durability.ORDERED)
    if made is not None:
        made.close()


@pytest.mark.parametrize("seed", range(6))
def test_an_old_snapshot_is_the_new_head(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    store = f"file://{tmp_path}/store"
    with open_edge(home=tmp_path / "a", remote=store) as one, open_edge(home=tmp_path / "b", remote=store) as two:
        volume = one.create("v", page_size=PAGE)
        past = {0: b""}
        for _ in range(12):
            change(volume, dice)
            lsn = int(volume.push())
            past[lsn] = content(volume)
        other = two.volume("v")
        for _ in range(6):
            lsn = dice.choice(sorted(past)[1:])
            told = volume.restore(lsn=lsn)
            assert told.lsn == lsn
            assert content(volume) == past[lsn]
            after = int(volume.push())
            assert content(volume, after) == content(volume, lsn) == past[lsn]
            past[after] = past[lsn]
            other.pull()
            assert content(other) == past[lsn]
            if dice.random() < 0.5:
                change(volume, dice)
                lsn = int(volume.push())
                past[lsn] = content(volume)
        for lsn in sorted(past)[1:]:
            assert content(volume, lsn) == past[lsn]


@pytest.mark.parametrize("seed", range(3))
def test_the_commit_holds_the_pages_that_differ_and_no_others(tmp_path: Path, seed: int) -> None:
    """Every write of a page is of other bytes; so those that differ are known."""
    dice = random.Random(seed)
    with open_edge(home=tmp_path / "a", remote=f"file://{tmp_path}/store") as edge:
        volume = edge.create("v", page_size=PAGE)
        written: list[set[int]] = [set(), set(range(1, PAGES + 1))]
        for pages in (written[1], *(set(dice.sample(range(1, PAGES + 1), 3)) for _ in range(5))):
            writer = volume.writer()
            for page in pages:
                writer.write(page, dice.randbytes(PAGE))
            made = writer.commit(Durability.ORDERED)
            assert made is not None
            made.close()
            if int(volume.push()) > 1:
                written.append(pages)
        told = volume.restore(lsn=3)
        assert told.pages == len(set[int]().union(*written[4:]))
        assert content(volume) == content(volume, 3)
        assert volume.restore(lsn=3, keep_as="kept").pages == told.pages
        assert volume.status()["lsn"] == "6+1"
        assert content(edge.volume("kept")) == content(volume, 3)
