"""Records: what two-phase creates are decided by, in a transactional store beside the object store (DESIGN §3).

A record stands for each object that was created so, one for each key. Each call is one transaction, durable when it
returns, and sees all that returned before it was made.

    WRITTEN     its bytes are durable as its source, a temporary object; the copy may stand already
    COMMITTED   its copy stands
    DELETED     nothing of it counts, and its objects go; its key can't be created while this stands

`hands` are those at work on a key's object: who created it, who finishes another's create, who deletes it. Whoever
knows that none of its requests is under way any more takes its hand off. One that was killed, or has got no answer,
never does: a request that was sent may arrive at any time. So a key that was deleted is free again when no hand is on
it, and not before.

The floor is a time. No temporary that was named before it gets a record any more, so it may be deleted if it has none;
and a deleted key's record that nobody has laid a hand on since then is stale, and goes. Whoever raises it goes by a
clock; whether a create comes too late is decided here, in one order with it, and by no clock.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple, Protocol


class State(IntEnum):
    WRITTEN = 0
    COMMITTED = 1
    DELETED = 2


class Record(NamedTuple):
    dest: str
    """The key."""
    source: str
    """The temporary object's; "" where one was deleted that had no record."""
    size: int
    state: State
    hands: int
    touched_ms: int
    """When a hand was laid on it last."""


class Taken(NamedTuple):
    """What became of `insert`."""

    record: Record | None
    """The one that stands; None where the source is older than the floor."""
    floor_ms: int


class Records(Protocol):
    """Async, under asyncio and trio; one instance belongs to one event loop. Any call may raise Unavailable (see
    `determinate`), Unauthorized, NotFound where there are none and none shall be made."""

    @property
    def url(self) -> str:
        """As it was given, without secrets."""
        ...

    async def insert(self, dest: str, source: str, size: int, time_ms: int) -> Taken:
        """Take the key, with a hand on it, unless it is taken. `time_ms` is the source's. Raises Unsupported once the
        store is native."""
        ...

    async def find(self, dest: str) -> Record | None: ...

    async def written(self, prefix: str = "", *, start: str = "", limit: int | None = None) -> list[Record]:
        """Those that are WRITTEN, by key, as `Store.list`."""
        ...

    async def begin(self, dest: str, source: str, now_ms: int) -> bool:
        """Lay a hand on a record that is WRITTEN; false if it isn't any more."""
        ...

    async def commit(self, dest: str, source: str) -> State | None:
        """The copy stands: COMMITTED, and a hand less. A DELETED one stays as it is, hand and all; None: it is gone."""
        ...

    async def bury(self, dest: str, now_ms: int) -> Record:
        """DELETED, with a hand on it, whether it had a record or not: what it was before. Raises Unsupported once the
        store is native."""
        ...

    async def leave(self, dest: str, source: str) -> None:
        """A hand less. A DELETED record without any goes."""
        ...

    async def raise_floor(self, to_ms: int) -> int:
        """It never sinks: the answer is where it is. Raises Unsupported once the store is native."""
        ...

    async def stale(self, *, limit: int) -> list[Record]:
        """DELETED ones that nobody has touched since the floor."""
        ...

    async def forget(self, dest: str, source: str) -> None:
        """A stale one goes."""
        ...

    async def go_native(self) -> None:
        """From here on nothing is inserted or buried any more. For good."""
        ...

    async def aclose(self) -> None: ...
