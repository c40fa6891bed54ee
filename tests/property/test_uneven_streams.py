"""Streams of very different sizes and rates in one log, with readers, folds and collectors at once (S4.27).

The busiest stream gets half of the commits and the largest, the next a quarter, and so on: most get a few. Each draws
from a generator of its own, seeded by its number, so that whoever reads knows what a stream must hold without asking
its writer. The collector publishes nothing: what it takes out must not be missed by anybody, and what it leaves must
follow what is live. `budwood soak` and `python -m tests.soak` go on for as long as they are told.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from random import Random

import anyio
import pytest
from anyio.lowlevel import checkpoint

from budwood.server.node import Node
from budwood.server.upkeep.collector import Stage
from budwood.testing.commits import commit_of, pages_at
from budwood.testing.stores import MemoryStore, RiggedStore
from budwood.volume.calls import ADVANCE, CREATE, SNAPSHOT, CreateRequest, SinceRequest, SnapshotRequest
from budwood.volume.errors import Conflict, Forgotten, NotFound
from budwood.volume.ids import ClientId, VolumeId

from ..integration.test_collection import INTERVAL_MS, Scene
from ..reread import reread
from ..rolling import after_every, hasty, memory

STREAMS = 10
COMMITS = 300
"""Of the busiest."""
PAGE = 512
MOST_PAGES = 64


class Aging(Scene):
    """Whose nodes grow older with its clock."""

    @asynccontextmanager
    async def node(self, name: str | None = None) -> AsyncGenerator[Node]:
        patience = replace(hasty(), boot=lambda: self.now_ms / 1000)
        async with Node.open(self.store, name=name, patience=patience, now_ms=lambda: self.now_ms) as node:
            yield node


@dataclass
class Stream:
    """One volume; what its writer commits follows from its number alone."""

    number: int
    vid: VolumeId = field(default_factory=VolumeId.new)
    head: int = 0
    since: int = 1
    """What was asked for, at least."""
    client: ClientId = field(default_factory=ClientId.new)

    @property
    def commits(self) -> int:
        return max(2, COMMITS >> self.number)

    @property
    def width(self) -> int:
        return max(1, MOST_PAGES >> self.number)

    def images(self) -> dict[int, dict[int, bytes]]:
        """What each LSN up to the head must read as, by the generator."""
        rng, image = Random(self.number), dict[int, bytes]()
        images = dict[int, dict[int, bytes]]()
        for lsn in range(1, self.head + 1):
            image = image | self.drawn(rng, lsn)
            images[lsn] = image
        return images

    def drawn(self, rng: Random, lsn: int) -> dict[int, bytes]:
        pages = rng.sample(range(1, self.width + 1), rng.randint(1, max(1, self.width // 4)))
        return {page: b"%4d%4d%8d" % (self.number, page, lsn) * (PAGE // 16) for page in pages}


@dataclass
class Estate:
    scene: Scene
    owner: Node
    streams: list[Stream]
    writing: int = STREAMS
    collected: Counter[str] = field(default_factory=Counter[str])
    reading: int = 0
    waiting: int = 0
    """Collectors who wait for an interval to pass: no read is under way for as long, and none begins meanwhile."""

    async def write(self, stream: Stream) -> None:
        rng, pace = Random(stream.number), Random(-stream.number)
        for lsn in range(1, stream.commits + 1):
            pages = stream.drawn(rng, lsn)
            request, segment = commit_of(
                stream.vid, lsn - 1, pages, client=stream.client, page_size=PAGE, length=stream.width * PAGE
            )
            assert (await self.owner.commit(request, segment)).lsn == lsn
            stream.head = lsn
            for _ in range(pace.randrange(1 << min(stream.number, 5))):
                await checkpoint()
        self.writing -= 1

    async def read(self, reader: Node, seed: int) -> None:
        """Exactly what the generator says, or that it is forgotten, and that only where it was let go of."""
        rng = Random(seed)
        while self.writing:
            stream = rng.choice(self.streams)
            if stream.head:
                lsn, since = rng.randint(max(1, stream.since - 3), stream.head), stream.since
                images = stream.images()
                self.reading += 1
                try:
                    assert await pages_at(reader, stream.vid, lsn) == images[lsn]
                except Forgotten:
                    assert lsn < max(stream.since, since)
                finally:
                    self.reading -= 1
            await checkpoint()
            while self.waiting:
                await checkpoint()

    async def keep(self, keeper: Node, seed: int) -> None:
        """Let go, fold and collect, whatever the others do."""
        rng = Random(seed)
        while self.writing:
            stream = rng.choice(self.streams)
            if stream.head > 1:
                stream.since = max(stream.since, rng.randint(1, stream.head))
                await keeper.ask(ADVANCE, SinceRequest(stream.vid.raw, since=stream.since))
                try:
                    await keeper.folder.fold(stream.vid)
                except Conflict:
                    self.collected["conflicts"] += 1
            await self.collect(keeper)

    async def collect(self, keeper: Node) -> None:
        try:
            progress = await keeper.collector.collect("main")
        except Conflict:
            return
        self.collected["objects"] += progress.deleted
        if progress.stage is Stage.WAITING:
            self.waiting += 1
            while self.reading:
                await checkpoint()
            self.scene.now_ms += INTERVAL_MS
            self.waiting -= 1

    async def check(self, by: Node) -> None:
        for stream in self.streams:
            images = stream.images()
            assert (await by.ask(SNAPSHOT, SnapshotRequest(stream.vid.raw))).lsn == stream.head == stream.commits
            for lsn in range(max(1, stream.head - 3), stream.head + 1):
                if lsn >= stream.since:
                    assert await pages_at(by, stream.vid, lsn) == images[lsn]
            with pytest.raises(NotFound):
                await pages_at(by, stream.vid, stream.head + 1)


@pytest.mark.parametrize("seed", [1, 2])
def test_uneven_streams_with_readers_and_collectors_lose_nothing_and_leave_little(seed: int) -> None:
    """S4.27: whatever the seed, each stream reads as its generator says, and what is left follows what is live."""
    with pytest.MonkeyPatch.context() as patched:
        after_every(16, patched)
        anyio.run(play, seed)


async def play(seed: int) -> None:
    scene = Aging(RiggedStore(MemoryStore()))
    async with scene.node("main") as owner, scene.node() as reader:
        estate = Estate(scene, owner, [Stream(number) for number in range(STREAMS)])
        for stream in estate.streams:
            await owner.ask(CREATE, CreateRequest(stream.vid.raw, page_size=PAGE))
        async with anyio.create_task_group() as tasks:
            for stream in estate.streams:
                tasks.start_soon(estate.write, stream)
            for number, by in enumerate((owner, reader)):
                tasks.start_soon(estate.read, by, 100 * seed + number)
            for number in range(2):
                tasks.start_soon(estate.keep, owner, 1000 * seed + number)
        await estate.check(owner)
        await estate.check(reader)
        for stream in estate.streams:
            stream.since = stream.head
            await owner.ask(ADVANCE, SinceRequest(stream.vid.raw, since=stream.head))
            await owner.folder.fold(stream.vid)
        for _ in range(6):
            await estate.collect(owner)
        assert estate.collected["objects"] > COMMITS / 2
    left = memory(scene.store).objects
    kinds = Counter(key.split("/")[2] for key in left if key.startswith("logs/main/"))
    assert kinds["entries"] < 60
    assert kinds["t"] < 12 * STREAMS
    second = await reread(dict(left))
    second.liveness()
    async with scene.node() as fresh:
        await estate.check(fresh)
