"""Locks: what SQLite's lock levels mean over a volume, as a table.

SQLite asks a file for levels, one above the other, and gives them back all at once. Here a reader locks nobody:
SHARED holds a view, RESERVED holds the volume's write lock, and EXCLUSIVE, by which SQLite waits for readers to
leave, changes nothing, since readers keep the view they have. PENDING is never asked for by name. A commit happens
at its own file control and not by a lock; so whoever falls below RESERVED with a writer still in hand has not
committed, and what was written is dropped.

    level      meaning                             entered by
    NONE       nothing held between transactions   unlock(NONE)
    SHARED     a view                              lock(SHARED)
    RESERVED   a view and the write lock           lock(RESERVED)
    EXCLUSIVE  as RESERVED                         lock(EXCLUSIVE), before pages are written, or by a recovery

Giving back to a level that isn't exceeded changes nothing: SQLite does so after errors. It asks for SHARED only where
it has nothing, and for RESERVED only where it has SHARED. If more is held, an exception kept an unlock from being made
(Ctrl-C in the call), which SQLite takes for done: it is made up for first.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import Final


class Lock(IntEnum):
    """SQLite's own numbers."""

    NONE = 0
    SHARED = 1
    RESERVED = 2
    EXCLUSIVE = 4


class Event(Enum):
    LOCK_SHARED = "lock shared"
    LOCK_RESERVED = "lock reserved"
    LOCK_EXCLUSIVE = "lock exclusive"
    UNLOCK_SHARED = "unlock to shared"
    UNLOCK_NONE = "unlock to none"


class Act(Enum):
    """What has to succeed before the next level is entered."""

    NOTHING = "nothing"
    TAKE_VIEW = "take the newest view, or renew the one that was kept"
    TAKE_VIEW_ANEW = "the same, after an unlock to none that was never made"
    TAKE_WRITER = "take the write lock over the view, having dropped a writer that an unlock to shared was to drop"
    DROP_WRITER = "drop what was not committed, and the write lock"
    DROP_ALL = "drop what was not committed, the write lock, and rest the view"


TRANSITIONS: Final[dict[tuple[Lock, Event], tuple[Lock, Act]]] = {
    (Lock.NONE, Event.LOCK_SHARED): (Lock.SHARED, Act.TAKE_VIEW),
    (Lock.NONE, Event.UNLOCK_SHARED): (Lock.NONE, Act.NOTHING),
    (Lock.NONE, Event.UNLOCK_NONE): (Lock.NONE, Act.NOTHING),
    (Lock.SHARED, Event.LOCK_SHARED): (Lock.SHARED, Act.TAKE_VIEW_ANEW),
    (Lock.SHARED, Event.LOCK_RESERVED): (Lock.RESERVED, Act.TAKE_WRITER),
    (Lock.SHARED, Event.LOCK_EXCLUSIVE): (Lock.EXCLUSIVE, Act.TAKE_WRITER),
    (Lock.SHARED, Event.UNLOCK_SHARED): (Lock.SHARED, Act.NOTHING),
    (Lock.SHARED, Event.UNLOCK_NONE): (Lock.NONE, Act.DROP_ALL),
    (Lock.RESERVED, Event.LOCK_SHARED): (Lock.SHARED, Act.TAKE_VIEW_ANEW),
    (Lock.RESERVED, Event.LOCK_RESERVED): (Lock.RESERVED, Act.TAKE_WRITER),
    (Lock.RESERVED, Event.LOCK_EXCLUSIVE): (Lock.EXCLUSIVE, Act.NOTHING),
    (Lock.RESERVED, Event.UNLOCK_SHARED): (Lock.SHARED, Act.DROP_WRITER),
    (Lock.RESERVED, Event.UNLOCK_NONE): (Lock.NONE, Act.DROP_ALL),
    (Lock.EXCLUSIVE, Event.LOCK_SHARED): (Lock.SHARED, Act.TAKE_VIEW_ANEW),
    (Lock.EXCLUSIVE, Event.LOCK_RESERVED): (Lock.RESERVED, Act.TAKE_WRITER),
    (Lock.EXCLUSIVE, Event.LOCK_EXCLUSIVE): (Lock.EXCLUSIVE, Act.NOTHING),
    (Lock.EXCLUSIVE, Event.UNLOCK_SHARED): (Lock.SHARED, Act.DROP_WRITER),
    (Lock.EXCLUSIVE, Event.UNLOCK_NONE): (Lock.NONE, Act.DROP_ALL),
}
"""Missing are (NONE, LOCK_RESERVED) and (NONE, LOCK_EXCLUSIVE): nobody writes over a view that he doesn't have."""

_LOCKING: Final = {
    Lock.SHARED: Event.LOCK_SHARED,
    Lock.RESERVED: Event.LOCK_RESERVED,
    Lock.EXCLUSIVE: Event.LOCK_EXCLUSIVE,
}
_UNLOCKING: Final = {Lock.NONE: Event.UNLOCK_NONE, Lock.SHARED: Event.UNLOCK_SHARED}


LEVELS: Final = 8
"""`LOCKS` and `UNLOCKS` are the table again, by level held * LEVELS + level asked for: plain numbers, since each
transaction looks twice into them."""


def _by_level(events: dict[Lock, Event]) -> dict[int, tuple[int, Act]]:
    found: dict[int, tuple[int, Act]] = {}
    for held in Lock:
        for level, event in events.items():
            if (held, event) in TRANSITIONS:
                to, act = TRANSITIONS[held, event]
                found[held * LEVELS + level] = int(to), act
    return found


LOCKS: Final = _by_level(_LOCKING)
UNLOCKS: Final = _by_level(_UNLOCKING)
