"""Calls: the protocol of DESIGN §6 as typed rows. Whatever passes a call on (routing, blocking callers, HTTP, the
OpenAPI document) is made from its row: `await remote.ask(SNAPSHOT, SnapshotRequest(vid.raw))` is a SnapshotInfo.

To add a call, write its messages and its row here, and the method that answers it in `server/node.py`, under
`@answers(ROW)`. Nothing between its caller and the node has to know of it. The row says who is asked, whether a lost
answer may be asked for again, and what is checked; a request about one volume is an `OfVolume`, and one that waits for
something to happen is a `Poll`.

Every call is `POST /v1/{name}`; it takes one message and answers with one, as JSON or MessagePack. Three carry pages,
and are methods of `Remote`:

    write_pages   body: one segment; the volume in the query (?vid=…)
    commit        body: a message, or one part (wire.py) with the message as header and a segment as body
    read_pages    answer: a stream of parts, PagesHead, FramePart…, End

Errors are answered as an `ErrorBody` with the class's name; the HTTP status is for those who know nothing else.

Every name here without an underscore is the protocol's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from enum import Enum
from typing import Annotated, Any, Final, Generic, TypeAlias, TypeVar

import msgspec

from .access import Right
from .errors import Corrupt
from .name_attributes import check_attributes, is_readable
from .pins import Pin
from .records import Location
from .retention_policy import RetentionPolicy
from .rules import Binding
from .setsum import HASH_SIZE
from .store_report import Heat, SharedLogs, StoreCosts
from .wire import (
    Changes,
    CommitInfo,
    CommitRequest,
    Committed,
    Located,
    NameDelta,
    NameEntry,
    NameList,
    NameRequest,
    Outcome,
    OwnedLog,
    PackedFrame,
    ReadRequest,
    SnapshotInfo,
    StoreInfo,
    check_view,
)

JSON: Final = "application/json"
MSGPACK: Final = "application/msgpack"
PARTS: Final = "application/vnd.budwood.parts"
"""One part or several, back to back."""
SEGMENT: Final = "application/octet-stream"

TIMEOUT_HEADER: Final = "X-Server-Timeout"
"""How many seconds a caller waits for the answer, once its body is sent. A node then stops working for it."""

WORKER_HEADER: Final = "X-Budwood-Worker"
"""Of an answer: which worker of the node this connection leads to. Absent where there is but one."""
VOLUME_AT_HEADER: Final = "X-Budwood-Volume-At"
"""The worker that the call was handed on to, as its volume is there. Absent where it was not."""

MAX_MESSAGE_BYTES: Final = 16 * 1024 * 1024
MAX_PAGES_BYTES: Final = 64 * 1024 * 1024
MAX_WAIT_SECONDS: Final = 60.0
MAX_OPEN_BYTES: Final = 1024 * 1024
"""Of frames, beside the one that holds page 1."""

Lsn: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
Seconds: TypeAlias = Annotated[float, msgspec.Meta(ge=0)]


class _Message(msgspec.Struct, frozen=True, omit_defaults=True):
    pass


class OfVolume(_Message, frozen=True):
    """A request about one volume, by which it finds its way."""

    vid: bytes


class OfNames(_Message, frozen=True, kw_only=True):
    """A request about names."""

    org: str = ""
    """Whose; "": the store's own. Of callers with a key the node says it itself."""


class Done(_Message, frozen=True):
    """An empty map."""


class ErrorBody(_Message, frozen=True, kw_only=True):
    """`code` is the name of a class in errors.py, `message` one line, `details` its extra fields (head, owner, key
    …)."""

    code: str
    message: str
    details: dict[str, Any] = {}


class CreateRequest(OfVolume, frozen=True, kw_only=True):
    page_size: int
    region: str = ""
    """Where it is to be served, if a node runs there: a hint."""
    org: str = ""
    maker: str = ""
    """Whose it is, and by which key. Of callers with a key the node says both itself."""
    encryption: bytes = b""
    """Its encryption header (encryption.py), if its pages will be encrypted."""


class SnapshotRequest(OfVolume, frozen=True, kw_only=True):
    """Of the newest snapshot, the one at `lsn`, the last not later than `at_ms`, or the one that is called `label`."""

    lsn: Lsn | None = None
    at_ms: int | None = None
    label: str = ""
    confirm: bool = False
    """Look at the log first, so that a deposed owner can't answer with its own past."""


class RangeRequest(OfVolume, frozen=True, kw_only=True):
    """The LSNs (after, to]; `to` is the newest when it is left out."""

    after: Lsn = 0
    to: Lsn | None = None


class CommitList(_Message, frozen=True, kw_only=True):
    commits: tuple[CommitInfo, ...]


class OutcomeRequest(OfVolume, frozen=True, kw_only=True):
    client: bytes
    token: bytes
    base: int | None = None
    """The LSN that the commit was made on. Without it all commits are looked through."""


class LocateRequest(OfVolume, frozen=True, kw_only=True):
    """Where pages of a snapshot lie. `lsn` as in ReadRequest."""

    lsn: int
    pages: bytes
    measure: bool = False
    """Count the frames that hold them, too, which opens the index of every object named."""


class WaitRequest(OfVolume, frozen=True, kw_only=True):
    after: Lsn
    timeout_seconds: Seconds = 30.0
    """A node that is asked over HTTP answers after 60 at the latest."""
    commits: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 0
    """Answer with the first commits above `after`, too: so many at most, and as many as fit."""


class WaitNamesRequest(OfNames, frozen=True, kw_only=True):
    after: Lsn
    timeout_seconds: Seconds = 30.0
    """As in WaitRequest."""


Poll: TypeAlias = WaitRequest | WaitNamesRequest
"""Answered when something happens, or at its timeout."""


class Head(_Message, frozen=True, kw_only=True):
    """The rest is told to those who asked for commits."""

    lsn: int
    commits: tuple[CommitInfo, ...] = ()
    """Those that follow `after`, oldest first; none only where there are none."""
    after_time: int = 0
    """Of the commit `after`: who has seen it knows by this whether it is still that one. 0 where it isn't told."""


class ForkRequest(OfVolume, frozen=True, kw_only=True):
    child: bytes
    lsn: int
    maker: str = ""
    """As of CreateRequest; it is whose its parent is."""


class PinRequest(OfVolume, frozen=True, kw_only=True):
    """Of LSN `lsn`, or of the newest. The caller makes the pin's id, so that a repetition is no second pin; or gives it
    a label, of which a volume has one."""

    pin: bytes = b""
    lsn: Lsn | None = None
    seconds: Seconds
    """0: for ever."""
    owner: str = ""
    kind: str = "lease"
    """lease, named or sync."""
    label: str = ""


class RenewRequest(OfVolume, frozen=True, kw_only=True):
    pin: bytes
    seconds: Seconds


class UnpinRequest(OfVolume, frozen=True, kw_only=True):
    pin: bytes


class VolumeRequest(OfVolume, frozen=True):
    pass


class PinList(_Message, frozen=True, kw_only=True):
    pins: tuple[Pin, ...]


class SinceRequest(OfVolume, frozen=True, kw_only=True):
    since: Annotated[int, msgspec.Meta(ge=1)]


class Since(_Message, frozen=True, kw_only=True):
    since: int


class RetainRequest(OfVolume, frozen=True, kw_only=True):
    policy: RetentionPolicy | None = None
    """None: the store's default."""


class ModeRequest(OfVolume, frozen=True, kw_only=True):
    mode: str
    """optimistic, exclusive or replicated."""


class RekeyRequest(OfVolume, frozen=True, kw_only=True):
    encryption: bytes
    """The encryption header (encryption.py) from here on."""
    before: bytes
    """32 bytes: the digest (entry.digest_of) of the one that it was made from."""


class Epoch(_Message, frozen=True, kw_only=True):
    epoch: int


class Ruled(_Message, frozen=True, kw_only=True):
    """What a volume wants of its commits."""

    mode: str
    writer_epoch: int = 0
    """The newest that was taken."""
    sources: tuple[Binding, ...] = ()
    """How far each was read, sorted."""
    head: int


class RetainDefaultRequest(_Message, frozen=True, kw_only=True):
    policy: RetentionPolicy | None = None
    """None: everything, for ever."""


class Retained(_Message, frozen=True, kw_only=True):
    """What of a volume can be read, and for how long."""

    policy: RetentionPolicy | None = None
    """The volume's own; None: the store's default goes."""
    default: RetentionPolicy | None = None
    """None: there is none, and everything stays."""
    since: int
    oldest: int
    """The first of the LSNs that can all be read. Below `since` where a fork shares LSNs."""
    head: int


class DefaultRetained(_Message, frozen=True, kw_only=True):
    policy: RetentionPolicy | None = None


class LookupRequest(OfNames, frozen=True):
    name: str


class OpenRequest(OfNames, frozen=True, kw_only=True):
    name: str
    lsn: Lsn | None = None
    """Of the snapshot; None: the newest."""
    pages: bool = False
    """Bring page 1 along."""
    extra_bytes: Annotated[int, msgspec.Meta(ge=0, le=MAX_OPEN_BYTES)] = 0
    """With it, frames that lie next to it are welcome, up to this many stored bytes."""
    encrypted: bool = False
    """As in ReadRequest."""


class PlanRequest(OfVolume, frozen=True, kw_only=True):
    """`lsn` as in ReadRequest."""

    lsn: int
    sql: str


class QueryPages(_Message, frozen=True, kw_only=True):
    snapshot: SnapshotInfo
    pages: bytes
    """Those that the query has read."""


class NameAnswer(_Message, frozen=True, kw_only=True):
    """No entry: the name is free."""

    entry: NameEntry | None = None


class Opened(_Message, frozen=True, kw_only=True):
    """All that a first query needs of a volume but its last pages: what `hello`, `lookup`, `snapshot` and `read_pages`
    of page 1 would have told."""

    store: str
    """The store's id, base58."""
    entry: NameEntry | None = None
    """None: the name is free."""
    snapshot: SnapshotInfo | None = None
    """None where the name leads to nothing that can be read."""
    is_zeros: bool = False
    """Page 1 holds nothing but zeros."""
    frames: tuple[PackedFrame, ...] = ()


class NamesRequest(OfNames, frozen=True, kw_only=True):
    """Names that start with `prefix`, sorted, behind `after`: as they stood `at` a time, or as they stand."""

    prefix: str = ""
    after: str = ""
    limit: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 1000
    at: Annotated[int, msgspec.Meta(ge=0)] = 0
    """In milliseconds since the Unix epoch; 0: now."""


class PullNamesRequest(OfNames, frozen=True, kw_only=True):
    """What became of the names since revision `since`, as far as they sort behind `after`; since 0: all names."""

    since: Lsn = 0
    after: str = ""
    limit: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 10_000


class Revision(_Message, frozen=True, kw_only=True):
    lsn: int


class MoveRequest(OfVolume, frozen=True, kw_only=True):
    """Move a volume to another log: `to` is a node's name or "private"."""

    to: str
    takeover: bool = False
    ready: int = -1
    """What the node that owns that log has said of itself (`ready`), where another node closes the volume for it."""


class Ready(_Message, frozen=True, kw_only=True):
    """So far a node has read a volume that it is to have, and all that its commits would wait for."""

    log: str
    """The one that the volume is in."""
    slot: int
    """The last of that log that was read."""


class LogName(_Message, frozen=True, kw_only=True):
    log: str


class DecommissionRequest(_Message, frozen=True, kw_only=True):
    node: str
    force: bool = False
    """Though it doesn't answer."""
    here: bool = False
    """By whoever is asked, though another node runs in its region."""


class Decommissioned(_Message, frozen=True, kw_only=True):
    """What a node has left in the store, once it was taken out."""

    node: str
    by: str
    """The node that was asked to take its logs, the first time."""
    time: int
    heir: str = ""
    """The address of the node that answers, which has them now."""
    taken: tuple[OwnedLog, ...] = ()
    """Logs that were taken from it by this call, and by whom answers."""
    rejected: tuple[tuple[str, int], ...] = ()
    """Folds of its that were, by log and number."""
    left: tuple[str, ...] = ()
    """Logs that name it as their owner, or may yet. None: nothing of it can come to stand in a shared log any more."""
    says: tuple[str, ...] = ()
    """Logs that it still says it owns, since it has not noticed yet."""


class Fingerprint(_Message, frozen=True, kw_only=True):
    """Of a snapshot's content, whoever wrote it: the same for the same bytes in pages of the same size."""

    lsn: int
    length: int
    page_size: int
    content: bytes
    """The setsum of the item hashes of all pages within the length that aren't zeros; of the last one as if zeros
    followed behind the length."""

    @property
    def word(self) -> str:
        """All of it in one, but for the LSN."""
        fields = self.page_size.to_bytes(4, "little") + self.length.to_bytes(8, "little") + self.content
        return hashlib.blake2b(fields, digest_size=32).hexdigest()


class Requested(_Message, frozen=True, kw_only=True):
    """How often a process has asked its store for something."""

    day: int = 0
    """Since 1970; of a line that is about a day."""
    owner: str = ""
    """A volume, or a log that several share; of a line that is about one."""
    gets: int = 0
    creates: int = 0
    deletes: int = 0
    lists: int = 0
    received_bytes: int = 0
    sent_bytes: int = 0
    entries: float = 0.0
    """Its part of entries that it shared with others, which are among the creates of their log."""


class RequestCounts(_Message, frozen=True, kw_only=True):
    since_ms: int
    """When it began to count."""
    now_ms: int
    days: tuple[Requested, ...] = ()
    """The last 32, oldest first."""
    owners: tuple[Requested, ...] = ()
    """At most 1,000, those that asked most first."""
    figures: dict[str, float] = {}
    """Since it began, each of which only grows: all requests by kind, and bytes; of a bucket, how many were sent twice,
    and how many waited."""


class SharedLogsRequest(_Message, frozen=True, kw_only=True):
    """By name, behind `after`."""

    after: str = ""
    limit: Annotated[int, msgspec.Meta(ge=1, le=100)] = 50


class To(Enum):
    """Who answers, of the nodes of a store."""

    HOME = "home"
    """Whoever is asked."""
    READER = "reader"
    """Whoever reads the volume's log, or the names': a process reads from the store what it may not append to."""
    OWNER = "owner"
    """Whoever appends to it."""
    TARGET = "target"
    """Whoever appends to the log that it is to go to."""


class Form(Enum):
    MESSAGE = "message"
    SEGMENT_IN = "segment in"
    PART_IN = "part in"
    PARTS_OUT = "parts out"


Q = TypeVar("Q", bound=msgspec.Struct)
A = TypeVar("A", bound=msgspec.Struct)
A_co = TypeVar("A_co", bound=msgspec.Struct, covariant=True)


def _anything(*_: object) -> None:
    """Nothing is checked."""


class Row(msgspec.Struct, Generic[Q, A_co], frozen=True):
    """A call of the protocol, whether `Remote.ask` or a method of its own makes it."""

    name: str
    summary: str
    request: type[Q]
    answer: type[A_co]
    to: To = To.READER
    changes: bool = False
    """Whether it may change something, so that a lost answer is not simply asked for again."""
    form: Form = Form.MESSAGE
    right: Right | None = None
    """What it takes of the volumes or names that it is about; write where it changes something, else read, unless said
    here. A right to operate is about none."""

    @property
    def needs(self) -> Right:
        return self.right or (Right.WRITE if self.changes else Right.READ)


class Call(Row[Q, A_co], frozen=True):
    """One that `Remote.ask` makes."""

    sendable: Callable[[Q], object] = _anything
    """Raises BadInput on a request that can't be sent."""
    check: Callable[[str, A_co], object] = _anything
    """Raises Corrupt, of the answer's source, on one that can't be: whoever answers over HTTP may be anybody."""
    moves: bool = False
    """Whether the volume's log may be another's afterwards."""


def _check_snapshot(source: str, answer: Changes | Located | QueryPages) -> None:
    check_view(source, answer.snapshot)


def _check_fingerprint(source: str, answer: Fingerprint) -> None:
    if len(answer.content) != HASH_SIZE or not 0 <= answer.length < 1 << 64 or not 0 < answer.page_size < 1 << 32:
        raise Corrupt(source, "it is no fingerprint")


def _check_opened(source: str, answer: Opened) -> None:
    """Its frames are checked by who takes them (remote/opening.py)."""
    _check_names(source, NameAnswer(entry=answer.entry))
    if answer.snapshot is not None:
        check_view(source, answer.snapshot)
        if answer.entry is None or answer.entry.target != answer.snapshot.vid:
            raise Corrupt(source, "its snapshot is not of the volume that its name leads to")
    elif answer.frames:
        raise Corrupt(source, "it has frames of no snapshot")


def _check_names(source: str, answer: NameAnswer | NameList | NameDelta) -> None:
    """What this process could not encode again must not get any further."""
    for entry in (answer.entry,) if isinstance(answer, NameAnswer) else answer.entries:
        if entry is not None and not is_readable(entry.attributes):
            raise Corrupt(source, f"the attributes of {entry.name!r} are nested too deep")


def _check_naming(request: NameRequest) -> None:
    check_attributes(request.attributes)


HELLO: Final = Call("hello", "Who answers.", Done, StoreInfo, To.HOME)

CREATE: Final = Call("create", "A volume with no commits.", CreateRequest, Done, To.OWNER, changes=True)
"""Repeating it is harmless; AlreadyExists if it stands with another page size."""

SNAPSHOT: Final = Call(
    "snapshot",
    "The newest snapshot, or the one at an LSN, a time or a label.",
    SnapshotRequest,
    SnapshotInfo,
    check=check_view,
)
"""NotFound, Forgotten."""

PULL_CHANGES: Final = Call(
    "pull_changes",
    "The snapshot at a range's end, and the pages that changed in it.",
    RangeRequest,
    Changes,
    check=_check_snapshot,
)

PULL_COMMITS: Final = Call(
    "pull_commits",
    "The commits of a range, oldest first: as many as fit in an answer, 1,000 at most.",
    RangeRequest,
    CommitList,
)
"""Ask again after the last."""

WRITE_PAGES: Final = Row(
    "write_pages", "Store one segment of one volume.", Done, Location, To.OWNER, changes=True, form=Form.SEGMENT_IN
)
COMMIT: Final = Row("commit", "Make the next LSN.", CommitRequest, Committed, To.OWNER, changes=True, form=Form.PART_IN)

OUTCOME: Final = Call("outcome", "What became of a commit whose answer was lost.", OutcomeRequest, Outcome, To.OWNER)
"""Confirmed against the log. Whoever commits knows it first. OutcomeUnknown of an ephemeral client's commit, once it
may have been folded."""

READ_PAGES: Final = Row("read_pages", "Pages of a snapshot, as frames.", ReadRequest, Done, form=Form.PARTS_OUT)

LOCATE: Final = Call(
    "locate",
    "Which objects of the store hold pages of a snapshot.",
    LocateRequest,
    Located,
    check=_check_snapshot,
)
"""And the commits that wrote them; with `measure`, the frames that would be fetched for them as well. What an answer
says nothing of is in its `rest`."""

PLAN_QUERY: Final = Call(
    "plan_query",
    "The pages of a snapshot that a query touches.",
    PlanRequest,
    QueryPages,
    check=_check_snapshot,
)
"""It is run, and its rows are dropped. BadInput where it is no query that only reads, or takes too much."""

WAIT: Final = Call("wait", "The head, as soon as it is above an LSN.", WaitRequest, Head)
"""Or as it is at the timeout. To those who ask for commits: Forgotten, unless each above `after` can be read; NotFound,
at once, where the volume was removed and no more will come."""

FORK: Final = Call(
    "fork",
    "A new volume that starts as another was at an LSN.",
    ForkRequest,
    SnapshotInfo,
    To.OWNER,
    changes=True,
    check=check_view,
)
"""No page is copied; its LSNs go on from the parent's."""

PIN: Final = Call(
    "pin",
    "Hold an LSN, so that it can be read whatever is forgotten.",
    PinRequest,
    Pin,
    changes=True,
    right=Right.READ,
)
"""NotFound; Forgotten where it can't be held any more. Whoever reads may pin: that appends to no log. The pin's own
`vid` is the one to renew and release it by."""

RENEW: Final = Call("renew", "Hold it for longer.", RenewRequest, Pin, changes=True, right=Right.READ)
"""It holds for so many seconds from now, or longer if it did before. NotFound once it has ended."""

UNPIN: Final = Call("unpin", "Hold it no more.", UnpinRequest, Done, changes=True)
"""Harmless if it has ended."""

PINS: Final = Call("pins", "The pins that hold LSNs of a volume.", VolumeRequest, PinList)
"""Those that hold one of its own LSNs, oldest first; its forks are among them."""

ADVANCE: Final = Call(
    "advance",
    "Forget the LSNs below one, but for those that are held.",
    SinceRequest,
    Since,
    To.OWNER,
    changes=True,
    right=Right.ADMIN,
)
"""The since afterwards: it never goes back."""

REMOVE: Final = Call(
    "remove", "Remove a volume for everybody.", VolumeRequest, Done, To.OWNER, changes=True, right=Right.ADMIN
)
"""Nobody can commit to it, fork it or read it any more, but for what its forks have of it and for leases until they
end. Harmless if it was removed. Its names stay, and lead nowhere."""

RETAIN: Final = Call(
    "retain",
    "Say for how long a volume's LSNs stay readable.",
    RetainRequest,
    Done,
    To.OWNER,
    changes=True,
    right=Right.ADMIN,
)
"""It replaces what was said before. NotFound where the volume was removed. Upkeep enforces it."""

RETAINED: Final = Call("retained", "Which of a volume's LSNs stay readable, and for how long.", VolumeRequest, Retained)

RETAIN_DEFAULT: Final = Call(
    "retain_default",
    "Say it for all volumes of the store that have no policy of their own.",
    RetainDefaultRequest,
    Done,
    To.OWNER,
    changes=True,
    right=Right.OPERATE,
)

RETAINED_DEFAULT: Final = Call(
    "retained_default", "For how long LSNs stay readable in volumes that don't say so.", Done, DefaultRetained
)

RULES: Final = Call("rules", "Who may commit to a volume, and how far its sources were read.", VolumeRequest, Ruled)
"""Confirmed against the log."""

SET_MODE: Final = Call(
    "set_mode", "Say who may commit to a volume.", ModeRequest, Done, To.OWNER, changes=True, right=Right.ADMIN
)

REKEY: Final = Call(
    "rekey",
    "Change who holds the keys of an encrypted volume, or what new pages are encrypted with.",
    RekeyRequest,
    Done,
    To.OWNER,
    changes=True,
    right=Right.ADMIN,
)
"""Conflict where it was changed meanwhile."""

TAKE_EPOCH: Final = Call(
    "take_epoch", "Be the writer of an exclusive volume.", VolumeRequest, Epoch, To.OWNER, changes=True
)
"""Commits of earlier epochs are refused from here on, with ReadOnly. Asked for again, it is another epoch."""

LOOKUP: Final = Call("lookup", "The volume that a name stands for.", LookupRequest, NameAnswer, check=_check_names)

OPEN: Final = Call(
    "open",
    "The volume that a name stands for, a snapshot of it, its page 1 and what lies beside that.",
    OpenRequest,
    Opened,
    check=_check_opened,
)
"""NotFound, Forgotten of an LSN. A node that doesn't know it yet says NotFound too: then ask for each by itself."""

LIST_NAMES: Final = Call("list_names", "Names that start with a prefix.", NamesRequest, NameList, check=_check_names)

PULL_NAMES: Final = Call(
    "pull_names", "What became of the names since a revision.", PullNamesRequest, NameDelta, check=_check_names
)
"""In parts; all names where the node doesn't remember what changed since then."""

WAIT_NAMES: Final = Call("wait_names", "The namespace's head, as soon as it is above an LSN.", WaitNamesRequest, Head)

CHANGE_NAME: Final = Call(
    "change_name",
    "Bind, move or unbind a name.",
    NameRequest,
    Revision,
    To.OWNER,
    changes=True,
    sendable=_check_naming,
)
"""The names' new LSN. Conflict when a name isn't at the revision that was seen; a repetition succeeds."""

MOVE_LOG: Final = Call(
    "move_log",
    "Move a volume to another log.",
    MoveRequest,
    LogName,
    To.OWNER,
    changes=True,
    moves=True,
    right=Right.OPERATE,
)
"""The log that it lives in afterwards. Busy where the node that is to have it has not read it yet: see `ready`."""

READY: Final = Call(
    "ready",
    "Read a volume that is to move here, so that its writers wait for nothing.",
    MoveRequest,
    Ready,
    To.TARGET,
    right=Right.OPERATE,
)
"""Nothing changes. Asked again, it reads what came meanwhile."""

TAKE_LOG: Final = Call(
    "take_log",
    "Own another node's log from now on.",
    LogName,
    OwnedLog,
    To.HOME,
    changes=True,
    right=Right.OPERATE,
)
"""For whoever operates them. Its owner is fenced, whether it lives or not; under which epoch."""

DECOMMISSION: Final = Call(
    "decommission",
    "Take a node out of the store for good, and own its logs from now on.",
    DecommissionRequest,
    Decommissioned,
    To.OWNER,
    changes=True,
    moves=True,
    right=Right.OPERATE,
)
"""Asked again, it goes on where it was cut off. Unavailable where that node doesn't answer, unless it is forced. Who
runs elsewhere sends the caller to a node of that one's region, if there is one."""

FINGERPRINT: Final = Call(
    "fingerprint",
    "What a snapshot's content comes to, so that two replicas are compared without a page.",
    SnapshotRequest,
    Fingerprint,
    check=_check_fingerprint,
)

REQUESTS: Final = Call(
    "requests", "What this process has asked of its store.", Done, RequestCounts, To.HOME, right=Right.OPERATE
)

SHARED_LOGS: Final = Call(
    "shared_logs",
    "The logs that bear a node's name: who owns each, and what of it is about to be deleted.",
    SharedLogsRequest,
    SharedLogs,
    To.HOME,
    right=Right.OPERATE,
)

STORE_COSTS: Final = Call(
    "store_costs", "What the store holds, and what is written to it.", Done, StoreCosts, To.HOME, right=Right.OPERATE
)
"""By a survey that is made where none is fresh; it may be under way."""

HEAT: Final = Call("heat", "Which pages of a volume are asked for.", VolumeRequest, Heat, To.HOME)

CALLS: Final[dict[str, Row[Any, Any]]] = {row.name: row for row in tuple(globals().values()) if isinstance(row, Row)}
"""All of them, by name."""
