"""Retainer: enforces the retention policies of volumes (volume/retention_policy.py; DESIGN §5).

    what the policy forgets by now → pins for what it keeps of that → since

Pins stand before `since` moves, so that nothing is forgotten that the policy keeps, whatever crashes; a run that was
cut off leaves pins that the next one finds, as it comes to the same ids. Two runs at once do the same work, and find
each other's. Where the volume's own policy was changed meanwhile, `since` stays.

A pin ends by itself, when its policy says. Another policy lets those that stand end sooner or later; that is looked
after once by each process, the first time that it enforces that policy there.

A volume with nothing to do costs a look at its log, and at the time of one commit, and no write. A large piece of work
is done in parts, each of which is whole.

Crash windows (each a fault point): retain: pins made, since not moved · retain: since moved, caller not told.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from ...volume import faults
from ...volume.ids import VolumeId
from ...volume.lru_cache import LruCache
from ...volume.pins import OF_POLICIES, Pin
from ...volume.retention_policy import RetentionPolicy
from ..metastore.appender import Appender
from ..metastore.naming import Naming
from ..metastore.open_volume import Volume
from ..metastore.retention import Retention
from ..store.tree_nodes import loading, several_at_once
from .retention_schedule import Hold, Schedule, kept_until, schedule

_HELD: Final = faults.point("retain: pins made, since not moved")
_MOVED: Final = faults.point("retain: since moved, caller not told")

_REMEMBERED: Final = 65_536
"""Volumes."""


Default: TypeAlias = Callable[[], Awaitable[RetentionPolicy | None]]


class Enforced(NamedTuple):
    since: int
    held: int
    """How many LSNs of those that `since` passed are held now; one that stands for an hour and a day counts twice."""


class Retainer:
    """Of one node."""

    def __init__(self, retention: Retention, appender: Appender, naming: Naming) -> None:
        self._retention = retention
        self._appender = appender
        self._naming = naming
        self._extended = LruCache[VolumeId, RetentionPolicy](_REMEMBERED)
        """The policy that the volume's pins end by."""

    async def default(self) -> RetentionPolicy | None:
        """Of volumes that have no policy of their own. Raises Corrupt, Unavailable."""
        return await self._naming.default_policy(glance=True)

    async def enforce(self, vid: VolumeId, default: Default | None = None) -> Enforced | None:
        """Do what the volume's policy, or the store's default, wants done by now; None where that is nothing. Whoever
        has asked for that lately says it. Raises NotOwner, NotFound, Corrupt, Unavailable."""
        await self._retention.volumes.get(vid, fresh=True)
        volume, _ = await self._appender.writable(vid)
        if volume.state.finished:
            # Whoever removed it may have been cut off.
            await self._retention.remove(vid)
            return None
        own = volume.state.policy
        policy = await (default or self.default)() if own is None else own
        if policy is None:
            return None
        await self._extend(volume, policy)
        before, held = volume.state.since, 0
        while True:
            volume, _ = await self._appender.writable(vid)
            due = await self._due(volume, policy)
            if due is None:
                break
            held += await self._hold(volume, due.holds)
            _HELD()
            since = await self._retention.forget_by_policy(vid, due.since, own)
            _MOVED()
            if due.whole or since != due.since:
                break
        since = volume.state.since
        return Enforced(since, held) if since > before else None

    async def _due(self, volume: Volume, policy: RetentionPolicy) -> Schedule | None:
        state, history, now_ms = volume.state, volume.history, self._retention.pins.now_ms()
        oldest = max(state.since, history.start + 1)

        def time_of(lsn: int) -> int:
            return state.time if lsn == state.head else history.at(lsn).time

        return await loading(partial(schedule, policy, time_of, oldest, state.head, now_ms))

    async def _hold(self, volume: Volume, holds: tuple[Hold, ...]) -> int:
        """How many of them stand."""
        stand: list[bool] = []

        async def hold(each: Hold) -> None:
            stand.append(await self._retention.hold_by_policy(volume, *each))

        await several_at_once([partial(hold, each) for each in holds])
        return sum(stand)

    async def _extend(self, volume: Volume, policy: RetentionPolicy) -> None:
        """Let the pins that stand end when this policy says."""
        if self._extended.get(volume.vid) == policy:
            return
        if volume.state.since > max(1, volume.history.start):

            def until(pin: Pin) -> int:
                return kept_until(policy, pin.kind, pin.pin_id.time_ms)

            pins = [pin for pin in await self._retention.pins.all(volume.vid) if pin.kind in OF_POLICIES]
            changes = [partial(self._retention.extend, pin, until(pin)) for pin in pins]
            await several_at_once(changes)
        self._extended.put(volume.vid, policy)
