"""Pins: the chains of volume/pins.py in a store.

- A revision is one create. Its answer lost, it is settled by what stands there; two that make the same one at once
  agree on whichever came first, and the other goes on from it.
- The tip of a chain is its first key, and counts if revision 0 is there, its last. So a pin is found by a listing of
  two keys; and whoever lists a volume's pins goes from the tip of one to its end and to the next pin, a page of keys at
  a time, whatever lies between. Those that ended are listed until they are collected, and then found by their ids
  alone.
- Collected revisions may be made anew by whoever slept (volume/pins.py). A collector waits the store's gc interval. So
  who makes a revision of a pin that was seen to stand so less than half of that before is sure of it; any other looks
  how the pin stands afterwards, and goes by that.
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
    ended_key,
    next_revision,
    overdue,
    parse_ended,
    parse_pin,
    pin_key,
    pins_prefix,
    revision_key,
    revision_of,
    seal_pin,
)
from ..store.protocol import Keys, Store
from ..store.retrying import PATIENT, Patience, create_settled, get_retried, retried
from ..store.root import GC_INTERVAL_SECONDS
from ..store.store_clock import StoreClock

BELIEVED_SECONDS: Final = 5.0
SKEW_SECONDS: Final = 30.0
"""How far clocks may lie apart."""

PINS_PAGE: Final = 1000
"""Keys of one listing: as many as an object store gives in one answer."""
_FIRST: Final = "/ffffffffffffffff"
"""What the key of revision 0 ends with: no later one of the pin sorts behind it."""
_PARALLEL: Final = 16
_REMEMBERED: Final = 1024
"""Volumes."""
_SEEN: Final = 16_384
"""Pins."""


class _Seen(NamedTuple):
    rev: int
    """-1: there was no such pin."""
    at: float


class _Known(NamedTuple):
    at: float
    """When the listing began."""
    boot: float
    """The same, by a clock that goes on while the machine sleeps."""
    tips: dict[str, Pin]
    """By key."""


class Pins:
    """Belongs to one event loop."""

    def __init__(
        self,
        store: Store,
        *,
        now_ms: Callable[[], int],
        clock: StoreClock | None = None,
        patience: Patience = PATIENT,
        skew_seconds: float = SKEW_SECONDS,
        gc_interval_seconds: float = GC_INTERVAL_SECONDS,
    ) -> None:
        """Nothing ends that is overdue by a clock that runs ahead of the store's."""
        self._store = store
        self._clock = clock
        self.now_ms = now_ms
        self._patience = patience
        self.skew_seconds = skew_seconds
        self._skew_ms = round(skew_seconds * 1000)
        self._half_seconds = gc_interval_seconds / 2
        self._known = LruCache[VolumeId, _Known](_REMEMBERED)
        self._seen = LruCache[bytes, _Seen](_SEEN)
        """How each stood, and when that was asked."""
        self.on_change: Callable[[VolumeId], None] = lambda _: None
        """Told of each volume that this process makes a revision for."""

    async def create(self, pin: Pin) -> Pin:
        """How the pin stands afterwards: this, or what another made of it."""
        key, vid, asked_at = pin_key(pin), VolumeId(pin.vid), self._patience.boot()
        seen = self._seen.get(pin.id)
        self.on_change(vid)
        try:
            found = await create_settled(self._store, key, seal_pin(pin), self._patience)
        except NotFound as error:
            raise Unavailable(str(error), determinate=False) from error
        if seen is None or seen.rev != pin.rev - 1 or self._is_old(seen.at):
            return await self.settled(vid, pin.pin_id)
        stands = pin if found is None else parse_pin(key, found)
        self._seen.put(pin.id, _Seen(stands.rev, asked_at))
        known = self._known.get(vid)
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
        """The newest revision that counts, or the one that it ended with."""
        while True:
            asked_at = self._patience.boot()
            tip = await self._tip(vid, pin)
            if tip is None:
                self._seen.put(pin.raw, _Seen(-1, asked_at))
                return await self.ended(vid, pin)
            stands = await self._read(tip)
            if stands is not None:
                self._seen.put(pin.raw, _Seen(stands.rev, asked_at))
                return stands

    async def ended(self, vid: VolumeId, pin: PinId) -> Pin | None:
        """What is left of a pin that has ended and was collected."""
        key = ended_key(vid, pin)
        try:
            return parse_ended(key, await get_retried(self._store, key, patience=self._patience))
        except NotFound:
            return None

    async def settled(self, vid: VolumeId, pin: PinId) -> Pin:
        """How a pin stands that was changed a moment ago, by whoever may have slept over it. If it was collected
        before, what was made anew ends."""
        over = await self.ended(vid, pin)
        while True:
            stands = await self.find(vid, pin)
            if stands is None:
                raise Unavailable(f"pin {pin} was collected meanwhile: ask for it again", determinate=False)
            if over is None or not stands.holds:
                return stands
            await self.change(stands, PinEvent.RELEASE)

    async def all(self, vid: VolumeId) -> list[Pin]:
        """Every pin of the volume as it stands, the ended ones included, oldest first; none that stands is overdue."""
        before = self._known.get(vid)
        begun, boot, tips = self._patience.now(), self._patience.boot(), dict[str, Pin]()
        if before is not None and self._is_old(before.boot):
            before = None
        newest = await self._tips(vid)
        limit = anyio.Semaphore(_PARALLEL)
        failures: list[Exception] = []

        async def read(key: str) -> None:
            try:
                async with limit:
                    known = before.tips.get(key) if before else None
                    pin = known or await self._read(key)
                    if pin is None:
                        # Another was made, or it has ended and is being collected.
                        _, _, _, text, _ = key.split("/")
                        pin = await self.find(vid, PinId.parse(text))
                    if pin is not None:
                        self._seen.put(pin.id, _Seen(pin.rev, boot))
                        tips[key] = await self._ended(pin)
            except Exception as error:
                failures.append(error)
                tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            for key in newest:
                tasks.start_soon(read, key)
        if failures:
            raise failures[0]
        found = {pin_key(pin): pin for pin in tips.values()}
        self._known.put(vid, _Known(begun, boot, found))
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
                if self._clock is not None:
                    await self._clock.check()
                pin = await self.change(pin, PinEvent.EXPIRE)
            except (StoreError, Unauthorized):
                # Whether it has ended, or is to, isn't known: then it holds.
                break
        return pin

    async def _tips(self, vid: VolumeId) -> Keys:
        """The first key of each pin that counts: of one that was made before this was called, a revision no older than
        that."""
        tips: dict[str, str] = {}
        begun: set[str] = set()
        start, full = "", True
        while full:
            keys = await self._keys(pins_prefix(vid), start=start, limit=PINS_PAGE)
            for key in keys:
                chain, _, _ = key.rpartition("/")
                tips.setdefault(chain, key)
                if key.endswith(_FIRST):
                    begun.add(chain)
            full = len(keys) == PINS_PAGE
            if full:
                # On with the end of the last one's revisions, or behind it.
                chain, _, _ = keys[-1].rpartition("/")
                start = f"{keys[-1]}\0" if chain in begun else f"{chain}{_FIRST}"
        return [tip for chain, tip in tips.items() if chain in begun]

    async def _tip(self, vid: VolumeId, pin: PinId) -> str | None:
        """The first key of the pin, if that counts."""
        prefix, first = pins_prefix(vid, pin), revision_key(vid, pin, 0)
        keys = await self._keys(prefix, limit=2)
        if not keys or first in keys:
            return keys[0] if keys else None
        if len(keys) == 2 and revision_of(keys[0]) - revision_of(keys[1]) == 1:
            # Nothing has gone from below the newest yet.
            return keys[0]
        return keys[0] if first in await self._keys(first, limit=1) else None

    def _is_old(self, at: float) -> bool:
        return self._patience.boot() - at >= self._half_seconds

    async def _keys(self, prefix: str, *, start: str = "", limit: int) -> Keys:
        listed = partial(self._store.list, prefix, start=start, limit=limit)
        return await retried(f"list {prefix}", listed, self._patience)

    async def _read(self, key: str) -> Pin | None:
        """None where it is gone."""
        try:
            return parse_pin(key, await get_retried(self._store, key, patience=self._patience))
        except NotFound:
            return None


def _held(pins: Iterable[Pin], lsn: int) -> bool:
    return any(pin.lsn == lsn and pin.state is PinState.LIVE for pin in pins)
