"""Envelope: what every control object of the store is wrapped in (DESIGN §10).

    offset  size  field
    0       4     magic: "BW" and two letters for the kind
    4       2     format version, little-endian like every number here
    6       2     zero
    8       8     required-feature bits
    16      4     header length
    20      4     body length
    24      8     xxh3-64 of all of the head but for these eight bytes
    32      …     header: a MessagePack map; unknown keys are passed over
    …       …     body: the rest

The fixed part and the header are the *head*. It has a checksum of its own, so that whoever wants no body fetches none;
a header says by what its body is checked. Only log entries have a body.

Kinds: RO root, VB birth, EP epoch, LE log entry, BO boundary, PI pin, RU rollup, TN tree node, DL deadlist, GP
garbage plan, GD its due mark, AO organisation, AK key, AR a key's revocation. Segments
have their own frame (segment.py), since they are read from the tail. A wrong checksum is Corrupt; another version or an
unknown required feature is Unsupported, never a guess. (S2.32, S3.10)

Required features: one bit each, counted for every kind of object by itself, and never given a second meaning. Whoever
writes an object sets the bit of each feature that *this object* uses and that a reader must not pass over: one that did
would lose data, take something for what it isn't, or write or delete what it must not. A field that may be passed over
has no bit. A field that has one is Corrupt without it.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple, TypeVar

import msgspec
import xxhash

from .decoded_kinds import decodable
from .errors import Corrupt, Unsupported
from .thread_pool import ThreadPool

ROOT: Final = b"BWRO"
BIRTH: Final = b"BWVB"
EPOCH: Final = b"BWEP"
ENTRY: Final = b"BWLE"
BOUNDARY: Final = b"BWBO"
PIN: Final = b"BWPI"
ROLLUP: Final = b"BWRU"
NODE: Final = b"BWTN"
DEADLIST: Final = b"BWDL"
PLAN: Final = b"BWGP"
DUE: Final = b"BWGD"
RETIREMENT: Final = b"BWNR"
ORGANISATION: Final = b"BWAO"
KEY: Final = b"BWAK"
REVOCATION: Final = b"BWAR"

VERSION: Final = 2
_EARLY: Final = 1
"""Its checksums were of the body, too, so that nothing tells whether a head of it is whole."""
KNOWN_FEATURES: Final = {BIRTH: 0b1, ENTRY: 0b1111, ROLLUP: 0b1111111, PIN: 0b1, PLAN: 0b1, DEADLIST: 0b1}
"""By kind, where there are any: of an entry, that it acknowledges a garbage plan, that it names a rollup, that old
fragments are named no more, and that some of its own lie in shards (entry.py); of a rollup, that a stream in it was
folded, that a plan was acknowledged, that a stream has a policy, that a fold has relocated pages, what its log says of
old fragments, that a stream has rules, and that fragments lie in shards (rollup.py); of a pin, its label (pins.py); of
a garbage plan and a deadlist, that fragments of theirs do (garbage.py, checkpoint.py)."""

_FIXED: Final = struct.Struct("<4sHHQII")
_SUM: Final = struct.Struct("<Q")
_START: Final = _FIXED.size + _SUM.size

UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What a decoder raises on bytes that are no such message: cut, of other types, or nested deeper than it can follow."""

_T = TypeVar("_T")

START_BYTES: Final = _START
"""So many of an object's first bytes tell it from any other: its checksum is among them."""

checksum = xxhash.xxh3_64_intdigest


class Head(NamedTuple):
    header: bytes
    length: int
    """Of the head: where the body begins."""
    body_length: int
    features: int


def seal(kind: bytes, header: bytes, body: bytes | memoryview = b"", *, features: int = 0) -> bytes:
    """One object's bytes."""
    fixed = _FIXED.pack(kind, VERSION, 0, features, len(header), len(body))
    return b"".join((fixed, _SUM.pack(_checksum_of(fixed, header)), header, body))


def head_length(data: bytes) -> int:
    """How long the head is that begins so, by its own word."""
    return _START + int(_FIXED.unpack_from(data)[4]) if len(data) >= _START else _START


def open_head(key: str, kind: bytes, data: bytes) -> Head:
    """The head of the object `key`, of which `data` is the beginning, or all of it.

    Raises Corrupt when these are not the bytes that were sealed, Unsupported when a newer or an early program sealed
    them.
    """
    if len(data) < _START:
        raise Corrupt(key, f"{len(data)} bytes are too few")
    magic, version, _, features, _, body_length = _FIXED.unpack_from(data)
    if magic == kind and version == _EARLY:
        raise Unsupported(
            f"{key} was made by an early Budwood (format {version}), which this one doesn't read: make a new store, "
            "and import there what the early one exports"
        )
    end = head_length(data)
    header = data[_START:end]
    if _SUM.pack(_checksum_of(data[: _FIXED.size], header)) != data[_FIXED.size : _START]:
        raise Corrupt(key, "its checksum does not match")
    if magic != kind:
        raise Corrupt(key, f"it holds {magic!r} where {kind!r} belongs")
    if version != VERSION or features & ~KNOWN_FEATURES.get(kind, 0):
        raise Unsupported(f"{key} was written by a newer Budwood (format {version}, features {features:#x}): upgrade")
    return Head(header, end, body_length, features)


def unseal(key: str, kind: bytes, data: bytes) -> bytes:
    """The header of the object `key`, which is all there is in it. Raises as `open_head`."""
    head = open_head(key, kind, data)
    if head.body_length or head.length != len(data):
        raise Corrupt(key, f"{len(data) - head.length} bytes follow its header")
    return head.header


def _checksum_of(fixed: bytes, header: bytes) -> int:
    digest = xxhash.xxh3_64(fixed)
    digest.update(header)
    return digest.intdigest()


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
        return msgspec.msgpack.decode(data, type=decodable(kind))
    except RecursionError:
        with ThreadPool(max_workers=1) as thread:
            return thread.submit(lambda: msgspec.msgpack.decode(data, type=decodable(kind))).result()
