"""Those who wait at a node, over real HTTP: what they hold, and what they cost; and how many may (S3.16).

What 10,000 cost in memory and time is the bench's to tell (bench/waiters.py)."""

from __future__ import annotations

import logging
import resource
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import anyio
import msgspec
import pytest

from budwood.remote import exchange, listening
from budwood.remote.exchange import Timing
from budwood.remote.http import HttpRemote
from budwood.remote.listening import Listener, listen
from budwood.server.http import run_node
from budwood.server.http.app import WRITES
from budwood.server.metastore import polling
from budwood.server.node import Node
from budwood.testing.commits import commit_of
from budwood.testing.stores import MemoryStore, RiggedStore, Rule
from budwood.volume.calls import CREATE, SNAPSHOT, WAIT, CreateRequest, SnapshotRequest, WaitRequest
from budwood.volume.errors import Unavailable
from budwood.volume.ids import ClientId, VolumeId
from budwood.volume.protocols import Remote

from ..served import Raw, asked, client, serving
from ..waits import LIMIT_SECONDS, wait_until

pytestmark = pytest.mark.anyio

PAGE = 512
MANY = 300
CLIENT = ClientId.new()


async def made(remote: Remote) -> VolumeId:
    vid = VolumeId.new()
    await remote.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
    return vid


async def put(remote: Remote, vid: VolumeId, lsn: int) -> None:
    await remote.commit(*commit_of(vid, lsn - 1, {1: bytes([lsn]) * PAGE}, client=CLIENT, page_size=PAGE))


def body(vid: VolumeId, after: int = 0, seconds: float = 60.0) -> bytes:
    return msgspec.msgpack.encode(WaitRequest(vid.raw, after=after, timeout_seconds=seconds, commits=10))


@asynccontextmanager
async def waiting(address: str, vids: list[VolumeId]) -> AsyncGenerator[list[Raw]]:
    """One for each of these, over a connection of its own, which has asked."""
    async with AsyncExitStack() as stack:
        held = [await stack.enter_async_context(Raw(address)) for _ in vids]
        for each, vid in zip(held, vids, strict=True):
            message = body(vid)
            await each.head("wait", len(message))
            await each.send(message)
        yield held


async def come(holds: Callable[[], object]) -> None:
    await anyio.to_thread.run_sync(wait_until, holds)


async def watched(node: Node, count: int) -> None:
    """Until so many wait."""
    watches: Any = node.logs.watches
    await come(lambda: sum(sum(watch.waiters.values()) for watch in [*watches._watches.values()]) == count)


@asynccontextmanager
async def node_of(store: Any, **options: Any) -> AsyncGenerator[tuple[str, Node]]:
    """A node that is served, and itself."""
    nodes: list[Node] = []
    opened = Node.open

    def note(*arguments: Any, **more: Any) -> Any:
        @asynccontextmanager
        async def opening() -> AsyncGenerator[Node]:
            async with opened(*arguments, **more) as node:
                nodes.append(node)
                yield node

        return opening()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Node, "open", note)
        async with serving(store, **options) as address:
            yield address, nodes[0]


async def test_many_who_wait_hold_no_thread_no_slot_and_no_timer_and_all_are_told() -> None:
    store = RiggedStore(MemoryStore())
    async with node_of(store) as (address, node), client(address) as remote:
        vids = [await made(remote) for _ in range(3)]
        await put(remote, vids[0], 1)
        await watched(node, 0)
        threads = threading.active_count()
        async with waiting(address, [vids[1 + number % 2] for number in range(MANY)]) as waiters:
            await watched(node, MANY)
            assert threading.active_count() <= threads, "what worked before may have ended meanwhile"
            watches: Any = node.logs.watches
            assert [*watches._watches] == ["main"], "one looks at the log for all"
            store.forget()
            # More than may send a body at once, or be written to: none of them is waited for.
            for lsn in range(2, 4 + WRITES):
                await put(remote, vids[0], lsn)
            assert (await remote.ask(SNAPSHOT, SnapshotRequest(vids[0].raw))).lsn == 3 + WRITES
            assert store.count("list") == 0 == store.count("get", "logs/*")
            await put(remote, vids[1], 1)
            for each in waiters[::2]:
                assert (await each.receive()).startswith(b"HTTP/1.1 200")
            await watched(node, MANY // 2)
        await watched(node, 0)
        assert not watches._watches


async def test_one_looks_at_a_log_of_others_for_all_who_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polling, "POLL_SECONDS", 0.01)
    inner = MemoryStore()
    async with Node.open(inner) as writer:
        vid = await made(writer)
        store = RiggedStore(inner)
        heads: list[int] = []
        async with Node.open(store) as node, anyio.create_task_group() as tasks:

            async def wait() -> None:
                request = WaitRequest(vid.raw, after=0, timeout_seconds=LIMIT_SECONDS, commits=1)
                heads.append((await node.ask(WAIT, request)).commits[0].lsn)

            for _ in range(MANY):
                tasks.start_soon(wait)
            await watched(node, MANY)
            store.forget()
            looked = store.add(Rule(op="get", nth=10))
            await looked.reached.wait()
            assert store.count() <= 2 * 10, "a look for each would be hundreds"
            await put(writer, vid, 1)
        assert heads == [1] * MANY


async def test_what_a_look_meets_is_told_to_all_and_who_comes_after_it_has_passed_waits(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    monkeypatch.setattr(polling, "POLL_SECONDS", 0.01)
    inner = MemoryStore()
    async with Node.open(inner) as writer:
        vid = await made(writer)
        store = RiggedStore(inner)
        async with Node.open(store) as node:
            request = WaitRequest(vid.raw, after=0, timeout_seconds=LIMIT_SECONDS)
            for error in (RuntimeError("nobody foresaw it"), PermissionError("nor that")):
                told: list[Unavailable] = []

                async def wait(told: list[Unavailable] = told) -> None:
                    with pytest.raises(Unavailable) as caught:
                        await node.ask(WAIT, request)
                    told.append(caught.value)

                async with anyio.create_task_group() as tasks:
                    for _ in range(10):
                        tasks.start_soon(wait)
                    await watched(node, 10)
                    store.add(Rule(op="get", before=error))
                assert len(told) == 10
            heads: list[int] = []

            async def hear() -> None:
                heads.append((await node.ask(WAIT, request)).lsn)

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(hear)
                await watched(node, 1)
                await put(writer, vid, 1)
            assert heads == [1]


async def test_who_waits_when_a_node_closes_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Node.open(MemoryStore(), name="main") as node, anyio.create_task_group() as tasks:
        vid = await made(node)
        told: list[str] = []

        async def wait() -> None:
            with pytest.raises(Unavailable, match="shutting down"):
                await node.ask(WAIT, WaitRequest(vid.raw, after=0, timeout_seconds=LIMIT_SECONDS))
            told.append("")

        tasks.start_soon(wait)
        await watched(node, 1)
        await node.aclose()
        await come(lambda: told)


async def test_many_private_logs_are_looked_at_less_often() -> None:
    async with anyio.create_task_group() as tasks:
        watches: Any = polling.LogWatches(tasks, anyio.sleep, lambda _: False)  # type: ignore[arg-type]
        assert watches._pause_seconds() == polling.POLL_SECONDS
        watches._watches = dict.fromkeys(map(str, range(1000)))
        assert 1000 / watches._pause_seconds() <= polling.MOST_LOOKS_PER_SECOND


async def test_beyond_its_limit_a_node_refuses_in_words_and_serves_all_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_node, "CONNECTIONS", 40)
    async with node_of(MemoryStore()) as (address, node), client(address) as remote:
        vid = await made(remote)
        async with waiting(address, [vid] * 30):
            await watched(node, 30)
            said = await asked(address, "wait", body(vid))
            assert (said.status, said.code) == (503, "Unavailable")
            assert "30 wait at this node already" in said.message
            await put(remote, vid, 1)
        await watched(node, 0)
        assert (await asked(address, "wait", body(vid))).status == 200


async def test_connections_leave_files_for_the_node_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a process may open few files, those who wait must not take them all."""
    limits = {"now": (1024, 4096)}

    def asked_for(_: int) -> tuple[int, int]:
        return limits["now"]

    def given(_: int, limit: tuple[int, int]) -> None:
        limits["now"] = limit

    monkeypatch.setattr(resource, "getrlimit", asked_for)
    monkeypatch.setattr(resource, "setrlimit", given)
    assert run_node.most_connections() == 1024 - run_node.OTHER_FILES
    run_node.raise_file_limit()
    assert limits["now"] == (4096, 4096)
    assert run_node.most_connections() == 4096 - run_node.OTHER_FILES
    limits["now"] = (1024, resource.RLIM_INFINITY)
    run_node.raise_file_limit()
    assert run_node.most_connections() == run_node.CONNECTIONS
    for stays in ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), (1 << 20, 1 << 20)):
        limits["now"] = stays
        run_node.raise_file_limit()
        assert limits["now"] == stays
        assert run_node.most_connections() == run_node.CONNECTIONS


async def test_more_connections_than_may_be_wait_until_another_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that no number of callers leaves the node without files."""
    most = 16
    monkeypatch.setattr(run_node, "CONNECTIONS", most)
    message = body(VolumeId.new())

    async def ask(one: Raw) -> bytes:
        await one.head("wait", len(message))
        await one.send(message)
        return await one.receive()

    async with node_of(MemoryStore()) as (address, _), AsyncExitStack() as stack:
        held = [await stack.enter_async_context(Raw(address)) for _ in range(most - 1)]
        last = await stack.enter_async_context(Raw(address))
        for each in (*held, last):
            await ask(each)
        late = await stack.enter_async_context(Raw(address))
        answers: list[bytes] = []

        async def ask_late() -> None:
            answers.append(await ask(late))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask_late)
            for each in 3 * held:
                assert (await ask(each)).startswith(b"HTTP/1.1 404")
            assert not answers
            await last.__aexit__(None, None, None)
        assert answers[0].startswith(b"HTTP/1.1 404")


async def test_a_process_that_waits_too_often_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "_WAITING_CONNECTIONS", 2)
    async with node_of(MemoryStore()) as (address, node):
        remote = HttpRemote(address, timing=Timing(read_seconds=0.2, retry_seconds=0.0))
        vid = await made(remote)
        async with anyio.create_task_group() as tasks:
            for _ in range(2):
                tasks.start_soon(remote.ask, WAIT, WaitRequest(vid.raw, after=0, timeout_seconds=60.0))
            await watched(node, 2)
            with pytest.raises(Unavailable, match="2 calls of this process"):
                await remote.ask(WAIT, WaitRequest(vid.raw, after=0, timeout_seconds=0.01))
            tasks.cancel_scope.cancel()
        await remote.aclose()


@asynccontextmanager
async def hearing(listener: Listener) -> AsyncGenerator[list[int]]:
    """What it hears, while this lasts."""
    lsns: list[int] = []

    async def hear() -> None:
        async for commit in listener:
            lsns.append(commit.lsn)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(hear)
        yield lsns
        tasks.cancel_scope.cancel()


async def test_a_node_that_ends_and_comes_back_is_no_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "_LONGEST_PAUSE_SECONDS", 0.05)
    store, silences = MemoryStore(), list[Unavailable]()
    async with serving(store) as address, client(address) as writer:
        vid = await made(writer)
        await put(writer, vid, 1)
    port = int(address.rpartition(":")[2])
    async with client(address) as remote:
        async with serving(store, at=port), client(address) as writer:
            listener = await listen(remote, vid, after=0, on_silence=silences.append)
            await put(writer, vid, 2)
        async with hearing(listener) as lsns:
            await come(lambda: silences)
            async with serving(store, at=port), client(address) as writer:
                await put(writer, vid, 3)
                await come(lambda: lsns == [1, 2, 3])
    assert len(silences) == 1
