"""Envelope: what every control object of the store is wrapped in (DESIGN §10).

    offset  size  field
    0       4     magic: "BW" and two letters for the kind
    4       2     format version, little-endian like every number here
    6       2     zero
    8       8     required-feature bits: one that the reader doesn't know means "don't read on"
    16      4     header length
    20      4     zero
    24      8     xxh3-64 of all other bytes, header and body
    32      …     header: a MessagePack map; unknown keys are passed over
    …       …     body: the rest

Kinds: RO root, VB birth, EP epoch, LE log entry, PI pin. Segments have their own frame (segment.py), since they are
read from the tail. A wrong checksum is Corrupt; a newer version or an unknown required feature is Unsupported, never
a guess. (S2.32, S3.10)
"""

from __future__ import annotations

import struct
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

import msgspec
import xxhash

from .errors import Corrupt, Unsupported

__all__ = [
    "BIRTH",
    "ENTRY",
    "EPOCH",
    "PIN",
    "ROOT",
    "START_BYTES",
    "UNREADABLE",
    "checksum",
    "decode",
    "encode",
    "seal",
    "unpack",
    "unseal",
]

ROOT: Final = b"BWRO"
BIRTH: Final = b"BWVB"
EPOCH: Final = b"BWEP"
ENTRY: Final = b"BWLE"
PIN: Final = b"BWPI"

VERSION: Final = 1
KNOWN_FEATURES: Final = 0

_FIXED: Final = struct.Struct("<4sHHQII")
_SUM: Final = struct.Struct("<Q")
_START: Final = _FIXED.size + _SUM.size

UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What a decoder raises on bytes that are no such message: cut, of other types, or nested deeper than it can follow."""

_T = TypeVar("_T")

START_BYTES: Final = _START
"""So many of an object's first bytes tell it from any other: its checksum is among them."""

checksum = xxhash.xxh3_64_intdigest


def seal(kind: bytes, header: bytes, body: bytes | memoryview = b"", *, features: int = 0) -> bytes:
    """One object's bytes."""
    fixed = _FIXED.pack(kind, VERSION, 0, features, len(header), 0)
    digest = xxhash.xxh3_64(fixed)
    digest.update(header)
    digest.update(body)
    return b"".join((fixed, _SUM.pack(digest.intdigest()), header, body))


def unseal(key: str, kind: bytes, data: bytes) -> tuple[bytes, memoryview]:
    """Header and body of the object `key`.

    Raises Corrupt when these are not the bytes that were sealed, Unsupported when a newer program sealed them.
    """
    if len(data) < _START:
        raise Corrupt(key, f"{len(data)} bytes are too few")
    magic, version, _, features, header_length, _ = _FIXED.unpack_from(data)
    (expected,) = _SUM.unpack_from(data, _FIXED.size)
    view = memoryview(data)
    digest = xxhash.xxh3_64(view[: _FIXED.size])
    digest.update(view[_START:])
    if digest.intdigest() != expected:
        raise Corrupt(key, "its checksum does not match")
    if magic != kind:
        raise Corrupt(key, f"it holds {magic!r} where {kind!r} belongs")
    if version > VERSION or features & ~KNOWN_FEATURES:
        raise Unsupported(f"{key} was written by a newer Budwood (format {version}, features {features:#x}): upgrade")
    end = _START + header_length
    if end > len(data):
        raise Corrupt(key, "its header is cut short")
    return bytes(view[_START:end]), view[end:]


def encode(value: object) -> bytes:
    """MessagePack of a record."""
    return msgspec.msgpack.encode(value)


def decode(key: str, data: bytes | memoryview, kind: type[_T]) -> _T:
    """A record from MessagePack; raises Corrupt on anything else."""
    try:
        return unpack(data, kind)
    except UNREADABLE as error:
        raise Corrupt(key, f"not a {kind.__name__}: {error}") from error


def unpack(data: bytes | memoryview | msgspec.Raw, kind: type[_T]) -> _T:
    """MessagePack that somebody admitted and wrote. Raises one of UNREADABLE.

    How deep a decoder follows depends on where in the stack it is called, so what was read once may be too deep for
    another reader: that one reads it on a stack of its own.
    """
    try:
        return msgspec.msgpack.decode(data, type=kind)
    except RecursionError:
        with ThreadPoolExecutor(max_workers=1) as thread:
            return thread.submit(lambda: msgspec.msgpack.decode(data, type=kind)).result()
