"""A slow get or create is sent twice, not more often than allowed, and its outcome is the truth about both."""

from __future__ import annotations

import anyio
import pytest
from anyio.lowlevel import checkpoint

from budwood.server.store.hedge import HedgedStore
from budwood.testing.clock import ManualClock
from budwood.testing.stores import MemoryStore, RiggedStore, Rule
from budwood.volume.errors import AlreadyExists, NotFound, Unavailable

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]


class Bench:
    """A hedged store whose usual request takes 10 ms by its clock."""

    def __init__(self, most_per_second: float = 10.0) -> None:
        self.clock = ManualClock()
        self.memory = MemoryStore()
        self.rigged = RiggedStore(self.memory)
        self.store = HedgedStore(
            self.rigged, most_per_second=most_per_second, now=self.clock.now, sleep=self.clock.sleep
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
        bench.clock.advance(0.009)
        await bench.settle()
        assert bench.rigged.count() == 1, "not slow yet"
        bench.clock.advance(0.002)
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
            bench.clock.advance(0.011)
            await bench.settle()
            assert slow.gate is not None
            slow.gate.set()
        assert (bench.store.hedges > before) is hedged


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
