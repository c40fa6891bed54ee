"""Model: what every volume must read as, from what was asked and what was answered (DESIGN §9).

A commit is an *attempt* until its answer is known: what became of one whose answer was lost is seen when its LSN is
read, or another is acknowledged there. Each attempt writes bytes that no other does, so what is read tells which one
landed. Once an attempt is known to have landed it stays, and nothing else does at that LSN.

An LSN is *promised* while everybody is to be able to read it: from `since` on, or held by a pin, a lease that hasn't
ended, or a fork. What is asked for counts from when it is sent where it takes a promise back, and from when it is
answered where it makes one.

Commits of an exclusive volume land in the order of their writer epochs, none of which is given twice, and nothing that
is sent under an older one than was promised lands any more. Replicas send the same commit, and all are told of the one
that landed. What a source has brought grows, and lands once (volume/rules.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ...volume.ids import PinId, VolumeId
from ...volume.rules import EXCLUSIVE, OPTIMISTIC, REPLICATED, Binding, Offset
from ...volume.wire import CommitRequest, Committed
from .determinism import true_ms

PAGE_SIZE = 512


class Violation(Exception):
    """Something that must always hold does not."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    pages: dict[int, bytes]
    """Those that are not all zeros."""
    length: int
    """In pages."""


@dataclass(slots=True, eq=False)
class Attempt:
    """One commit that was sent, perhaps several times."""

    request: CommitRequest
    segment: bytes
    pages: dict[int, bytes]
    length: int
    floor: int
    """In pages, as the length."""
    landed: bool = False
    refused: bool = False
    """Whether somebody was told that it never lands."""
    acknowledged_ms: int = 0
    promised_epoch: int = 0
    """The newest writer epoch that anybody had been given when it was sent first."""

    @property
    def sources(self) -> tuple[Offset, ...]:
        return self.request.sources

    @property
    def lsn(self) -> int:
        return self.request.base + 1

    def on(self, before: Snapshot) -> Snapshot:
        kept = {page: data for page, data in before.pages.items() if page <= min(self.floor, self.length)}
        return Snapshot(kept | self.pages, self.length)


@dataclass(slots=True)
class Held:
    lsn: int
    expiry_ms: int
    """0: never."""
    by: str
    """The one who may renew or release it."""


@dataclass(eq=False)
class Volume:
    vid: VolumeId
    number: int
    parent: Volume | None = None
    start: int = 0
    """The parent's LSN that it was forked at; 0 for none."""
    attempts: dict[int, list[Attempt]] = field(default_factory=dict[int, list[Attempt]])
    """By the LSN that they would make."""
    landed: dict[int, Attempt] = field(default_factory=dict[int, Attempt])
    known: dict[int, Snapshot] = field(default_factory=dict[int, Snapshot])
    """What is certain of each LSN of its own, and of the one that it begins with."""
    acknowledged: int = 0
    """The highest LSN that somebody was told of."""
    since: int = 1
    """The highest that anybody has asked for."""
    all_ms: int = 0
    """The shortest time that any policy ever kept every LSN for; 0: no policy."""
    mode: str = OPTIMISTIC
    epochs: set[int] = field(default_factory=set[int])
    """The writer epochs that somebody was given."""
    folds: int = 0
    """How many were begun."""
    held: dict[PinId, Held] = field(default_factory=dict[PinId, Held])
    forks: set[int] = field(default_factory=set[int])

    @property
    def id(self) -> str:
        return str(self.vid)

    def __str__(self) -> str:
        return f"volume {self.number} ({self.vid})"

    @property
    def head(self) -> int:
        """The newest LSN that somebody knows to be there."""
        return max(self.acknowledged, self.start)

    def at(self, lsn: int) -> Snapshot | None:
        """What that LSN reads as, if it is certain."""
        if lsn < self.start and self.parent is not None:
            return self.parent.at(lsn)
        return self.known.get(lsn)

    def lsns(self) -> list[int]:
        """Those of its own that are certain."""
        return [lsn for lsn in sorted(self.known) if lsn > self.start]

    def readable(self) -> list[int]:
        return [lsn for lsn in self.lsns() if self.promised(lsn)]

    def promised(self, lsn: int) -> bool:
        """Whether everybody is to be able to read it now."""
        if lsn <= 0:
            return True
        if lsn <= self.start:
            assert self.parent is not None
            return lsn == self.start or self.parent.promised(lsn)
        if lsn in self.forks or (lsn >= self.since and (lsn == self.head or self._is_young(lsn))):
            return True
        return any(held.lsn == lsn and not 0 < held.expiry_ms < true_ms() for held in self.held.values())

    def _is_young(self, lsn: int) -> bool:
        """Whether no policy may have forgotten it."""
        attempt = self.landed.get(lsn)
        made_ms = attempt.acknowledged_ms if attempt is not None else 0
        return not self.all_ms or made_ms + self.all_ms - 60_000 > true_ms()

    @property
    def epoch(self) -> int:
        """The newest that somebody was given."""
        return max(self.epochs, default=0)

    def promise_epoch(self, epoch: int) -> None:
        if epoch in self.epochs:
            raise Violation(f"{self}: writer epoch {epoch} was given twice")
        self.epochs.add(epoch)

    def acknowledge(self, attempt: Attempt, committed: Committed) -> None:
        if committed.repeated:
            self._repeated(attempt, committed.lsn)
            return
        lsn = committed.lsn
        if lsn != attempt.lsn:
            raise Violation(f"{self}: a commit on LSN {attempt.request.base} was acknowledged as LSN {lsn}")
        self.settle(attempt)
        attempt.acknowledged_ms = attempt.acknowledged_ms or true_ms()
        self.acknowledged = max(self.acknowledged, lsn)
        # What it was made on had landed: whoever wrote that may not know it yet.
        before = self.attempts.get(lsn - 1, [])
        if lsn - 1 > self.start and lsn - 1 not in self.landed and len(before) == 1:
            self.settle(before[0])

    def settle(self, attempt: Attempt) -> None:
        """It has landed. Raises Violation if another has, or somebody was told otherwise."""
        other = self.landed.get(attempt.lsn)
        if other is not None and other is not attempt and self.mode != REPLICATED:
            raise Violation(f"{self}: two commits landed as LSN {attempt.lsn}")
        if attempt.refused:
            raise Violation(f"{self}: the commit that is LSN {attempt.lsn} was refused")
        attempt.landed = True
        if other is None:
            self._check_rules(attempt)
            self.landed[attempt.lsn] = attempt
        for lsn in range(attempt.lsn, max(self.landed) + 1):
            before, made = self.known.get(lsn - 1), self.landed.get(lsn)
            if lsn in self.known or before is None or made is None:
                break
            self.known[lsn] = made.on(before)

    def refuse(self, attempt: Attempt) -> None:
        """Somebody was told that it never lands."""
        if attempt.landed:
            raise Violation(f"{self}: LSN {attempt.lsn} was refused after it had landed")
        if self.mode == REPLICATED and not self.folds and attempt.request.base < self.head:
            raise Violation(f"{self}: a replica was refused what is LSN {attempt.lsn}")
        attempt.refused = True

    def check_binding(self, bound: Binding) -> None:
        """Somebody was told that this commit bound that."""
        landed = self.landed.get(bound.lsn)
        if landed is not None and Offset(bound.source, bound.offset) not in landed.sources:
            raise Violation(f"{self}: LSN {bound.lsn} is said to bring {bound.source} to {bound.offset}")

    def bound(self, source: str) -> int:
        """How far it has come, as somebody was told; -1 for not at all."""
        return max((each.offset for lsn, each in self._bound(source) if lsn <= self.acknowledged), default=-1)

    def _bound(self, source: str) -> list[tuple[int, Offset]]:
        landed = self.landed.items()
        return [(lsn, each) for lsn, made in landed for each in made.sources if each.source == source]

    def _repeated(self, attempt: Attempt, lsn: int) -> None:
        """What it was to bind was bound by that LSN."""
        if attempt.landed:
            if lsn != attempt.lsn:
                raise Violation(f"{self}: LSN {attempt.lsn} landed, and LSN {lsn} is said to be in its place")
            return
        for each in attempt.sources:
            self.check_binding(Binding(each.source, each.offset, lsn))
        self.acknowledged = max(self.acknowledged, lsn)
        if lsn != attempt.lsn:
            self.refuse(attempt)

    def _check_rules(self, attempt: Attempt) -> None:
        epoch, lsn = attempt.request.writer_epoch, attempt.lsn
        if self.mode == EXCLUSIVE:
            if epoch < attempt.promised_epoch:
                words = f"writer epoch {epoch} commits, and {attempt.promised_epoch} was given before that was sent"
                raise Violation(f"{self}: {words}")
            for at, other in self.landed.items():
                if (at < lsn) != (other.request.writer_epoch <= epoch) and other.request.writer_epoch != epoch:
                    raise Violation(f"{self}: LSN {lsn} is of writer epoch {epoch}, beside LSN {at} of another")
        for mine in attempt.sources:
            for at, each in self._bound(mine.source):
                if (at < lsn) != (each.offset < mine.offset) or each.offset == mine.offset:
                    words = f"LSN {lsn} brings {mine.source} to {mine.offset}, and LSN {at} to {each.offset}"
                    raise Violation(f"{self}: {words}")

    def see(self, lsn: int, read: Snapshot) -> None:
        """Somebody has read that LSN whole. Raises Violation unless it may read so."""
        known = self.at(lsn)
        if known is not None:
            if (known.pages, known.length) != (read.pages, read.length):
                raise Violation(f"{self}: LSN {lsn} reads as {_words(read)}, and is {_words(known)}")
            return
        if lsn <= self.start:
            return
        fits = [chain for chain, snapshot in self._chains(lsn) if snapshot == read]
        if not fits:
            raise Violation(f"{self}: LSN {lsn} reads as {_words(read)}, which nobody has written")
        if len(fits) == 1:
            for attempt in fits[0]:
                self.settle(attempt)

    def _chains(self, lsn: int) -> Iterator[tuple[tuple[Attempt, ...], Snapshot]]:
        """The commits that may have led to that LSN since the newest that is certain, and what it would be."""
        known = self.known.get(lsn)
        if known is not None:
            yield (), known
            return
        landed = self.landed.get(lsn)
        for attempt in [landed] if landed is not None else self._candidates(lsn):
            if not attempt.refused:
                for chain, before in self._chains(lsn - 1):
                    yield (*chain, attempt), attempt.on(before)

    def _candidates(self, lsn: int) -> list[Attempt]:
        found = [attempt for attempt in self.attempts.get(lsn, []) if not attempt.refused]
        # Replicas are all the same.
        return found[:1] if self.mode == REPLICATED else found


def _words(snapshot: Snapshot) -> str:
    pages = ", ".join(
        f"{page}: {data[:8].decode(errors='replace').strip()}" for page, data in sorted(snapshot.pages.items())
    )
    return f"{snapshot.length} pages {{{pages}}}"
