"""Bodies: requests read up to a limit and decoded, answers encoded as the caller likes (JSON or MessagePack)."""

from __future__ import annotations

from typing import Final, TypeVar

import anyio
import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from ...volume.calls import JSON, MAX_MESSAGE_BYTES, MSGPACK, PARTS, SEGMENT, Form
from ...volume.envelope import UNREADABLE
from ...volume.errors import BadInput, BudwoodError, Unavailable
from .errors import body_of, bug, status_of

__all__ = [
    "answer",
    "content_type",
    "decode_message",
    "is_small",
    "read_body",
    "read_pages_body",
    "refusal",
    "wrong_type",
]

BODY_SECONDS: Final = 120.0
"""Pages that take longer to arrive are given up, since they hold a place among the few that may arrive at once."""

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


def is_small(request: Request, limit_bytes: int) -> bool:
    """Whether the body says that it is no longer than that."""
    claimed = request.headers.get("content-length", "")
    return claimed.isdecimal() and int(claimed) <= limit_bytes


async def read_body(request: Request, limit_bytes: int = MAX_MESSAGE_BYTES) -> bytes:
    """The whole body. Raises BadInput as soon as it is known to be longer than the limit."""
    too_long = BadInput(f"the body of {request.url.path} may have at most {limit_bytes} bytes")
    claimed = request.headers.get("content-length", "0")
    if not claimed.isdecimal() or int(claimed) > limit_bytes:
        raise too_long
    chunks: list[bytes] = []
    size = 0
    try:
        async for chunk in request.stream():
            size += len(chunk)
            if size > limit_bytes:
                raise too_long
            chunks.append(chunk)
    except ClientDisconnect:
        raise BadInput(f"the body of {request.url.path} was cut short") from None
    return b"".join(chunks)


async def read_pages_body(request: Request, limit_bytes: int) -> bytes:
    """As `read_body`, but no longer than BODY_SECONDS."""
    try:
        with anyio.fail_after(BODY_SECONDS):
            return await read_body(request, limit_bytes)
    except TimeoutError:
        raise Unavailable(f"the body of {request.url.path} did not arrive within {BODY_SECONDS:g} s") from None


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
        return answer(request, body_of(error), status or status_of(error))
    return answer(request, body_of(bug(error, what)), 500)
