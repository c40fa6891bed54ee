"""CountedStore: a store whose requests are counted by kind and day, and by whose objects they are about.

Whose they are is said by the keys: a volume's, or a log's, which is the volume's own where it has one; of entries that
several volumes share the log's writer says it (`shared`). What is sent again further down (obstore_store.py) isn't
seen, nor is what was counted by a process that has ended. A listing is a request for each 1,000 keys.

Memory: a line for each day, of the last 32; and for each of 10,000 volumes and logs, those that were busy last.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from heapq import nlargest
from typing import Final

from ...volume.calls import RequestCounts, Requested
from ...volume.lru_cache import LruCache
from .figures import figures_of
from .protocol import Data, Keys, Sizes, Store, length_of

DAY_MS: Final = 86_400_000
DAYS: Final = 32
OWNERS: Final = 10_000
_TOLD: Final = 1000
"""Of them, in one answer."""
_PAGE: Final = 1000


@dataclass(slots=True)
class Counts:
    gets: int = 0
    creates: int = 0
    deletes: int = 0
    lists: int = 0
    received_bytes: int = 0
    sent_bytes: int = 0
    entries: float = 0.0
    """Its part of entries that it shared; they are among the creates of their log."""


class CountedStore:
    """See protocol.Store. A request counts when it is made, whatever becomes of it; a listing once it is
    answered."""

    def __init__(self, inner: Store, now_ms: Callable[[], int]) -> None:
        self.inner = inner
        self.since_ms = now_ms()
        self.days: dict[int, Counts] = {}
        """By day since 1970."""
        self.all = Counts()
        self.owners = LruCache[str, Counts](OWNERS)
        """By volume or log; "" is whatever belongs to none."""
        self._now_ms = now_ms

    @property
    def url(self) -> str:
        return self.inner.url

    def shared(self, log: str, streams: list[str]) -> None:
        """An entry has come to stand, which carries these."""
        for stream in streams:
            if stream != log:
                self._owner(stream).entries += 1 / len(streams)

    def told(self) -> RequestCounts:
        owners = [(counts, owner) for owner in list(self.owners) if owner and (counts := self.owners.get(owner))]
        busiest = nlargest(_TOLD, owners, key=lambda each: (each[0].creates + each[0].entries, each[0].gets))
        return RequestCounts(
            since_ms=self.since_ms,
            now_ms=self._now_ms(),
            days=tuple(Requested(day=day, **asdict(counts)) for day, counts in sorted(self.days.items())),
            owners=tuple(Requested(owner=owner, **asdict(counts)) for counts, owner in busiest),
            figures=asdict(self.all) | figures_of(self.inner),
        )

    async def get(self, key: str, *, start: int = 0, end: int | None = None) -> bytes:
        each = self._counts(key)
        for counts in each:
            counts.gets += 1
        data = await self.inner.get(key, start=start, end=end)
        for counts in each:
            counts.received_bytes += len(data)
        return data

    async def get_tail(self, key: str, size: int) -> tuple[bytes, int]:
        each = self._counts(key)
        for counts in each:
            counts.gets += 1
        data, length = await self.inner.get_tail(key, size)
        for counts in each:
            counts.received_bytes += len(data)
        return data, length

    async def create(self, key: str, data: Data) -> None:
        for counts in self._counts(key):
            counts.creates += 1
            counts.sent_bytes += length_of(data)
        await self.inner.create(key, data)

    async def delete(self, key: str) -> None:
        for counts in self._counts(key):
            counts.deletes += 1
        await self.inner.delete(key)

    async def list(self, prefix: str, *, start: str = "", limit: int | None = None) -> Keys:
        keys = await self.inner.list(prefix, start=start, limit=limit)
        self._listed(prefix, len(keys))
        return keys

    async def sizes(self, prefix: str, *, start: str = "", limit: int | None = None) -> Sizes:
        found = await self.inner.sizes(prefix, start=start, limit=limit)
        self._listed(prefix, len(found))
        return found

    async def aclose(self) -> None:
        await self.inner.aclose()

    def _listed(self, prefix: str, count: int) -> None:
        for counts in self._counts(prefix):
            counts.lists += max(1, -(-count // _PAGE))

    def _counts(self, key: str) -> tuple[Counts, Counts, Counts]:
        """Of the day, of whose object it is, and of all."""
        day = self._now_ms() // DAY_MS
        counts = self.days.get(day)
        if counts is None:
            counts = self.days[day] = Counts()
            for old in sorted(self.days)[:-DAYS]:
                del self.days[old]
        parts = key.split("/", 2)
        owner = self._owner(parts[1] if len(parts) > 2 and parts[0] in {"logs", "volumes"} else "")
        return counts, owner, self.all

    def _owner(self, owner: str) -> Counts:
        counts = self.owners.get(owner)
        if counts is None:
            counts = Counts()
            self.owners.put(owner, counts)
        return counts
