"""Who may append to a log: owners, fences, zombies, restarts, and moves of a volume between logs."""

from __future__ import annotations

import os

import anyio
import msgspec
import pytest
from anyio.lowlevel import checkpoint

from budwood.server.log.term import read_epoch
from budwood.server.node import Node
from budwood.server.store.retrying import Patience
from budwood.testing.clock import ManualClock
from budwood.testing.commits import commit_of, pages_at
from budwood.testing.stores import MemoryStore, RiggedStore, Rule
from budwood.volume.calls import (
    CREATE,
    HELLO,
    MOVE_LOG,
    OUTCOME,
    PULL_CHANGES,
    PULL_COMMITS,
    READY,
    SNAPSHOT,
    CreateRequest,
    Done,
    MoveRequest,
    OutcomeRequest,
    RangeRequest,
    SnapshotRequest,
)
from budwood.volume.entry import EpochRecord, entry_key, seal_entry
from budwood.volume.errors import (
    BadInput,
    BudwoodError,
    Busy,
    Conflict,
    Corrupt,
    NotFound,
    NotOwner,
    PagesNotHere,
    Unavailable,
)
from budwood.volume.ids import ClientId, VolumeId
from budwood.volume.owner import Liveness
from budwood.volume.wire import Committed

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]

PAGE = 512
ANN = ClientId.new()


def page(letter: str) -> bytes:
    return letter.encode() * PAGE


@pytest.fixture
def store() -> RiggedStore:
    return RiggedStore(MemoryStore())


async def everybody_is_alive(_owner: EpochRecord) -> Liveness:
    return Liveness.ANSWERS


async def put(node: Node, vid: VolumeId, base: int, letter: str) -> Committed:
    return await node.commit(*commit_of(vid, base, {1: page(letter)}, client=ANN, page_size=PAGE))


async def born(node: Node) -> VolumeId:
    vid = VolumeId.new()
    await node.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
    return vid


async def lost_to(node: Node, vid: VolumeId, base: int) -> NotOwner:
    with pytest.raises(NotOwner) as error:
        await put(node, vid, base, "!")
    return error.value


def hasty() -> Patience:
    clock = ManualClock(jumps=True)
    return Patience(deadline_seconds=5, now=clock.now, sleep=clock.sleep)


async def test_a_restart_takes_a_new_epoch_and_keeps_what_was_acknowledged(store: RiggedStore) -> None:
    """S0.28."""
    async with Node.open(store, name="main", address="http://one") as node:
        vid = await born(node)
        await put(node, vid, 0, "a")
        assert (await node.ask(HELLO, Done())).epoch == 1
    async with Node.open(store, name="main", address="http://two") as node:
        assert (await node.ask(HELLO, Done())).epoch == 2
        assert (await put(node, vid, 1, "b")).lsn == 2
        assert await pages_at(node, vid, 1) == {1: page("a")}
        assert await pages_at(node, vid) == {1: page("b")}
    assert (await read_epoch(store, "main", 2)).address == "http://two"


async def test_a_node_does_not_take_the_log_of_a_living_one(store: RiggedStore) -> None:
    async with Node.open(store, name="main", address="http://one") as first:
        vid = await born(first)
        with pytest.raises(NotOwner, match="http://one") as refused:
            async with Node.open(store, name="main", address="http://two", probe_owner=everybody_is_alive):
                pass
        assert refused.value.owner == "http://one"
        assert (await put(first, vid, 0, "a")).lsn == 1


async def test_a_deposed_owner_never_acknowledges_and_says_who_owns_the_log_now(store: RiggedStore) -> None:
    """S0.29, S1.1, S1.2: no clock and no failure detector; its next entry is void or has no slot."""
    async with (
        Node.open(store, name="main", address="http://old", probe_owner=everybody_is_alive) as old,
        Node.open(store, name="main", address="http://new") as new,
    ):
        vid = await born(new)
        await put(new, vid, 0, "a")
        for _ in range(2):
            error = await lost_to(old, vid, 0)
            assert (error.owner, error.log) == ("http://new", "main")
        assert (await old.ask(SNAPSHOT, SnapshotRequest(vid.raw))).lsn == 1
        assert (await put(new, vid, 1, "b")).lsn == 2
        assert await pages_at(old, vid) == {1: page("b")}


async def test_an_owner_whose_deposer_is_gone_has_its_log_again_by_its_next_write(store: RiggedStore) -> None:
    async with Node.open(store, name="main", address="http://old") as old:
        vid = await born(old)
        await put(old, vid, 0, "a")
        async with Node.open(store, name="main", address="http://new") as new:
            await put(new, vid, 1, "b")
        assert (await put(old, vid, 2, "c")).lsn == 3
        assert (await old.ask(HELLO, Done())).epoch == 3
        assert await pages_at(old, vid) == {1: page("c")}


async def test_a_deposed_owner_that_is_asked_for_more_than_it_knows_looks_again(store: RiggedStore) -> None:
    """Rule 7: what an edge has seen elsewhere is not denied."""
    async with Node.open(store, name="main") as old:
        vid = await born(old)
        await put(old, vid, 0, "a")
        async with Node.open(store, name="main") as new:
            await put(new, vid, 1, "b")
            await put(new, vid, 2, "c")
            assert (await old.ask(PULL_CHANGES, RangeRequest(vid.raw, after=2))).snapshot.lsn == 3
            assert [commit.lsn for commit in (await old.ask(PULL_COMMITS, RangeRequest(vid.raw, after=2))).commits] == [
                3
            ]


async def test_a_new_owner_has_deposed_the_old_one_before_it_answers_anything(store: RiggedStore) -> None:
    """Rule 2: without the fence the old one would acknowledge what the new one, who need not look, doesn't know."""
    async with Node.open(store, name="main", probe_owner=everybody_is_alive) as old:
        vid = await born(old)
        async with Node.open(store, name="main") as new:
            await lost_to(old, vid, 0)
            assert (await new.ask(SNAPSHOT, SnapshotRequest(vid.raw))).lsn == 0


async def test_an_entry_that_was_under_way_when_the_fence_came_is_lost(
    store: RiggedStore,
) -> None:
    """The mutant `fence skipped` would let both owners acknowledge LSN 2."""
    async with Node.open(store, name="main", address="http://old", probe_owner=everybody_is_alive) as old:
        vid = await born(old)
        await put(old, vid, 0, "a")
        gate = store.add(Rule(op="create", key="logs/main/entries/*", gate=anyio.Event()))
        outcome: list[BudwoodError | Committed] = []

        async def commit() -> None:
            try:
                outcome.append(await put(old, vid, 1, "z"))
            except NotOwner as error:
                outcome.append(error)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(commit)
            await gate.reached.wait()
            async with Node.open(store, name="main", address="http://new") as new:
                assert (await put(new, vid, 1, "b")).lsn == 2
                assert not outcome
                assert gate.gate is not None
                gate.gate.set()
                while not outcome:
                    await checkpoint()
                assert isinstance(outcome[0], NotOwner)
                assert outcome[0].owner == "http://new"
                assert await pages_at(new, vid) == {1: page("b")}
                assert [info.lsn for info in (await old.ask(PULL_COMMITS, RangeRequest(vid.raw))).commits] == [
                    1,
                    2,
                ]


async def test_a_zombies_entry_behind_the_fence_is_void_for_everyone(store: RiggedStore) -> None:
    """C3: even one that finds a free slot, as a slow network might bring it there."""
    async with Node.open(store, name="main") as old, Node.open(store, name="main") as new:
        vid = await born(new)
        await put(new, vid, 0, "a")
        before, now = (await old.logs.get("main")).reader.chain, (await new.logs.get("main")).reader.chain
        header = before.header(epoch=1, writer=before.writer, kind="data")
        late = seal_entry(msgspec.structs.replace(header, i=now.next))
        await store.create(entry_key("main", now.next), late)
        assert (await put(new, vid, 1, "b")).lsn == 2
        async with Node.open(store) as reader:
            assert await pages_at(reader, vid) == {1: page("b")}
            assert (await reader.logs.get("main")).reader.chain == (await new.logs.get("main")).reader.chain


async def test_an_owner_that_was_fenced_between_two_looks_serves_the_new_owners_commits_when_asked_to_confirm(
    store: RiggedStore,
) -> None:
    """Rule 7: `latest` may be stale on a deposed owner; `latest(confirm)` looks first."""
    async with Node.open(store, name="main") as old:
        vid = await born(old)
        await put(old, vid, 0, "a")
        async with Node.open(store, name="main") as new:
            await put(new, vid, 1, "b")
            assert (await old.ask(SNAPSHOT, SnapshotRequest(vid.raw))).lsn == 1
            assert (await old.ask(SNAPSHOT, SnapshotRequest(vid.raw, confirm=True))).lsn == 2
            assert (await old.ask(SNAPSHOT, SnapshotRequest(vid.raw))).lsn == 2


async def test_an_owner_that_hears_of_a_newer_lsn_looks_before_it_denies_it(store: RiggedStore) -> None:
    async with Node.open(store, name="main") as old, Node.open(store, name="main") as new:
        vid = await born(new)
        await put(new, vid, 0, "a")
        assert (await old.ask(SNAPSHOT, SnapshotRequest(vid.raw, lsn=1))).lsn == 1


async def test_two_owners_that_share_an_epoch_stop(store: RiggedStore) -> None:
    """S0.28: it can't happen through the epochs' objects, so it is a bug and not a race."""
    async with Node.open(store, name="main") as node:
        vid = await born(node)
        log = await node.logs.get("main")
        assert log.writer is not None
        header = log.reader.chain.header(epoch=1, writer=b"someone else", kind="data")
        await store.create(entry_key("main", log.reader.chain.next), seal_entry(header))
        for _ in range(2):
            with pytest.raises(Corrupt, match="two writers share epoch 1"):
                await put(node, vid, 0, "a")


async def test_fragments_of_an_earlier_epoch_are_asked_for_again(store: RiggedStore) -> None:
    """Rule 10."""
    async with Node.open(store, name="main") as node:
        vid = await born(node)
        _, segment = commit_of(vid, 0, {1: page("a")}, client=ANN, page_size=PAGE)
        location = await node.write_pages(vid, segment)
    async with Node.open(store, name="main") as node:
        old, _ = commit_of(vid, 0, {1: page("a")}, client=ANN, page_size=PAGE, locations=(location,))
        with pytest.raises(PagesNotHere):
            await node.commit(old)
        again = await node.write_pages(vid, segment)
        fresh, _ = commit_of(vid, 0, {1: page("a")}, client=ANN, page_size=PAGE, locations=(again,))
        assert (await node.commit(fresh)).lsn == 1


async def test_an_embedded_process_reads_every_log_and_writes_private_ones_only(store: RiggedStore) -> None:
    async with Node.open(store, name="main", address="http://main") as node, Node.open(store) as embedded:
        shared, private = await born(node), await born(embedded)
        await put(node, shared, 0, "a")
        await put(embedded, private, 0, "b")
        assert await pages_at(embedded, shared) == {1: page("a")}
        assert await pages_at(node, private) == {1: page("b")}
        error = await lost_to(embedded, shared, 1)
        assert (error.owner, error.log) == ("http://main", "main")
        assert (await put(node, private, 1, "c")).lsn == 2
        assert (await put(embedded, private, 2, "d")).lsn == 3
        assert (await embedded.ask(HELLO, Done())).log == ""
        assert (await embedded.ask(SNAPSHOT, SnapshotRequest(shared.raw))).log == "main"


async def test_many_embedded_processes_and_a_node_lose_nothing(
    store: RiggedStore,
) -> None:
    """S0.2, S1.25: retried until landed; every LSN landed once."""
    async with Node.open(store, name="main", address="http://main") as node:
        shared, private = await born(node), VolumeId.new()
        async with Node.open(store) as maker:
            await maker.ask(CREATE, CreateRequest(private.raw, page_size=PAGE))
        landed: dict[VolumeId, list[int]] = {shared: [], private: []}

        async def increment(own: Node, vid: VolumeId, times: int) -> None:
            base = 0
            while times:
                try:
                    base = (await put(own, vid, base, "x")).lsn
                except Conflict as error:
                    base = error.head
                else:
                    landed[vid].append(base)
                    times -= 1

        async def embedded() -> None:
            async with Node.open(store) as own:
                await increment(own, private, 10)

        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(embedded)
                tasks.start_soon(increment, node, shared, 10)
            tasks.start_soon(increment, node, private, 10)
    assert sorted(landed[shared]) == list(range(1, 31))
    assert sorted(landed[private]) == list(range(1, 41))


async def test_a_volume_moves_to_a_node_and_back_and_keeps_its_history(store: RiggedStore) -> None:
    """Readers follow the closes, writers are sent on."""
    async with Node.open(store, name="main", address="http://main") as node, Node.open(store) as embedded:
        vid = await born(embedded)
        await put(embedded, vid, 0, "a")
        assert await pages_at(node, vid) == {1: page("a")}
        assert (await node.ask(MOVE_LOG, MoveRequest(vid.raw, to="main"))).log == "main"
        assert (await node.ask(MOVE_LOG, MoveRequest(vid.raw, to="main"))).log == "main"
        assert (await lost_to(embedded, vid, 1)).owner == "http://main"
        await put(node, vid, 1, "b")
        assert (await embedded.ask(SNAPSHOT, SnapshotRequest(vid.raw))).lsn == 2
        assert (await node.ask(MOVE_LOG, MoveRequest(vid.raw, to="private"))).log == str(vid)
        await put(embedded, vid, 2, "c")
        await node.ask(MOVE_LOG, MoveRequest(vid.raw, to="main"))
        await put(node, vid, 3, "d")
        async with Node.open(store) as fresh:
            for reader in (node, embedded, fresh):
                assert [await pages_at(reader, vid, lsn) for lsn in (1, 2, 3, 4)] == [{1: page(x)} for x in "abcd"]
                assert [info.lsn for info in (await reader.ask(PULL_COMMITS, RangeRequest(vid.raw))).commits] == [
                    1,
                    2,
                    3,
                    4,
                ]
                assert (await reader.ask(SNAPSHOT, SnapshotRequest(vid.raw))).log == "main"


async def test_a_repeated_commit_is_known_after_its_volume_has_moved(store: RiggedStore) -> None:
    async with Node.open(store, name="main") as node, Node.open(store) as embedded:
        vid = await born(embedded)
        request, segment = commit_of(vid, 0, {1: page("a")}, client=ANN, page_size=PAGE)
        await embedded.commit(request, segment)
        await node.ask(MOVE_LOG, MoveRequest(vid.raw, to="main"))
        async with Node.open(store, name="other") as other:
            assert (await node.commit(request, segment)).lsn == 1
            assert (
                await other.ask(OUTCOME, OutcomeRequest(vid.raw, client=request.client, token=request.token))
            ).lsn == 1


async def test_a_commit_that_was_on_its_way_to_the_old_log_lands_in_the_new_one(store: RiggedStore) -> None:
    """A record must never reach a log that its stream has left."""
    async with Node.open(store, name="main") as node, Node.open(store) as embedded:
        vid = await born(embedded)
        await put(embedded, vid, 0, "a")
        await put(node, vid, 1, "b")
        gate = store.add(Rule(op="create", key=f"logs/{vid}/*", gate=anyio.Event()))
        landed: list[int] = []

        async def commit(base: int, letter: str) -> None:
            landed.append((await put(node, vid, base, letter)).lsn)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(commit, 2, "c")
            await gate.reached.wait()
            await embedded.ask(MOVE_LOG, MoveRequest(vid.raw, to="private"))
            async with Node.open(store, name="other") as other:
                await other.ask(MOVE_LOG, MoveRequest(vid.raw, to="other"))
                await other.ask(MOVE_LOG, MoveRequest(vid.raw, to="private"))
            assert gate.gate is not None
            gate.gate.set()
        assert landed == [3]
        assert await pages_at(embedded, vid) == {1: page("c")}


async def test_a_commit_whose_volume_moved_while_its_pages_were_sent_goes_to_the_new_log(store: RiggedStore) -> None:
    """The pages went out under the old log; they are sent again under the new one, and nothing is written behind the
    close."""
    async with Node.open(store, name="main") as node, Node.open(store) as embedded:
        vid = await born(embedded)
        await put(node, vid, 0, "a")
        pages = {n: os.urandom(PAGE) for n in range(1, 3000)}
        gate = store.add(Rule(op="create", key=f"logs/{vid}/t/*", gate=anyio.Event()))
        landed: list[int] = []

        async def commit() -> None:
            request, segment = commit_of(vid, 1, pages, client=ANN, page_size=PAGE, floor=PAGE)
            landed.append((await node.commit(request, segment)).lsn)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(commit)
            await gate.reached.wait()
            await node.ask(MOVE_LOG, MoveRequest(vid.raw, to="main"))
            assert gate.gate is not None
            gate.gate.set()
        assert landed == [2]
        async with Node.open(store) as fresh:
            assert await pages_at(fresh, vid) == pages


async def test_a_move_to_a_node_that_is_not_here_is_sent_to_it(store: RiggedStore) -> None:
    async with Node.open(store, name="main", address="http://main") as node, Node.open(store) as embedded:
        vid = await born(embedded)
        with pytest.raises(NotOwner) as there:
            await embedded.ask(MOVE_LOG, MoveRequest(vid.raw, to="main"))
        assert there.value.owner == "http://main"
        with pytest.raises(NotFound, match="nobody"):
            await node.ask(MOVE_LOG, MoveRequest(vid.raw, to="nobody"))
        with pytest.raises(BadInput):
            await node.ask(MOVE_LOG, MoveRequest(vid.raw, to="No Such Name"))
        assert (await embedded.ask(SNAPSHOT, SnapshotRequest(vid.raw))).log == str(vid)


async def test_a_move_between_two_living_nodes_is_closed_by_the_one_and_opened_by_the_other(store: RiggedStore) -> None:
    async with (
        Node.open(store, name="one", address="http://one", probe_owner=everybody_is_alive) as one,
        Node.open(store, name="two", address="http://two", probe_owner=everybody_is_alive) as two,
    ):
        vid = await born(one)
        await put(one, vid, 0, "a")
        with pytest.raises(NotOwner) as first:
            await two.ask(MOVE_LOG, MoveRequest(vid.raw, to="two"))
        assert first.value.owner == "http://one"
        with pytest.raises(Busy, match="ask it whether it's ready"):
            await one.ask(MOVE_LOG, MoveRequest(vid.raw, to="two"))
        ready = (await two.ask(READY, MoveRequest(vid.raw, to="two"))).slot
        with pytest.raises(NotOwner) as second:
            await one.ask(MOVE_LOG, MoveRequest(vid.raw, to="two", ready=ready))
        assert second.value.owner == "http://two"
        assert (await one.ask(SNAPSHOT, SnapshotRequest(vid.raw))).lsn == 1
        assert (await two.ask(MOVE_LOG, MoveRequest(vid.raw, to="two"))).log == "two"
        assert (await put(two, vid, 1, "b")).lsn == 2
        assert (await lost_to(one, vid, 2)).owner == "http://two"


async def test_a_node_does_not_close_towards_one_that_is_gone(store: RiggedStore) -> None:
    async with Node.open(store, name="two", address="http://two"):
        pass
    async with Node.open(store, name="one", address="http://one") as one:
        vid = await born(one)
        with pytest.raises(NotOwner):
            await one.ask(MOVE_LOG, MoveRequest(vid.raw, to="two"))
        assert (await put(one, vid, 0, "a")).lsn == 1


async def test_a_dead_owners_log_is_taken_over_for_a_move_only_when_told(store: RiggedStore) -> None:
    """The old owner, if it lives after all, was not fenced, and meets the close at its next write."""
    async with Node.open(store, name="main", address="http://main") as node:
        vid, other = await born(node), await born(node)
        await put(node, vid, 0, "a")
        async with Node.open(store, probe_owner=everybody_is_alive) as polite:
            for takeover in (False, True):
                with pytest.raises(NotOwner) as refused:
                    await polite.ask(MOVE_LOG, MoveRequest(vid.raw, to="private", takeover=takeover))
                assert refused.value.owner == "http://main"
        async with Node.open(store) as embedded:
            with pytest.raises(NotOwner):
                await embedded.ask(MOVE_LOG, MoveRequest(vid.raw, to="private"))
            assert (await embedded.ask(MOVE_LOG, MoveRequest(vid.raw, to="private", takeover=True))).log == str(vid)
            assert (await put(embedded, vid, 1, "b")).lsn == 2
            assert (await lost_to(embedded, other, 0)).owner == "http://main", "it was not fenced"
        assert (await put(node, other, 0, "c")).lsn == 1, "it did not know, and its first write finds out"
        assert (await node.ask(SNAPSHOT, SnapshotRequest(vid.raw, confirm=True))).lsn == 2
        hello = await node.ask(HELLO, Done())
        assert (hello.epoch, [(own.log, own.epoch) for own in hello.logs]) == (1, [("main", 1)])
        new = await born(node)
        assert (await put(node, new, 0, "d")).lsn == 1
        assert await pages_at(node, vid) == {1: page("b")}
    async with Node.open(store, name="main", address="http://main") as again:
        assert await pages_at(again, other) == {1: page("c")}
        assert await pages_at(again, new) == {1: page("d")}


async def test_names_that_a_node_can_not_have_are_refused(store: RiggedStore) -> None:
    for name in ("", "private", "Main", "a" * 22):
        with pytest.raises(BadInput):
            async with Node.open(store, name=name):
                pass


async def test_a_node_that_closes_finishes_what_it_has_begun_and_begins_nothing(store: RiggedStore) -> None:
    landed: list[int] = []

    async def commit(node: Node, vid: VolumeId) -> None:
        landed.append((await put(node, vid, 0, "a")).lsn)

    gate = store.add(Rule(op="create", key="logs/main/*", nth=4, gate=anyio.Event()))
    async with anyio.create_task_group() as tasks, Node.open(store, name="main", patience=hasty()) as node:
        vid = await born(node)
        tasks.start_soon(commit, node, vid)
        await gate.reached.wait()
        await node.aclose()
        with pytest.raises(Unavailable, match="shutting down"):
            await put(node, vid, 1, "b")
        assert gate.gate is not None
        gate.gate.set()
    assert landed == [1]
