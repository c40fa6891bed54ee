"""Shared autosync: what several users of one edge in a process ask for is one part in the home's election.

    leave = shared.join(volume, "both", fork)       # the first one begins it
    leave()                                         # the last one ends it

A volume's divergence is dealt with as its last user said who is still there; nobody's is told. Another process of the
home may lead, and then goes by what was said there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ..volume.errors import BadInput
from .afterfork import ForkSafeLock
from .autosync import Autosync
from .divergence import Home, OnDiverged, fork, tell
from .merge import merging

if TYPE_CHECKING:
    from .volume import Volume

POLICIES: Final[dict[str, OnDiverged]] = {"tell": tell, "fork": fork, "merge": merging}


def policy_of(on_diverged: str | OnDiverged) -> OnDiverged:
    """Raises BadInput."""
    if callable(on_diverged):
        return on_diverged
    if on_diverged not in POLICIES:
        raise BadInput(f"on_diverged takes 'tell', 'fork', 'merge' or budwood.replaying(…), and not {on_diverged!r}")
    return POLICIES[on_diverged]


class SharedAutosync:
    """Of one edge, which stays open longer than whoever joined."""

    def __init__(self, edge: Home) -> None:
        self._edge = edge
        self._lock = ForkSafeLock()
        self._policies: dict[bytes, list[OnDiverged]] = {}
        self._running: Autosync | None = None

    def join(self, volume: Volume, mode: str, on_diverged: OnDiverged) -> Callable[[], None]:
        """Set the volume's sync mode, and sync the home, until what this gives is called. Raises BadInput."""
        volume.set_mode(mode)
        if mode == "disabled":
            return lambda: None
        vid = volume.id.raw
        with self._lock.held:
            self._policies.setdefault(vid, []).append(on_diverged)
            if self._running is None or not self._running.is_running:
                self._running = Autosync(self._edge, on_diverged=self._settle)

        def leave() -> None:
            with self._lock.held:
                self._policies[vid].remove(on_diverged)
                if not self._policies[vid]:
                    del self._policies[vid]
                ended = None
                if not self._policies:
                    ended, self._running = self._running, None
            if ended is not None:
                ended.close()

        return leave

    def _settle(self, edge: Home, volume: Volume) -> str:
        policies = self._policies.get(volume.id.raw)
        return (policies[-1] if policies else tell)(edge, volume)
