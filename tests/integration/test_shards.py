"""Fragments spread over prefixes: anyone reads them, whatever the count was; whoever looks for garbage, damage or room
finds them; an older program is told to upgrade (S4.8; docs/design/0104-prefixes.md). Leftovers: test_leftovers.py."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
import pytest
from anyio.lowlevel import checkpoint

from budwood.server.node import Node
from budwood.server.upkeep.collector import Stage
from budwood.server.upkeep.costs import Wanted, survey
from budwood.server.upkeep.holders import Holders
from budwood.server.upkeep.log_names import names_of
from budwood.testing.commits import commit_of, pages_at
from budwood.testing.stores import MemoryStore, RiggedStore, Rule
from budwood.volume import envelope
from budwood.volume.calls import (
    ADVANCE,
    CREATE,
    LOCATE,
    MOVE_LOG,
    CreateRequest,
    LocateRequest,
    MoveRequest,
    SinceRequest,
)
from budwood.volume.errors import BadInput, Unsupported
from budwood.volume.fragments import MOST_SHARDS, fragment_key, fragment_name
from budwood.volume.garbage import PlannedFragments, parse_plan, seal_plan
from budwood.volume.ids import ClientId, SegmentId, VolumeId
from budwood.volume.pageset import PageSet, encode_pages
from budwood.volume.records import Location

from ..damage import hasty, scrubbed
from ..reread import reread
from ..rolling import memory, roll_up
from .test_collection import INTERVAL_MS

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]

PAGE = 512
ANN = ClientId.new()
OLDER = {
    envelope.ENTRY: 0b111,
    envelope.ROLLUP: 0b111111,
    envelope.PIN: 0b1,
}
"""What was known before there were shards."""


@dataclass
class Scene:
    store: RiggedStore = field(default_factory=lambda: RiggedStore(MemoryStore()))
    now_ms: int = field(default_factory=lambda: time.time_ns() // 1_000_000)
    pages: dict[int, bytes] = field(default_factory=dict[int, bytes])
    head: int = 0
    vid: VolumeId = field(default_factory=VolumeId.new)

    @asynccontextmanager
    async def node(self, shards: int = 1, name: str | None = "main") -> AsyncGenerator[Node]:
        async with Node.open(
            self.store, name=name, patience=hasty(), now_ms=lambda: self.now_ms, shards=shards
        ) as node:
            if not self.head and name:
                await node.ask(CREATE, CreateRequest(self.vid.raw, page_size=PAGE))
            yield node

    async def push(self, node: Node, number: int = 8) -> list[Location]:
        """One commit of so many fragments, all sent at once."""
        sent: dict[int, Location] = {}

        async def send(page: int, data: bytes) -> None:
            _, segment = commit_of(self.vid, self.head, {page: data}, client=ANN, page_size=PAGE)
            sent[page] = await node.write_pages(self.vid, segment)

        wrote = {page: os.urandom(PAGE) for page in range(1, number + 1)}
        async with anyio.create_task_group() as tasks:
            for page, data in wrote.items():
                tasks.start_soon(send, page, data)
        locations = [sent[page] for page in sorted(sent)]
        request, _ = commit_of(
            self.vid, self.head, wrote, client=ANN, page_size=PAGE, length=64 * PAGE, locations=tuple(locations)
        )
        self.head = (await node.commit(request)).lsn
        self.pages |= wrote
        return locations

    async def check(self, node: Node) -> None:
        assert await pages_at(node, self.vid) == self.pages
        assert not await scrubbed(dict(memory(self.store).objects))
        (await reread(dict(memory(self.store).objects))).liveness().check()

    def keys(self, prefix: str) -> list[str]:
        return sorted(key for key in memory(self.store).objects if key.startswith(prefix))


def shards_of(locations: list[Location]) -> set[int]:
    return {fragment_name("main", location.object).shard for location in locations}


async def test_a_large_batch_goes_out_at_once_over_its_shards_and_anyone_reads_it() -> None:
    """S4.8: none of its fragments waits for another, and who reads is told nothing of shards."""
    scene = Scene()
    async with scene.node(MOST_SHARDS) as node:
        gate = scene.store.add(Rule(op="create", key="logs/main/shards/*", times=None, gate=anyio.Event()))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(scene.push, node, 40)
            while gate.fired < 40:
                await checkpoint()
            assert gate.gate is not None
            gate.gate.set()
        assert len({key.split("/")[3] for key in scene.keys("logs/main/shards/")}) > MOST_SHARDS // 2
        assert not scene.keys("logs/main/t/")
    for name in ("main", None):
        async with scene.node(name=name) as other:
            await scene.check(other)


async def test_the_same_segment_sent_again_is_the_same_fragment() -> None:
    scene = Scene()
    async with scene.node(MOST_SHARDS) as node:
        _, segment = commit_of(scene.vid, 0, {1: bytes(PAGE)}, client=ANN, page_size=PAGE)
        assert len({(await node.write_pages(scene.vid, segment)).object for _ in range(3)}) == 1


async def test_another_count_costs_no_request_and_rewrites_nothing() -> None:
    """S4.8: up, down and away, each by opening the log again; all that was written stays where it is."""
    costs = [await opened_with(counts) for counts in ((1, 12, 3, 1), (1, 1, 1, 1))]
    assert costs[0] == costs[1]


async def opened_with(counts: tuple[int, ...]) -> list[int]:
    """What each opening asked for, of one log after the other."""
    scene, requests = Scene(), list[int]()
    for shards in counts:
        before = dict(memory(scene.store).objects)
        scene.store.forget()
        async with scene.node(shards) as node:
            requests.append(scene.store.count())
            shards_used = shards_of(await scene.push(node, 24))
            assert shards_used <= ({0} if shards == 1 else set(range(1, shards + 1)))
            await scene.check(node)
        assert before.items() <= memory(scene.store).objects.items()
    return requests


@pytest.mark.parametrize("shards", [0, 13, -1])
async def test_a_count_that_cannot_be_is_refused(shards: int) -> None:
    with pytest.raises(BadInput, match="1 to 12"):
        async with Scene().node(shards):
            pass


async def test_what_is_folded_is_collected_from_every_shard() -> None:
    """Deadlists name what lies in shards; costs, explanations and a log's names count it meanwhile."""
    scene = Scene()
    async with scene.node(5) as node:
        first = await scene.push(node, 30)
        last = await scene.push(node, 8)
        objects = memory(scene.store).objects
        costs = await survey(scene.store, Wanted(scene.now_ms), patience=hasty())
        assert sum(usage.pages for usage in costs.usages) == sum(len(objects[each.object]) for each in first + last)
        holders = Holders(node.logs, node.volumes, node.retention, node.collector)
        held = await holders.of(first[-1].object)
        assert (held.what, bool(held.by)) == ("a segment", True)
        names = await names_of(scene.store, "main")
        assert (names.unknown, sum(under.segments for under in names.numbers.values())) == ([], 38)
        wanted = LocateRequest(scene.vid.raw, lsn=scene.head, pages=encode_pages(PageSet(range(1, 9))))
        located = await node.ask(LOCATE, wanted)
        assert {each.object for each in located.placements} == {each.object for each in last}
        await node.ask(ADVANCE, SinceRequest(scene.vid.raw, since=scene.head))
        await node.folder.fold(scene.vid)
        await roll_up(node, "main")
        while (await node.collector.collect("main")).stage is not Stage.NOTHING:
            scene.now_ms += INTERVAL_MS
        assert not {each.object for each in first[:8]} & set(scene.keys("logs/"))
        await scene.check(node)


async def test_a_volume_takes_its_fragments_along_wherever_it_goes() -> None:
    scene = Scene()
    async with scene.node(12) as node:
        await scene.push(node)
        await node.ask(MOVE_LOG, MoveRequest(scene.vid.raw, to="private"))
        await scene.check(node)
    async with scene.node(name=None) as other:
        await scene.check(other)


@pytest.mark.parametrize("rolled_up", [False, True])
async def test_an_older_program_is_told_to_upgrade(rolled_up: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind an entry that names what lies in shards, and behind a rollup that covers one."""
    scene = Scene()
    async with scene.node(12) as node:
        await scene.push(node)
        if rolled_up:
            await roll_up(node, "main")
            await node.commit(*commit_of(scene.vid, scene.head, {1: bytes(PAGE)}, client=ANN, page_size=PAGE))
    monkeypatch.setattr(envelope, "KNOWN_FEATURES", OLDER)
    with pytest.raises(Unsupported, match="upgrade"):
        async with scene.node():
            pass


async def test_an_older_program_reads_a_log_without_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()
    async with scene.node() as node:
        await scene.push(node)
        await roll_up(node, "main")
        await scene.push(node)
    monkeypatch.setattr(envelope, "KNOWN_FEATURES", OLDER)
    async with scene.node() as node:
        await scene.check(node)


async def test_an_older_collector_is_told_to_upgrade(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()
    async with scene.node(12) as node:
        await scene.push(node, 1)
        cut_off = commit_of(scene.vid, 1, {1: bytes(PAGE)}, client=ANN, page_size=PAGE)[1]
        left = fragment_name("main", (await node.write_pages(scene.vid, cut_off)).object)
        scene.now_ms += 4 * 86_400_000
        assert (await node.collector.collect("main")).stage is Stage.WAITING
        plan = await node.collector.planned("main")
        assert plan is not None
        assert [(each.shard, each.segments) for each in plan.fragments] == [(left.shard, [left.segment])]
    data = seal_plan(plan)
    name = f"{plan.number:016x}"
    assert parse_plan("main", name, data) == plan
    monkeypatch.setattr(envelope, "KNOWN_FEATURES", OLDER)
    with pytest.raises(Unsupported, match="upgrade"):
        parse_plan("main", name, data)


async def test_names_are_what_they_say() -> None:
    segment = SegmentId.new()
    for shard in (0, 1, 9, 12):
        key = fragment_key("main", 7, str(segment), shard)
        assert fragment_name("main", key) == (shard, 7, segment)
        assert PlannedFragments(vid=b"", epoch=7, ids=segment.raw, shard=shard).keys("main") == [key]
        with pytest.raises(BadInput):
            fragment_name("other", key)
    for key in (
        fragment_key("main", 7, str(segment), 13),
        fragment_key("main", 7, "what", 1),
        fragment_key("main", 7, str(segment), 1).replace("/01/", "/00/"),
        fragment_key("main", 7, str(segment), 1).replace("/01/", "/1/"),
        f"{fragment_key('main', 7, str(segment))}/more",
    ):
        with pytest.raises(BadInput):
            fragment_name("main", key)
