"""Bodies: requests read up to a limit and decoded, answers encoded as the caller likes (JSON or MessagePack)."""

from __future__ import annotations

from typing import Final, TypeVar

import anyio
import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from ...volume.calls import JSON, MAX_MESSAGE_BYTES, MSGPACK
from ...volume.envelope import UNREADABLE
from ...volume.errors import BadInput, BudwoodError, Unavailable
from .errors import body_of, bug, status_of

__all__ = ["answer", "content_type", "decode_message", "is_small", "read_body", "read_pages_body", "refusal"]

BODY_SECONDS: Final = 120.0
"""Pages that take longer to arrive are given up, since they hold a place among the few that may arrive at once."""

_MSGPACK_NAMES: Final = frozenset({MSGPACK, "application/x-msgpack", "application/vnd.msgpack"})

T = TypeVar("T", bound=msgspec.Struct)


def content_type(request: Request) -> str:
    """Lower case, without parameters."""
    return request.headers.get("content-type", JSON).partition(";")[0].strip().lower()


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
        if content == JSON:
            return msgspec.json.decode(body or b"{}", type=kind)
    except UNREADABLE as error:
        raise BadInput(f"the body of {what} is not what it should be: {error} (see /openapi.json)") from error
    raise BadInput(f"{what} takes {JSON} or {MSGPACK}, not {content!r}")


def answer(request: Request, message: msgspec.Struct, status: int = 200) -> Response:
    """In the form that Accept asks for; else in the form of the question."""
    accepted = request.headers.get("accept", "*/*").lower()
    if "msgpack" in accepted or (JSON not in accepted and content_type(request) != JSON):
        return Response(msgspec.msgpack.encode(message), status, media_type=MSGPACK)
    return Response(msgspec.json.encode(message), status, media_type=JSON)


def refusal(request: Request, error: Exception, what: str) -> Response:
    """The error as an answer. A bug is a 500, so that nobody takes it for a "not now" and asks again."""
    if isinstance(error, BudwoodError):
        return answer(request, body_of(error), status_of(error))
    return answer(request, body_of(bug(error, what)), 500)
