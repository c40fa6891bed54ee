"""What upkeep costs those who commit: the time of a commit on a node that looks after itself, against one that doesn't.
Both serve as many volumes, and take turns; the one with upkeep folds and collects meanwhile, each second instead of
each minute, and deletes after seconds instead of an hour. The stores lie in memory, so that no disk's own moods are
measured; first they take 20 ms a request, as buckets do, then 2 ms, where a commit is little but CPU.

    python -m bench.upkeep SECONDS ROUNDS        # of each side's turn, and how many: 10 7 unless told
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from statistics import median, quantiles

import anyio
import msgspec

from budwood.server.node import Node
from budwood.server.store.retrying import PATIENT, Patience
from budwood.server.store.root import ROOT_KEY, new_root, seal_root
from budwood.server.upkeep.upkeep import Pace
from budwood.testing.commits import commit_of
from budwood.testing.stores import MemoryStore, RiggedStore, lognormal
from budwood.volume.calls import ADVANCE, CREATE, CreateRequest, SinceRequest
from budwood.volume.ids import ClientId, VolumeId

from .harness import Figure, report

SECONDS = 10.0
ROUNDS = 7
STORES = ((0.02, 8), (0.002, 2))
"""Seconds that a request takes at the median, and writers. Each has a volume of its own, and commits again once it was
answered; so many that half of a core is left."""
PAGES = 1000
PAGE = 4096
ADVANCE_EVERY = 64
GC_SECONDS = 3
PACE = Pace(every_seconds=1.0)
SKEW_SECONDS = 0.5
BOUND = 1.1


class Writer:
    def __init__(self, node: Node, seed: int) -> None:
        self.node = node
        self.vid = VolumeId.new()
        self.client = ClientId.new()
        self.head = 0
        self.random = random.Random(seed)

    async def begin(self) -> None:
        await self.node.ask(CREATE, CreateRequest(self.vid.raw, page_size=PAGE))
        await self.commit(range(1, PAGES + 1))

    async def commit(self, pages: range) -> None:
        wrote = {page: self.random.randbytes(PAGE) for page in pages}
        whole = PAGES * PAGE
        request = commit_of(
            self.vid,
            self.head,
            wrote,
            client=self.client,
            page_size=PAGE,
            length=whole,
            floor=whole if self.head else 0,
        )
        self.head = (await self.node.commit(*request)).lsn

    async def run(self, until: float, seconds: list[float]) -> None:
        """Commits of one page, and how long each took."""
        while time.perf_counter() < until:
            page = self.random.randrange(1, PAGES + 1)
            start = time.perf_counter()
            await self.commit(range(page, page + 1))
            seconds.append(time.perf_counter() - start)
            if self.head % ADVANCE_EVERY == 0:
                await self.node.ask(ADVANCE, SinceRequest(self.vid.raw, since=self.head))


class Turns:
    """Sleep that lasts until its side's next turn. Upkeep is all that sleeps, unless a store fails."""

    def __init__(self) -> None:
        self._begun = anyio.Event()
        self._resting = anyio.Event()

    async def sleep(self, seconds: float) -> None:
        self._resting.set()
        await anyio.sleep(seconds)
        await self._begun.wait()
        self._resting = anyio.Event()

    def begin(self) -> None:
        self._begun.set()

    async def end(self) -> None:
        self._begun = anyio.Event()
        await self._resting.wait()


class Side:
    def __init__(self, node: Node, store: RiggedStore, writers: int, turns: Turns | None) -> None:
        self.node = node
        self.store = store
        self.turns = turns
        self.writers = [Writer(node, seed) for seed in range(writers)]
        self.seconds: list[list[float]] = []
        """Of each round."""

    @classmethod
    @asynccontextmanager
    async def open(cls, latency_seconds: float, writers: int, *, upkeep: bool) -> AsyncGenerator[Side]:
        store = RiggedStore(MemoryStore(), latency=lognormal(latency_seconds))
        root = msgspec.structs.replace(new_root(time.time_ns() // 1_000_000), gc_interval_seconds=GC_SECONDS)
        await store.create(ROOT_KEY, seal_root(root))
        turns = Turns() if upkeep else None
        patience = Patience(sleep=turns.sleep) if turns else PATIENT
        async with Node.open(
            store, name="main", patience=patience, upkeep=upkeep, pace=PACE, skew_seconds=SKEW_SECONDS
        ) as node:
            side = cls(node, store, writers, turns)
            for writer in side.writers:
                await writer.begin()
            yield side

    async def turn(self, seconds: float) -> None:
        took: list[float] = []
        if self.turns:
            self.turns.begin()
        until = time.perf_counter() + seconds
        async with anyio.create_task_group() as tasks:
            for writer in self.writers:
                tasks.start_soon(writer.run, until, took)
        if self.turns:
            await self.turns.end()
        self.seconds.append(took)

    def forget(self) -> None:
        self.seconds.clear()
        self.store.forget()


async def measured(latency_seconds: float, writers: int, seconds: float, rounds: int) -> list[Figure]:
    async with AsyncExitStack() as stack:
        without = await stack.enter_async_context(Side.open(latency_seconds, writers, upkeep=False))
        upkeep = await stack.enter_async_context(Side.open(latency_seconds, writers, upkeep=True))
        sides = [without, upkeep]
        for side in sides:
            await side.turn(seconds)
            side.forget()
        for number in range(rounds):
            for side in sides if number % 2 else reversed(sides):
                await side.turn(seconds)
        return figures(without, upkeep, f"{latency_seconds * 1000:.0f} ms")


def figures(without: Side, upkeep: Side, store: str) -> list[Figure]:
    found = list[Figure]()
    for percent, bound in (50, None), (99, BOUND):
        ours, theirs = ([at(each, percent) for each in side.seconds] for side in (upkeep, without))
        ratios = [mine / other for mine, other in zip(ours, theirs, strict=True)]
        note = f"{median(ours) * 1e3:.1f} ms against {median(theirs) * 1e3:.1f} ms"
        found.append(Figure(f"{store}: p{percent} of a commit, with upkeep", median(ratios), "×", bound, ratios, note))
    every = [[each for own in side.seconds for each in own] for side in (upkeep, without)]
    pooled = at(every[0], 99) / at(every[1], 99)
    commits = f"{len(every[0]):,} commits against {len(every[1]):,}"
    folds, deletes = upkeep.store.count("create", "logs/*/t/*/deadlist"), upkeep.store.count("delete")
    plans = upkeep.store.count("create", "logs/*/gc/*")
    note = f"{commits}; meanwhile {folds} folds, {plans} objects of plans, {deletes:,} deletes"
    return [*found, Figure(f"{store}: p99 over all rounds", pooled, "×", BOUND, note=note)]


def at(seconds: list[float], percent: int) -> float:
    return quantiles(seconds, n=100, method="inclusive")[percent - 1]


def main(seconds: float = SECONDS, rounds: float = ROUNDS) -> None:
    found = list[Figure]()
    for latency_seconds, writers in STORES:
        found += anyio.run(measured, latency_seconds, writers, seconds, int(rounds))
    report("upkeep: what it costs those who commit", found)


if __name__ == "__main__":
    main(*map(float, sys.argv[1:]))
