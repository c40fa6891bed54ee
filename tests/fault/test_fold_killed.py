"""A process killed at every fault point of a fold, and others that go on: the volume reads as it did at every LSN, and
the next fold is whole, whatever the dead one has left.
"""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from budwood.server.node import Node
from budwood.server.store.open_store import open_store
from budwood.testing.commits import commit_of, pages_at
from budwood.volume.calls import ADVANCE, CREATE, PIN, CreateRequest, PinRequest, SinceRequest
from budwood.volume.ids import ClientId, PinId, VolumeId

from ..reread import reread
from ..second_reader.store import directory
from .crash_harness import cut, finish

PAGE = 512
ANN = ClientId.new()

POINTS = (
    "fold: number taken, nothing written",
    "fold: segments written, checkpoint not",
    "fold: deadlist written, not granted",
    "fold: granted, caller not told",
    "collect: announced, pins not listed",
)
CUTS = (POINTS,)

FOLD = """
import sys, anyio
from budwood.server.node import Node
from budwood.server.store.open_store import open_store
from budwood.volume.ids import VolumeId
from budwood.volume.records import settled_by

async def fold(url, vid):
    async with Node.open(await open_store(url)) as node:
        done = await node.folder.fold(VolumeId.parse(vid), relocate=True)
        print(done.fold.lsn if done else 0, settled_by(done.fold) if done else 0)

anyio.run(fold, *sys.argv[1:])
"""


@pytest.mark.parametrize("again", [False, True], ids=["the first fold", "a later fold"])
@pytest.mark.parametrize("point", POINTS)
def test_a_fold_that_was_cut_off_changes_nothing_that_anyone_reads(tmp_path: Path, point: str, again: bool) -> None:
    url, vid, seen = (tmp_path / "store").as_uri(), VolumeId.new(), dict[int, dict[int, bytes]]()
    anyio.run(make, url, vid, seen, 6)
    if again:
        assert finish(FOLD, url, str(vid)) == ["5 6"]
        anyio.run(make, url, vid, seen, 4)
    assert cut(point, FOLD, url, str(vid)) == []
    anyio.run(check, url, vid, seen)
    granted = point == "fold: granted, caller not told"
    expected = "0 0" if granted else f"{max(seen) - 1} {max(seen)}"
    assert finish(FOLD, url, str(vid)) == [expected]
    anyio.run(check, url, vid, seen)
    anyio.run(reread, directory(tmp_path / "store"))


async def make(url: str, vid: VolumeId, seen: dict[int, dict[int, bytes]], number: int) -> None:
    """So many commits more; the one before the newest is the oldest that can be read, but for one that is pinned."""
    async with Node.open(await open_store(url)) as node:
        if not seen:
            await node.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
        for head in range(max(seen, default=0), max(seen, default=0) + number):
            pages = {page: b"%8d" % (10 * head + page) * (PAGE // 8) for page in (1, 2 + head % 3)}
            request, segment = commit_of(vid, head, pages, client=ANN, page_size=PAGE, length=5 * PAGE)
            assert (await node.commit(request, segment)).lsn == head + 1
            seen[head + 1] = seen.get(head, {}) | pages
        pinned = max(seen) - 3
        await node.ask(PIN, PinRequest(vid.raw, lsn=pinned, pin=PinId.new().raw, seconds=0.0))
        await node.ask(ADVANCE, SinceRequest(vid.raw, since=max(seen) - 1))


async def check(url: str, vid: VolumeId, seen: dict[int, dict[int, bytes]]) -> None:
    async with Node.open(await open_store(url)) as node:
        for lsn in (max(seen) - 3, max(seen) - 1, max(seen)):
            assert await pages_at(node, vid, lsn) == seen[lsn]
