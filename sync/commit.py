"""Commit: a transaction's pages become the volume's next local commit.

These are the functions that make commits, so that their storage can change in one place. It fails if the head moved
since the snapshot; a commit without a change makes no LSN. All of a commit or nothing of it survives a crash; DURABLE
adds one flush, after which it survives a power loss. A small one goes into the journal (journaled_commit.py), any other
into LMDB itself. The caller holds the write lock.

Rows beyond the least length that the volume had within the commit go with it: nothing beyond the floor is read from the
store or the remote any more. Where a push on its way has captured such a page, an EMPTY row hides it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..volume import faults
from ..volume.pageset import PageSet, beyond, page_count
from ..volume.protocols import Durability
from .change import Change
from .journaled_commit import append, is_journaled, moved_on
from .local_volume import Local
from .rows import EMPTY, known_after
from .stage import apply, batches
from .tables import CommitRecord, Head, Txn

WRITTEN = faults.point("commit: about to be written")
COMMITTED = faults.point("commit: written, the writer not told")


def commit(
    local: Local,
    head: Head,
    change: Change,
    durability: Durability,
    *,
    also: Callable[[Txn], None] | None = None,
) -> Head:
    """The head after it; `also` writes what belongs to it, in the same LMDB transaction. Raises Conflict if `head`
    isn't the volume's any more, Full or another StoreError with the volume as it was.
    """
    WRITTEN()
    lsn = head.lsn + 1
    record = change.record
    if also is None and is_journaled(change, head):
        change = change._replace(items=(items := list(change.items)))
        appended = append(local, head, change, items, record, durability)
        if appended is not None:
            COMMITTED()
            return appended

    def publish(txn: Txn) -> Head:
        after = _advance(local, txn, _unmoved(local, txn, head), change, record)
        if also is not None:
            also(txn)
        return after

    after = apply(
        local,
        lsn,
        change.page_size,
        batches(change.items, change.page_size),
        publish,
        durable=durability is Durability.DURABLE,
    )
    COMMITTED()
    return after


def commit_all(
    local: Local, head: Head, changes: Sequence[Change], durability: Durability, *, also: Callable[[Txn], None]
) -> Head:
    """Several transactions, oldest first, in one LMDB transaction: each gets its LSN, as if committed by itself, and
    `also` writes what belongs to the last one. For changes that fit in memory; their `items` are gone through once.

    Raises what `commit` raises, with none of them made.
    """
    WRITTEN()
    records = [change.record for change in changes]
    rows = [_lasting(changes, number) for number in range(len(changes))]

    def publish(txn: Txn) -> Head:
        now = _unmoved(local, txn, head)
        for change, record, items in zip(changes, records, rows, strict=True):
            now = commit_in(local, txn, now, change, record, items)
        also(txn)
        return now

    after = local.environment.update(publish, durable=durability is Durability.DURABLE)
    COMMITTED()
    return after


def commit_in(
    local: Local, txn: Txn, now: Head, change: Change, record: CommitRecord, items: Sequence[tuple[int, bytes]]
) -> Head:
    """One commit on the head `now`, within the caller's LMDB transaction."""
    editor = local.editor(txn, change.page_size)
    editor.put(items, now.lsn + 1)
    pages = [page for page, _ in items]
    editor.check(pages, now.lsn + 1)
    editor.prune(pages, now.lsn + 1, local.keep(txn))
    return _advance(local, txn, now, change, record)


def _lasting(changes: Sequence[Change], number: int) -> list[tuple[int, bytes]]:
    """Of one change the pages that no later one writes again or cuts off: one version of a page is kept."""
    change = changes[number]
    lasting = PageSet(change.pages)
    for later in changes[number + 1 :]:
        lasting -= later.pages
        lasting -= beyond(lasting, page_count(later.floor, later.page_size))
    return [(page, data) for page, data in change.items if page in lasting]


def _unmoved(local: Local, txn: Txn, head: Head) -> Head:
    now = local.head(txn)
    if (now.lsn, now.generation) != (head.lsn, head.generation):
        raise moved_on(local, now)
    local.check_newest(txn, now)
    return now


def _advance(local: Local, txn: Txn, now: Head, change: Change, record: CommitRecord) -> Head:
    """The head moves on by one commit, whose rows are written."""
    lsn = now.lsn + 1
    if change.floor < now.length:
        _cut(local, txn, lsn, change)
    after = now.advanced(record)._replace(page_size=change.page_size)
    local.put_commit(txn, lsn, record)
    local.put_head(txn, after)
    return after


def _cut(local: Local, txn: Txn, lsn: int, change: Change) -> None:
    """Rows beyond the floor are no longer to be seen, but for those that the commit itself wrote."""
    keep, editor = local.keep(txn), local.editor(txn, change.page_size)
    tails, last = txn.cursor(local.environment.tables.tails), page_count(change.floor, change.page_size)
    gone = known_after(editor.rows, tails, last) - change.pages
    editor.prune(gone, lsn, keep, newest=False)
    if keep is not None:
        editor.mark(editor.known(gone), lsn, EMPTY)
