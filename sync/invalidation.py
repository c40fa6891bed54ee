"""Invalidation: who has read what a replay or a reset then discarded is told so.

    volume.invalidation.on_invalidated = print          # or budwood.connect(…, on_invalidated=print)

A view of unpushed commits is a view of something that nobody else has. When they are made anew on the remote's newest,
kept elsewhere or dropped, what was read there may never have been. The reader is told when it takes its next view, and
before it has it: never within a transaction, and not of views of what is, or has become, the remote's. Which local LSNs
a reset discarded stands in the volume's record.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from .local_volume import Local
from .snapshot import LocalSnapshot
from .tables import Head


class Invalidated(NamedTuple):
    name: str
    """Of the volume."""
    lsn: str
    """As it was met: "7+2" is a view that two unpushed commits were in."""
    now: str
    """What is read from here on."""


OnInvalidated: TypeAlias = Callable[[Invalidated], object]
"""May raise: then the view isn't had, and the next try tells it again. It uses no connection that it is told by."""


class Invalidation:
    """What one reader of a volume has seen last. Not for two threads at once."""

    def __init__(self, local: Local) -> None:
        self._local = local
        self._seen: Head | None = None
        self.on_invalidated: OnInvalidated | None = None

    def taken(self, view: LocalSnapshot) -> LocalSnapshot:
        """The reader is about to have this view."""
        seen, now = self._seen, view.head
        if seen is not None and seen.generation != now.generation and self.on_invalidated is not None:
            try:
                if self._is_discarded(seen):
                    self.on_invalidated(Invalidated(self._local.name, seen.label, now.label))
            except BaseException:
                view.close()
                raise
        self._seen = now
        return view

    def _is_discarded(self, seen: Head) -> bool:
        discarded = self._local.record().discarded
        if discarded is None or discarded.generation != seen.generation:
            # An older reset's; of that it is known that whatever was unpushed may be gone.
            return seen.unpushed > 0
        return seen.lsn > discarded.after
