"""Connections: those of one Exchange to its node, each in an httpx client of its own.

httpx's pool looks through all of its connections at every call: one client with 200 calls under way spent five times
what 200 clients did. Here a call takes the connection that was used last, or a new one, and gives it back: one step,
however many there are. All else stays httpx's: TLS, proxies from the environment, timeouts, errors. What a call left
half read httpx closes itself, and connects anew for the next. But of a call that was cancelled before it had its answer
httpx may believe for ever that it is under way (httpcore 1.0): that client is never used again.

A node may be several workers behind one address (docs/design/0101), each of which takes the connections that it gets to
first. Any of them answers for all, but has to ask the right one. So a call that knows whom it is for takes a connection
that leads there. If none is free it takes a new one, which leads there by chance; and after `TRIES` that did not, for
`GIVEN_UP_SECONDS`, whichever there is: behind a proxy a connection may lead to another worker at each call.
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
TRIES: Final = 16
GIVEN_UP_SECONDS: Final = 30.0


class NoneFree(Exception):
    """As many calls as there may be are under way, and none has ended."""


class Connection:
    """One that nobody else uses until it is given back."""

    __slots__ = ("client", "sought", "worker")

    def __init__(self, client: httpx.AsyncClient, sought: str) -> None:
        self.client = client
        self.worker = ""
        """Where it leads, as far as its last answer told; "" where there is but one."""
        self.sought = sought
        """Where it is hoped to lead; "" once that is known."""


class _Idle(NamedTuple):
    connection: Connection
    since: float


class Connections:
    """At most `most` at once; `kept` of them stay open while nobody uses them. Belongs to one event loop."""

    def __init__(self, connect: Callable[[], httpx.AsyncClient], *, most: int, kept: int) -> None:
        self.most = most
        self._kept = kept
        self._connect = connect
        self._room = anyio.Semaphore(most)
        self._idle: dict[str, deque[_Idle]] = {}
        """By where they lead. Those used last are last."""
        self._count = 0
        """Of those."""
        self._missed = 0
        """New ones in a row that did not lead where they were hoped to."""
        self._given_up_until = 0.0
        self._closed = False

    async def take(self, patience_seconds: float, worker: str = "") -> Connection:
        """One that nobody else uses until it is given back; one that leads to that worker, if it can be had. Raises
        NoneFree."""
        try:
            self._room.acquire_nowait()
        except anyio.WouldBlock:
            await self._wait(patience_seconds)
        try:
            await self._close_old()
            return self._found(worker)
        except BaseException:
            self._room.release()
            raise

    def leads(self, connection: Connection, worker: str) -> None:
        """An answer has told where it leads."""
        connection.worker = worker
        if connection.sought:
            self._missed = 0 if connection.sought == worker else self._missed + 1
            connection.sought = ""
            if self._missed >= TRIES:
                self._missed = 0
                self._given_up_until = anyio.current_time() + GIVEN_UP_SECONDS

    async def give_back(self, connection: Connection, *, is_sound: bool) -> None:
        """`is_sound`: its last answer was read, or left by closing it."""
        self._room.release()
        if self._closed or not is_sound or self._count >= self._kept:
            await _close(connection)
        else:
            self._count += 1
            self._idle.setdefault(connection.worker, deque()).append(_Idle(connection, anyio.current_time()))

    async def aclose(self) -> None:
        """Those in use are closed as they come back."""
        self._closed = True
        for idle in list(self._idle.values()):
            while idle:
                await _close(self._taken(idle.popleft))

    def _found(self, worker: str) -> Connection:
        there = self._idle.get(worker)
        if there:
            return self._taken(there.pop)
        if worker and anyio.current_time() >= self._given_up_until:
            return Connection(self._connect(), worker)
        last = max((idle for idle in self._idle.values() if idle), key=lambda idle: idle[-1].since, default=None)
        return Connection(self._connect(), "") if last is None else self._taken(last.pop)

    def _taken(self, pop: Callable[[], _Idle]) -> Connection:
        self._count -= 1
        return pop().connection

    async def _wait(self, patience_seconds: float) -> None:
        with anyio.move_on_after(patience_seconds):
            await self._room.acquire()
            return
        raise NoneFree

    async def _close_old(self) -> None:
        last = anyio.current_time() - KEPT_SECONDS
        for idle in list(self._idle.values()):
            while idle and idle[0].since < last:
                await _close(self._taken(idle.popleft))


async def _close(connection: Connection) -> None:
    with anyio.CancelScope(shield=True):
        await connection.client.aclose()
