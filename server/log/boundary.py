"""Boundary: from which slot on a log still stands (DESIGN §4, rule 6).

Create-if-absent forgets names that were deleted: a slot whose entry is gone looks like one that was never written. So
whoever collects a log publishes the first slot that stays, waits the store's gc interval, and only then deletes the
entries below it; the anchor stays. A boundary never lies above the log's tip.

    logs/{log}/boundary/{2^64-1-slot:016x}        the newest, which is the highest, sorts first

A process may sleep between any two instructions, and longer than the interval. So nobody goes by an answer about slot i
(created, read, missing) unless no boundary was above i less than half the interval before that answer came: then no
slot from i on can have been deleted by then. That is known

- of the time when the boundaries were listed, and none was above i;
- of the time when a request was sent that found slot i missing, or made it, if that answer can be gone by itself: what
  is missing has no boundary above it.

So whoever writes or looks within every half interval asks for no boundary; whoever slept asks once, and where it is
above i this reading of the log ends: nothing is acknowledged, and the log is opened anew. Time is CLOCK_BOOTTIME, which
goes on while a laptop sleeps.

A log with a boundary is opened from a rollup (reader.py). Where none that can be found covers all that lies below the
boundary, the log is refused in words.

A boundary behind every slot says that the log is *over*: its volume was removed, and nothing of that is left
(upkeep/over.py). The key alone says so, and is the first of all that a log may have.
"""

from __future__ import annotations

import math
from typing import Final

import msgspec

from ...volume.envelope import BOUNDARY, decode, unseal
from ...volume.errors import Corrupt, NotFound, Unsupported, UsageError
from ..store.protocol import Store
from ..store.retrying import Patience, get_retried, retried

_MAX_SLOT: Final = 2**64 - 1
OVER: Final = _MAX_SLOT
"""The slot of the last boundary of a log that is over: no entry ever has it."""


class Boundary(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The object."""

    log: str
    slot: int
    """The first that stays."""
    time: int = 0


def boundary_key(log: str, slot: int) -> str:
    return f"logs/{log}/boundary/{_MAX_SLOT - slot:016x}"


async def read_boundary(store: Store, key: str, patience: Patience) -> Boundary:
    """Raises Corrupt, Unsupported, NotFound, Unavailable."""
    boundary = decode(key, unseal(key, BOUNDARY, await get_retried(store, key, patience=patience)), Boundary)
    if boundary_key(boundary.log, boundary.slot) != key:
        raise Corrupt(key, f"it says that it is boundary {boundary.slot} of log {boundary.log!r}")
    return boundary


class LogIsOver(NotFound):
    """Nothing but its last boundary stands of a log, or will stand soon."""

    log: str = ""


class BoundaryWatch:
    """What one reading of a log knows of its boundary."""

    def __init__(self, store: Store, log: str, interval_seconds: float, patience: Patience) -> None:
        self._store = store
        self._log = log
        self._half_seconds = interval_seconds / 2
        self._patience = patience
        self._clear_at = -math.inf

    def now(self) -> float:
        return self._patience.boot()

    @property
    def stale(self) -> bool:
        """Whether an answer that has just come can't be gone by, until the boundaries were listed."""
        return self.now() - self._clear_at >= self._half_seconds

    def clear(self, at: float) -> None:
        """At that time no boundary was above the next slot."""
        self._clear_at = max(self._clear_at, at)

    async def read(self) -> int:
        """The first slot that stays: 0 where nothing was ever collected. Raises Corrupt, Unavailable."""
        prefix = f"logs/{self._log}/boundary/"
        keys = await retried(f"list {prefix}", lambda: self._store.list(prefix, limit=1), self._patience)
        return await self.at(keys[0]) if keys else 0

    async def at(self, key: str) -> int:
        """What the boundary of that key says. Raises Corrupt, Unsupported, Unavailable."""
        return (await read_boundary(self._store, key, self._patience)).slot

    def refuse(self, slot: int) -> UsageError:
        """What to say to whoever would open the log."""
        if slot == OVER:
            over = LogIsOver(f"log {self._log} is over: its volume was removed, and nothing of it is left")
            over.log = self._log
            return over
        return Unsupported(
            f"log {self._log} begins at slot {slot}, since what was before is collected, and its newest entries name "
            "no rollup that covers that: put back what was lost of them, or upgrade"
        )
