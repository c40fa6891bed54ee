"""Log entry: one link of a log's chain, one create-if-absent (DESIGN §4, §10).

An entry is an envelope whose header is `EntryHeader` and whose body is a segment, or empty. Small batches travel in
the body; the pages of large ones lie in fragments that the header names. Slots are numbered from 0, the anchor; the
key counts down, so that the newest entry sorts first and one LIST of one key finds it (S4.22).

The chain is one of heads: to open or follow a log, heads alone are fetched. A head says the body's length and digest;
whoever reads pages out of a body goes by the segment's own checksums.
"""

from __future__ import annotations

import hashlib
from typing import Final

import msgspec

from .envelope import ENTRY, START_BYTES, decode, encode, open_head, seal
from .errors import BadInput, Corrupt
from .records import StreamRecords
from .setsum import EMPTY_SUM

_MAX_SLOT: Final = 2**64 - 1

GARBAGE: Final = 1 << 0
ROLLUP: Final = 1 << 1
FRAGMENTS: Final = 1 << 2
"""Required features (envelope.py) of an entry that carries `garbage`, a `rollup`, or `fragments_since`: whoever passed
over that would name a fragment that is about to be deleted."""
SHARDS: Final = 1 << 3
"""And of one that names a fragment in a shard (fragments.py): whoever passed over that would take it for damage, and
look for what nobody names in one place alone."""


class Fragment(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A segment object that an entry's commits refer to; always of the entry's own epoch (rule 10)."""

    key: str
    epoch: int
    length: int
    digest: bytes
    setsum: bytes = EMPTY_SUM
    """Of the log items that this entry's commits take from it."""


class EntryHeader(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    log: str
    i: int
    """The slot."""
    epoch: int
    writer: bytes
    """16 random bytes, fresh at every open of a writer (rule 5)."""
    n: int
    """Counts the entries of its epoch; 0 is the fence. A guest's has that of the one before it."""
    alpha: int = 1
    """The most entries its writer keeps in flight (rule 3): it is at most twice as far ahead of `acked`."""
    acked: int = 0
    """The last slot its writer had acknowledged when it sent this."""
    kind: str = "data"
    """anchor (slot 0), fence, data, or guest (server/log/chain.py). A fence may carry records."""
    previous: int = 0
    previous_digest: bytes = b""
    """The canonical entry before this one: its slot, and the digest of its head."""
    body_digest: bytes = b""
    """Of the body, if there is one. Replay doesn't fetch it: this is for whoever looks whether all is whole."""
    prev_sum: bytes = EMPTY_SUM
    total: bytes = EMPTY_SUM
    collected: bytes = EMPTY_SUM
    """Setsums: everything ever added before this entry and with it, and everything ever taken out (DESIGN §8)."""
    fragments: tuple[Fragment, ...] = ()
    streams: dict[str, StreamRecords] = {}
    """Records by the id of their stream, not decoded."""
    garbage: tuple[str, ...] = ()
    """The name of the garbage plan (garbage.py) that it acknowledges, if it does."""
    rollup: str = ""
    """The name of the newest rollup (rollup.py) that its writer knew."""
    fragments_since: int = 0
    """Where it isn't 0: no entry after this one names a fragment whose id has an earlier time."""
    shards: int = 0
    """The highest shard that one of its fragments lies in; 0 where none does."""
    time: int = 0


class Entry(msgspec.Struct, frozen=True, gc=False):
    key: str
    header: EntryHeader
    digest: bytes
    """Of its head."""
    size: int
    """Of the whole object, in bytes."""
    start: bytes
    """Its first bytes, which tell it from any other."""


class EpochRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The object `logs/{log}/epochs/{n}`: who took number n, and where to find them."""

    log: str
    n: int
    writer: bytes
    node: str = ""
    address: str = ""
    """Where the log's owner listens; "" when it listens nowhere."""
    stack: str = ""
    """The network stack that the address is of (owner.py); "" if its owner didn't say."""
    region: str = ""
    """Where the owner runs, as its operator calls it."""
    purpose: str = "writer"
    """writer: an owner's term. transaction: a fold's or a garbage plan's, which fences nothing."""
    stream: bytes = b""
    """The volume that a fold is of."""
    time: int = 0


def entry_key(log: str, slot: int) -> str:
    return f"logs/{log}/entries/{_MAX_SLOT - slot:016x}"


def epoch_key(log: str, n: int) -> str:
    return f"logs/{log}/epochs/{n:016x}"


def is_entry(key: str) -> bool:
    """Whether that is the key of an entry, and of no object beside the chain."""
    return key.split("/", 3)[2:3] == ["entries"]


def slot_of(key: str) -> int:
    """The slot of an entry's key."""
    try:
        return _MAX_SLOT - int(key.rpartition("/")[2], 16)
    except ValueError as error:
        raise BadInput(f"{key!r} is not the key of a log entry") from error


def digest_of(data: bytes | memoryview) -> bytes:
    """32 bytes that stand for an object's exact bytes."""
    return hashlib.blake2b(data, digest_size=32).digest()


def seal_entry(header: EntryHeader, body: bytes = b"") -> bytes:
    """The entry's bytes; fills in the body's digest."""
    full = msgspec.structs.replace(header, body_digest=digest_of(body) if body else b"")
    return seal(ENTRY, encode(full), body, features=_features_of(header))


def parse_entry(key: str, data: bytes) -> Entry:
    """The entry that begins so; `data` is its head, or more. Raises Corrupt unless it belongs under `key`, and
    Unsupported."""
    head = open_head(key, ENTRY, data)
    header = decode(key, head.header, EntryHeader)
    if entry_key(header.log, header.i) != key:
        raise Corrupt(key, f"it says that it is entry {header.i} of log {header.log!r}")
    if _features_of(header) & ~head.features:
        raise Corrupt(key, "it carries a field, and does not say that its reader must know that")
    digest = digest_of(memoryview(data)[: head.length])
    return Entry(key, header, digest, head.length + head.body_length, data[:START_BYTES])


def _features_of(header: EntryHeader) -> int:
    named = (
        (header.garbage, GARBAGE),
        (header.rollup, ROLLUP),
        (header.fragments_since, FRAGMENTS),
        (header.shards, SHARDS),
    )
    return sum(feature for has, feature in named if has)
