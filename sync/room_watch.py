"""Room watch: when whoever changes a home looks whether room is to be given back, and when that is let be.

Giving back may take long, and again and again: a hole costs some disks far more than the page is worth, what somebody
reads stays due, and what was given back is soon taken anew. So by the way it takes a share of the time, whatever state
the file is in: before the next look passes a multiple of what the last one took.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from .commit_journal import MAX_BYTES as JOURNAL_BYTES

_LOOK_EVERY: Final = 256
"""Updates between two looks, where nothing is due."""
REST: Final = 10
"""Times what a look took, which pass before the next one."""


class RoomWatch:
    """Of one environment. `give_back` gives back what is free but for so many bytes, and says whether that left much:
    free_room.py.
    """

    def __init__(self, give_back: Callable[[int], bool], clock: Callable[[], float] = time.monotonic) -> None:
        self.has_room = True
        """The last look left nothing to be given back, and none was put off since."""
        self._give_back = give_back
        self._clock = clock
        self._updates = 0
        """Since the last look."""
        self._rests_until = 0.0

    def updated(self, *, moved: bool) -> None:
        """After each transaction. One that `moved` commits out of the journal spares what the next one may take: else
        each move pays for the holes of the one before.
        """
        self._updates += 1
        if moved or not self.has_room or self._updates >= _LOOK_EVERY:
            self.catch_up(JOURNAL_BYTES if moved else 0)

    def catch_up(self, spare_bytes: int = 0) -> None:
        """A look, or, where the last one took so long that it isn't time for another yet, one that is put off."""
        began = self._clock()
        if began >= self._rests_until:
            self._look(spare_bytes)
            ended = self._clock()
            self._rests_until = ended + REST * (ended - began)
        else:
            self.has_room = False

    def look(self) -> None:
        """For whoever has changed much: at once. What a view of its own still holds follows as soon as that is gone."""
        self._look(0)
        self._rests_until = 0.0

    def _look(self, spare_bytes: int) -> None:
        self._updates = 0
        self.has_room = not self._give_back(spare_bytes)
