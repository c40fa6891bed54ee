"""Several processes over one store that loses requests, loses answers and delays both: whatever each was told holds.

A script, drawn by hypothesis, opens and drops owners of a shared log and embedded processes, commits to shared volumes
and to a private one, brings a volume out of its log by a guest's entry while its owner works, and decides for every
create of an entry how long it takes, whether it arrives, whether its answer does, and whether it is carried out only
later, when its sender has given up or is gone. An owner has several entries in flight, which land in any order. Now and
then all processes sleep for the gc interval, and a collector deletes the beginning of a log meanwhile: whoever has read
past its boundary goes on, and all others stop. Then what was collected is put back, and a fresh process reads the
store:

- every acknowledged commit stands at the LSN that was told, with its pages (DESIGN §9.1)
- no LSN was told to two different commits, and there are no gaps (§9.2)
- a newest snapshot has everything that was acknowledged before it was asked for (§9.1)
- a commit that was refused for good does not stand (what `determinate` says is true)
"""

from __future__ import annotations

from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field

import anyio
from anyio.lowlevel import checkpoint
from hypothesis import given, settings
from hypothesis import strategies as st

from budwood.server.log.boundary import Boundary, boundary_key
from budwood.server.log.waiting import Batching
from budwood.server.node import Node
from budwood.server.store.protocol import Data, Keys, Sizes, buffers
from budwood.server.store.retrying import Patience
from budwood.server.store.root import GC_INTERVAL_SECONDS
from budwood.testing.clock import ManualClock
from budwood.testing.commits import commit_of, pages_at
from budwood.testing.stores import MemoryStore
from budwood.volume.calls import CREATE, HELLO, MOVE_LOG, SNAPSHOT, CreateRequest, Done, MoveRequest, SnapshotRequest
from budwood.volume.entry import entry_key
from budwood.volume.envelope import BOUNDARY, encode, seal
from budwood.volume.errors import (
    AlreadyExists,
    Conflict,
    NotOwner,
    StoreError,
    Unavailable,
    Unsupported,
    UsageError,
)
from budwood.volume.ids import ClientId, VolumeId
from budwood.volume.wire import CommitRequest

from ..reread import reread

PAGE = 512
FATES = ["ok", "ok", "ok", "slow", "slower", "lost request", "lost answer", "late", "refused"]
TURNS = {"slow": 10, "slower": 40}
SHARED = 4
ALPHA = 3


class Unreliable:
    """A store whose creates of entries meet the fates that are drawn for them, one after the other; then all is
    well."""

    def __init__(self, inner: MemoryStore, fates: list[str]) -> None:
        self.inner = inner
        self.url = inner.url
        self.fates = fates
        self.late: list[tuple[str, bytes]] = []

    async def create(self, key: str, data: Data) -> None:
        fate = self.fates.pop(0) if self.fates and "/entries/" in key else "ok"
        for _ in range(TURNS.get(fate, 0)):
            await checkpoint()
        if fate == "refused":
            raise Unavailable("busy", determinate=True)
        if fate == "late":
            self.late.append((key, b"".join(buffers(data))))
        if fate in {"late", "lost request"}:
            raise Unavailable("no answer", determinate=False)
        await self.inner.create(key, data)
        for _ in range(TURNS.get(fate, 0)):
            await checkpoint()
        if fate == "lost answer":
            raise Unavailable("no answer", determinate=False)

    async def arrive(self) -> None:
        """What was delayed is carried out now."""
        while self.late:
            with suppress(AlreadyExists):
                await self.inner.create(*self.late.pop(0))

    async def get(self, key: str, *, start: int = 0, end: int | None = None) -> bytes:
        return await self.inner.get(key, start=start, end=end)

    async def get_tail(self, key: str, size: int) -> tuple[bytes, int]:
        return await self.inner.get_tail(key, size)

    async def delete(self, key: str) -> None:
        await self.inner.delete(key)

    async def list(self, prefix: str, *, start: str = "", limit: int | None = None) -> Keys:
        return await self.inner.list(prefix, start=start, limit=limit)

    async def sizes(self, prefix: str, *, start: str = "", limit: int | None = None) -> Sizes:
        return await self.inner.sizes(prefix, start=start, limit=limit)

    async def aclose(self) -> None:
        await self.inner.aclose()


@dataclass
class Told:
    """What the processes were told, by volume."""

    acknowledged: dict[tuple[VolumeId, int], set[bytes]] = field(default_factory=dict[tuple[VolumeId, int], set[bytes]])
    pages: dict[bytes, bytes] = field(default_factory=dict[bytes, bytes])
    """Token → the page that the commit wrote."""
    refused: set[bytes] = field(default_factory=set[bytes])


class Process:
    """A node in a task of its own, and the commits it is asked for; each starts from the head that the process sees."""

    def __init__(self, world: World, name: str | None) -> None:
        self.world = world
        self.name = name
        self.client = ClientId.new()
        self.stack = AsyncExitStack()
        self.node: Node | None = None

    async def start(self) -> bool:
        clock = ManualClock(jumps=True)
        # Two tries, so that a lost answer is sometimes settled and sometimes not.
        patience = Patience(
            deadline_seconds=0.12, now=clock.now, boot=self.world.boot, sleep=clock.sleep, draw=lambda: 1.0
        )
        batching = Batching(alpha=ALPHA, window_seconds=0.0)
        opened = Node.open(self.world.store, name=self.name, patience=patience, batching=batching)
        try:
            self.node = await self.stack.enter_async_context(opened)
        except (StoreError, UsageError):
            return False
        return True

    async def commit(self, vid: VolumeId, stale: bool) -> None:
        assert self.node is not None
        known = max((lsn for other, lsn in self.world.told.acknowledged if other == vid), default=0)
        try:
            base = (await self.node.ask(SNAPSHOT, SnapshotRequest(vid.raw))).lsn
        except (StoreError, Unsupported):
            return
        # Only an owner that was deposed may not know it yet; by one that it had deposed itself, maybe. And one whose
        # volume was brought out of its log, since it did not answer.
        epoch = (await self.node.ask(HELLO, Done())).epoch
        assert base >= known or 0 < epoch < self.world.newest_epoch or (epoch and vid in self.world.rescued)
        self.world.count += 1
        page = b"%08d" % self.world.count * (PAGE // 8)
        request, segment = commit_of(vid, max(base - stale, 0), {1: page}, client=self.client, page_size=PAGE)
        self.world.told.pages[request.token] = page
        await self.send(vid, request, segment)

    async def rescue(self, vid: VolumeId) -> None:
        """Bring the volume into a log of its own, though its owner lives: it is taken not to answer."""
        assert self.node is not None
        self.world.rescued.add(vid)
        with suppress(StoreError, UsageError):
            await self.node.ask(MOVE_LOG, MoveRequest(vid.raw, to="private", takeover=True))

    async def send(self, vid: VolumeId, request: CommitRequest, segment: bytes) -> None:
        assert self.node is not None
        told = self.world.told
        try:
            lsn = (await self.node.commit(request, segment)).lsn
        except Unsupported:
            # The log was collected; what became of the commit is not told.
            pass
        except (Conflict, NotOwner):
            told.refused.add(request.token)
        except StoreError as error:
            if error.determinate:
                told.refused.add(request.token)
        else:
            told.acknowledged.setdefault((vid, lsn), set()).add(request.token)


@dataclass
class World:
    store: Unreliable
    shared: list[VolumeId]
    private: VolumeId
    told: Told = field(default_factory=Told)
    count: int = 0
    rescued: set[VolumeId] = field(default_factory=set[VolumeId])
    slept_seconds: float = 0.0
    collected: dict[str, bytes] = field(default_factory=dict[str, bytes])

    @property
    def newest_epoch(self) -> int:
        """Of the shared log."""
        taken = (key for key in self.store.inner.objects if key.startswith("logs/main/epochs/"))
        return max(int(key[-16:], 16) for key in taken)

    def boot(self) -> float:
        return self.slept_seconds

    async def collect(self, log: str, most_left: int) -> None:
        """All slots up to the tip, but for so many; while everybody sleeps."""
        objects, tip = self.store.inner.objects, 0
        while (key := entry_key(log, tip)) in objects or key in self.collected:
            tip += 1
        first = max(1, tip - most_left)
        with suppress(AlreadyExists):
            boundary = seal(BOUNDARY, encode(Boundary(log=log, slot=first)))
            await self.store.inner.create(boundary_key(log, first), boundary)
        self.slept_seconds += GC_INTERVAL_SECONDS
        for key in (entry_key(log, slot) for slot in range(1, first)):
            if key in objects:
                # What a sleeper has put there since it was collected is not what stood there.
                self.collected.setdefault(key, objects[key])
                await self.store.inner.delete(key)


async def play(world: World, script: list[tuple[str, int, bool, bool]]) -> None:
    """The script's steps; commits of one step's run go at once, the next step waits for them."""
    processes: list[Process] = []
    try:
        for what, who, shared, stale in script:
            if what in {"owner", "embedded"}:
                process = Process(world, "main" if what == "owner" else None)
                if await process.start():
                    processes.append(process)
            elif what == "late":
                await world.store.arrive()
            elif what == "collect":
                await world.collect("main" if shared else str(world.private), who % 3)
            elif processes:
                async with anyio.create_task_group() as tasks:
                    if what == "rescue":
                        tasks.start_soon(processes[who % len(processes)].rescue, world.shared[who % SHARED])
                    for at in range(1 + who):
                        vid = world.shared[at % SHARED] if shared else world.private
                        tasks.start_soon(processes[(who + at // SHARED) % len(processes)].commit, vid, stale)
    finally:
        for process in reversed(processes):
            await process.stack.aclose()


async def check(world: World) -> None:
    await world.store.arrive()
    inner = world.store.inner
    for key in [key for key in inner.objects if "/boundary/" in key or key in world.collected]:
        await inner.delete(key)
    for key, data in world.collected.items():
        await inner.create(key, data)
    stands: set[bytes] = set()
    async with Node.open(world.store.inner) as fresh:
        for vid in (*world.shared, world.private):
            head = (await fresh.ask(SNAPSHOT, SnapshotRequest(vid.raw))).lsn
            volume = await fresh.volumes.get(vid)
            tokens = {lsn: volume.history.at(lsn).token for lsn in range(1, head + 1)}
            assert len(set(tokens.values())) == head
            stands |= set(tokens.values())
            for (acknowledged, lsn), told in world.told.acknowledged.items():
                assert acknowledged != vid or told == {tokens.get(lsn)}
            for lsn, token in tokens.items():
                assert await pages_at(fresh, vid, lsn) == {1: world.told.pages[token]}
    assert not stands & world.told.refused


scripts = st.lists(
    st.tuples(
        st.sampled_from(["owner", "embedded", "commit", "commit", "commit", "commit", "late", "collect", "rescue"]),
        st.integers(0, 8),
        st.booleans(),
        st.integers(0, 4).map(lambda n: n == 0),
    ),
    min_size=4,
    max_size=25,
)


@settings(max_examples=120)
@given(st.sampled_from(["asyncio", "trio"]), scripts, st.lists(st.sampled_from(FATES), max_size=40))
def test_whatever_a_process_was_told_holds(
    backend: str, script: list[tuple[str, int, bool, bool]], fates: list[str]
) -> None:
    """S0.29, S1.1, S2.29, S4.1, S4.3, S4.4."""

    async def run() -> None:
        memory, shared, private = MemoryStore(), [VolumeId.new() for _ in range(SHARED)], VolumeId.new()
        async with Node.open(memory, name="main") as node, Node.open(memory) as embedded:
            for vid in shared:
                await node.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
            await embedded.ask(CREATE, CreateRequest(private.raw, page_size=PAGE))
        world = World(Unreliable(memory, fates), shared, private)
        await play(world, [("owner", 0, True, False), ("embedded", 0, False, False), *script])
        await check(world)
        await reread(memory.objects)

    anyio.run(run, backend=backend)
