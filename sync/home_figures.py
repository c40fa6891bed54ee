"""Home figures: what of a home its operator wants to see: above all, for how long something was committed here that the
remote doesn't have.

There are as many figures for a thousand volumes as for one. What they are read from, heads and the first unpushed
commit of each volume, is a few reads of LMDB each.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ..volume.errors import NotFound
from .exposition import Distribution, Figures
from .tables import DIVERGED

if TYPE_CHECKING:
    from .local_volume import Local
    from .volume import Volume

PREFIX: Final = "budwood_edge_"


def home_figures(volumes: list[Volume], *, now: Callable[[], float] = time.time) -> dict[str, float]:
    """Of these volumes, all together. Raises Corrupt."""
    unpushed = commits = diverged = pending = 0
    oldest_ms = 0
    for volume in volumes:
        try:
            head, _, push = volume.local.sync_state()
            if head.unpushed:
                first_ms = _first_unpushed_ms(volume.local)
                oldest_ms = min(oldest_ms or first_ms, first_ms)
        except NotFound:
            # It has just been removed.
            continue
        unpushed += head.unpushed > 0
        commits += head.unpushed
        diverged += head.state == DIVERGED
        pending += push is not None
    return {
        "volumes": len(volumes),
        "volumes_unpushed": unpushed,
        "volumes_diverged": diverged,
        "unpushed_commits": commits,
        "unpushed_oldest_seconds": max(0.0, now() - oldest_ms / 1000) if oldest_ms else 0.0,
        "pushes_pending": pending,
    }


def _first_unpushed_ms(local: Local) -> int:
    """When the oldest commit was made that the remote doesn't have; 0 if that has just changed."""
    with local.environment.look() as (txn, tail):
        head, part = local.head(txn), tail.volumes.get(local.raw)
        for _, commit in local.commits(txn, head.sync_local, min(head.lsn, head.sync_local + 1)):
            return commit.time_ms
        return part.commits[0][1].time_ms if part and part.commits else 0


@dataclass(slots=True)
class SyncCounts:
    """What a process that syncs a home has done since it began. For several threads."""

    pushes: Distribution = field(default_factory=Distribution)
    pulls: Distribution = field(default_factory=Distribution)
    """Those that had something to pull."""
    failures: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def pushed(self, seconds: float) -> None:
        with self._lock:
            self.pushes.note(seconds)

    def pulled(self, seconds: float) -> None:
        with self._lock:
            self.pulls.note(seconds)

    def failed(self) -> None:
        with self._lock:
            self.failures += 1

    def figures(self) -> Figures:
        with self._lock:
            return {
                "push_seconds": Distribution(self.pushes.sum_seconds, [*self.pushes.counts]),
                "pull_seconds": Distribution(self.pulls.sum_seconds, [*self.pulls.counts]),
                "sync_failures_total": self.failures,
            }
