"""Connections: those of one Exchange to its node, each in an httpx client of its own.

httpx's pool looks through all of its connections at every call: one client with 200 calls under way spent five times
what 200 clients did. Here a call takes the connection that was used last, or a new one, and gives it back: one step,
however many there are. All else stays httpx's: TLS, proxies from the environment, timeouts, errors. What a call left
half read httpx closes itself, and connects anew for the next.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

import anyio

if TYPE_CHECKING:
    import httpx

KEPT_SECONDS: Final = 15.0
"""What nobody has used for so long is closed, when somebody comes the next time."""


class NoneFree(Exception):
    """As many calls as there may be are under way, and none has ended."""


class _Idle(NamedTuple):
    client: httpx.AsyncClient
    since: float


class Connections:
    """At most `most` at once; `kept` of them stay open while nobody uses them. Belongs to one event loop."""

    def __init__(self, connect: Callable[[], httpx.AsyncClient], *, most: int, kept: int) -> None:
        self.most = most
        self._kept = kept
        self._connect = connect
        self._room = anyio.Semaphore(most)
        self._idle: deque[_Idle] = deque()
        """Those used last are last."""
        self._closed = False

    async def take(self, patience_seconds: float) -> httpx.AsyncClient:
        """One that nobody else uses until it is given back. Raises NoneFree."""
        try:
            self._room.acquire_nowait()
        except anyio.WouldBlock:
            await self._wait(patience_seconds)
        try:
            await self._close_old()
            return self._idle.pop().client if self._idle else self._connect()
        except BaseException:
            self._room.release()
            raise

    async def give_back(self, client: httpx.AsyncClient) -> None:
        self._room.release()
        if self._closed or len(self._idle) >= self._kept:
            await client.aclose()
        else:
            self._idle.append(_Idle(client, anyio.current_time()))

    async def aclose(self) -> None:
        """Those in use are closed as they come back."""
        self._closed = True
        while self._idle:
            await self._idle.popleft().client.aclose()

    async def _wait(self, patience_seconds: float) -> None:
        with anyio.move_on_after(patience_seconds):
            await self._room.acquire()
            return
        raise NoneFree

    async def _close_old(self) -> None:
        last = anyio.current_time() - KEPT_SECONDS
        while self._idle and self._idle[0].since < last:
            await self._idle.popleft().client.aclose()
