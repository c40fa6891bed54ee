"""Lease keeper: renews the leases on all volumes that an export reads, while it runs.

Tasks renew the leases of what they read; this keeps those whose turn hasn't come. One thread for all of them, since
there may be thousands.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from typing import Final, Self

from ...volume.errors import BudwoodError
from ..source.lease import Lease
from .job import repeated, run_in_threads

_LOOKS: Final = 12
"""At a lease, in its time; it is renewed when less than half of that, or a quarter, is left."""


class LeaseKeeper:
    """What is added is renewed while `kept` is open, and released at its end."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._held: list[Lease] = []
        self._lock = threading.Lock()

    def add(self, leases: Iterable[Lease | None]) -> None:
        with self._lock:
            self._held += [lease for lease in leases if lease is not None]

    @contextmanager
    def kept(self) -> Generator[Self]:
        try:
            with repeated(self._renew, self._seconds / _LOOKS, "budwood-leases"):
                yield self
        finally:
            # What can't be released lapses by itself.
            run_in_threads(self._held, Lease.release)

    def _renew(self) -> None:
        with self._lock:
            held = list(self._held)
        for lease in held:
            # A lease that is lost is told by who reads next.
            with suppress(BudwoodError):
                lease.renew_if_due()
