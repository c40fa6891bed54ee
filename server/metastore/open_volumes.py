"""Volumes: those that a process has open, followed from log to log (DESIGN §4).

A volume begins with its birth, an object made once. Following it means: give it what waits for it in the log it is
in; where that ends with a close, go to the log that the close names, and on from the `open` that continues that very
close. A close whose `open` is missing is a move that was cut off half-way: the volume can be read up to its head, and
whoever moves it again finishes the move.
"""

from __future__ import annotations

from ...volume.envelope import BIRTH, decode, encode, seal, unseal
from ...volume.errors import AlreadyExists, Corrupt, NotFound, Unavailable
from ...volume.ids import VolumeId
from ...volume.page import check_page_size
from ...volume.records import Birth, Open
from ..store.retrying import create_settled, get_retried
from .logs import Log, Logs
from .open_volume import LogPosition, Volume


def birth_key(vid: VolumeId) -> str:
    return f"volumes/{vid}/birth"


def continues(log: Log, vid: VolumeId, close: LogPosition) -> bool:
    """Whether the next of the volume's records that waits in the log is the `open` that continues that close."""
    first = log.streams.first(str(vid))
    record = first and first.record
    return isinstance(record, Open) and LogPosition(record.log, record.slot) == close


class Volumes:
    def __init__(self, logs: Logs) -> None:
        self._logs = logs
        self._open: dict[VolumeId, Volume] = {}

    async def get(self, vid: VolumeId, *, fresh: bool = False, confirm: bool = False, glance: bool = False) -> Volume:
        """The volume, followed to the log it is in. `fresh`: with everything that stood when this was called;
        `confirm`: even if this process believes to own its log; `glance`: asked again and again. Raises NotFound,
        Corrupt, Unavailable."""
        while True:
            volume = await self._get(vid, fresh, confirm, glance)
            if not volume.ended:
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

    async def make(self, birth: Birth) -> bool:
        """Make the birth; whether this call made it. Raises AlreadyExists if another stands there that differs."""
        vid = VolumeId(birth.vid)
        check_page_size(birth.page_size)
        found = await create_settled(self._logs.store, birth_key(vid), seal(BIRTH, encode(birth)), self._logs.patience)
        if found is None:
            return True
        stands = _parse(vid, found)
        wanted = (birth.page_size, birth.kind, birth.parent, birth.parent_lsn)
        if (stands.page_size, stands.kind, stands.parent, stands.parent_lsn) != wanted:
            what = f"with pages of {stands.page_size} bytes" + (", as a fork" if stands.parent else "")
            raise AlreadyExists(f"volume {vid} stands already, {what}")
        return False

    async def _get(self, vid: VolumeId, fresh: bool, confirm: bool, glance: bool) -> Volume:
        """See `get`; it may have ended meanwhile, with its log's reading."""
        volume = self._open.get(vid)
        if volume is not None and volume.stop is not None:
            volume.stop.check()
        if volume is None or volume.ended:
            birth = await self._birth(vid)
            found = self._open.get(vid)
            # Another may have opened it meanwhile: there is one of each.
            volume = Volume(birth) if found is None or found.ended else found
            self._open[vid] = volume
        looked_at = "" if volume.attached else await self._follow(volume)
        while (fresh or confirm) and volume.attached and looked_at != volume.log:
            looked_at = volume.log
            try:
                log = await self._logs.get(volume.log)
                await self._logs.refresh(log, confirm=confirm, glance=glance)
            except Unavailable:
                if not volume.ended:
                    raise
            if not volume.attached:
                looked_at = await self._follow(volume)
        return volume

    async def _birth(self, vid: VolumeId) -> Birth:
        try:
            return _parse(vid, await get_retried(self._logs.store, birth_key(vid), patience=self._logs.patience))
        except NotFound:
            raise NotFound(f"there is no volume {vid} in this store") from None

    async def _follow(self, volume: Volume) -> str:
        """Attach the volume to the log it is in; the log's name, if it was looked at on the way, else ""."""
        looked = not self._logs.is_open(volume.log)
        # Before the lock, so that what opening it meets is told to all who wait for the volume, and not to one by one.
        await self._logs.get(volume.log)
        async with volume.lock:
            if volume.attached or volume.ended:
                return ""
            log = await self._log_for(volume, volume.log)
            if volume.closed_at is None:
                await volume.attach(log.streams)
            while volume.closed_at is not None and not volume.ended:
                assert volume.state.closed is not None
                looked = not self._logs.is_open(volume.state.closed.to)
                log = await self._log_for(volume, volume.state.closed.to)
                if not continues(log, volume.vid, volume.closed_at):
                    await self._logs.refresh(log, confirm=True)
                    looked = True
                if not continues(log, volume.vid, volume.closed_at):
                    first = log.streams.first(volume.id)
                    if first is not None:
                        raise Corrupt(first.key, f"volume {volume.id} goes on in it from where it never was")
                    break
                volume.log = log.name
                await volume.attach(log.streams)
            return log.name if looked else ""

    async def _log_for(self, volume: Volume, name: str) -> Log:
        """The log, with all of the volume's records waiting there that the volume has not taken."""
        left_at = (close.slot for close in volume.closes if close.log == name)
        return await self._logs.get_for(volume.id, name, behind=max(left_at, default=-1))


def _parse(vid: VolumeId, data: bytes) -> Birth:
    key = birth_key(vid)
    header = unseal(key, BIRTH, data)
    birth = decode(key, header, Birth)
    if birth.vid != vid.raw:
        raise Corrupt(key, "it is the birth of another volume")
    return birth
