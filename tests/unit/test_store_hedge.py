"""A slow get or create is sent twice, not more often than allowed, and its outcome is the truth about both."""

from __future__ import annotations

from functools import partial
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from budwood.server.store.figures import figures_of
from budwood.server.store.hedge import HedgedStore
from budwood.server.store.open_store import open_store
from budwood.testing.clock import ManualClock
from budwood.testing.stores import MemoryStore, RiggedStore, Rule
from budwood.volume.errors import AlreadyExists, NotFound, Unavailable

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]


class Bench:
    """A hedged store whose usual request takes 10 ms by its clock."""

    def __init__(self, most_per_second: float = 50.0, **options: Any) -> None:
        self.clock = ManualClock()
        self.memory = MemoryStore()
        self.rigged = RiggedStore(self.memory)
        self.store = HedgedStore(
            self.rigged, most_per_second=most_per_second, **options, now=self.clock.now, sleep=self.clock.sleep
        )

    async def learn(self) -> None:
        """Sixteen creates and gets of 10 ms each: slow is what takes longer."""
        for number in range(16):
            for op in ("create", "get"):
                gate = self.rigged.add(Rule(gate=anyio.Event()))
                async with anyio.create_task_group() as tasks:
                    if op == "create":
                        tasks.start_soon(self.store.create, f"learn/{number}", b"")
                    else:
                        tasks.start_soon(self.store.get, f"learn/{number}")
                    await gate.reached.wait()
                    self.clock.advance(0.01)
                    assert gate.gate is not None
                    gate.gate.set()
        self.rigged.rules.clear()
        self.rigged.forget()

    async def until_sent(self, count: int) -> None:
        """Let tasks run until so many requests have arrived."""
        for _ in range(100):
            if self.rigged.count() >= count:
                return
            await checkpoint()
        raise AssertionError(f"{self.rigged.count()} requests arrived, not {count}")

    async def settle(self) -> None:
        for _ in range(20):
            await checkpoint()


async def test_a_slow_get_is_answered_by_its_hedge() -> None:
    bench = Bench()
    await bench.learn()
    await bench.memory.create("k", b"x")
    bench.rigged.add(Rule(op="get", hang="before"))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(bench.store.get, "k")
        await bench.until_sent(1)
        await bench.settle()
        bench.clock.advance(0.012)
        await bench.settle()
        assert bench.rigged.count() == 1, "not slow yet"
        bench.clock.advance(0.001)
    assert bench.rigged.count("get") == 2
    assert bench.store.hedges == 1


async def test_nothing_is_hedged_before_the_usual_is_known() -> None:
    bench = Bench()
    await bench.memory.create("k", b"x")
    for _ in range(15):
        await bench.store.get("k")
    assert bench.clock.slept == []


async def test_a_create_that_meets_its_own_hedge_succeeds() -> None:
    bench = Bench()
    await bench.learn()
    slow = bench.rigged.add(Rule(op="create", hang="after"))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(bench.store.create, "k", b"ours")
        await slow.reached.wait()
        await bench.settle()
        bench.clock.advance(0.02)
    assert bench.memory.objects["k"] == b"ours"
    assert bench.rigged.count("create") == 2
    assert bench.rigged.count("get") == 1, "what stands there was read"


async def test_a_create_that_meets_another_ones_object_is_refused_hedged_or_not() -> None:
    bench = Bench()
    await bench.learn()
    await bench.memory.create("k", b"theirs")
    with pytest.raises(AlreadyExists):
        await bench.store.create("k", b"ours")
    assert bench.rigged.count("get") == 0
    slow = bench.rigged.add(Rule(op="create", hang="before"))

    async def create() -> None:
        with pytest.raises(AlreadyExists):
            await bench.store.create("k", b"ours")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(create)
        await slow.reached.wait()
        await bench.settle()
        bench.clock.advance(0.02)
    assert bench.memory.objects["k"] == b"theirs"


async def test_hedges_are_rationed() -> None:
    bench = Bench(most_per_second=2.0)
    await bench.learn()
    await bench.memory.create("k", b"x")
    for wait_seconds, hedged in [(0.02, True), (0.1, False), (0.3, False), (0.6, True)]:
        bench.clock.advance(wait_seconds)
        before = bench.store.hedges
        slow = bench.rigged.add(Rule(op="get", gate=anyio.Event()))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bench.store.get, "k")
            await slow.reached.wait()
            await bench.settle()
            bench.clock.advance(0.013)
            await bench.settle()
            assert slow.gate is not None
            slow.gate.set()
        assert (bench.store.hedges > before) is hedged


async def slow_gets(bench: Bench, key: str, count: int, **range_: int) -> None:
    """So many, each of which takes a minute unless it is sent again."""
    for _ in range(count):
        bench.rigged.rules.clear()
        slow = bench.rigged.add(Rule(op="get", gate=anyio.Event()))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(bench.store.get, key, **range_))
            await slow.reached.wait()
            await bench.settle()
            bench.clock.advance(60)
            await bench.settle()
            assert slow.gate is not None
            slow.gate.set()


async def test_no_more_than_a_share_is_sent_twice_however_slow_the_store_is() -> None:
    """S4.15: one in 25 is slow, and one in 50 may be sent again; one that may be there is at the beginning."""
    bench = Bench(share=0.02)
    await bench.memory.create("k", b"x")
    for _ in range(40):
        for _ in range(24):
            await bench.store.get("k")
        await slow_gets(bench, "k", 1)
    assert bench.store.figures() == {"hedges": 21, "hedges_won": 21, "hedges_refused": 19}


async def test_what_is_large_is_sent_once() -> None:
    """S4.15: its time is the line's."""
    bench = Bench()
    await bench.learn()
    await bench.memory.create("k", b"x")
    for _ in range(32):
        await bench.store.get("k", end=2 << 20)
    await slow_gets(bench, "k", 1, end=2 << 20)
    assert bench.store.hedges == 0


async def test_only_gets_are_hedged_where_creates_must_not_be() -> None:
    bench = Bench(creates=False)
    await bench.learn()
    slow = bench.rigged.add(Rule(op="create", gate=anyio.Event()))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(bench.store.create, "k", b"ours")
        await slow.reached.wait()
        await bench.settle()
        bench.clock.advance(60)
        await bench.settle()
        assert slow.gate is not None
        slow.gate.set()
    assert bench.rigged.count("create") == 1
    await slow_gets(bench, "k", 1)
    assert bench.store.hedges == 1


async def test_a_bucket_is_hedged_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    opened = await open_store("s3://bucket/p")
    assert figures_of(opened)["hedges"] == 0
    for url, hedging in (("s3://bucket/p?hedging=no", True), ("s3://bucket/p", False), ("memory://hedged", True)):
        assert "hedges" not in figures_of(await open_store(url, hedging=hedging))


async def test_a_usage_error_is_an_answer() -> None:
    bench = Bench()
    await bench.learn()
    with pytest.raises(NotFound):
        await bench.store.get("none")
    assert bench.rigged.count() == 1


async def outcome_of_two_sends(second: Rule) -> str:
    """The first send is refused while the second is under way; `second` is a rule for that, with a gate."""
    bench = Bench()
    await bench.learn()
    first = bench.rigged.add(Rule(op="create", gate=anyio.Event(), before=Unavailable("refused")))
    bench.rigged.add(second)
    outcomes: list[str] = []

    async def create() -> None:
        try:
            await bench.store.create("k", b"ours")
        except Unavailable as error:
            outcomes.append("did not happen" if error.determinate else "may have happened")
        else:
            outcomes.append("happened")

    assert first.gate is not None
    assert second.gate is not None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(create)
        await first.reached.wait()
        await bench.settle()
        bench.clock.advance(0.02)
        await second.reached.wait()
        first.gate.set()
        await bench.settle()
        assert outcomes == [], "the other send may still succeed"
        second.gate.set()
    return outcomes[0]


async def test_a_failed_send_waits_for_the_other() -> None:
    assert await outcome_of_two_sends(Rule(op="create", nth=2, gate=anyio.Event())) == "happened"


async def test_when_both_fail_the_less_certain_is_told() -> None:
    lost = Unavailable("lost", determinate=False)
    gated = Rule(op="create", nth=2, gate=anyio.Event(), after=lost)
    assert await outcome_of_two_sends(gated) == "may have happened"
    gated = Rule(op="create", nth=2, gate=anyio.Event(), before=Unavailable("refused"))
    assert await outcome_of_two_sends(gated) == "did not happen"


async def test_a_cancelled_caller_cancels_both_sends() -> None:
    bench = Bench()
    await bench.learn()
    await bench.memory.create("k", b"x")
    bench.rigged.add(Rule(op="get", times=2, hang="before"))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(bench.store.get, "k")
        await bench.until_sent(1)
        await bench.settle()
        bench.clock.advance(0.02)
        await bench.until_sent(2)
        tasks.cancel_scope.cancel()
    assert await bench.store.get("k") == b"x"
