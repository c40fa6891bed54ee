"""Rollup: what a log comes to at one of its slots, so that nobody need read what stands before (DESIGN §4, rule 9).

    logs/{log}/rollups/{slot:016x}/{digest}     the rollup: an envelope that holds a `Rollup`
    logs/{log}/nodes/{slot:016x}/{digest}       nodes of its tree (tree_node.py), under the slot that first needed them

A rollup covers every slot up to its own, all of them acknowledged when it was made. It says how the chain goes on from
there, and names the root of a tree with the state of every stream. It is made of the log alone: whoever makes it of the
same slots, the same rollup before it and the same births makes the same bytes, so that two at once do no harm.

Keys of the tree are the stream's 16 bytes, a letter, and what the letter says:

    s                           RolledState     what the stream comes to, and its stays in this log
    c ‖ LSN                     RolledCommit    a commit that this log carries
    r ‖ start ‖ level ‖ place   RolledRun       16^level of them together, from the start of their stay
    k ‖ client                  RolledClient    the client's newest commit
    f ‖ child                   RolledFork      a fork
    n                           RolledNames     what a namespace comes to, which has no `s`
    b ‖ name                    RolledName      what stands under a name
    h ‖ LSN                     RolledChange    what one of its newest changes touched, and what stood there before
    p ‖ slot                    RolledPart      from here on the stream can't be followed, and is kept as it stands

Numbers are 8 bytes, the most significant first; a level is one.

Commits up to the LSN of the newest fold are in the tree no more, nor are runs that begin with one of them.

Setsums: the tree's sum is that of all commits in it, `c` and `p`, and of those that were folded, which `s` says; with
what was collected it is the log's total.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any, Final

import msgspec

from .entry import digest_of
from .envelope import ROLLUP, decode, encode, open_head, seal
from .errors import BadInput, Corrupt
from .ids import VolumeId
from .records import Fold, FoldRelocating, StreamRecords
from .retention_policy import RetentionPolicy
from .rules import Rules
from .setsum import EMPTY_SUM, Setsum
from .tree_node import Pointer

FOLDS: Final = 1 << 0
"""Required feature of a rollup that has a stream which was folded: whoever passed over that would miss its commits."""
GARBAGE: Final = 1 << 1
"""And of one behind a garbage plan: whoever passed over that would grant what was rejected."""
POLICIES: Final = 1 << 2
"""And of one that has a stream with a policy: whoever passed over that would make the next rollup, or the `open` in
another log, without it, and might forget what the volume's own policy keeps."""
RELOCATIONS: Final = 1 << 3
"""And of one that has a stream whose fold has relocated pages: whoever passed over that would look for them in entries
that are gone."""
FRAGMENTS: Final = 1 << 4
"""And of one behind an entry that has `fragments_since`: whoever passed over that would name what is to be deleted."""

RULES: Final = 1 << 5
"""And of one that has a stream with rules: whoever passed over that would make the next rollup, or the `open` in
another log, without them, and might take in twice what a source had brought."""
SHARDS: Final = 1 << 6
"""And of one behind an entry that names fragments in shards (fragments.py): whoever passed over that would look for
what nobody names in one place alone, and take the rest for damage."""


class Rollup(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    log: str
    slot: int
    """The last that it covers."""
    epoch: int = 0
    n: int = 0
    writer: bytes = b""
    """The chain's at that slot: the highest epoch, the last canonical n of it, and who writes it."""
    canonical: int
    digest: bytes
    """The last canonical entry: its slot, and the digest of its head."""
    total: bytes = EMPTY_SUM
    collected: bytes = EMPTY_SUM
    named: str = ""
    """The newest rollup that an entry up to there has named."""
    tree: Pointer | None = None
    previous: str = ""
    """The rollup that it was made from."""
    folds: bool = False
    """Whether a stream in it was folded."""
    garbage: str = ""
    """The newest garbage plan that an entry up to there has acknowledged."""
    policies: bool = False
    """Whether a stream in it has a policy, or had one in the rollup before."""
    relocations: bool = False
    """Whether the fold of a stream in it has relocated pages, or one in the rollup before had."""
    fragments_since: int = 0
    """The newest that an entry up to there has."""
    rules: bool = False
    """Whether a stream in it has rules, or had some in the rollup before."""
    shards: int = 0
    """The highest shard that a fragment lies in which an entry up to there names."""
    followed: bool = False
    """Whether every part in it was followed: none stands in its tree. False where that isn't known."""


class Stay(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A volume's time in a log, from its birth or an `open` to a `close` or the rollup's slot; and what its stream came
    to at that end, but for its clients and forks."""

    start: int = 0
    start_length: int = 0
    """The LSN it began at, and the bytes that the volume had then."""
    opened: tuple[str, int] | None = None
    """The close that it goes on from: (log, slot). None where the volume was born here."""
    closed: tuple[str, int] | None = None
    """The log it goes on in, and the slot of the close that says so."""
    head: int = 0
    length: int = 0
    time: int = 0
    since: int = 1
    collect: int = 0
    collected: int = 0
    fold: Fold | FoldRelocating | None = None
    policy: RetentionPolicy | None = None
    rules: Rules | None = None


class RolledState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    page_size: int
    stays: tuple[Stay, ...]
    """Oldest first; one at least."""
    finished: bool = False
    folded: bytes = EMPTY_SUM
    """Setsum of this log's commits that were folded, and are not in the tree any more."""


class RolledCommit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    slot: int
    size: int
    """The entry that carries it: its slot, and its size in bytes."""
    before: int
    """The bytes that the volume had before it."""
    record: bytes
    """As the entry carries it, so that nothing is lost of it that whoever makes the rollup doesn't know."""


class RolledRun(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """See server/metastore/history.py."""

    pages: bytes
    floor: int
    reach: int


class RolledClient(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    token: bytes
    base: int
    lsn: int
    time: int = 0


class RolledFork(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    lsn: int


class RolledNames(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A namespace, but for its names and clients."""

    head: int
    time: int
    count: int
    """How many names stand."""
    policy: RetentionPolicy | None = None
    """The store's default."""


class RolledName(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What stands under a name. Untracked by the garbage collector, which would walk all names again and again while a
    directory moves: it names nothing that could name it."""

    target: bytes
    revision: int
    attributes: dict[str, Any] = {}
    time: int = 0
    token: bytes = b""
    """Of the change that wrote it."""


class RolledChange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A change of names."""

    lsn: int
    names: tuple[str, ...]
    below: bool = False
    """Whether it touched all that lies below these, too."""
    time: int = 0
    """0 where no more than that is told, as older releases do."""
    was: tuple[RolledName | None, ...] = ()
    """What stood under each of `names` before, without its token."""


class RolledPart(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What an entry carries for a stream."""

    size: int
    """The whole entry's, in bytes."""
    part: StreamRecords


STATE: Final = b"s"
COMMIT: Final = b"c"
RUN: Final = b"r"
CLIENT: Final = b"k"
FORK: Final = b"f"
NAMES: Final = b"n"
NAME: Final = b"b"
CHANGE: Final = b"h"
PART: Final = b"p"

_NAME: Final = re.compile("([0-9a-f]{16})/[0-9a-f]{64}")


def stream_key(stream: str) -> bytes:
    """What all keys of a stream begin with. One whose id is no volume's has a place, too: nobody ever asks for it."""
    try:
        return VolumeId.parse(stream).raw
    except BadInput:
        return hashlib.blake2b(stream.encode(errors="surrogateescape"), digest_size=16).digest()


def number(value: int) -> bytes:
    """As it stands in a key."""
    return value.to_bytes(8, "big")


def nodes_folder(log: str) -> str:
    return f"logs/{log}/nodes"


def rollup_key(log: str, name: str) -> str:
    return f"logs/{log}/rollups/{name}"


def slot_of_rollup(name: str) -> int:
    """The slot that a rollup of that name covers. Raises BadInput."""
    found = _NAME.fullmatch(name)
    if found is None:
        raise BadInput(f"{name!r} is not the name of a rollup")
    return int(found[1], 16)


def seal_rollup(rollup: Rollup) -> tuple[str, bytes]:
    """Its name and its bytes."""
    data = seal(ROLLUP, encode(rollup), features=_features_of(rollup))
    return f"{rollup.slot:016x}/{digest_of(data).hex()}", data


def _features_of(rollup: Rollup) -> int:
    named = (
        (rollup.folds, FOLDS),
        (rollup.garbage, GARBAGE),
        (rollup.policies, POLICIES),
        (rollup.relocations, RELOCATIONS),
        (rollup.fragments_since, FRAGMENTS),
        (rollup.rules, RULES),
        (rollup.shards, SHARDS),
    )
    return sum(feature for has, feature in named if has)


def parse_rollup(log: str, name: str, data: bytes) -> Rollup:
    """Raises Corrupt unless it is that rollup, and its sums add up; Unsupported."""
    key = rollup_key(log, name)
    head = open_head(key, ROLLUP, data)
    if head.body_length or head.length != len(data):
        raise Corrupt(key, f"{len(data) - head.length} bytes follow its header")
    rollup = decode(key, head.header, Rollup)
    if _features_of(rollup) & ~head.features:
        raise Corrupt(key, "it has a field, and does not say that its reader must know that")
    if (rollup.log, f"{rollup.slot:016x}/{digest_of(data).hex()}") != (log, name):
        raise Corrupt(key, f"it holds rollup {rollup.slot} of log {rollup.log!r}, or other bytes than its name says")
    try:
        live = rollup.tree.setsum if rollup.tree else EMPTY_SUM
        whole = Setsum.of_sums((live, rollup.collected)).digest == rollup.total
    except BadInput as error:
        raise Corrupt(key, f"one of its sums: {error}") from error
    if not whole:
        raise Corrupt(key, "the sum of its tree and that of what was collected are not its log's total")
    if not rollup.canonical <= rollup.slot:
        raise Corrupt(key, f"its last canonical entry, {rollup.canonical}, lies behind the slot that it covers")
    return rollup
