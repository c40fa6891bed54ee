"""Store clock: how far this machine's clock is from the store's, by when the store says that an object was made.

What goes by time (policies, leases, what waits to be deleted) goes by the clock of whoever does it. One that runs
ahead would forget too early what nothing brings back; so whoever forgets compares it with the store's before. A clock
that is behind does no harm: it forgets later.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Final, NamedTuple, Protocol, runtime_checkable

from ...volume.errors import NotFound, StoreError, Unauthorized, Unavailable
from ...volume.ids import StoreId
from .directory_store import FileStore
from .protocol import PlainStore, Store
from .retrying import Patience, create_settled, retried

BELIEVED_SECONDS: Final = 3600.0
"""So long a comparison counts, unless this machine's clock is set meanwhile."""

_logger: Final = logging.getLogger(__name__)


@runtime_checkable
class Dated(Protocol):
    """A store that tells when an object was made."""

    async def made_at(self, key: str) -> datetime: ...


def dated(store: Store | PlainStore | None) -> Dated | None:
    """The store that tells, behind those that stand before it; None where it is one that doesn't."""
    while store is not None and not isinstance(store, Dated):
        store = getattr(store, "inner", None) or getattr(store, "plain", None)
    return store


def ahead_of(made_at: datetime, before_ms: float, after_ms: float) -> float:
    """Seconds that our clock is ahead, below 0 if it is behind, where it stood so before and after the object was made;
    0 if they may be the same: the store may tell whole seconds.
    """
    told_ms = made_at.timestamp() * 1000
    most, least = after_ms - told_ms, before_ms - (told_ms + 1000)
    return 0.0 if least <= 0 <= most else min(least, most, key=abs) / 1000


class _Compared(NamedTuple):
    ahead_seconds: float
    wall: float
    boot: float
    """When that was, in seconds by the clock in question, and by one that nobody sets."""


class StoreClock:
    """Belongs to one event loop. `skew_seconds` is by how much clocks may differ."""

    def __init__(self, store: Store, now_ms: Callable[[], int], patience: Patience, *, skew_seconds: float) -> None:
        self._store = store
        self._now_ms = now_ms
        self._patience = patience
        self._skew_seconds = skew_seconds
        self._compared: _Compared | None = None

    async def check(self) -> None:
        """Whether what goes by time may go. Raises Unavailable if this machine's clock is ahead by more than clocks
        may differ, or if that can't be found out just now.
        """
        ahead = await self._ahead_seconds()
        if ahead > self._skew_seconds:
            raise Unavailable(
                f"this machine's clock is {_spelled(ahead)} ahead of that of {self._store.url}: until it is set, by "
                "NTP for instance, nothing is forgotten or deleted from here by it"
            )

    async def warn(self) -> None:
        """Log it if the clocks differ by more than they may."""
        try:
            ahead = await self._ahead_seconds()
        except StoreError:
            # Whoever needs it asks again.
            return
        if abs(ahead) > self._skew_seconds:
            way = "ahead of" if ahead > 0 else "behind"
            _logger.warning(
                "this machine's clock is %s %s that of %s: the times of commits are wrong until it is set, by "
                "for instance",
                _spelled(abs(ahead)),
                way,
                self._store.url,
            )

    async def _ahead_seconds(self) -> float:
        known = self._compared
        if known is None or known.ahead_seconds > self._skew_seconds or self._is_old(known):
            try:
                ahead = await self._compare()
            except Unauthorized:
                # It may do its work, and not make an object for this.
                ahead = 0.0
            known = self._compared = _Compared(ahead, self._now_ms() / 1000, self._patience.boot())
        return known.ahead_seconds

    def _is_old(self, known: _Compared) -> bool:
        passed = self._patience.boot() - known.boot
        was_set = self._now_ms() / 1000 - known.wall - passed
        return passed > BELIEVED_SECONDS or abs(was_set) > self._skew_seconds / 2

    async def _compare(self) -> float:
        store = dated(self._store)
        if store is None or isinstance(store, FileStore):
            # A directory has this machine's clock.
            return 0.0
        key = f"probe/{StoreId.new()}/clock"
        try:
            before = self._now_ms()
            await create_settled(self._store, key, b"", self._patience)
            after = self._now_ms()
            return ahead_of(await retried(f"date {key}", partial(store.made_at, key), self._patience), before, after)
        except NotFound as error:
            raise Unavailable(f"{self._store.url} doesn't show what was made there: {error}") from error
        finally:
            with suppress(StoreError):  # An empty object is left then.
                await self._store.delete(key)


def _spelled(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))
