"""Surveys of a store that a node makes for those who ask: one at a time, none of them waited for, and one that fails is
told and tried again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

import anyio
import pytest

from budwood.server.node import Node
from budwood.server.upkeep.surveys import FRESH_MS
from budwood.testing.commits import commit_of
from budwood.testing.stores import MemoryStore, RiggedStore, Rule
from budwood.volume.calls import CHANGE_NAME, CREATE, SHARED_LOGS, STORE_COSTS, CreateRequest, Done, SharedLogsRequest
from budwood.volume.entry import entry_key
from budwood.volume.errors import Unavailable
from budwood.volume.ids import ClientId, VolumeId
from budwood.volume.store_report import Holding, StoreCosts
from budwood.volume.wire import NameRequest

from ..rolling import hasty, memory

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]

PAGE = 512
ANN = ClientId.new()


@dataclass
class Scene:
    store: RiggedStore
    node: Node
    clock: list[int]
    vid: VolumeId

    @property
    def now_ms(self) -> int:
        return self.clock[0]

    def pass_by(self, ms: int) -> None:
        self.clock[0] += ms

    async def costs(self) -> StoreCosts:
        return await self.node.ask(STORE_COSTS, Done())


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    store, clock = RiggedStore(MemoryStore()), [1_700_000_000_000]
    async with Node.open(store, name="main", patience=hasty(), now_ms=lambda: clock[0]) as node:
        made = Scene(store, node, clock, VolumeId.new())
        await node.ask(CREATE, CreateRequest(made.vid.raw, page_size=PAGE))
        await node.ask(CHANGE_NAME, NameRequest(op="bind", name="orders", target=made.vid.raw, client=ANN.raw))
        for lsn in range(3):
            await node.commit(*commit_of(made.vid, lsn, {1: bytes([lsn + 1]) * PAGE}, client=ANN, page_size=PAGE))
        yield made


async def test_what_is_told_is_what_stands(scene: Scene) -> None:
    told, objects = await scene.costs(), memory(scene.store).objects
    assert (told.time, told.under_way, told.problem, told.unread) == (scene.now_ms, False, "", 0)
    assert told.objects == len(objects)
    assert abs(told.total.bytes - sum(map(len, objects.values()))) <= 1
    assert any(each.names == ("orders",) and each.volume == str(scene.vid) for each in told.largest)
    assert [(day.day, day.commits) for day in told.days] == [(scene.now_ms // 86_400_000, 3)]
    entries = sum(len(data) for key, data in objects.items() if "/entries/" in key)
    assert 0 < told.days[0].bytes <= entries


async def test_one_is_made_at_a_time_and_is_good_for_a_while(scene: Scene) -> None:
    first = await scene.costs()
    scene.store.forget()
    scene.pass_by(FRESH_MS - 1)
    assert await scene.costs() == first
    assert not scene.store.requests
    scene.pass_by(1)
    slow = Rule(op="list", gate=anyio.Event())
    scene.store.rules.append(slow)
    told = list[StoreCosts]()

    async def ask() -> None:
        told.append(await scene.costs())

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(ask)
    assert {(each.under_way, each.time) for each in told} == {(True, first.time)}, "they are told what was known"
    assert slow.gate is not None
    slow.gate.set()
    after = await scene.costs()
    assert (after.under_way, after.time) == (False, scene.now_ms)
    assert slow.seen == scene.store.count("list"), "it was made once"


async def test_one_that_fails_is_told_and_made_again(scene: Scene) -> None:
    scene.store.rules.append(Rule(op="list", times=None, before=Unavailable("the bucket is away")))
    told = await scene.costs()
    assert (told.time, told.total, told.under_way) == (0, Holding(), False)
    assert "the bucket is away" in told.problem
    scene.store.rules.clear()
    told = await scene.costs()
    assert (told.time, told.problem) == (scene.now_ms, "")
    scene.store.rules.append(Rule(op="list", times=None, before=Unavailable("the bucket is away")))
    scene.pass_by(FRESH_MS)
    again = await scene.costs()
    assert (again.total, again.objects) == (told.total, told.objects), "what was known stays"
    assert "the bucket is away" in again.problem


async def test_a_node_that_ends_gives_it_up(scene: Scene) -> None:
    slow = Rule(op="list", gate=anyio.Event())
    scene.store.rules.append(slow)
    assert (await scene.costs()).under_way


async def test_a_log_that_cannot_be_read_is_told_beside_the_others(scene: Scene) -> None:
    async with Node.open(scene.store.inner, name="other", patience=hasty()) as other:
        vid = VolumeId.new()
        await other.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
        await other.commit(*commit_of(vid, 0, {1: bytes(PAGE)}, client=ANN, page_size=PAGE))
    objects = memory(scene.store).objects
    key = entry_key("other", 1)
    objects[key] = objects[key][:-1]
    told = await scene.node.ask(SHARED_LOGS, SharedLogsRequest())
    first, second = told.logs
    assert (first.log, first.node, first.problem) == ("main", "main", "")
    assert (second.log, second.node, bool(second.problem)) == ("other", "", True)
    requests = [SharedLogsRequest(after=after, limit=1) for after in ("", "main", "other")]
    pages = [await scene.node.ask(SHARED_LOGS, request) for request in requests]
    assert [[each.log for each in page.logs] for page in pages] == [["main"], ["other"], []]
    assert [page.next for page in pages] == ["main", "other", ""]
