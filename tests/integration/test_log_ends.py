"""What befalls one log ends that log's reading alone: those who wait are told, others go on, and it is opened anew.

And opening a log belongs to the node: whoever asked for it may leave.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import anyio
import pytest

from budwood.server.log.submission import Admission
from budwood.server.log.waiting import Batching
from budwood.server.metastore.entry_draft import Change, EntryDraft
from budwood.server.metastore.namespace_state import Namespace
from budwood.server.metastore.open_volume import Volume
from budwood.server.metastore.single_flight import FORGIVEN_SECONDS, LONGEST_SECONDS, Backoff
from budwood.server.node import Node
from budwood.server.pagestore.chunk_cache import ChunkCache
from budwood.server.store.retrying import Patience
from budwood.testing.clock import ManualClock
from budwood.testing.commits import commit_of, pages_at
from budwood.testing.stores import MemoryStore, RiggedStore, Rule
from budwood.volume.calls import (
    CHANGE_NAME,
    CREATE,
    HELLO,
    LIST_NAMES,
    PULL_COMMITS,
    SNAPSHOT,
    WAIT,
    CreateRequest,
    Done,
    NamesRequest,
    RangeRequest,
    SnapshotRequest,
    WaitRequest,
)
from budwood.volume.entry import entry_key
from budwood.volume.envelope import START_BYTES
from budwood.volume.errors import Corrupt, Unavailable
from budwood.volume.ids import ClientId, VolumeId
from budwood.volume.wire import Committed, NameRequest

from ..waits import LIMIT_SECONDS

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]

PAGE = 512
ANN = ClientId.new()


def page(letter: str) -> bytes:
    return letter.encode() * PAGE


def hasty() -> Patience:
    clock = ManualClock(jumps=True)
    return Patience(deadline_seconds=5, now=clock.now, sleep=clock.sleep)


@pytest.fixture
def store() -> RiggedStore:
    return RiggedStore(MemoryStore())


@pytest.fixture(params=["main", None], ids=["shared", "private"])
async def node(store: RiggedStore, request: pytest.FixtureRequest) -> AsyncIterator[Node]:
    # Nothing is sent behind an entry in flight.
    batching = Batching(window_seconds=math.inf)
    async with Node.open(store, name=request.param, patience=hasty(), batching=batching) as node:
        yield node


async def born(node: Node) -> VolumeId:
    vid = VolumeId.new()
    await node.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
    return vid


async def put(node: Node, vid: VolumeId, base: int, letter: str) -> Committed:
    return await node.commit(*commit_of(vid, base, {1: page(letter)}, client=ANN, page_size=PAGE, nonce=b"fixed"))


def log_of(node: Node, vid: VolumeId) -> str:
    return node.name or str(vid)


def said(caplog: pytest.LogCaptureFixture, cause: str) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.exc_info and cause in repr(record.exc_info[1])]


@pytest.mark.parametrize("landed", [False, True])
async def test_an_error_that_nobody_foresaw_ends_one_log_and_it_is_opened_anew(
    store: RiggedStore, node: Node, landed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with Node.open(store, patience=hasty()) as embedded:
        other = await born(embedded)
    vid = await born(node)
    await put(node, vid, 0, "a")
    await put(node, other, 0, "x")
    boom = RuntimeError("nobody foresaw this")
    rule = store.add(Rule(op="create", key=f"logs/{log_of(node, vid)}/entries/*"))
    rule.before, rule.after = (None, boom) if landed else (boom, None)
    with pytest.raises(Unavailable, match="nobody foresaw this") as told:
        await put(node, vid, 1, "b")
    assert not told.value.determinate
    assert rule.fired == 1
    assert (await put(node, other, 1, "y")).lsn == 2
    assert (await put(node, vid, 1, "b")).lsn == 2, "the same commit again, whatever became of it"
    assert (await put(node, vid, 2, "c")).lsn == 3
    assert await pages_at(node, vid, 2) == {1: page("b")}
    assert len(said(caplog, "nobody foresaw this")) == 1
    async with Node.open(store) as fresh:
        assert [info.lsn for info in (await fresh.ask(PULL_COMMITS, RangeRequest(vid.raw))).commits] == [
            1,
            2,
            3,
        ]
        assert [info.lsn for info in (await fresh.ask(PULL_COMMITS, RangeRequest(other.raw))).commits] == [
            1,
            2,
        ]
    assert (await node.ask(HELLO, Done())).epoch == (2 if node.name else 0)


async def test_all_who_wait_are_told_and_whose_entry_was_not_sent_that_it_did_not_happen(
    store: RiggedStore, node: Node
) -> None:
    vids = [await born(node) for _ in range(3)] if node.name else [await born(node)] * 3
    log = log_of(node, vids[0])
    rule = store.add(Rule(op="create", key=f"logs/{log}/entries/*", before=RuntimeError("boom"), gate=anyio.Event()))
    outcomes: dict[int, bool] = {}

    async def commit(at: int) -> None:
        with pytest.raises(Unavailable) as told:
            await put(node, vids[at], 0, "abc"[at])
        outcomes[at] = told.value.determinate

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(commit, 0)
        await rule.reached.wait()
        tasks.start_soon(commit, 1)
        tasks.start_soon(commit, 2)
        await anyio.wait_all_tasks_blocked()
        assert rule.gate is not None
        rule.gate.set()
    assert outcomes == {0: False, 1: True, 2: True}


async def test_a_cache_that_fails_ends_no_node(store: RiggedStore, node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with `--cache` on a folder that could not be listed."""
    vid = await born(node)
    real, failing = ChunkCache.seed, [RuntimeError("no cache")]

    async def seed(self: ChunkCache, key: str, data: bytes) -> None:
        if failing:
            raise failing.pop()
        await real(self, key, data)

    monkeypatch.setattr(ChunkCache, "seed", seed)
    assert (await put(node, vid, 0, "a")).lsn == 1
    assert (await put(node, vid, 1, "b")).lsn == 2
    assert await pages_at(node, vid) == {1: page("b")}


async def test_a_volume_that_fails_half_way_is_opened_anew_and_its_log_goes_on(
    store: RiggedStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with Node.open(store, name="main") as node, Node.open(store, patience=hasty()) as reader:
        one, two = await born(node), await born(node)
        for vid in (one, two):
            await put(node, vid, 0, "a")
            assert (await reader.ask(SNAPSHOT, SnapshotRequest(vid.raw))).lsn == 1
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(put, node, one, 1, "b")
            tasks.start_soon(put, node, two, 1, "b")
        real, failing = Volume.take, [RuntimeError("half-way")]

        def take(self: Volume, placed: Any) -> bool:
            if failing and self.vid == two:
                raise failing.pop()
            return real(self, placed)

        monkeypatch.setattr(Volume, "take", take)
        log = await reader.logs.get("main")
        for vid in (one, two):
            assert (await reader.ask(SNAPSHOT, SnapshotRequest(vid.raw))).lsn == 2
            assert await pages_at(reader, vid) == {1: page("b")}
        assert len(said(caplog, "half-way")) == 1
        assert await reader.logs.get("main") is log


async def test_a_volume_that_fails_while_it_is_opened_is_opened_anew(
    store: RiggedStore, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has taken half of what waited for it, and can't take that again."""
    vid = await born(node)
    for lsn in range(3):
        await put(node, vid, lsn, "abc"[lsn])
    real, seen = Volume.take, list[Any]()

    def take(self: Volume, placed: Any) -> bool:
        seen.append(placed)
        if len(seen) == 2:
            raise RuntimeError("half-way")
        return real(self, placed)

    async with Node.open(store) as reader:
        monkeypatch.setattr(Volume, "take", take)
        with pytest.raises(Unavailable, match="half-way"):
            await reader.ask(SNAPSHOT, SnapshotRequest(vid.raw))
        assert (await reader.ask(SNAPSHOT, SnapshotRequest(vid.raw))).lsn == 3
        assert await pages_at(reader, vid) == {1: page("c")}


async def test_whoever_waits_on_a_log_that_ends_goes_on_waiting_on_the_new_one(
    store: RiggedStore, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    vid = await born(node)
    await put(node, vid, 0, "a")
    heads: list[int] = []

    async def wait() -> None:
        heads.append((await node.ask(WAIT, WaitRequest(vid.raw, after=1, timeout_seconds=LIMIT_SECONDS))).lsn)

    with anyio.fail_after(LIMIT_SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            store.add(Rule(op="create", key=f"logs/{log_of(node, vid)}/entries/*", before=RuntimeError("boom")))
            with pytest.raises(Unavailable):
                await put(node, vid, 1, "b")
            assert (await put(node, vid, 1, "b")).lsn == 2
    assert heads == [2]


async def test_names_are_opened_anew_too(store: RiggedStore, node: Node) -> None:
    def bind(name: str) -> NameRequest:
        return NameRequest(op="bind", name=name, target=VolumeId.new().raw, client=ANN.raw)

    assert (await node.ask(CHANGE_NAME, bind("a"))).lsn == 1
    store.add(Rule(op="create", key=f"logs/{node.root.names_id}/entries/*", after=RuntimeError("boom")))
    with pytest.raises(Unavailable):
        await node.ask(CHANGE_NAME, bind("b"))
    assert (await node.ask(CHANGE_NAME, bind("c"))).lsn == 3
    assert [entry.name for entry in (await node.ask(LIST_NAMES, NamesRequest())).entries] == ["a", "b", "c"]


async def test_a_change_that_can_not_be_judged_fails_alone(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    vid = await born(node)
    await put(node, vid, 0, "a")
    log = await node.logs.get(log_of(node, vid))

    def judge(_state: Any, _now_ms: int) -> Any:
        raise RecursionError("too deep")

    assert log.writer is not None
    with pytest.raises(Unavailable, match="too deep") as told:
        await log.writer.submit(Change(await node.volumes.get(vid), judge))
    assert told.value.determinate
    assert (await put(node, vid, 1, "b")).lsn == 2
    assert await node.logs.get(log.name) is log


async def test_a_draft_that_fails_leaves_nobody_waiting(
    store: RiggedStore, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those who were judged before and those who come after it: all are told."""
    vid = await born(node)
    gate = store.add(Rule(op="create", key=f"logs/{log_of(node, vid)}/entries/*", gate=anyio.Event()))
    real, told = EntryDraft.admit, list[int]()

    def admit(self: EntryDraft, submission: Any) -> Admission:
        if submission.inline_bytes > PAGE * 20:
            raise MemoryError("no room for a draft")
        return real(self, submission)

    async def commit(base: int, count: int) -> None:
        pages = {n: os.urandom(PAGE) for n in range(1, count + 1)}
        request, segment = commit_of(vid, base, pages, client=ClientId.new(), page_size=PAGE, floor=0)
        if base:
            with pytest.raises(Unavailable, match="no room"):
                await node.commit(request, segment)
        else:
            await node.commit(request, segment)
        told.append(count)

    monkeypatch.setattr(EntryDraft, "admit", admit)
    with anyio.fail_after(LIMIT_SECONDS):
        async with anyio.create_task_group() as tasks:
            # One whose entry is under way, one that the next draft takes, one that is judged later, and the one.
            for base, count in ((0, 1), (1, 2), (1, 3), (1, 40)):
                tasks.start_soon(commit, base, count)
                await anyio.wait_all_tasks_blocked()
            assert gate.gate is not None
            gate.gate.set()
    assert sorted(told) == [1, 2, 3, 40]


async def test_what_was_judged_on_a_reading_that_has_ended_is_not_written(store: RiggedStore, node: Node) -> None:
    """It would be judged on a state that no longer moves."""
    vid = await born(node)
    await put(node, vid, 0, "a")
    old = await node.volumes.get(vid)
    store.add(Rule(op="create", key=f"logs/{log_of(node, vid)}/entries/*", after=RuntimeError("boom")))
    with pytest.raises(Unavailable):
        await put(node, vid, 1, "b")
    writer = await node.logs.writer(await node.logs.get(log_of(node, vid)))
    with pytest.raises(Unavailable, match="opened anew"):
        await writer.submit(Change(old, lambda _state, _now_ms: pytest.fail("it was judged")))
    assert isinstance(old, Volume)
    assert old.ended


async def test_pauses_grow_and_are_forgiven() -> None:
    clock = ManualClock(1000.0)
    pauses = Backoff(clock.now)
    waits: list[float] = []
    for _ in range(8):
        pauses.tried()
        waits.append(pauses.left_seconds())
        clock.advance(waits[-1])
    assert waits[:4] == [0.0, 0.25, 0.5, 1.0]
    assert waits[-1] == LONGEST_SECONDS
    clock.advance(FORGIVEN_SECONDS + 1)
    pauses.tried()
    assert pauses.left_seconds() == 0.0


async def filled(store: RiggedStore, commits: int = 40) -> VolumeId:
    """A volume in a private log with that many entries behind its anchor."""
    async with Node.open(store) as node:
        vid = await born(node)
        for lsn in range(commits):
            await put(node, vid, lsn, "abc"[lsn % 3])
    store.forget()
    return vid


def reads(store: RiggedStore, vid: VolumeId) -> list[str]:
    """Entries that stand, as often as they were read whole."""
    assert isinstance(store.inner, MemoryStore)
    standing = store.inner.objects
    whole = (r for r in store.matching("get", f"logs/{vid}/*") if r.received_bytes != START_BYTES)
    return sorted(r.key for r in whole if r.key in standing)


READS: dict[str, Callable[[Node, VolumeId], Coroutine[Any, Any, Any]]] = {
    "wait": lambda node, vid: node.ask(WAIT, WaitRequest(vid.raw, after=100, timeout_seconds=LIMIT_SECONDS)),
    "read_pages": lambda node, vid: pages_at(node, vid, 40),
    "snapshot": lambda node, vid: node.ask(SNAPSHOT, SnapshotRequest(vid.raw)),
}


@pytest.mark.parametrize("read", READS)
async def test_a_log_goes_on_being_opened_when_whoever_asked_for_it_leaves(store: RiggedStore, read: str) -> None:
    vid = await filled(store)
    gate = store.add(Rule(op="get", key=entry_key(str(vid), 20), gate=anyio.Event()))
    with anyio.fail_after(LIMIT_SECONDS):
        async with Node.open(store) as node:
            for _ in range(3):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(READS[read], node, vid)
                    await gate.reached.wait()
                    tasks.cancel_scope.cancel()
            assert gate.gate is not None
            gate.gate.set()
            assert (await node.ask(SNAPSHOT, SnapshotRequest(vid.raw))).lsn == 40
            assert reads(store, vid) == sorted(set(reads(store, vid))), "some entry was read twice"


async def test_what_opening_meets_is_told_to_all_who_wait_and_the_next_one_tries_again(store: RiggedStore) -> None:
    vid = await filled(store)
    key = entry_key(str(vid), 20)
    rule = store.add(Rule(op="get", key=key, gate=anyio.Event(), mangle=lambda data: data[:50]))
    told: list[str] = []

    async def ask(node: Node) -> None:
        with pytest.raises(Corrupt) as error:
            await node.ask(SNAPSHOT, SnapshotRequest(vid.raw))
        told.append(error.value.key)

    async with Node.open(store) as node:
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(ask, node)
            await rule.reached.wait()
            assert rule.gate is not None
            rule.gate.set()
        assert told == [key] * 5
        assert rule.seen == 1
        assert (await node.ask(SNAPSHOT, SnapshotRequest(vid.raw))).lsn == 40


async def test_what_was_read_stays_read_when_the_store_is_away_for_a_while(store: RiggedStore) -> None:
    vid = await filled(store)
    away = store.add(Rule(op="get", key=entry_key(str(vid), 35), times=None, before=Unavailable("away")))
    async with Node.open(store, patience=hasty()) as node:
        for _ in range(3):
            with pytest.raises(Unavailable):
                await node.ask(SNAPSHOT, SnapshotRequest(vid.raw))
        away.before = None
        assert (await node.ask(SNAPSHOT, SnapshotRequest(vid.raw))).lsn == 40
    early = [entry_key(str(vid), slot) for slot in range(16)]
    assert [key for key in reads(store, vid) if key in early] == sorted(early)


async def test_a_node_that_closes_does_not_wait_for_a_log_to_be_opened(store: RiggedStore) -> None:
    vid = await filled(store)
    gate = store.add(Rule(op="get", key=entry_key(str(vid), 20), gate=anyio.Event()))

    async def ask(node: Node) -> None:
        with pytest.raises(Unavailable, match="shutting down"):
            await node.ask(SNAPSHOT, SnapshotRequest(vid.raw))

    with anyio.fail_after(LIMIT_SECONDS):
        async with anyio.create_task_group() as tasks, Node.open(store) as node:
            tasks.start_soon(ask, node)
            await gate.reached.wait()


async def test_a_namespace_that_ends_tells_who_waits_for_it() -> None:
    names = Namespace(VolumeId.new())
    event = names.changed()
    names.end()
    assert names.ended
    assert event.is_set()
