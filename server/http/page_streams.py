"""Pages over HTTP: write_pages, commit with its pages, and the stream of read_pages.

A stream's parts are gathered to `BATCH_BYTES` before they are sent, and a whole answer that stays below it goes out in
one piece. An error before the first byte is an ordinary error answer; one on the way stands in the stream's End. The
read is given up as soon as its reader goes away, or reads too slowly (memory_budget.py): then the connection ends in
the middle.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

from ...volume.calls import PARTS
from ...volume.encryption import check_reader
from ...volume.errors import BadInput, Corrupt
from ...volume.ids import VolumeId
from ...volume.pageset import PageSet, encode_pages
from ...volume.protocols import PagesRead, Remote
from ...volume.records import Location
from ...volume.wire import (
    ALONE,
    CommitRequest,
    Committed,
    End,
    FramePart,
    PagesHead,
    ReadRequest,
    pack_part,
    split_part,
)
from .asgi import Request, Send
from .body import decode_message
from .cancellation import while_connected
from .error_status import body_of, known
from .memory_budget import Reservation

BATCH_BYTES: Final = 256 * 1024
MAX_EXTRA_BYTES: Final = 16 * 1024 * 1024


async def write_pages(remote: Remote, request: Request, body: bytes) -> Location:
    vid = VolumeId.parse(request.query("vid"))
    return await remote.write_pages(vid, body)


async def commit(remote: Remote, request: Request, body: bytes) -> Committed:
    content = request.content
    if content != PARTS:
        return await remote.commit(decode_message("commit", content, body, CommitRequest))
    try:
        header, segment = split_part("the part", body)
    except Corrupt as error:
        raise BadInput(f"the body of commit is no part: {error.what}") from error
    message = decode_message("commit", "application/msgpack", header, CommitRequest)
    return await remote.commit(message, bytes(segment))


async def send_pages(
    remote: Remote, request: Request, message: ReadRequest, pages: PageSet, reservation: Reservation, send: Send
) -> None:
    """Answer one read_pages. Raises what befell it, before or after the first byte."""

    async def answering() -> None:
        vid = VolumeId(message.vid)
        read = remote.read_pages(vid, message.lsn, pages, extra_bytes=extra_of(message))
        async with read as answer, aclosing(_batches(answer)) as batches:
            check_reader(answer.snapshot.encryption, knows=message.encrypted)
            await _send(batches, reservation, send)

    await while_connected(request.receive, answering)


async def _send(batches: AsyncGenerator[bytes, None], reservation: Reservation, send: Send) -> None:
    """The first batch waits for the second, so that an answer of one batch goes out whole."""
    begun = False

    async def piece(data: bytes, *, more: bool) -> None:
        nonlocal begun
        if not begun:
            length = [] if more else [(b"content-length", str(len(data)).encode())]
            headers = [(b"content-type", PARTS.encode()), *length]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            begun = True
        with reservation.idling(reservation.budget.pace.idle_seconds, "the pages were read"):
            await send({"type": "http.response.body", "body": data, "more_body": more})

    held = await anext(batches)
    async for batch in batches:
        await piece(held, more=True)
        held = batch
    await piece(held, more=False)


def extra_of(message: ReadRequest) -> int:
    """How many bytes of neighbours are welcome; or ALONE."""
    return min(max(ALONE, message.extra_bytes), MAX_EXTRA_BYTES)


async def _batches(answer: PagesRead) -> AsyncGenerator[bytes, None]:
    """The answer's bytes, in pieces of about BATCH_BYTES."""
    held = [pack_part(PagesHead(snapshot=answer.snapshot, zeros=encode_pages(answer.zeros)))]
    size = len(held[0])
    count = 0
    end = End()
    try:
        async for frame in answer.frames():
            part = pack_part(FramePart(info=frame.info, valid=encode_pages(frame.valid)), frame.stored)
            held.append(part)
            count += 1
            size += len(part)
            if size >= BATCH_BYTES:
                yield b"".join(held)
                held, size = [], 0
        end = End(frames=count)
    except Exception as error:
        body = body_of(known(error, "read_pages"))
        end = End(code=body.code, message=body.message, details=body.details, frames=count)
    yield b"".join((*held, pack_part(end)))
