"""What testing/ promises to those who write tests with it."""

from __future__ import annotations

import random

import anyio
import pytest

from budwood.testing.clock import ManualClock
from budwood.testing.stores import MemoryStore, Request, RiggedStore, Rule, lognormal
from budwood.volume.errors import NotFound, Unavailable

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]


async def test_requests_and_bytes_are_counted_by_operation_and_key() -> None:
    store = RiggedStore(MemoryStore())
    await store.create("a/1", [b"123", b"45"])
    await store.create("b/1", b"x" * 100)
    await store.get("a/1", start=1, end=3)
    await store.get_tail("b/1", 7)
    await store.list("a/")
    with pytest.raises(NotFound):
        await store.get("a/2")
    assert (store.count(), store.count("create"), store.count("*", "a/*"), store.count("get", "a/2")) == (6, 2, 4, 1)
    assert (store.sent_bytes(), store.sent_bytes("create", "a/*")) == (105, 5)
    assert (store.received_bytes("get"), store.received_bytes("get_tail"), store.received_bytes("list")) == (2, 7, 3)
    assert store.requests[0] == Request("create", "a/1", 5, 0)
    store.forget()
    assert store.count() == 0


async def test_faults_before_and_after_and_mangled_bytes() -> None:
    memory = MemoryStore()
    store = RiggedStore(memory)
    store.add(Rule(op="create", key="before", before=Unavailable("refused")))
    store.add(Rule(op="create", key="after", after=Unavailable("lost", determinate=False)))
    store.add(Rule(op="create", key="mangled", mangle=lambda data: data[:-1]))
    for key in ("before", "after"):
        with pytest.raises(Unavailable):
            await store.create(key, b"xyz")
    await store.create("mangled", [b"x", b"yz"])
    assert memory.objects == {"after": b"xyz", "mangled": b"xy"}
    store.add(Rule(op="get", mangle=bytes.upper))
    assert [await store.get("after"), await store.get("after")] == [b"XYZ", b"xyz"]


async def test_a_rule_acts_from_the_nth_call_so_many_times() -> None:
    store = RiggedStore(MemoryStore())
    rule = store.add(Rule(op="list", key="a*", nth=2, times=2, before=Unavailable("down")))
    fate: list[str] = []
    for prefix in ("a", "b", "a", "ab", "a"):
        try:
            await store.list(prefix)
            fate.append("answered")
        except Unavailable:
            fate.append("down")
    assert fate == ["answered", "answered", "down", "down", "answered"]
    assert (rule.seen, rule.fired) == (4, 2)


async def test_latency_and_link_add_up() -> None:
    clock = ManualClock(jumps=True)
    store = RiggedStore(MemoryStore(), latency=0.05, link_bytes_per_second=1000, now=clock.now, sleep=clock.sleep)
    await store.create("a", b"x" * 200)
    assert clock.now() == pytest.approx(0.25)
    await store.get("a", end=100)
    assert clock.now() == pytest.approx(0.4)


async def test_transfers_share_the_link() -> None:
    clock = ManualClock()
    store = RiggedStore(MemoryStore(), link_bytes_per_second=1000, now=clock.now, sleep=clock.sleep)
    async with anyio.create_task_group() as tasks:
        for key in ("a", "b"):
            tasks.start_soon(store.create, key, b"x" * 500)
        await anyio.wait_all_tasks_blocked()
        assert sorted(clock.slept) == [0.5, 1.0]
        clock.advance(1.0)


async def test_a_distribution_repeats_with_its_seed() -> None:
    slept: list[list[float]] = []
    for seed in (1, 1, 2):
        clock = ManualClock(jumps=True)
        store = RiggedStore(MemoryStore(), latency=lognormal(0.05), seed=seed, sleep=clock.sleep)
        for _ in range(200):
            await store.list("")
        slept.append(clock.slept)
    assert slept[0] == slept[1] != slept[2]
    assert 0.04 < sorted(slept[0])[100] < 0.06
    draw = lognormal(0.05)
    assert callable(draw)
    assert draw("get", random.Random(3)) == draw("get", random.Random(3))


async def test_a_manual_clock_wakes_sleepers_in_order() -> None:
    clock = ManualClock(10.0)
    woken: list[float] = []

    async def sleep(seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append(seconds)

    async with anyio.create_task_group() as tasks:
        for seconds in (3.0, 1.0, 2.0):
            tasks.start_soon(sleep, seconds)
        await anyio.wait_all_tasks_blocked()
        clock.advance(1.5)
        await anyio.wait_all_tasks_blocked()
        assert woken == [1.0]
        assert clock.sleepers == 2
        clock.advance(5)
    assert sorted(woken) == [1.0, 2.0, 3.0]
    assert (clock.now(), clock.now_ms()) == (16.5, 16500)
