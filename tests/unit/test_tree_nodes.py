"""Nodes in memory: what is asked of the store, what stays, what is told to whoever waits, and what is written."""

from __future__ import annotations

import anyio
import pytest

from budwood.server.store.retrying import Patience
from budwood.server.store.tree_nodes import AT_ONCE, Nodes, NotLoaded
from budwood.testing.stores import MemoryStore, RiggedStore, Rule
from budwood.volume.errors import Corrupt, Unavailable
from budwood.volume.tree_node import Node, Pointer, node_key, seal_node

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]

FOLDER = "t"
ONCE = Patience(deadline_seconds=0)


def sealed(n: int) -> tuple[Pointer, bytes]:
    """All are equally large."""
    return seal_node(Node(keys=(b"%03d" % n,), values=(bytes(100),)), 1)


MADE = [sealed(n) for n in range(40)]
POINTERS = [pointer for pointer, _ in MADE]
WEIGHT = 2 * len(MADE[0][1])


async def stored(*, without: int | None = None) -> RiggedStore:
    store = MemoryStore()
    for at, (pointer, data) in enumerate(MADE):
        if at != without:
            await store.create(node_key(FOLDER, pointer), data)
    return RiggedStore(store)


def in_memory(nodes: Nodes) -> list[int]:
    found: list[int] = []
    for at, pointer in enumerate(POINTERS):
        try:
            node = nodes.get(FOLDER, pointer)
        except NotLoaded:
            continue
        assert node.keys == (b"%03d" % at,)
        found.append(at)
    return found


async def test_a_node_is_read_once_and_then_is_in_memory() -> None:
    store = await stored()
    nodes = Nodes(store, limit_bytes=1 << 20)
    assert in_memory(nodes) == []
    with pytest.raises(NotLoaded) as missing:
        nodes.get(FOLDER, POINTERS[3])
    assert (missing.value.folder, missing.value.pointer) == (FOLDER, POINTERS[3])
    assert (await nodes.load(FOLDER, POINTERS[3])).keys == (b"003",)
    assert in_memory(nodes) == [3]
    await nodes.load(FOLDER, POINTERS[3])
    assert store.count() == 1


async def test_the_least_recently_used_goes_first() -> None:
    nodes = Nodes(await stored(), limit_bytes=3 * WEIGHT)
    for at in (0, 1, 2):
        await nodes.load(FOLDER, POINTERS[at])
    nodes.get(FOLDER, POINTERS[0])
    await nodes.load(FOLDER, POINTERS[3])
    assert in_memory(nodes) == [0, 2, 3]


async def test_what_is_kept_stays_until_the_last_who_needs_it_lets_go() -> None:
    nodes = Nodes(await stored(), limit_bytes=1)
    with nodes.keeping() as keep:
        keep(FOLDER, POINTERS[0], await nodes.load(FOLDER, POINTERS[0]))
        with nodes.keeping() as keep_too:
            for at in (0, 1):
                keep_too(FOLDER, POINTERS[at], await nodes.load(FOLDER, POINTERS[at]))
            await nodes.load(FOLDER, POINTERS[2])
            assert in_memory(nodes) == [0, 1, 2]
        assert in_memory(nodes) == [0, 2]
    assert in_memory(nodes) == [2]


async def test_of_many_who_miss_a_node_one_asks() -> None:
    store = await stored()
    gate = anyio.Event()
    rule = store.add(Rule(op="get", gate=gate))
    nodes = Nodes(store, limit_bytes=1)
    found: list[Node] = []

    async def load() -> None:
        found.append(await nodes.load(FOLDER, POINTERS[0]))

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(load)
        await rule.reached.wait()
        await anyio.wait_all_tasks_blocked()
        gate.set()
    assert [node.keys for node in found] == [(b"000",)] * 3
    assert store.count() == 1


async def test_where_the_one_who_asked_is_cancelled_another_asks() -> None:
    store = await stored()
    rule = store.add(Rule(op="get", hang="before"))
    nodes = Nodes(store, limit_bytes=1)
    scope = anyio.CancelScope()

    async def first() -> None:
        with scope:
            await nodes.load(FOLDER, POINTERS[0])

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(first)
        await rule.reached.wait()
        tasks.start_soon(nodes.load, FOLDER, POINTERS[0])
        await anyio.wait_all_tasks_blocked()
        assert store.count() == 1
        scope.cancel()
    assert store.count() == 2
    assert in_memory(nodes) == [0]


async def test_an_error_is_told_to_all_who_wait_and_forgotten() -> None:
    store = await stored()
    gate = anyio.Event()
    rule = store.add(Rule(op="get", gate=gate, before=Unavailable("no answer")))
    nodes = Nodes(store, limit_bytes=1, patience=ONCE)
    told: list[str] = []

    async def load() -> None:
        with pytest.raises(Unavailable) as found:
            await nodes.load(FOLDER, POINTERS[0])
        told.append(str(found.value))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(load)
        tasks.start_soon(load)
        await rule.reached.wait()
        await anyio.wait_all_tasks_blocked()
        gate.set()
    assert told == ["no answer"] * 2
    assert (await nodes.load(FOLDER, POINTERS[0])).keys == (b"000",)
    assert store.count() == 2


async def test_many_are_loaded_several_at_a_time_in_their_order() -> None:
    store = await stored()
    gate = anyio.Event()
    store.add(Rule(op="get", gate=gate, times=None))
    nodes = Nodes(store, limit_bytes=1)
    found: list[Node] = []

    async def load() -> None:
        found.extend(await nodes.load_all(FOLDER, POINTERS))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(load)
        await anyio.wait_all_tasks_blocked()
        assert store.count() == AT_ONCE
        gate.set()
    assert [node.keys[0] for node in found] == [b"%03d" % n for n in range(len(MADE))]
    assert store.count() == len(MADE)


async def test_a_missing_node_is_damage_and_no_group_of_errors() -> None:
    nodes = Nodes(await stored(without=5), limit_bytes=1 << 20)
    with pytest.raises(Corrupt, match="the object is missing") as found:
        await nodes.load_all(FOLDER, POINTERS)
    assert found.value.key == node_key(FOLDER, POINTERS[5])


async def test_what_is_saved_is_durable_and_in_memory() -> None:
    store = RiggedStore(MemoryStore())
    gate = anyio.Event()
    store.add(Rule(op="create", gate=gate, times=None))
    nodes = Nodes(store, limit_bytes=1 << 20)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(nodes.save, FOLDER, MADE)
        await anyio.wait_all_tasks_blocked()
        assert store.count("create") == AT_ONCE
        gate.set()
    assert in_memory(nodes) == list(range(len(MADE)))
    assert store.count("get") == 0
    fresh = Nodes(store, limit_bytes=1 << 20)
    assert [node.keys[0] for node in await fresh.load_all(FOLDER, POINTERS)] == [b"%03d" % n for n in range(len(MADE))]


async def test_a_node_that_stands_already_is_as_good_as_saved() -> None:
    store = await stored()
    nodes = Nodes(store, limit_bytes=1 << 20)
    await nodes.save(FOLDER, MADE)
    assert in_memory(nodes) == list(range(len(MADE)))


async def test_other_bytes_under_a_nodes_name_are_damage() -> None:
    store = RiggedStore(MemoryStore())
    (pointer, data), key = MADE[0], node_key(FOLDER, POINTERS[0])
    await store.create(key, b"other")
    nodes = Nodes(store, limit_bytes=1 << 20)
    with pytest.raises(Corrupt, match="the bytes that stand there") as found:
        await nodes.save(FOLDER, [(pointer, data)])
    assert found.value.key == key
    assert in_memory(nodes) == []


async def test_what_could_not_be_read_is_not_written() -> None:
    store = RiggedStore(MemoryStore())
    nodes = Nodes(store, limit_bytes=1 << 20)
    with pytest.raises(Corrupt):
        await nodes.save(FOLDER, [(POINTERS[0], MADE[1][1])])
    assert store.count() == 0


async def test_a_store_that_does_not_answer_is_no_success() -> None:
    store = RiggedStore(MemoryStore())
    store.add(Rule(op="create", nth=3, before=Unavailable("busy")))
    nodes = Nodes(store, limit_bytes=1 << 20, patience=ONCE)
    with pytest.raises(Unavailable):
        await nodes.save(FOLDER, MADE)
    # Each that is told to be in memory is in the store.
    keys = await store.list("")
    assert {node_key(FOLDER, POINTERS[at]) for at in in_memory(nodes)} <= set(keys)
    assert len(keys) < len(MADE)
