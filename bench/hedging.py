"""A store of which one request in a hundred is slow: what hedging makes of its p99, and what it costs in requests.

Both sides ask the same kind of store for the same, turn by turn, so many at once as a busy node does. A request takes
about 20 ms, as a bucket near by, and exactly every hundredth, in an order that is drawn, takes a second: those that are
sent again as any other.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import anyio

from budwood.server.store.hedge import HedgedStore
from budwood.server.store.protocol import Store
from budwood.testing.stores import MemoryStore, Op, RiggedStore, lognormal

from .harness import Figure, report

ROUNDS = 5
REQUESTS = 3_000
AT_ONCE = 32
USUAL_SECONDS = 0.020
SLOW_SECONDS = 1.0
SLOW_OF = 100


class OneInAHundred:
    """A latency: of each hundred requests one is slow."""

    def __init__(self) -> None:
        usual = lognormal(USUAL_SECONDS)
        assert callable(usual)
        self._usual = usual
        self._coming: list[bool] = []

    def __call__(self, op: Op, generator: random.Random) -> float:
        if not self._coming:
            self._coming = [True, *[False] * (SLOW_OF - 1)]
            generator.shuffle(self._coming)
        return SLOW_SECONDS if self._coming.pop() else self._usual(op, generator)


@dataclass
class Side:
    name: str
    rigged: RiggedStore
    store: Store
    p99: list[float] = field(default_factory=list[float])
    p50: list[float] = field(default_factory=list[float])
    sent: list[float] = field(default_factory=list[float])
    """For each one that was asked for."""

    async def round(self, call: Callable[[Store, int], Awaitable[object]], first: int) -> None:
        self.rigged.forget()
        taken: list[float] = []
        coming = iter(range(first, first + REQUESTS))

        async def one_after_another() -> None:
            for number in coming:
                begun = anyio.current_time()
                await call(self.store, number)
                taken.append(anyio.current_time() - begun)

        async with anyio.create_task_group() as tasks:
            for _ in range(AT_ONCE):
                tasks.start_soon(one_after_another)
        taken.sort()
        self.p50.append(taken[len(taken) // 2])
        self.p99.append(taken[math.floor(0.99 * len(taken))])
        self.sent.append(self.rigged.count() / REQUESTS)


async def compared(what: str, call: Callable[[Store, int], Awaitable[object]]) -> list[Figure]:
    sides: list[Side] = []
    for name in ("without", "with"):
        memory = MemoryStore()
        await memory.create("k", bytes(4096))
        rigged = RiggedStore(memory, latency=OneInAHundred())
        sides.append(Side(name, rigged, rigged if name == "without" else HedgedStore(rigged)))
    for number in range(ROUNDS):
        for side in sides if number % 2 else reversed(sides):
            await side.round(call, number * REQUESTS)
    bare, hedged = sides
    falls = [before / after for before, after in zip(bare.p99, hedged.p99, strict=True)]
    more = [100 * (after - before) for before, after in zip(bare.sent, hedged.sent, strict=True)]
    before, after = (statistics.median(side.p99) * 1000 for side in sides)
    usual = [statistics.median(side.p50) * 1000 for side in sides]
    note = f"{before:.0f} ms without, {after:.0f} ms with; the median {usual[0]:.0f} and {usual[1]:.0f} ms"
    return [
        Figure(f"p99 of {what} falls", statistics.median(falls), "×", 5.0, falls, note, least=True),
        Figure(f"more requests for {what}", statistics.median(more), " %", 5.0, more, f"of {REQUESTS:,} a round"),
    ]


async def measured() -> list[Figure]:
    async def read(store: Store, _: int) -> None:
        await store.get("k", start=0, end=1024)

    async def create(store: Store, number: int) -> None:
        await store.create(f"new/{number:06}", bytes(1024))

    return [*await compared("reads", read), *await compared("creates", create)]


def main() -> None:
    report("hedging: a store with 1 % slow answers", anyio.run(measured))


if __name__ == "__main__":
    main()
