"""A remote that answers a reader with more than it may: Corrupt before room is made for it (remote/page_answers.py)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.abc
import msgspec
import pytest

from budwood.remote.http import HttpRemote
from budwood.volume.calls import LOOKUP, MSGPACK, PARTS, SNAPSHOT, LookupRequest, NameAnswer, SnapshotRequest
from budwood.volume.envelope import checksum
from budwood.volume.errors import Corrupt
from budwood.volume.frame import Encoding, FrameInfo
from budwood.volume.ids import VolumeId
from budwood.volume.pageset import PageSet, encode_pages, span
from budwood.volume.wire import End, FramePart, NameEntry, PagesHead, SnapshotInfo, pack_part

from ..waits import LIMIT_SECONDS

pytestmark = pytest.mark.anyio

VID = VolumeId.new()
PAGE = 4096
VIEW = SnapshotInfo(vid=VID.raw, lsn=1, length=100 * PAGE, page_size=PAGE)
EVERYTHING = span(1, 2**32 - 1)


@asynccontextmanager
async def answering(content: str, pieces: Callable[[], Iterator[bytes]]) -> AsyncGenerator[HttpRemote, None]:
    """A remote whose every answer is these pieces, one after another, and then the end of the connection."""

    async def handle(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            received = b""
            while b"\r\n\r\n" not in received:
                received += await stream.receive()
            try:
                await stream.send(f"HTTP/1.1 200 OK\r\ncontent-type: {content}\r\nconnection: close\r\n\r\n".encode())
                for piece in pieces():
                    await stream.send(piece)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                return

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, handle)
        remote = HttpRemote(f"http://127.0.0.1:{listener.extra(anyio.abc.SocketAttribute.local_port)}")
        try:
            yield remote
        finally:
            await remote.aclose()
            tasks.cancel_scope.cancel()


def head(view: SnapshotInfo = VIEW, zeros: PageSet | None = None) -> bytes:
    return pack_part(PagesHead(snapshot=view, zeros=encode_pages(PageSet() if zeros is None else zeros)))


def frame(pages: tuple[int, ...], valid: PageSet | None = None, stored: bytes | None = None) -> bytes:
    stored = bytes(len(pages) * PAGE) if stored is None else stored
    info = FrameInfo(Encoding.RAW, len(stored), checksum(stored), pages)
    return pack_part(FramePart(info=info, valid=encode_pages(PageSet(pages) if valid is None else valid)), stored)


def endless(first: int) -> Iterator[bytes]:
    yield head()
    for index in range(first, 2**32):
        yield frame((index,))


def again_and_again() -> Iterator[bytes]:
    yield head()
    while True:
        yield frame((1,))


def once(*parts: bytes) -> Callable[[], Iterator[bytes]]:
    return lambda: iter((*parts, pack_part(End(frames=len(parts) - 1))))


def viewed(**fields: Any) -> Callable[[], Iterator[bytes]]:
    return once(head(msgspec.structs.replace(VIEW, **fields)))


ANSWERS: dict[str, Callable[[], Iterator[bytes]]] = {
    "a frame that is valid for every page there is": once(head(), frame((1, 2), valid=EVERYTHING)),
    "zeros of every page there is": once(head(zeros=EVERYTHING)),
    "frames that nobody asked for, without end": lambda: endless(2),
    "the same frame without end": again_and_again,
    "pages of a gigabyte": viewed(page_size=1 << 30),
    "pages of no size": viewed(page_size=0),
    "no volume": viewed(vid=b"x"),
    "a length below 0": viewed(length=-1),
    "more pages than there are": viewed(length=1 << 62),
    "page 0": once(head(), frame((0, 1))),
    "a page beyond all": once(head(), frame((1, 1 << 33), valid=PageSet([1]))),
    "pages in no order": once(head(), frame((2, 1))),
    "a frame of no pages": once(head(), frame(())),
    "a frame of too many pages": once(head(), frame(tuple(range(1, 66)), stored=b"x")),
    "a body of 60 MB": once(head(), frame((1,), stored=bytes(60_000_000))),
}


async def read(remote: HttpRemote, extra_bytes: int) -> list[tuple[int, ...]]:
    async with remote.read_pages(VID, 1, PageSet([1]), extra_bytes=extra_bytes) as answer:
        return [frame.info.pages async for frame in answer.frames()]


@pytest.mark.parametrize("pieces", ANSWERS.values(), ids=ANSWERS.keys())
async def test_an_answer_that_goes_beyond_what_was_asked_for_is_corrupt(pieces: Callable[[], Iterator[bytes]]) -> None:
    async with answering(PARTS, pieces) as remote:
        with anyio.fail_after(LIMIT_SECONDS), pytest.raises(Corrupt, match="the answer of http"):
            await read(remote, 100_000)


async def test_neighbours_that_the_reader_welcomes_are_taken() -> None:
    async with answering(PARTS, once(head(), frame((1, 2)), frame((3, 4)), frame((5,)))) as remote:
        assert await read(remote, 4 * PAGE) == [(1, 2), (3, 4), (5,)]


async def test_views_and_attributes_that_can_not_be_are_corrupt() -> None:
    deep: dict[str, Any] = {}
    for _ in range(200):
        deep = {"a": deep}
    name = NameAnswer(entry=NameEntry(name="n", target=VID.raw, revision=1, attributes=deep))
    async with answering(MSGPACK, lambda: iter((msgspec.msgpack.encode(name),))) as remote:
        with pytest.raises(Corrupt, match="nested"):
            await remote.ask(LOOKUP, LookupRequest("n"))
    async with answering(MSGPACK, lambda: iter((b"\x81\xa1a" * 100_000,))) as remote:
        with pytest.raises(Corrupt):
            await remote.ask(LOOKUP, LookupRequest("n"))
    view = msgspec.structs.replace(VIEW, page_size=1 << 40)
    async with answering(MSGPACK, lambda: iter((msgspec.msgpack.encode(view),))) as remote:
        with pytest.raises(Corrupt, match="page size"):
            await remote.ask(SNAPSHOT, SnapshotRequest(VID.raw))
