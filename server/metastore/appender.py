"""Appender: finds the log that a volume lives in, and submits a change to it (DESIGN §4).

A volume may move while a change is on its way, or its log be fenced and taken back (log_ownership.py). A record must
never reach a log that its stream has left, so every change is made for one writer, and made anew for the next one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from ...volume.errors import Busy, NotOwner
from ...volume.ids import VolumeId
from ..log.log_writer import LogWriter
from .admission import Judge, change_in
from .entry_draft import AlreadyStands, Change
from .logs import Logs
from .move import Mover
from .open_volume import Volume
from .open_volumes import Volumes
from .state import StreamState

_MOST_MOVES: Final = 8
"""Moves of one volume that one call follows."""


@dataclass(frozen=True, slots=True)
class Appender:
    logs: Logs
    volumes: Volumes
    mover: Mover

    async def writable(self, vid: VolumeId) -> tuple[Volume, LogWriter]:
        """The volume, open in a log that this process appends to. Raises NotOwner."""
        volume = await self.volumes.get(vid)
        for _ in range(_MOST_MOVES):
            if volume.closed_at is None:
                log = await self.logs.get(volume.log)
                if log.private or log.owned:
                    return volume, await self.logs.writer(log)
                # It may have moved on since we looked; else its owner is the one to ask.
                volume = await self.volumes.get(vid, confirm=True)
                if volume.closed_at is None and volume.log == log.name:
                    return volume, await self.logs.writer(log)
            else:
                # A move that was cut off: whoever may append to the new log finishes it.
                await self.mover.finish(volume)
                volume = await self.volumes.get(vid)
        raise Busy(f"volume {vid} is being moved: try again")

    async def submit(self, vid: VolumeId, judge: Judge) -> Any:
        """A change that brings no pages."""

        async def change(volume: Volume, writer: LogWriter) -> Change[StreamState]:
            return change_in(writer.log, volume, judge)

        return await self.change(vid, change)

    async def change(
        self, vid: VolumeId, make: Callable[[Volume, LogWriter], Awaitable[Change[Any] | AlreadyStands]]
    ) -> Any:
        """Submit what `make` makes to the log that the volume is in, and follow it if it has moved meanwhile."""
        for _ in range(_MOST_MOVES):
            volume, writer = await self.writable(vid)
            made = await make(volume, writer)
            if isinstance(made, AlreadyStands):
                return made.answer
            try:
                return await writer.submit(made)
            except NotOwner:
                moved = not writer.deposed and (volume.closed_at is not None or volume.log != writer.log)
                if not moved and not await self.logs.owned_again(writer):
                    raise
        raise Busy(f"volume {vid} is being moved: try again")
