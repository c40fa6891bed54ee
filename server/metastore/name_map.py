"""Name map: an immutable map of names, sorted, whose entries lie in a rollup but for the changes since.

As a layered map (layered_map.py), and names are taken away, too: a name that is gone has a change that says so, whether
it lies below or not, since a rollup that comes later may have it. What lies below is one rollup's tree and stays so, so
that an older map reads as it was however far the log's rollup has moved on; asking for what isn't in memory raises
NotLoaded (store/tree_nodes.py).

With n names, of which k are put or taken away: get, put, without O(log n); spliced O(log n + k); len O(1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar, cast

from .sorted_map import SortedMap

V = TypeVar("V")
V_co = TypeVar("V_co", covariant=True)


class Gone(NamedTuple):
    """What a name has that was taken away."""

    lsn: int
    """By which change."""


class NamesBelow(Protocol[V_co]):
    def get(self, name: str, /) -> V_co | None: ...

    def between(self, start: str, end: str, /) -> Iterator[tuple[str, V_co]]:
        """Those in [start, end), sorted; to the last where `end` is empty."""
        ...


class _Nothing:
    def get(self, _: str, /) -> None:
        return None

    def between(self, _start: str, _end: str, /) -> Iterator[tuple[str, Any]]:
        return iter(())


_NOTHING: Final = _Nothing()


class NameMap(Generic[V]):
    __slots__ = ("_below", "_count", "changes")

    def __init__(
        self, below: NamesBelow[V] | None = None, count: int = 0, changes: SortedMap[str, V | Gone] | None = None
    ) -> None:
        """`count` is how many names there are, with the changes; where nothing lies below, as many as these are."""
        self._below: NamesBelow[V] = _NOTHING if below is None else below
        self.changes = SortedMap[str, "V | Gone"]() if changes is None else changes
        self._count = len(self.changes) if below is None else count

    def get(self, name: str) -> V | None:
        found = self.changes.get(name)
        if found is None:
            return self._below.get(name)
        return None if isinstance(found, Gone) else found

    def between(self, start: str = "", end: str = "") -> Iterator[tuple[str, V]]:
        """The names in [start, end), sorted; to the last where `end` is empty."""
        return _standing(_merged(self._below.between(start, end), self.changes.between(start, end)))

    def put(self, name: str, value: V) -> NameMap[V]:
        """A map with this name more, or changed."""
        count = self._count + (self.get(name) is None)
        return NameMap(self._below, count, self.changes.put(name, value))

    def without(self, name: str, lsn: int) -> NameMap[V]:
        """A map that lacks the name: by that change."""
        if self.get(name) is None:
            return self
        return NameMap(self._below, self._count - 1, self.changes.put(name, Gone(lsn)))

    def spliced(self, start: str, end: str, pairs: Sequence[tuple[str, V]], lsn: int) -> NameMap[V]:
        """A map with `pairs`, sorted, in place of everything in [start, end), where all of them belong: by that
        change."""
        changes: dict[str, V | Gone] = {
            name: change for name, change in self.changes.between(start, end) if isinstance(change, Gone)
        }
        count = self._count + len(pairs)
        for name, _ in self.between(start, end):
            changes[name] = Gone(lsn)
            count -= 1
        changes.update(pairs)
        ordered = sorted(changes.items(), key=lambda pair: pair[0])
        return NameMap(self._below, count, self.changes.spliced(start, end, ordered))

    def over(self, below: NamesBelow[V], keeps: Callable[[V | Gone], bool]) -> NameMap[V]:
        """The same map over what has all but those changes that it `keeps`."""
        kept = SortedMap((name, change) for name, change in self.changes.items() if keeps(change))
        return NameMap(below, self._count, kept)

    def items(self) -> Iterator[tuple[str, V]]:
        return self.between()

    def __iter__(self) -> Iterator[str]:
        return (name for name, _ in self.between())

    def __contains__(self, name: str) -> bool:
        return self.get(name) is not None

    def __len__(self) -> int:
        return self._count

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NameMap) and list(self.items()) == list(cast("NameMap[V]", other).items())

    def __hash__(self) -> int:
        raise TypeError("a map can't be a key")

    def __repr__(self) -> str:
        return f"NameMap({self._below!r}, {self._count}, {self.changes!r})"


def _merged(below: Iterator[tuple[str, V]], changes: Iterator[tuple[str, V | Gone]]) -> Iterator[tuple[str, V | Gone]]:
    """Both, sorted; of a name that both have, the change."""
    change = next(changes, None)
    for name, value in below:
        while change is not None and change[0] < name:
            yield change
            change = next(changes, None)
        if change is not None and change[0] == name:
            yield change
            change = next(changes, None)
        else:
            yield name, value
    if change is not None:
        yield change
        yield from changes


def _standing(merged: Iterator[tuple[str, V | Gone]]) -> Iterator[tuple[str, V]]:
    return ((name, value) for name, value in merged if not isinstance(value, Gone))
