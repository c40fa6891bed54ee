"""Gid: 16 bytes that sort by time and know their type.

    byte 0      type, top bit set (so that base58 always takes 22 characters)
    bytes 1-6   milliseconds since the Unix epoch, big-endian
    bytes 7-15  72 random bits

The text form is base58 with the Bitcoin alphabet, and sorts as the bytes do. A VolumeId never equals a SegmentId,
whatever their bytes. (S2.2; seeds/graft.txt, GIDs)
"""

from __future__ import annotations

import os
import re
import time
from functools import lru_cache
from typing import ClassVar, Final, NewType, Self

from .errors import BadInput
from .limits import MOST_NAME_BYTES, MOST_PART_BYTES

LSN = NewType("LSN", int)
"""u64, from 1, no gaps, per volume; 0 stands for "before the first commit"."""

PageIdx = NewType("PageIdx", int)
"""u32, from 1."""

ALPHABET: Final = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_DIGIT: Final = {letter: value for value, letter in enumerate(ALPHABET)}
_TEXT_LENGTH: Final = 22
_SIZE: Final = 16


class Gid:
    """A typed id; use a subclass. Raises BadInput on bytes or text that aren't one."""

    TYPE: ClassVar[int]
    __slots__ = ("raw",)

    raw: bytes

    def __init__(self, raw: bytes) -> None:
        if len(raw) != _SIZE or raw[0] != self.TYPE:
            raise BadInput(f"these {len(raw)} bytes are not a {type(self).__name__}")
        self.raw = bytes(raw)

    @classmethod
    def new(cls, *, at_ms: int | None = None, noise: bytes | None = None) -> Self:
        ms = time.time_ns() // 1_000_000 if at_ms is None else at_ms
        return cls(bytes([cls.TYPE]) + ms.to_bytes(6, "big") + (noise or os.urandom(9)))

    @classmethod
    def parse(cls, text: str) -> Self:
        value = 0
        if len(text) != _TEXT_LENGTH or any(letter not in _DIGIT for letter in text):
            raise BadInput(f"{text!r} is not a {cls.__name__}: it has {_TEXT_LENGTH} base58 characters")
        for letter in text:
            value = value * 58 + _DIGIT[letter]
        if value >> (8 * _SIZE):
            raise BadInput(f"{text!r} is not a {cls.__name__}: too large")
        return cls(value.to_bytes(_SIZE, "big"))

    @property
    def time_ms(self) -> int:
        return int.from_bytes(self.raw[1:7], "big")

    def __str__(self) -> str:
        return _text(self.raw)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.raw == self.raw

    def __hash__(self) -> int:
        return hash(self.raw)

    def __lt__(self, other: Self) -> bool:
        return self.raw < other.raw


@lru_cache(maxsize=4096)
def _text(raw: bytes) -> str:
    """Remembered, since one commit names its volume a dozen times."""
    value = int.from_bytes(raw, "big")
    letters: list[str] = []
    for _ in range(_TEXT_LENGTH):
        value, digit = divmod(value, 58)
        letters.append(ALPHABET[digit])
    return "".join(reversed(letters))


class VolumeId(Gid):
    TYPE = 0x80
    __slots__ = ()


class SegmentId(Gid):
    TYPE = 0x81
    __slots__ = ()


_EPHEMERAL: Final = bytes(4)


class ClientId(Gid):
    """Who commits. One whose last four bytes are zeros is *ephemeral*: it keeps nothing, asks what became of a commit
    within minutes or never, and is remembered by the commits themselves alone (docs/design/0135-ephemeral-clients.md).
    """

    TYPE = 0x82
    __slots__ = ()

    @classmethod
    def ephemeral(cls) -> Self:
        return cls.new(noise=os.urandom(5) + _EPHEMERAL)


def is_ephemeral(client: bytes) -> bool:
    """Of a client's id."""
    return client.endswith(_EPHEMERAL)


class StoreId(Gid):
    TYPE = 0x83
    __slots__ = ()


class PinId(Gid):
    TYPE = 0x84
    __slots__ = ()


_NODE = re.compile(r"[a-z0-9][a-z0-9-]{0,20}")
_REGION = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")
_PATTERN = re.compile(r"[*?\[]")


def check_node(name: str) -> str:
    """A node's name, which is its shared log's too: 1 to 21 of a-z, 0-9 and '-', so that it is never a volume id."""
    if _NODE.fullmatch(name) is None or name == "private":
        raise BadInput(
            f"{name!r} can't name a node: take 1 to 21 lower-case letters, digits or '-' ('private' is reserved)"
        )
    return name


def check_region(name: str) -> str:
    """A region's: "" for none, or 1 to 32 of a-z, 0-9 and '-'."""
    if name and _REGION.fullmatch(name) is None:
        raise BadInput(f"{name!r} can't name a region: take 1 to 32 lower-case letters, digits or '-'")
    return name


def is_pattern(name: str) -> bool:
    """Whether it is meant for several names, as a shell's patterns are. A name may look like one."""
    return _PATTERN.search(name) is not None


def check_utf8(text: str, what: str) -> str:
    """Raises BadInput, of `what`, on what can be told to nobody else: of a path whose bytes are no UTF-8 Python makes
    text that can't be encoded. And on what is no text: it may come from a setting that isn't there.
    """
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise BadInput(f"{what} isn't text")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadInput(f"{what} isn't text in UTF-8") from None
    return text


def check_name(name: str) -> str:
    """A volume's name: 1 to 1,024 bytes of UTF-8 in parts of at most 255 parted by '/', none empty, '.' or '..'."""
    check_utf8(name, f"{name!r} can't name a volume: it")
    parts = name.split("/")
    if not name or len(name.encode()) > MOST_NAME_BYTES:
        raise BadInput(f"a volume's name has 1 to {MOST_NAME_BYTES:,} bytes")
    if not name.isprintable() or "\\" in name:
        raise BadInput(f"{name!r} can't name a volume: no control characters, no backslash")
    if any(part in {"", ".", ".."} for part in parts):
        raise BadInput(f"{name!r} can't name a volume: no part may be empty, '.' or '..', and it starts without '/'")
    if any(len(part.encode()) > MOST_PART_BYTES for part in parts):
        raise BadInput(f"each part of a volume's name has at most {MOST_PART_BYTES} bytes")
    return name
