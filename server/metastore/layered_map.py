"""Layered map: an immutable map whose entries lie elsewhere, but for the changes since.

What lies below is in a rollup, of which this process may hold a part: asking for an entry that it doesn't hold raises
NotLoaded (store/tree_nodes.py), and whoever asked loads it and asks again. What lies below may move on, to a rollup
that covers more of the changes: those say the same, and `over` leaves them out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum
from typing import Final, Generic, Protocol, TypeVar, cast

from .sorted_map import Key, SortedMap

K = TypeVar("K", bound=Key)
V = TypeVar("V")
K_contra = TypeVar("K_contra", contravariant=True)
V_co = TypeVar("V_co", covariant=True)


class Below(Protocol[K_contra, V_co]):
    def get(self, key: K_contra, /) -> V_co | None: ...

    def items(self) -> Iterator[tuple[object, V_co]]:
        """Sorted by their keys."""
        ...


class _Nothing:
    def get(self, _: object) -> None:
        return None

    def items(self) -> Iterator[tuple[object, object]]:
        return iter(())


_NOTHING: Final = _Nothing()


class _Gone(Enum):
    """In place of an entry that lies below, and is taken out."""

    GONE = "gone"


class LayeredMap(Generic[K, V]):
    __slots__ = ("_below", "changes")

    def __init__(self, below: Below[K, V] | None = None, changes: SortedMap[K, V | _Gone] | None = None) -> None:
        self._below = cast("Below[K, V]", _NOTHING) if below is None else below
        self.changes = SortedMap[K, "V | _Gone"]() if changes is None else changes

    def get(self, key: K) -> V | None:
        found = self.changes.get(key)
        if found is None:
            return self._below.get(key)
        return None if isinstance(found, _Gone) else found

    def put(self, key: K, value: V) -> LayeredMap[K, V]:
        """A map with this entry more, or changed. Nothing is loaded for it."""
        return LayeredMap(self._below, self.changes.put(key, value))

    def without(self, key: K) -> LayeredMap[K, V]:
        """A map that lacks this entry. Nothing is loaded for it."""
        return LayeredMap(self._below, self.changes.put(key, _Gone.GONE))

    def items(self) -> Iterator[tuple[K, V]]:
        """Sorted by their keys."""
        return ((key, value) for key, value in self._merged() if not isinstance(value, _Gone))

    def _merged(self) -> Iterator[tuple[K, V | _Gone]]:
        changes = self.changes.items()
        change = next(changes, None)
        for key, value in cast("Iterator[tuple[K, V]]", self._below.items()):
            while change is not None and change[0] < key:
                yield change
                change = next(changes, None)
            if change is not None and change[0] == key:
                yield change
                change = next(changes, None)
            else:
                yield key, value
        if change is not None:
            yield change
            yield from changes

    def changed(self) -> Iterator[tuple[K, V | None]]:
        """The entries that were put; None for those that were taken out."""
        return ((key, None if isinstance(value, _Gone) else value) for key, value in self.changes.items())

    def over(self, below: Below[K, V], keeps: Callable[[K, V | None], bool]) -> LayeredMap[K, V]:
        """The same map over what has all but those changes that it `keeps`, None for an entry that was taken out."""
        changes = self.changes.items()
        kept = ((key, value) for key, value in changes if keeps(key, None if isinstance(value, _Gone) else value))
        return LayeredMap(below, SortedMap(kept))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LayeredMap) and list(self.items()) == list(cast("LayeredMap[K, V]", other).items())

    def __hash__(self) -> int:
        raise TypeError("a map can't be a key")

    def __repr__(self) -> str:
        return f"LayeredMap({self._below!r}, {self.changes!r})"
