"""Transitions: what becomes of what programs have written to a file, by the state that the file is in.

Programs write over a view, and nothing of that is a commit yet. What makes it one, or undoes it, is settled here alone,
for plain files and for SQLite in every journal mode. The states, the first that holds:

    STALE        the volume has become another history; who has the file open reads on, and writes fail
    ASTRAY       as BENEATH, and a program has written what no frame of the -wal holds: a backup is restored beside it
    BENEATH      a -wal is in use (wal_tail.py): what SQLite writes here is a checkpoint of what is committed there
    JOURNALED    a rollback journal is hot: a transaction is under way
    PLAIN        else; and once file and -wal are parted (wal_tail.py), two files as on any disk

**Journals** (FACTS, "SQLite's commit points seen from below"). SQLite writes the pages that a transaction is about to
change to `-journal`, then changes the file, then ends the journal in one step, and that step is the commit. A journal
is *hot* from the moment its first byte is not zero.

    journal_mode      the step that ends it
    DELETE            the journal is unlinked
    TRUNCATE          it is cut to nothing
    PERSIST           zeros are written over its header; EXCLUSIVE locking does the same, or cuts it
    MEMORY, OFF       there is none: the file's own fsync is the commit, or its close
    WAL               there is none: a frame with a commit mark is the commit

A rollback ends the journal the same way, after it has written back what was there: then no page has changed, and no
commit is made. The journal lies in an unlinked local file and is never flushed: it guards against a program that dies,
and uncommitted pages don't survive this process any more than the journal does.

The table knows nothing but this; writeback.py does what it says.
"""

from __future__ import annotations

from enum import Enum
from typing import Final


class State(Enum):
    PLAIN = "plain"
    JOURNALED = "journaled"
    BENEATH = "beneath a -wal"
    ASTRAY = "astray"
    STALE = "stale"


class Event(Enum):
    HEADER = "a journal's header is written"
    END = "its header is zeroed, or it is cut to nothing or unlinked"
    FSYNC = "the file is flushed to the disk"
    CLOSE = "whoever wrote to the file closes it"
    ABANDON = "the last handle on the file is gone"
    RESTART = "the -wal starts over, is cut to nothing or unlinked"
    OVERWRITE = "SQLite writes over commits in the -wal, or cuts them off, and keeps those before"


class Act(Enum):
    NOTHING = "nothing"
    BEGIN = "the journal is hot"
    COMMIT = "what was written becomes a commit"
    PROMISE = "the commit to come must survive a crash of the machine"
    ROLL_BACK = "what was written is forgotten"
    DRAIN = "the commits in the -wal reach the disk"
    REBASE = "the volume's head is shown, which has whatever was in the -wal"
    UNDO = "the volume gives up what those commits changed (wal_undo.py)"
    PART = "the volume becomes what the file's own bytes are, and the -wal a file beside it"
    REFUSE = "it fails, if anything was written that is no commit"


def _table() -> dict[tuple[State, Event], Act]:
    nothing, commit, part, refuse = Act.NOTHING, Act.COMMIT, Act.PART, Act.REFUSE
    # fmt: off
    rows = {
        #                 PLAIN      JOURNALED      BENEATH        ASTRAY         STALE
        Event.HEADER:    (Act.BEGIN, nothing,       nothing,       nothing,       nothing),
        Event.END:       (nothing,   commit,        nothing,       nothing,       refuse),
        Event.FSYNC:     (commit,    Act.PROMISE,   Act.DRAIN,     part,          refuse),
        Event.CLOSE:     (commit,    nothing,       nothing,       part,          refuse),
        # Where a journal is hot its program died within a transaction, and nobody is left who would roll it back.
        Event.ABANDON:   (commit,    Act.ROLL_BACK, Act.REBASE,    part,          Act.ROLL_BACK),
        Event.RESTART:   (commit,    commit,        Act.REBASE,    part,          nothing),
        Event.OVERWRITE: (nothing,   nothing,       Act.UNDO, Act.UNDO, nothing),
    }
    # fmt: on
    states = (State.PLAIN, State.JOURNALED, State.BENEATH, State.ASTRAY, State.STALE)
    return {(state, event): act for event, acts in rows.items() for state, act in zip(states, acts, strict=True)}


ACTS: Final = _table()


def event_of_write(offset: int, data: bytes) -> Event | None:
    """What a write to a journal means to its file: only its first byte tells."""
    if offset or not data:
        return None
    return Event.HEADER if data[0] else Event.END
