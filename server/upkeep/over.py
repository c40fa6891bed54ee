"""Over: private logs whose volume was removed, and of which nothing is left but what the log itself says.

    nothing to collect, no birth, the newest fold has left nothing → a boundary behind every slot → it is due
    … the store's gc interval …
    delete all else of the log

The boundary stays for ever, as one small object: whoever slept over all of this would write the log anew otherwise. It
sorts first in its log, so that whoever lists logs passes over it (log/listing.py), and says what the log's rollup said:
that the volume was removed (removed.py). What is written behind it by somebody who hasn't heard is deleted by the next
turn (docs/design/0137-logs-that-are-over.md).

Any number of processes may do this at once, and any may be cut off at any step.

Crash window (a fault point): gc: log over, all of it there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from ...volume import faults
from ...volume.envelope import BOUNDARY, encode, seal
from ...volume.errors import NotFound
from ...volume.ids import VolumeId
from ..log.boundary import OVER, Boundary, boundary_key, read_boundary
from ..metastore.births import read_birth
from ..metastore.logs import Log, Logs
from ..store.retrying import create_settled, retried
from ..store.tree_nodes import loading
from .deletion import Deletion
from .removed import is_over

_LISTED: Final = 1000

_OVER: Final = faults.point("gc: log over, all of it there")


class Cleared(NamedTuple):
    deleted: int = 0
    """Objects."""
    due_ms: int = 0
    """When what is left may be deleted; 0 where nothing is."""


@dataclass(frozen=True, slots=True)
class OverLogs:
    logs: Logs
    wait_seconds: float
    """From the boundary on: the store's gc interval, and what clocks may differ by."""

    async def declare(self, log: Log) -> bool:
        """Whether the log is over, from now on if it wasn't: a private one of which nothing is to be collected. Raises
        Corrupt, Unavailable."""
        if not log.private or not await self._is_over(log):
            return False
        boundary = Boundary(log=log.name, slot=OVER, time=self.logs.now_ms())
        # Another's says the same, at another time.
        published = seal(BOUNDARY, encode(boundary))
        await create_settled(self.logs.store, boundary_key(log.name, OVER), published, self.logs.patience)
        _OVER()
        return True

    async def clear(
        self, name: str, *, most_a_second: float = 0.0, on_deleted: Callable[[int], None] = lambda _: None
    ) -> Cleared:
        """Delete what is left of a log that is over, but for its boundary, once that is due. Raises Corrupt,
        Unavailable."""
        store, patience = self.logs.store, self.logs.patience
        key, prefix = boundary_key(name, OVER), f"logs/{name}/"
        deletion = Deletion(store, patience, most_a_second, on_deleted)
        left = partial(store.list, prefix, start=f"{key}\0", limit=_LISTED)
        while keys := await retried(f"list {prefix}", left, patience):
            due_ms = (await read_boundary(store, key, patience)).time + round(1000 * self.wait_seconds)
            if self.logs.now_ms() < due_ms:
                return Cleared(deletion.count, due_ms)
            await deletion.of(keys)
        return Cleared(deletion.count)

    async def _is_over(self, log: Log) -> bool:
        """What is in memory is looked at first: of a volume that lives nothing more is asked."""
        vid, rolled = VolumeId.parse(log.name), log.rolled.as_it_is()
        first, second = await loading(rolled.next_stream), await loading(partial(rolled.next_stream, vid.raw))
        if first != vid.raw or second or not await is_over(self.logs, log.name, vid):
            return False
        try:
            await read_birth(self.logs.store, vid, self.logs.patience)
        except NotFound:
            return True
        return False
