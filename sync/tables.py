"""The local store's schema: tables, keys and records, as they lie in LMDB.

    table     key                                value
    meta      "format"                           Format
    meta      "names"                            a number: grows with every change of the names (name_table.py)
    meta      "journal"                          MovedRecord: how far the journal is in these tables (journal_tail.py)
    meta      "namespace"                        NamespaceRecord: the remote's names, as far as this home knows them
    meta      "asked"                            AskedRecord: changes of those that may have happened (asked_names.py)
    names     name (see `name_key`)              16 bytes: the id of the volume or place
    volumes   volume id                          VolumeRecord: what changes rarely
    heads     volume id                          Head: what every transaction looks at
    commits   volume id ‖ local LSN              CommitRecord, of commits that aren't pushed yet
    pushes    volume id                          PushRecord: a push whose outcome isn't known yet
    stages    volume id                          StageRecord: a change too large for one LMDB transaction, under way
    tails     volume id ‖ page index ‖ ~LSN      u8 state ‖ u64 checksum ‖ the page's last 16 bytes (see rows.py)
    bodies    as in tails                        the rest of the page
    places    place id                           PlaceRecord: what has a name here and is no volume of this home
    known     name (see `name_key`)              KnownRecord: a name of the remote, as it was last seen

Numbers in keys are big-endian, so that they sort; `~LSN` is 2^64-1 minus the LSN, so that the newest version comes
first. Every value but those of `names` and `bodies` carries the xxh3-64 of its content with the key as seed, so that a
damaged value, or one that a damaged key leads to, is told from a good one; a body is covered by its tail's checksum.

Three kinds of time: the *local LSN* counts the changes that this home saw of a volume (commits, pulls, resets) and is
never sent anywhere; the *remote LSN* is the volume's own; the *sync point* (remote LSN, local LSN) joins them: at that
local LSN the volume was the remote's at that remote LSN.
"""

from __future__ import annotations

import hashlib
import struct
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

import lmdb
import msgspec
import xxhash

from ..volume.decoded_kinds import decodable
from ..volume.envelope import UNREADABLE
from ..volume.errors import Corrupt
from ..volume.ids import check_utf8
from ..volume.records import Location
from ..volume.wire import NameRequest
from .attributes import Attributes, Kind

if TYPE_CHECKING:
    Txn = lmdb.Transaction[bytes]
    Cursor = lmdb.Cursor[bytes]
    Table = lmdb._Database  # pyright: ignore[reportPrivateUsage]
else:
    Txn, Cursor, Table = lmdb.Transaction, lmdb.Cursor, lmdb._Database

FORMAT_VERSION: Final = 2
BEFORE_JOURNAL: Final = 1
"""The format of homes whose commits are all in LMDB. One becomes FORMAT_VERSION when it is opened by a process that has
it to itself."""
MAX_LSN: Final = 2**64 - 1
HERE: Final = "local store"
"""What the errors about damaged records name; where the home is known they name its file too (lmdb_errors.py)."""
LATER_TABLES: Final = frozenset({"places", "known"})
"""A home that was made before these gets them when it is opened."""

_T = TypeVar("_T")


class Format(msgspec.Struct, frozen=True, kw_only=True):
    """The first record of a home."""

    version: int
    home: bytes
    """16 random bytes."""
    client: bytes
    """The ClientId that this home's commits carry."""


class EntryRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What volumes and places have: a name here."""

    name: str
    bound: str = ""
    """The name that the remote knows it by."""
    moved: bool = False
    """Renamed here since: the remote's name is to follow. Without it a name that differs from `bound` is an alias of
    this home, made by a clone or a push under another name, and stays here."""
    attributes: Attributes = Attributes()
    born_ms: int = 0

    @property
    def is_alias(self) -> bool:
        return bool(self.bound) and self.bound != self.name and not self.moved


class SyncLease(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A pin that this home has, or may have, on a sync point of a volume (lease.py)."""

    pin: bytes
    vid: bytes
    """The volume that it is asked for by; once it stands, the one whose own the LSN is: of a fork's, its parent."""
    lsn: int
    expiry_ms: int = 0
    """0: it isn't known whether it stands."""


class Discarded(msgspec.Struct, frozen=True, kw_only=True):
    """What the last reset or replay discarded: local commits after `after`, of that generation."""

    generation: int
    after: int


class VolumeRecord(EntryRecord, frozen=True, kw_only=True, omit_defaults=True):
    vid: bytes
    remote: str = ""
    """URL of the remote; "" until one was used."""
    store: str = ""
    """The id of the store behind it, base58; another store is refused."""
    created: bool = False
    """Whether the remote has it. Until then its pages come from `parent`."""
    parent: bytes = b""
    parent_lsn: int = 0
    """A fork's origin: it starts as that volume at that remote LSN."""
    mode: str = "both"
    """Sync mode: disabled, push, pull or both (S2.30)."""
    left: str = ""
    """Of a volume that is gone since the remote's names took its name away: that name. What a program that had it open
    commits since then is kept, under a conflict name."""
    synced_ms: int = 0
    """The time of the sync point's commit, by which another one under its LSN is told from it; 0 where it isn't
    known."""
    writer_epoch: int = 0
    """That this home took of an exclusive volume, last."""
    encryption: bytes = b""
    """Its encryption header (volume/encryption.py), as the remote told it last; "" of a volume that isn't encrypted, or
    that the remote doesn't have yet."""
    leases: tuple[SyncLease, ...] = ()
    """Of sync points: the one that stands, and those that are to be released."""
    discarded: Discarded | None = None

    @property
    def id(self) -> bytes:
        return self.vid

    @property
    def target(self) -> bytes:
        return self.vid

    @property
    def kind(self) -> Kind:
        return "file"


class PlaceRecord(EntryRecord, frozen=True, kw_only=True, omit_defaults=True):
    """A directory or a symbolic link; or a file of the remote of which nothing but the name is here."""

    id: bytes
    """Of this home alone."""
    kind: Kind
    target: bytes
    """What the remote's name leads to: a file's volume; for a directory or a link an id that no volume has, by which it
    is recognised when it is moved."""


class KnownRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A name of the remote as it was last seen: what changes here and there are told by."""

    name: str
    target: bytes
    revision: int
    """0: never seen by itself, only bound to, by a home that knew no names of the remote."""
    attributes: Attributes = Attributes()
    dropped: bool = False
    """Removed or replaced here: the remote's name is to go, or to lead to what stands here under it."""


class NamespaceRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Whose names this home knows. Without one it has never asked for them."""

    remote: str
    store: str
    """The id of the store; another one's names are refused."""
    head: int = 0
    """The LSN of the remote's namespace at which `known` is all of it."""
    seen: int = 0
    """The newest LSN of it that this home made or saw."""
    ahead: tuple[int, ...] = ()
    """LSNs behind `head` that this home made, and noted in `known`: between two others' may lie, or its own that others
    of its threads and processes are about to note."""
    encrypted: bool = False
    """Whether they are encrypted there."""


class AskedChange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A change of the remote's names that was sent, and whose outcome isn't recorded."""

    store: str
    request: NameRequest
    alias: bool = False
    """Bound to a name that the volume isn't to have here."""


class AskedRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    changes: tuple[AskedChange, ...] = ()
    """In the order in which they were sent first."""


class CommitRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One local commit. Lengths in bytes."""

    pages: bytes
    length: int
    floor: int
    """The least length the volume had within it."""
    skeleton: bytes = b""
    """Those of its pages that look like a B-tree's skeleton: a push lays them into the first frames."""
    time_ms: int = 0


class PushRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A push on its way. With what is retained of the pages up to `end`, the same commit can be made again to the
    byte.
    """

    end: int
    """The local LSN that was captured."""
    base: int
    """The remote LSN it is made on."""
    start: int
    """The local LSN of the sync point."""
    length: int
    floor: int
    nonce: bytes
    token: bytes = b""
    """Known once the pages are packed; until then nothing that could land was sent."""
    base_ms: int = 0
    """The time of the commit `base`; 0 where it isn't known."""
    sent: tuple[Location, ...] = ()
    """Where those of its pages lie that the remote has by now, as far as that was noted."""


class StageRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Rows are being written at `lsn`; or, once the head stands there, older versions of `pages` are being removed; or
    the volume is gone and all its rows are being removed."""

    lsn: int
    pages: bytes
    removal: bool = False


class Head(NamedTuple):
    """Where a volume stands. Lengths in bytes."""

    lsn: int
    """The local LSN: grows by one with every change of the content, and only then."""
    length: int
    sync_remote: int
    """The sync point's remote LSN; 0 if nothing was ever pushed or pulled."""
    sync_local: int
    floor: int
    """The least length since the sync point: pages beyond it are never asked of the remote (B9)."""
    page_size: int
    """0 until the first commit settles it."""
    generation: int
    """Drawn at birth, and one more with each reset: local LSNs of another generation speak of another history."""
    unpushed: int
    """Local commits after the sync point."""
    state: int
    """0, or DIVERGED."""

    @property
    def in_words(self) -> str:
        return "1 unpushed commit" if self.unpushed == 1 else f"{self.unpushed} unpushed commits"

    @property
    def label(self) -> str:
        """The LSN as users meet it: "7+2" is two unpushed commits on the remote's 7."""
        return f"{self.sync_remote}+{self.unpushed}" if self.unpushed else str(self.sync_remote)

    def advanced(self, commit: CommitRecord) -> Head:
        """After one commit more."""
        lsn, _, sync_remote, sync_local, floor, page_size, generation, unpushed, state = self
        floor = min(floor, commit.floor)
        return Head(lsn + 1, commit.length, sync_remote, sync_local, floor, page_size, generation, unpushed + 1, state)


DIVERGED: Final = 1
NO_HEAD: Final = Head(0, 0, 0, 0, 0, 0, 0, 0, 0)

_HEAD: Final = struct.Struct("<QQQQQIIII")
_SUM: Final = struct.Struct("<Q")
_COMMIT: Final = struct.Struct(">16sQ")
_LONGEST_NAME: Final = 400
"""LMDB's keys have at most 511 bytes."""

_digest = xxhash.xxh3_64_digest
_number = xxhash.xxh3_64_intdigest


def name_key(name: str) -> bytes:
    """Names may be longer than a key: the rest of a long one is replaced by its digest. Raises BadInput on what is no
    text."""
    raw = check_utf8(name, f"{name!r} is no name: it").encode()
    if len(raw) <= _LONGEST_NAME:
        return raw
    return raw[:_LONGEST_NAME] + b"\0" + hashlib.blake2b(raw, digest_size=32).digest()


def commit_key(vid: bytes, lsn: int) -> bytes:
    return _COMMIT.pack(vid, lsn)


def pack_head(vid: bytes, head: Head) -> bytes:
    packed = _HEAD.pack(*head)
    return _digest(packed, seed=_number(vid)) + packed


def unpack_head(vid: bytes, data: bytes) -> Head:
    """Raises Corrupt unless this is what `pack_head` made for this volume."""
    packed = data[_SUM.size :]
    if len(packed) != _HEAD.size or _digest(packed, seed=_number(vid)) != data[: _SUM.size]:
        raise Corrupt(HERE, "the head of a volume does not match its checksum")
    return Head(*_HEAD.unpack(packed))


def seal_row(key: bytes, value: object) -> bytes:
    packed = msgspec.msgpack.encode(value)
    return _digest(packed, seed=_number(key)) + packed


def open_row(table: str, key: bytes, data: bytes, kind: type[_T]) -> _T:
    """Raises Corrupt unless this is what `seal_row` made for this key."""
    packed = data[_SUM.size :]
    if _digest(packed, seed=_number(key)) != data[: _SUM.size]:
        raise Corrupt(HERE, f"a record of its table {table!r} does not match its checksum")
    try:
        return msgspec.msgpack.decode(packed, type=decodable(kind))
    except UNREADABLE as error:
        raise Corrupt(HERE, f"a record of its table {table!r} can't be read: {error}") from error
