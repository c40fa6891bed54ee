"""A process killed at every fault point of the retainer, and others that go on: whatever the policy keeps can be read,
nothing is held twice, and the next run leaves what one that wasn't killed would have left.
"""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from budwood.server.node import Node
from budwood.server.store.open_store import open_store
from budwood.server.upkeep.retention_schedule import DAY_MS, HOUR_MS
from budwood.testing.commits import commit_of, pages_at
from budwood.volume.calls import CREATE, PINS, RETAIN, RETAINED, CreateRequest, RetainRequest, VolumeRequest
from budwood.volume.ids import ClientId, VolumeId
from budwood.volume.retention_policy import RetentionPolicy

from ..reread import reread
from ..second_reader.store import directory
from .crash_harness import cut, finish

PAGE = 512
START = 20_000 * DAY_MS
ANN = ClientId.new()
COMMITS = 24
"""One every 20 minutes from 0:20 on."""
NOW = START + COMMITS // 3 * HOUR_MS
POLICY = RetentionPolicy(all_ms=2 * HOUR_MS, hourly_ms=DAY_MS)
KEPT = {3, 6, 9, 12, 15}
"""Of the hours from 1:00 to 5:00; since is that of 6:00."""

POINTS = (
    "retain: pins made, since not moved",
    "retain: since moved, caller not told",
    "pin: asked, stream not read",
    "pin: checked, not confirmed",
    "pin: confirmed, caller not told",
)
CUTS = (POINTS,)

ENFORCE = """
import sys, anyio
from budwood.server.node import Node
from budwood.server.store.open_store import open_store
from budwood.volume.ids import VolumeId

async def enforce(url, vid, now):
    async with Node.open(await open_store(url), now_ms=lambda: int(now)) as node:
        done = await node.retainer.enforce(VolumeId.parse(vid))
        print(*done if done else (0, 0))

anyio.run(enforce, *sys.argv[1:])
"""


@pytest.mark.parametrize("later_ms", [0, 300_000], ids=["at once", "after what was asked for has ended"])
@pytest.mark.parametrize("point", POINTS)
def test_a_run_that_was_cut_off_loses_nothing_that_the_policy_keeps(tmp_path: Path, point: str, later_ms: int) -> None:
    url, vid = (tmp_path / "store").as_uri(), VolumeId.new()
    anyio.run(make, url, vid)
    assert cut(point, ENFORCE, url, str(vid), str(NOW)) == []
    moved = point == "retain: since moved, caller not told"
    anyio.run(check, url, vid, NOW, 18 if moved else 1)
    said = finish(ENFORCE, url, str(vid), str(NOW + later_ms))
    assert said == ["0 0" if moved else "18 5"]
    assert finish(ENFORCE, url, str(vid), str(NOW + later_ms)) == ["0 0"]
    anyio.run(check, url, vid, NOW + later_ms, 18)
    anyio.run(reread, directory(tmp_path / "store"))


async def make(url: str, vid: VolumeId) -> None:
    now = [START]
    async with Node.open(await open_store(url), now_ms=lambda: now[0]) as node:
        await node.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
        for head in range(COMMITS):
            now[0] += HOUR_MS // 3
            request, segment = commit_of(vid, head, {1: b"%8d" % head * 64}, client=ANN, page_size=PAGE)
            assert (await node.commit(request, segment)).time == now[0]
        await node.ask(RETAIN, RetainRequest(vid.raw, policy=POLICY))


async def check(url: str, vid: VolumeId, now: int, since: int) -> None:
    async with Node.open(await open_store(url), now_ms=lambda: now) as node:
        told = await node.ask(RETAINED, VolumeRequest(vid.raw))
        assert (told.since, told.policy) == (since, POLICY)
        for lsn in (*KEPT, *range(18, COMMITS + 1)):
            assert await pages_at(node, vid, lsn) == {1: b"%8d" % (lsn - 1) * 64}
        holding = [pin.lsn for pin in (await node.ask(PINS, VolumeRequest(vid.raw))).pins]
        assert len(holding) == len(set(holding))
        assert set(holding) <= KEPT
        assert since == 1 or set(holding) == KEPT
