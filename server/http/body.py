"""Bodies: requests read up to a limit and decoded, answers encoded as the caller likes (JSON or MessagePack)."""

from __future__ import annotations

from io import BytesIO
from typing import Final, TypeVar

import msgspec

from ...volume.calls import JSON, MAX_MESSAGE_BYTES, MAX_PAGES_BYTES, MSGPACK, PARTS, SEGMENT, Form
from ...volume.decoded_kinds import decodable
from ...volume.envelope import UNREADABLE
from ...volume.errors import BadInput, BudwoodError
from .asgi import REASON, Answer, CutShort, Request
from .error_status import body_of, bug, status_of
from .memory_budget import Reservation

_NOT_NOW: Final = frozenset({429, 503})
_RETRY_LATER: Final = ((b"retry-after", b"1"),)

_MSGPACK_ALIASES: Final = frozenset({"application/x-msgpack", "application/vnd.msgpack"})
_MSGPACK_NAMES: Final = _MSGPACK_ALIASES | {MSGPACK}
_MESSAGE: Final = _MSGPACK_NAMES | {JSON}
_BINARY: Final = _MSGPACK_NAMES | {PARTS, SEGMENT}
_TYPES: Final = {
    Form.MESSAGE: _MESSAGE,
    Form.PARTS_OUT: _MESSAGE,
    Form.PART_IN: _MESSAGE | {PARTS},
    Form.SEGMENT_IN: frozenset({SEGMENT}),
}

T = TypeVar("T", bound=msgspec.Struct)


def wrong_type(request: Request, what: str, form: Form) -> BadInput | None:
    """Why a body of its type isn't read: none, or one that any web page can send."""
    given = request.content
    if given in _TYPES[form]:
        return None
    takes = " or ".join(sorted(_TYPES[form] - _MSGPACK_ALIASES))
    return BadInput(f"{what} takes {takes}, not {given!r}: say so in Content-Type")


async def read_body(request: Request, reservation: Reservation, limit_bytes: int = MAX_MESSAGE_BYTES) -> bytes:
    """The whole body, which reserves memory as it comes. Raises BadInput as soon as it is known to be longer than the
    limit, Unavailable if it comes too slowly (memory_budget.Pace)."""
    if request.whole is not None:
        await reservation.take(len(request.whole))
        return request.whole
    claimed = request.header(b"content-length")
    if claimed and not (claimed.isdecimal() and int(claimed) <= limit_bytes):
        raise _too_long(request, limit_bytes)
    # Known to be whole without asking for its end, for which a small one would wait as long as for itself.
    whole_bytes = int(claimed) if claimed else -1
    # Of a large one no second copy is made, for which all others would wait.
    first, body = b"", None
    pace, what = reservation.budget.pace, f"the body of {request.path} arrived"
    stretch_bytes, left_seconds = 0, pace.idle_seconds
    try:
        while whole_bytes:
            with reservation.idling(left_seconds, what) as idle:
                chunk, more = await request.piece()
            await reservation.take(len(chunk))
            if reservation.held_bytes > limit_bytes:
                raise _too_long(request, limit_bytes)
            if body is not None:
                body.write(chunk)
            elif first:
                body = BytesIO()
                body.write(first)
                body.write(chunk)
            else:
                first = chunk
            if not more or reservation.held_bytes == whole_bytes:
                break
            stretch_bytes, left_seconds = stretch_bytes + len(chunk), idle.left_seconds
            if stretch_bytes >= pace.least_bytes:
                stretch_bytes, left_seconds = 0, pace.idle_seconds
    except CutShort:
        raise BadInput(f"the body of {request.path} was cut short") from None
    return first if body is None else body.getvalue()


def _too_long(request: Request, limit_bytes: int) -> BadInput:
    return BadInput(f"the body of {request.path} may have at most {limit_bytes} bytes")


async def read_pages_body(request: Request, reservation: Reservation) -> bytes:
    """As `read_body`, of a call that may carry pages."""
    limits = {PARTS: MAX_PAGES_BYTES + MAX_MESSAGE_BYTES, SEGMENT: MAX_PAGES_BYTES}
    return await read_body(request, reservation, limits.get(request.content, MAX_MESSAGE_BYTES))


def decode_message(what: str, content: str, body: bytes | memoryview, kind: type[T]) -> T:
    """Raises BadInput unless the body is such a message."""
    try:
        if content in _MSGPACK_NAMES:
            return msgspec.msgpack.decode(body, type=decodable(kind))
        return msgspec.json.decode(body or b"{}", type=decodable(kind))
    except UNREADABLE as error:
        raise BadInput(f"the body of {what} is not what it should be: {error} (see /openapi.json)") from error


def answer(request: Request, message: msgspec.Struct, status: int = 200) -> Answer:
    """In the form that Accept asks for; else in the form of the question."""
    accepted = request.header(b"accept").lower()
    binary = request.content in _BINARY
    if "msgpack" in accepted or (binary and JSON not in accepted):
        return Answer(msgspec.msgpack.encode(message), MSGPACK, status)
    return Answer(msgspec.json.encode(message), JSON, status)


def refusal(request: Request, error: Exception, what: str, status: int = 0) -> Answer:
    """The error as an answer, under its own status or another. A bug is a 500, so that nobody takes it for a "not now"
    and asks again."""
    if isinstance(error, BudwoodError):
        request.scope[REASON] = str(error)
        told = answer(request, body_of(error), status or status_of(error))
        if told.status in _NOT_NOW:
            told.more_headers = _RETRY_LATER
        return told
    return answer(request, body_of(bug(error, what)), 500)
