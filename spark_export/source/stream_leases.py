"""Stream leases: what a running stream holds: the LSN that it has come to, and the end of the batch that is under way.

A lease is taken before its LSN is written down, and its id is written down with it: so a query that is started again,
by whatever process, goes on with the same lease, and nothing is held by nobody. What was taken and not written down
lapses. A lease also outlives a query that is stopped, for its seconds, since it may be started again.

A thread renews while the query runs, whether batches come or not. (Tasks renew as well: see lease.py.) With leases of 0
seconds nothing is held, and an LSN counts as gone as soon as `since` has passed it.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Final

from ...volume.calls import UNPIN, UnpinRequest
from ...volume.errors import BadInput, BudwoodError, Forgotten
from ...volume.ids import PinId
from .lease import Lease, take_lease
from .page_reader import open_volume
from .volume_ref import VolumeRef

_OWNER: Final = "a stream in Spark"


class StreamLeases:
    """For the process that drives a stream; `close` ends its thread and lets go of nothing."""

    def __init__(self, ref: VolumeRef, seconds: float) -> None:
        self._ref = ref
        self._seconds = seconds
        self._held: dict[int, Lease] = {}
        self._lost: set[int] = set()
        self._released = 0
        """Below this LSN there is nothing left to let go of."""
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def take(self, lsn: int) -> str:
        """Lease an LSN; the lease's id, to be written down, if it needs one. Raises Forgotten."""
        lease = take_lease(self._ref, lsn, self._seconds, _OWNER)
        if not lease.is_held:
            return ""
        self._keep(lease)
        return str(lease.pin)

    def adopt(self, lsn: int, pin: str) -> bool:
        """Go on with the lease of that id, or with another where it has lapsed. False where the LSN is gone."""
        with self._lock:
            if lsn in self._held:
                return True
            if lsn in self._lost:
                return False
        try:
            lease = self._renewed(lsn, pin)
            if lease.is_held:
                self._keep(lease)
            elif lsn > 0:
                # Nobody holds it, so it is asked for each time.
                open_volume(self._ref).snapshot(lsn=lsn)
        except Forgotten:
            self._lost.add(lsn)
            return False
        return True

    def _renewed(self, lsn: int, pin: str) -> Lease:
        try:
            written = PinId.parse(pin)
        except BadInput:
            return take_lease(self._ref, lsn, self._seconds, _OWNER)
        # What is known of it is that it may have lapsed.
        return Lease(self._ref, lsn, written, self._ref.vid, 0, self._seconds).renew()

    def all(self) -> tuple[Lease, ...]:
        with self._lock:
            return tuple(self._held.values())

    def drop(self, lsn: int, pin: str) -> None:
        """Let go of a lease that an earlier process took; once, and it lapses anyway."""
        with self._lock:
            if lsn < self._released or lsn in self._held:
                return
            self._released = lsn + 1
        with suppress(BudwoodError):
            open_volume(self._ref).remote.ask(UNPIN, UnpinRequest(self._ref.vid.raw, pin=PinId.parse(pin).raw))

    def release_below(self, lsn: int) -> None:
        with self._lock:
            gone = [self._held.pop(at) for at in sorted(self._held) if at < lsn]
            self._released = max(self._released, lsn)
        for lease in gone:
            # It lapses by itself.
            with suppress(BudwoodError):
                lease.release()

    def close(self) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def _keep(self, lease: Lease) -> None:
        with self._lock:
            self._held[lease.lsn] = lease
        if self._thread is None:
            self._thread = threading.Thread(target=self._renew, name="budwood-stream-leases", daemon=True)
            self._thread.start()

    def _renew(self) -> None:
        while not self._ended.wait(self._seconds / 3):
            for lease in self.all():
                # Whoever reads the LSN says so if it is gone.
                with suppress(BudwoodError):
                    lease.renew()
