"""Bodies: requests read up to a limit and decoded, answers encoded as the caller likes (JSON or MessagePack)."""

from __future__ import annotations

from contextlib import aclosing
from typing import Final, TypeVar

import anyio
import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from ...volume.calls import JSON, MAX_MESSAGE_BYTES, MAX_PAGES_BYTES, MSGPACK, PARTS, SEGMENT, Form
from ...volume.envelope import UNREADABLE
from ...volume.errors import BadInput, BudwoodError
from .error_status import body_of, bug, status_of
from .memory_budget import Reservation

RETRY_SECONDS: Final = "1"

_MSGPACK_ALIASES: Final = frozenset({"application/x-msgpack", "application/vnd.msgpack"})
_MSGPACK_NAMES: Final = _MSGPACK_ALIASES | {MSGPACK}
_MESSAGE: Final = _MSGPACK_NAMES | {JSON}
_TYPES: Final = {
    Form.MESSAGE: _MESSAGE,
    Form.PARTS_OUT: _MESSAGE,
    Form.PART_IN: _MESSAGE | {PARTS},
    Form.SEGMENT_IN: frozenset({SEGMENT}),
}

T = TypeVar("T", bound=msgspec.Struct)


def content_type(request: Request) -> str:
    """Lower case, without parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def wrong_type(request: Request, what: str, form: Form) -> BadInput | None:
    """Why a body of its type isn't read: none, or one that any web page can send."""
    given = content_type(request)
    if given in _TYPES[form]:
        return None
    takes = " or ".join(sorted(_TYPES[form] - _MSGPACK_ALIASES))
    return BadInput(f"{what} takes {takes}, not {given!r}: say so in Content-Type")


async def read_body(request: Request, reservation: Reservation, limit_bytes: int = MAX_MESSAGE_BYTES) -> bytes:
    """The whole body, which reserves memory as it comes. Raises BadInput as soon as it is known to be longer than the
    limit,
    Unavailable if it comes too slowly (memory_budget.Pace)."""
    too_long = BadInput(f"the body of {request.url.path} may have at most {limit_bytes} bytes")
    claimed = request.headers.get("content-length", "0")
    if not claimed.isdecimal() or int(claimed) > limit_bytes:
        raise too_long
    chunks: list[bytes] = []
    pace, what = reservation.budget.pace, f"the body of {request.url.path} arrived"
    stretch_bytes, stretch_end = 0, anyio.current_time() + pace.idle_seconds
    try:
        async with aclosing(request.stream()) as stream:
            while True:
                with reservation.idling(stretch_end - anyio.current_time(), what):
                    chunk = await anext(stream, None)
                if chunk is None:
                    return b"".join(chunks)
                await reservation.take(len(chunk))
                if reservation.held_bytes > limit_bytes:
                    raise too_long
                chunks.append(chunk)
                stretch_bytes += len(chunk)
                if stretch_bytes >= pace.least_bytes:
                    stretch_bytes, stretch_end = 0, anyio.current_time() + pace.idle_seconds
    except ClientDisconnect:
        raise BadInput(f"the body of {request.url.path} was cut short") from None


async def read_pages_body(request: Request, reservation: Reservation) -> bytes:
    """As `read_body`, of a call that may carry pages."""
    limits = {PARTS: MAX_PAGES_BYTES + MAX_MESSAGE_BYTES, SEGMENT: MAX_PAGES_BYTES}
    return await read_body(request, reservation, limits.get(content_type(request), MAX_MESSAGE_BYTES))


def decode_message(what: str, content: str, body: bytes | memoryview, kind: type[T]) -> T:
    """Raises BadInput unless the body is such a message."""
    try:
        if content in _MSGPACK_NAMES:
            return msgspec.msgpack.decode(body, type=kind)
        return msgspec.json.decode(body or b"{}", type=kind)
    except UNREADABLE as error:
        raise BadInput(f"the body of {what} is not what it should be: {error} (see /openapi.json)") from error


def answer(request: Request, message: msgspec.Struct, status: int = 200) -> Response:
    """In the form that Accept asks for; else in the form of the question."""
    accepted = request.headers.get("accept", "*/*").lower()
    binary = content_type(request) in _MSGPACK_NAMES | {PARTS, SEGMENT}
    if "msgpack" in accepted or (binary and JSON not in accepted):
        return Response(msgspec.msgpack.encode(message), status, media_type=MSGPACK)
    return Response(msgspec.json.encode(message), status, media_type=JSON)


def refusal(request: Request, error: Exception, what: str, status: int = 0) -> Response:
    """The error as an answer, under its own status or another. A bug is a 500, so that nobody takes it for a "not now"
    and asks again."""
    if isinstance(error, BudwoodError):
        response = answer(request, body_of(error), status or status_of(error))
        if response.status_code == 503:
            response.headers["retry-after"] = RETRY_SECONDS
        return response
    return answer(request, body_of(bug(error, what)), 500)
