"""Table: an immutable map that is cheap to change by one entry.

It has a large dict that many versions share and never write to, and a small one of what this version changed. `put`
copies the small one alone; once that holds more than the square root of the large one, both become a new large one.
So a change costs O(√n) on average, a look-up two dict look-ups, and an old version stays as it was: what a tentative
state needs (state.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isqrt
from typing import Final, Generic, TypeVar, cast

__all__ = ["Table"]

K = TypeVar("K")
V = TypeVar("V")

_LEAST_CHANGES: Final = 16


class _Gone:
    """Stands in `_changes` for a key that was removed."""


_GONE: Final = _Gone()


class Table(Generic[K, V]):
    __slots__ = ("_base", "_changes", "_length")

    def __init__(self, entries: dict[K, V] | None = None) -> None:
        self._base: dict[K, V] = dict(entries or {})
        self._changes: dict[K, V | _Gone] = {}
        self._length = len(self._base)

    def get(self, key: K) -> V | None:
        found = self._changes.get(key)
        if found is None:
            return self._base.get(key)
        return None if found is _GONE else cast("V", found)

    def put(self, key: K, value: V) -> Table[K, V]:
        """A table with this entry more, or changed."""
        return self._with(key, value, self._length + (key not in self))

    def without(self, key: K) -> Table[K, V]:
        """A table that lacks the key."""
        return self._with(key, _GONE, self._length - 1) if key in self else self

    def __contains__(self, key: K) -> bool:
        return self.get(key) is not None

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[K]:
        """The keys, in no order that means anything."""
        yield from (key for key in self._base if key not in self._changes)
        yield from (key for key, value in self._changes.items() if value is not _GONE)

    def items(self) -> Iterator[tuple[K, V]]:
        yield from ((key, value) for key, value in self._base.items() if key not in self._changes)
        yield from ((key, cast("V", value)) for key, value in self._changes.items() if value is not _GONE)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Table) and dict(self.items()) == dict(cast("Table[K, V]", other).items())

    def __hash__(self) -> int:
        raise TypeError("a table can't be a key")

    def __repr__(self) -> str:
        return f"Table({dict(self.items())!r})"

    def _with(self, key: K, value: V | _Gone, length: int) -> Table[K, V]:
        new = Table[K, V]()
        new._length = length
        new._base, new._changes = self._base, {**self._changes, key: value}
        if len(new._changes) > max(_LEAST_CHANGES, isqrt(len(self._base))):
            new._base, new._changes = dict(new.items()), {}
        return new
