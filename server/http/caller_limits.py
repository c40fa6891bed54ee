"""Caller limits: how much of a node one caller may take, whatever room there is: so many calls a second, so many under
way at once, so many bytes a second. Whoever asks for more is told to come again (429), a moment later and before
anything of the request is read; whoever sends more is read from more slowly.

A caller is whoever was found to call, and where nobody is asked, the address that the call comes from. Of several
workers each counts for itself. Calls that wait are under way while they wait.

Memory: a line for each of `CALLERS`, those that called last; one that is forgotten meanwhile has its whole allowance
again, which takes that many other callers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import anyio

from ...volume.errors import Overloaded
from ...volume.lru_cache import LruCache
from .asgi import ASGIApp, Message, Receive, Request, Scope, Send
from .body import refusal

CALLERS: Final = 4096
TOO_MANY: Final = 429
BURST_SECONDS: Final = 2.0
"""Of calls that may come at once, after a pause."""
MOST_PAUSE_SECONDS: Final = 1.0
"""Between two pieces of a body: less than what a caller who does nothing is ended for (memory_budget.Pace)."""
PAUSE_SECONDS: Final = 0.5
"""Before a refusal: it holds nothing but its connection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallerLimits:
    """0: any number."""

    calls_per_second: float = 0.0
    calls_at_once: int = 0
    bytes_per_second: float = 0.0
    """Of bodies. Who sends faster is read from more slowly, and refused nothing."""

    @property
    def are_set(self) -> bool:
        return bool(self.calls_per_second or self.calls_at_once or self.bytes_per_second)


@dataclass(slots=True)
class _Caller:
    left: float
    filled_at: float
    under_way: int = 0
    read_until: float = float("-inf")
    """When what was read of it would have come at its rate."""


class Limited:
    """The same application."""

    def __init__(
        self,
        app: ASGIApp,
        limits: CallerLimits,
        now: Callable[[], float] = anyio.current_time,
        *,
        callers: int = CALLERS,
        pause_seconds: float = PAUSE_SECONDS,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
    ) -> None:
        self._app = app
        self._limits = limits
        self._now = now
        self._sleep = sleep
        self._pause_seconds = pause_seconds
        self._burst = max(1.0, limits.calls_per_second * BURST_SECONDS)
        self._callers = LruCache[str, _Caller](callers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        if not request.path.startswith("/v1/"):
            # Whoever looks whether the node is well must hear it.
            await self._app(scope, receive, send)
            return
        caller = self._caller(_who(request))
        refused = self._refused(caller)
        if refused is not None:
            # Whoever only ever asks would else be answered as fast as it can ask, at the others' cost.
            await self._sleep(self._pause_seconds)
            await refusal(request, refused, request.path, TOO_MANY).send(send)
            return
        caller.under_way += 1
        try:
            await self._app(scope, self._paced(caller, receive) if self._limits.bytes_per_second else receive, send)
        finally:
            caller.under_way -= 1

    @property
    def known(self) -> int:
        """Callers that are remembered."""
        return len(list(self._callers))

    def _caller(self, name: str) -> _Caller:
        caller = self._callers.get(name)
        if caller is None:
            caller = _Caller(self._burst, self._now())
            self._callers.put(name, caller)
        return caller

    def _paced(self, caller: _Caller, receive: Receive) -> Receive:
        async def paced() -> Message:
            message = await receive()
            size, now = len(message.get("body", b"")), self._now()
            begun = max(caller.read_until, now - BURST_SECONDS)
            caller.read_until = begun + size / self._limits.bytes_per_second
            if caller.read_until > now:
                # What isn't read holds its sender back, by TCP.
                await self._sleep(min(caller.read_until - now, MOST_PAUSE_SECONDS))
            return message

        return paced

    def _refused(self, caller: _Caller) -> Overloaded | None:
        most = self._limits.calls_at_once
        if most and caller.under_way >= most:
            words = f"{most:,} calls of one caller are under way, as many as may be: send it again in a moment"
            return Overloaded(words, reason="calls_at_once")
        rate = self._limits.calls_per_second
        if not rate:
            return None
        now = self._now()
        caller.left = min(self._burst, caller.left + (now - caller.filled_at) * rate)
        caller.filled_at = now
        if caller.left < 1:
            words = f"one caller may make {rate:g} calls a second, and more came: send it again in a moment"
            return Overloaded(words, reason="calls_per_second")
        caller.left -= 1
        return None


def _who(request: Request) -> str:
    """An organisation is one caller, however many keys it has."""
    caller = request.caller
    if caller is not None and caller.org:
        return f"{caller.org}/"
    return request.principal or request.client_host
