"""What schemathesis is told of a node for test_openapi.py: nobody waits for long, everybody has the time that an answer
takes, and MessagePack is spoken."""

from __future__ import annotations

from typing import Any, Final

import msgspec
import schemathesis

from budwood.volume.calls import MSGPACK, TIMEOUT_HEADER

WAITS: Final = ("wait", "wait_names")
NEVER: Final = b"\xc1"
"""What no MessagePack begins with."""


@schemathesis.hook  # pyright: ignore[reportUnknownMemberType]
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    body: Any = case.body
    if case.operation.path.rpartition("/")[2] in WAITS and hasattr(body, "update"):
        body.update(timeout_seconds=0)
    if case.headers and str(case.headers.get(TIMEOUT_HEADER, "")) in ("0", "0.0"):
        # It is right, and there is nothing that a node could answer but 503.
        del case.headers[TIMEOUT_HEADER]


@schemathesis.deserializer(MSGPACK)
def read_msgpack(context: Any, response: Any) -> Any:
    """As JSON has it: bytes are text there."""
    return msgspec.json.decode(msgspec.json.encode(msgspec.msgpack.decode(response.content)))


@schemathesis.serializer(MSGPACK)
def write_msgpack(context: Any, value: Any) -> bytes:
    try:
        return msgspec.msgpack.encode(value)
    except (OverflowError, TypeError, UnicodeEncodeError):
        # JSON can say it, and MessagePack can't.
        return NEVER
