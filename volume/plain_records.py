"""Plain records: what the entries of a plain log carry for their streams (docs/log.md).

A plain log is one by itself, with no volumes: its streams are of bytes that mean nothing to Budwood. The bytes stand in
the entry's body, the records of one stream behind each other; its head says of each stream where they lie. So whoever
reads one stream fetches heads, and of the bodies only what is its own.

These kinds are none of a volume's (records.py): a node that meets one stops that stream there, and no other.
"""

from __future__ import annotations

from typing import Final

import msgspec

from .envelope import UNREADABLE, unpack
from .errors import BadInput, Corrupt
from .records import StreamRecords, decode_record

MOST_RECORD_BYTES: Final = 8 << 20
MOST_APPEND_BYTES: Final = 32 << 20
"""Of all records of one append: they become one object."""
MOST_RECORDS: Final = 4096
"""In one append, and in one entry: the head says of each where it lies."""
MOST_STREAM_BYTES: Final = 255
"""Of a stream's name."""
MOST_METADATA_BYTES: Final = 64 << 10


class Appended(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="k", tag="plain-records"):
    """So many records of one stream, at consecutive positions."""

    first: int
    """The position of the first. Positions count the records of the whole log, from 1."""
    back: int
    """Where they lie: the first begins so many bytes before the entry's end."""
    sizes: tuple[int, ...]
    sums: tuple[int, ...]
    """xxh3-64 of each."""


class Described(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="k", tag="plain-stream"):
    """From here on the stream has that metadata, and takes records or doesn't."""

    metadata: bytes = b""
    closed: bool = False


class Foreign(Exception):
    """A record of a volume: the log is no plain one."""


def decode_plain(key: str, data: bytes) -> Appended | Described:
    """Raises Corrupt on garbage, Unsupported on a kind that this version doesn't know, Foreign on a volume's."""
    try:
        record = unpack(data, _Kind)
        if record.k == "plain-records":
            return _checked(key, unpack(data, Appended))
        if record.k == "plain-stream":
            return unpack(data, Described)
    except UNREADABLE as error:
        raise Corrupt(key, f"one of its records can't be read: {error}") from error
    decode_record(key, data)
    raise Foreign(key)


def is_plain(carried: StreamRecords) -> bool:
    """Whether a stream's records in an entry are of these kinds. False where that can't be told."""
    try:
        return bool(carried.records) and unpack(carried.records[0], _Kind).k in ("plain-records", "plain-stream")
    except UNREADABLE:
        return False


def check_stream(name: str) -> str:
    """A stream's name: 1 to 255 bytes of UTF-8, no control characters."""
    if not 0 < len(name.encode("utf-8", "replace")) <= MOST_STREAM_BYTES or not name.isprintable():
        raise BadInput(f"{name!r} can't name a stream: 1 to {MOST_STREAM_BYTES} bytes, no control characters")
    return name


class _Kind(msgspec.Struct):
    k: str


def _checked(key: str, record: Appended) -> Appended:
    sizes = record.sizes
    lies = bool(sizes) and min(sizes) >= 0 and sum(sizes) <= record.back
    if record.first < 1 or not lies or len(sizes) != len(record.sums):
        raise Corrupt(key, "it says of records of a stream what can't be")
    return record
