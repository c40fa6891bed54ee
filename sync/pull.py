"""Pull: the sync point moves to the remote's head. No page travels; what changed is fetched when it is read.

Of the pages that changed, every one that has any row here, markers included, gets a PENDING row at the new local LSN:
O(changed ∩ known here), by leaps over both. Pages without a row need none, since the sync point says where they come
from. Which pages have a row is looked up *in the transaction that moves the head*: a reader may save a page of the old
sync point at any moment before it, and that page would else be taken for the new one's (B10).

A remote that has less than was seen of it has lost commits: Corrupt, and nothing moves back.

Refused while unpushed commits stand against newer remote ones (Diverged). A push whose outcome is open is settled
first: it may be what moved the remote. The caller holds the volume's sync lock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TypeAlias

import msgspec

from ..volume import faults
from ..volume.calls import PULL_CHANGES, SNAPSHOT, RangeRequest, SnapshotRequest
from ..volume.errors import BudwoodError, Conflict, Forgotten, NotFound, Unavailable
from ..volume.ids import VolumeId
from ..volume.pageset import PageSet, decode_pages, encode_pages, page_count, span
from ..volume.wire import Changes, SnapshotInfo
from .connection import Connection, origin
from .local_volume import Local, SyncState
from .push import Sleep, diverged, settle
from .rows import PENDING, known
from .stage import Batch, apply, tidy
from .tables import DIVERGED, Discarded, Head, Txn, VolumeRecord
from .volume_keys import take_header

BATCH_PAGES = 8192
"""Markers that go into one LMDB transaction. Tests make it small."""

ASKED = faults.point("pull: changes known, head not moved")
LOOKED = faults.point("pull: rows looked up, head not moved")
MOVED = faults.point("pull: head moved, caller not told")


Move: TypeAlias = Callable[[Callable[[], Head]], Head]
"""Calls the step that moves the head, once, and returns what it returns: for whoever has to hold readers back while it
happens. The step asks nothing of the network.
"""


Mover: TypeAlias = Callable[[VolumeId, bool], Move]
"""By volume, and whether it moves to another history."""


def at_once(step: Callable[[], Head]) -> Head:
    return step()


def moves_at_once(_vid: VolumeId, _apart: bool) -> Move:
    return at_once


def pull(
    local: Local, connection: Connection, state: SyncState, *, move: Move = at_once, sleep: Sleep = time.sleep
) -> Head:
    """The head afterwards. Raises Diverged, Busy while a transaction is writing here, Unavailable."""
    head = state.head if state.is_under_way else settle(local, connection, state, sleep=sleep)
    # A push that was settled has moved the sync point, and the record with it.
    record = state.record if state.pending is None else local.record()
    changes = changes_since(local, connection, record, head)
    if changes is None or changes.snapshot.lsn == head.sync_remote:
        return head
    if head.unpushed:
        settle(local, connection, local.sync_state(), sleep=sleep)
        after = _mark_diverged(local)
        forgotten = changes.snapshot.since > head.sync_remote and _is_forgotten(connection, record, head)
        raise diverged(local.name, after, is_forgotten=forgotten)
    ASKED()
    to, changed = changes.snapshot, decode_pages(connection.url, changes.pages)

    def step() -> Head:
        with local.write_lock():
            now = tidy(local)
            if now.unpushed:
                raise diverged(local.name, _mark_diverged(local))
            if now.sync_remote != head.sync_remote:
                raise Conflict(f"volume {local.name!r} was synced by someone else meanwhile: pull again")
            return mark_changed(local, now, to, changed, now.generation)

    after = move(step)
    MOVED()
    return after


def changes_since(local: Local, connection: Connection, record: VolumeRecord, head: Head) -> Changes | None:
    """What the remote has that the sync point has not; None if it never had the volume, and can't fork it any more."""
    if record.remote != connection.url:
        connection.check(record)
    if not record.created and not record.parent:
        return None
    try:
        if record.created:
            changes = connection.remote.ask(PULL_CHANGES, RangeRequest(local.vid.raw, after=head.sync_remote))
        else:
            # A fork that the remote doesn't have yet: nobody but us can have changed it.
            info = connection.remote.ask(SNAPSHOT, SnapshotRequest(origin(record).raw, lsn=record.parent_lsn))
            changes = Changes(snapshot=info, pages=PageSet().serialize())
    except NotFound as error:
        raise connection.mend(record, error, seen=head.sync_remote) from None
    except Forgotten:
        if not record.created:
            return None
        changes = _everything(local, connection, head)
    if record.created:
        connection.check_there(record, changes.snapshot)
    if changes.snapshot.lsn < head.sync_remote:
        connection.check_seen(record, head.sync_remote)
        raise Unavailable(
            f"{connection.url} answers with LSN {changes.snapshot.lsn} of {local.name!r}, and {head.sync_remote} "
            "was seen before: it lags behind; try again"
        )
    take_header(local, connection.url, record, changes.snapshot)
    same = changes.snapshot.lsn == head.sync_remote
    connection.check_same(record, head.sync_remote, changes.snapshot.time if same else changes.after_time)
    if record.created and record.remote != connection.url:
        # The same store under a new URL.
        local.change_record(remote=connection.url, store=connection.store)
    return changes


def _is_forgotten(connection: Connection, record: VolumeRecord, head: Head) -> bool:
    """Whether the remote says that it can't read the sync point any more: then what was never fetched of it is gone."""
    try:
        connection.remote.ask(SNAPSHOT, SnapshotRequest(origin(record).raw, lsn=head.sync_remote))
    except Forgotten:
        return True
    except BudwoodError:
        # Whoever is told of the divergence need not know.
        return False
    return False


def _everything(local: Local, connection: Connection, head: Head) -> Changes:
    """Where the remote has forgotten the sync point, what changed since can't be told any more: any page may have."""
    changes = connection.remote.ask(PULL_CHANGES, RangeRequest(local.vid.raw))
    to, page_size = changes.snapshot, changes.snapshot.page_size
    last = page_count(max(head.length, to.length), page_size)
    pages = decode_pages(connection.url, changes.pages) | span(1, last)
    return msgspec.structs.replace(changes, pages=encode_pages(pages))


def mark_changed(
    local: Local,
    head: Head,
    to: SnapshotInfo,
    changed: PageSet,
    generation: int,
    also: Callable[[Txn, Head], Head] = lambda _, head: head,
) -> Head:
    """Move the head of `local` to the remote snapshot `to`: one local LSN, all or nothing. The caller holds the write
    lock and has tidied. `also` does what belongs to it in the same LMDB transaction, on that head.
    """
    lsn, page_size = head.lsn + 1, to.page_size
    with local.environment.view() as txn:
        already = known(local.rows(page_size), txn.cursor(local.environment.tables.tails), changed)
    LOOKED()
    staged = already if len(already) > BATCH_PAGES else PageSet()

    def publish(txn: Txn) -> Head:
        now = local.head(txn)
        if now != head:
            raise Conflict(f"volume {local.name!r} was changed by someone else meanwhile: try again")
        local.check_newest(txn, now)
        editor = local.editor(txn, page_size)
        late = editor.known(changed - staged)
        editor.mark(late, lsn, PENDING)
        editor.check(late, lsn)
        editor.prune(late, lsn, None)
        local.drop_commits(txn, 0, now.lsn)
        after = Head(
            lsn=lsn,
            length=to.length,
            sync_remote=to.lsn,
            sync_local=lsn,
            floor=to.length,
            page_size=page_size,
            generation=generation,
            unpushed=0,
            state=0,
        )
        local.put_head(txn, after)
        record = msgspec.structs.replace(local.record(txn), synced_ms=to.time)
        if generation != now.generation:
            discarded = Discarded(generation=now.generation, after=now.sync_local)
            record = msgspec.structs.replace(record, discarded=discarded)
        local.put_record(txn, record)
        return also(txn, after)

    return apply(local, lsn, page_size, _marks(staged), publish, durable=True)


def _marks(pages: PageSet) -> Iterator[Batch]:
    remaining = iter(pages)
    while chunk := list(islice(remaining, BATCH_PAGES)):
        yield Batch((), PageSet(chunk), PENDING)


def _mark_diverged(local: Local) -> Head:
    def mark(txn: Txn) -> Head:
        after = local.head(txn)._replace(state=DIVERGED)
        local.put_head(txn, after)
        return after

    return local.environment.update(mark)
