"""Names of volumes: under which names a volume is known, followed as the names change."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import anyio

from ...volume.calls import PULL_NAMES, PullNamesRequest
from ...volume.protocols import Remote
from ...volume.wire import NameDelta

STALE_SECONDS: Final = 10.0
"""After which a name that is gone gives no right any more."""
_PARTS: Final = 1_000
"""In one look, at most."""


class NamesOfVolumes:
    """Those of one organisation. About 200 bytes of memory a name, from the first look on."""

    def __init__(self, remote: Remote, org: str, now: Callable[[], float]) -> None:
        self._remote = remote
        self._org = org
        self._now = now
        self._looked_at = -math.inf
        self._head = 0
        self._targets: dict[str, bytes] = {}
        self._names: dict[bytes, frozenset[str]] = {}
        self._looking = anyio.Lock()

    async def of(self, vid: bytes, *, fresh: bool) -> frozenset[str]:
        """`fresh`: by all that stood when this was called; else `STALE_SECONDS` before, at most. Raises Corrupt,
        Unavailable."""
        if fresh or self._is_stale():
            async with self._looking:
                # Another may have looked while this one waited.
                if fresh or self._is_stale():
                    at = self._now()
                    await self._look()
                    self._looked_at = at
        return self._names.get(vid, frozenset())

    def _is_stale(self) -> bool:
        return self._now() >= self._looked_at + STALE_SECONDS

    async def _look(self) -> None:
        after, first = "", 0
        for _ in range(_PARTS):
            request = PullNamesRequest(since=self._head, after=after, org=self._org)
            part = await self._remote.ask(PULL_NAMES, request)
            first = first or part.head
            self._take(part, begins=not after)
            after = part.next
            if not after:
                break
        # What changed while parts were read is told again.
        self._head = first

    def _take(self, part: NameDelta, *, begins: bool) -> None:
        if not part.since and begins:
            self._targets, self._names = {}, {}
        stands = {entry.name for entry in part.entries}
        for gone in part.gone:
            below = [name for name in self._targets if name.startswith(gone)] if gone.endswith("/") else [gone]
            for name in below:
                if name not in stands:
                    self._put(name, None)
        for entry in part.entries:
            self._put(entry.name, entry.target)

    def _put(self, name: str, target: bytes | None) -> None:
        before = self._targets.pop(name, None)
        if before is not None:
            left = self._names[before] - {name}
            if left:
                self._names[before] = left
            else:
                del self._names[before]
        if target is not None:
            self._targets[name] = target
            self._names[target] = self._names.get(target, frozenset()) | {name}
