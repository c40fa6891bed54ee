"""Reset: take the remote's head, whatever was committed here since the sync point.

Refused while commits are unpushed unless told: `keep_as` forks them to a volume of their own first, `discard` drops
them. A push whose outcome is open is settled first, since it may have landed. The pages of the discarded commits get
PENDING rows like those that changed on the remote, and so do all rows beyond the least length in between; the
generation moves on, since the local history before is another one.

The fork becomes a volume in the transaction that moves the head: what was unpushed stands in one of the two, and in no
case in both. The caller holds the volume's sync lock.
"""

from __future__ import annotations

import time
from contextlib import closing

from ..volume import faults
from ..volume.errors import Diverged, NotFound
from ..volume.pageset import PageSet, decode_pages, page_count
from ..volume.wire import Changes
from .connection import Connection
from .fork import forking
from .local_volume import Local
from .name_table import check_free
from .pull import Move, at_once, changes_since, mark_changed
from .push import Sleep, settle
from .rows import known_after
from .snapshot import LocalSnapshot, Misses
from .stage import tidy
from .tables import Head, Txn

RESET = faults.point("reset: head moved, caller not told")


def reset(
    local: Local,
    connection: Connection,
    misses: Misses,
    *,
    keep_as: str | None = None,
    discard: bool = False,
    move: Move = at_once,
    sleep: Sleep = time.sleep,
) -> Head:
    """The head afterwards. Raises Diverged unless told what to do with unpushed commits, Busy while a transaction is
    writing here.
    """
    if keep_as is not None:
        check_free(local.environment, keep_as)
    try:
        head = settle(local, connection, local.sync_state(), sleep=sleep)
    except Diverged:
        head = local.peek()
    if head.unpushed and keep_as is None and not discard:
        raise _unwilling(local, head)
    changes = changes_since(local, connection, local.record(), head)
    if changes is None:
        raise NotFound(f"volume {local.name!r} was never pushed: there is no remote state to go back to")
    known = changes

    def step() -> Head:
        with local.write_lock():
            return _take(local, connection, misses, known, keep_as=keep_as, discard=discard)

    after = move(step)
    RESET()
    return after


def _take(
    local: Local, connection: Connection, misses: Misses, changes: Changes, *, keep_as: str | None, discard: bool
) -> Head:
    """The caller holds the write lock."""
    tidy(local)
    with closing(LocalSnapshot(local, misses, settled=True)) as snapshot:
        now = snapshot.head
        if now.unpushed and keep_as is None and not discard:
            raise _unwilling(local, now)
        if not now.unpushed and changes.snapshot.lsn == now.sync_remote:
            return now
        changed = decode_pages(connection.url, changes.pages) | touched(snapshot)
        with forking(snapshot, keep_as) as keep:

            def also(txn: Txn, after: Head) -> Head:
                keep(txn)
                return after

            return mark_changed(local, now, changes.snapshot, changed, now.generation + 1, also)


def touched(snapshot: LocalSnapshot) -> PageSet:
    """Every page whose row may not be the sync point's: what the unpushed commits wrote or cut off. Of a snapshot that
    is settled in LMDB."""
    head = snapshot.head
    if not head.unpushed:
        return PageSet()
    local, txn = snapshot.local, snapshot.transaction
    rows, tails = local.rows(head.page_size), txn.cursor(local.environment.tables.tails)
    return local.unpushed(txn, head) | known_after(rows, tails, page_count(head.floor, head.page_size))


def _unwilling(local: Local, head: Head) -> Diverged:
    return Diverged(
        f"volume {local.name!r} has {head.in_words}: keep them with "
        f"`budwood reset {local.name} --keep-as NEW`, or drop them with --discard"
    )
