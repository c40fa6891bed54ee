"""Small commits over HTTP: many tasks on one client, and what a request isn't asked twice (docs/design/0093)."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import anyio
import anyio.abc
import httpx
import msgspec
import pytest
from tests.served import Raw, client, serving

from budwood.remote import connections
from budwood.remote.connections import Connections, NoneFree
from budwood.remote.exchange import Timing
from budwood.remote.http import HttpRemote
from budwood.server.http.asgi import Message, Request
from budwood.server.http.body import read_body
from budwood.server.http.memory_budget import MemoryBudget, Pace
from budwood.testing.stores import MemoryStore
from budwood.volume.calls import HELLO, Done
from budwood.volume.errors import BadInput
from budwood.volume.wire import StoreInfo

from ..waits import LIMIT_SECONDS

pytestmark = pytest.mark.anyio
both = pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])

TASKS = 200
HEADS = b"\r\n\r\n"


@dataclass
class Answering:
    """Answers each hello once so many are asked at the same time."""

    together: int
    connected: int = 0
    """Connections that a call came over: a client that waits for long asks on others whether the node lives."""
    waiting: int = 0
    all_wait: anyio.Event = field(default_factory=anyio.Event)

    async def handle(self, stream: anyio.abc.SocketStream) -> None:
        body = msgspec.msgpack.encode(StoreInfo(store="s"))
        head = f"HTTP/1.1 200 OK\r\ncontent-type: application/msgpack\r\ncontent-length: {len(body)}\r\n\r\n"
        # Until whoever asks goes away.
        with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
            async with stream:
                received, asked = b"", False
                while True:
                    received += await stream.receive()
                    # A hello's body is one byte.
                    if HEADS in received and not received.endswith(HEADS):
                        self.connected += not asked
                        received, asked = b"", True
                        await self._met()
                        await stream.send(head.encode() + body)

    async def _met(self) -> None:
        self.waiting += 1
        met = self.all_wait
        if self.waiting == self.together:
            self.waiting, self.all_wait = 0, anyio.Event()
            met.set()
        await met.wait()


@asynccontextmanager
async def answering(together: int) -> AsyncGenerator[tuple[Answering, str], None]:
    node = Answering(together)
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, node.handle)
        with anyio.fail_after(LIMIT_SECONDS):
            yield node, f"http://127.0.0.1:{listener.extra(anyio.abc.SocketAttribute.local_port)}"
        tasks.cancel_scope.cancel()


@both
async def test_calls_of_one_client_are_all_under_way_at_once_and_their_connections_used_again() -> None:
    async with answering(TASKS) as (node, address), client(address) as remote:
        for _ in range(3):
            async with anyio.create_task_group() as tasks:
                for _ in range(TASKS):
                    tasks.start_soon(remote.ask, HELLO, Done())
        assert node.connected == TASKS


@both
async def test_a_call_that_was_cancelled_leaves_its_place_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("budwood.remote.exchange._CONNECTIONS", 1)
    async with answering(2) as (node, address), client(address) as remote:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(remote.ask, HELLO, Done())
            while not node.waiting:
                await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
        assert (await remote.ask(HELLO, Done())).store == "s"
        assert node.connected == 2, "an answer that was left unread is no other call's"


@both
@pytest.mark.filterwarnings("ignore:.*ByteStream:pytest.PytestUnraisableExceptionWarning")
async def test_a_call_that_is_given_up_at_any_step_stalls_no_other() -> None:
    """httpx may go on believing that it is under way, and have the next call wait for its end."""
    async with answering(1) as (_, address):
        remote = HttpRemote(address, timing=Timing(read_seconds=2 * LIMIT_SECONDS))
        for steps in range(100):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(remote.ask, HELLO, Done())
                for _ in range(steps):
                    await anyio.lowlevel.checkpoint()
                tasks.cancel_scope.cancel()
            assert (await remote.ask(HELLO, Done())).store == "s"
        await remote.aclose()


async def test_a_task_that_is_cancelled_at_any_step_stalls_no_other_call() -> None:
    """As programs with asyncio cancel one, which tells it once."""
    async with answering(1) as (_, address):
        remote = HttpRemote(address, timing=Timing(read_seconds=2 * LIMIT_SECONDS))
        for steps in range(100):
            task = asyncio.create_task(remote.ask(HELLO, Done()))
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            assert (await remote.ask(HELLO, Done())).store == "s"
        await remote.aclose()


def unsecured() -> httpx.AsyncClient:
    return httpx.AsyncClient(verify=False)


@both
async def test_beyond_the_most_a_call_waits_and_is_told_in_the_end() -> None:
    pool = Connections(unsecured, most=1, kept=1)
    first = await pool.take(0.0)
    with pytest.raises(NoneFree):
        await pool.take(0.01)
    await pool.give_back(first, is_sound=True)
    assert await pool.take(0.0) is first
    await pool.give_back(first, is_sound=True)
    await pool.aclose()
    assert first.client.is_closed


@both
async def test_connections_are_closed_that_are_old_too_many_or_given_back_late(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = Connections(unsecured, most=3, kept=2)
    one, two, three = [await pool.take(0.0) for _ in range(3)]
    for each in (one, two, three):
        await pool.give_back(each, is_sound=True)
    assert (one.client.is_closed, two.client.is_closed, three.client.is_closed) == (False, False, True)
    monkeypatch.setattr(connections, "KEPT_SECONDS", -1.0)
    late = await pool.take(0.0)
    assert (one.client.is_closed, two.client.is_closed) == (True, True)
    await pool.aclose()
    await pool.give_back(late, is_sound=True)
    assert late.client.is_closed


def request_of(pieces: list[Message], **headers: str) -> tuple[Request, Callable[[], int]]:
    """And how many of its body's pieces are left."""

    async def receive() -> Message:
        await anyio.lowlevel.checkpoint()
        return pieces.pop(0)

    named = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return Request({"type": "http", "path": "/v1/x", "headers": named}, receive), lambda: len(pieces)


def piece(body: bytes, *, more: bool) -> Message:
    return {"type": "http.request", "body": body, "more_body": more}


@both
async def test_a_body_is_whole_at_its_length_or_at_its_end_and_nobody_asks_for_more() -> None:
    budget = MemoryBudget(100, Pace())
    for headers, pieces, whole, left in [
        (
            {"content_length": "4"},
            [piece(b"ab", more=True), piece(b"cd", more=True), piece(b"", more=False)],
            b"abcd",
            1,
        ),
        ({"content_length": "0"}, [piece(b"", more=False)], b"", 1),
        ({}, [piece(b"ab", more=True), piece(b"", more=False)], b"ab", 0),
    ]:
        request, remaining = request_of(pieces, **headers)
        async with budget.hold() as reservation:
            assert await read_body(request, reservation) == whole
            assert budget.held_bytes == len(whole)
        assert remaining() == left
        assert budget.held_bytes == 0


@both
async def test_a_body_that_breaks_off_or_is_longer_than_it_may_be_is_refused() -> None:
    budget = MemoryBudget(100, Pace())
    gone: Message = {"type": "http.disconnect"}
    cut, _ = request_of([piece(b"ab", more=True), gone], content_length="4")
    async with budget.hold() as reservation:
        with pytest.raises(BadInput, match="cut short"):
            await read_body(cut, reservation)
    long, _ = request_of([piece(b"ab", more=True), piece(b"cd", more=False)])
    async with budget.hold() as reservation:
        with pytest.raises(BadInput, match="at most 3 bytes"):
            await read_body(long, reservation, 3)


def test_of_a_header_that_came_twice_the_first_counts() -> None:
    scope = {"path": "/", "headers": [(b"content-type", b"Text/Plain; a=b"), (b"content-type", b"x/y")]}

    async def receive() -> Message:
        raise AssertionError("nothing is read")

    assert Request(scope, receive).content == "text/plain"


async def test_a_path_is_told_on_one_line_and_head_is_answered_like_get() -> None:
    async with serving(MemoryStore()) as address:
        async with httpx.AsyncClient(base_url=address, verify=False) as web:
            lost = (await web.post("/v1/a%0Ab")).json()
            assert (lost["code"], "\n" in lost["message"]) == ("NotFound", False)
            assert (await web.post("/v1/snapshot/")).status_code == 404
            assert (await web.head("/healthz")).status_code == 200
            assert (await web.put("/v1/snapshot")).json()["message"] == "/v1/snapshot takes POST, not PUT"
        async with Raw(address) as caller:
            await caller.send(b"POST /v1/hello HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n")
            await caller.send(b"transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n")
            assert b" 200 " in (await caller.receive()).partition(b"\r\n")[0]


def test_a_process_that_serves_runs_on_uvloop_and_collects_garbage_more_rarely() -> None:
    program = (
        "import asyncio, gc; from budwood.server.http import process\n"
        "async def main():\n"
        "    print(type(asyncio.get_running_loop()).__module__, gc.get_threshold()[0], gc.get_freeze_count() > 0)\n"
        "process.run(main)"
    )
    done = subprocess.run([sys.executable, "-P", "-c", program], stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout.split() == ["uvloop", "20000", "True"]
