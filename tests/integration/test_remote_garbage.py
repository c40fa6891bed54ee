"""A remote that is down, slow or no node at all: one clear line that names the URL, in bounded time (DESIGN §9.5)."""

from __future__ import annotations

import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio
import anyio.abc
import msgspec
import pytest

from budwood.remote.exchange import Timing
from budwood.remote.http import HttpRemote
from budwood.testing.clock import ManualClock
from budwood.volume.calls import HELLO, SNAPSHOT, Done, ErrorBody, SnapshotRequest
from budwood.volume.errors import BadInput, Conflict, Corrupt, NotOwner, StoreError, Unauthorized, Unavailable
from budwood.volume.frame import FrameInfo
from budwood.volume.ids import VolumeId
from budwood.volume.pageset import PageSet, encode_pages
from budwood.volume.wire import CommitRequest, End, FramePart, PagesHead, SnapshotInfo, pack_part

pytestmark = pytest.mark.anyio

VID = VolumeId.new()
EMPTY = encode_pages(PageSet())
HEAD = PagesHead(snapshot=SnapshotInfo(vid=VID.raw, lsn=1, length=512, page_size=512), zeros=EMPTY)
FRAME = FramePart(info=FrameInfo(0, 3, 5, (1,)), valid=encode_pages(PageSet([1])))
COMMIT = CommitRequest(
    vid=VID.raw,
    base=0,
    length=0,
    floor=0,
    pages=EMPTY,
    client=bytes(16),
    nonce=b"",
    content=bytes(32),
    setsum=bytes(32),
    token=bytes(32),
)


def http(
    body: bytes, *, status: str = "200 OK", content: str = "application/msgpack", length: int | None = None
) -> bytes:
    size = len(body) if length is None else length
    return f"HTTP/1.1 {status}\r\ncontent-type: {content}\r\ncontent-length: {size}\r\n\r\n".encode() + body


def told(code: str, status: str, content: str = "application/msgpack") -> bytes:
    body = ErrorBody(code=code, message="the words", details={"head": 7, "owner": "http://there", "log": "main"})
    encode = msgspec.json.encode if "json" in content else msgspec.msgpack.encode
    return http(encode(body), status=status, content=content)


class Server:
    """Answers each request with the next of the given bytes, then closes the connection."""

    def __init__(self, answers: list[bytes]) -> None:
        self.answers = answers
        self.requests = 0
        self.port = 0

    async def handle(self, stream: anyio.abc.SocketStream) -> None:
        async with stream:
            received = b""
            while b"\r\n\r\n" not in received:
                received += await stream.receive()
            answer = self.answers[min(self.requests, len(self.answers) - 1)]
            self.requests += 1
            if answer == b"silence":
                await anyio.sleep_forever()
            await stream.send(answer)


@asynccontextmanager
async def answering(*answers: bytes, timing: Timing | None = None) -> AsyncGenerator[tuple[Server, HttpRemote], None]:
    server = Server(list(answers))
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, server.handle)
        server.port = listener.extra(anyio.abc.SocketAttribute.local_port)
        clock = ManualClock(jumps=True)
        remote = HttpRemote(
            f"http://127.0.0.1:{server.port}", timing=timing or Timing(now=clock.now, sleep=clock.sleep)
        )
        yield server, remote
        await remote.aclose()
        tasks.cancel_scope.cancel()


GARBAGE = {
    "noise": b"\x00\xff\x17SSH-2.0-OpenSSH\r\n\r\n",
    "nothing": b"",
    "half a head": b"HTTP/1.1 200 OK\r\ncontent-",
    "a page": http(b"<html>hello</html>", content="text/html"),
    "a page that was not found": http(b"<html>no</html>", status="404 Not Found", content="text/html"),
    "a proxy's refusal": http(b"<html>bad gateway</html>", status="502 Bad Gateway", content="text/html"),
    "a redirect": b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/login\r\ncontent-length: 0\r\n\r\n",
    "another type's message": http(b"\x93\x01\x02\x03"),
    "no message": http(b"\xc1\xc1\xc1"),
    "an empty body": http(b""),
    "a cut body": http(b"\x81", length=500),
    "an error without words": http(b"\x80", status="500 Oops"),
    "a wrong encoding": http(b"\x80") .replace(b"\r\n\r\n", b"\r\ncontent-encoding: gzip\r\n\r\n"),
}  # fmt: skip


@pytest.mark.parametrize("answer", GARBAGE.values(), ids=GARBAGE.keys())
async def test_what_is_no_answer_is_told_in_one_line_that_names_the_url(answer: bytes) -> None:
    async with answering(answer) as (server, remote):
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: remote.ask(HELLO, Done()),
            lambda: remote.ask(SNAPSHOT, SnapshotRequest(VID.raw)),
            lambda: read(remote),
        ]
        for call in calls:
            with pytest.raises((Unavailable, Corrupt)) as caught:
                await call()
            assert f"127.0.0.1:{server.port}" in str(caught.value)
            assert "\n" not in str(caught.value)


@pytest.mark.parametrize("answer", GARBAGE.values(), ids=GARBAGE.keys())
async def test_a_commit_is_sent_once_and_may_have_happened_unless_it_was_refused(answer: bytes) -> None:
    async with answering(answer) as (server, remote):
        with pytest.raises(StoreError) as caught:
            await remote.commit(COMMIT, b"segment")
        assert server.requests == 1
        refused = answer in (GARBAGE["a page that was not found"], GARBAGE["a redirect"])
        assert caught.value.determinate is refused


async def read(remote: HttpRemote) -> list[bytes]:
    async with remote.read_pages(VID, 1, PageSet([1])) as answer:
        return [frame.stored async for frame in answer.frames()]


GOOD = pack_part(HEAD) + pack_part(FRAME, b"abc") + pack_part(End(frames=1))
PARTS = "application/vnd.budwood.parts"


async def test_a_whole_stream_is_read() -> None:
    async with answering(http(GOOD, content=PARTS)) as (_, remote):
        assert await read(remote) == [b"abc"]


@pytest.mark.parametrize(
    "body",
    [
        pack_part(FRAME, b"abc") + pack_part(End(frames=1)),
        pack_part(HEAD) + GOOD,
        pack_part(HEAD) + pack_part(FRAME, b"abc"),
        pack_part(HEAD) + pack_part(FRAME, b"abc") + pack_part(End(frames=2)),
        pack_part(End()),
        b"",
        b"\xff" * 100,
        GOOD[:-3],
        GOOD + b"more",
    ],
)
async def test_a_stream_that_does_not_add_up_is_damage(body: bytes) -> None:
    async with answering(http(body, content=PARTS)) as (server, remote):
        with pytest.raises(Corrupt, match=f"127.0.0.1:{server.port}"):
            await read(remote)


async def test_a_stream_that_breaks_off_is_not_taken_for_its_end() -> None:
    async with answering(http(GOOD[:-20], content=PARTS, length=len(GOOD))) as (server, remote):
        with pytest.raises(Unavailable, match=f"127.0.0.1:{server.port} broke off in the middle"):
            await read(remote)
        assert server.requests == 1, "its frames may have been used"


async def test_a_stream_that_broke_before_it_began_is_asked_for_again() -> None:
    async with answering(http(b"", content=PARTS, length=9), http(GOOD, content=PARTS)) as (server, remote):
        assert await read(remote) == [b"abc"]
        assert server.requests == 2


async def test_an_error_on_the_way_is_the_nodes() -> None:
    end = End(code="Corrupt", message="logs/x is damaged: bad", details={"key": "logs/x", "what": "bad"}, frames=1)
    body = pack_part(HEAD) + pack_part(FRAME, b"abc") + pack_part(end)
    async with answering(http(body, content=PARTS)) as (_, remote):
        with pytest.raises(Corrupt, match="logs/x is damaged") as caught:
            await read(remote)
        assert caught.value.key == "logs/x"


async def test_not_now_is_asked_again_for_a_read_and_told_for_a_commit() -> None:
    busy = told("Unavailable", "503 Not Now")
    async with answering(busy, busy, http(msgspec.msgpack.encode({"store": "S"}))) as (server, remote):
        assert (await remote.ask(HELLO, Done())).store == "S"
        assert server.requests == 3
    async with answering(busy) as (server, remote):
        with pytest.raises(Unavailable, match="the words"):
            await remote.commit(COMMIT)
        assert server.requests == 1


async def test_who_refuses_and_is_no_node_is_not_asked_in_vain_and_a_body_too_large_for_a_proxy_is_told_so() -> None:
    page = b"<html>no</html>"
    for status, hopeless, words in (
        ("413 Request Entity Too Large", True, "a proxy on the way must let bodies of 64 MiB pass"),
        ("403 Forbidden", True, "check the address, and any proxy on the way"),
        ("408 Request Timeout", False, "check the address, and any proxy on the way"),
    ):
        async with answering(http(page, status=status, content="text/html")) as (_, remote):
            with pytest.raises(Unavailable, match=words) as caught:
                await remote.commit(COMMIT, b"segment")
            assert (caught.value.determinate, caught.value.hopeless) == (True, hopeless)


async def test_what_never_passes_is_given_up_at_the_deadline() -> None:
    clock = ManualClock(jumps=True)
    timing = Timing(now=clock.now, sleep=clock.sleep)
    async with answering(GARBAGE["a proxy's refusal"], timing=timing) as (server, remote):
        with pytest.raises(Unavailable, match="answers 502 with text/html, not as a Budwood node"):
            await remote.ask(HELLO, Done())
        assert 4 < server.requests < 20
        assert clock.now() <= timing.retry_seconds


@pytest.mark.parametrize("content", ["application/msgpack", "application/json; charset=utf-8"])
async def test_an_error_of_the_protocol_is_raised_as_it_is(content: str) -> None:
    async with answering(told("Conflict", "409 Conflict", content)) as (_, remote):
        with pytest.raises(Conflict, match="the words") as conflict:
            await remote.commit(COMMIT)
        assert conflict.value.head == 7
    async with answering(told("NotOwner", "421 Elsewhere", content)) as (_, remote):
        with pytest.raises(NotOwner) as elsewhere:
            await remote.ask(SNAPSHOT, SnapshotRequest(VID.raw))
        assert (elsewhere.value.owner, elsewhere.value.log) == ("http://there", "main")
    async with answering(told("Unauthorized", "401 Who", content)) as (_, remote):
        with pytest.raises(Unauthorized):
            await remote.ask(HELLO, Done())


async def test_a_refused_connection_fails_at_once_and_certainly_did_not_happen() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        clock = ManualClock(jumps=True)
        timing = Timing(now=clock.now, sleep=clock.sleep)
        remote = HttpRemote(f"http://127.0.0.1:{taken.getsockname()[1]}", timing=timing)
        for call in (lambda: remote.ask(HELLO, Done()), lambda: remote.commit(COMMIT), lambda: read(remote)):
            with pytest.raises(Unavailable, match="is a node listening there") as caught:
                await call()
            assert caught.value.determinate
        assert clock.now() < 3, "what it waited in all"
        await remote.aclose()


@pytest.mark.parametrize("changes", [False, True], ids=["a read", "a commit"])
@pytest.mark.parametrize("comes_back", [True, False], ids=["another listens", "nobody does"])
async def test_a_connection_that_is_reset_before_anybody_took_it_is_made_again(
    monkeypatch: pytest.MonkeyPatch, changes: bool, comes_back: bool
) -> None:
    """A worker, or a node, ended with it in its queue: nothing was sent, so that nothing can happen twice."""
    first = socket.create_server(("127.0.0.1", 0))
    port, connect = first.getsockname()[1], socket.socket.connect

    def connected(self: socket.socket, address: tuple[str, int]) -> None:
        try:
            connect(self, address)
        finally:
            # The kernel resets what stands in its queue.
            first.close()

    monkeypatch.setattr(socket.socket, "connect", connected)
    server = Server([told("Conflict", "409 Conflict") if changes else http(msgspec.msgpack.encode({"store": "S"}))])
    async with anyio.create_task_group() as tasks:

        async def serve(listener: anyio.abc.Listener[anyio.abc.SocketStream]) -> None:
            async with listener:
                await listener.serve(server.handle)

        async def sleep(_seconds: float) -> None:
            if comes_back:
                tasks.start_soon(serve, await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=port))

        remote = HttpRemote(f"http://127.0.0.1:{port}", timing=Timing(sleep=sleep))
        if not comes_back:
            with pytest.raises(Unavailable, match=r"\(Connection refused\): is a node listening there") as caught:
                await (remote.commit(COMMIT) if changes else remote.ask(HELLO, Done()))
            assert caught.value.determinate
        elif changes:
            with pytest.raises(Conflict, match="the words"):
                await remote.commit(COMMIT)
        else:
            assert (await remote.ask(HELLO, Done())).store == "S"
        assert server.requests == comes_back
        await remote.aclose()
        tasks.cancel_scope.cancel()


async def test_a_silent_node_is_given_up() -> None:
    timing = Timing(read_seconds=0.05, retry_seconds=0)
    async with answering(b"silence", timing=timing) as (_, remote):
        with pytest.raises(Unavailable, match="no answer from"):
            await remote.ask(HELLO, Done())
        with pytest.raises(Unavailable) as caught:
            await remote.commit(COMMIT)
        assert not caught.value.determinate


@pytest.mark.parametrize("url", ["http://bad host:1", "http://[::1", "ftp://x", "nonsense"])
async def test_a_url_that_cannot_be_asked_is_bad_input(url: str) -> None:
    remote = HttpRemote(url)
    with pytest.raises((BadInput, Unavailable)):
        await remote.ask(HELLO, Done())
    await remote.aclose()


async def test_a_token_that_no_header_can_carry_is_bad_input() -> None:
    with pytest.raises(BadInput, match="token"):
        HttpRemote("http://127.0.0.1:1", token="a\nb")
