"""Nodes that keep little open: what nobody uses goes, what somebody uses stays, and what was let go of is read again.
That nobody can tell: tests/property/test_letting_go.py."""

from __future__ import annotations

import gc
from weakref import ref

import anyio
import pytest

from budwood.server.metastore.open_volume import Volume
from budwood.server.node import Node
from budwood.testing.commits import commit_of
from budwood.testing.stores import MemoryStore, RiggedStore, Rule
from budwood.volume.calls import (
    OUTCOME,
    SNAPSHOT,
    WAIT,
    OutcomeRequest,
    SnapshotRequest,
    WaitRequest,
)
from budwood.volume.errors import Unavailable

from ..rolling import ANN, PAGE, Told, comes_true, hasty, memory, only_when_told, roll_up
from ..waits import LIMIT_SECONDS

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]

WAITERS = 300


@pytest.fixture
def store() -> RiggedStore:
    return RiggedStore(MemoryStore())


@pytest.mark.parametrize("name", ["main", None])
async def test_a_volume_and_its_log_go_with_whoever_used_them(store: RiggedStore, name: str | None) -> None:
    async with Node.open(store, name=name, memory_bytes=0) as node:
        told = await Told.born(node)
        await told.commit_many(node, 3)
        await told.check(node)
        volume = await node.volumes.get(told.vid)
        log = await node.logs.get(volume.log)
        assert (await node.volumes.get(told.vid)) is volume
        gone, log_gone = ref(volume), ref(log)
        del volume
        assert gone() is None
        del log
        assert (log_gone() is None) == (name is None), "the node's own stays"
        await told.check_repeats(node)
        await told.commit(node)
        await told.check(node)


async def test_callers_that_open_a_volume_at_once_share_it(store: RiggedStore) -> None:
    async with Node.open(store, memory_bytes=0) as node, Node.open(store) as other:
        told = await Told.born(other)
        await told.commit(other)
        volumes: list[Volume] = []

        async def use() -> None:
            volumes.append(await node.volumes.get(told.vid))

        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(use)
        assert volumes[0] is volumes[1] is volumes[2]
        await told.commit(node)
        assert volumes[0].state.head == 2


async def test_what_was_let_go_of_behind_a_rollup_is_read_again(
    store: RiggedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    only_when_told(monkeypatch)
    async with Node.open(store, name="main", memory_bytes=0) as node:
        told = [await Told.born(node) for _ in range(3)]
        for each in told:
            await each.commit_many(node, 5)
        await roll_up(node, "main")
        for each in told:
            await each.commit_many(node, 2)
            await each.check_repeats(node)
        await roll_up(node, "main")
        for each in told:
            await each.check(node)
            await each.commit(node)
            await each.check_repeats(node)


async def test_first_call_to_a_cold_volume_asks_for_little(store: RiggedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    only_when_told(monkeypatch)
    async with Node.open(store, name="main", memory_bytes=0) as node:
        told = [await Told.born(node) for _ in range(30)]
        for each in told:
            await each.commit(node)
        await roll_up(node, "main")
        await told[0].commit(node)
    async with Node.open(store, memory_bytes=0) as node:
        log = await node.logs.get("main")
        for each in told:
            store.forget()
            assert (await node.ask(SNAPSHOT, SnapshotRequest(each.vid.raw))).lsn == each.head
            assert len(store.requests) <= 5
        assert log.name == "main"


async def test_many_who_wait_are_told_though_nothing_is_kept(store: RiggedStore) -> None:
    """And others come and go meanwhile."""
    heads: list[int] = []
    async with Node.open(store, name="main", memory_bytes=0) as node:
        told = [await Told.born(node) for _ in range(20)]

        async def wait(each: Told) -> None:
            request = WaitRequest(each.vid.raw, after=0, timeout_seconds=LIMIT_SECONDS)
            heads.append((await node.ask(WAIT, request)).lsn)

        async with anyio.create_task_group() as tasks:
            for at in range(WAITERS):
                tasks.start_soon(wait, told[at % len(told)])
            others = [await Told.born(node) for _ in range(3)]
            for each in others:
                await each.commit_many(node, 2)
                await each.check(node)
            assert not heads
            for each in told:
                await each.commit(node)
            await comes_true(lambda: len(heads) == WAITERS)
    assert set(heads) == {1}


async def test_who_waits_for_a_volume_of_a_private_log_is_told(store: RiggedStore) -> None:
    async with Node.open(store, memory_bytes=0) as node, Node.open(store, memory_bytes=0) as other:
        told = await Told.born(node)
        heads: list[int] = []

        async def wait() -> None:
            request = WaitRequest(told.vid.raw, after=0, timeout_seconds=LIMIT_SECONDS)
            heads.append((await node.ask(WAIT, request)).lsn)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await comes_true(lambda: store.count("get", f"logs/{told.vid}/*") > 2)
            await told.commit(other)
        assert heads == [1]


async def test_an_entry_on_its_way_holds_its_log(store: RiggedStore) -> None:
    """What became of it is found out by the same bytes: so that it never comes to stand after it was said not to."""
    async with Node.open(store, memory_bytes=0, patience=hasty()) as node:
        told = await Told.born(node)
        await told.commit(node)
        first = sorted(memory(store).objects)
        lost = Unavailable("no answer", determinate=False)
        rule = store.add(Rule(op="create", key=f"logs/{told.vid}/entries/*", times=None, before=lost))
        request = commit_of(told.vid, 1, {1: b"y" * PAGE}, client=ANN, page_size=PAGE, length=8 * PAGE)
        try:
            await node.commit(*request)
        except Unavailable as error:
            assert not error.determinate  # noqa: PT017
        lost.__traceback__ = None
        gc.collect()
        assert sorted(memory(store).objects) == first
        store.rules.remove(rule)
        # Others use the node meanwhile.
        other = await Told.born(node)
        await other.commit(node)
        asked = OutcomeRequest(told.vid.raw, client=ANN.raw, token=request[0].token, base=1)
        assert (await node.ask(OUTCOME, asked)).lsn == 2
        assert (await node.ask(SNAPSHOT, SnapshotRequest(told.vid.raw))).lsn == 2
        log = ref(await node.logs.get(str(told.vid)))
        await other.commit(node)
        gc.collect()
        assert log() is None, "it is settled, and nobody's"
