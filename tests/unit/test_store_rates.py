"""No prefix is asked for more in a second than its bucket takes; who waits is served in order, or leaves."""

from __future__ import annotations

import anyio
import pytest
from anyio.lowlevel import checkpoint

from budwood.server.store.figures import figures_of
from budwood.server.store.open_store import open_store
from budwood.server.store.rates import READS, WRITES, RatedStore
from budwood.testing.clock import ManualClock
from budwood.testing.stores import MemoryStore, RiggedStore

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]


class Timed(RiggedStore):
    """Notes when what arrived."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(MemoryStore())
        self.clock = clock
        self.arrived: list[tuple[float, str]] = []

    async def create(self, key: str, data: object) -> None:
        self.arrived.append((self.clock.now(), key))

    async def get(self, key: str, *, start: int = 0, end: int | None = None) -> bytes:
        self.arrived.append((self.clock.now(), key))
        return b""


class Bench:
    def __init__(self, **rates: float) -> None:
        self.clock = ManualClock()
        self.timed = Timed(self.clock)
        self.store = RatedStore(self.timed, now=self.clock.now, sleep=self.clock.sleep, **rates)

    async def settle(self) -> None:
        for _ in range(20):
            await checkpoint()


def most_in_a_second(times: list[float]) -> int:
    """Of any second, wherever it begins."""
    most = first = 0
    for last, time in enumerate(times):
        while times[first] <= time - 1:
            first += 1
        most = max(most, last - first + 1)
    return most


@pytest.mark.parametrize(("kind", "limit"), [("create", WRITES), ("get", READS)])
async def test_in_no_second_is_a_prefix_asked_for_more(kind: str, limit: int) -> None:
    """S0.21: by a crowd that asks for three seconds' worth at once, on a simulated clock."""
    clock = ManualClock(jumps=True)
    timed = Timed(clock)
    store = RatedStore(timed, now=clock.now, sleep=clock.sleep)
    wanted = 3 * limit

    async def ask(first: int) -> None:
        for number in range(first, wanted, 8):
            key = f"logs/main/t/{number:016x}"
            await (store.create(key, b"") if kind == "create" else store.get(key))

    async with anyio.create_task_group() as tasks:
        for first in range(8):
            tasks.start_soon(ask, first)
    times = [time for time, _ in timed.arrived]
    assert len(times) == wanted
    assert 0.95 * limit < most_in_a_second(times) <= limit
    assert times[-1] < wanted / (0.89 * limit), "and it isn't slower than it must be"
    figures = store.figures()
    kind = "writes" if kind == "create" else "reads"
    assert figures[f"waited_{kind}"] > 0.9 * (wanted - limit)
    assert figures[f"waited_{kind}_seconds"] > 0


async def test_prefixes_and_kinds_are_counted_apart() -> None:
    bench = Bench(writes=10, reads=20)
    for key in ("logs/a/1", "logs/b/1", "volumes/a/1", "root"):
        await bench.store.create(key, b"")
    await bench.store.get("logs/a/1")
    await bench.store.get("logs/a/entries/2")
    assert bench.clock.sleepers == 0
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(bench.store.get, "logs/a/t/3")
        await bench.settle()
        assert bench.clock.sleepers == 1, "it is the same prefix"
        tasks.cancel_scope.cancel()


async def test_each_shard_of_a_log_is_a_prefix_of_its_own() -> None:
    """S4.8: twelve of them take twelve times as much; what else the log has is no shard's."""
    bench = Bench(writes=10, reads=20)
    async with anyio.create_task_group() as tasks:
        for shard in range(1, 13):
            tasks.start_soon(bench.store.create, f"logs/a/shards/{shard:02}/0000000000000001/x", b"")
            tasks.start_soon(bench.store.list, f"logs/a/shards/{shard:02}/0000000000000001/")
        tasks.start_soon(bench.store.create, "logs/a/entries/1", b"")
        await bench.settle()
        assert bench.clock.sleepers == 0
        tasks.start_soon(bench.store.create, "logs/a/shards/07/0000000000000002/y", b"")
        await bench.settle()
        assert bench.clock.sleepers == 1, "it is the same shard, under another epoch"
        tasks.cancel_scope.cancel()


async def test_who_waits_is_served_in_order_and_who_leaves_uses_up_nothing() -> None:
    bench = Bench(writes=10)
    await bench.store.create("k/w/first", b"")
    leaving = anyio.CancelScope()

    async def leave() -> None:
        with leaving:
            await bench.store.create("k/w/leaver", b"")

    async with anyio.create_task_group() as tasks:
        for number in range(3):
            tasks.start_soon(bench.store.create, f"k/w/{number}", b"")
            await bench.settle()
            if number == 0:
                tasks.start_soon(leave)
                await bench.settle()
        leaving.cancel()
        await bench.settle()
        # It comes when there is a token, and others have waited for it.
        tasks.start_soon(bench.store.create, "k/w/late", b"")
        for _ in range(4):
            bench.clock.advance(1 / 9)
            await bench.settle()
    assert [key for _, key in bench.timed.arrived] == ["k/w/first", "k/w/0", "k/w/1", "k/w/2", "k/w/late"]
    assert bench.timed.arrived[-1][0] == pytest.approx(4 / 9)


async def test_a_long_listing_is_as_many_reads_as_it_has_pages() -> None:
    bench = Bench(reads=100)
    memory = bench.timed.inner
    assert isinstance(memory, MemoryStore)
    for number in range(5_000):
        memory.create_now(f"k/w/{number:06}", b"")
    assert len(await bench.store.list("k/w/")) == 5_000
    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(bench.store.get, "k/w/0")
        await bench.settle()
        assert len(bench.timed.arrived) == 4, "ten at once, of which the listing took six"
        bench.clock.advance(1)
    assert len(bench.timed.arrived) == 5


async def test_a_bucket_is_rated_unless_its_url_says_no(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    assert figures_of(await open_store("s3://bucket/p"))["waited_writes"] == 0
    for url in ("s3://bucket/p?rates=no", "memory://rated"):
        assert "waited_writes" not in figures_of(await open_store(url))
