"""Wire: the messages of the protocol (DESIGN §6), the same over HTTP and within a process.

Control messages are JSON or MessagePack maps. Byte strings are base64 in JSON. Pages travel as *parts*: u32 header
length ‖ u32 body length ‖ header (MessagePack) ‖ body. A stream of parts ends with an `End`, so that a cut connection
is never taken for the end of the data.

Every name here without an underscore is the protocol's.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from .decoded_kinds import decodable
from .envelope import UNREADABLE
from .errors import BadInput, BudwoodError, Corrupt, Unsupported
from .frame import FRAME_PAGES, FrameInfo
from .ids import VolumeId
from .page import MAX_PAGE_SIZE, check_page_size
from .pageset import page_count
from .records import Location
from .rules import Offset

PROTOCOL: Final = 1
ALONE: Final = -1
"""See ReadRequest.extra_bytes. Older nodes take it for 0."""
_LAST_PAGE: Final = 2**32 - 1


class _Message(msgspec.Struct, frozen=True, omit_defaults=True):
    pass


class OwnedLog(_Message, frozen=True, kw_only=True):
    """A shared log, and the very term under which a node owns it."""

    log: str
    epoch: int
    writer: bytes


class StoreInfo(_Message, frozen=True, kw_only=True):
    """Who answers: sent by `hello`."""

    store: str
    """The store's id, base58."""
    node: str = ""
    """The node's name; "" for a process that serves itself."""
    log: str = ""
    """The log that its volumes are born in."""
    epoch: int = 0
    """Under which it owns that log; 0 while it does not."""
    logs: tuple[OwnedLog, ...] = ()
    """All that it owns, as far as it knows."""
    region: str = ""
    """Where it runs, as its operator calls it."""
    protocol: int = PROTOCOL
    version: str = ""


class SnapshotInfo(_Message, frozen=True, kw_only=True):
    """A fixed view of a volume: what is known of it without reading a page."""

    vid: bytes
    lsn: int
    length: int
    page_size: int
    time: int = 0
    since: int = 1
    upper: int = 1
    """Every LSN in [since, upper) can be read; LSN 0 is the empty volume."""
    log: str = ""
    parent: bytes = b""
    """The volume that this is a fork of; "" where it is none."""
    parent_lsn: int = 0
    """LSNs up to this one are the parent's own, and the parent decides whether they can be read."""
    encryption: bytes = b""
    """Its encryption header (encryption.py), of an encrypted volume."""

    @property
    def is_removed(self) -> bool:
        """Whether the volume was removed for everybody, and there is a view of it for those that it is held for: forks,
        leases."""
        return self.since >= self.upper > 1


def check_view(source: str, view: SnapshotInfo) -> SnapshotInfo:
    """Raises Corrupt unless there can be such a view: room is made by what it says."""
    try:
        VolumeId(view.vid)
        fits = page_count(view.length, check_page_size(view.page_size)) <= _LAST_PAGE
    except BadInput as error:
        raise Corrupt(source, f"it speaks of no volume: {error}") from error
    if not (fits and view.length >= 0 and view.lsn >= 0):
        raise Corrupt(source, f"it speaks of LSN {view.lsn} of {view.length} bytes, which can't be")
    return view


class Changes(_Message, frozen=True, kw_only=True):
    """Answer to pull_changes: the snapshot at the end, and every page that may have changed since `after`."""

    snapshot: SnapshotInfo
    pages: bytes
    after_time: int = 0
    """Of the commit `after`: who has seen it knows by this whether it is still that one. 0 where it isn't told."""


class CommitInfo(_Message, frozen=True, kw_only=True):
    """A commit as `log` lists it."""

    lsn: int
    base: int
    length: int
    floor: int
    pages: bytes
    client: bytes
    time: int
    content: bytes
    bindings: bytes = b""


class CommitRequest(_Message, frozen=True, kw_only=True):
    """See records.Commit; the LSN would be base + 1."""

    vid: bytes
    base: int
    length: int
    floor: int
    pages: bytes
    client: bytes
    nonce: bytes
    content: bytes
    setsum: bytes
    token: bytes
    locations: tuple[Location, ...] = ()
    """Of pages sent before by write_pages; a small commit sends one segment along instead."""
    writer_epoch: int = 0
    bindings: bytes = b""
    sources: tuple[Offset, ...] = ()
    """What it binds (rules.py)."""
    base_time: int = 0
    """Of the commit `base` as the writer saw it; another one under that LSN is none to commit on. 0 where the writer
    doesn't know."""


def token_of(request: CommitRequest) -> bytes:
    """A commit's idempotency token names the whole content: a client id alone would swallow other commits (B3)."""
    digest = hashlib.blake2b(request.client, digest_size=32, person=b"budwood.token")
    for number in (request.base, request.length, request.floor):
        digest.update(number.to_bytes(8, "little"))
    for part in (request.pages, request.setsum, request.nonce):
        digest.update(len(part).to_bytes(4, "little"))
        digest.update(part)
    for each in request.sources:
        source = each.source.encode()
        digest.update(len(source).to_bytes(4, "little"))
        digest.update(source)
        digest.update(each.offset.to_bytes(8, "little"))
    return digest.digest()


def with_token(request: CommitRequest) -> CommitRequest:
    """The request with the token that belongs to it."""
    return msgspec.structs.replace(request, token=token_of(request))


class Committed(_Message, frozen=True, kw_only=True):
    lsn: int
    time: int
    repeated: bool = False
    """Its offsets were bound before, by another commit, which is this LSN: what was sent now is in nothing."""


class Outcome(_Message, frozen=True, kw_only=True):
    """What became of a token. `lsn` is 0 where it is not in the volume's history."""

    lsn: int = 0
    time: int = 0
    head: int = 0


class ReadRequest(_Message, frozen=True, kw_only=True):
    vid: bytes
    lsn: int
    """0 stands for the newest, which saves a cold reader one round trip."""
    pages: bytes
    extra_bytes: int = 0
    """The reader welcomes frames that lie next to the ones it asked for, up to this many stored bytes; or, if it is
    ALONE, no more than the pages themselves, as far as the node can leave out what else is in their frames."""
    encrypted: bool = False
    """The reader knows what encrypted frames are."""


class PagesHead(_Message, frozen=True, kw_only=True, tag="head", tag_field="k"):
    """The first part of an answer to read_pages."""

    snapshot: SnapshotInfo
    zeros: bytes
    """Those of the pages asked for that hold nothing but zeros."""


class FramePart(_Message, frozen=True, kw_only=True, tag="frame", tag_field="k"):
    """A frame as stored, in the part's body."""

    info: FrameInfo
    valid: bytes
    """Which of its pages are the snapshot's; the others have been overwritten since, or cut off."""


class PackedFrame(_Message, frozen=True, kw_only=True):
    """A frame as stored, where a message carries some."""

    info: FrameInfo
    valid: bytes
    """As in FramePart."""
    stored: bytes


class End(_Message, frozen=True, kw_only=True, tag="end", tag_field="k"):
    """The last part. An error met on the way stands here."""

    code: str = ""
    message: str = ""
    details: dict[str, Any] = {}
    frames: int = 0
    """How many came before."""


class Placement(_Message, frozen=True, kw_only=True):
    """Pages of a snapshot that one commit wrote and that lie in one object."""

    object: str
    """The store's key."""
    size: int = 0
    """The object's length in bytes; 0 where the commit did not note it."""
    slot: int = 0
    """The volume's place in the object's volume table."""
    vid: bytes
    """The volume that they were written to: the one asked for, or one that it was forked from."""
    lsn: int
    """The LSN that the commit made."""
    pages: bytes
    frames: int = 0
    """So many frames hold them; 0 unless `measure` was asked for."""
    stored_bytes: int = 0
    """What these frames take as stored, with all that they hold beside."""


class Located(_Message, frozen=True, kw_only=True):
    """Answer to locate: at most 1,000 placements, newest commits first. `zeros`, the placements' pages and `rest`
    are disjoint, and together all that was asked for."""

    snapshot: SnapshotInfo
    zeros: bytes
    """Those that hold nothing but zeros, and lie nowhere."""
    placements: tuple[Placement, ...] = ()
    rest: bytes = b""
    """Those that this answer had no room for: ask again for them; "" where there are none."""


class NameEntry(_Message, frozen=True, kw_only=True):
    name: str
    target: bytes
    revision: int
    attributes: dict[str, Any] = {}
    time: int = 0


class NameList(_Message, frozen=True, kw_only=True):
    entries: tuple[NameEntry, ...]
    next: str = ""
    """Ask again after this name; "" at the end."""
    head: int = 0
    """The namespace's LSN that this was read at: pages of a listing belong together if they name the same one."""
    at: int = 0
    """The time at which the names stood so: the one that was asked for, or the earliest that is remembered; 0: now,
    which is all that older nodes know."""


class NameDelta(_Message, frozen=True, kw_only=True):
    """What became of the names since a revision: `entries` stand, and are new or changed; `gone` don't."""

    since: int = 0
    """The revision that was asked for; or 0, where it isn't remembered what was changed since then: what follows is all
    names, and any other is gone."""
    entries: tuple[NameEntry, ...] = ()
    gone: tuple[str, ...] = ()
    """Each a name; or, with "/" at its end, whatever lies below one and is not in `entries`, in all parts together."""
    next: str = ""
    """Ask again after this; "" at the end."""
    head: int
    """The revision that this part was read at. Parts of several: the names from the first part's on are to be asked
    for then, until one part is all."""


class NameRequest(_Message, frozen=True, kw_only=True):
    """bind (new → target), move (name → new) or unbind (name), at the revisions that the caller saw."""

    op: str
    name: str
    revision: int = 0
    new: str = ""
    new_revision: int = 0
    target: bytes = b""
    attributes: dict[str, Any] = {}
    client: bytes = b""
    org: str = ""
    """As of OfNames (calls.py)."""


Part = PagesHead | FramePart | End

_PART: Final = struct.Struct("<II")
_MAX_HEADER: Final = 1 << 25
_MAX_BODY: Final = FRAME_PAGES * MAX_PAGE_SIZE


def pack_part(header: Part | CommitRequest, body: bytes | memoryview = b"") -> bytes:
    packed = msgspec.msgpack.encode(header)
    return b"".join((_PART.pack(len(packed), len(body)), packed, body))


def split_part(source: str, data: bytes) -> tuple[memoryview, memoryview]:
    """Header and body of a part that is all there is: a commit with its segment. Raises Corrupt unless it adds up."""
    view = memoryview(data)
    if len(view) < _PART.size:
        raise Corrupt(source, "it is too short for a part")
    header_size, body_size = _PART.unpack_from(view)
    if _PART.size + header_size + body_size != len(view):
        raise Corrupt(source, "its parts do not add up to its length")
    return view[_PART.size : _PART.size + header_size], view[_PART.size + header_size :]


_PART_DECODER: Final[msgspec.msgpack.Decoder[PagesHead | FramePart | End]] = msgspec.msgpack.Decoder(decodable(Part))
"""Kept, since making one for a union costs more than reading a part."""


def _decode_part(source: str, header: memoryview) -> PagesHead | FramePart | End:
    with header:
        try:
            return _PART_DECODER.decode(header)
        except UNREADABLE as error:
            raise Corrupt(source, f"a part of it can't be read: {error}") from error


class PartReader:
    """Cuts a byte stream into parts: feed it chunks, iterate what is complete.

    Raises Corrupt on garbage, on a stream that stops before its End (`finish`), and where frames are missing.
    """

    def __init__(self, source: str) -> None:
        self.source = source
        self.begun = False
        self.ended = False
        self.frames = 0
        self._buffer = bytearray()

    def feed(self, chunk: bytes) -> Iterator[tuple[PagesHead | FramePart, bytes]]:
        self._buffer += chunk
        while not self.ended and len(self._buffer) >= _PART.size:
            header_size, body_size = _PART.unpack_from(self._buffer)
            if header_size > _MAX_HEADER or body_size > _MAX_BODY:
                raise Corrupt(self.source, "a part of it claims an impossible size")
            end = _PART.size + header_size + body_size
            if len(self._buffer) < end:
                return
            with memoryview(self._buffer) as view:
                part = _decode_part(self.source, view[_PART.size : _PART.size + header_size])
                body = bytes(view[_PART.size + header_size : end])
            del self._buffer[:end]
            if isinstance(part, End):
                self.ended = True
                if part.code:
                    raise from_wire(part.code, part.message, part.details)
                if part.frames != self.frames:
                    raise Corrupt(self.source, f"it sent {self.frames} frames where {part.frames} belong")
            else:
                self.begun = True
                self.frames += isinstance(part, FramePart)
                yield part, body

    def finish(self) -> None:
        if not self.ended or self._buffer:
            raise Corrupt(self.source, "it was cut short")


def to_wire(error: BudwoodError) -> tuple[str, str, dict[str, Any]]:
    """An error as (code, message, details): the class's name, the line, and its extra fields."""
    details = {name: value for name, value in vars(error).items() if isinstance(value, str | int | bool)}
    return type(error).__name__, str(error), details


def from_wire(code: str, message: str, details: dict[str, Any]) -> BudwoodError:
    """The error that `to_wire` told; an unknown code becomes its nearest known kin."""
    from . import errors

    kind = getattr(errors, code, None)
    if not (isinstance(kind, type) and issubclass(kind, BudwoodError)):
        return Unsupported(f"the remote answered with the unknown error {code!r}: {message}")
    if kind is Corrupt:
        return Corrupt(str(details.get("key", "the remote's store")), str(details.get("what", message)))
    error = kind(message)
    for name, value in details.items():
        if name in vars(error):
            setattr(error, name, value)
    return error
