"""Memory budget: how much callers hold together while they send and read; whoever keeps others waiting gives way.

A body reserves bytes as it arrives, and an answer before it is read; both give them back at the end. Where none are
left, a newcomer waits for a while and is then told to come again. But nobody waits for a caller who does nothing: of
those that have neither sent nor read for `yield_seconds`, the one that has been idle for longest is ended. And whether
others wait or not, a body or a reader below the least pace is ended (Pace). So holding memory costs an attacker what it
costs anyone: to send, and to read.

Whoever has been here longest may always go on. Else bodies that have half arrived could wait for each other.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self, TypeAlias

import anyio

from ...volume.errors import Overloaded, Unavailable
from .asgi import Request

_LOOK_SECONDS: Final = 0.1
"""How often one who waits looks for somebody who does nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How slow a caller may be."""

    head_seconds: float = 20.0
    """A request's head must be whole then."""
    idle_seconds: float = 20.0
    """In each stretch of these a body brings `least_bytes`, or its end; and a reader takes a piece of his answer."""
    least_bytes: int = 64 * 1024
    yield_seconds: float = 2.0
    """A caller who does nothing for so long gives way to those who wait."""
    room_seconds: float = 20.0
    """How long a newcomer waits for memory."""


class MemoryBudget:
    """So many bytes, for callers that hold some of them. Belongs to one event loop."""

    def __init__(self, limit_bytes: int, pace: Pace) -> None:
        self.limit_bytes = limit_bytes
        self.pace = pace
        self.held_bytes = 0
        self._reservations: dict[Reservation, None] = {}
        """Oldest first."""
        self._queue: deque[Reservation] = deque()
        self._changed = anyio.Event()

    def hold(self, amount_bytes: int = 0, *, patience_seconds: float = math.inf) -> Reservation:
        """Reserve so many bytes, until the context ends. Entering it raises Overloaded after `room_seconds` without
        them, or once the caller's patience is over."""
        return Reservation(self, amount_bytes, anyio.current_time() + patience_seconds)

    def enter(self, reservation: Reservation) -> None:
        self._reservations[reservation] = None

    def leave(self, reservation: Reservation) -> None:
        del self._reservations[reservation]
        self.held_bytes -= reservation.held_bytes
        self._change()

    def may(self, reservation: Reservation, amount_bytes: int) -> bool:
        if next(iter(self._reservations)) is reservation:
            return True
        first = not self._queue or self._queue[0] is reservation
        return first and self.held_bytes + amount_bytes <= self.limit_bytes

    async def wait(self, reservation: Reservation, amount_bytes: int) -> None:
        self._queue.append(reservation)
        try:
            room = anyio.current_time() + self.pace.room_seconds
            with anyio.CancelScope(deadline=min(room, reservation.deadline)):
                while not self.may(reservation, amount_bytes):
                    self._end_one()
                    with anyio.move_on_after(_LOOK_SECONDS):
                        await self._changed.wait()
                return
        finally:
            self._queue.remove(reservation)
            self._change()
        words = f"others hold all of the {self.limit_bytes:,} bytes that the node has for what is sent and read"
        raise Overloaded(f"{words}: try again in a moment", reason="memory")

    def _end_one(self) -> None:
        """Whoever has done nothing for longest, if that is too long."""
        now = anyio.current_time()
        idle = [
            (reservation.idle_since, reservation)
            for reservation in self._reservations
            if reservation.held_bytes and reservation.idle_since
        ]
        since, longest = min(idle, key=lambda found: found[0], default=(now, None))
        if longest is not None and now - since >= self.pace.yield_seconds:
            longest.end()

    def _change(self) -> None:
        if self._queue:
            self._changed.set()
            self._changed = anyio.Event()


BodyRoom: TypeAlias = Callable[[Request], MemoryBudget]
"""The room that a request's body is to have."""


class Reservation:
    """One caller's part of a budget, while its context lasts."""

    __slots__ = ("_first_bytes", "_idle", "budget", "deadline", "held_bytes", "idle_since")

    def __init__(self, budget: MemoryBudget, first_bytes: int, deadline: float) -> None:
        self.budget = budget
        self.deadline = deadline
        """Until when the caller waits."""
        self.held_bytes = 0
        self._first_bytes = first_bytes
        self.idle_since = 0.0
        """Since when the caller's own move is waited for; 0 while it isn't."""
        self._idle: anyio.CancelScope | None = None

    async def __aenter__(self) -> Self:
        self.budget.enter(self)
        if self._first_bytes:
            try:
                await self.take(self._first_bytes)
            except BaseException:
                self.budget.leave(self)
                raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.budget.leave(self)

    async def take(self, amount_bytes: int) -> None:
        """Raises Unavailable."""
        if amount_bytes and not self.budget.may(self, amount_bytes):
            await self.budget.wait(self, amount_bytes)
        self.held_bytes += amount_bytes
        self.budget.held_bytes += amount_bytes

    def idling(self, seconds: float, what: str) -> _Idling:
        """While the caller is to do something. Raises Unavailable if he doesn't in time, or keeps others waiting."""
        idling = _Idling(self, seconds, what)
        self._idle = idling.scope
        return idling

    def ends_idling(self) -> None:
        self._idle, self.idle_since = None, 0.0

    def end(self) -> None:
        if self._idle is not None:
            self._idle.cancel()


class _Idling:
    """See Reservation.idling; entered at once. No generator, since each request has one."""

    __slots__ = ("_reservation", "_what", "deadline", "scope")

    def __init__(self, reservation: Reservation, seconds: float, what: str) -> None:
        reservation.idle_since = now = anyio.current_time()
        self.deadline = now + seconds
        self.scope = anyio.CancelScope(deadline=self.deadline)
        self._reservation = reservation
        self._what = what

    @property
    def left_seconds(self) -> float:
        return self.deadline - anyio.current_time()

    def __enter__(self) -> Self:
        self.scope.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        self._reservation.ends_idling()
        caught = self.scope.__exit__(kind, error, trace)
        if self.scope.cancelled_caught:
            raise Unavailable(f"{self._what} too slowly: try again, over a better line")
        return caught
