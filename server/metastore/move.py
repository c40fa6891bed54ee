"""Move: a volume's stream goes to another log (DESIGN §4, "A volume lives in one log").

`close{to}` in the old log is the moment; `open{from}` in the new one follows. Between the two the volume can be read,
and not written. Whoever asks for the move again finishes it, wherever it stood: an open that is missing is written
first.

Who may write what: in a private log, every process; in a shared one, its owner. A process that may write the close
and not the open answers NotOwner with the address of the new log's owner, who goes on from there; it closes only
after that owner has answered as alive.

A dead owner's log is taken over only when told (`takeover`): a fresh epoch fences it, for this one close. Whoever is
alive refuses; and takes its log back, if it could not be asked (log_ownership.py).

Crash window (a fault point): move: close written, open not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from ...volume import faults
from ...volume.errors import Busy, NotFound, NotOwner
from ...volume.ids import VolumeId, check_node
from .admission import change_in, judge_close, judge_open
from .entry_draft import Change
from .logs import Log, Logs
from .open_volume import Volume
from .open_volumes import Volumes

_CLOSED: Final = faults.point("move: close written, open not")

_MOST_STEPS: Final = 8
"""Closes and opens in one call; more means that someone else moves it too."""


@dataclass(frozen=True, slots=True)
class Mover:
    logs: Logs
    volumes: Volumes

    async def move(self, vid: VolumeId, to: str, *, takeover: bool = False) -> str:
        """The log that the volume is in afterwards: `to` is a node's name or "private". Raises NotOwner, NotFound,
        Busy."""
        target = str(vid) if to == "private" else check_node(to)
        for _ in range(_MOST_STEPS):
            volume = await self.volumes.get(vid, fresh=True)
            if volume.closed_at is not None:
                await self.finish(volume, takeover=takeover)
            elif volume.log == target:
                return target
            else:
                await self._close(volume, target, takeover)
        raise Busy(f"volume {vid} is being moved by someone else: try again")

    async def _close(self, volume: Volume, target: str, takeover: bool) -> None:
        source = await self.logs.get(volume.log)
        await self._check_target(source, await self.logs.get(target))
        await self._submit(source, takeover, lambda: change_in(source.name, volume, judge_close(target)))
        _CLOSED()

    async def finish(self, volume: Volume, *, takeover: bool = False) -> None:
        """Write the open that the volume's newest close wants. Raises NotOwner."""
        close = volume.closed_at
        assert close is not None
        assert volume.state.closed is not None
        log = await self.logs.get(volume.state.closed.to)
        await self._submit(log, takeover, lambda: Change(volume, judge_open(volume, close, log)))

    async def _check_target(self, source: Log, target: Log) -> None:
        """Raises unless the open will find someone who may write it."""
        if target.private or target.owned:
            return
        await self.logs.refresh(target, confirm=True)
        owner = await self.logs.owner(target)
        if owner is None:
            raise NotFound(f"no node named {target.name!r} has ever served this store: start it, then move")
        message = f"log {target.name} is owned by {owner.address or 'another process'}: ask there for the move"
        goes_on = source.owned and owner.address and await self.logs.is_alive(owner)
        if not goes_on:
            raise NotOwner(message, owner=owner.address, log=target.name)

    async def _submit(self, log: Log, takeover: bool, make: Callable[[], Change[Any]]) -> None:
        try:
            if takeover and not log.private and not log.owned:
                await self.logs.take_over(log)
            writer = await self.logs.writer(log)
            try:
                await writer.submit(make())
            except NotOwner:
                if not await self.logs.owned_again(writer):
                    raise
                await (await self.logs.writer(log)).submit(make())
        finally:
            if not log.private and log.name != self.logs.claim.log:
                # One that was taken over stays nobody's until its node starts again.
                self.logs.release(log)
