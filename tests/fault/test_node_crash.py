"""Every crash window of logs, nodes and moves: cut there, then a process that knows only the store finds all or
nothing, and whoever repeats the call gets what it asked for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import count

import anyio
import pytest

from budwood.server.metastore.retention import Collecting
from budwood.server.node import Node
from budwood.server.store.retrying import Patience
from budwood.server.store.root import GC_INTERVAL_SECONDS
from budwood.testing.commits import commit_of, pages_at
from budwood.testing.stores import MemoryStore
from budwood.volume import faults
from budwood.volume.calls import (
    ADVANCE,
    CREATE,
    FORK,
    MOVE_LOG,
    PIN,
    PINS,
    RENEW,
    SNAPSHOT,
    CreateRequest,
    ForkRequest,
    MoveRequest,
    PinRequest,
    RenewRequest,
    SinceRequest,
    SnapshotRequest,
    VolumeRequest,
)
from budwood.volume.errors import Forgotten, NotFound
from budwood.volume.ids import ClientId, PinId, VolumeId
from budwood.volume.pins import PinState

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]

PAGE = 512
ANN = ClientId.new()
OLD, NEW = {1: b"a" * PAGE}, {1: b"b" * PAGE}
WIDE = {n: b"%08d" % n * (PAGE // 8) for n in range(1, 30)}


@dataclass
class World:
    """A store with a volume `vid` at LSN 1 in a private log, and another, `shared`, in the log of node `main`."""

    store: MemoryStore
    vid: VolumeId
    shared: VolumeId

    @classmethod
    async def make(cls) -> World:
        store, vid, shared = MemoryStore(), VolumeId.new(), VolumeId.new()
        async with Node.open(store) as embedded, Node.open(store, name="main") as node:
            for owner, volume in ((embedded, vid), (node, shared)):
                await owner.ask(CREATE, CreateRequest(volume.raw, page_size=PAGE))
                await owner.commit(*commit_of(volume, 0, OLD, client=ANN, page_size=PAGE))
        return cls(store, vid, shared)


Act = Callable[[World, VolumeId], Awaitable[None]]
CHILD = VolumeId.new()


async def commit_private(world: World, vid: VolumeId) -> None:
    async with Node.open(world.store) as node:
        request, segment = commit_of(vid, 1, NEW, client=ANN, page_size=PAGE, nonce=b"fixed")
        assert (await node.commit(request, segment)).lsn == 2


async def commit_slept(world: World, vid: VolumeId) -> None:
    """By somebody who sleeps at every turn, for longer than the gc interval."""
    slept = count()
    patience = Patience(boot=lambda: next(slept) * 10.0 * GC_INTERVAL_SECONDS)
    async with Node.open(world.store, patience=patience) as node:
        request, segment = commit_of(vid, 1, NEW, client=ANN, page_size=PAGE, nonce=b"fixed")
        assert (await node.commit(request, segment)).lsn == 2


async def commit_shared(world: World, _vid: VolumeId) -> None:
    async with Node.open(world.store, name="main") as node:
        request, segment = commit_of(world.shared, 1, NEW, client=ANN, page_size=PAGE, nonce=b"fixed")
        assert (await node.commit(request, segment)).lsn == 2


async def commit_wide(world: World, vid: VolumeId) -> None:
    async with Node.open(world.store) as node:
        request, segment = commit_of(vid, 1, WIDE, client=ANN, page_size=PAGE, nonce=b"fixed", floor=PAGE)
        assert (await node.commit(request, segment)).lsn == 2


async def create(world: World, _vid: VolumeId) -> None:
    async with Node.open(world.store) as node:
        await node.ask(CREATE, CreateRequest(CHILD.raw, page_size=PAGE))


async def fork(world: World, vid: VolumeId) -> None:
    async with Node.open(world.store) as node:
        assert (await node.ask(FORK, ForkRequest(vid.raw, child=CHILD.raw, lsn=1))).lsn == 1


async def move(world: World, vid: VolumeId) -> None:
    async with Node.open(world.store, name="main") as node:
        assert (await node.ask(MOVE_LOG, MoveRequest(vid.raw, to="main"))).log == "main"


HELD = PinId.new()


async def pin(world: World, vid: VolumeId) -> None:
    async with Node.open(world.store) as node:
        assert (await node.ask(PIN, PinRequest(vid.raw, lsn=1, seconds=60, pin=HELD.raw))).state is PinState.LIVE


async def collect(world: World, vid: VolumeId) -> None:
    """LSN 1 is forgotten, and held."""
    await pin(world, vid)
    async with Node.open(world.store) as node:
        if (await node.ask(SNAPSHOT, SnapshotRequest(vid.raw))).lsn == 1:
            await node.commit(*commit_of(vid, 1, NEW, client=ANN, page_size=PAGE))
        assert (await node.ask(ADVANCE, SinceRequest(vid.raw, since=2))).since == 2
        assert await node.retention.begin_collect(vid) == Collecting(2, frozenset({1}))
        await node.retention.end_collect(vid, 2)


CUTS: dict[str, tuple[Act, bool]] = {
    "log: epoch taken, not fenced": (commit_shared, False),
    "log: fence durable, not open": (commit_shared, False),
    "log: entry sealed, not sent": (commit_private, False),
    "log: entry durable, not acknowledged": (commit_private, True),
    "log: entry durable, boundary not read": (commit_slept, True),
    "log: anchor durable, log empty": (create, False),
    "node: birth written, log not anchored": (create, False),
    "node: fork born, parent not told": (fork, False),
    "node: fragment durable, entry not written": (commit_wide, False),
    "move: read ahead, close not written": (move, False),
    "move: close written, open not": (move, False),
    "move: open written, not told": (move, False),
    "pin: asked, stream not read": (pin, False),
    "pin: checked, not confirmed": (pin, False),
    "pin: confirmed, caller not told": (pin, False),
    "collect: announced, pins not listed": (collect, True),
}
"""Where to cut, doing what, and whether the change stands afterwards."""


def cut() -> None:
    raise faults.Cut


async def crashed(name: str, act: Act, world: World) -> None:
    """Run it up to the point, as if the process ended there."""
    faults.arm(name, cut)
    try:
        with pytest.raises(BaseException) as end:  # noqa: PT011  (a Cut, alone or in a task group's exception group)
            await act(world, world.vid)
        assert "Cut" in repr(end.value)
    finally:
        faults.disarm(name)


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a wide commit goes out as a fragment."""
    monkeypatch.setattr("budwood.server.pagestore.ingest.BATCH_BYTES", 1)


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("name", CUTS)
async def test_after_a_crash_all_or_nothing_stands_and_a_repetition_succeeds(name: str) -> None:
    """S2.29, S4.12: no repair is needed, and what was acknowledged before stays."""
    world, (act, stands) = await World.make(), CUTS[name]
    await crashed(name, act, world)
    async with Node.open(world.store) as fresh:
        for vid in (world.vid, world.shared):
            assert await pages_at(fresh, vid, 1) == OLD
            assert (await fresh.ask(SNAPSHOT, SnapshotRequest(vid.raw))).lsn == (
                2 if stands and vid == world.vid else 1
            )
    await act(world, world.vid)
    await act(world, world.vid)
    async with Node.open(world.store) as fresh:
        assert await pages_at(fresh, world.vid, 1) == OLD
        if act in (commit_private, commit_slept, commit_wide):
            assert await pages_at(fresh, world.vid) == (WIDE if act is commit_wide else NEW)
            assert (await fresh.ask(SNAPSHOT, SnapshotRequest(world.vid.raw))).lsn == 2
        if act is commit_shared:
            assert await pages_at(fresh, world.shared) == NEW
        if act is fork:
            assert await pages_at(fresh, CHILD) == OLD
        if act in (pin, collect):
            assert [found.pin_id for found in (await fresh.ask(PINS, VolumeRequest(world.vid.raw))).pins] == [HELD]


PIN_CUTS = [name for name, (act, _) in CUTS.items() if act is pin]


@pytest.mark.parametrize("name", PIN_CUTS)
async def test_a_pin_that_was_cut_keeps_its_lsn_from_a_collector_and_is_live_only_if_it_was_confirmed(
    name: str,
) -> None:
    """B11: and whoever asks for it again, after the LSN was collected or not, is told the truth."""
    world = await World.make()
    await crashed(name, pin, world)
    live = name == "pin: confirmed, caller not told"
    async with Node.open(world.store) as node:
        await node.commit(*commit_of(world.vid, 1, NEW, client=ANN, page_size=PAGE))
        await node.ask(ADVANCE, SinceRequest(world.vid.raw, since=2))
        assert await node.retention.begin_collect(world.vid) == Collecting(2, frozenset({1}))
        if live:
            assert await pages_at(node, world.vid, 1) == OLD
            assert (
                await node.ask(PIN, PinRequest(world.vid.raw, lsn=1, seconds=60, pin=HELD.raw))
            ).state is PinState.LIVE
        else:
            for again in (
                node.ask(SNAPSHOT, SnapshotRequest(world.vid.raw, lsn=1)),
                node.ask(PIN, PinRequest(world.vid.raw, lsn=1, seconds=60, pin=HELD.raw)),
            ):
                with pytest.raises(Forgotten):
                    await again
            with pytest.raises(Forgotten):
                await node.ask(RENEW, RenewRequest(world.vid.raw, pin=HELD.raw, seconds=60))


async def test_a_volume_that_was_left_between_two_logs_is_read_and_its_next_commit_finishes_the_move() -> None:
    world = await World.make()
    await crashed("move: close written, open not", move, world)
    async with Node.open(world.store) as embedded:
        assert await pages_at(embedded, world.vid) == OLD
    async with Node.open(world.store, name="main") as node:
        request, segment = commit_of(world.vid, 1, NEW, client=ANN, page_size=PAGE)
        assert (await node.commit(request, segment)).lsn == 2
        assert (await node.ask(SNAPSHOT, SnapshotRequest(world.vid.raw))).log == "main"
        assert await pages_at(node, world.vid) == NEW


async def test_a_half_made_volume_is_whole_or_not_there() -> None:
    """The birth is the moment: without it there is no volume, with it an empty one that takes commits."""
    world = await World.make()
    async with Node.open(world.store) as node:
        with pytest.raises(NotFound):
            await node.ask(SNAPSHOT, SnapshotRequest(CHILD.raw))
    await crashed("node: birth written, log not anchored", create, world)
    async with Node.open(world.store) as node:
        assert (await node.ask(SNAPSHOT, SnapshotRequest(CHILD.raw))).lsn == 0
        assert (await node.commit(*commit_of(CHILD, 0, NEW, client=ANN, page_size=PAGE))).lsn == 1
        assert await pages_at(node, CHILD) == NEW


@pytest.mark.parametrize("processes", [1, 3])
async def test_many_that_finish_one_move_at_once_write_one_open(processes: int) -> None:
    """In one process they meet in a draft, in several in a slot."""
    world = await World.make()

    async def to_private(world: World, _vid: VolumeId) -> None:
        async with Node.open(world.store, name="main") as node:
            await node.ask(MOVE_LOG, MoveRequest(world.shared.raw, to="private"))

    await crashed("move: close written, open not", to_private, world)
    async with AsyncExitStack() as stack:
        nodes = [await stack.enter_async_context(Node.open(world.store)) for _ in range(processes)]
        request, segment = commit_of(world.shared, 1, NEW, client=ANN, page_size=PAGE)
        async with anyio.create_task_group() as tasks:
            for at in range(6):
                tasks.start_soon(nodes[at % processes].commit, request, segment)
    async with Node.open(world.store) as fresh:
        assert await pages_at(fresh, world.shared) == NEW
        assert (await fresh.ask(SNAPSHOT, SnapshotRequest(world.shared.raw))).log == str(world.shared)
        log = await fresh.logs.get(str(world.shared))
        assert log.reader.chain.next == 3  # the anchor, the open, the commit
