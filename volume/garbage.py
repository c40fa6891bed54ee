"""Garbage plan: what is about to be deleted of a log, announced before anything is (DESIGN §5; S1.8, S4.10).

    logs/{log}/gc/{number:016x}/plan      an envelope that holds a `GarbagePlan`
    logs/{log}/gc/{number:016x}/due       an envelope that holds a `Due`: since when the plan stands in the log

A plan takes a number, as transactions do. An entry acknowledges it by its number; from there on no transaction that
took a lower number is granted. What it lists is deleted once it has been due for the store's gc interval, and the plan
itself last. A log has one at a time that is acknowledged and not done.

A plan names what goes by what says so: folds, by their deadlists; entries, by the first slot that stays; rollups and
nodes of their trees, by the oldest rollup that stays; transactions that were never granted, by their numbers; fragments
that no commit has named, by their ids; and the revisions of a pin, by the highest that goes.

A fragment can be named for as long as nobody says otherwise. An entry that acknowledges a plan does: by
`fragments_since`, behind which no entry names a fragment whose id has an earlier time. Only such a fragment is ever in
a plan, so that by the log's own order it either was named before or never will be. No clock decides that.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from .envelope import DUE, PLAN, decode, encode, open_head, seal, unseal
from .errors import BadInput, Corrupt
from .fragments import fragment_key
from .ids import SegmentId

SHARDS: Final = 1 << 0
"""Required feature (envelope.py) of a plan with fragments in shards: whoever passed over that would delete nothing in
their place, and call it done."""

_NAME: Final = re.compile("[0-9a-f]{16}")
_ID: Final = 16


class PlannedFold(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A fold whose deadlist goes, and those of the folds before it, back to the last that went."""

    vid: bytes
    checkpoint: str
    deadlist: bytes
    """The digest."""
    last: bool = False
    """The volume was removed, and the fold left nothing of it: its birth goes, all its pins, and that deadlist too."""


class PlannedFragments(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Fragments of a volume that nobody has named, of one epoch."""

    vid: bytes
    epoch: int
    ids: bytes
    """16 bytes for each, ascending."""
    shard: int = 0
    """That they lie in (fragments.py)."""

    @property
    def segments(self) -> list[SegmentId]:
        """Raises BadInput."""
        return [SegmentId(self.ids[at : at + _ID]) for at in range(0, len(self.ids), _ID)]

    def key(self, log: str, segment: SegmentId) -> str:
        """Of one of them, in that log."""
        return fragment_key(log, self.epoch, str(segment), self.shard)

    def keys(self, log: str) -> list[str]:
        return [self.key(log, segment) for segment in self.segments]


class PlannedPin(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Revisions of a pin, from 1 to `upto`: a higher one stands."""

    vid: bytes
    pin: bytes
    upto: int
    ended: bool = False
    """It has ended with `upto`: revision 0 goes, too, and first."""


class GarbagePlan(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    log: str
    number: int
    base: str = ""
    """The plan that was acknowledged before it."""
    rollup: str
    """The oldest that stays."""
    first: int = 1
    slot: int = 0
    """The entries of the slots [first, slot) go; where `slot` is 0, none does. The anchor stays."""
    folds: tuple[PlannedFold, ...] = ()
    rejected: tuple[int, ...] = ()
    """Transactions that were never granted, all that lies under them."""
    settled: tuple[int, ...] = ()
    """Transactions that were granted, and plans that are done: their numbers alone."""
    fragments: tuple[PlannedFragments, ...] = ()
    fragments_since: int = 0
    """What the entry says that acknowledges it, if that isn't 0: the ids of `fragments` have earlier times."""
    pins: tuple[PlannedPin, ...] = ()
    time: int = 0


class Due(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    log: str
    number: int
    time: int


def plan_name(number: int) -> str:
    """As entries have it."""
    return f"{number:016x}"


def number_of_plan(name: str) -> int:
    """Raises BadInput."""
    if _NAME.fullmatch(name) is None:
        raise BadInput(f"{name!r} is not the name of a garbage plan")
    return int(name, 16)


def time_of_fragment(key: str) -> int:
    """In its id. Raises BadInput."""
    return SegmentId.parse(key.rpartition("/")[2]).time_ms


def plan_key(log: str, name: str) -> str:
    return f"logs/{log}/gc/{name}/plan"


def due_key(log: str, name: str) -> str:
    return f"logs/{log}/gc/{name}/due"


def seal_plan(plan: GarbagePlan) -> bytes:
    return seal(PLAN, encode(plan), features=_features_of(plan))


def _features_of(plan: GarbagePlan) -> int:
    return SHARDS if any(fragments.shard for fragments in plan.fragments) else 0


def parse_plan(log: str, name: str, data: bytes) -> GarbagePlan:
    """Raises Corrupt unless it is that plan; Unsupported."""
    key = plan_key(log, name)
    plan = decode(key, unseal(key, PLAN, data), GarbagePlan)
    if _features_of(plan) & ~open_head(key, PLAN, data).features:
        raise Corrupt(key, "it names fragments in shards, and does not say that its reader must know that")
    if (plan.log, plan_name(plan.number)) != (log, name):
        raise Corrupt(key, f"it says that it is plan {plan.number} of log {plan.log!r}")
    return plan


def seal_due(due: Due) -> bytes:
    return seal(DUE, encode(due))


def parse_due(log: str, name: str, data: bytes) -> Due:
    """Raises Corrupt, Unsupported."""
    key = due_key(log, name)
    due = decode(key, unseal(key, DUE, data), Due)
    if (due.log, plan_name(due.number)) != (log, name):
        raise Corrupt(key, f"it says that it is of plan {due.number} of log {due.log!r}")
    return due
