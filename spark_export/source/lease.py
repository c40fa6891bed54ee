"""Lease: holds the LSN that a job reads, so that it can be read to the end however far `since` moves.

Whoever plans a job takes the lease, and it travels with the job's tasks: Spark tells a source when tasks begin, not
when the last has ended. So tasks renew it, as they begin and while they read, and it lapses by itself after the last of
them. Nobody renews while more than half of it is left, and each process draws for itself by how much less than half it
waits, so that a thousand tasks don't all ask at once.

A lease that has lapsed is taken anew: the LSN may still be readable, if nobody moved `since`; else it is Forgotten. A
renewal that gets no answer is tried again a while later, as long as the lease lasts: a job that can read needn't fail.

Of LSN 0, the empty volume, nothing can be forgotten; and who gives a lease of 0 seconds wants none, because nothing is
forgotten there, or because he may only read. Such a Lease is never renewed.
"""

from __future__ import annotations

import random
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from ...tables.page_source import PageSource
from ...volume.calls import PIN, RENEW, UNPIN, PinRequest, RenewRequest, UnpinRequest
from ...volume.errors import BudwoodError, Forgotten, NotFound, StoreError
from ...volume.ids import PinId, VolumeId
from ...volume.pageset import PageSet
from ...volume.pins import Pin
from .page_reader import open_volume
from .volume_ref import VolumeRef

LEASE_SECONDS: Final = 3600.0
_OWNER: Final = "a job in Spark"
_STILL_GOOD: Final = 0.75
"""Of a lease: what must be left of it to be given to another job, which renews it when it begins."""
_NEVER: Final = 1 << 62
_PAUSE: Final = 0.02
"""Of a lease, between two tries to renew it."""
_share: Final = random.uniform(0.25, 0.5)
"""Of a lease: what is left of it when this process renews it."""


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease; it pickles. `pinned` is the volume whose own the LSN is: of a fork's earlier ones, its parent."""

    ref: VolumeRef
    lsn: int
    pin: PinId
    pinned: VolumeId
    expiry_ms: int
    seconds: float

    @property
    def is_held(self) -> bool:
        """Whether there is a lease at all."""
        return self.lsn > 0 and self.seconds > 0

    def renew_if_due(self) -> None:
        """Costs nothing while enough of the lease is left. Raises Forgotten once it has lapsed and the LSN is gone."""
        now_ms = _now_ms()
        current = _renewed.get(self.pin, self)
        if current.expiry_ms - now_ms >= self.seconds * 1000 * _share or now_ms < _not_before_ms.get(self.pin, 0):
            return
        try:
            self.renew()
        except StoreError:
            if current.expiry_ms <= now_ms:
                raise
            _not_before_ms[self.pin] = now_ms + round(self.seconds * 1000 * _PAUSE)

    def renew(self) -> Lease:
        """The lease for its whole time from now on, or longer; the one to go on with."""
        if not self.is_held:
            return self
        current = _renewed.get(self.pin, self)
        try:
            request = RenewRequest(current.pinned.raw, pin=current.pin.raw, seconds=self.seconds)
            pinned = open_volume(self.ref).remote.ask(RENEW, request)
            renewed = _made(self.ref, pinned, self.lsn, self.seconds)
        except NotFound:
            renewed = take_lease(self.ref, self.lsn, self.seconds)
        for pin in [pin for pin, lease in list(_renewed.items()) if lease.expiry_ms < _now_ms()]:
            # Another thread may have done so.
            _renewed.pop(pin, None)
            _not_before_ms.pop(pin, None)
        _renewed[self.pin] = renewed
        return renewed

    def release(self) -> None:
        """Give it back; harmless if it has lapsed."""
        if not self.is_held:
            return
        current = _renewed.pop(self.pin, self)
        open_volume(self.ref).remote.ask(UNPIN, UnpinRequest(current.pinned.raw, pin=current.pin.raw))


_renewed: Final[dict[PinId, Lease]] = {}
"""What became of leases in this process."""
_shared: Final[dict[tuple[VolumeRef, int, float], Lease]] = {}
_not_before_ms: Final[dict[PinId, int]] = {}
"""Renewals that got no answer: when to try again."""


def take_lease(
    ref: VolumeRef, lsn: int, seconds: float = LEASE_SECONDS, owner: str = _OWNER, *, pin: PinId | None = None
) -> Lease:
    """Take a lease on an LSN; a repetition that names the same `pin` is harmless. Raises Forgotten, in words, if the
    LSN can't be read any more."""
    pin = pin or PinId.new()
    nothing = Lease(ref, lsn, pin, ref.vid, _NEVER, seconds)
    if not nothing.is_held:
        return nothing
    try:
        request = PinRequest(ref.vid.raw, pin=pin.raw, lsn=lsn, seconds=seconds, owner=owner)
        made = open_volume(ref).remote.ask(PIN, request)
    except Forgotten as error:
        raise forgotten(ref, lsn) from error
    return _made(ref, made, lsn, seconds)


def shared_lease(ref: VolumeRef, lsn: int, seconds: float = LEASE_SECONDS) -> Lease:
    """As `take_lease`, for leases that nobody releases: a table that is loaded a hundred times at one LSN takes one."""
    lease = _shared.get((ref, lsn, seconds))
    if lease is None or lease.expiry_ms - _now_ms() < seconds * 1000 * _STILL_GOOD:
        for key in [key for key, other in list(_shared.items()) if other.expiry_ms < _now_ms()]:
            _shared.pop(key, None)
        lease = take_lease(ref, lsn, seconds)
        if lease.is_held:
            _shared[ref, lsn, seconds] = lease
    return lease


class LeasedPages:
    """A source whose reader keeps the lease alive, however long it reads before it has a row to give. Answers the
    protocol tables.page_source.PageSource."""

    def __init__(self, source: PageSource, lease: Lease) -> None:
        self.page_size = source.page_size
        self.page_count = source.page_count
        self._source = source
        self._lease = lease

    def read(self, pages: PageSet) -> dict[int, bytes]:
        self._lease.renew_if_due()
        return self._source.read(pages)


def forgotten(ref: VolumeRef, lsn: int) -> Forgotten:
    """What a job is told whose LSN is gone."""
    readable, oldest = "", 0
    with suppress(BudwoodError):
        newest = open_volume(ref).snapshot()
        oldest = newest.since
        readable = f": it can be read from LSN {newest.since} to {newest.upper - 1}"
    return Forgotten(
        f"LSN {lsn} of volume {ref.name!r} is forgotten, and no pin holds it{readable}; load the table again, or name"
        " another LSN with versionAsOf",
        oldest=oldest,
    )


def _made(ref: VolumeRef, pin: Pin, lsn: int, seconds: float) -> Lease:
    return Lease(ref, lsn, pin.pin_id, VolumeId(pin.vid), pin.expiry, seconds)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
