"""RatedStore: no prefix of a bucket is asked for more than S3 takes: 3,500 writes and 5,500 reads a second (S0.21).

- A prefix is the first two parts of a key: a log's, a volume's; and of a log each of the shards that its fragments are
  spread over (volume/fragments.py), which a bucket splits apart as they are asked for more. Each has a bucket
  of tokens for writes, and one for reads. It holds a tenth of what a second allows and is filled with the other nine,
  so that in no second more go out.
- Whoever finds none waits, and is served in the order of coming. Whoever is cancelled while waiting has used up none.
- A listing is a read for each 1,000 keys; those beyond the first are known only once it is answered, and are made up
  for by whoever comes next.
- What is asked for by another process isn't seen: what the store then refuses is repeated (retrying.py).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import anyio

from ...volume.lru_cache import LruCache
from .protocol import Data, Keys, Sizes, Store

WRITES: Final = 3_500
READS: Final = 5_500
_AT_ONCE: Final = 0.1
PREFIXES: Final = 4_096
"""Remembered. One that is forgotten wasn't asked for longest, and its tokens are all there."""
_PAGE: Final = 1_000


class Tokens:
    """One bucket. Code between awaits is atomic."""

    def __init__(self, per_second: float, now: Callable[[], float], sleep: Callable[[float], Awaitable[None]]) -> None:
        self._most = per_second * _AT_ONCE
        self._per_second = per_second - self._most
        self._left = self._most
        self._filled_at = now()
        self._queue = anyio.Lock()
        self._now = now
        self._sleep = sleep

    async def take(self) -> float:
        """The seconds that this had to wait."""
        if not self._queue.locked() and self._taken():
            return 0.0
        begun = self._now()
        # Those who wait for it get it in the order of coming.
        async with self._queue:
            while not self._taken():
                await self._sleep((1 - self._left) / self._per_second)
        return self._now() - begun

    def owe(self, count: int) -> None:
        """So many have been taken already."""
        self._left -= count

    def _taken(self) -> bool:
        now = self._now()
        self._left = min(self._most, self._left + (now - self._filled_at) * self._per_second)
        self._filled_at = now
        if self._left < 1 - 1e-9:
            return False
        self._left -= 1
        return True


def prefix_of(key: str) -> str:
    parts = key.split("/", 4)
    return "/".join(parts[: 4 if parts[2:3] == ["shards"] and len(parts) > 4 else 2])


class RatedStore:
    """See protocol.Store."""

    def __init__(
        self,
        inner: Store,
        *,
        writes: float = WRITES,
        reads: float = READS,
        now: Callable[[], float] = anyio.current_time,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
    ) -> None:
        self.inner = inner
        self._rates = {"writes": writes, "reads": reads}
        self._tokens = LruCache[tuple[str, str], Tokens](2 * PREFIXES)
        self._waited = {"writes": 0, "reads": 0}
        self._seconds = {"writes": 0.0, "reads": 0.0}
        self._now = now
        self._sleep = sleep

    @property
    def url(self) -> str:
        return self.inner.url

    def figures(self) -> dict[str, float]:
        waited = {f"waited_{kind}": count for kind, count in self._waited.items()}
        return waited | {f"waited_{kind}_seconds": seconds for kind, seconds in self._seconds.items()}

    async def get(self, key: str, *, start: int = 0, end: int | None = None) -> bytes:
        await self._take("reads", key)
        return await self.inner.get(key, start=start, end=end)

    async def get_tail(self, key: str, size: int) -> tuple[bytes, int]:
        await self._take("reads", key)
        return await self.inner.get_tail(key, size)

    async def create(self, key: str, data: Data) -> None:
        await self._take("writes", key)
        await self.inner.create(key, data)

    async def delete(self, key: str) -> None:
        await self._take("writes", key)
        await self.inner.delete(key)

    async def list(self, prefix: str, *, start: str = "", limit: int | None = None) -> Keys:
        tokens = await self._take("reads", prefix)
        keys = await self.inner.list(prefix, start=start, limit=limit)
        tokens.owe(len(keys) // _PAGE)
        return keys

    async def sizes(self, prefix: str, *, start: str = "", limit: int | None = None) -> Sizes:
        tokens = await self._take("reads", prefix)
        found = await self.inner.sizes(prefix, start=start, limit=limit)
        tokens.owe(len(found) // _PAGE)
        return found

    async def aclose(self) -> None:
        await self.inner.aclose()

    async def _take(self, kind: str, key: str) -> Tokens:
        prefix = prefix_of(key)
        tokens = self._tokens.get((kind, prefix))
        if tokens is None:
            tokens = Tokens(self._rates[kind], self._now, self._sleep)
            self._tokens.put((kind, prefix), tokens)
        seconds = await tokens.take()
        if seconds:
            self._waited[kind] += 1
            self._seconds[kind] += seconds
        return tokens
