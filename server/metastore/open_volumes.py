"""Volumes: those that a process has open, followed from log to log (DESIGN §4).

A volume begins with its birth, an object made once. Following it means: take what the log that it is in has of it, the
rollup's part first and then what came since; where that ends with a close, go to the log that the close names, and on
from the `open` that continues that very close. A close whose `open` is missing is a move that was cut off half-way: the
volume can be read up to its head, and whoever moves it again finishes the move.

A volume that nobody uses is let go of in its turn (kept_open.py), and followed anew when it is asked for again.
"""

from __future__ import annotations

from functools import partial
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

from ...volume.errors import Corrupt, Unavailable
from ...volume.ids import VolumeId
from ...volume.lru_cache import LruCache
from ...volume.records import Birth, Open
from ...volume.rollup import RolledState
from ..store.tree_nodes import loading
from .births import birth_key, make_birth, read_birth
from .logs import Log, Logs
from .open_volume import LogPosition, Volume
from .rolled_stream import RolledStream
from .streams import Part

_MADE: Final = 4096
_MADE_SECONDS: Final = 30.0


class _Standing(NamedTuple):
    """What a log has of a volume that comes to it."""

    rolled: RolledStream
    state: RolledState | None
    stay: int
    """Which of the rollup's stays goes on from where the volume left; -1 if none does."""
    parts: list[Part]
    """Those of the rollup that could not be followed, behind where the volume left this log."""
    goes_on: bool
    """Whether the log has what goes on from there at all."""


def _standing(log: Log, volume: Volume, close: LogPosition | None) -> _Standing:
    """Raises NotLoaded, what stops the stream, and Corrupt where the log goes on from where the volume never was."""
    rolled = RolledStream(log.rolled, volume.id)
    state, parts, left_at = rolled.state(), rolled.parts(), _left_at(log, volume)
    parts = [part for part in parts if part.slot > left_at]
    stays = [] if state is None else [stay.opened for stay in state.stays]
    if close in stays:
        return _Standing(rolled, state, stays.index(close), parts, goes_on=True)
    if close is None:
        if state is not None:
            raise Corrupt(birth_key(volume.vid), f"log {log.name} does not know that the volume was born in it")
        return _Standing(rolled, state, -1, parts, goes_on=True)
    first = log.streams.read_first(volume.id, [*parts, *log.streams.tail(volume.id, left_at)])
    record = first and first.record
    if first is not None and not (isinstance(record, Open) and (record.log, record.slot) == close):
        raise Corrupt(first.key, f"volume {volume.id} goes on in it from where it never was")
    return _Standing(rolled, state, -1, parts, goes_on=first is not None)


def continues(log: Log, volume: Volume, close: LogPosition) -> bool:
    """Whether the `open` that continues that close stands in the log. Raises as `_standing`."""
    return _standing(log, volume, close).goes_on


def _left_at(log: Log, volume: Volume) -> int:
    """The slot at which the volume left that log last."""
    return max((close.slot for close in volume.closes if close.log == log.name), default=-1)


class Volumes:
    def __init__(self, logs: Logs) -> None:
        self.logs = logs
        self._open = WeakValueDictionary[VolumeId, Volume]()
        self._made = LruCache[VolumeId, tuple[float, Birth]](_MADE)
        """Births that were made here a moment ago, and when: whoever made one is about to open it."""
        logs.birth_of = self._birth_of

    def _birth_of(self, vid: VolumeId) -> Birth | None:
        volume = self._open.get(vid)
        return None if volume is None else volume.birth

    async def get(self, vid: VolumeId, *, fresh: bool = False, confirm: bool = False, glance: bool = False) -> Volume:
        """The volume, followed to the log it is in. `fresh`: with everything that stood when this was called;
        `confirm`: even if this process believes to own its log; `glance`: asked again and again. Raises NotFound,
        Corrupt, Unavailable."""
        while True:
            volume = await self._get(vid, fresh, confirm, glance)
            if not volume.ended:
                await self._make_sure(volume)
            if not volume.ended:
                self.logs.kept.use(volume)
                return volume

    async def parent_of(self, volume: Volume) -> Volume:
        """The volume that this one was forked from, with the LSN that it was forked at."""
        assert volume.parent is not None
        parent = await self.get(volume.parent)
        if parent.state.head < volume.birth.parent_lsn:
            # Opened before that LSN was made, by another process perhaps.
            parent = await self.get(volume.parent, confirm=True)
        if parent.state.head < volume.birth.parent_lsn:
            raise Corrupt(birth_key(volume.vid), f"it was forked at an LSN that volume {parent.id} does not have")
        return parent

    async def log_of(self, vid: VolumeId) -> str:
        """The log that it is in, if it is open here; else the one that it was born in. Raises NotFound, Corrupt,
        Unavailable."""
        volume = self._open.get(vid)
        if volume is not None and not volume.ended:
            return volume.log
        return (await read_birth(self.logs.store, vid, self.logs.patience)).log

    async def make(self, birth: Birth) -> bool:
        """Make the birth; whether this call made it. Raises AlreadyExists if another stands there that differs."""
        made = await make_birth(self.logs.store, birth, self.logs.patience)
        if made:
            self._made.put(VolumeId(birth.vid), (self.logs.patience.now(), birth))
        return made

    async def _read_birth(self, vid: VolumeId) -> Birth:
        made = self._made.get(vid)
        self._made.drop(vid)
        if made is not None and self.logs.patience.now() < made[0] + _MADE_SECONDS:
            return made[1]
        return await read_birth(self.logs.store, vid, self.logs.patience)

    async def _get(self, vid: VolumeId, fresh: bool, confirm: bool, glance: bool) -> Volume:
        """See `get`; it may have ended meanwhile, with its log's reading."""
        volume = self._open.get(vid)
        if volume is not None and volume.stop is not None:
            volume.stop.check()
        if volume is None or volume.ended:
            birth = await self._read_birth(vid)
            found = self._open.get(vid)
            # Another may have opened it meanwhile: there is one of each.
            volume = Volume(birth) if found is None or found.ended else found
            self._open[vid] = volume
        if volume.behind:
            # To take what waits it reads what may be deleted by now.
            await self._make_sure(volume)
        await volume.catch_up()
        looked_at = "" if volume.attached else await self._follow(volume)
        while (fresh or confirm) and volume.attached and looked_at != volume.log:
            looked_at = volume.log
            try:
                log = await self.logs.get(volume.log)
                await self.logs.refresh(log, confirm=confirm, glance=glance)
            except Unavailable:
                if not volume.ended:
                    raise
            # What it has waited to take may lead it to another log.
            await volume.catch_up()
            if not volume.attached:
                looked_at = await self._follow(volume)
        return volume

    async def _make_sure(self, volume: Volume) -> None:
        """That nothing it leads to is deleted before long, or that it has ended. Raises Corrupt, Unavailable."""
        for log in [volume.keeps, *volume.left]:
            if not isinstance(log, Log):
                continue
            try:
                await self.logs.make_sure(log)
            except Unavailable:
                if volume.ended:
                    return
                if log.reader.ended is None:
                    raise
                # It came through a log that is open otherwise by now.
                if volume.streams is not None:
                    volume.streams.detach(volume.id, volume)
                volume.end()
                return

    async def _follow(self, volume: Volume) -> str:
        """Attach the volume to the log it is in; the log's name, if it was looked at on the way, else ""."""
        looked = not self.logs.is_open(volume.log)
        # Before the lock, so that what opening it meets is told to all who wait for the volume, and not to one by one.
        first = await self.logs.get(volume.log)
        async with volume.lock:
            if volume.attached or volume.ended:
                return ""
            log = first if first.name == volume.log and first.reader.ended is None else await self.logs.get(volume.log)
            if volume.closed_at is None:
                await self._enter(volume, log)
            while volume.closed_at is not None and not volume.ended:
                assert volume.state.closed is not None
                looked = not self.logs.is_open(volume.state.closed.to)
                log = await self.logs.get(volume.state.closed.to)
                if not await self._enter(volume, log):
                    await self.logs.refresh(log, confirm=True)
                    looked = True
                    if not await self._enter(volume, log):
                        break
            return log.name if looked else ""

    async def _enter(self, volume: Volume, log: Log) -> bool:
        """Have the volume go on in that log, if that is where it went. Raises what stops it."""
        standing = await loading(partial(_standing, log, volume, volume.closed_at))
        if volume.ended:
            # Meanwhile, by somebody else who came for it: another has taken its place, or will.
            return False
        if standing.goes_on:
            if volume.keeps not in {None, log, *volume.left}:
                volume.left.append(volume.keeps)
            volume.keeps = log
            left_at = _left_at(log, volume)
            volume.enter(standing.rolled, standing.state, standing.stay)
            if volume.closed_at is None or standing.stay < 0:
                volume.streams = log.streams
                try:
                    volume.attached = await log.streams.attach(volume.id, volume, behind=left_at, before=standing.parts)
                except BaseException:
                    # It has come here, and nothing will: whoever wants it opens it anew.
                    if not volume.ended:
                        volume.end()
                    raise
        return standing.goes_on
