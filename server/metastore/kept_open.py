"""Kept open: what a process has opened of a store and nobody uses now, least recently used first to go.

Whoever uses a volume, a log or the names holds it, and what is held stays what it is: a call under way, somebody who
waits, a change that is queued or on its way. So whoever opens things finds those that still exist by weak references,
and there is one of each. Beyond that they are held here, up to a number of bytes. What falls out of here and is used by
nobody is gone at that moment, and is opened anew, from the store, when it is asked for again: that changes no answer.

What must outlive its users says so (`busy`): a log that this process owns, or whose last entry may be on its way still.
What is in use counts here for as long as it was used lately, and then no more, though it stays.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, Protocol

MEMORY_BYTES: Final = 128 << 20
"""Room for what comes of a few thousand commits a second until the next rollup: without it, whatever commits again and
again would be opened anew each time."""

_TRIES: Final = 16
"""Of busy ones that are passed over at a time."""


class Openable(Protocol):
    @property
    def weight(self) -> int:
        """Bytes of memory that it takes, about."""
        ...

    @property
    def busy(self) -> bool:
        """Whether it must stay, though nobody may hold it."""
        ...


class KeptOpen:
    """Belongs to one event loop. With a limit of 0 nothing stays that nobody uses; else the newest does, whatever its
    weight."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        self._kept: OrderedDict[int, tuple[Openable, int]] = OrderedDict()
        """By identity: the thing, and what it weighed when it was used last. The newest is the last."""

    def __len__(self) -> int:
        return len(self._kept)

    def use(self, thing: Openable) -> None:
        """It is wanted now, and stays until others were wanted more lately."""
        self.drop(thing)
        self._keep(thing)
        tries = _TRIES
        while self.held_bytes > self.limit_bytes and len(self._kept) > (self.limit_bytes > 0) and tries:
            oldest, weight = self._kept.popitem(last=False)[1]
            self.held_bytes -= weight
            if oldest.busy:
                self._keep(oldest)
                tries -= 1

    def drop(self, thing: Openable) -> None:
        """Harmless if it isn't kept."""
        _, weight = self._kept.pop(id(thing), (None, 0))
        self.held_bytes -= weight

    def _keep(self, thing: Openable) -> None:
        weight = thing.weight
        self._kept[id(thing)] = thing, weight
        self.held_bytes += weight
