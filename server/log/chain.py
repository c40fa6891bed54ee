"""Chain: which entries of a log count, as a pure function (DESIGN §4, rules 1 and 2).

A `Chain` is what must be known of slots 0 … next-1 to judge slot `next`. `judge` is given slots in order and without
a gap (readers never pass one), and answers with a verdict and the chain one slot further on. No I/O, no clock.

    epoch of the entry, against the highest in any earlier slot       n                            verdict
    lower                                                             any                          VOID
    same                                                              last canonical n of it + 1   CANONICAL
    same                                                              any other                    VOID
    higher                                                            0                            CANONICAL
    higher                                                            any other                    VOID, and yet it
    fences

The anchor, slot 0, is epoch 0's n = 0. A private log stays in epoch 0, so there n = i and every entry is canonical.

Invariants, checked at every canonical entry, whose breach is Corrupt: it names the canonical entry before it by slot
and digest; total = what the one before it had + the setsums of its own commits; its fragments are of its own epoch
(rule 10); one writer per epoch above 0. Void entries add nothing, and their contents are never looked at.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from ...volume.entry import EMPTY_SUM, Entry, EntryHeader, Fragment
from ...volume.errors import BadInput, Corrupt
from ...volume.records import Commit, Record
from ...volume.setsum import Setsum

__all__ = ["Chain", "Verdict", "added_by"]


class Verdict(Enum):
    CANONICAL = "canonical"
    VOID = "void"


class _Epoch(Enum):
    LOWER = "lower"
    SAME = "same"
    HIGHER = "higher"


_VERDICTS: Final[dict[tuple[_Epoch, bool], Verdict]] = {
    (_Epoch.LOWER, True): Verdict.VOID,
    (_Epoch.LOWER, False): Verdict.VOID,
    (_Epoch.SAME, True): Verdict.CANONICAL,
    (_Epoch.SAME, False): Verdict.VOID,
    (_Epoch.HIGHER, True): Verdict.CANONICAL,
    (_Epoch.HIGHER, False): Verdict.VOID,
}
"""(the entry's epoch, whether its n is the one that comes next in that epoch) → verdict."""


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

    def judge(self, entry: Entry) -> Verdict:
        """What the entry in slot `next` is. Raises Corrupt on a second writer in an epoch, and a wrong anchor."""
        header = entry.header
        assert header.i == self.next, f"slot {header.i} was judged where slot {self.next} comes next"
        if header.log != self.log or (header.i == 0) != (header.kind == "anchor"):
            raise Corrupt(entry.key, "the log's anchor and its first slot don't agree")
        relation = _relation(header.epoch, self.epoch)
        if relation is _Epoch.SAME and header.epoch > 0 and self.n >= 0 and header.writer != self.writer:
            raise Corrupt(entry.key, f"two writers share epoch {header.epoch}: stop both, and look at the log")
        expected = self.n + 1 if relation is _Epoch.SAME else 0
        return _VERDICTS[relation, header.n == expected]

    def past_void(self, entry: Entry) -> Chain:
        """The chain behind a void entry: nothing but its slot, and its epoch where that is higher."""
        header = entry.header
        if header.epoch > self.epoch:
            return replace(self, next=self.next + 1, epoch=header.epoch, n=-1, writer=b"")
        return replace(self, next=self.next + 1)

    def past(self, entry: Entry, added: Setsum) -> Chain:
        """The chain behind a canonical entry, whose commits add `added`. Raises Corrupt unless it continues this
        chain."""
        header = entry.header
        if (header.previous, header.previous_digest) != (self.slot, self.digest):
            raise Corrupt(entry.key, f"it does not follow entry {self.slot} of its log as that stands")
        if header.prev_sum != self.total or header.total != self.total_with(added):
            raise Corrupt(entry.key, "its sums don't add up")
        if header.collected != self.collected and not header.garbage:
            raise Corrupt(entry.key, "it takes something out without saying what")
        if any(fragment.epoch != header.epoch for fragment in header.fragments):
            raise Corrupt(entry.key, "it names fragments of another epoch")
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
        )

    def total_with(self, added: Setsum) -> bytes:
        return (Setsum.from_digest(self.total) + added).digest

    def header(
        self,
        *,
        epoch: int,
        writer: bytes,
        kind: str,
        added: Setsum,
        fragments: tuple[Fragment, ...] = (),
        time: int = 0,
    ) -> EntryHeader:
        """The header, but for its records, that makes an entry of this epoch canonical in slot `next`."""
        return EntryHeader(
            log=self.log,
            i=self.next,
            epoch=epoch,
            writer=writer,
            n=self.n + 1 if epoch == self.epoch else 0,
            acked=max(self.next - 1, 0),
            kind=kind,
            previous=self.slot,
            previous_digest=self.digest,
            prev_sum=self.total,
            total=self.total_with(added),
            collected=self.collected,
            fragments=fragments,
            time=time,
        )


def added_by(key: str, records: Iterable[Record]) -> Setsum:
    """What an entry's commits add to the log's total. Raises Corrupt on a sum that is none."""
    total = Setsum()
    try:
        for record in records:
            if isinstance(record, Commit):
                total += Setsum.from_digest(record.setsum)
    except BadInput as error:
        raise Corrupt(key, f"a commit's setsum: {error}") from error
    return total


def _relation(epoch: int, highest: int) -> _Epoch:
    if epoch == highest:
        return _Epoch.SAME
    return _Epoch.HIGHER if epoch > highest else _Epoch.LOWER
