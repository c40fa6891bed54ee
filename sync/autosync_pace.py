"""Autosync's pace: when a volume may be synced next. No clock and no chance of its own, so that tests decide both.

A commit is pushed QUIET_SECONDS after the last one, and at the latest LATEST_SECONDS after the first where commits
never pause. What fails is put off, twice as long each time, by a random part of that: processes that lost their node at
the same moment don't come back to it at the same moment. An answer that leads nowhere counts as a failure, so that no
remote, whatever it says, is asked faster and faster.

Only a clock that never jumps is read (`time.monotonic`): what the wall clock says changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from ..volume.errors import BudwoodError, Busy, Fenced, Unavailable

QUIET_SECONDS: Final = 1.0
LATEST_SECONDS: Final = 30.0
BUSY_SECONDS: Final = 0.5
LONGEST_BUSY_SECONDS: Final = 5.0
FIRST_PAUSE_SECONDS: Final = 0.5
LONGEST_OFFLINE_SECONDS: Final = 30.0
LONGEST_PAUSE_SECONDS: Final = 300.0
OFFLINE: Final = (Unavailable, Fenced)


@dataclass(slots=True)
class Pace:
    """Of one volume. Times are seconds of one monotonic clock; `chance` gives numbers from 0 to 1."""

    chance: Callable[[], float]
    error: str = ""
    """Why it doesn't sync; "" while it does."""
    waits_for: str = ""
    """What it waits for that is no trouble: another call of this home, or a program that has it open."""
    is_offline: bool = False
    """It failed because nobody answered."""
    first: float | None = None
    """When the first commit was seen that is to be pushed; None if there is none."""
    last: float = 0.0
    retry: float = 0.0
    pause: float = 0.0
    busy_pause: float = 0.0

    def committed(self, now: float) -> None:
        self.last = now
        if self.first is None:
            self.first = now

    @contextmanager
    def taking(self) -> Generator[None]:
        """What was committed until now is dealt with, unless that fails; what is committed meanwhile comes after it."""
        since, self.first = self.first, None
        try:
            yield
        except BudwoodError:
            self.first = since if self.first is None else self.first
            raise

    def may_ask(self, now: float) -> bool:
        return now >= self.retry

    def may_push(self, now: float) -> bool:
        if self.first is None:
            return False
        return now >= max(self.retry, min(self.last + QUIET_SECONDS, self.first + LATEST_SECONDS))

    def worked(self) -> None:
        self.error = self.waits_for = ""
        self.is_offline = False
        self.pause = self.busy_pause = self.retry = 0.0

    def failed(self, now: float, error: BudwoodError) -> bool:
        """Whether that is news."""
        if isinstance(error, Busy):
            self.waits_for = str(error)
            self.busy_pause = min(LONGEST_BUSY_SECONDS, max(BUSY_SECONDS, 2 * self.busy_pause))
            self.retry = now + self.busy_pause
            return False
        is_news, self.error = self.error != str(error), str(error)
        self.is_offline = isinstance(error, OFFLINE)
        longest = LONGEST_OFFLINE_SECONDS if self.is_offline else LONGEST_PAUSE_SECONDS
        self.pause = min(longest, max(FIRST_PAUSE_SECONDS, 2 * self.pause))
        self.retry = now + self.pause * (0.5 + self.chance() / 2)
        return is_news

    def wake(self) -> None:
        """The remote may answer again: whatever waited for that is tried at once, and the pauses begin anew."""
        if self.is_offline:
            self.retry = self.pause = 0.0
