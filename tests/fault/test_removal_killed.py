"""A process killed while it removes a volume: nobody can commit to it from then on, and the next turn of upkeep ends
what was begun, with no word from whoever asked for it.
"""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from budwood.server.node import Node
from budwood.server.store.open_store import open_store
from budwood.server.upkeep.upkeep import Extent
from budwood.testing.commits import commit_of
from budwood.volume.calls import (
    CREATE,
    PIN,
    SNAPSHOT,
    CreateRequest,
    PinRequest,
    SnapshotRequest,
)
from budwood.volume.errors import NotFound
from budwood.volume.ids import ClientId, PinId, VolumeId

from ..reread import reread
from ..second_reader.store import directory
from .crash_harness import cut, finish

START = 1_700_000_000_000
DAY_MS = 86_400_000
PAGE = 512

POINTS = ("remove: finished, nothing forgotten",)
OVER_POINTS = ("gc: log over, all of it there", "gc: some of it deleted#9")
CUTS = (POINTS, OVER_POINTS)

REMOVE = """
import sys, anyio
from budwood.server.node import Node
from budwood.server.store.open_store import open_store
from budwood.volume.calls import REMOVE, VolumeRequest
from budwood.volume.ids import VolumeId

async def remove(url, vid, now):
    async with Node.open(await open_store(url), name="main", now_ms=lambda: int(now)) as node:
        await node.ask(REMOVE, VolumeRequest(VolumeId.parse(vid).raw))
        print("removed")

anyio.run(remove, *sys.argv[1:])
"""


TEND = """
import sys, anyio
from budwood.server.node import Node
from budwood.server.store.open_store import open_store
from budwood.server.upkeep.upkeep import Extent

async def tend(url, log, now):
    now_ms = int(now)
    async with Node.open(await open_store(url), now_ms=lambda: now_ms) as node:
        for _ in range(6):
            assert not (await node.upkeep.tend(log, Extent.ALL)).failures
            now_ms += 86_400_000
        print("tended")

anyio.run(tend, *sys.argv[1:])
"""


@pytest.mark.parametrize("point", OVER_POINTS)
def test_a_log_of_its_own_goes_with_it_whatever_that_was_cut_off_in(tmp_path: Path, point: str) -> None:
    url, vid = (tmp_path / "store").as_uri(), VolumeId.new()
    anyio.run(_make, url, vid, None)
    assert finish(REMOVE, url, str(vid), str(START)) == ["removed"]
    assert cut(point, TEND, url, str(vid), str(START)) == []
    assert finish(TEND, url, str(vid), str(START + 10 * DAY_MS)) == ["tended"]
    anyio.run(_is_gone, tmp_path, vid)
    left = [path.name for path in (tmp_path / "store" / "logs" / str(vid)).rglob("*") if path.is_file()]
    assert left == [f"{0:016x}"], "the boundary behind every slot"


@pytest.mark.parametrize("point", POINTS)
def test_what_was_cut_off_is_ended_by_upkeep(tmp_path: Path, point: str) -> None:
    url, vid = (tmp_path / "store").as_uri(), VolumeId.new()
    anyio.run(_make, url, vid)
    assert cut(point, REMOVE, url, str(vid), str(START)) == []
    anyio.run(_tend, url, vid)
    anyio.run(_is_gone, tmp_path, vid)


def test_it_can_be_asked_for_again(tmp_path: Path) -> None:
    url, vid = (tmp_path / "store").as_uri(), VolumeId.new()
    anyio.run(_make, url, vid)
    assert cut(POINTS[0], REMOVE, url, str(vid), str(START)) == []
    assert finish(REMOVE, url, str(vid), str(START)) == ["removed"]
    assert finish(REMOVE, url, str(vid), str(START)) == ["removed"]
    anyio.run(_tend, url, vid)
    anyio.run(_is_gone, tmp_path, vid)


async def _make(url: str, vid: VolumeId, name: str | None = "main") -> None:
    async with Node.open(await open_store(url), name=name, now_ms=lambda: START) as node:
        await node.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
        for head in range(5):
            await node.commit(*commit_of(vid, head, {1: b"%d" % head * PAGE}, client=ClientId.new(), page_size=PAGE))
        await node.ask(PIN, PinRequest(vid.raw, lsn=3, pin=PinId.new().raw, seconds=0.0))


async def _tend(url: str, vid: VolumeId) -> None:
    now_ms = START
    async with Node.open(await open_store(url), name="main", now_ms=lambda: now_ms) as node:
        with pytest.raises(NotFound, match="was removed"):
            await node.commit(*commit_of(vid, 5, {1: b"more" * (PAGE // 4)}, client=ClientId.new(), page_size=PAGE))
        for _ in range(4):
            assert not (await node.upkeep.tend("main", Extent.ALL)).failures
            now_ms += DAY_MS


async def _is_gone(folder: Path, vid: VolumeId) -> None:
    assert not (folder / "store" / "volumes" / str(vid)).exists()
    liveness = (await reread(directory(folder / "store"))).liveness()
    assert not liveness.garbage
    assert not liveness.leftovers
    async with Node.open(await open_store((folder / "store").as_uri())) as node:
        with pytest.raises(NotFound):
            await node.ask(SNAPSHOT, SnapshotRequest(vid.raw))
