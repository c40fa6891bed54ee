"""A node that takes requests and answers nothing: told by one deadline if it is stopped, waited for if it is slow."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
import anyio.abc
import msgspec
import pytest

from budwood.remote.exchange import Timing
from budwood.remote.http import HttpRemote
from budwood.volume.calls import HELLO, WAIT, Done, WaitRequest
from budwood.volume.errors import Unavailable
from budwood.volume.ids import VolumeId
from budwood.volume.pageset import PageSet, encode_pages
from budwood.volume.wire import CommitRequest, Committed, StoreInfo

from ..waits import LIMIT_SECONDS

pytestmark = pytest.mark.anyio

TIMING = Timing(read_seconds=100 * LIMIT_SECONDS, quiet_seconds=0.02, probe_seconds=LIMIT_SECONDS, retry_seconds=0.0)
"""Whoever waited for an answer would wait for ever."""

HASTY = msgspec.structs.replace(TIMING, probe_seconds=0.2)
"""For a node that never says that it is alive: one that does might be too late."""

COMMIT = CommitRequest(
    vid=VolumeId.new().raw,
    base=0,
    length=0,
    floor=0,
    pages=encode_pages(PageSet()),
    client=bytes(16),
    nonce=b"",
    content=bytes(32),
    setsum=bytes(32),
    token=bytes(32),
)


@dataclass
class Node:
    """Answers commits and hellos when it is told to. Says that it is alive, or doesn't: it takes the question and
    answers nothing, or hangs up."""

    alive: bool
    hangs_up: bool = False
    answers: anyio.Event = field(default_factory=anyio.Event)
    asked: list[str] = field(default_factory=list[str])
    reached: anyio.Event = field(default_factory=anyio.Event)
    probed: anyio.Event = field(default_factory=anyio.Event)
    port: int = 0

    async def handle(self, stream: anyio.abc.SocketStream) -> None:
        async with stream:
            received = b""
            while b"\r\n\r\n" not in received:
                received += await stream.receive()
            path = received.split()[1].decode()
            self.asked.append(path)
            self.reached.set()
            if path == "/healthz":
                if not self.alive:
                    self.probed.set()
                    if self.hangs_up:
                        return
                    await anyio.sleep_forever()
            else:
                await self.answers.wait()
            answer = Committed(lsn=1, time=1) if path == "/v1/commit" else StoreInfo(store="s")
            body = msgspec.msgpack.encode(answer)
            head = f"HTTP/1.1 200 OK\r\ncontent-type: application/msgpack\r\ncontent-length: {len(body)}\r\n\r\n"
            await stream.send(head.encode() + body)
            if path == "/healthz":
                self.probed.set()


@asynccontextmanager
async def running(*, alive: bool, timing: Timing = TIMING) -> AsyncGenerator[tuple[Node, HttpRemote], None]:
    node = Node(alive)
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, node.handle)
        node.port = listener.extra(anyio.abc.SocketAttribute.local_port)
        remote = HttpRemote(f"http://127.0.0.1:{node.port}", timing=timing)
        with anyio.fail_after(LIMIT_SECONDS):
            yield node, remote
        await remote.aclose()
        tasks.cancel_scope.cancel()


def calls(remote: HttpRemote) -> list[Callable[[], Awaitable[object]]]:
    return [lambda: remote.commit(COMMIT), lambda: remote.ask(HELLO, Done())]


@pytest.mark.parametrize("number", [0, 1], ids=["a commit", "a question"])
async def test_a_stopped_node_is_told_of_and_what_it_was_sent_may_have_happened(number: int) -> None:
    async with running(alive=False, timing=HASTY) as (node, remote):
        with pytest.raises(Unavailable, match=f"127.0.0.1:{node.port}.*was stopped, or hangs") as caught:
            await calls(remote)[number]()
        assert caught.value.determinate == (number == 1)


@pytest.mark.parametrize("number", [0, 1], ids=["a commit", "a question"])
async def test_a_slow_node_is_waited_for(number: int) -> None:
    async with running(alive=True) as (node, remote), anyio.create_task_group() as tasks:
        answered = anyio.Event()

        async def call() -> None:
            await calls(remote)[number]()
            answered.set()

        tasks.start_soon(call)
        await node.probed.wait()
        # By then whoever took it for stopped would have said so.
        await anyio.sleep(10 * TIMING.quiet_seconds)
        assert not answered.is_set()
        node.answers.set()
        await answered.wait()


async def test_a_node_that_was_silent_is_asked_at_once_and_used_again_when_it_goes_on() -> None:
    async with running(alive=False) as (node, remote):
        node.hangs_up = True
        with pytest.raises(Unavailable):
            await remote.commit(COMMIT)
        node.probed = anyio.Event()
        with pytest.raises(Unavailable, match="was stopped, or hangs"):
            await remote.ask(HELLO, Done())
        assert node.probed.is_set()
        node.alive = True
        node.answers.set()
        assert (await remote.commit(COMMIT)).lsn == 1
        # It is as good as any from now on: nobody asks whether it is alive.
        node.asked.clear()
        assert (await remote.commit(COMMIT)).lsn == 1
        assert node.asked == ["/v1/commit"]


async def test_a_long_wait_is_no_silence() -> None:
    async with running(alive=False) as (node, remote), anyio.create_task_group() as tasks:
        tasks.start_soon(
            remote.ask, WAIT, WaitRequest(VolumeId.new().raw, after=0, timeout_seconds=100 * LIMIT_SECONDS)
        )
        await node.reached.wait()
        # By then a node that was only asked something would have been asked whether it is alive.
        await anyio.sleep(10 * TIMING.quiet_seconds)
        assert node.asked == ["/v1/wait"]
        tasks.cancel_scope.cancel()
