"""HedgedStore: a get or create that is slower than most is sent again; the first answer wins (DESIGN §3).

- Slow is slower than the 95th percentile of the last 128 of its kind; until 16 are known nothing is hedged.
- At most `most_per_second` hedges: one per 1/X s, so that a store that is slow as a whole isn't given twice the load.
- Keys are write-once, so both sends of a get bring the same. Of a create's two sends one must lose: AlreadyExists is
  then settled by the bytes that stand there, and the same bytes are success.
- The loser is cancelled and its result thrown away; a create that was cancelled may still land, with the same bytes.
- A usage error (NotFound) is an answer. A store error is one only when no other send is under way; repeating is
  retrying.py's business.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, Generic, TypeVar

import anyio

from ...volume.errors import AlreadyExists, NotFound, StoreError, Unavailable
from .protocol import Data, Keys, Sizes, Store
from .retrying import same_bytes

_WINDOW: Final = 128
_FEWEST: Final = 16
_QUANTILE: Final = 0.95

T = TypeVar("T")


class _Latencies:
    """The last latencies of one kind of request, and their 95th percentile, reckoned anew after every 16."""

    def __init__(self) -> None:
        self._seconds: deque[float] = deque(maxlen=_WINDOW)
        self._since = 0
        self.slow_seconds = math.inf

    def add(self, seconds: float) -> None:
        self._seconds.append(seconds)
        self._since += 1
        if self._since >= _FEWEST:
            self._since = 0
            self.slow_seconds = sorted(self._seconds)[int(_QUANTILE * (len(self._seconds) - 1))]


class _Race(Generic[T]):
    """One request and its hedge. Code between awaits is atomic."""

    def __init__(self, call: Callable[[], Awaitable[T]]) -> None:
        self._call = call
        self._running = 0
        self.sent = 0
        self.answer: list[T] = []
        self.error: Exception | None = None

    async def send(self, scope: anyio.CancelScope) -> None:
        self._running += 1
        self.sent += 1
        try:
            self.answer = [await self._call()]
            self.error = None
        except StoreError as error:
            # Of two the one that says "it may have happened" is the truth about both.
            if self.error is None or not error.determinate:
                self.error = error
            if self._running > 1:
                return
        except Exception as error:
            self.error = error
        finally:
            self._running -= 1
        scope.cancel()


class HedgedStore:
    """See protocol.Store."""

    def __init__(
        self,
        inner: Store,
        *,
        most_per_second: float = 10.0,
        now: Callable[[], float] = anyio.current_time,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
    ) -> None:
        self.inner = inner
        self.hedges = 0
        """Requests sent twice so far."""
        self._pause_seconds = 1 / most_per_second
        self._next_at = -math.inf
        self._now = now
        self._sleep = sleep
        self._gets = _Latencies()
        self._creates = _Latencies()

    @property
    def url(self) -> str:
        return self.inner.url

    async def get(self, key: str, *, start: int = 0, end: int | None = None) -> bytes:
        race = _Race(partial(self.inner.get, key, start=start, end=end))
        return await self._run(race, self._gets)

    async def get_tail(self, key: str, size: int) -> tuple[bytes, int]:
        return await self._run(_Race(partial(self.inner.get_tail, key, size)), self._gets)

    async def create(self, key: str, data: Data) -> None:
        race = _Race(partial(self.inner.create, key, data))
        try:
            await self._run(race, self._creates)
        except AlreadyExists:
            if race.sent < 2 or not same_bytes(await self._standing(key), data):
                raise

    async def delete(self, key: str) -> None:
        await self.inner.delete(key)

    async def list(self, prefix: str, *, start: str = "", limit: int | None = None) -> Keys:
        return await self.inner.list(prefix, start=start, limit=limit)

    async def sizes(self, prefix: str, *, start: str = "", limit: int | None = None) -> Sizes:
        return await self.inner.sizes(prefix, start=start, limit=limit)

    async def aclose(self) -> None:
        await self.inner.aclose()

    async def _standing(self, key: str) -> bytes:
        try:
            return await self.inner.get(key)
        except (NotFound, Unavailable) as error:
            raise Unavailable(f"{key} exists, but can't be read: {error}", determinate=False) from error

    async def _run(self, race: _Race[T], latencies: _Latencies) -> T:
        started = self._now()
        async with anyio.create_task_group() as tasks:
            if latencies.slow_seconds < math.inf:
                tasks.start_soon(self._hedge, race, latencies.slow_seconds, tasks.cancel_scope)
            await race.send(tasks.cancel_scope)
        if not isinstance(race.error, StoreError):
            latencies.add(self._now() - started)
        if race.answer:
            return race.answer[0]
        assert race.error is not None, "a race ends with an answer or an error"
        raise race.error

    async def _hedge(self, race: _Race[T], slow_seconds: float, scope: anyio.CancelScope) -> None:
        await self._sleep(slow_seconds)
        now = self._now()
        if now < self._next_at:
            return
        self._next_at = now + self._pause_seconds
        self.hedges += 1
        await race.send(scope)
