"""Calls: the protocol of DESIGN §6 as a table, which the HTTP client and the server's routes and OpenAPI document are
made from.

Every call is `POST /v1/{name}`. Most take one message and answer with one, as JSON or MessagePack. Three carry pages:

    write_pages   body: one segment; the volume in the query (?vid=…)
    commit        body: a message, or one part (wire.py) with the message as header and a segment as body
    read_pages    answer: a stream of parts, PagesHead, FramePart…, End

Errors are answered as an `ErrorBody` with the class's name; the HTTP status is for those who know nothing else.
"""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Any, Final, NamedTuple, TypeAlias

import msgspec

from .pins import Pin
from .records import Location
from .wire import (
    Changes,
    CommitInfo,
    CommitRequest,
    Committed,
    CreateRequest,
    ForkRequest,
    Located,
    LocateRequest,
    MoveRequest,
    NameEntry,
    NameList,
    NameRequest,
    Outcome,
    ReadRequest,
    SnapshotInfo,
    StoreInfo,
)

__all__ = [
    "CALLS",
    "JSON",
    "MSGPACK",
    "PARTS",
    "Call",
    "CommitList",
    "Done",
    "ErrorBody",
    "Form",
    "Head",
    "LogName",
    "LookupRequest",
    "NameAnswer",
    "NamesRequest",
    "OutcomeRequest",
    "PinList",
    "PinRequest",
    "RangeRequest",
    "RenewRequest",
    "Revision",
    "Since",
    "SinceRequest",
    "SnapshotRequest",
    "UnpinRequest",
    "VolumeRequest",
    "WaitNamesRequest",
    "WaitRequest",
]

JSON: Final = "application/json"
MSGPACK: Final = "application/msgpack"
PARTS: Final = "application/vnd.budwood.parts"
"""One part or several, back to back."""
SEGMENT: Final = "application/octet-stream"

MAX_MESSAGE_BYTES: Final = 16 * 1024 * 1024
MAX_PAGES_BYTES: Final = 64 * 1024 * 1024
MAX_WAIT_SECONDS: Final = 60.0


class _Message(msgspec.Struct, frozen=True, omit_defaults=True):
    pass


Lsn: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
Seconds: TypeAlias = Annotated[float, msgspec.Meta(ge=0)]


class SnapshotRequest(_Message, frozen=True, kw_only=True):
    vid: bytes
    lsn: Lsn | None = None
    at_ms: int | None = None
    confirm: bool = False


class RangeRequest(_Message, frozen=True, kw_only=True):
    """The LSNs (after, to]; `to` is the newest when it is left out."""

    vid: bytes
    after: Lsn = 0
    to: Lsn | None = None


class CommitList(_Message, frozen=True, kw_only=True):
    commits: tuple[CommitInfo, ...]


class OutcomeRequest(_Message, frozen=True, kw_only=True):
    vid: bytes
    client: bytes
    token: bytes


class WaitRequest(_Message, frozen=True, kw_only=True):
    vid: bytes
    after: Lsn
    timeout_seconds: Annotated[float, msgspec.Meta(ge=0)] = 30.0
    """The answer comes after 60 at the latest."""


class WaitNamesRequest(_Message, frozen=True, kw_only=True):
    after: Lsn
    timeout_seconds: Annotated[float, msgspec.Meta(ge=0)] = 30.0
    """As in WaitRequest."""


class Head(_Message, frozen=True, kw_only=True):
    lsn: int


class LookupRequest(_Message, frozen=True, kw_only=True):
    name: str


class NameAnswer(_Message, frozen=True, kw_only=True):
    """No entry: the name is free."""

    entry: NameEntry | None = None


class NamesRequest(_Message, frozen=True, kw_only=True):
    prefix: str = ""
    after: str = ""
    limit: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 1000


class Revision(_Message, frozen=True, kw_only=True):
    lsn: int


class LogName(_Message, frozen=True, kw_only=True):
    log: str


class PinRequest(_Message, frozen=True, kw_only=True):
    """Of LSN `lsn`, or of the newest. The caller makes the pin's id, so that a repetition is no second pin."""

    vid: bytes
    pin: bytes
    lsn: Lsn | None = None
    seconds: Seconds
    """0: for ever."""
    owner: str = ""
    kind: str = "lease"
    """lease, named or sync."""


class RenewRequest(_Message, frozen=True, kw_only=True):
    vid: bytes
    pin: bytes
    seconds: Seconds


class UnpinRequest(_Message, frozen=True, kw_only=True):
    vid: bytes
    pin: bytes


class VolumeRequest(_Message, frozen=True, kw_only=True):
    vid: bytes


class PinList(_Message, frozen=True, kw_only=True):
    pins: tuple[Pin, ...]


class SinceRequest(_Message, frozen=True, kw_only=True):
    vid: bytes
    since: Annotated[int, msgspec.Meta(ge=1)]


class Since(_Message, frozen=True, kw_only=True):
    since: int


class Done(_Message, frozen=True):
    """An empty map."""


class ErrorBody(_Message, frozen=True, kw_only=True):
    """`code` is the name of a class in errors.py, `message` one line, `details` its extra fields (head, owner, key
    …)."""

    code: str
    message: str
    details: dict[str, Any] = {}


class Form(Enum):
    MESSAGE = "message"
    SEGMENT_IN = "segment in"
    PART_IN = "part in"
    PARTS_OUT = "parts out"


class Call(NamedTuple):
    summary: str
    request: type[msgspec.Struct]
    answer: type[msgspec.Struct]
    changes: bool = False
    """Whether it may change something, so that a lost answer is not simply asked for again."""
    form: Form = Form.MESSAGE


CALLS: Final[dict[str, Call]] = {
    "hello": Call("Who answers.", Done, StoreInfo),
    "create": Call("A volume with no commits.", CreateRequest, Done, changes=True),
    "snapshot": Call("The newest snapshot, or the one at an LSN or time.", SnapshotRequest, SnapshotInfo),
    "pull_changes": Call("The snapshot at a range's end, and the pages that changed in it.", RangeRequest, Changes),
    "pull_commits": Call(
        "The commits of a range, oldest first: as many as fit in an answer, 1,000 at most.", RangeRequest, CommitList
    ),
    "write_pages": Call("Store one segment of one volume.", Done, Location, changes=True, form=Form.SEGMENT_IN),
    "commit": Call("Make the next LSN.", CommitRequest, Committed, changes=True, form=Form.PART_IN),
    "outcome": Call("What became of a commit whose answer was lost.", OutcomeRequest, Outcome),
    "read_pages": Call("Pages of a snapshot, as frames.", ReadRequest, Done, form=Form.PARTS_OUT),
    "locate": Call("Which objects of the store hold pages of a snapshot.", LocateRequest, Located),
    "wait": Call("The head, as soon as it is above an LSN.", WaitRequest, Head),
    "fork": Call("A new volume that starts as another was at an LSN.", ForkRequest, SnapshotInfo, changes=True),
    "pin": Call("Hold an LSN, so that it can be read whatever is forgotten.", PinRequest, Pin, changes=True),
    "renew": Call("Hold it for longer.", RenewRequest, Pin, changes=True),
    "unpin": Call("Hold it no more.", UnpinRequest, Done, changes=True),
    "pins": Call("The pins that hold LSNs of a volume.", VolumeRequest, PinList),
    "advance": Call("Forget the LSNs below one, but for those that are held.", SinceRequest, Since, changes=True),
    "lookup": Call("The volume that a name stands for.", LookupRequest, NameAnswer),
    "list_names": Call("Names that start with a prefix.", NamesRequest, NameList),
    "wait_names": Call("The namespace's head, as soon as it is above an LSN.", WaitNamesRequest, Head),
    "change_name": Call("Bind, move or unbind a name.", NameRequest, Revision, changes=True),
    "move_log": Call("Move a volume to another log.", MoveRequest, LogName, changes=True),
}
