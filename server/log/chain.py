"""Chain: which entries of a log count, as a pure function (DESIGN §4, rules 1 and 2).

A `Chain` is what must be known of slots 0 … next-1 to judge slot `next`. `judge` is given slots in order and without
a gap (readers never pass one), and answers with a verdict and the chain one slot further on. No I/O, no clock.

    its epoch, against the highest in any earlier slot   n                            verdict
    lower                                                any                          VOID
    same                                                 last canonical n of it + 1   CANONICAL
    same                                                 any other                    VOID
    higher                                               0                            CANONICAL
    higher                                               any other                    VOID, and yet it fences
    same, and it is a guest's                            last canonical n of it       CANONICAL
    any other, and it is a guest's                       any                          VOID

A *guest's* entry is made by whoever can't reach the owner (log_writer.py). It stands under the owner's epoch, takes
none of its numbers, and carries the records of one stream alone: so the owner loses a slot by it, reads it, and goes
on.

The anchor stands in slot 0 and nowhere else; it is epoch 0's n = 0. A private log stays in epoch 0, so there n = i and
every entry is canonical. In a shared log the first entry of an epoch, n = 0, is a fence, and no other entry is one. All
the rest are data. An entry is checked for this before anything else, void ones too.

Invariants, checked at every canonical entry, whose breach is Corrupt: it names the canonical entry before it by slot
and digest; its slot is no further ahead of what its writer had acknowledged than rule 3 lets it be; total = what the
one before it had + the sums of its streams; those of its fragments, and of the pages in its body, are as much, which is
checked where it has no body; its fragments are of its own epoch (rule 10), and it says up to which shard they lie; one
writer per epoch above 0; a garbage plan that it acknowledges has a higher number than those before, and
`fragments_since` grows, with a plan alone; the rollup that it names covers slots that its writer knew to be
acknowledged, and not fewer than the one that was named last (rule 9). That a stream's sum is its commits' is checked by
who decodes it. Void entries add nothing, and their contents are never looked at.

A chain may begin `behind` a rollup: that says all there is to know of the slots that it covers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from ...volume.entry import Entry, EntryHeader, Fragment
from ...volume.errors import BadInput, Corrupt, Unsupported
from ...volume.fragments import shard_in
from ...volume.garbage import number_of_plan
from ...volume.records import StreamRecords
from ...volume.rollup import Rollup, slot_of_rollup
from ...volume.setsum import EMPTY_SUM, Setsum

GUEST: Final = "guest"


class Verdict(Enum):
    CANONICAL = "canonical"
    VOID = "void"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    log: str
    next: int = 0
    """The first slot that was not looked at yet."""
    epoch: int = 0
    """The highest in any slot, void ones included."""
    n: int = -1
    """The last canonical n of that epoch; -1 before its first."""
    writer: bytes = b""
    """Of that epoch's entries."""
    slot: int = 0
    """The last canonical entry, its digest and its sums."""
    digest: bytes = b""
    total: bytes = EMPTY_SUM
    collected: bytes = EMPTY_SUM
    rollup: str = ""
    """The newest that a canonical entry has named."""
    garbage: str = ""
    """The newest garbage plan that a canonical entry has acknowledged."""
    fragments_since: int = 0
    """No entry from here on names a fragment whose id has an earlier time."""
    shards: int = 0
    """The highest shard that a canonical entry has named a fragment in."""

    @property
    def has_owner(self) -> bool:
        """Whether its newest epoch has fenced, so that a guest may append under it."""
        return self.epoch > 0 and self.n >= 0

    @classmethod
    def behind(cls, rollup: Rollup) -> Chain:
        """The chain behind the slots that the rollup covers."""
        return cls(
            log=rollup.log,
            next=rollup.slot + 1,
            epoch=rollup.epoch,
            n=rollup.n,
            writer=rollup.writer,
            slot=rollup.canonical,
            digest=rollup.digest,
            total=rollup.total,
            collected=rollup.collected,
            rollup=rollup.named,
            garbage=rollup.garbage,
            fragments_since=rollup.fragments_since,
            shards=rollup.shards,
        )

    def judge(self, entry: Entry) -> Verdict:
        """What the entry in slot `next` is. Raises Corrupt on a second writer in an epoch, and on a kind that doesn't
        belong there; Unsupported on one that nobody here knows."""
        header = entry.header
        assert header.i == self.next, f"slot {header.i} was judged where slot {self.next} comes next"
        if header.log != self.log:
            raise Corrupt(entry.key, f"it is of log {header.log!r}")
        _check_kind(entry)
        if header.epoch < self.epoch:
            return Verdict.VOID
        same = header.epoch == self.epoch
        if same and header.epoch > 0 and self.n >= 0 and header.writer != self.writer:
            raise Corrupt(entry.key, f"two writers share epoch {header.epoch}: stop both, and look at the log")
        if header.kind == GUEST:
            return Verdict.CANONICAL if same and header.n == self.n else Verdict.VOID
        return Verdict.CANONICAL if header.n == (self.n + 1 if same else 0) else Verdict.VOID

    def past_void(self, entry: Entry) -> Chain:
        """The chain behind a void entry: nothing but its slot, and its epoch where that is higher."""
        header = entry.header
        if header.epoch > self.epoch:
            return replace(self, next=self.next + 1, epoch=header.epoch, n=-1, writer=b"")
        return replace(self, next=self.next + 1)

    def past(self, entry: Entry) -> Chain:
        """The chain behind a canonical entry. Raises Corrupt unless it continues this chain."""
        header = entry.header
        if (header.previous, header.previous_digest) != (self.slot, self.digest):
            raise Corrupt(entry.key, f"it does not follow entry {self.slot} of its log as that stands")
        if not header.acked < header.i <= header.acked + 2 * header.alpha and header.i:
            raise Corrupt(entry.key, f"its writer had acknowledged slot {header.acked}, with {header.alpha} in flight")
        try:
            total = self._total_with(header.streams.values())
            brought = total if header.body_digest else self._total_with(header.fragments)
        except BadInput as error:
            raise Corrupt(entry.key, f"the sum of a stream or a fragment: {error}") from error
        if (header.prev_sum, header.total) != (self.total, total):
            raise Corrupt(entry.key, "its sums don't add up")
        if brought != total:
            raise Corrupt(entry.key, "the sums of its fragments don't add up to what it adds")
        if header.collected != self.collected:
            raise Corrupt(entry.key, "it takes something out without saying what")
        if any(fragment.epoch != header.epoch for fragment in header.fragments):
            raise Corrupt(entry.key, "it names fragments of another epoch")
        if header.kind == GUEST and (header.garbage or header.rollup != self.rollup or len(header.streams) != 1):
            raise Corrupt(entry.key, "it is a guest's, and does more than a guest may")
        if header.kind == GUEST and (header.body_digest or header.fragments):
            raise Corrupt(entry.key, "it is a guest's, and brings pages")
        if header.shards != _highest_shard(self.log, header.fragments):
            raise Corrupt(entry.key, f"its fragments do not lie in shards up to {header.shards}")
        self._check_rollup(entry)
        self._check_garbage(entry)
        return replace(
            self,
            next=self.next + 1,
            epoch=header.epoch,
            n=header.n,
            writer=header.writer,
            slot=header.i,
            digest=entry.digest,
            total=header.total,
            collected=header.collected,
            rollup=header.rollup,
            garbage=header.garbage[-1] if header.garbage else self.garbage,
            fragments_since=header.fragments_since or self.fragments_since,
            shards=max(header.shards, self.shards),
        )

    def _check_garbage(self, entry: Entry) -> None:
        since = entry.header.fragments_since
        if since and (since <= self.fragments_since or not entry.header.garbage):
            raise Corrupt(entry.key, f"it says that fragments since {since} are named, behind {self.fragments_since}")
        if not entry.header.garbage:
            return
        try:
            (number,) = map(number_of_plan, entry.header.garbage)
        except (BadInput, ValueError) as error:
            raise Corrupt(entry.key, "it acknowledges no garbage plan, or more than one") from error
        if self.garbage and number <= number_of_plan(self.garbage):
            raise Corrupt(entry.key, f"it acknowledges garbage plan {number}, which {self.garbage} has come before")

    def _check_rollup(self, entry: Entry) -> None:
        if entry.header.rollup == self.rollup:
            return
        if slot_named_by(entry) < slot_covered_by(self.rollup):
            named = f"names rollup {entry.header.rollup}" if entry.header.rollup else "names no rollup"
            raise Corrupt(entry.key, f"it {named}, and goes back behind {self.rollup}, which was named before it")

    def _total_with(self, parts: Iterable[StreamRecords | Fragment]) -> bytes:
        added = [part.setsum for part in parts if part.setsum != EMPTY_SUM]
        return Setsum.of_sums((self.total, *added)).digest if added else self.total

    def header(
        self,
        *,
        epoch: int,
        writer: bytes,
        kind: str,
        alpha: int = 1,
        acked: int | None = None,
        streams: dict[str, StreamRecords] | None = None,
        fragments: tuple[Fragment, ...] = (),
        rollup: str = "",
        garbage: str = "",
        fragments_since: int = 0,
        time: int = 0,
    ) -> EntryHeader:
        """The header that makes an entry of this epoch canonical in slot `next`. `acked` is the slot before, unless
        entries are in flight there. It names that rollup, if that covers more than the one that was named last, and
        acknowledges that garbage plan, which may say of fragments from when on they can be named."""
        newest = newest_rollup(self.rollup, rollup)
        assert kind != GUEST or (self.has_owner and (epoch, writer) == (self.epoch, self.writer)), "it has no host"
        assert slot_covered_by(newest) < self.next, f"rollup {newest} covers what was not looked at yet"
        return EntryHeader(
            log=self.log,
            i=self.next,
            epoch=epoch,
            writer=writer,
            n=(self.n + (kind != GUEST)) if epoch == self.epoch else 0,
            alpha=alpha,
            acked=max(self.next - 1, 0) if acked is None else acked,
            kind=kind,
            previous=self.slot,
            previous_digest=self.digest,
            prev_sum=self.total,
            total=self._total_with((streams or {}).values()),
            collected=self.collected,
            fragments=fragments,
            streams=streams or {},
            garbage=(garbage,) if garbage else (),
            rollup=newest,
            fragments_since=fragments_since,
            shards=_highest_shard(self.log, fragments),
            time=time,
        )


def _highest_shard(log: str, fragments: Iterable[Fragment]) -> int:
    """The highest that one lies in; 0 where none does."""
    return max((shard_in(log, fragment.key) for fragment in fragments), default=0)


def slot_covered_by(rollup: str) -> int:
    """The last slot that the rollup of that name covers; -1 where there is none, its name being ""."""
    return slot_of_rollup(rollup) if rollup else -1


def newest_rollup(*names: str) -> str:
    """Of these the one that covers most, the first of those that cover the same."""
    return max(names, key=slot_covered_by)


def slot_named_by(entry: Entry) -> int:
    """The last slot that the rollup covers which the entry names, -1 if it names none. Raises Corrupt unless that is
    a rollup of slots that were acknowledged when the entry was sent."""
    header = entry.header
    try:
        slot = slot_covered_by(header.rollup)
    except BadInput as error:
        raise Corrupt(entry.key, f"the rollup that it names: {error}") from error
    if slot > header.acked or slot >= header.i:
        raise Corrupt(entry.key, f"it names a rollup of slot {slot}, which its writer didn't know to be acknowledged")
    return slot


def _check_kind(entry: Entry) -> None:
    header = entry.header
    if header.kind == GUEST and header.i > 0 and header.epoch > 0:
        return
    if header.kind not in {"anchor", "fence", "data", GUEST}:
        raise Unsupported(f"{entry.key} is an entry of the unknown kind {header.kind!r}: upgrade")
    first = header.n == 0
    wanted = "anchor" if header.i == 0 else "fence" if first and header.epoch > 0 else "data"
    if header.kind != wanted or (header.i == 0 and (header.epoch > 0 or not first)):
        where = f"slot {header.i}, epoch {header.epoch}, n = {header.n}"
        raise Corrupt(entry.key, f"it is of kind {header.kind}, and can't be at {where}")
