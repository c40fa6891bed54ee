"""HedgedStore: a get or create that is slower than most is sent again; the first answer wins (DESIGN §3).

- Slow is a quarter above the 95th percentile of the last 128 of its kind and size; until 16 are known nothing is
  hedged.
- The budget: 5 % more requests over time, and at most X a second, one per 1/X s; so that a store that is slow as a
  whole isn't given twice the load.
- Keys are write-once, so both sends of a get bring the same. Of a create's two sends one must lose: AlreadyExists is
  then settled by the bytes that stand there, and the same bytes are success.
- The loser is cancelled and its result thrown away; a create that was cancelled may still land, with the same bytes.
- A usage error (NotFound) is an answer. A store error is one only when no other send is under way; repeating is
  retrying.py's business.
- What is larger than a MiB is slow by its bytes, and sent once. So are deletes, which nobody waits for, and listings,
  which may be many requests.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, Generic, TypeVar

import anyio

from ...volume.errors import AlreadyExists, NotFound, StoreError, Unavailable
from .protocol import Data, Keys, Sizes, Store, length_of
from .retrying import same_bytes

_WINDOW: Final = 128
_FEWEST: Final = 16
_QUANTILE: Final = 0.95
_ABOVE: Final = 1.25
"""Without, one in twenty requests would be slow in a store that is always as fast."""
_LEAST_SECONDS: Final = 0.005
_SMALL_BYTES: Final = 64 << 10
_MOST_BYTES: Final = 1 << 20
SHARE: Final = 0.05
_SAVED: Final = 20.0
"""So many hedges are saved up while all is well."""

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
            usual = sorted(self._seconds)[int(_QUANTILE * (len(self._seconds) - 1))]
            self.slow_seconds = max(_LEAST_SECONDS, _ABOVE * usual)


class _Budget:
    """What may be sent twice: a share of all requests, and one per pause."""

    def __init__(self, share: float, most_per_second: float) -> None:
        self._share = share
        self._pause_seconds = 1 / most_per_second
        self._left = 1.0
        self._next_at = -math.inf

    def earn(self) -> None:
        self._left = min(_SAVED, self._left + self._share)

    def spend(self, now: float) -> bool:
        if now < self._next_at or self._left < 1:
            return False
        self._next_at = now + self._pause_seconds
        self._left -= 1
        return True


class _Race(Generic[T]):
    """One request and its hedge. Code between awaits is atomic."""

    def __init__(self, call: Callable[[], Awaitable[T]]) -> None:
        self._call = call
        self._running = 0
        self.sent = 0
        self.by_second = False
        self.answer: list[T] = []
        self.error: Exception | None = None

    async def send(self, scope: anyio.CancelScope) -> None:
        self._running += 1
        self.sent += 1
        second = self.sent > 1
        try:
            self.answer = [await self._call()]
            self.error = None
            self.by_second = second
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
        share: float = SHARE,
        most_per_second: float = 50.0,
        creates: bool = True,
        now: Callable[[], float] = anyio.current_time,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
    ) -> None:
        """Without `creates`, gets alone are hedged."""
        self.inner = inner
        self.hedges = 0
        """Requests sent twice so far."""
        self.won = 0
        """Of them, answered by the second."""
        self.refused = 0
        """Slow ones that the budget let wait."""
        self._creates = creates
        self._budget = _Budget(share, most_per_second)
        self._now = now
        self._sleep = sleep
        self._latencies: dict[tuple[str, bool], _Latencies] = {}

    @property
    def url(self) -> str:
        return self.inner.url

    def figures(self) -> dict[str, float]:
        return {"hedges": self.hedges, "hedges_won": self.won, "hedges_refused": self.refused}

    async def get(self, key: str, *, start: int = 0, end: int | None = None) -> bytes:
        race = _Race(partial(self.inner.get, key, start=start, end=end))
        return await self._run(race, self._known("whole", 0) if end is None else self._known("get", end - start))

    async def get_tail(self, key: str, size: int) -> tuple[bytes, int]:
        return await self._run(_Race(partial(self.inner.get_tail, key, size)), self._known("get", size))

    async def create(self, key: str, data: Data) -> None:
        race = _Race(partial(self.inner.create, key, data))
        try:
            await self._run(race, self._known("create", length_of(data)) if self._creates else None)
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

    def _known(self, kind: str, size: int) -> _Latencies | None:
        """Of the kind and size; None of what isn't hedged."""
        return None if size > _MOST_BYTES else self._latencies.setdefault((kind, size > _SMALL_BYTES), _Latencies())

    async def _run(self, race: _Race[T], latencies: _Latencies | None) -> T:
        self._budget.earn()
        started = self._now()
        async with anyio.create_task_group() as tasks:
            if latencies is not None and latencies.slow_seconds < math.inf:
                tasks.start_soon(self._hedge, race, latencies.slow_seconds, tasks.cancel_scope)
            await race.send(tasks.cancel_scope)
        if latencies is not None and not isinstance(race.error, StoreError):
            latencies.add(self._now() - started)
        if race.answer:
            return race.answer[0]
        assert race.error is not None, "a race ends with an answer or an error"
        raise race.error

    async def _hedge(self, race: _Race[T], slow_seconds: float, scope: anyio.CancelScope) -> None:
        await self._sleep(slow_seconds)
        if not self._budget.spend(self._now()):
            self.refused += 1
            return
        self.hedges += 1
        await race.send(scope)
        self.won += race.by_second
