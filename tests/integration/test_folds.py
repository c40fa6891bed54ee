"""Folds of one volume: what they cost, what they leave, and what they refuse. What reads as it did: tests/property/
test_fold_machine.py; crashes: tests/fault/test_fold_killed.py."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio
import pytest

from budwood.server.metastore.folded import Folded
from budwood.server.metastore.open_volume import Volume
from budwood.server.node import Node
from budwood.server.store.tree_nodes import loading
from budwood.server.upkeep.checkpoint_builder import MOST_DEAD, MOST_IN_A_TIER
from budwood.server.upkeep.fold import Done
from budwood.testing.commits import commit_of, pages_at
from budwood.testing.stores import MemoryStore, RiggedStore, Rule
from budwood.volume.calls import (
    ADVANCE,
    CREATE,
    OUTCOME,
    PIN,
    SNAPSHOT,
    CreateRequest,
    OutcomeRequest,
    PinRequest,
    SinceRequest,
    SnapshotRequest,
)
from budwood.volume.checkpoint import FoldedSegment, deadlist_key, parse_deadlist
from budwood.volume.entry import entry_key
from budwood.volume.errors import Conflict, Corrupt, Forgotten, OutcomeUnknown
from budwood.volume.ids import ClientId, PinId, VolumeId
from budwood.volume.setsum import EMPTY_SUM
from budwood.volume.wire import CommitRequest

from ..reread import reread
from ..rolling import hasty, memory

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]

PAGE = 512
WIDTH = 64
ANN, BOB = ClientId.new(), ClientId.new()


@pytest.fixture
def store() -> RiggedStore:
    return RiggedStore(MemoryStore())


@pytest.fixture
async def node(store: RiggedStore) -> AsyncIterator[Node]:
    async with Node.open(store, patience=hasty()) as node:
        yield node


@pytest.fixture
async def vid(node: Node) -> VolumeId:
    vid = VolumeId.new()
    await node.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
    return vid


async def commit(node: Node, vid: VolumeId, head: int, pages: dict[int, bytes], *, apart: bool = False) -> None:
    request, segment = commit_of(vid, head, pages, client=ANN, page_size=PAGE, length=WIDTH * PAGE)
    if apart:
        locations = (await node.write_pages(vid, segment),)
        request, segment = commit_of(
            vid, head, pages, client=ANN, page_size=PAGE, length=WIDTH * PAGE, locations=locations
        )
    assert (await node.commit(request, segment)).lsn == head + 1


def page(number: int) -> bytes:
    return b"%8d" % number * (PAGE // 8)


async def write(node: Node, vid: VolumeId, number: int) -> None:
    """So many commits, of one page each."""
    head = (await node.ask(SNAPSHOT, SnapshotRequest(vid.raw))).lsn
    for lsn in range(head + 1, head + number + 1):
        await commit(node, vid, lsn - 1, {lsn * 37 % WIDTH + 1: page(lsn)})


async def fold(node: Node, vid: VolumeId) -> Done | None:
    """Up to the newest LSN, which stays the oldest that can be read."""
    head = (await node.ask(SNAPSHOT, SnapshotRequest(vid.raw))).lsn
    await node.ask(ADVANCE, SinceRequest(vid.raw, since=head))
    return await node.folder.fold(vid)


async def segments(node: Node, vid: VolumeId) -> list[FoldedSegment]:
    folded = (await node.volumes.get(vid)).history.folding
    assert isinstance(folded, Folded)
    return list((await loading(folded.segments)).values())


async def test_of_two_folds_at_once_one_counts(store: RiggedStore, node: Node, vid: VolumeId) -> None:
    """S0.37, S1.5: whoever makes them, and however far the other has come."""
    await write(node, vid, 6)
    async with Node.open(store, patience=hasty()) as other:
        done: list[Done | None] = []
        refused: list[Conflict] = []

        async def one(by: Node) -> None:
            try:
                done.append(await fold(by, vid))
            except Conflict as error:
                refused.append(error)

        for turn in range(5):
            before = await pages_at(node, vid)
            done.clear()
            refused.clear()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(one, node)
                tasks.start_soon(one, other)
            assert len([each for each in done if each]) == 1
            assert len(done) + len(refused) == 2
            assert await pages_at(other, vid) == before
            await write(node, vid, turn + 1)
    await reread(dict(memory(store).objects))


async def test_a_fold_that_another_of_its_own_node_has_overtaken_is_told_so(
    store: RiggedStore, node: Node, vid: VolumeId
) -> None:
    """And not that anything is damaged, though the commits that it was to read have left the log."""
    await write(node, vid, 6)
    await node.ask(PIN, PinRequest(vid.raw, lsn=2, pin=PinId.new().raw, seconds=0))
    slow = store.add(Rule(op="list", key="*/epochs/", gate=anyio.Event()))
    refused: list[Conflict] = []

    async def overtaken() -> None:
        with pytest.raises(Conflict, match="was folded by another meanwhile") as caught:
            await fold(node, vid)
        refused.append(caught.value)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(overtaken)
        await slow.reached.wait()
        assert await fold(node, vid)
        assert slow.gate is not None
        slow.gate.set()
    assert len(refused) == 1
    await reread(dict(memory(store).objects))


async def test_little_is_kept_that_nobody_reads_in_few_segments(node: Node, vid: VolumeId) -> None:
    """S3.29: of pages, and of objects."""
    await commit(node, vid, 0, {at: page(at) for at in range(1, WIDTH + 1)})
    for _ in range(20):
        await write(node, vid, 15)
        assert await fold(node, vid)
        stands = await segments(node, vid)
        stored, live = sum(each.pages for each in stands), sum(each.live for each in stands)
        assert live == WIDTH
        assert stored - live <= MOST_DEAD * stored
        assert len(stands) <= 3 * MOST_IN_A_TIER


async def test_small_segments_are_put_together(node: Node, vid: VolumeId) -> None:
    """S3.29: though each page in them is read."""
    for lsn in range(1, WIDTH + 1):
        await commit(node, vid, lsn - 1, {lsn: page(lsn)})
        if lsn > 1:
            assert await fold(node, vid)
            # Of 64 pages there are three tiers.
            assert len(await segments(node, vid)) <= 2 * MOST_IN_A_TIER
    assert await pages_at(node, vid) == {at: page(at) for at in range(1, WIDTH + 1)}


async def test_fragments_stay_where_they_are(node: Node, vid: VolumeId) -> None:
    await commit(node, vid, 0, {at: page(at) for at in range(1, 41)}, apart=True)
    await commit(node, vid, 1, {1: page(100)})
    done = await fold(node, vid)
    assert done is not None
    assert done.copied_pages == 1
    assert sorted(each.pages for each in await segments(node, vid)) == [1, 40]


async def test_a_deadlist_names_what_the_checkpoint_before_needed_alone(
    store: RiggedStore, node: Node, vid: VolumeId
) -> None:
    """S1.4, S1.14, S1.15: written once, before the grant, and nothing that stands leads to what is on it."""
    await commit(node, vid, 0, {at: page(at) for at in range(1, 9)}, apart=True)
    (first,) = [key for key in memory(store).objects if "/t/" in key]
    dead: set[str] = set()
    for turn in range(4):
        await write(node, vid, 3)
        # All of it anew: nothing of before is read any more.
        await commit(node, vid, 4 * turn + 4, {at: page(1000 * turn + at) for at in range(1, WIDTH + 1)})
        done = await fold(node, vid)
        assert done is not None
        deadlist = parse_deadlist(done.fold, memory(store).objects[deadlist_key(done.fold.checkpoint)])
        assert not dead & {each.object for each in await segments(node, vid)}
        assert not dead & set(deadlist.objects), "it was named before"
        dead |= set(deadlist.objects)
        assert first in dead
    assert dead <= memory(store).objects.keys()
    for key in dead:
        del memory(store).objects[key]
    async with Node.open(store, patience=hasty()) as fresh:
        assert await pages_at(fresh, vid) == {at: page(3000 + at) for at in range(1, WIDTH + 1)}


async def test_what_has_nothing_to_be_folded_costs_no_write(store: RiggedStore, node: Node, vid: VolumeId) -> None:
    """DESIGN §9.7."""
    for _ in range(2):
        before = set(memory(store).objects)
        assert await node.folder.fold(vid) is None
        assert set(memory(store).objects) == before
        await write(node, vid, 3)


async def test_a_commit_that_is_not_what_it_was_admitted_as_is_not_folded(
    store: RiggedStore, node: Node, vid: VolumeId
) -> None:
    """DESIGN §8: by its item hashes where it is superseded, and by its bytes where it is copied."""
    await write(node, vid, 4)
    entry = entry_key(str(vid), 3)
    data = memory(store).objects[entry]
    at = data.index(page(3)[:8]) if page(3)[:8] in data else len(data) - 200
    memory(store).objects[entry] = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
    async with Node.open(store, patience=hasty()) as fresh:
        with pytest.raises(Corrupt) as found:
            await fold(fresh, vid)
        assert found.value.key == entry
        assert (await fresh.volumes.get(vid)).history.folding is None
    memory(store).objects[entry] = data
    async with Node.open(store, patience=hasty()) as fresh:
        assert await fold(fresh, vid)


async def test_a_commit_whose_pages_are_not_its_sum_is_not_folded(node: Node, vid: VolumeId) -> None:
    """DESIGN §8: each segment may be whole, and yet not be what was admitted."""
    await write(node, vid, 3)
    (await node.volumes.get(vid)).history.at(2).setsum = EMPTY_SUM
    with pytest.raises(Corrupt, match="don't add up to the sum of the commit that made LSN 2") as found:
        await fold(node, vid)
    assert found.value.key == entry_key(str(vid), 2)


async def test_who_committed_what_was_folded_is_told_so(store: RiggedStore, node: Node, vid: VolumeId) -> None:
    """However long its answer was lost: that it had landed was denied, and an edge took that for a divergence."""
    request, segment = commit_of(vid, 0, {1: page(0)}, client=BOB, page_size=PAGE, length=WIDTH * PAGE)
    landed = await node.commit(request, segment)
    await write(node, vid, 5)
    assert await fold(node, vid)
    asked = OutcomeRequest(vid.raw, client=BOB.raw, token=request.token, base=0)
    async with Node.open(store, patience=hasty()) as fresh:
        for each in (node, fresh):
            outcome = await each.ask(OUTCOME, asked)
            assert (outcome.lsn, outcome.time, outcome.head) == (1, landed.time, 6)
            assert await each.commit(request, segment) == landed


async def test_an_ephemeral_client_is_remembered_by_its_commits_alone(
    store: RiggedStore, node: Node, vid: VolumeId
) -> None:
    """Nothing of it grows with how many there are; and where its commit may have been folded, nobody denies it."""
    clients = [ClientId.ephemeral() for _ in range(20)]
    requests = list[CommitRequest]()
    for base, client in enumerate(clients):
        request, segment = commit_of(vid, base, {1: page(base)}, client=client, page_size=PAGE, length=WIDTH * PAGE)
        requests.append(request)
        await node.commit(request, segment)
        assert (await node.commit(request, segment)).lsn == base + 1
    await commit(node, vid, len(clients), {2: page(2)})
    async with Node.open(store, patience=hasty()) as fresh:
        for each in (node, fresh):
            assert await clients_of(await each.volumes.get(vid)) == [ANN.raw]
            for base, request in enumerate(requests):
                assert (await each.ask(OUTCOME, outcome_of(request))).lsn == base + 1
            unsent = OutcomeRequest(vid.raw, client=clients[0].raw, token=bytes(32), base=3)
            assert (await each.ask(OUTCOME, unsent)).lsn == 0
        assert await fold(node, vid)
        for request in requests:
            with pytest.raises(OutcomeUnknown, match="look whether it is there"):
                await node.ask(OUTCOME, outcome_of(request))
        head = len(clients) + 1
        unsent = OutcomeRequest(vid.raw, client=clients[0].raw, token=bytes(32), base=head)
        assert (await node.ask(OUTCOME, unsent)).lsn == 0
    await reread(dict(memory(store).objects))


async def clients_of(volume: Volume) -> list[bytes]:
    """Those that it remembers."""
    return await loading(lambda: [client for client, _ in volume.state.clients.items()])


def outcome_of(request: CommitRequest) -> OutcomeRequest:
    return OutcomeRequest(request.vid, client=request.client, token=request.token, base=request.base)


async def test_what_was_folded_is_forgotten_in_words(node: Node, vid: VolumeId) -> None:
    """S2.14: by LSN, and by a time that lies before."""
    await write(node, vid, 5)
    first = await node.ask(SNAPSHOT, SnapshotRequest(vid.raw, lsn=1))
    assert await fold(node, vid)
    for request in (SnapshotRequest(vid.raw, lsn=1), SnapshotRequest(vid.raw, at_ms=first.time)):
        with pytest.raises(Forgotten):
            await node.ask(SNAPSHOT, request)
    assert (await node.ask(SNAPSHOT, SnapshotRequest(vid.raw, at_ms=first.time + 10**9))).lsn == 5
