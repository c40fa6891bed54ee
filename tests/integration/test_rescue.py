"""A volume is brought out of the log of an owner that can't be reached, and no other volume of that log feels it: not
even if the owner lives (S1.23)."""

from __future__ import annotations

from collections import defaultdict

import anyio
import pytest
from anyio.lowlevel import checkpoint

from budwood.server.log.waiting import Batching
from budwood.server.node import Node
from budwood.server.upkeep.scrub import open_scrub
from budwood.testing.commits import commit_of, pages_at
from budwood.testing.stores import MemoryStore, RiggedStore, Rule
from budwood.volume.calls import (
    CREATE,
    HELLO,
    MOVE_LOG,
    PULL_COMMITS,
    SNAPSHOT,
    CreateRequest,
    Done,
    MoveRequest,
    RangeRequest,
    SnapshotRequest,
)
from budwood.volume.entry import EpochRecord
from budwood.volume.errors import Conflict, NotFound, NotOwner
from budwood.volume.ids import ClientId, VolumeId
from budwood.volume.owner import Liveness

from ..damage import Heard
from ..rolling import roll_up
from ..second_reader import Store as SecondReader

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]

PAGE = 512
ANN, BOB = ClientId.new(), ClientId.new()


async def unknown(_owner: EpochRecord) -> Liveness:
    return Liveness.UNKNOWN


async def alive(_owner: EpochRecord) -> Liveness:
    return Liveness.ANSWERS


async def born(node: Node) -> VolumeId:
    vid = VolumeId.new()
    await node.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
    return vid


async def put(node: Node, vid: VolumeId, base: int, letter: bytes = b"a", client: ClientId = ANN) -> int:
    return (await node.commit(*commit_of(vid, base, {1: letter * PAGE}, client=client, page_size=PAGE))).lsn


async def rescue(node: Node, vid: VolumeId, to: str) -> str:
    return (await node.ask(MOVE_LOG, MoveRequest(vid.raw, to=to, takeover=True))).log


async def whole(store: RiggedStore) -> None:
    """By a scrub, and by a reader that shares no code."""
    memory, heard = store.inner, Heard()
    assert isinstance(memory, MemoryStore)
    SecondReader(memory.objects).check()
    async with open_scrub(store, heard) as scrub:
        await scrub.run()
    assert heard.findings == []


@pytest.fixture
def store() -> RiggedStore:
    return RiggedStore(MemoryStore())


@pytest.mark.parametrize("to", ["two", "private"])
async def test_one_volume_goes_and_the_owner_serves_the_others_under_the_same_epoch(
    store: RiggedStore, to: str
) -> None:
    async with (
        Node.open(store, name="one", address="http://one", probe_owner=alive) as one,
        Node.open(store, name="two", address="http://two", probe_owner=unknown) as two,
    ):
        urgent, other = await born(one), await born(one)
        assert await put(one, urgent, 0) == await put(one, other, 0) == 1
        assert await rescue(two, urgent, to) == (str(urgent) if to == "private" else "two")
        assert await put(two, urgent, 1, b"b") == 2
        assert await put(one, other, 1) == 2, "it has not noticed"
        assert (await one.ask(HELLO, Done())).epoch == 1, "nobody has fenced it"
        if to == "two":
            with pytest.raises(NotOwner) as lost:
                await put(one, urgent, 2)
            assert lost.value.owner == "http://two"
        else:
            assert await put(one, urgent, 2, b"c") == 3
        for node in (one, two):
            assert await pages_at(node, urgent, 2) == {1: b"b" * PAGE}
        assert await rescue(two, urgent, to) == (str(urgent) if to == "private" else "two"), "again changes nothing"
        await roll_up(one, "one")
        assert await put(one, other, 2) == 3, "and names what it has rolled up"
        async with Node.open(store) as fresh:
            assert await pages_at(fresh, other) == {1: b"a" * PAGE}
            assert (await fresh.ask(SNAPSHOT, SnapshotRequest(urgent.raw))).lsn == (2 if to == "two" else 3)
        await whole(store)


async def test_an_owner_that_has_not_noticed_never_acknowledges_a_commit_of_that_volume(store: RiggedStore) -> None:
    async with (
        Node.open(store, name="one", address="http://one", probe_owner=alive) as one,
        Node.open(store, name="two", address="http://two", probe_owner=unknown) as two,
    ):
        urgent, other = await born(one), await born(one)
        await put(one, urgent, 0)
        await rescue(two, urgent, "two")
        assert (await one.ask(SNAPSHOT, SnapshotRequest(urgent.raw))).lsn == 1
        with pytest.raises(NotOwner) as lost:
            await put(one, urgent, 1)
        assert lost.value.owner == "http://two"
        assert await put(one, other, 0) == 1
        assert await put(two, urgent, 1, b"b") == 2
        await whole(store)


async def test_an_owner_that_answers_is_asked_and_not_gone_round(store: RiggedStore) -> None:
    async with (
        Node.open(store, name="one", address="http://one", probe_owner=alive) as one,
        Node.open(store, name="two", address="http://two", probe_owner=alive) as two,
    ):
        vid = await born(one)
        with pytest.raises(NotOwner) as there:
            await rescue(two, vid, "private")
        assert there.value.owner == "http://one"
        with pytest.raises(NotFound, match="nobody"):
            await rescue(two, vid, "nobody")
        assert await put(one, vid, 0) == 1


async def rescued_at(nth: int) -> bool:
    """The owner has several entries in flight, of which the nth is held up until a guest has taken a volume out. False
    if there were fewer."""
    store = RiggedStore(MemoryStore())
    async with (
        Node.open(
            store, name="one", address="http://one", probe_owner=alive, batching=Batching(alpha=4, window_seconds=0.0)
        ) as one,
        Node.open(store, name="two", address="http://two", probe_owner=unknown) as two,
    ):
        volumes = [await born(one) for _ in range(4)]
        for vid in volumes:
            await put(one, vid, 0)
        urgent, acknowledged = volumes[0], defaultdict[VolumeId, list[int]](list)
        gate = store.add(Rule(op="create", key="logs/one/entries/*", nth=nth, gate=anyio.Event()))

        async def write(vid: VolumeId) -> None:
            for base in range(1, 7):
                try:
                    acknowledged[vid].append(await put(one, vid, base, bytes([base])))
                except (NotOwner, Conflict):
                    assert vid == urgent
                    return

        async def come_between() -> None:
            while not gate.fired:
                if sum(map(len, acknowledged.values())) >= 18 and all(len(acknowledged[v]) == 6 for v in volumes[1:]):
                    return
                await checkpoint()
            assert await rescue(two, urgent, "two") == "two"
            head = (await two.ask(SNAPSHOT, SnapshotRequest(urgent.raw))).lsn
            assert await put(two, urgent, head, b"!", BOB) == head + 1
            acknowledged[urgent].append(head + 1)
            assert gate.gate is not None
            gate.gate.set()

        async with anyio.create_task_group() as tasks:
            for vid in volumes:
                tasks.start_soon(write, vid)
            tasks.start_soon(come_between)
        for vid in volumes[1:]:
            assert acknowledged[vid] == [2, 3, 4, 5, 6, 7], "nothing but a slot was lost to the others"
        if gate.fired:
            lsns = acknowledged[urgent]
            assert len(set(lsns)) == len(lsns), "no LSN was acknowledged twice"
            head = (await two.ask(SNAPSHOT, SnapshotRequest(urgent.raw, confirm=True))).lsn
            assert max(lsns) == head
            assert set(lsns) <= set(range(2, head + 1))
            assert (await one.ask(HELLO, Done())).epoch == 1
            commits = (await one.ask(PULL_COMMITS, RangeRequest(urgent.raw))).commits
            assert [info.lsn for info in commits] == list(range(1, head + 1))
        await whole(store)
        return bool(gate.fired)


async def test_whatever_the_owner_has_in_flight_what_it_acknowledged_stands_and_once() -> None:
    nth = 1
    while await rescued_at(nth):
        nth += 1
    assert nth > 5
