"""A volume moves while it is written and read: nobody meets an error, and its writers wait for a few requests, however
long its history (S1.23)."""

from __future__ import annotations

from typing import Any, cast

import anyio
import pytest
from anyio.lowlevel import checkpoint

from budwood.remote.moving import move_volume
from budwood.remote.routed import Routed
from budwood.server.metastore.move import MOST_BEHIND
from budwood.server.node import Node
from budwood.testing.commits import commit_of, pages_at
from budwood.testing.stores import MemoryStore, RiggedStore
from budwood.volume.calls import (
    CREATE,
    MOVE_LOG,
    PULL_COMMITS,
    READY,
    SNAPSHOT,
    TAKE_LOG,
    CreateRequest,
    LogName,
    MoveRequest,
    RangeRequest,
    SnapshotRequest,
)
from budwood.volume.entry import EpochRecord
from budwood.volume.errors import Busy, NotFound, NotOwner
from budwood.volume.ids import ClientId, VolumeId
from budwood.volume.owner import Liveness
from budwood.volume.protocols import Remote

from ..rolling import after_every

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]

PAGE = 512
ANN, BOB = ClientId.new(), ClientId.new()
ONE, TWO = "http://one", "http://two"


async def alive(_owner: EpochRecord) -> Liveness:
    return Liveness.ANSWERS


def through(home: Node, *others: Node) -> Routed:
    """A client that was given `home`, and follows a log to its owner."""
    nodes = {node.address: node for node in (home, *others)}

    async def nothing() -> None: ...

    return Routed(home, nodes.__getitem__, lambda refused: refused.owner, nothing)


async def born(node: Node) -> VolumeId:
    vid = VolumeId.new()
    await node.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
    return vid


async def put(remote: Node | Routed, vid: VolumeId, base: int, client: ClientId = ANN) -> int:
    pages = {1: page_of(base + 1)}
    return (await remote.commit(*commit_of(vid, base, pages, client=client, page_size=PAGE))).lsn


def page_of(lsn: int) -> bytes:
    return lsn.to_bytes(8, "big") * (PAGE // 8)


@pytest.fixture
def store() -> RiggedStore:
    return RiggedStore(MemoryStore())


@pytest.mark.parametrize("by", ["move", "takeover"])
async def test_a_writer_and_a_reader_go_on_while_their_volume_goes_from_node_to_node(
    store: RiggedStore, by: str
) -> None:
    async with (
        Node.open(store, name="one", address=ONE, probe_owner=alive) as one,
        Node.open(store, name="two", address=TWO, probe_owner=alive) as two,
    ):
        vid, done = await born(one), anyio.Event()
        written, reads, moves = 0, 0, 0

        async def write() -> None:
            nonlocal written
            remote = through(one, two)
            while not done.is_set():
                assert await put(remote, vid, written) == written + 1
                written += 1

        async def read() -> None:
            nonlocal reads
            remote, seen = through(one, two), 0
            while not done.is_set():
                known = written
                lsn = (await remote.ask(SNAPSHOT, SnapshotRequest(vid.raw, confirm=True))).lsn
                assert lsn >= max(seen, known), "what was acknowledged was read"
                seen = lsn
                assert await pages_at(remote, vid, lsn) == ({1: page_of(lsn)} if lsn else {})
                reads += 1

        async def move() -> None:
            nonlocal moves
            for to, node in (("two", two), ("one", one)) * 3:
                before = written
                while written < before + 5:
                    await checkpoint()
                if by == "move":
                    assert await move_volume(through(one, two), vid, to) == to
                else:
                    await node.ask(TAKE_LOG, LogName(log="one"))
                moves += 1
            before, seen = written, reads
            while written < before + 5 or reads < seen + 2:
                await checkpoint()
            done.set()

        async with anyio.create_task_group() as tasks:
            for work in (write, read, move):
                tasks.start_soon(work)
        assert moves == 6
        commits = (await one.ask(PULL_COMMITS, RangeRequest(vid.raw))).commits
        assert [info.lsn for info in commits] == list(range(1, written + 1))[: len(commits)]


async def paused(store: RiggedStore, commits: int, by: str) -> int:
    """How many requests are made from when nothing more is committed at the old owner to the first commit at the
    new."""
    async with (
        Node.open(store, name="one", address=ONE, probe_owner=alive) as one,
        Node.open(store, name="two", address=TWO, probe_owner=alive) as two,
    ):
        vid = await born(one)
        for base in range(commits):
            await put(one, vid, base, ClientId.new() if base % 50 == 0 else ANN)
        client = through(one, two)
        ready = (await client.ask(READY, MoveRequest(vid.raw, to="two"))).slot if by == "move" else 0
        store.requests.clear()
        if by == "move":
            request = MoveRequest(vid.raw, to="two", ready=ready)
            assert (await client.ask(MOVE_LOG, request)).log == "two"
        else:
            assert (await two.ask(TAKE_LOG, LogName(log="one"))).epoch == 2
        assert await put(through(two, one), vid, commits) == commits + 1
        keys = [(request.op, request.key) for request in store.requests]
        closed = next(at for at, (op, key) in enumerate(keys) if op == "create" and "/entries/" in key)
        return len(keys) - closed


@pytest.mark.parametrize(("by", "most"), [("move", 14), ("takeover", 3)])
async def test_writers_wait_for_as_few_requests_however_long_the_history_is(
    store: RiggedStore, monkeypatch: pytest.MonkeyPatch, by: str, most: int
) -> None:
    after_every(200, monkeypatch)
    short, long = await paused(store, 10, by), await paused(RiggedStore(MemoryStore()), 2100, by)
    assert short == long <= most


async def test_a_volume_is_closed_only_for_a_node_that_has_read_it(store: RiggedStore) -> None:
    async with (
        Node.open(store, name="one", address=ONE, probe_owner=alive) as one,
        Node.open(store, name="two", address=TWO, probe_owner=alive) as two,
    ):
        vid = await born(one)
        await put(one, vid, 0)
        with pytest.raises(NotOwner) as there:
            await one.ask(READY, MoveRequest(vid.raw, to="two"))
        assert there.value.owner == TWO
        with pytest.raises(NotFound, match="nobody"):
            await one.ask(READY, MoveRequest(vid.raw, to="nobody"))
        answer = await two.ask(READY, MoveRequest(vid.raw, to="two"))
        assert answer.log == "one"
        for base in range(1, MOST_BEHIND + 1):
            await put(one, vid, base)
        late = MoveRequest(vid.raw, to="two", ready=answer.slot)
        assert (await one.logs.get("one")).reader.chain.next == answer.slot + 1 + MOST_BEHIND
        await put(one, vid, MOST_BEHIND + 1)
        with pytest.raises(Busy, match=f"up to slot {answer.slot}"):
            await one.ask(MOVE_LOG, late)
        assert (await one.ask(SNAPSHOT, SnapshotRequest(vid.raw))).log == "one"
        assert await put(one, vid, MOST_BEHIND + 2) == MOST_BEHIND + 3, "nothing has changed"
        assert await move_volume(through(one, two), vid, "two") == "two"
        assert (await two.ask(READY, MoveRequest(vid.raw, to="two"))).log == "two", "harmless"


async def test_a_reader_at_the_old_owner_is_answered_until_that_learns_of_the_move(store: RiggedStore) -> None:
    async with (
        Node.open(store, name="one", address=ONE, probe_owner=alive) as one,
        Node.open(store, name="two", address=TWO, probe_owner=alive) as two,
    ):
        vid = await born(one)
        await put(one, vid, 0)
        ready = (await two.ask(READY, MoveRequest(vid.raw, to="two"))).slot
        with pytest.raises(NotOwner):
            await one.ask(MOVE_LOG, MoveRequest(vid.raw, to="two", ready=ready))
        assert (await one.ask(SNAPSHOT, SnapshotRequest(vid.raw))).lsn == 1, "between the two logs"
        assert await put(through(one, two), vid, 1) == 2, "the next writer has it opened"
        assert (await one.ask(SNAPSHOT, SnapshotRequest(vid.raw))).lsn == 2
        assert await pages_at(one, vid, 2) == {1: page_of(2)}


async def test_a_node_that_fell_behind_is_asked_again(store: RiggedStore) -> None:
    """While others of the same log commit as fast as they can."""
    async with (
        Node.open(store, name="one", address=ONE, probe_owner=alive) as one,
        Node.open(store, name="two", address=TWO, probe_owner=alive) as two,
    ):
        vid, other = await born(one), await born(one)
        await put(one, vid, 0)
        client, asked = through(one, two), 0

        class Slow:
            url = ONE

            async def ask(self, call: Any, request: Any) -> Any:
                nonlocal asked
                answer = await client.ask(call, request)
                if call is READY:
                    asked += 1
                    for base in range(MOST_BEHIND + 1 if asked < 3 else 0):
                        await put(one, other, base + (asked - 1) * (MOST_BEHIND + 1))
                return answer

        assert await move_volume(cast("Remote", Slow()), vid, "two") == "two"
        assert asked == 3
        assert await put(client, vid, 1) == 2
