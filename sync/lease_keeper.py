"""Lease keeper: when an edge takes, renews and moves its leases (lease.py).

Nothing is asked for its own sake, and nobody waits for it:

- a fetch of pages at a sync point shows that the volume is read lazily here: it gets a lease;
- a push, a pull or a reset of a volume that has one moves it, if the sync point moved, and renews it, if less than half
  of it is left. A volume that has none, as one that is only written here, costs nothing;
- all of that happens `AFTER_SECONDS` later, in a thread that lives for as long as something is due: a sync point that
  moves again and again is leased once in that time. What is due when the edge is closed is done then.

A lease is a comfort: what keeps it from being had is met, and told, by whoever reads or syncs next.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from ..volume.errors import BudwoodError, Unavailable
from .afterfork import forgets
from .connection import Connection, may_wait
from .lease import is_due, keep_lease, lease_of, now_ms, release_leases
from .local_volume import Local
from .snapshot import Misses
from .tables import Head, SyncLease, VolumeRecord

AFTER_SECONDS = 300.0
"""Between a sync point's first fetch and its lease. Tests make it short."""


class _Due(NamedTuple):
    at: float
    local: Local
    connect: Callable[[], Connection]
    misses: Misses


class LeaseKeeper:
    """The leases of one edge. For any thread."""

    def __init__(self) -> None:
        self._kept: dict[bytes, SyncLease] = {}
        """As they were taken or renewed, by volume."""
        self._due: dict[bytes, _Due] = {}
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False
        forgets(self)

    def forget(self) -> None:
        """In a child after fork: what is due is the parent's to do."""
        self._kept, self._due = {}, {}
        self._changed = threading.Condition()
        self._thread = None

    def fetched(self, local: Local, head: Head, connect: Callable[[], Connection], misses: Misses) -> None:
        """Pages came from the remote at the head's sync point."""
        kept = self._kept.get(local.raw)
        if kept is None or kept.lsn != head.sync_remote or is_due(kept, now_ms()):
            self._note_due(local, connect, misses)

    def synced(
        self, local: Local, record: VolumeRecord, head: Head, connect: Callable[[], Connection], misses: Misses
    ) -> None:
        """The remote answered a push, a pull or a reset, which led to this head."""
        lease = lease_of(record, head)
        if record.leases and (len(record.leases) > 1 or lease is None or is_due(lease, now_ms())):
            self._note_due(local, connect, misses)

    def close(self) -> None:
        """Do what is due, now; once a remote doesn't answer, the rest is left to whoever comes next."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            thread = self._thread
        if thread is threading.current_thread() or not may_wait():
            return
        if thread is not None:
            thread.join()
        while (due := self._take(math.inf)) is not None and self._keep(due):
            pass

    def _note_due(self, local: Local, connect: Callable[[], Connection], misses: Misses) -> None:
        if local.environment.read_only:
            return
        with self._changed:
            if self._closed:
                return
            if local.raw not in self._due:
                self._due[local.raw] = _Due(time.monotonic() + AFTER_SECONDS, local, connect, misses)
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="budwood-leases", daemon=True)
                # Where there can be no more threads, it is done when the edge is closed.
                with suppress(RuntimeError):
                    thread.start()
                    self._thread = thread

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._closed and self._due:
                    first = min(due.at for due in self._due.values())
                    if (pause := first - time.monotonic()) <= 0:
                        break
                    self._changed.wait(pause)
                if self._closed or not self._due:
                    self._thread = None
                    return
            due = self._take(time.monotonic())
            if due is not None:
                self._keep(due)

    def _take(self, upto: float) -> _Due | None:
        with self._changed:
            due = next((due for due in self._due.values() if due.at <= upto), None)
            if due is not None:
                del self._due[due.local.raw]
        return due

    def _keep(self, due: _Due) -> bool:
        """Whether the remote answered, if it was asked."""
        try:
            lease = keep_lease(due.local, due.connect(), due.misses)
        except Unavailable:
            return False
        except BudwoodError:
            return True
        if lease is not None:
            self._kept[due.local.raw] = lease
        return True


def release_all(leases: tuple[SyncLease, ...], connect: Callable[[], Connection]) -> None:
    """Of a volume that is gone from this home; where the remote doesn't answer, they lapse."""
    if leases:
        with suppress(BudwoodError):
            release_leases(leases, connect())
