"""Records: what the entries of a log carry for their streams (DESIGN §4, §5, §10).

Each is a MessagePack map with its kind under "k". Keys that a reader doesn't know are passed over; a *kind* that it
doesn't know stops its stream (`Unsupported`), since the state after it can't be known. So an entry carries the records
of each stream as bytes, beside the sum of what they add, and whoever reads the log reads on without decoding them.

Times are milliseconds since the Unix epoch, lengths are bytes, ids are their 16 raw bytes, digests 32 bytes, page
sets roaring bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, get_args

import msgspec

from .envelope import UNREADABLE, encode, unpack
from .errors import BadInput, Corrupt, Unsupported
from .pageset import PageSet, decode_pages
from .retention_policy import RetentionPolicy
from .rules import Offset, Rules
from .setsum import EMPTY_SUM, Setsum
from .tree_node import Pointer


class _Struct(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="k", gc=False):
    pass


class Location(_Struct, frozen=True, kw_only=True):
    """Where some of a commit's pages lie: one volume's part of one segment."""

    object: str
    """The key; "" stands for the entry that carries the commit."""
    size: int = 0
    """The object's whole length, so that its tail is one range away; 0 for the entry itself."""
    slot: int
    """The volume's place in the segment's volume table."""
    order: int = 0
    """Where two locations hold the same page, the higher order wins (S2.21)."""
    pages: bytes = b""
    """The page set it holds, so that nobody opens an index to learn where a page lies; "" in a commit's only location:
    all of the commit's pages."""


class Commit(_Struct, frozen=True, kw_only=True, tag="commit"):
    """Makes a new LSN."""

    vid: bytes
    lsn: int
    base: int
    """The LSN it was made on; accepted only if that is the head."""
    length: int
    floor: int
    """The least length the volume had since base: older versions of pages beyond it read as zeros (B9)."""
    pages: bytes
    locations: tuple[Location, ...] = ()
    client: bytes
    token: bytes
    nonce: bytes
    content: bytes
    """Setsum of the content items, which doesn't depend on the LSN."""
    setsum: bytes
    """Setsum of the log items."""
    time: int = 0
    writer_epoch: int = 0
    bindings: bytes = b""
    """The caller's own note: stored and given back, never read."""

    @property
    def page_set(self) -> PageSet:
        return decode_pages("a commit", self.pages)


class CommitBound(Commit, frozen=True, kw_only=True, tag="commit-bound"):
    """A `commit` that binds offsets of sources (rules.py). It has a kind of its own, so that whoever knows of none
    stops there, and takes nothing in twice."""

    sources: tuple[Offset, ...]


class Fold(_Struct, frozen=True, kw_only=True, tag="fold"):
    """Up to `lsn`, the volume is from here on what its checkpoint says (checkpoint.py): no commit up to there is looked
    at any more. A transaction, granted where this stands (DESIGN §5)."""

    vid: bytes
    checkpoint: str
    """The prefix that the transaction's objects lie under: logs/{log}/t/{txn:016x}."""
    base: str = ""
    """The checkpoint that it was made from; "" if it is the first."""
    lsn: int
    tree: Pointer | None = None
    """None where nothing is left that anybody could read."""
    superseded: bytes = EMPTY_SUM
    """Setsum of the log items up to `lsn` that are in it no more. Those that are, are the tree's sum."""
    deadlist: bytes = b""
    """The digest of the transaction's deadlist."""
    ended: tuple[bytes, ...] = ()
    """Forks that hold nothing of the volume from here on: they were removed, and nothing of them is left. Whoever
    knows of none goes on holding what they held, which is no harm."""
    time: int = 0


class FoldRelocating(Fold, frozen=True, kw_only=True, tag="fold-relocating"):
    """A `fold` that has taken pages of later commits out of their entries, too. It has a kind of its own, so that
    whoever knows of no such pages stops there, and does not look for them where they are gone."""

    relocated: int
    """The LSN up to which every page that a commit has brought in its entry is found by the checkpoint."""


class Open(_Struct, frozen=True, kw_only=True, tag="open"):
    """A stream goes on in this log, from where a close in another left it."""

    vid: bytes
    log: str
    slot: int
    head: int
    length: int
    clients: tuple[tuple[bytes, bytes, int, int], ...] = ()
    """Each client's last (client, token, base, lsn)."""
    history: tuple[tuple[str, int], ...] = ()
    """Logs that hold the earlier commits: (log, slot of its close), oldest first."""
    since: int = 1
    collect: int = 0
    collected: int = 0
    """As they stood at the close."""
    forks: tuple[tuple[bytes, int], ...] = ()
    """(child, LSN) of every fork, sorted."""
    newest: int = 0
    """The time of the newest commit."""
    fold: Fold | FoldRelocating | None = None
    """The newest."""
    time: int = 0


class OpenRetained(Open, frozen=True, kw_only=True, tag="open-retained"):
    """An `open` of a stream that has a policy. It has a kind of its own, so that whoever knows of no policies stops
    there, and does not go on without it."""

    policy: RetentionPolicy


class OpenRelocated(Open, frozen=True, kw_only=True, tag="open-relocated"):
    """An `open` of a stream whose fold has relocated pages, and which may have a policy: of a kind of its own as that
    fold's record is."""

    policy: RetentionPolicy | None = None


class OpenRuled(Open, frozen=True, kw_only=True, tag="open-ruled"):
    """An `open` of a stream that has rules, whatever else it has: of a kind of its own as their records are."""

    policy: RetentionPolicy | None = None
    rules: Rules


class Close(_Struct, frozen=True, kw_only=True, tag="close"):
    """A stream ends in this log; `to` is where it goes on."""

    vid: bytes
    to: str
    head: int
    length: int
    time: int = 0


class Fork(_Struct, frozen=True, kw_only=True, tag="fork"):
    """In the parent's stream: `child` shares everything up to `lsn`, so nothing it reads may be collected."""

    vid: bytes
    child: bytes
    lsn: int
    pin: bytes = b""
    """The pin that held `lsn` already, where this stream alone can't: below `since`, or a parent's."""
    time: int = 0


class _SinceRecord(_Struct, frozen=True, kw_only=True):
    vid: bytes
    since: int
    time: int = 0


class Since(_SinceRecord, frozen=True, kw_only=True, tag="since"):
    """LSNs below `since` are forgotten, but for those that a pin or a fork holds (S3.15)."""


class Collect(_SinceRecord, frozen=True, kw_only=True, tag="collect"):
    """What only LSNs below `since` need is about to be deleted. From here on nobody may pin one of them, unless it is
    held already. Whoever deletes lists pins and forks after this stands (B11)."""


class Collected(_SinceRecord, frozen=True, kw_only=True, tag="collected"):
    """What that `collect` announced is done."""


class Retain(_Struct, frozen=True, kw_only=True, tag="retain"):
    """How long the volume's LSNs stay readable from here on; in the namespace's stream those of every volume that has
    no policy of its own. Whoever keeps the store tidy goes by it (server/upkeep/retainer.py)."""

    vid: bytes
    policy: RetentionPolicy | None = None
    """None: what the store's default says; of that: everything, for ever."""
    time: int = 0


class Mode(_Struct, frozen=True, kw_only=True, tag="mode"):
    """Who may commit from here on (rules.py)."""

    vid: bytes
    mode: str
    time: int = 0


class WriterEpoch(_Struct, frozen=True, kw_only=True, tag="writer-epoch"):
    """A writer has taken the next epoch of an exclusive volume: commits of those before are refused from here on."""

    vid: bytes
    epoch: int
    time: int = 0


class Rekey(_Struct, frozen=True, kw_only=True, tag="rekey"):
    """The volume's encryption header (encryption.py) from here on."""

    vid: bytes
    encryption: bytes
    time: int = 0


class Tombstone(_Struct, frozen=True, kw_only=True, tag="tombstone"):
    """The volume is finished; its LSNs stay readable until they are collected."""

    vid: bytes
    time: int = 0


class Touched(_Struct, frozen=True, kw_only=True):
    """A name that a change depends on, at the revision it was seen at; 0 means that the name must be free."""

    name: str
    revision: int


class NameChange(_Struct, frozen=True, kw_only=True, tag="names"):
    """One change of a namespace; lands whole or not at all. Its LSN becomes the revision of every name it writes."""

    vid: bytes
    lsn: int
    op: str
    """bind: name 0 → target. move: name 0 (and all below it, when it is a prefix) → name 1. unbind: name 0."""
    touched: tuple[Touched, ...]
    target: bytes = b""
    attributes: dict[str, Any] = {}
    client: bytes = b""
    token: bytes = b""
    time: int = 0


Record = (
    Commit
    | CommitBound
    | Open
    | OpenRetained
    | OpenRelocated
    | OpenRuled
    | Close
    | Fork
    | Since
    | Collect
    | Collected
    | Retain
    | Mode
    | WriterEpoch
    | Rekey
    | Fold
    | FoldRelocating
    | Tombstone
    | NameChange
)

_KINDS: Final[dict[object, type[Record]]] = {kind.__struct_config__.tag: kind for kind in get_args(Record)}


def policy_of(record: Open) -> RetentionPolicy | None:
    """What an `open` carries over."""
    return record.policy if isinstance(record, OpenRetained | OpenRelocated | OpenRuled) else None


def rules_of(record: Open) -> Rules | None:
    """The same."""
    return record.rules if isinstance(record, OpenRuled) else None


def sources_of(record: Commit) -> tuple[Offset, ...]:
    return record.sources if isinstance(record, CommitBound) else ()


def settled_by(fold: Fold | None) -> int:
    """The LSN up to which a volume needs nothing of its commits' entries but what rollups have of them."""
    if fold is None:
        return 0
    return max(fold.lsn, fold.relocated) if isinstance(fold, FoldRelocating) else fold.lsn


class _Kind(msgspec.Struct):
    k: str


def decode_record(key: str, data: bytes | memoryview | msgspec.Raw) -> Record:
    """Raises Corrupt on garbage, Unsupported on a kind that this version doesn't know."""
    try:
        kind = unpack(data, _Kind).k
        if kind not in _KINDS:
            raise Unsupported(f"{key} carries a record of the unknown kind {kind!r}: upgrade")
        return unpack(data, _KINDS[kind])
    except UNREADABLE as error:
        raise Corrupt(key, f"one of its records can't be read: {error}") from error


class StreamRecords(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What one entry carries for one stream."""

    records: tuple[bytes, ...]
    """Each as its own MessagePack, in order."""
    setsum: bytes = EMPTY_SUM
    """What they add to the log's total: the sum of the commits' setsums."""

    def decode(self, key: str) -> tuple[Record, ...]:
        """Raises as `decode_record`, and Corrupt where the commits don't add up to the stream's sum."""
        if not self.records:
            raise Corrupt(key, "it names a stream and carries no record of it")
        records = tuple(decode_record(key, raw) for raw in self.records)
        try:
            added = _added_by(records)
        except BadInput as error:
            raise Corrupt(key, f"a commit's setsum: {error}") from error
        if added != self.setsum:
            raise Corrupt(key, "the sums of its commits don't add up to their stream's")
        return records


def encode_records(records: Iterable[Record]) -> StreamRecords:
    """As an entry carries them."""
    every = tuple(records)
    return StreamRecords(records=tuple(encode(record) for record in every), setsum=_added_by(every))


def _added_by(records: Iterable[Record]) -> bytes:
    return Setsum.of_sums(record.setsum for record in records if isinstance(record, Commit)).digest


class Birth(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The object `volumes/{vid}/birth`, created once: what never changes about a volume."""

    vid: bytes
    page_size: int
    kind: str = "pages"
    """pages, or names for a namespace."""
    log: str
    """The log it was born in."""
    region: str = ""
    """Where its maker would have it served."""
    org: str = ""
    """Whose it is; "": the store's own."""
    maker: str = ""
    """The id of the key that made it; "" where that isn't known."""
    parent: bytes = b""
    parent_lsn: int = 0
    parent_length: int = 0
    encryption: bytes = b""
    """The encryption header that it began with; a fork's is its parent's."""
    time: int = 0
