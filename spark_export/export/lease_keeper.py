"""Leases: of all volumes that an export reads, kept while it runs.

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
from ..source.hold import Hold
from .job import side_by_side

__all__ = ["Leases"]

_LOOKS: Final = 12
"""At a lease, in its time; it is renewed when less than half of that, or a quarter, is left."""


class Leases:
    """A context manager: what is added is renewed while it is open and released at its end."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._held: list[Hold] = []
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="budwood-leases", daemon=True)

    def add(self, holds: Iterable[Hold | None]) -> None:
        with self._lock:
            self._held += [hold for hold in holds if hold is not None]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        # What can't be released lapses by itself.
        side_by_side(self._held, Hold.release)

    def _keep(self) -> None:
        while not self._ended.wait(self._seconds / _LOOKS):
            with self._lock:
                held = list(self._held)
            for hold in held:
                # A lease that is lost is told by who reads next.
                with suppress(BudwoodError):
                    hold.renew_if_due()
