"""Retention: which LSNs can be read, who holds one, and what may be collected (DESIGN §5; S2.14, S3.1, S3.15, B11).

Every LSN from `since` on can be read; one below it while a live pin or a fork holds it. Of the LSNs that a fork shares
with its parent the parent decides, so a pin on one lies with the parent: this file always looks at the volume whose
own an LSN is.

Both sides write first and check afterwards, so that one of them sees the other:

    pin       create the pin, asked → read the stream to its tip → if a `collect` has passed the LSN, release it again,
              unless another live pin or a fork holds the LSN, and so did at each collect → confirm
    collect   append `collect` → list the pins, and the forks that the stream has told of → delete what nobody holds →
              append `collected`

A pin that is asked for counts for a collector and not for a reader: it may have come after the list. It becomes live
only after the check, so a live pin's LSN is whole.

Crash windows (each a fault point): pin: asked, stream not read · pin: checked, not confirmed · pin: confirmed, caller
not told · remove: finished, nothing forgotten · collect: announced, pins not listed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from ...volume import faults
from ...volume.calls import PinRequest
from ...volume.errors import AlreadyExists, BadInput, Forgotten, NotFound
from ...volume.ids import PinId, VolumeId
from ...volume.pins import (
    FORK,
    OF_POLICIES,
    Pin,
    PinEvent,
    PinState,
    Wanted,
    attempts_of_label,
    check_label,
    check_pin,
    check_seconds,
    covers,
    expiry_of,
    id_for_fork,
    ids_of_policy,
    requested_pin,
)
from ...volume.retention_policy import RetentionPolicy, check_policy
from ..store.tree_nodes import loading
from .admission import (
    judge_collect,
    judge_collected,
    judge_removal,
    judge_retain,
    judge_since,
    judge_since_by,
)
from .appender import Appender
from .open_volume import Volume
from .open_volumes import Volumes
from .pin_store import Pins
from .state import forgotten, forgotten_at, removed

_ASKED: Final = faults.point("pin: asked, stream not read")
_CHECKED: Final = faults.point("pin: checked, not confirmed")
_CONFIRMED: Final = faults.point("pin: confirmed, caller not told")
_FINISHED: Final = faults.point("remove: finished, nothing forgotten")
_ANNOUNCED: Final = faults.point("collect: announced, pins not listed")


class Collecting(NamedTuple):
    """What may be deleted: whatever only LSNs below `since` need that are not in `held`."""

    since: int
    held: frozenset[int]


@dataclass(frozen=True, slots=True)
class Retention:
    volumes: Volumes
    pins: Pins
    appender: Appender

    async def check(self, volume: Volume, lsn: int) -> None:
        """Raises Forgotten if that LSN, which is not above the head, can't be read. Asks the store only below
        `since`."""
        if lsn >= volume.state.since or lsn <= 0:
            return
        own = await self._owner_of(volume, lsn)
        if lsn < own.state.since and not await _forked_at(own, lsn) and not await self.pins.held(own.vid, lsn):
            if volume.state.is_forgotten:
                raise removed(volume.state)
            raise forgotten(volume.state, lsn, await self.oldest(volume))

    async def kept_at(self, volume: Volume, at_ms: int) -> int:
        """The last LSN that is not later, by what policies hold: where it was folded, nothing else tells. Raises
        Forgotten."""
        own = volume
        while own.parent is not None and at_ms < own.birth.time:
            own = await self.volumes.parent_of(own)
        pins = [pin for pin in await self.pins.all(own.vid) if pin.state is PinState.LIVE and pin.kind in OF_POLICIES]
        stands = min((pin for pin in pins if pin.pin_id.time_ms >= at_ms), default=None, key=lambda pin: pin.id)
        if stands is None or (await loading(partial(own.history.at, stands.lsn))).time > at_ms:
            raise forgotten_at(volume.state, await self.oldest(volume))
        return stands.lsn

    async def check_all(self, volume: Volume, first: int, last: int) -> None:
        """As `check`, for each of [first, last]."""
        for lsn in range(first, min(last, volume.state.since - 1) + 1):
            await self.check(volume, lsn)

    async def oldest(self, volume: Volume) -> int:
        """The first of the LSNs that can all be read, up to the head."""
        while volume.parent is not None and volume.state.since <= volume.birth.parent_lsn:
            start, volume = volume.birth.parent_lsn, await self.volumes.parent_of(volume)
            if volume.state.since > start:
                return start
        return volume.state.since

    async def pin(self, request: PinRequest) -> Pin:
        """Repeating it with the same id, or label, is harmless. Raises BadInput, NotFound, Forgotten, AlreadyExists."""
        vid, lsn, label = VolumeId(request.vid), request.lsn, request.label
        check_pin(request.kind, request.owner, request.seconds)
        if label:
            check_label(label)
        pin = None if label else PinId(request.pin)
        volume = await self.volumes.get(vid, fresh=lsn is None)
        if lsn is None:
            lsn = volume.state.head
        elif lsn > volume.state.head:
            volume = await self.volumes.get(vid, confirm=True)
        if not 0 <= lsn <= volume.state.head:
            raise NotFound(f"volume {vid} has no LSN {lsn}; its newest is {volume.state.head}")
        expiry = expiry_of(request.seconds, self.pins.now_ms())
        wanted = Wanted(lsn=lsn, kind=request.kind, owner=request.owner, label=label, expiry=expiry)
        return await self._label(volume, wanted) if pin is None else await self._pin(volume, pin, wanted)

    async def labelled(self, vid: VolumeId, label: str) -> Pin:
        """The pin with that label: the volume's, or one that it shares with the volume it was forked from. Raises
        NotFound."""
        # A label on an LSN that this process has not seen goes before one of the same name that a fork shares.
        volume = await self.volumes.get(vid, fresh=True)
        upto = volume.state.head
        while True:
            tips = await self.pins.all(volume.vid)
            found = [pin for pin in tips if pin.label == label and pin.state is PinState.LIVE and pin.lsn <= upto]
            if found:
                return found[0]
            if volume.parent is None:
                raise NotFound(f"no LSN of volume {vid} is called {label!r}: `budwood pins` lists those that are")
            upto, volume = min(upto, volume.birth.parent_lsn), await self.volumes.parent_of(volume)

    async def hold_by_policy(self, volume: Volume, lsn: int, kind: str, at_ms: int, until_ms: int) -> bool:
        """Hold an LSN of the volume's own for its policy, whoever else does so too. False where somebody has released
        it, or it is forgotten already."""
        wanted = Wanted(lsn=lsn, kind=kind, expiry=until_ms)
        for pin in ids_of_policy(volume.vid, lsn, kind, at_ms):
            try:
                stands = await self._ask(volume, pin, wanted)
            except Forgotten:
                return False
            except AlreadyExists:
                continue
            if stands.state is PinState.LIVE:
                await self.extend(stands, until_ms)
            if stands.state is not PinState.EXPIRED:
                return stands.state is PinState.LIVE
        raise AssertionError("there is always another")

    async def extend(self, pin: Pin, until_ms: int) -> None:
        """A policy's pin ends then, sooner or later than it said."""
        while pin.state is PinState.LIVE and pin.expiry != until_ms:
            pin = await self.pins.change(pin, PinEvent.RENEW, expiry=until_ms)

    async def retain(self, vid: VolumeId, policy: RetentionPolicy | None) -> None:
        """The volume's own policy from here on; None: the store's default. Raises BadInput, NotFound."""
        if policy is not None:
            check_policy(policy)
        # Another process may have changed it: what stands is judged by what it says now.
        await self.volumes.get(vid, fresh=True)
        await self.appender.submit(vid, judge_retain(policy))

    async def hold_for_fork(self, volume: Volume, lsn: int, child: VolumeId) -> bytes:
        """The id of the pin that holds the LSN for a fork whose record can't, in the parent's stream alone; b"" where
        it can."""
        await self.check(volume, lsn)
        own = await self._owner_of(volume, lsn)
        if own is volume and lsn >= own.state.since:
            return b""
        pin = id_for_fork(child)
        return (await self._pin(volume, pin, Wanted(lsn=lsn, kind=FORK, owner=str(child), expiry=0))).id

    async def renew(self, vid: VolumeId, pin: PinId, seconds: float) -> Pin:
        """A lease that lasts for so long from now, at least. Raises NotFound if there is none, or it has ended."""
        check_seconds(seconds)
        volume, stands = await self._find(vid, pin)
        wanted = expiry_of(seconds, self.pins.now_ms())
        while True:
            if stands.kind in OF_POLICIES:
                raise BadInput(f"pin {pin} is the policy's, which says how long it holds: pin the LSN yourself")
            if stands.state is PinState.ASKED:
                # Whoever asked for it was cut off. This is a repetition.
                stands = await self._confirm(volume, stands, wanted)
            elif stands.state is not PinState.LIVE:
                raise _ended(stands)
            elif covers(stands.expiry, wanted):
                return stands
            else:
                stands = await self.pins.change(stands, PinEvent.RENEW, expiry=wanted)

    async def unpin(self, vid: VolumeId, pin: PinId) -> None:
        """Hold it no more; harmless if it has ended. Raises NotFound if there was none."""
        _, stands = await self._find(vid, pin)
        if stands.kind == FORK:
            raise BadInput(f"pin {pin} belongs to a fork, volume {stands.owner}: it can't be released")
        while stands.holds:
            stands = await self.pins.change(stands, PinEvent.RELEASE)

    async def list(self, vid: VolumeId) -> list[Pin]:
        """The pins that hold an LSN of this volume's own, oldest first, and a fork's record as the pin that it is.
        Raises NotFound."""
        held = {pin.id: pin for pin in await self.pins.all(vid) if pin.holds}
        volume = await self.volumes.get(vid, fresh=True)
        forks = [_fork_pin(volume, VolumeId(child), lsn) for child, lsn in await _forks(volume)]
        return sorted(({pin.id: pin for pin in forks} | held).values(), key=lambda pin: pin.id)

    async def advance(self, vid: VolumeId, since: int) -> int:
        """Forget the LSNs below `since`, but for those that are held; the since afterwards, which never goes back."""
        if since < 1:
            raise BadInput(f"since can't be {since}: LSNs start at 1")
        answer = await self.appender.submit(vid, judge_since(since))
        assert isinstance(answer, int)
        return answer

    async def forget_by_policy(self, vid: VolumeId, since: int, own: RetentionPolicy | None) -> int:
        """As `advance`, unless the volume's own policy is another than `own` by now."""
        answer = await self.appender.submit(vid, judge_since_by(own, since))
        assert isinstance(answer, int)
        return answer

    async def remove(self, vid: VolumeId) -> None:
        """Finish the volume, and forget all of it, but for what forks read and leases hold. Harmless if it was
        removed."""
        await self.appender.submit(vid, judge_removal)
        _FINISHED()
        await self.appender.submit(vid, judge_since((await self.volumes.get(vid)).state.head + 1))
        await self._release_all_but_shared(await self.volumes.get(vid))

    async def _release_all_but_shared(self, volume: Volume) -> None:
        """Of a volume that was removed, what was pinned for ever or by a policy is released. An LSN that a fork shares
        may have been pinned for that: it stays while there is one."""
        pins = [pin for pin in await self.pins.all(volume.vid) if pin.holds]
        forks = [lsn for _, lsn in await _forks(volume)] + [pin.lsn for pin in pins if pin.kind == FORK]
        shared = max(forks, default=0)
        for pin in pins:
            if pin.kind in OF_POLICIES or (not pin.expiry and pin.kind != FORK and pin.lsn > shared):
                while pin.holds:
                    pin = await self.pins.change(pin, PinEvent.RELEASE)

    async def begin_collect(self, vid: VolumeId, ended: Collection[bytes] = ()) -> Collecting:
        """Announce a collection of what lies below `since`, and say what must stay, of which nothing is for forks that
        have `ended`. Whoever deletes waits the store's gc interval first."""
        since = await self.appender.submit(vid, judge_collect)
        assert isinstance(since, int)
        _ANNOUNCED()
        pins = await self.pins.all(vid)
        # A fork of one of these LSNs was told to the stream before the announcement, or has a pin.
        volume = await self.volumes.get(vid)
        forks = {lsn for child, lsn in await _forks(volume) if child not in ended}
        held = {pin.lsn for pin in pins if pin.holds} | forks
        return Collecting(since, frozenset(lsn for lsn in held if lsn < since))

    async def release_of_ended(self, vid: VolumeId, pins: Iterable[bytes]) -> None:
        """Pins that hold something for a fork that has ended, of which it alone could want it."""
        for raw in pins:
            pin = await self.pins.find(vid, PinId(raw))
            while pin is not None and pin.kind == FORK and pin.holds:
                pin = await self.pins.change(pin, PinEvent.RELEASE)

    async def end_collect(self, vid: VolumeId, since: int) -> None:
        """What `begin_collect` gave leave for is deleted."""
        await self.appender.submit(vid, judge_collected(since))

    async def _pin(self, volume: Volume, pin: PinId, wanted: Wanted) -> Pin:
        stands = await self._ask(volume, pin, wanted)
        if stands.state is not PinState.LIVE:
            raise _ended(stands)
        return stands

    async def _label(self, volume: Volume, wanted: Wanted) -> Pin:
        own = await self._owner_of(volume, wanted.lsn)
        same = {pin.id: pin for pin in await self.pins.all(own.vid) if pin.label == wanted.label}
        for pin in attempts_of_label(own.vid, wanted.label, same):
            if pin.raw not in same or same[pin.raw].holds:
                stands = await self._ask(volume, pin, wanted)
                if stands.state is PinState.LIVE:
                    return stands
        raise AssertionError("there is always another")

    async def _ask(self, volume: Volume, pin: PinId, wanted: Wanted) -> Pin:
        """The pin of that id as it stands: it may have ended. Raises AlreadyExists where it is another than the wanted
        one, and Forgotten."""
        await self.check(volume, wanted.lsn)
        own = await self._owner_of(volume, wanted.lsn)
        stands = await self.pins.find(own.vid, pin)
        if stands is None:
            stands = await self.pins.create(requested_pin(pin, own.vid, wanted, now_ms=self.pins.now_ms()))
            _ASKED()
        if not wanted.is_what(stands) and (stands.holds or not wanted.label):
            if wanted.label:
                raise AlreadyExists(
                    f"LSN {stands.lsn} is called {wanted.label!r} already: unpin {pin}, or take another"
                )
            raise AlreadyExists(f"pin {pin} stands already, for LSN {stands.lsn} and {stands.owner or 'nobody'}")
        if stands.state is PinState.ASKED:
            stands = await self._confirm(own, stands, wanted.expiry)
        if stands.state is PinState.LIVE:
            _CONFIRMED()
        return stands

    async def _confirm(self, own: Volume, stands: Pin, expiry: int) -> Pin:
        """A pin that is asked for, once it is live or has ended. Raises Forgotten after it was released again."""
        if await self.pins.ended(own.vid, stands.pin_id) is not None:
            # Whoever asked for it anew had slept since it ended.
            return await self.pins.settled(own.vid, stands.pin_id)
        volume = await self.volumes.get(own.vid, confirm=True)
        if stands.lsn < volume.state.collect and not await self._shared(volume, stands):
            after = await self.pins.change(stands, PinEvent.RELEASE)
            if after.state is PinState.RELEASED:
                raise forgotten(volume.state, stands.lsn)
            return after
        _CHECKED()
        return await self.pins.change(stands, PinEvent.CONFIRM, expiry=expiry)

    async def _shared(self, volume: Volume, stands: Pin) -> bool:
        """Whether another holds the LSN now, while `stands` stands too: then no collector has seen a moment at which
        nobody did."""
        if await _forked_at(volume, stands.lsn):
            return True
        pins = await self.pins.all(volume.vid)
        return any(p.lsn == stands.lsn and p.state is PinState.LIVE and p.id != stands.id for p in pins)

    async def _find(self, vid: VolumeId, pin: PinId) -> tuple[Volume, Pin]:
        """A pin by its volume, or by a fork of that."""
        volume = await self.volumes.get(vid)
        while True:
            stands = await self.pins.find(volume.vid, pin)
            if stands is None:
                child = VolumeId(bytes([VolumeId.TYPE]) + pin.raw[1:])
                lsn = await loading(partial(volume.state.forks.get, child.raw))
                stands = None if lsn is None else _fork_pin(volume, child, lsn)
            if stands is not None:
                return volume, stands
            if volume.parent is None:
                raise NotFound(f"volume {vid} has no pin {pin}")
            volume = await self.volumes.parent_of(volume)

    async def _owner_of(self, volume: Volume, lsn: int) -> Volume:
        """The volume whose own that LSN is: this, or one that it was forked from."""
        while volume.parent is not None and lsn <= volume.birth.parent_lsn:
            volume = await self.volumes.parent_of(volume)
        return volume


async def _forks(volume: Volume) -> list[tuple[bytes, int]]:
    return await loading(lambda: list(volume.state.forks.items()))


async def _forked_at(volume: Volume, lsn: int) -> bool:
    return await loading(lambda: volume.state.forked_at(lsn))


def _fork_pin(volume: Volume, child: VolumeId, lsn: int) -> Pin:
    """A fork that the stream told of, as a pin: it has no chain of its own, and nobody may release it."""
    return Pin(
        id=id_for_fork(child).raw,
        vid=volume.vid.raw,
        lsn=lsn,
        state=PinState.LIVE,
        kind=FORK,
        owner=str(child),
        expiry=0,
    )


def _ended(pin: Pin) -> NotFound:
    how = "was released" if pin.state is PinState.RELEASED else "has expired"
    return NotFound(f"pin {pin.pin_id} {how}: pin the LSN again, if it can still be read")
