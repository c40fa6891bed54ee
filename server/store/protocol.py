"""Store: four operations on an object store, and nothing is ever overwritten (DESIGN §3).

Rules, which every backend keeps and tests/integration/test_store_conformance.py checks against each:

- Keys are write-once: whoever creates a key first wins, everyone else gets AlreadyExists, and its bytes never change
  until it is deleted. So any read may be repeated or sent twice.
- When `create` returns, the object is durable. What `get` returned is durable too: no later crash takes it back.
- `list` is sorted by the bytes of the whole key, and shows what was created before it was called; never half of an
  object.
- A `create` that raises Unavailable with `determinate=False`, or that was cancelled, may have happened. One that raises
  AlreadyExists may have lost against its own repetition further down: `retrying.create_settled` tells by the bytes.
- A `delete` may come undone at a power loss (file://): that costs room, never correctness.

Keys: 1 to 512 bytes of A-Z a-z 0-9 '-' '_' '.' '=' in parts of 1 to 200 bytes, parted by '/'; no part starts with '.'.

Errors: BadInput (key), NotFound, AlreadyExists are the caller's; Unavailable (retry), Full (no room) and Unauthorized
(credentials) are the store's (S3.33).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, Protocol, TypeAlias, cast, runtime_checkable

from ...volume.errors import BadInput

Buffer: TypeAlias = bytes | bytearray | memoryview
Data: TypeAlias = Buffer | Sequence[Buffer]
"""One object's bytes: whole, or in pieces that are stored back to back without being joined first."""
Keys: TypeAlias = list[str]
Sizes: TypeAlias = list[tuple[str, int]]
"""Keys, and the objects' lengths in bytes."""


class Store(Protocol):
    """Async, under asyncio and trio; one instance belongs to one event loop."""

    @property
    def url(self) -> str:
        """As it was given, without secrets."""
        ...

    async def get(self, key: str, *, start: int = 0, end: int | None = None) -> bytes:
        """The bytes [start, end) of the object, or as many of them as there are. Raises NotFound, Unavailable."""
        ...

    async def get_tail(self, key: str, size: int) -> tuple[bytes, int]:
        """The last `size` bytes (or all) and the object's whole length, in one request (two on az://). As `get`."""
        ...

    async def create(self, key: str, data: Data) -> None:
        """Raises AlreadyExists if the key stands, Full, Unavailable (see `determinate`)."""
        ...

    async def delete(self, key: str) -> None:
        """Idempotent: a missing key is success."""
        ...

    async def list(self, prefix: str, *, start: str = "", limit: int | None = None) -> Keys:
        """Keys that start with the string `prefix` (not only whole parts) and are >= `start`, sorted; at most `limit`.

        `start` is inclusive and may be any string: `key + "\\0"` continues behind a key. `limit=1` costs one request
        (S4.22).
        """
        ...

    async def sizes(self, prefix: str, *, start: str = "", limit: int | None = None) -> Sizes:
        """As `list`, and at the same price. One that is deleted meanwhile may have 0 bytes."""
        ...

    async def aclose(self) -> None:
        """Give back what the store holds; it can't be used afterwards. Idempotent."""
        ...


@runtime_checkable
class PlainStore(Protocol):
    """What has no create-if-absent: two_phase_store.py makes a Store of it. As a Store in all that both have."""

    @property
    def url(self) -> str: ...

    async def get(self, key: str, *, start: int = 0, end: int | None = None) -> bytes: ...

    async def get_tail(self, key: str, size: int) -> tuple[bytes, int]: ...

    async def put(self, key: str, data: Data) -> None:
        """Whatever stood there before; durable when it returns, and never half of it to be seen. Raises Full,
        Unavailable."""
        ...

    async def delete(self, key: str) -> None: ...

    async def list(self, prefix: str, *, start: str = "", limit: int | None = None) -> Keys: ...

    async def sizes(self, prefix: str, *, start: str = "", limit: int | None = None) -> Sizes: ...

    async def aclose(self) -> None: ...


_PART: Final = re.compile(r"(?!\.)[A-Za-z0-9._=-]{1,200}")
_KEY: Final = re.compile(rf"{_PART.pattern}(?:/{_PART.pattern})*")
_MAX_KEY: Final = 512


def check_key(key: str) -> str:
    """Raises BadInput unless the key is one that every backend can hold and sort alike."""
    if len(key) > _MAX_KEY or _KEY.fullmatch(key) is None:
        raise BadInput(
            f"{key!r} can't be an object's key: parts of A-Z a-z 0-9 - _ . =, parted by '/', none starting with '.'"
        )
    return key


def is_part(name: str) -> bool:
    """Whether a key may have this part."""
    return _PART.fullmatch(name) is not None


def check_prefix(prefix: str, limit: int | None) -> bool:
    """Whether any key could start so. Raises BadInput on a limit below 0."""
    if limit is not None and limit < 0:
        raise BadInput(f"a limit of {limit} keys")
    *parts, last = prefix.split("/")
    return all(map(is_part, parts)) and (not last or is_part(last))


def check_range(start: int, end: int | None) -> None:
    if start < 0 or (end is not None and end < start):
        raise BadInput(f"[{start}, {end}) is not a range of bytes")


def key_below(start: str) -> str:
    """A key below `start`, as near as its own beginning can give one ("" where there is none): for listings that start
    behind a key."""
    found = _KEY.match(start)
    if found is None:
        return ""
    if found.end() < len(start):
        return found.group()
    found = _KEY.match(start, 0, len(start) - 1)
    return found.group() if found else ""


def buffers(data: Data) -> Sequence[Buffer]:
    """The pieces of an object's bytes."""
    if isinstance(data, bytes | bytearray | memoryview):
        return (cast("Buffer", data),)
    return data


def length_of(data: Data) -> int:
    """The object's length in bytes."""
    return sum(piece.nbytes if isinstance(piece, memoryview) else len(piece) for piece in buffers(data))
