"""Quick lock: one that costs no switch between tasks while it is free, as trio's own always does."""

from __future__ import annotations

import trio


class QuickLock:
    """Fair among those who wait. Not reentrant."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = trio.Lock()

    async def __aenter__(self) -> None:
        try:
            self._lock.acquire_nowait()
        except trio.WouldBlock:
            await self._lock.acquire()

    async def __aexit__(self, *error: object) -> None:
        self._lock.release()
