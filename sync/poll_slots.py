"""Poll slots: which volumes of a home are waited for by a long poll each, where they are more than may be at once.

A long poll holds a connection, here and at the node. So those have one that were used last, programs that have them
open first. Where all are taken, none is taken away for what was not in use a second ago: a program that reads thousands
of volumes would have each take one, and give it up to the next.

The others are asked in turn, so many a second, whether they have something new: of a home of thousands of volumes the
ones that are quiet are heard of late, and the ones in use at once. A mount asks only of those that are open, or were
used lately: of a file that nobody opened for a while it is enough to look when it is opened.

No clock of its own: times are seconds of one monotonic clock.
"""

from __future__ import annotations

import threading
from typing import Final

MOST_POLLS: Final = 256
"""Well below the files that a process may have open by default."""
TURNS_PER_SECOND: Final = 8.0
_PATIENCE_SECONDS: Final = 1.0
"""How long what comes into use waits before it takes another's slot."""


class PollSlots:
    """For any thread. Volumes are known by their raw ids."""

    def __init__(
        self,
        most: int = MOST_POLLS,
        turns_per_second: float = TURNS_PER_SECOND,
        lately_seconds: float | None = None,
    ) -> None:
        """With `lately_seconds` only volumes that were used are waited for, and of those without a slot only such have
        turns as are open, or were used so lately.
        """
        self._most = most
        self._turns_per_second = turns_per_second
        self._lately_seconds = lately_seconds
        self._used: dict[bytes, float] = {}
        """When; what was used last is last."""
        self._wanted: dict[bytes, float] = {}
        """Since when those want a slot that there was none for."""
        self._open = set[bytes]()
        self._held = set[bytes]()
        self._turns: dict[bytes, None] = {}
        """Those that wait for one, the longest first."""
        self._next_turn = 0.0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, vid: bytes) -> bool:
        return vid in self._held

    def use(self, vid: bytes, now: float) -> None:
        """The volume was opened, written to, or moved on."""
        with self._lock:
            self._use(vid, now)

    def open(self, vid: bytes, now: float) -> None:
        """Programs have it open, until `close`."""
        with self._lock:
            self._use(vid, now)
            self._open.add(vid)

    def close(self, vid: bytes) -> None:
        with self._lock:
            self._open.discard(vid)

    def may_take(self, vid: bytes, now: float) -> bool:
        """Whether it is time to; else it is to come again."""
        with self._lock:
            if vid in self._held or len(self._held) < self._most or vid not in self._used:
                return True
            return now - self._wanted.setdefault(vid, now) >= _PATIENCE_SECONDS

    def take(self, vid: bytes, now: float) -> tuple[bool, bytes | None]:
        """Whether the volume may be waited for from now on, until it is given back or taken by another; and the one
        that it was taken from. Else it waits for its turn.
        """
        with self._lock:
            if vid in self._held:
                return True, None
            self._wanted.pop(vid, None)
            if self._lately_seconds is not None and vid not in self._used:
                return False, None
            given_up = None
            if len(self._held) >= self._most:
                given_up = min(self._held, key=self._rank)
                if self._rank(vid) <= self._rank(given_up) or self._is_outdone(vid):
                    if self._may_have_turns(vid, now):
                        self._turns[vid] = None
                    return False, None
                self._held.remove(given_up)
            self._held.add(vid)
            self._turns.pop(vid, None)
            return True, given_up

    def turn(self, now: float) -> bytes | None:
        """The next one that may be asked once, if it is time."""
        with self._lock:
            while self._turns and now >= self._next_turn:
                vid = next(iter(self._turns))
                del self._turns[vid]
                if self._may_have_turns(vid, now):
                    self._next_turn = max(self._next_turn, now - 1.0) + 1 / self._turns_per_second
                    return vid
            return None

    def give_back(self, vid: bytes) -> None:
        with self._lock:
            self._held.discard(vid)
            self._wanted.pop(vid, None)
            self._turns.pop(vid, None)

    def forget(self, vid: bytes) -> None:
        """The volume is gone."""
        self.give_back(vid)
        with self._lock:
            self._used.pop(vid, None)
            self._open.discard(vid)

    def _use(self, vid: bytes, now: float) -> None:
        self._used.pop(vid, None)
        self._used[vid] = now

    def _may_have_turns(self, vid: bytes, now: float) -> bool:
        if self._lately_seconds is None or vid in self._open:
            return True
        return now - self._used.get(vid, float("-inf")) < self._lately_seconds

    def _is_outdone(self, vid: bytes) -> bool:
        """Whether as many as there are slots come before it, and will take its own from it."""
        is_open = vid in self._open
        above = 0 if is_open else len(self._open)
        for other in reversed(self._used):
            if above >= self._most or other == vid:
                break
            above += (other in self._open) is is_open
        return above >= self._most

    def _rank(self, vid: bytes) -> tuple[bool, float]:
        return vid in self._open, self._used.get(vid, float("-inf"))
