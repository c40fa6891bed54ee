"""Journal: when the end of a rollback journal is a commit (FACTS, "SQLite's commit points seen from below").

SQLite writes the pages that a transaction is about to change to `-journal`, then changes the file, then ends the
journal in one step, and that step is the commit. A journal is *hot* from the moment its first byte is not zero.

    journal_mode      the step that ends it
    DELETE            the journal is unlinked
    TRUNCATE          it is cut to nothing
    PERSIST           zeros are written over its header; EXCLUSIVE locking does the same, or cuts it
    MEMORY, OFF       there is none: the file's own fsync is the commit, or its close

A rollback ends the journal the same way, after it has written back what was there: then no page has changed, and no
commit is made. The journal lies in an unlinked local file and is never flushed: it guards against a program that dies,
and uncommitted pages don't survive this process any more than the journal does.

The table knows nothing but this; `File` acts on what it says.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

__all__ = ["TRANSITIONS", "Act", "Event", "Journal", "event_of_write"]


class Journal(Enum):
    COLD = "cold"
    """None, or an empty one, or one whose header was zeroed."""
    HOT = "hot"


class Event(Enum):
    HEADER = "a header is written"
    RECORD = "anything else is written"
    END = "the header is zeroed, the journal cut to nothing or unlinked"
    FSYNC = "the file is flushed to the disk"
    CLOSE = "whoever wrote to the file closes it"
    ABANDON = "the last handle on the file is gone"


class Act(Enum):
    NOTHING = "nothing"
    COMMIT = "commit what was written"
    NOTE = "the commit to come must survive a crash of the machine"
    ROLL_BACK = "forget what was written"


TRANSITIONS: Final[dict[tuple[Journal, Event], tuple[Journal, Act]]] = {
    (Journal.COLD, Event.HEADER): (Journal.HOT, Act.NOTHING),
    (Journal.COLD, Event.RECORD): (Journal.COLD, Act.NOTHING),
    (Journal.COLD, Event.END): (Journal.COLD, Act.NOTHING),
    (Journal.COLD, Event.FSYNC): (Journal.COLD, Act.COMMIT),
    (Journal.COLD, Event.CLOSE): (Journal.COLD, Act.COMMIT),
    (Journal.COLD, Event.ABANDON): (Journal.COLD, Act.COMMIT),
    (Journal.HOT, Event.HEADER): (Journal.HOT, Act.NOTHING),
    (Journal.HOT, Event.RECORD): (Journal.HOT, Act.NOTHING),
    (Journal.HOT, Event.END): (Journal.COLD, Act.COMMIT),
    (Journal.HOT, Event.FSYNC): (Journal.HOT, Act.NOTE),
    (Journal.HOT, Event.CLOSE): (Journal.HOT, Act.NOTHING),
    # The program died within a transaction, and nobody else has the file open who would roll it back.
    (Journal.HOT, Event.ABANDON): (Journal.COLD, Act.ROLL_BACK),
}


def event_of_write(offset: int, data: bytes) -> Event:
    """What a write to a journal is: only its first byte tells."""
    if offset or not data:
        return Event.RECORD
    return Event.HEADER if data[0] else Event.END
