"""Lease keeper: renews the leases on all volumes that an export reads, while it runs.

Tasks renew the leases of what they read; this keeps those whose turn hasn't come. One thread for all of them, since
there may be thousands.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

from ...volume.errors import BudwoodError
from ..source.lease import Lease
from .job import run_in_threads

__all__ = ["LeaseKeeper"]

_LOOKS: Final = 12
"""At a lease, in its time; it is renewed when less than half of that, or a quarter, is left."""


class LeaseKeeper:
    """A context manager: what is added is renewed while it is open and released at its end."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._held: list[Lease] = []
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="budwood-leases", daemon=True)

    def add(self, leases: Iterable[Lease | None]) -> None:
        with self._lock:
            self._held += [lease for lease in leases if lease is not None]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        # What can't be released lapses by itself.
        run_in_threads(self._held, Lease.release)

    def _keep(self) -> None:
        while not self._ended.wait(self._seconds / _LOOKS):
            with self._lock:
                held = list(self._held)
            for lease in held:
                # A lease that is lost is told by who reads next.
                with suppress(BudwoodError):
                    lease.renew_if_due()
