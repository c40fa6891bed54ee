"""Poll slots: which volumes of a home are waited for by a long poll each, where they are more than may be at once.

A long poll holds a connection, here and at the node. So those have one that were used last, programs that have them
open first. The others are asked in turn, so many a second, whether they have something new: of a home of thousands of
volumes the ones that are quiet are heard of late, and the ones in use at once.

No clock of its own: times are seconds of one monotonic clock.
"""

from __future__ import annotations

import threading
from typing import Final

MOST_POLLS: Final = 256
"""Well below the files that a process may have open by default."""
TURNS_PER_SECOND: Final = 8.0


class PollSlots:
    """For any thread. Volumes are known by their raw ids."""

    def __init__(self, most: int = MOST_POLLS, turns_per_second: float = TURNS_PER_SECOND) -> None:
        """With no turns only volumes that were used are waited for."""
        self._most = most
        self._turns_per_second = turns_per_second
        self._used: dict[bytes, float] = {}
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
            self._used[vid] = now

    def open(self, vid: bytes, now: float) -> None:
        """Programs have it open, until `close`."""
        with self._lock:
            self._used[vid] = now
            self._open.add(vid)

    def close(self, vid: bytes) -> None:
        with self._lock:
            self._open.discard(vid)

    def take(self, vid: bytes) -> tuple[bool, bytes | None]:
        """Whether the volume may be waited for from now on, until it is given back or taken by another; and the one
        that it was taken from. Else it waits for its turn.
        """
        with self._lock:
            if vid in self._held:
                return True, None
            if not self._turns_per_second and vid not in self._used:
                return False, None
            given_up = None
            if len(self._held) >= self._most:
                given_up = min(self._held, key=self._rank)
                if self._rank(vid) <= self._rank(given_up):
                    if self._turns_per_second:
                        self._turns[vid] = None
                    return False, None
                self._held.remove(given_up)
            self._held.add(vid)
            self._turns.pop(vid, None)
            return True, given_up

    def turn(self, now: float) -> bytes | None:
        """The next one that may be asked once, if it is time."""
        with self._lock:
            if not self._turns or now < self._next_turn:
                return None
            vid = next(iter(self._turns))
            del self._turns[vid]
            self._next_turn = max(self._next_turn, now - 1.0) + 1 / self._turns_per_second
            return vid

    def give_back(self, vid: bytes) -> None:
        with self._lock:
            self._held.discard(vid)
            self._turns.pop(vid, None)

    def forget(self, vid: bytes) -> None:
        """The volume is gone."""
        self.give_back(vid)
        with self._lock:
            self._used.pop(vid, None)
            self._open.discard(vid)

    def _rank(self, vid: bytes) -> tuple[bool, float]:
        return vid in self._open, self._used.get(vid, float("-inf"))
