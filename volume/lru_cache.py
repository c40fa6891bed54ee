"""LRU cache: what was last used stays, up to a weight; the least recently used goes first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class LruCache(Generic[K, V]):
    """Not for two threads at once. `weigh` says what a value counts towards `limit`: 1, unless told. The newest stays
    whatever its weight."""

    __slots__ = ("_entries", "_weigh", "held", "limit")

    def __init__(self, limit: int, weigh: Callable[[V], int] = lambda _: 1) -> None:
        self.limit = limit
        self.held = 0
        """What its values weigh together."""
        self._weigh = weigh
        self._entries: OrderedDict[K, V] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[K]:
        return iter(self._entries)

    def get(self, key: K) -> V | None:
        value = self._entries.get(key)
        if value is not None:
            self._entries.move_to_end(key)
        return value

    def put(self, key: K, value: V) -> None:
        self.drop(key)
        self._entries[key] = value
        self.held += self._weigh(value)
        while self.held > self.limit and len(self._entries) > 1:
            self.held -= self._weigh(self._entries.popitem(last=False)[1])

    def drop(self, key: K) -> None:
        """Harmless if it isn't held."""
        if key in self._entries:
            self.held -= self._weigh(self._entries.pop(key))

    def clear(self) -> None:
        self._entries.clear()
        self.held = 0
