"""ManualClock: time that moves only when a test says so.

Code that takes `now` (a callable that gives seconds) and `sleep` (an async callable that takes seconds) is given
`clock.now` and `clock.sleep`. A sleeper wakes when `advance` has reached its time; one that `jumps` wakes each at
once and moves on by what it wanted to sleep, so that retries and deadlines take no time.
"""

from __future__ import annotations

import heapq
from itertools import count

import anyio
from anyio.lowlevel import checkpoint


class ManualClock:
    """Seconds since its own beginning; belongs to one event loop."""

    def __init__(self, start_seconds: float = 0.0, *, jumps: bool = False) -> None:
        self._now = start_seconds
        self._jumps = jumps
        self._sleepers: list[tuple[float, int, anyio.Event]] = []
        self._order = count()
        self.slept: list[float] = []
        """Every sleep that was asked for, in seconds."""

    def now(self) -> float:
        return self._now

    def now_ms(self) -> int:
        return round(self._now * 1000)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        if self._jumps or seconds <= 0:
            self._now += max(seconds, 0)
            await checkpoint()
            return
        woken = anyio.Event()
        heapq.heappush(self._sleepers, (self._now + seconds, next(self._order), woken))
        await woken.wait()

    @property
    def sleepers(self) -> int:
        """How many sleeps have not ended."""
        return len(self._sleepers)

    def advance(self, seconds: float) -> None:
        """Move on, and wake whoever's time has come."""
        assert seconds >= 0, "time does not go back"
        self._now += seconds
        while self._sleepers and self._sleepers[0][0] <= self._now:
            heapq.heappop(self._sleepers)[2].set()
