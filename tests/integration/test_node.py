"""A node over a store: commits, reads, batches, lost answers, refusals, damage. Owners and moves:
test_node_owners.py."""

from __future__ import annotations

import inspect
import os
import re
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from anyio.lowlevel import checkpoint

from budwood.server.log.chain import Chain
from budwood.server.log.reader import LogReader
from budwood.server.node import Node
from budwood.server.store.directory_store import FileStore
from budwood.server.store.protocol import Store
from budwood.server.store.retrying import Patience
from budwood.testing.clock import ManualClock
from budwood.testing.commits import commit_of, pages_at
from budwood.testing.stores import MemoryStore, RiggedStore, Rule
from budwood.volume.calls import (
    CHANGE_NAME,
    CREATE,
    FORK,
    LIST_NAMES,
    LOOKUP,
    OUTCOME,
    PULL_CHANGES,
    PULL_COMMITS,
    SNAPSHOT,
    WAIT,
    WAIT_NAMES,
    CreateRequest,
    ForkRequest,
    LookupRequest,
    NamesRequest,
    OutcomeRequest,
    RangeRequest,
    SnapshotRequest,
    WaitNamesRequest,
    WaitRequest,
)
from budwood.volume.entry import Entry, entry_key, parse_entry, seal_entry
from budwood.volume.envelope import START_BYTES
from budwood.volume.errors import (
    AlreadyExists,
    BadInput,
    BudwoodError,
    Conflict,
    Corrupt,
    Full,
    NotFound,
    Overloaded,
    PagesNotHere,
    Unavailable,
    Unsupported,
)
from budwood.volume.ids import ClientId, VolumeId
from budwood.volume.pageset import PageSet, decode_pages
from budwood.volume.protocols import Remote
from budwood.volume.records import Commit, Location, StreamRecords
from budwood.volume.wire import Committed, NameRequest

from ..waits import LIMIT_SECONDS

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]

PAGE = 4096


def page(letter: str) -> bytes:
    return letter.encode() * PAGE


def hasty() -> Patience:
    """Retries for 5 s of a clock that jumps."""
    clock = ManualClock(jumps=True)
    return Patience(deadline_seconds=5, now=clock.now, sleep=clock.sleep)


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


ANN, BOB = ClientId.new(), ClientId.new()


async def put(remote: Remote, vid: VolumeId, base: int, pages: dict[int, bytes], client: ClientId = ANN) -> Committed:
    return await remote.commit(*commit_of(vid, base, pages, client=client))


async def until(condition: Callable[[], bool]) -> None:
    """Let the others run until it holds."""
    for _ in range(10_000):
        if condition():
            return
        await checkpoint()
    raise AssertionError("it never came to hold")


def entries(store: RiggedStore, log: str) -> list[Entry]:
    assert isinstance(store.inner, MemoryStore)
    keys = sorted((key for key in store.inner.objects if key.startswith(f"logs/{log}/entries/")), reverse=True)
    return [parse_entry(key, store.inner.objects[key]) for key in keys]


def commits(store: RiggedStore, log: str) -> list[Commit]:
    records = [
        record
        for entry in entries(store, log)
        for carried in entry.header.streams.values()
        for record in carried.decode(entry.key)
    ]
    return [record for record in records if isinstance(record, Commit)]


async def test_what_was_committed_is_read_back_at_every_lsn_by_anyone(
    store: RiggedStore, node: Node, vid: VolumeId
) -> None:
    """S2.10-13: the second process knows nothing but the store."""
    remote: Remote = node
    assert (await remote.ask(SNAPSHOT, SnapshotRequest(vid.raw))).lsn == 0
    await put(remote, vid, 0, {1: page("a"), 2: page("b"), 9: page("z")})
    await put(remote, vid, 1, {2: page("c"), 9: page("y")})
    async with Node.open(store) as other:
        for reader in (remote, other):
            assert await pages_at(reader, vid, 1) == {1: page("a"), 2: page("b"), 9: page("z")}
            assert await pages_at(reader, vid) == {1: page("a"), 2: page("c"), 9: page("y")}
            changes = await reader.ask(PULL_CHANGES, RangeRequest(vid.raw, after=1))
            assert decode_pages("", changes.pages) == PageSet([2, 9])
            assert [info.lsn for info in (await reader.ask(PULL_COMMITS, RangeRequest(vid.raw))).commits] == [
                1,
                2,
            ]
            assert (changes.snapshot.lsn, changes.snapshot.upper, changes.snapshot.since) == (2, 3, 1)


async def test_the_same_on_a_directory(tmp_path: Path) -> None:
    files: Store = await FileStore.open(str(tmp_path), create=True)
    async with Node.open(files) as node:
        vid = VolumeId.new()
        await node.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
        await put(node, vid, 0, {1: page("a")})
    async with Node.open(files) as again:
        assert await pages_at(again, vid) == {1: page("a")}
    await files.aclose()


async def test_a_small_commit_is_one_create_and_nothing_else(store: RiggedStore, node: Node, vid: VolumeId) -> None:
    """DESIGN §4: a durable commit is one PUT and one round trip; and what this process wrote it need not fetch."""
    await put(node, vid, 0, {1: page("a")})
    store.forget()
    await put(node, vid, 1, {1: page("b")})
    assert [(request.op, request.key) for request in store.requests] == [("create", entry_key(str(vid), 2))]
    store.forget()
    await pages_at(node, vid, 2)
    assert not store.requests


async def test_whoever_has_just_made_a_volume_opens_it_without_reading_its_birth(store: RiggedStore) -> None:
    async with Node.open(store, name="main", patience=hasty()) as node:
        vid = VolumeId.new()
        await node.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
        store.forget()
        await put(node, vid, 0, {1: page("a")})
        assert [request.op for request in store.requests] == ["create"]


async def test_a_look_is_one_round_trip_and_a_known_lsn_costs_none(
    store: RiggedStore, node: Node, vid: VolumeId
) -> None:
    """What stands behind the tip, and whether the tip stands, are asked at once."""
    await put(node, vid, 0, {1: page("a")})
    store.forget()
    await node.ask(SNAPSHOT, SnapshotRequest(vid.raw, lsn=1))
    assert not store.requests
    gate = store.add(Rule(op="get", key="logs/*", times=2, gate=anyio.Event()))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(node.snapshot, SnapshotRequest(vid.raw))
        await anyio.wait_all_tasks_blocked()
        assert sorted(request.key for request in store.requests) == [entry_key(str(vid), slot) for slot in (2, 1)]
        assert gate.gate is not None
        gate.gate.set()
    assert store.count() == 2
    assert store.received_bytes() == START_BYTES


async def test_looks_that_come_together_share_one_request(store: RiggedStore, node: Node, vid: VolumeId) -> None:
    """All that come while one look is under way share the next, which begins after they came."""
    gate = store.add(Rule(op="get", key="logs/*", gate=anyio.Event()))
    store.forget()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(node.snapshot, SnapshotRequest(vid.raw))
        await gate.reached.wait()
        for _ in range(20):
            tasks.start_soon(node.snapshot, SnapshotRequest(vid.raw))
        for _ in range(50):
            await checkpoint()
        assert gate.gate is not None
        gate.gate.set()
    assert store.count("get", entry_key(str(vid), 1)) == 2


async def test_commits_of_many_volumes_share_an_entry(store: RiggedStore) -> None:
    """S4.9, rule 8: while one entry is in flight the next collects; each volume's pages stay its own."""
    async with Node.open(store, name="main") as node:
        vids = [VolumeId.new() for _ in range(40)]
        for vid in vids:
            await node.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
        gate = store.add(Rule(op="create", key="logs/main/entries/*", gate=anyio.Event()))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(put, node, vids[0], 0, {1: page("0")})
            await gate.reached.wait()
            for at, vid in enumerate(vids[1:], 1):
                tasks.start_soon(put, node, vid, 0, {1: page(chr(65 + at)), 2: page("x")})
            for _ in range(50):
                await checkpoint()
            assert gate.gate is not None
            gate.gate.set()
        assert len(entries(store, "main")) == 4  # the anchor, the fence, the first commit, all the others
        for at, vid in enumerate(vids[1:], 1):
            assert await pages_at(node, vid) == {1: page(chr(65 + at)), 2: page("x")}
    async with Node.open(store) as other:
        assert await pages_at(other, vids[7]) == {1: page(chr(72)), 2: page("x")}


async def test_whoever_comes_when_too_much_waits_is_asked_to_try_again(
    store: RiggedStore, vid: VolumeId, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S3.28, S4.9: what waits in memory is bounded in bytes; nobody who waits already is turned away."""
    monkeypatch.setattr("budwood.server.log.log_writer.QUEUE_BYTES", 3 * PAGE)
    async with Node.open(store, name="main") as shared:
        vids = [VolumeId.new() for _ in range(8)]
        for each in vids:
            await shared.ask(CREATE, CreateRequest(each.raw, page_size=PAGE))
        gate = store.add(Rule(op="create", key="logs/main/entries/*", gate=anyio.Event()))
        told: list[str] = []
        refused: list[VolumeId] = []

        async def commit(each: VolumeId) -> None:
            try:
                told.append(f"LSN {(await put(shared, each, 0, {1: os.urandom(PAGE)})).lsn}")
            except Overloaded as error:
                told.append(f"determinate {error.determinate}: {error}")
                refused.append(each)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(commit, vids[0])
            await gate.reached.wait()
            for each in vids[1:]:
                tasks.start_soon(commit, each)
            await until(lambda: len(told) == 5)
            assert all(
                re.match("determinate True: log main is full: .* bytes of .*: try again in a moment$", each)
                for each in told
            )
            assert gate.gate is not None
            gate.gate.set()
        assert told[5:] == ["LSN 1"] * 3
        assert (await put(shared, refused[0], 0, {1: page("a")})).lsn == 1


async def test_nothing_is_acknowledged_or_shown_before_it_is_durable(
    store: RiggedStore, node: Node, vid: VolumeId
) -> None:
    """S0.31, S4.3, rules 3 and 7."""
    await put(node, vid, 0, {1: page("a")})
    gate = store.add(Rule(op="create", key="logs/*", gate=anyio.Event()))
    answers: list[Committed] = []

    async def commit() -> None:
        answers.append(await put(node, vid, 1, {1: page("b")}))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(commit)
        await gate.reached.wait()
        for _ in range(50):
            await checkpoint()
        assert not answers
        assert (await node.ask(SNAPSHOT, SnapshotRequest(vid.raw, lsn=1))).upper == 2
        with anyio.move_on_after(0.01):
            # It waits for the look that the create is.
            assert (await node.ask(SNAPSHOT, SnapshotRequest(vid.raw))).lsn == 1
        assert gate.gate is not None
        gate.gate.set()
    assert [answer.lsn for answer in answers] == [2]


async def test_a_create_whose_answer_was_lost_is_found_to_be_ours(
    store: RiggedStore, node: Node, vid: VolumeId
) -> None:
    """Rule 5: the retry meets its own entry, and that is success, not a conflict."""
    lost = store.add(Rule(op="create", key="logs/*", after=Unavailable("no answer", determinate=False)))
    committed = await put(node, vid, 0, {1: page("a")})
    assert lost.fired == 1
    assert committed.lsn == 1
    assert [commit.lsn for commit in commits(store, str(vid))] == [1]


async def test_a_create_whose_answer_was_lost_is_not_ours_when_another_entry_stands_there(
    store: RiggedStore, node: Node, vid: VolumeId
) -> None:
    """A retry that finds an entry in its slot must look whose it is: success would lose the commit."""
    async with Node.open(store) as other:
        await other.ask(SNAPSHOT, SnapshotRequest(vid.raw))
        gate = store.add(
            Rule(op="create", key="logs/*", gate=anyio.Event(), before=Unavailable("no answer", determinate=False))
        )
        errors: list[Conflict] = []

        async def commit() -> None:
            try:
                await put(node, vid, 0, {1: page("a")})
            except Conflict as error:
                errors.append(error)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(commit)
            await gate.reached.wait()
            await put(other, vid, 0, {1: page("b")}, BOB)
            assert gate.gate is not None
            gate.gate.set()
    assert [error.head for error in errors] == [1]
    assert await pages_at(node, vid) == {1: page("b")}


async def test_an_entry_whose_fate_is_unknown_is_sent_again_as_it_is_before_anything_else(
    store: RiggedStore, node: Node, vid: VolumeId
) -> None:
    """(slot, writer, n) is bound to exact bytes: the first commit lands after all, and the next one builds on it."""
    down = store.add(Rule(op="create", key="logs/*", times=None, before=Unavailable("no answer", determinate=False)))
    request, segment = commit_of(vid, 0, {1: page("a")}, client=ANN)
    with pytest.raises(Unavailable) as unknown:
        await node.commit(request, segment)
    assert not unknown.value.determinate
    with pytest.raises(Unavailable) as unsent:
        await put(node, vid, 0, {1: page("b")}, BOB)
    assert unsent.value.determinate
    store.rules.remove(down)
    with pytest.raises(Conflict):
        await put(node, vid, 0, {1: page("b")}, BOB)
    assert (await node.ask(OUTCOME, OutcomeRequest(vid.raw, client=request.client, token=request.token))).lsn == 1
    assert (await node.commit(request, segment)).lsn == 1
    assert await pages_at(node, vid) == {1: page("a")}


async def test_asking_for_the_outcome_settles_an_entry_whose_fate_is_unknown(
    store: RiggedStore, node: Node, vid: VolumeId
) -> None:
    """S2.29: `absent` would be a lie if the entry were sent again afterwards."""
    down = store.add(Rule(op="create", key="logs/*", times=None, before=Unavailable("no", determinate=False)))
    request, segment = commit_of(vid, 0, {1: page("a")}, client=ANN)
    with pytest.raises(Unavailable):
        await node.commit(request, segment)
    with pytest.raises(Unavailable):
        await node.ask(OUTCOME, OutcomeRequest(vid.raw, client=request.client, token=request.token))
    store.rules.remove(down)
    assert (await node.ask(OUTCOME, OutcomeRequest(vid.raw, client=request.client, token=request.token))).lsn == 1
    assert (await node.ask(OUTCOME, OutcomeRequest(vid.raw, client=request.client, token=bytes(32)))).lsn == 0


async def test_settling_an_old_entry_is_no_look_at_what_was_written_behind_it(
    store: RiggedStore, node: Node, vid: VolumeId
) -> None:
    """The entry landed, another process has committed behind it, and who asks while it is being settled hears of
    both."""
    await put(node, vid, 0, {1: page("a")})
    gate = anyio.Event()
    store.add(Rule(op="create", key="logs/*", after=Unavailable("no answer", determinate=False)))
    gone = store.add(Rule(op="get", key="logs/*", gate=gate, before=NotFound("not there")))
    heads: list[int] = []

    async def lose() -> None:
        with pytest.raises(Unavailable):
            await put(node, vid, 1, {1: page("b")})

    async def settle() -> None:
        assert (await node.ask(OUTCOME, OutcomeRequest(vid.raw, client=ANN.raw, token=bytes(32)))).lsn == 0

    async def ask() -> None:
        heads.append((await node.ask(SNAPSHOT, SnapshotRequest(vid.raw))).lsn)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lose)
        await gone.reached.wait()
        async with Node.open(store.inner) as other:
            assert (await put(other, vid, 2, {1: page("c")}, BOB)).lsn == 3
        for call in (settle, ask):
            tasks.start_soon(call)
            for _ in range(20):
                await checkpoint()
        gate.set()
    assert heads == [3]


async def test_an_entry_of_a_newer_program_stops_its_log_and_no_other(
    store: RiggedStore, node: Node, vid: VolumeId
) -> None:
    """S3.10: said to whoever writes there, and whoever writes elsewhere never hears of it."""
    await put(node, vid, 0, {1: page("a")})
    log = await node.logs.get(str(vid))
    header = log.reader.chain.header(epoch=0, writer=bytes(16), kind="data")
    future = StreamRecords(records=(msgspec.msgpack.encode({"k": "future"}),))
    header = msgspec.structs.replace(header, streams={str(vid): future})
    await store.create(entry_key(str(vid), header.i), seal_entry(header))
    for _ in range(2):
        with pytest.raises(Unsupported, match="upgrade"):
            await put(node, vid, 1, {1: page("b")})
    await node.ask(CREATE, CreateRequest((other := VolumeId.new()).raw, page_size=PAGE))
    assert (await put(node, other, 0, {1: page("c")})).lsn == 1


async def test_what_certainly_did_not_happen_is_not_sent_again(store: RiggedStore, node: Node, vid: VolumeId) -> None:
    down = store.add(Rule(op="create", key="logs/*", times=None, before=Unavailable("refused", determinate=True)))
    with pytest.raises(Unavailable) as refused:
        await put(node, vid, 0, {1: page("a")})
    assert refused.value.determinate
    store.rules.remove(down)
    await put(node, vid, 0, {1: page("b")}, BOB)
    assert await pages_at(node, vid) == {1: page("b")}
    assert len(commits(store, str(vid))) == 1


async def test_a_cancelled_commit_lands_all_the_same(store: RiggedStore, node: Node, vid: VolumeId) -> None:
    """S4.25: a write that others wait for is never stopped."""
    gate = store.add(Rule(op="create", key="logs/*", gate=anyio.Event()))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(put, node, vid, 0, {1: page("a")})
        await gate.reached.wait()
        tasks.cancel_scope.cancel()
    assert gate.gate is not None
    gate.gate.set()
    assert (await node.ask(SNAPSHOT, SnapshotRequest(vid.raw))).lsn == 1
    assert await pages_at(node, vid) == {1: page("a")}


async def test_a_refusal_waits_for_what_caused_it_and_is_judged_again_if_that_is_lost(
    store: RiggedStore, node: Node, vid: VolumeId
) -> None:
    """Rule 7: two commits on one base come together; the first one's entry fails, so the other lands."""
    failing = store.add(Rule(op="create", key="logs/*", gate=anyio.Event(), before=Full("no room")))
    outcomes: dict[str, object] = {}

    async def commit(letter: str, client: ClientId) -> None:
        # Without pages, or the draft would have no room for the second.
        try:
            outcomes[letter] = (await node.commit(*commit_of(vid, 0, {}, client=client, length=PAGE))).lsn
        except (Conflict, Full) as error:
            outcomes[letter] = type(error)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(commit, "a", ANN)
        tasks.start_soon(commit, "b", BOB)
        await failing.reached.wait()
        for _ in range(30):
            await checkpoint()
        assert outcomes == {}
        assert failing.gate is not None
        failing.gate.set()
    # Either may have been the first.
    assert sorted(map(str, outcomes.values())) == ["1", str(Full)]


async def test_of_two_commits_on_one_base_one_lands_and_the_other_hears_of_it_after_that(
    store: RiggedStore, node: Node, vid: VolumeId
) -> None:
    """S2.6."""
    await put(node, vid, 0, {1: page("0")})
    heard: list[str] = []

    async def commit(letter: str, client: ClientId) -> None:
        try:
            await put(node, vid, 1, {1: page(letter)}, client)
            heard.append("landed")
        except Conflict as error:
            heard.append(f"conflict with LSN {error.head}")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(commit, "a", ANN)
        tasks.start_soon(commit, "b", BOB)
    assert heard == ["landed", "conflict with LSN 2"]


@pytest.mark.parametrize("pages", [True, False])
async def test_the_same_commit_many_times_is_one_commit(
    store: RiggedStore, node: Node, vid: VolumeId, pages: bool
) -> None:
    """S2.13, S2.29: a twin in the queue, one in flight, one that landed, and one that landed long ago."""
    request, segment = commit_of(vid, 0, {1: page("a")} if pages else {}, client=ANN, length=PAGE)
    lsns: list[int] = []

    async def commit() -> None:
        lsns.append((await node.commit(request, segment)).lsn)

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(commit)
    await put(node, vid, 1, {1: page("b")})
    await put(node, vid, 2, {1: page("c")})
    await commit()
    async with Node.open(store) as other:
        lsns.append((await other.commit(request, segment)).lsn)
        assert (await other.ask(OUTCOME, OutcomeRequest(vid.raw, client=request.client, token=request.token))).lsn == 1
    assert lsns == [1] * 7
    assert [record.lsn for record in commits(store, str(vid))] == [1, 2, 3]


async def test_a_clients_other_commit_is_not_taken_for_its_last_one(node: Node, vid: VolumeId) -> None:
    """B3: the mutant `token by client id` would answer success and lose it."""
    await put(node, vid, 0, {1: page("a")})
    with pytest.raises(Conflict):
        await put(node, vid, 0, {1: page("b")})
    assert await pages_at(node, vid) == {1: page("a")}


async def test_processes_on_one_private_log_lose_nothing(store: RiggedStore, vid: VolumeId) -> None:
    """S0.22, S4.1: a slot lost to another is read, and the commit judged again."""
    landed: list[int] = []

    async def increment(times: int) -> None:
        client = ClientId.new()
        async with Node.open(store) as own:
            base = 0
            for _ in range(times):
                while True:
                    try:
                        base = (await put(own, vid, base, {1: os.urandom(8) * 512}, client)).lsn
                    except Conflict as error:
                        base = error.head
                        continue
                    landed.append(base)
                    break

    async with anyio.create_task_group() as tasks:
        for _ in range(4):
            tasks.start_soon(increment, 10)
    assert sorted(landed) == list(range(1, 41))


async def test_a_large_segment_goes_out_as_a_fragment(store: RiggedStore, node: Node, vid: VolumeId) -> None:
    """S0.18: large writes don't swell the entry."""
    pages = {n: os.urandom(PAGE) for n in range(1, 300)}
    await put(node, vid, 0, pages)
    last = entries(store, str(vid))[-1]
    assert last.size < 4096
    assert [fragment.epoch for fragment in last.header.fragments] == [0]
    async with Node.open(store) as other:
        assert await pages_at(other, vid) == pages


@pytest.mark.parametrize("order", [0, 1])
async def test_fragments_written_before_are_named_by_their_commit_and_the_higher_order_or_the_later_wins(
    store: RiggedStore, node: Node, vid: VolumeId, order: int
) -> None:
    """S2.21, S2.22."""
    _, first = commit_of(vid, 0, {1: page("a"), 2: page("b"), 3: page("c")}, client=ANN)
    _, second = commit_of(vid, 0, {2: page("B"), 4: page("D")}, client=ANN)
    low, high = await node.write_pages(vid, first), await node.write_pages(vid, second)
    assert (await node.ask(SNAPSHOT, SnapshotRequest(vid.raw))).lsn == 0
    pages = {1: page("a"), 2: page("B"), 3: page("c"), 4: page("D")}
    ordered = (type(low)(object=low.object, slot=0), type(high)(object=high.object, slot=0, order=order))
    request, _ = commit_of(vid, 0, pages, client=ANN, locations=ordered)
    await node.commit(request)
    async with Node.open(store) as other:
        for reader in (node, other):
            assert await pages_at(reader, vid) == pages
    wrong, _ = commit_of(vid, 1, pages, client=ANN, locations=tuple(reversed(ordered[:1])))
    with pytest.raises(BadInput, match="other pages"):
        await node.commit(wrong)


async def test_a_process_that_did_not_write_a_fragment_reads_it_before_it_believes_in_it(
    store: RiggedStore, node: Node, vid: VolumeId
) -> None:
    _, segment = commit_of(vid, 0, {1: page("a")}, client=ANN)
    location = await node.write_pages(vid, segment)
    request, _ = commit_of(vid, 0, {1: page("a")}, client=ANN, locations=(location,))
    async with Node.open(store) as other:
        assert (await other.commit(request)).lsn == 1


async def test_pages_that_are_not_here_are_asked_for_again(node: Node, vid: VolumeId) -> None:
    """Rule 10."""
    other = VolumeId.new()
    await node.ask(CREATE, CreateRequest(other.raw, page_size=PAGE))
    _, segment = commit_of(other, 0, {1: page("a")}, client=ANN)
    location = await node.write_pages(other, segment)
    for key in (location.object, f"logs/{vid}/t/{0:016x}/nothing", f"logs/{vid}/t/{1:016x}/x", ""):
        moved = type(location)(object=key, size=location.size, slot=0)
        with pytest.raises(PagesNotHere):
            await node.commit(commit_of(vid, 0, {1: page("a")}, client=ANN, locations=(moved,))[0])


async def test_a_commit_that_does_not_agree_with_itself_is_refused_in_words(node: Node, vid: VolumeId) -> None:
    """S2.22, S3.3: and nothing of it is kept."""
    request, segment = commit_of(vid, 0, {1: page("a")}, client=ANN)
    _, other = commit_of(vid, 0, {1: page("b")}, client=ANN)
    _, more = commit_of(vid, 0, {1: page("a"), 2: page("b")}, client=ANN)
    _, small = commit_of(vid, 0, {1: bytes(512)}, client=ANN, page_size=512)
    beyond, beyond_segment = commit_of(vid, 0, {3: page("c")}, client=ANN, length=PAGE)
    for wrong, sent in (
        (msgspec.structs.replace(request, token=bytes(32)), segment),
        (msgspec.structs.replace(request, length=2 * PAGE), segment),
        (request, other),
        (request, more),
        (request, small),
        (request, segment[:-1]),
        (request, b"garbage"),
        (request, b""),
        (beyond, beyond_segment),
        (msgspec.structs.replace(request, locations=((await node.write_pages(vid, segment)),)), segment),
    ):
        with pytest.raises(BadInput):
            await node.commit(wrong, sent)
    assert (await node.ask(SNAPSHOT, SnapshotRequest(vid.raw))).lsn == 0
    assert (await node.commit(request, segment)).lsn == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"length": 1 << 62},
        {"length": 1 << 70},
        {"base": 1 << 70},
        {"writer_epoch": 1 << 70},
        {"writer_epoch": -1},
        {"locations": (Location(object="x", slot=0, order=1 << 70),)},
    ],
    ids=str,
)
async def test_a_number_that_no_record_holds_is_refused_and_the_node_lives_on(
    node: Node, vid: VolumeId, wrong: dict[str, Any]
) -> None:
    """JSON has numbers of any size; one met while an entry is encoded would end the writer, and the node with it."""
    request, _ = commit_of(vid, 0, {}, client=ANN, length=wrong.get("length", 0) % (1 << 64))
    with pytest.raises(BadInput):
        await node.commit(msgspec.structs.replace(request, **wrong))
    assert (await put(node, vid, 0, {1: page("a")})).lsn == 1


@pytest.mark.parametrize("value", [{1: 1}, 1 << 70, {"deep": [{2: 3}]}], ids=str)
async def test_attributes_that_no_record_holds_are_refused_and_the_node_lives_on(
    node: Node, vid: VolumeId, value: object
) -> None:
    request = NameRequest(op="bind", name="shop", target=vid.raw, client=ANN.raw)
    with pytest.raises(BadInput, match="attributes"):
        await node.ask(CHANGE_NAME, msgspec.structs.replace(request, attributes={"size": value}))
    assert (await node.ask(CHANGE_NAME, request)).lsn == 1


async def test_what_is_not_there_is_said_so(node: Node, vid: VolumeId) -> None:
    await put(node, vid, 0, {1: page("a")})
    nobody = VolumeId.new()
    for call in (
        node.ask(SNAPSHOT, SnapshotRequest(nobody.raw)),
        node.ask(SNAPSHOT, SnapshotRequest(vid.raw, lsn=2)),
        node.ask(PULL_CHANGES, RangeRequest(vid.raw, to=2)),
        node.ask(PULL_COMMITS, RangeRequest(vid.raw, after=2, to=2)),
        node.ask(FORK, ForkRequest(vid.raw, child=VolumeId.new().raw, lsn=2)),
        node.write_pages(nobody, b""),
        node.ask(SNAPSHOT, SnapshotRequest(vid.raw, at_ms=5)),
    ):
        with pytest.raises(NotFound):
            await call
    with pytest.raises(NotFound):
        async with node.read_pages(vid, 2, PageSet([1])):
            pass


async def test_creating_again_is_harmless_and_another_page_size_is_refused(node: Node, vid: VolumeId) -> None:
    await node.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
    with pytest.raises(AlreadyExists, match="4096"):
        await node.ask(CREATE, CreateRequest(vid.raw, page_size=512))
    with pytest.raises(BadInput):
        await node.ask(CREATE, CreateRequest(VolumeId.new().raw, page_size=1000))


async def test_a_time_means_the_last_lsn_that_is_not_later(store: RiggedStore) -> None:
    now = 1000
    async with Node.open(store, now_ms=lambda: now) as node:
        vid = VolumeId.new()
        await node.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
        times = [(await put(node, vid, base, {1: page("a")})).time for base in range(3)]
        assert times == [1001, 1002, 1003]
        now = 5000
        assert (await put(node, vid, 3, {1: page("b")})).time == 5000
        lsns = [
            (await node.ask(SNAPSHOT, SnapshotRequest(vid.raw, at_ms=ms))).lsn
            for ms in (1000, 1001, 1003, 4999, 5000, 9999)
        ]
        assert lsns == [0, 1, 3, 3, 4, 4]
        with pytest.raises(NotFound):
            await node.ask(SNAPSHOT, SnapshotRequest(vid.raw, at_ms=999))


async def test_a_fork_shares_its_parents_past_and_goes_its_own_way(
    store: RiggedStore, node: Node, vid: VolumeId
) -> None:
    """S2.7: no page is copied, and the child's numbers go on from the parent's."""
    await put(node, vid, 0, {1: page("a"), 2: page("b"), 3: page("c")})
    await put(node, vid, 1, {2: page("B"), 3: page("c")})
    child, grandchild = VolumeId.new(), VolumeId.new()
    store.forget()
    for _ in range(2):
        assert (await node.ask(FORK, ForkRequest(vid.raw, child=child.raw, lsn=2))).lsn == 2
    assert store.sent_bytes("create") < 2048
    with pytest.raises(AlreadyExists):
        await node.ask(FORK, ForkRequest(vid.raw, child=child.raw, lsn=1))
    await put(node, vid, 2, {1: page("x"), 3: page("c")})
    request, segment = commit_of(child, 2, {3: page("C")}, client=ANN, floor=PAGE)
    assert (await node.commit(request, segment)).lsn == 3
    await node.ask(FORK, ForkRequest(child.raw, child=grandchild.raw, lsn=1))
    async with Node.open(store) as other:
        for reader in (node, other):
            assert await pages_at(reader, child) == {1: page("a"), 3: page("C")}
            assert await pages_at(reader, child, 1) == {1: page("a"), 2: page("b"), 3: page("c")}
            assert await pages_at(reader, grandchild) == {1: page("a"), 2: page("b"), 3: page("c")}
            assert [info.lsn for info in (await reader.ask(PULL_COMMITS, RangeRequest(child.raw))).commits] == [1, 2, 3]
            assert [
                info.lsn for info in (await reader.ask(PULL_COMMITS, RangeRequest(child.raw, after=1, to=2))).commits
            ] == [2]
            assert decode_pages(
                "", (await reader.ask(PULL_CHANGES, RangeRequest(child.raw, after=1))).pages
            ) == PageSet([2, 3])
            assert (await reader.ask(SNAPSHOT, SnapshotRequest(child.raw, lsn=1))).upper == 4
        assert await pages_at(other, vid) == {1: page("x"), 2: page("B"), 3: page("c")}


async def test_a_fork_is_read_whole_by_a_process_that_knew_its_parent_before(
    store: RiggedStore, node: Node, vid: VolumeId
) -> None:
    """What it holds of the parent is older than the fork: it looks, rather than read an older LSN."""
    await put(node, vid, 0, {1: page("a")})
    async with Node.open(store) as other:
        assert await pages_at(other, vid) == {1: page("a")}
        await put(node, vid, 1, {1: page("b")})
        child = VolumeId.new()
        await node.ask(FORK, ForkRequest(vid.raw, child=child.raw, lsn=2))
        assert await pages_at(other, child) == {1: page("b")}
    async with Node.open(store) as other:
        await other.ask(SNAPSHOT, SnapshotRequest(vid.raw))
        await put(node, vid, 2, {1: page("c")})
        await node.ask(FORK, ForkRequest(vid.raw, child=(second := VolumeId.new()).raw, lsn=3))
        assert [info.lsn for info in (await other.ask(PULL_COMMITS, RangeRequest(second.raw))).commits] == [
            1,
            2,
            3,
        ]


@pytest.fixture
def shallow_stack() -> Iterator[int]:
    """Calls can't go much deeper than here; so many are too many."""
    before, room = sys.getrecursionlimit(), 300
    sys.setrecursionlimit(len(inspect.stack(0)) + room)
    yield room
    sys.setrecursionlimit(before)


async def test_forks_of_forks_may_lie_deep(node: Node, vid: VolumeId, shallow_stack: int) -> None:
    await put(node, vid, 0, {1: page("a"), 2: page("a")})
    born = (await node.ask(SNAPSHOT, SnapshotRequest(vid.raw))).time
    last = vid
    for _ in range(shallow_stack + 50):
        last, parent = VolumeId.new(), last
        await node.ask(FORK, ForkRequest(parent.raw, child=last.raw, lsn=1))
    await put(node, last, 1, {2: page("b")})
    assert await pages_at(node, last) == {1: page("a"), 2: page("b")}
    assert decode_pages("a change", (await node.ask(PULL_CHANGES, RangeRequest(last.raw))).pages) == PageSet([1, 2])
    assert [commit.lsn for commit in (await node.ask(PULL_COMMITS, RangeRequest(last.raw))).commits] == [1, 2]
    assert (await node.ask(SNAPSHOT, SnapshotRequest(last.raw, at_ms=born))).lsn == 1


async def test_the_commits_of_a_fork_of_a_fork_are_listed_from_the_beginning(node: Node, vid: VolumeId) -> None:
    """The fork between the two has none of its own."""
    for lsn in range(3):
        await put(node, vid, lsn, {1: page("a")})
    child, last = VolumeId.new(), VolumeId.new()
    await node.ask(FORK, ForkRequest(vid.raw, child=child.raw, lsn=2))
    await node.ask(FORK, ForkRequest(child.raw, child=last.raw, lsn=2))
    await put(node, last, 2, {1: page("b")})
    assert [commit.lsn for commit in (await node.ask(PULL_COMMITS, RangeRequest(last.raw))).commits] == [1, 2, 3]


async def test_a_shrink_and_regrow_in_one_push_brings_nothing_back(node: Node, vid: VolumeId) -> None:
    """B9."""
    await put(node, vid, 0, {n: page("a") for n in range(1, 5)})
    request, segment = commit_of(vid, 1, {1: page("b")}, client=ANN, length=4 * PAGE, floor=PAGE)
    await node.commit(request, segment)
    assert await pages_at(node, vid) == {1: page("b")}
    assert decode_pages("", (await node.ask(PULL_CHANGES, RangeRequest(vid.raw, after=1))).pages) == PageSet(
        [1, 2, 3, 4]
    )


async def test_waiting_ends_with_the_next_commit_of_anyone(
    store: RiggedStore, node: Node, vid: VolumeId, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("budwood.server.metastore.polling.POLL_SECONDS", 0.001)
    assert (await node.ask(WAIT, WaitRequest(vid.raw, after=0, timeout_seconds=0.01))).lsn == 0
    heads: list[int] = []

    async def wait(after: int) -> None:
        heads.append((await node.ask(WAIT, WaitRequest(vid.raw, after=after, timeout_seconds=LIMIT_SECONDS))).lsn)

    async with Node.open(store) as other, anyio.create_task_group() as tasks:
        tasks.start_soon(wait, 0)
        tasks.start_soon(wait, 1)
        await put(node, vid, 0, {1: page("a")})
        await until(lambda: heads == [1])
        await put(other, vid, 1, {1: page("b")})
    assert heads == [1, 2]


async def test_names_are_shared_by_every_process(store: RiggedStore, node: Node) -> None:
    one, two = VolumeId.new(), VolumeId.new()
    async with Node.open(store) as other:
        bind = NameRequest(op="bind", name="a/x", target=one.raw, client=ANN.raw)
        revision = (await node.ask(CHANGE_NAME, bind)).lsn
        assert (await other.ask(CHANGE_NAME, bind)).lsn == revision
        entry = (await other.ask(LOOKUP, LookupRequest("a/x"))).entry
        assert entry is not None
        assert (entry.target, entry.revision) == (one.raw, revision)
        with pytest.raises(Conflict):
            await other.ask(CHANGE_NAME, NameRequest(op="bind", name="a/x", target=two.raw, client=BOB.raw))
        moved = (await other.ask(CHANGE_NAME, NameRequest(op="move", name="a", new="b", client=BOB.raw))).lsn
        assert [(e.name, e.revision) for e in (await node.ask(LIST_NAMES, NamesRequest())).entries] == [("b/x", moved)]
        await node.ask(CHANGE_NAME, NameRequest(op="unbind", name="b/x", revision=moved, client=ANN.raw))
        assert (await other.ask(LOOKUP, LookupRequest("b/x"))).entry is None
        assert (await other.ask(LIST_NAMES, NamesRequest(prefix="b"))).entries == ()


async def test_whoever_waits_for_names_hears_of_every_change(store: RiggedStore, node: Node) -> None:
    assert (
        (await node.ask(LIST_NAMES, NamesRequest())).head
        == (await node.ask(WAIT_NAMES, WaitNamesRequest(after=0, timeout_seconds=0.01))).lsn
        == 0
    )
    heads: list[int] = []

    async def wait(after: int) -> None:
        heads.append((await node.ask(WAIT_NAMES, WaitNamesRequest(after=after, timeout_seconds=LIMIT_SECONDS))).lsn)

    async with Node.open(store) as other, anyio.create_task_group() as tasks:
        tasks.start_soon(wait, 0)
        tasks.start_soon(wait, 1)
        await node.ask(CHANGE_NAME, NameRequest(op="bind", name="a", target=VolumeId.new().raw, client=ANN.raw))
        await until(lambda: heads == [1])
        await other.ask(CHANGE_NAME, NameRequest(op="bind", name="b", target=VolumeId.new().raw, client=BOB.raw))
    assert heads == [1, 2]
    listing = await node.ask(LIST_NAMES, NamesRequest(limit=1))
    assert (listing.next, listing.head) == ("a", 2)


async def test_a_damaged_or_missing_object_is_named_and_never_taken_for_data(
    store: RiggedStore, node: Node, vid: VolumeId
) -> None:
    """DESIGN §9.5: flip a byte of every object in turn, then take each away; a fresh process reads all or says which
    one."""
    await put(node, vid, 0, {1: os.urandom(PAGE), 299: page("b")})
    await put(node, vid, 1, {n: os.urandom(PAGE) for n in range(2, 300)})
    await put(node, vid, 2, {1: page("c"), 299: page("d")})
    expected = await pages_at(node, vid)
    assert isinstance(store.inner, MemoryStore)
    objects = store.inner.objects
    last = entry_key(str(vid), 3)
    for key, data in list(objects.items()):
        for at in {0, 8, len(data) // 2, len(data) - 40, len(data) - 1}:
            objects[key] = data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :]
            outcome = await read_afresh(objects, vid)
            damage = isinstance(outcome, Corrupt) and key in str(outcome)
            assert damage or isinstance(outcome, Unsupported) or outcome == expected, (key, at, outcome)
        del objects[key]
        if key not in (last, "root"):
            assert isinstance(await read_afresh(objects, vid), Corrupt | NotFound)
        objects[key] = data


async def read_afresh(objects: dict[str, bytes], vid: VolumeId) -> dict[int, bytes] | BudwoodError:
    """What a process that knows nothing reads from a store with these objects, or what it says."""
    store = MemoryStore()
    for key, data in objects.items():
        await store.create(key, data)
    try:
        async with Node.open(store) as fresh:
            return await pages_at(fresh, vid)
    except BudwoodError as error:
        return error


async def test_an_acknowledged_entry_that_is_missing_is_damage(node: Node, vid: VolumeId, store: RiggedStore) -> None:
    """DESIGN §9.5: taken for the tip, the slot would be filled anew, and what stands behind it lost."""
    for base in range(3):
        await put(node, vid, base, {1: page("a")})
    assert isinstance(store.inner, MemoryStore)
    lost = entry_key(str(vid), 2)
    await store.inner.delete(lost)
    with pytest.raises(Corrupt, match="missing") as missing:
        await LogReader(store.inner, str(vid), lambda _: None).open()
    assert missing.value.key == lost


async def test_a_reader_stops_at_a_gap_that_nobody_acknowledged() -> None:
    """Rule 1, S0.35: with two entries in flight the later one may stand alone for a while."""
    store, chain, sent = MemoryStore(), Chain(log="main"), list[bytes]()
    for slot in range(4):
        kind = "anchor" if slot == 0 else "fence" if slot == 1 else "data"
        header = chain.header(epoch=min(slot, 1), writer=b"w", kind=kind)
        header = msgspec.structs.replace(header, alpha=2, acked=max(slot - 2, 0))
        sent.append(seal_entry(header))
        chain = chain.past(parse_entry(entry_key("main", slot), sent[-1]))
    for slot in (0, 1, 3):
        await store.create(entry_key("main", slot), sent[slot])
    reader = LogReader(store, "main", lambda _: None)
    await reader.open()
    assert reader.chain.next == 2
    await store.create(entry_key("main", 2), sent[2])
    await reader.refresh()
    assert reader.chain.next == 4
