"""Space: what a volume takes in the store after very many commits of one page each, `since` at its head all the while;
and what was written for that. A node with upkeep serves it, from a store in memory, on a clock that goes on with the
commits, four in a second: folds and collections come when they are due.

A second volume in a store of its own has a pin all the while, which is read and released at the end. A third shares its
log with one that forgets nothing, and a fourth forgets nothing itself.

    python -m bench.space 100000 10000          # commits, pages of the volume; 20000 2000 unless told
"""

from __future__ import annotations

import hashlib
import os
import random
import sys
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from math import log2

import anyio
from anyio.lowlevel import checkpoint

from budwood.server.node import Node
from budwood.server.store.protocol import Data, length_of
from budwood.server.store.retrying import Patience
from budwood.server.upkeep.upkeep import DAY_SECONDS
from budwood.testing.clock import ManualClock
from budwood.testing.commits import commit_of, pages_at
from budwood.testing.stores import MemoryStore
from budwood.volume.calls import ADVANCE, CREATE, PIN, UNPIN, CreateRequest, PinRequest, SinceRequest, UnpinRequest
from budwood.volume.ids import ClientId, PinId, VolumeId

from .harness import Figure, report

COMMITS = 20_000
PAGES = 2_000
PAGE = 4096
AT_FIRST = 256
"""Pages in each of the commits that fill the volume."""
A_SECOND = 4
"""Commits: about as many between two looks of upkeep as it takes for a fold."""
ADVANCE_EVERY = 64
"""Commits after which `since` is moved to the head."""


class CountingStore(MemoryStore):
    """Counts what is written, by kind of object."""

    def __init__(self) -> None:
        super().__init__()
        self.written: Counter[str] = Counter()
        self.creates: Counter[str] = Counter()
        self.deletes = 0

    async def create(self, key: str, data: Data) -> None:
        await super().create(key, data)
        self.written[kind_of(key)] += length_of(data)
        self.creates[kind_of(key)] += 1

    async def delete(self, key: str) -> None:
        await super().delete(key)
        self.deletes += 1

    @property
    def stored(self) -> int:
        return sum(map(len, self.objects.values()))

    def forget(self) -> None:
        self.written.clear()
        self.creates.clear()
        self.deletes = 0


def kind_of(key: str) -> str:
    parts = key.split("/")
    if parts[0] != "logs":
        return parts[0]
    if parts[2] != "t":
        return parts[2]
    return "deadlists" if parts[-1] == "deadlist" else "folded nodes" if len(parts[-1]) == 32 else "segments"


class Run:
    """One volume, on a node of its own."""

    def __init__(self, commits: int, pages: int) -> None:
        self.commits = commits
        self.pages = pages
        self.store = CountingStore()
        self.clock = ManualClock(1000.0)
        self.vid = VolumeId.new()
        self.client = ClientId.new()
        self.head = 0
        self.expected: dict[int, bytes] = {}
        """Of each page, what it was written with."""
        self.most_stored = 0
        self._random = random.Random(1)
        self._length = 0

    def now_ms(self) -> int:
        return 1_700_000_000_000 + self.clock.now_ms()

    @asynccontextmanager
    async def node(self) -> AsyncGenerator[Node]:
        clock = self.clock
        patience = Patience(now=clock.now, boot=clock.now, sleep=clock.sleep)
        async with Node.open(self.store, name="main", patience=patience, now_ms=self.now_ms, upkeep=True) as node:
            await node.ask(CREATE, CreateRequest(self.vid.raw, page_size=PAGE))
            yield node

    async def fill(self, node: Node, *, forgets: bool = True) -> None:
        for first in range(1, self.pages + 1, AT_FIRST):
            await self.commit(node, range(first, min(first + AT_FIRST, self.pages + 1)))
        if forgets:
            await self._advance(node)

    async def overwrite(self, node: Node, *, forgets: bool = True) -> None:
        for number in range(1, self.commits + 1):
            await self.commit(node, [self._random.randrange(1, self.pages + 1)])
            await self._go_on(1 / A_SECOND)
            if forgets and number % ADVANCE_EVERY == 0:
                await self._advance(node)
            if number % 1000 == 0:
                self.most_stored = max(self.most_stored, self.store.stored)
        if forgets:
            await self._advance(node)

    async def rest(self, *, days: int = 1) -> None:
        """Time goes on, with nobody committing."""
        end = self.clock.now() + days * DAY_SECONDS + 10_000
        while self.clock.now() < end:
            await self._go_on(60.0)

    async def _go_on(self, seconds: float) -> None:
        """Until upkeep sleeps again, if it was woken."""
        self.clock.advance(seconds)
        await checkpoint()
        while not self.clock.sleepers:  # noqa: ASYNC110 (a clock has no event for that)
            await anyio.sleep(0.0005)

    async def read(self, node: Node, lsn: int = 0) -> dict[int, bytes]:
        found = await pages_at(node, self.vid, lsn)
        return {page: _digest(data) for page, data in found.items()}

    async def commit(self, node: Node, pages: range | list[int]) -> None:
        wrote = {page: os.urandom(PAGE) for page in pages}
        length = max(self._length, max(pages) * PAGE)
        floor, self._length = self._length, length
        commit = commit_of(self.vid, self.head, wrote, client=self.client, page_size=PAGE, length=length, floor=floor)
        self.head = (await node.commit(*commit)).lsn
        self.expected.update({page: _digest(data) for page, data in wrote.items()})

    async def _advance(self, node: Node) -> None:
        await node.ask(ADVANCE, SinceRequest(self.vid.raw, since=self.head))


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


def _kinds(counted: Counter[str], scale: Callable[[int], str]) -> str:
    return ", ".join(f"{kind} {scale(number)}" for kind, number in counted.most_common(6))


async def unpinned(commits: int, pages: int) -> list[Figure]:
    run = Run(commits, pages)
    async with run.node() as node:
        await run.fill(node)
        await run.rest()
        few = len(run.store.objects)
        run.store.forget()
        began = time.perf_counter()
        await run.overwrite(node)
        seconds = time.perf_counter() - began
        await run.rest()
        assert await run.read(node) == run.expected, "the volume reads otherwise than it was written"
    live, user = pages * PAGE, commits * PAGE
    written, store = run.store.written, run.store
    objects = Counter(map(kind_of, store.objects))
    stored = Counter[str]()
    for key, data in store.objects.items():
        stored[kind_of(key)] += len(data)
    return [
        Figure("stored, of live", store.stored / live, "×", 1.3, note=_kinds(stored, lambda n: f"{n / live:.3f}")),
        Figure("most that was stored meanwhile, of live", run.most_stored / live, "×"),
        Figure(
            "objects", len(store.objects), "", 20 * log2(commits), note=f"{few} after filling; {_kinds(objects, str)}"
        ),
        Figure(
            "bytes written, of those committed",
            written.total() / user,
            "×",
            6.0,
            note=_kinds(written, lambda n: f"{n / user:.2f}"),
        ),
        Figure(
            "creates a commit",
            store.creates.total() / commits,
            "",
            note=f"{store.creates.total():,} of them, {store.deletes:,} deletes, {seconds:.0f} s",
        ),
    ]


async def pinned(commits: int, pages: int) -> list[Figure]:
    run, pin = Run(commits, pages), PinId.new()
    async with run.node() as node:
        await run.fill(node)
        lsn, before = run.head, dict(run.expected)
        await node.ask(PIN, PinRequest(run.vid.raw, lsn=lsn, pin=pin.raw, seconds=0.0))
        await run.overwrite(node)
        await run.rest()
        assert await run.read(node, lsn) == before, "the pinned snapshot reads otherwise than it did"
        assert await run.read(node) == run.expected, "the volume reads otherwise than it was written"
        live = PAGE * (pages + sum(run.expected[page] != digest for page, digest in before.items()))
        held = run.store.stored
        await node.ask(UNPIN, UnpinRequest(run.vid.raw, pin=pin.raw))
        await run.rest(days=2)
        assert await run.read(node) == run.expected, "the volume reads otherwise than it was written"
    return [
        Figure("with a pin: stored, of live and pinned", held / live, "×", 1.3, note="the pinned LSN reads as it did"),
        Figure("when that is released: stored, of live", run.store.stored / (pages * PAGE), "×", 1.3),
    ]


async def beside(commits: int, pages: int) -> list[Figure]:
    """One that forgets beside one that doesn't."""
    run, other = Run(commits, pages), Run(0, pages)
    other.store, other.clock = run.store, run.clock
    async with run.node() as node:
        await node.ask(CREATE, CreateRequest(other.vid.raw, page_size=PAGE))
        for page in (1, 2, 1):
            await other.commit(node, [page])
        await run.fill(node)
        await run.overwrite(node)
        await run.rest()
        assert await run.read(node) == run.expected, "the volume reads otherwise than it was written"
        assert await other.read(node) == other.expected, "the other one reads otherwise than it was written"
    live = PAGE * (pages + 3)
    return [Figure("beside one that forgets nothing: stored, of live", run.store.stored / live, "×", 1.3)]


async def kept(commits: int, pages: int) -> list[Figure]:
    """Every LSN stays."""
    run = Run(commits, pages)
    async with run.node() as node:
        await run.fill(node, forgets=False)
        lsn, before = run.head, dict(run.expected)
        run.store.forget()
        await run.overwrite(node, forgets=False)
        await run.rest()
        assert await run.read(node, lsn) == before, "an early LSN reads otherwise than it did"
        assert await run.read(node) == run.expected, "the volume reads otherwise than it was written"
    written, user, store = run.store.written, commits * PAGE, run.store
    note = _kinds(Counter(map(kind_of, store.objects)), str)
    return [
        Figure("which forgets nothing: stored, of live", store.stored / (PAGE * (commits + pages)), "×", 1.3),
        Figure("which forgets nothing: objects", len(store.objects), "", note=note),
        Figure(
            "which forgets nothing: bytes written, of those committed",
            written.total() / user,
            "×",
            6.0,
            note=_kinds(written, lambda n: f"{n / user:.2f}"),
        ),
    ]


async def measured(commits: int, pages: int) -> list[Figure]:
    few = max(commits // 5, 2000)
    return [
        *await unpinned(commits, pages),
        *await pinned(commits, pages),
        *await beside(few, pages),
        *await kept(few, pages),
    ]


def main(commits: int = COMMITS, pages: int = PAGES) -> None:
    figures = anyio.run(measured, commits, pages)
    report(f"space: {commits:,} commits of one page each, on {pages:,} pages", figures)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
