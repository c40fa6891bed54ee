"""Rollups are written in the background: by one or two processes, by those that live shortly, die, or meet a store that
fails. What they are good for: test_rollups.py."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio
import pytest

from budwood.server.node import Node
from budwood.server.store.tree_nodes import loading
from budwood.testing.commits import pages_at
from budwood.testing.stores import MemoryStore, RiggedStore, Rule
from budwood.volume import faults
from budwood.volume.calls import SNAPSHOT, SnapshotRequest
from budwood.volume.entry import entry_key, parse_entry
from budwood.volume.envelope import head_length
from budwood.volume.errors import Unavailable
from budwood.volume.rollup import rollup_key, slot_of_rollup

from ..rolling import (
    BOB,
    Told,
    after_every,
    check_all,
    clients,
    comes_true,
    goes_by,
    hasty,
    memory,
    only_when_told,
    roll_up,
    rollups,
    small_nodes,
)

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]


@pytest.fixture
def store() -> RiggedStore:
    return RiggedStore(MemoryStore())


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    after_every(4, monkeypatch)


async def test_a_rollup_is_written_in_the_background_named_by_the_next_entry_and_gone_by(store: RiggedStore) -> None:
    async with Node.open(store, name="main") as node:
        told = await Told.born(node)
        await told.commit_many(node, 2)
        await goes_by(node, "main", 3)
        log = await node.logs.get("main")
        assert rollups(store, "main") == [3]
        assert not log.streams.tail(told.id)
        assert log.reader.chain.rollup == ""
        await told.commit(node)
        assert slot_of_rollup(log.reader.chain.rollup) == 3
        assert [part.slot for part in log.streams.tail(told.id)] == [4]
        for upto in (7, 11, 15):
            while log.reader.chain.next <= upto:
                await told.commit(node)
            await goes_by(node, "main", upto)
        assert rollups(store, "main") == [3, 7, 11, 15]
        await told.check(node)
        await told.check_repeats(node)
    check_all(store)


@pytest.mark.parametrize("small", [False, True])
async def test_two_processes_that_roll_up_one_private_log_go_by_each_others(
    store: RiggedStore, monkeypatch: pytest.MonkeyPatch, *, small: bool
) -> None:
    if small:
        small_nodes(monkeypatch)
    async with Node.open(store) as one, Node.open(store) as two:
        told = await Told.born(one)
        for at in range(40):
            node = (one, two)[at % 2]
            await told.commit(node, clients[at % 3])
        for node in (one, two):
            await told.check(node)
            await told.check_repeats(node)
        assert len(rollups(store, told.id)) >= 2
    check_all(store)
    async with Node.open(store) as fresh:
        await told.check(fresh)
        await told.check_repeats(fresh)


async def test_whoever_follows_goes_by_what_another_has_named(
    store: RiggedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the rollup has is let go of: by whoever wrote it, which has its nodes, down to the volume."""
    only_when_told(monkeypatch)
    async with Node.open(store) as one, Node.open(store) as two:
        told = await Told.born(one)
        await told.commit_many(two, 20)
        volumes = [await node.volumes.get(told.vid, fresh=True) for node in (one, two)]
        await roll_up(two, told.id)
        log = await one.logs.get(told.id)
        assert len(log.streams.tail(told.id)) == 20
        await told.commit(two, BOB)
        await one.ask(SNAPSHOT, SnapshotRequest(told.vid.raw))
        await goes_by(one, told.id, 20)
        for node, volume in zip((one, two), volumes, strict=True):
            assert await node.volumes.get(told.vid) is volume
            assert [part.slot for part in (await node.logs.get(told.id)).streams.tail(told.id)] == [22]
        assert [landed.lsn for landed in volumes[1].history.ranges[-1].here()] == [21]
        assert [client for client, _ in volumes[1].state.clients.changed()] == [BOB.raw]
        assert log.reader.rollup == (await two.logs.get(told.id)).rolled.name
        await told.commit(one)
        for node in (one, two):
            await told.check(node)
            await told.check_repeats(node)
    check_all(store)


async def test_what_is_written_anew_for_a_commit_is_a_name_however_much_there_is(
    store: RiggedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S4.17: an entry has the name of a rollup, and a rollup the pointer to one root: the 25 pointers of a root that is
    written with each commit are none here."""
    only_when_told(monkeypatch)
    small_nodes(monkeypatch)
    sizes = list[tuple[int, int, int]]()
    async with Node.open(store, name="main") as node:
        told = [await Told.born(node) for _ in range(8)]
        for _ in range(3):
            for each in told:
                await each.commit_many(node, 10)
            await roll_up(node, "main")
            for _ in range(2):
                await told[0].commit(node)
            log = await node.logs.get("main")
            objects = memory(store).objects
            rollup = objects[rollup_key("main", log.reader.rollup)]
            key = entry_key("main", log.reader.chain.next - 1)
            assert parse_entry(key, objects[key]).header.rollup == log.reader.rollup
            nodes = len([key for key in objects if "/nodes/" in key])
            sizes.append((nodes, len(rollup), head_length(objects[key])))
    first, *_, last = sizes
    assert last[0] > 2 * first[0] > 20
    assert max(rollup for _, rollup, _ in sizes) < 1000
    assert max(head for _, _, head in sizes) - min(head for _, _, head in sizes) < 32


async def test_what_comes_while_one_is_written_stands_behind_it(
    store: RiggedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    only_when_told(monkeypatch)
    async with Node.open(store, name="main") as node:
        told = await Told.born(node)
        for client in clients:
            await told.commit_many(node, 5, client)
        gate, children = store.add(Rule(op="create", key="logs/main/rollups/*", gate=anyio.Event())), list[Told]()
        assert gate.gate is not None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon((await node.logs.get("main")).rollup.write)
            await gate.reached.wait()
            await told.commit(node, BOB)
            children.append(await told.fork(node, 21))
            gate.gate.set()
        (child,) = children
        volume, log = await node.volumes.get(told.vid), await node.logs.get("main")
        assert (log.rolled.slot, log.reader.chain.next) == (21, 24)
        assert [part.slot for part in log.streams.tail(told.id)] == [22, 23]
        assert [landed.lsn for landed in volume.history.ranges[-1].here()] == [21]
        assert [client for client, _ in volume.state.clients.changed()] == [BOB.raw]
        await told.check_repeats(node)
        await told.check(node)
        await child.check(node)
        await roll_up(node, "main")
        await told.commit(node)
    async with Node.open(store) as fresh:
        await told.check(fresh)
        await told.check_clients(fresh)
        await child.check(fresh)
    check_all(store)


async def test_a_volume_that_stays_open_holds_no_fork_that_the_rollup_has(
    store: RiggedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever makes a branch for each change never closes what they branch from."""
    only_when_told(monkeypatch)
    async with Node.open(store, name="main") as node:
        told, children = await Told.born(node), list[Told]()
        await told.commit(node)
        volume = await node.volumes.get(told.vid)
        for _ in range(3):
            children += [await told.fork(node, 1) for _ in range(10)]
            assert len(list(volume.state.forks.changed())) == 10
            await roll_up(node, "main")
            assert list(volume.state.forks.changed()) == []
        assert await node.volumes.get(told.vid) is volume
        forks = await loading(lambda: dict(volume.state.forks.items()))
        assert forks == {child.vid.raw: 1 for child in children}
    check_all(store)


POINTS = ["rollup: nodes written, rollup not", "rollup: written, not named"]


@pytest.mark.parametrize("point", POINTS)
async def test_a_process_that_dies_over_a_rollup_loses_nothing(
    store: RiggedStore, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    only_when_told(monkeypatch)

    def cut() -> None:
        raise faults.Cut

    async with Node.open(store, name="main") as node:
        told = await Told.born(node)
        await told.commit_many(node, 5)
        await roll_up(node, "main")
        await told.commit_many(node, 5, BOB)
        faults.arm(point, cut)
        try:
            with pytest.raises(faults.Cut):
                await roll_up(node, "main")
        finally:
            faults.disarm(point)
    assert len(rollups(store, "main")) == 1 + (point == POINTS[1])
    async with Node.open(store, name="main") as fresh:
        await told.check(fresh)
        await told.check_repeats(fresh)
        await told.commit(fresh)
        await roll_up(fresh, "main")
        await told.commit(fresh)
        await told.check(fresh)
    assert len(rollups(store, "main")) == 2 + (point == POINTS[1])
    async with Node.open(store, name="main") as again:
        assert (await again.logs.get("main")).rolled.slot == rollups(store, "main")[-1]
        await told.check(again)
        await told.check_repeats(again)
    check_all(store)


@pytest.mark.parametrize("point", POINTS)
async def test_the_same_rollup_made_again_does_no_harm(
    store: RiggedStore, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """Two that begin at one rollup, and have read as far, make the same bytes."""
    only_when_told(monkeypatch)
    async with Node.open(store) as one, Node.open(store) as two:
        told = await Told.born(one)
        await told.commit_many(one, 20)
        await two.ask(SNAPSHOT, SnapshotRequest(told.vid.raw))
        reached = 0

        async def other() -> None:
            await roll_up(two, told.id)

        def second() -> None:
            nonlocal reached
            reached += 1

        faults.arm(point, second)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(other)
                tasks.start_soon(roll_up, one, told.id)
        finally:
            faults.disarm(point)
        assert reached == 2
        assert rollups(store, told.id) == [20]
        for node in (one, two):
            await told.commit(node)
            await told.check(node)
    check_all(store)


@pytest.fixture
async def opened(store: RiggedStore) -> AsyncIterator[Node]:
    async with Node.open(store, name="main", patience=hasty()) as node:
        yield node


@pytest.mark.parametrize("what", ["nodes", "rollups"])
async def test_where_the_store_fails_commits_go_on_and_a_later_rollup_is_written(
    store: RiggedStore, opened: Node, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    rule = store.add(Rule(op="create", key=f"logs/main/{what}/*", times=None, before=Unavailable("no answer")))
    told = await Told.born(opened)
    await told.commit_many(opened, 2)
    await comes_true(lambda: "log main is not rolled up now" in caplog.text)
    await told.check(opened)
    assert rollups(store, "main") == []
    rule.times = rule.fired
    await told.commit(opened)
    await goes_by(opened, "main", 4)
    await told.commit(opened)
    await told.check(opened)
    await told.check_repeats(opened)
    async with Node.open(store) as fresh:
        assert (await fresh.logs.get("main")).rolled.slot == 4
        await told.check(fresh)
    check_all(store)


async def test_a_rollup_whose_answer_was_lost_is_written(store: RiggedStore, opened: Node) -> None:
    lost = store.add(Rule(op="create", key="logs/main/rollups/*", after=Unavailable("no answer", determinate=False)))
    told = await Told.born(opened)
    await told.commit_many(opened, 2)
    await goes_by(opened, "main", 3)
    assert lost.fired == 1
    await told.commit(opened)
    await told.check(opened)
    check_all(store)


async def test_a_rollup_that_another_named_and_nobody_can_read_now_is_done_without(
    store: RiggedStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What came before it stays in memory."""
    only_when_told(monkeypatch)
    async with Node.open(store) as one, Node.open(store, patience=hasty()) as two:
        told = await Told.born(one)
        await told.commit_many(one, 9)
        await two.ask(SNAPSHOT, SnapshotRequest(told.vid.raw))
        await roll_up(one, told.id)
        rule = store.add(Rule(op="get", key=f"logs/{told.id}/rollups/*", times=None, before=Unavailable("no answer")))
        await told.commit(one)
        await told.check(two)
        await comes_true(lambda: "stays in memory" in caplog.text)
        await told.commit(two, BOB)
        log = await two.logs.get(told.id)
        assert len(log.streams.tail(told.id)) == 11
        rule.times = rule.fired
        assert (await one.ask(SNAPSHOT, SnapshotRequest(told.vid.raw))).lsn == 11
        await roll_up(one, told.id)
        await told.commit(one)
        await two.ask(SNAPSHOT, SnapshotRequest(told.vid.raw))
        await goes_by(two, told.id, 11)
        await told.check(two)
        await told.check_repeats(two)
    check_all(store)


@pytest.mark.parametrize("name", ["main", None])
async def test_writers_that_live_shortly_get_rollups_written_and_named(store: RiggedStore, name: str | None) -> None:
    """Each opens, commits once and closes: one that is under way is finished, and a later one names it."""
    async with Node.open(store, name=name) as first:
        told = await Told.born(first)
    log, most = name or told.id, 0
    for at in range(24):
        async with Node.open(store, name=name) as node:
            await told.commit(node, clients[at % 4])
            reader = (await node.logs.get(log)).reader
            most = max(most, reader.chain.next - 1 - slot_or_none(reader.chain.rollup))
    assert rollups(store, log)
    async with Node.open(store) as fresh:
        store.forget()
        await fresh.ask(SNAPSHOT, SnapshotRequest(told.vid.raw))
        assert store.count() <= 20
        await told.check(fresh)
    assert most <= 20
    check_all(store)


async def test_a_rollup_that_nobody_named_counts_only_if_its_log_stands_as_it_says(
    store: RiggedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log was cut off before its slot, and written anew."""
    only_when_told(monkeypatch)
    async with Node.open(store) as node:
        told = await Told.born(node)
        await told.commit_many(node, 10)
        await (await node.logs.get(told.id)).rollup.write()
    for slot in (8, 9, 10):
        await store.inner.delete(entry_key(told.id, slot))
    del told.made[7:], told.changed[7:], told.pages[8:], told.lengths[8:]
    async with Node.open(store) as node:
        await told.commit_many(node, 10, BOB)
        assert rollups(store, told.id) == [10]
    async with Node.open(store) as fresh:
        log = await fresh.logs.get(told.id)
        assert log.rolled.slot == -1
        await told.check(fresh)
        await told.check_clients(fresh)


def slot_or_none(rollup: str) -> int:
    return slot_of_rollup(rollup) if rollup else -1


async def test_what_is_written_while_the_node_closes_is_finished(store: RiggedStore) -> None:
    gate = store.add(Rule(op="create", key="logs/main/nodes/*", gate=anyio.Event()))
    assert gate.gate is not None
    async with Node.open(store, name="main") as node:
        told = await Told.born(node)
        await told.commit_many(node, 2)
        await gate.reached.wait()
        await node.aclose()
        assert rollups(store, "main") == []
        gate.gate.set()
    assert rollups(store, "main") == [3]
    async with Node.open(store) as fresh:
        assert await pages_at(fresh, told.vid) == told.pages[-1]
    check_all(store)
