"""Pins: the chains of volume/pins.py in a store.

- A revision is one create. Its answer lost, it is settled by what stands there; two that make the same one at once
  agree on whichever came first, and the other goes on from it.
- The tip of a chain is its first key. So a pin is found by a listing of one key; and whoever lists a volume's pins goes
  from the tip of one to the next pin, a page of keys at a time, whatever lies between.
- Whoever lists pins ends those that are overdue, by a create like any other. If that can't be done now, they hold.
- What is asked often is answered from memory: revisions never change, so each is fetched once; and that an LSN is held
  is believed for `BELIEVED_SECONDS`. That it isn't is never believed: the pin may be new.

A pin goes on holding for so long in another process's memory after it ended. That is harmless while nothing is deleted
within that time of being announced (root.gc_interval_seconds).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, NamedTuple

import anyio
import msgspec

from ...volume.errors import NotFound, StoreError, Unauthorized, Unavailable
from ...volume.ids import PinId, VolumeId
from ...volume.lru_cache import LruCache
from ...volume.pins import (
    Pin,
    PinEvent,
    PinState,
    next_revision,
    overdue,
    parse_pin,
    pin_key,
    pins_prefix,
    seal_pin,
)
from ..store.protocol import Keys, Store
from ..store.retrying import PATIENT, Patience, create_settled, get_retried, retried

BELIEVED_SECONDS: Final = 5.0
SKEW_SECONDS: Final = 30.0
"""How far clocks may lie apart."""

PINS_PAGE: Final = 1000
"""Keys of one listing: as many as an object store gives in one answer."""
_PARALLEL: Final = 16
_REMEMBERED: Final = 1024
"""Volumes."""


class _Known(NamedTuple):
    at: float
    """When the listing began."""
    tips: dict[str, Pin]
    """By key."""


class Pins:
    """Belongs to one event loop."""

    def __init__(
        self,
        store: Store,
        *,
        now_ms: Callable[[], int],
        patience: Patience = PATIENT,
        skew_seconds: float = SKEW_SECONDS,
    ) -> None:
        self._store = store
        self.now_ms = now_ms
        self._patience = patience
        self.skew_seconds = skew_seconds
        self._skew_ms = round(skew_seconds * 1000)
        self._known = LruCache[VolumeId, _Known](_REMEMBERED)

    async def create(self, pin: Pin) -> Pin:
        """What stands under the pin's id and revision afterwards: this, or what another made of it."""
        key = pin_key(pin)
        try:
            found = await create_settled(self._store, key, seal_pin(pin), self._patience)
        except NotFound as error:
            raise Unavailable(str(error), determinate=False) from error
        stands = pin if found is None else parse_pin(key, found)
        known = self._known.get(VolumeId(pin.vid))
        if known is not None and stands.rev:
            known.tips.pop(pin_key(msgspec.structs.replace(stands, rev=stands.rev - 1)), None)
            known.tips[key] = stands
        return stands

    async def change(self, pin: Pin, event: PinEvent, *, expiry: int | None = None) -> Pin:
        """The next revision: by this event, or whatever another was quicker with. Only for what can happen to `pin`."""
        after = next_revision(pin, event, now_ms=self.now_ms(), expiry=expiry)
        assert after is not None, f"a pin that is {pin.state.value} can't {event.value}"
        return await self.create(after)

    async def find(self, vid: VolumeId, pin: PinId) -> Pin | None:
        """The newest revision."""
        keys = await self._keys(pins_prefix(vid, pin), limit=1)
        return await self._read(keys[0]) if keys else None

    async def all(self, vid: VolumeId) -> list[Pin]:
        """Every pin of the volume as it stands, the ended ones included, oldest first; none that stands is overdue."""
        before = self._known.get(vid)
        begun, tips = self._patience.now(), dict[str, Pin]()
        newest = await self._tips(vid)
        limit = anyio.Semaphore(_PARALLEL)
        failures: list[Exception] = []

        async def read(key: str) -> None:
            try:
                async with limit:
                    known = before.tips.get(key) if before else None
                    pin = known or await self._read(key)
                    tips[key] = pin = await self._ended(pin)
            except Exception as error:
                failures.append(error)
                tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            for key in newest:
                tasks.start_soon(read, key)
        if failures:
            raise failures[0]
        found = {pin_key(pin): pin for pin in tips.values()}
        self._known.put(vid, _Known(begun, found))
        return sorted(found.values(), key=lambda pin: pin.id)

    async def held(self, vid: VolumeId, lsn: int) -> bool:
        """Whether a live pin holds that LSN, or did a moment ago."""
        known = self._known.get(vid)
        if known is not None and known.at + BELIEVED_SECONDS > self._patience.now() and _held(known.tips.values(), lsn):
            return True
        return _held(await self.all(vid), lsn)

    async def _ended(self, pin: Pin) -> Pin:
        """The pin, ended if it was overdue."""
        while overdue(pin, self.now_ms(), self._skew_ms):
            try:
                pin = await self.change(pin, PinEvent.EXPIRE)
            except (StoreError, Unauthorized):
                # Whether it ended isn't known: then it holds.
                break
        return pin

    async def _tips(self, vid: VolumeId) -> Keys:
        """The first key of each pin: of a pin that was made before this was called, a revision no older than that."""
        tips: dict[str, str] = {}
        start, full = "", True
        while full:
            keys = await self._keys(pins_prefix(vid), start=start, limit=PINS_PAGE)
            for key in keys:
                tips.setdefault(key.rpartition("/")[0], key)
            full = len(keys) == PINS_PAGE
            # Behind all revisions of the last one: "0" is the character after "/".
            start = f"{keys[-1].rpartition('/')[0]}0" if keys else ""
        return list(tips.values())

    async def _keys(self, prefix: str, *, start: str = "", limit: int) -> Keys:
        listed = partial(self._store.list, prefix, start=start, limit=limit)
        return await retried(f"list {prefix}", listed, self._patience)

    async def _read(self, key: str) -> Pin:
        try:
            return parse_pin(key, await get_retried(self._store, key, patience=self._patience))
        except NotFound:
            raise Unavailable(f"{key} was there a moment ago: try again") from None


def _held(pins: Iterable[Pin], lsn: int) -> bool:
    return any(pin.lsn == lsn and pin.state is PinState.LIVE for pin in pins)
