"""Move: a volume's stream goes to another log (DESIGN §4, "A volume lives in one log"; S1.23).

`close{to}` in the old log is the moment; `open{from}` in the new one follows. Between the two the volume can be read,
and not written. Whoever asks for the move again finishes it, wherever it stood, and so does its next writer: an open
that is missing is written first.

So that its writers wait for a few round trips alone, however long its history, the node that is to have the volume has
read it before: all that stands in the old log, and all that the open and the next commit go by (`ready`), while the old
log's owner goes on committing. That one closes the volume only for a node which answers, and which was at most
`MOST_BEHIND` entries behind when it said so. Until then nothing has changed. Before a whole log is taken over, its
volumes are read likewise (`ready_for`).

Who may write what: in a private log, every process; in a shared one, its owner. A process that may write the close
and not the open answers NotOwner with the address of the new log's owner, who goes on from there; it closes only
after that owner has answered as alive.

Where an owner can't be reached, and only when told (`takeover`), the close or the open is written for it, by a guest's
entry (log_writer.py): that fences nobody. Should the owner live, it meets the close at its next entry, before it could
acknowledge anything behind it, and goes on with all its other volumes. One that answers is asked instead.

Crash windows (each a fault point): move: read ahead, close not written · move: close written, open not · move: open
written, not told.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from ...volume import faults
from ...volume.entry import EpochRecord
from ...volume.errors import BudwoodError, Busy, NotFound, NotOwner
from ...volume.ids import VolumeId, check_node
from ..store.tree_nodes import loading, several_at_once
from .admission import change_in, judge_close, judge_open, opening
from .entry_draft import Change
from .logs import Log, Logs
from .open_volume import LogPosition, Volume
from .open_volumes import Volumes
from .rollups import volume_of

MOST_BEHIND: Final = 64
"""Entries of the old log that the new one's owner may still have to read once the volume is closed: a few reads side by
side."""

MOST_READ_AHEAD: Final = 1000
"""Volumes of a log that is taken over."""

_READ: Final = faults.point("move: read ahead, close not written")
_CLOSED: Final = faults.point("move: close written, open not")
_OPENED: Final = faults.point("move: open written, not told")

_MOST_STEPS: Final = 8
"""Closes and opens in one call; more means that someone else moves it too."""


@dataclass(frozen=True, slots=True)
class Mover:
    logs: Logs
    volumes: Volumes

    async def ready(self, vid: VolumeId, to: str) -> LogPosition:
        """Read all that a move of the volume to that log would wait for, here where it will be opened; up to where it
        was read. Raises NotOwner, with the address of whoever is to do so; NotFound."""
        target = await self.logs.get(_log_of(vid, to))
        if not target.private and not target.owned:
            raise _asked_there(await self._owner_of(target))
        volume = await self.volumes.get(vid, fresh=True)
        await loading(partial(opening, volume, target))
        source = await self.logs.get(volume.log)
        return LogPosition(source.name, source.reader.chain.next - 1)

    async def ready_for(self, log: Log) -> None:
        """Read what those who write to a log's volumes would wait for, before it is taken over: of volumes that were
        written since its last rollup, the first `MOST_READ_AHEAD`. What goes wrong is told to whoever asks for one."""
        busy = log.streams.tails(log.reader.chain.next - 1)
        vids = [vid for vid in map(volume_of, busy) if vid is not None][:MOST_READ_AHEAD]
        await several_at_once([partial(self._read_ahead, vid) for vid in vids])

    async def _read_ahead(self, vid: VolumeId) -> None:
        with suppress(BudwoodError):
            await self.volumes.get(vid)

    async def move(self, vid: VolumeId, to: str, *, takeover: bool = False, ready: int = -1) -> str:
        """The log that the volume is in afterwards: `to` is a node's name or "private". `ready` is the slot that the
        owner of that log has read its present one up to. Raises NotOwner, NotFound, Busy."""
        target = _log_of(vid, to)
        for _ in range(_MOST_STEPS):
            volume = await self.volumes.get(vid, fresh=True)
            if volume.closed_at is not None:
                await self.finish(volume, takeover=takeover)
            elif volume.log == target:
                return target
            else:
                await self._close(volume, target, takeover, ready)
        raise Busy(f"volume {vid} is being moved by someone else: try again")

    async def _close(self, volume: Volume, name: str, takeover: bool, ready: int) -> None:
        source, target = await self.logs.get(volume.log), await self.logs.get(name)
        await self._check_target(source, target, ready)
        if target.private or target.owned:
            # It is opened here, too: what that needs is read first.
            await loading(partial(opening, volume, target))
        _READ()
        await self._submit(source, takeover, lambda: change_in(source.name, volume, judge_close(name)))
        _CLOSED()

    async def finish(self, volume: Volume, *, takeover: bool = False) -> None:
        """Write the open that the volume's newest close wants. Raises NotOwner."""
        close = volume.closed_at
        assert close is not None
        assert volume.state.closed is not None
        log = await self.logs.get(volume.state.closed.to)
        await self._submit(log, takeover, lambda: Change(volume, judge_open(volume, close, log)))
        _OPENED()

    async def _check_target(self, source: Log, target: Log, ready: int) -> None:
        """Raises unless the open will find someone who may write it, and who has read what it takes."""
        if target.private or target.owned:
            return
        owner = await self._owner_of(target)
        if not (source.owned and owner.address and await self.logs.is_alive(owner)):
            raise _asked_there(owner)
        if ready < 0 or ready + MOST_BEHIND < source.reader.chain.next:
            so_far = "not read yet" if ready < 0 else f"read up to slot {ready}"
            words = f"log {source.name} was {so_far} by the node at {owner.address}"
            raise Busy(
                f"{words}, which is to read what came since before the volume is closed: ask it whether it's ready"
            )

    async def _owner_of(self, target: Log) -> EpochRecord:
        """As it stands. Raises NotFound."""
        await self.logs.refresh(target, confirm=True)
        owner = await self.logs.owner(target)
        if owner is None:
            raise NotFound(f"no node named {target.name!r} has ever served this store: start it, then move")
        return owner

    async def _submit(self, log: Log, takeover: bool, make: Callable[[], Change[Any]]) -> None:
        if takeover and not log.private and not log.owned:
            await (await self.logs.guest(log)).submit(make())
            return
        writer = await self.logs.writer(log)
        try:
            await writer.submit(make())
        except NotOwner:
            if not await self.logs.owned_again(writer):
                raise
            await (await self.logs.writer(log)).submit(make())


def _log_of(vid: VolumeId, to: str) -> str:
    return str(vid) if to == "private" else check_node(to)


def _asked_there(owner: EpochRecord) -> NotOwner:
    message = f"log {owner.log} is owned by {owner.address or 'another process'}: ask there for the move"
    return NotOwner(message, owner=owner.address, log=owner.log)
