"""Checkpoint: what a volume is up to an LSN, once its commits were folded (DESIGN §5; S2.14).

    logs/{log}/t/{txn:016x}/{digest}       nodes of its tree (tree_node.py), under the transaction that made them
    logs/{log}/t/{txn:016x}/{segment}      segments that it copied pages into
    logs/{log}/t/{txn:016x}/deadlist       an envelope that holds a `Deadlist`

The commits up to the checkpoint's LSN are put together into *regions*: one up to each LSN that can still be read, from
the one before it. A region says, of each page that its commits left behind at its LSN, which segment has it. So what a
page reads as at such an LSN is looked for as it is among commits: newest region first, and beyond a region's floor
there are zeros, whatever lies below.

Commits behind that LSN stay as their log's rollup has them, each with an LSN that can be read. But what pages they
brought in entries may be *relocated*, so that these can go: into segments that have a row for each commit.

Keys of the tree are a letter, and what the letter says:

    b ‖ LSN                 Region           up to that LSN
    p ‖ region ‖ range      PageRange        where the pages from range · 4096 + 1 on lie, that many of them
    s ‖ segment             FoldedSegment    an object that has some of them
    r ‖ LSN                 Relocated        an object that has pages of commits, the last of them that LSN's

Numbers are 8 bytes, the most significant first. A region keeps its number when later commits are put into it, so that
only the ranges that they touch are written anew.

Setsums: the tree's sum is that of its regions, which is that of the log items of every page in them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from .entry import digest_of
from .envelope import DEADLIST, decode, encode, open_head, seal, unseal
from .errors import Corrupt
from .pageset import PageSet, decode_pages, span
from .records import Fold, Location
from .setsum import EMPTY_SUM

REGION: Final = b"b"
PAGES: Final = b"p"
SEGMENT: Final = b"s"
RELOCATED: Final = b"r"

SHARDS: Final = 1 << 0
"""Required feature (envelope.py) of a deadlist that has fragments in shards (fragments.py): whoever passed over that
would take them for nothing that a fold leaves out."""
RANGE_BITS: Final = 12
NO_FLOOR: Final = 1 << 32


class EndingCommit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The last commit of a region, without where its pages lie: see records.Commit."""

    floor: int
    pages: bytes
    client: bytes
    token: bytes
    content: bytes
    setsum: bytes
    time: int
    bindings: bytes = b""


class Region(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    number: int
    after: int
    """The LSN that it begins behind."""
    length: int
    """In bytes, of the volume at its end."""
    floor: int = NO_FLOOR
    reach: int = 0
    """Its commits cut off the pages beyond `floor`, of which none lay beyond `reach`: counted in pages."""
    setsum: bytes = EMPTY_SUM
    """Of the log items of its pages."""
    before: int = 0
    """The bytes that the volume had before its last commit."""
    commit: EndingCommit


class PageRange(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """(segment, page set) pairs, by segment; no page is in two of them."""

    parts: tuple[tuple[int, bytes], ...]


class FoldedSegment(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    object: str
    size: int
    """The whole object's, in bytes."""
    slot: int = 0
    """The volume's place in its volume table."""
    lsn: int = 0
    """Of the commit that its pages are of; 0 where its index has each page's."""
    pages: int
    """Of this volume's, in it."""
    live: int
    """Of these, how many some region says are there."""

    @property
    def location(self) -> Location:
        return Location(object=self.object, size=self.size, slot=self.slot)


class Relocated(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A segment with the pages that some commits had in their entries: a row of its volume table for each."""

    object: str
    size: int
    """The whole object's, in bytes."""
    after: int
    """The LSN before the first of these commits."""
    commits: bytes
    """Which they are, counted from there, as a page set: the row of the nth of them is n, from 0."""
    pages: int
    """Of all rows."""

    @property
    def lsns(self) -> list[int]:
        """Of its commits, ascending. Raises Corrupt."""
        return [self.after + place for place in decode_pages(self.object, self.commits)]

    @property
    def count(self) -> int:
        """How many they are. Raises Corrupt."""
        return len(decode_pages(self.object, self.commits))

    def slot_of(self, lsn: int) -> int | None:
        """The row of that commit; None where it has none. Raises Corrupt."""
        commits, place = decode_pages(self.object, self.commits), lsn - self.after
        return commits.rank(place) - 1 if place in commits else None

    def location_of(self, slot: int) -> Location:
        return Location(object=self.object, size=self.size, slot=slot)


class Deadlist(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What nobody can reach any more once the fold stands, but by the checkpoint before it (S1.14)."""

    vid: bytes
    checkpoint: str
    base: str = ""
    objects: tuple[str, ...] = ()
    """Keys, sorted."""


def number(value: int) -> bytes:
    """As it stands in a key."""
    return value.to_bytes(8, "big")


def range_of(page: int) -> int:
    return (page - 1) >> RANGE_BITS


def ranges_of(pages: PageSet) -> Iterator[int]:
    """Those that any of the pages lie in, ascending. The set doesn't change meanwhile."""
    rank = 0
    while rank < len(pages):
        place = range_of(pages[rank])
        yield place
        rank = pages.rank(pages_of(place).max())


def pages_of(place: int) -> PageSet:
    """All pages of a range."""
    return span((place << RANGE_BITS) + 1, (place + 1) << RANGE_BITS)


def transaction_prefix(log: str, txn: int) -> str:
    return f"logs/{log}/t/{txn:016x}"


def number_of_transaction(log: str, checkpoint: str) -> int | None:
    """The number whose prefix that is; None if it isn't one of this log."""
    prefix = f"logs/{log}/t/"
    return int(checkpoint[len(prefix) :], 16) if checkpoint.startswith(prefix) else None


def nodes_folder(checkpoint: str) -> str:
    """Where the nodes of its tree lie, those of the checkpoints before it too."""
    return checkpoint.rpartition("/")[0]


def deadlist_key(checkpoint: str) -> str:
    return f"{checkpoint}/deadlist"


def seal_deadlist(deadlist: Deadlist) -> tuple[bytes, bytes]:
    """Its digest and its bytes."""
    data = seal(DEADLIST, encode(deadlist), features=_features_of(deadlist))
    return digest_of(data), data


def _features_of(deadlist: Deadlist) -> int:
    return SHARDS if any("/shards/" in key for key in deadlist.objects) else 0


def open_deadlist(key: str, data: bytes) -> Deadlist:
    """Whosever it is. Raises Corrupt, Unsupported."""
    deadlist = decode(key, unseal(key, DEADLIST, data), Deadlist)
    if _features_of(deadlist) & ~open_head(key, DEADLIST, data).features:
        raise Corrupt(key, "it names fragments in shards, and does not say that its reader must know that")
    return deadlist


def parse_deadlist(fold: Fold, data: bytes) -> Deadlist:
    """Raises Corrupt unless it is that fold's; Unsupported."""
    key = deadlist_key(fold.checkpoint)
    deadlist = open_deadlist(key, data)
    if digest_of(data) != fold.deadlist or (deadlist.vid, deadlist.checkpoint) != (fold.vid, fold.checkpoint):
        raise Corrupt(key, "it is not the one that its fold was granted with")
    return deadlist
