"""Offload: work on the disk, here or in a thread, by how long it has been taking.

The mount's event loop answers everybody, so what may take long is done in a thread. But handing work to a thread and
its result back costs about as much as a flush on a good disk. So each kind of work is timed: while it usually takes
less than a moment it is done in place, and as soon as the disk is slower than that, in a thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

from .in_thread import in_thread

T = TypeVar("T")

MOMENT_SECONDS: Final = 0.001
_WEIGHT: Final = 0.1
"""Of the newest time in the running mean."""


class Offload:
    """Of one kind of work."""

    __slots__ = ("_mean",)

    def __init__(self) -> None:
        self._mean = 0.0

    @property
    def is_quick(self) -> bool:
        return self._mean < MOMENT_SECONDS

    async def run(self, work: Callable[[], T]) -> T:
        if not self.is_quick:
            return await in_thread(self.timed, work)
        return self.timed(work)

    def timed(self, work: Callable[[], T]) -> T:
        began = time.monotonic()
        try:
            return work()
        finally:
            # One stall, as when the system is busy for once, doesn't decide.
            took = min(time.monotonic() - began, 10 * MOMENT_SECONDS)
            self._mean += _WEIGHT * (took - self._mean)
