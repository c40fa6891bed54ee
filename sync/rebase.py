"""Rebase: what is unpushed is made anew on the remote's newest snapshot, as one commit.

How it is made anew is the caller's to know (rows/replay.py), who is given both and answers with a change of the
remote's pages. Nothing is locked meanwhile but the volume's syncing; a program that commits in between has it begun
again. Then, in one LMDB transaction, the head is the remote's with that one commit on it: a crash leaves all as it
was, or as it is. The local history before is another one, so the generation moves on, and whoever reads an older view
is told that it was discarded when he renews it.

The caller holds the volume's sync lock.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from typing import TypeAlias

from ..volume import faults
from ..volume.errors import Busy, Diverged, NotFound
from ..volume.pageset import decode_pages
from ..volume.wire import Changes, SnapshotInfo
from .change import Change
from .commit import commit_in
from .connection import Connection
from .fork import forking
from .local_volume import Local
from .name_table import check_free
from .pull import Move, at_once, changes_since, mark_changed
from .push import Sleep, settle
from .reset import touched
from .snapshot import LocalSnapshot, Misses
from .stage import tidy
from .tables import Head, Txn

MADE = faults.point("rebase: made anew, head not moved")
REBASED = faults.point("rebase: head moved, caller not told")

_TRIES = 8

Remake: TypeAlias = Callable[[LocalSnapshot, SnapshotInfo], Change | None]
"""Given what stands here, settled in LMDB, and what stands on the remote: what is to stand there on top; None for
nothing. May raise, with nothing changed."""


def rebase(
    local: Local,
    connection: Connection,
    misses: Misses,
    remake: Remake,
    *,
    keep_as: str | None = None,
    move: Move = at_once,
    sleep: Sleep = time.sleep,
) -> Head:
    """The head afterwards; as it was where nothing is unpushed, or the remote has nothing new. `keep_as` forks what is
    unpushed first. Raises Busy while a transaction is writing here, Unavailable, and what `remake` raises.
    """
    if keep_as is not None:
        check_free(local.environment, keep_as)
    try:
        head = settle(local, connection, local.sync_state(), sleep=sleep)
    except Diverged:
        head = local.peek()
    changes = changes_since(local, connection, local.record(), head)
    if changes is None:
        raise NotFound(f"volume {local.name!r} was never pushed: there is nothing to replay it on")
    if changes.snapshot.lsn == head.sync_remote:
        return head
    for _ in range(_TRIES):
        with closing(LocalSnapshot(local, misses, settled=True)) as mine:
            change = remake(mine, changes.snapshot) if mine.head.unpushed else None
            seen = mine.head
        MADE()
        with suppress(_MovedOn):
            after = move(partial(_take, local, connection, misses, changes, seen, change, keep_as))
            REBASED()
            return after
    raise Busy(f"volume {local.name!r} is being written all the time: replay it when that has ended")


class _MovedOn(Exception):
    """A program has committed meanwhile."""


def _take(
    local: Local,
    connection: Connection,
    misses: Misses,
    changes: Changes,
    seen: Head,
    change: Change | None,
    keep_as: str | None,
) -> Head:
    items = [] if change is None else list(change.items)

    with local.write_lock():
        tidy(local)
        with closing(LocalSnapshot(local, misses, settled=True)) as now:
            if (now.head.lsn, now.head.generation) != (seen.lsn, seen.generation):
                raise _MovedOn
            changed = decode_pages(connection.url, changes.pages) | touched(now)
            with forking(now, keep_as) as keep:

                def also(txn: Txn, after: Head) -> Head:
                    keep(txn)
                    return after if change is None else commit_in(local, txn, after, change, change.record, items)

                return mark_changed(local, now.head, changes.snapshot, changed, seen.generation + 1, also)
