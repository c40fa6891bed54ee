"""Autosync throttle: of how many volumes something is done at once, in a process that serves programs as well.

A push is mostly work of this interpreter, which has one processor for all of its threads. Four at once beside a program
that makes files leave that a seventh of its speed, and together they are no faster than one or two. So while programs
ask for something, and there is no processor to spare, there is one at a time; where the network is what takes its time,
or nobody waits, as many as there are workers.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final

LOOK_SECONDS: Final = 0.1
_BUSY_SHARE: Final = 0.7
"""Of one processor."""
_BUSY_SERVED: Final = 5
"""Answers between two looks."""


class Throttle:
    """For any thread. `served` counts what programs were answered; None where there are none to give way to."""

    def __init__(
        self,
        most: int,
        served: Callable[[], int] | None,
        *,
        clock: Callable[[], float] = time.monotonic,
        cpu: Callable[[], float] = time.process_time,
    ) -> None:
        self._most = most
        self._served = served
        self._clock = clock
        self._cpu = cpu
        self._free = threading.Condition()
        self._under_way = 0
        self._allowed = most
        self._looked = self._look() if served is not None else (0.0, 0.0, 0)

    @contextmanager
    def turn(self) -> Generator[None]:
        """Waits for it, and is one of those under way until it is left."""
        with self._free:
            while self._under_way >= self.allowed():
                self._free.wait(LOOK_SECONDS)
            self._under_way += 1
        try:
            yield
        finally:
            with self._free:
                self._under_way -= 1
                self._free.notify()

    def allowed(self) -> int:
        """How many at once, as of the last look."""
        if self._served is None:
            return self._most
        before, now = self._looked, self._look()
        seconds = now[0] - before[0]
        if seconds >= LOOK_SECONDS:
            is_busy = now[1] - before[1] > _BUSY_SHARE * seconds and now[2] - before[2] >= _BUSY_SERVED
            self._allowed, self._looked = 1 if is_busy else self._most, now
        return self._allowed

    def _look(self) -> tuple[float, float, int]:
        assert self._served is not None
        return self._clock(), self._cpu(), self._served()
