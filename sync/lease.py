"""Lease: a pin of kind `sync` on a volume's sync point, so that its pages can be fetched whatever the remote forgets.

A home has one for each volume that it reads lazily. lease_keeper.py says when one is taken, renewed or moved; this file
how, and docs/design/0078-sync-leases.md why so.

What may stand on the remote is in the volume's record before it is asked for, and leaves it after it was released. So
a process that dies leaves a lease that the next one goes on with: the pin's id is the same, and asking twice is
harmless. Two processes that want one at once find each other's in the record.

    the sync point has none     recorded → pinned → its expiry recorded → the others released, each struck off
    less than half is left      renewed; or, where it has ended, struck off and pinned anew
    its maker died over it      likewise: it may stand, and how long is left of it isn't known
    every page of it is here    all are released: nothing is left to be fetched

The new LSN is pinned before the old one is released. How much of a lease is left goes by this home's clock alone, from
when it was asked for; where that clock was put back, more seems to be left than a lease ever has, and it is renewed.

Nobody waits long for an answer: after `ANSWER_SECONDS` the request is given up. What it may have made is in the record.

Crash windows (each a fault point, each cut by tests/fault/test_lease_killed.py).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from typing import Final

import msgspec

from ..volume import faults
from ..volume.calls import PIN, RENEW, UNPIN, A, Call, PinRequest, Q, RenewRequest, UnpinRequest
from ..volume.errors import Forgotten, NotFound, Unavailable
from ..volume.ids import PinId
from ..volume.pageset import page_count, span
from ..volume.pins import Pin, expiry_of
from .connection import Connection, origin
from .local_volume import Local
from .snapshot import LocalSnapshot, Misses
from .tables import Head, SyncLease, Txn, VolumeRecord

SECONDS: Final = 7 * 86_400.0
ANSWER_SECONDS = 10.0
"""For the remote's answer. Tests make it short."""
OWNER: Final = "an edge"
WHOLE_PAGES: Final = 4096
"""Of a volume of so many pages it is looked up whether any is missing; a larger one is taken to lack some."""
KIND: Final = "sync"

RECORDED = faults.point("lease: recorded, not asked for")
MADE = faults.point("lease: made, its expiry not recorded")
MOVED = faults.point("lease: moved, the old one not released")
RELEASED = faults.point("lease: released, still recorded")


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def is_due(lease: SyncLease, at_ms: int) -> bool:
    """Whether less than half of it is left, or more than there ever is, or it isn't known to stand."""
    return not SECONDS * 500 <= lease.expiry_ms - at_ms <= SECONDS * 1000


def lease_of(record: VolumeRecord, head: Head) -> SyncLease | None:
    """The one on this sync point, whether it stands or was only asked for."""
    return next((lease for lease in record.leases if lease.lsn == head.sync_remote), None)


def keep_lease(local: Local, connection: Connection, misses: Misses) -> SyncLease | None:
    """See that the sync point has a lease, and nothing else has. None where it needs none, or can't be held any more.
    Raises Unavailable, NotFound if the volume is gone.
    """
    before, is_wanted = _look(local, misses)
    if connection.url != before.remote:
        connection.check(before)
    lease = _recorded(local) if is_wanted else None
    if lease is not None and is_due(lease, now_ms()):
        RECORDED()
        try:
            lease = _stands(local, connection, lease, is_old=lease.pin in {other.pin for other in before.leases})
        except Forgotten:
            _strike(local, lease.pin)
            lease = None
    MOVED()
    # Those that were recorded before this began: another process may have moved on meanwhile, and knows better.
    others = [other for other in before.leases if lease is None or other.lsn != lease.lsn]
    release_leases(others, connection, lambda other: _strike(local, other.pin))
    return lease


def release_leases(
    leases: Iterable[SyncLease], connection: Connection, struck: Callable[[SyncLease], None] = lambda _lease: None
) -> None:
    """Hold these no more; each is told when that is so."""
    for lease in leases:
        _unpin(connection, lease)
        RELEASED()
        struck(lease)


def _look(local: Local, misses: Misses) -> tuple[VolumeRecord, bool]:
    """The record, and whether the sync point of that moment needs a lease."""
    with closing(LocalSnapshot(local, misses)) as snapshot:
        record, head = local.record(snapshot.transaction), snapshot.head
        is_forks = record.created and record.parent and head.sync_remote == record.parent_lsn
        if not head.sync_remote or not head.page_size or is_forks:
            # The empty volume is never forgotten, and where a fork starts its parent holds the LSN for ever.
            return record, False
        count = page_count(min(head.length, head.floor), head.page_size)
        return record, count > WHOLE_PAGES or (count > 0 and bool(snapshot.missing(span(1, count))))


def _recorded(local: Local) -> SyncLease | None:
    """The record of a lease on the sync point as it stands now; None where it has moved to the empty volume."""

    def record(txn: Txn) -> SyncLease | None:
        head, now = local.head(txn), local.record(txn)
        if not head.sync_remote:
            return None
        lease = lease_of(now, head)
        if lease is None:
            lease = SyncLease(pin=PinId.new().raw, vid=origin(now).raw, lsn=head.sync_remote)
            local.put_record(txn, msgspec.structs.replace(now, leases=(*now.leases, lease)))
        return lease

    return local.environment.update(record)


def _stands(local: Local, connection: Connection, lease: SyncLease, *, is_old: bool) -> SyncLease:
    """The lease for its whole time from now on. `is_old`: it may stand already. Raises Forgotten."""
    asked_ms = now_ms()
    if is_old:
        try:
            return _note(local, connection, lease, _renew(connection, lease), asked_ms)
        except NotFound:
            lease = _anew(local, lease)
    return _note(local, connection, lease, _pin(connection, lease), asked_ms)


def _renew(connection: Connection, lease: SyncLease) -> Pin:
    return ask_soon(connection, RENEW, RenewRequest(lease.vid, pin=lease.pin, seconds=SECONDS))


def _pin(connection: Connection, lease: SyncLease) -> Pin:
    request = PinRequest(lease.vid, pin=lease.pin, lsn=lease.lsn, seconds=SECONDS, owner=OWNER, kind=KIND)
    return ask_soon(connection, PIN, request)


def _unpin(connection: Connection, lease: SyncLease) -> None:
    try:
        ask_soon(connection, UNPIN, UnpinRequest(lease.vid, pin=lease.pin))
    except NotFound:
        # It was never made, or the volume is gone with all that held it.
        return


def ask_soon(connection: Connection, call: Call[Q, A], request: Q) -> A:
    """The answer, if it comes soon. Raises Unavailable."""
    ended = threading.Event()
    begun = connection.remote.begin(lambda remote: remote.ask(call, request), ended.set)
    try:
        if not ended.wait(ANSWER_SECONDS):
            raise Unavailable(f"{connection.url} did not answer within {ANSWER_SECONDS} s", determinate=False)
    except BaseException:
        begun.abandon()
        raise
    return begun.result()


def _anew(local: Local, lease: SyncLease) -> SyncLease:
    """The same lease under another pin, as the one that it had has ended: one of its own, or another process's."""
    after = SyncLease(pin=PinId.new().raw, vid=origin(local.record()).raw, lsn=lease.lsn)

    def replace(txn: Txn) -> SyncLease:
        now = local.record(txn)
        others = tuple(other for other in now.leases if other.pin != lease.pin)
        same = next((other for other in others if other.lsn == lease.lsn), None)
        leases = others if same is not None else (*others, after)
        local.put_record(txn, msgspec.structs.replace(now, leases=leases))
        return same or after

    return local.environment.update(replace)


def _note(local: Local, connection: Connection, lease: SyncLease, pin: Pin, asked_ms: int) -> SyncLease:
    MADE()
    after = msgspec.structs.replace(lease, vid=pin.vid, expiry_ms=expiry_of(SECONDS, asked_ms))
    if not _replace(local, lease.pin, after):
        # Another process moved on meanwhile, and may have released it before it stood.
        _unpin(connection, after)
    return after


def _strike(local: Local, pin: bytes) -> None:
    _replace(local, pin, None)


def _replace(local: Local, pin: bytes, after: SyncLease | None) -> bool:
    """Put `after` in the place of the lease with this pin; whether there was one."""

    def replace(txn: Txn) -> bool:
        now = local.record(txn)
        others = tuple(lease for lease in now.leases if lease.pin != pin)
        if len(others) == len(now.leases):
            return False
        leases = others if after is None else (*others, after)
        local.put_record(txn, msgspec.structs.replace(now, leases=leases))
        return True

    return local.environment.update(replace)
