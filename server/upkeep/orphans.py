"""Orphans: volumes that no name leads to, and that nobody asked to be kept.

`rm` in a mount takes a name away, and so does whoever saves a file by renaming another one over it. The volume stays:
others may have it by another name or by its id, and who is offline may have committed to it. So nobody but an operator
removes orphans: those to which nothing was committed for as long as he says (docs/design/0136-orphans.md).

No orphan is a volume that a lease or a named snapshot holds, whoever's: somebody reads it, or wants to. Its forks don't
keep it: they live on without it.

Names are read after the volumes were found, and so they are at least as new.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, NamedTuple

from ...volume.calls import PULL_NAMES, PullNamesRequest
from ...volume.errors import BadInput, BudwoodError, NotFound, Unauthorized, Unavailable
from ...volume.ids import VolumeId
from ...volume.pins import KINDS, PinState
from ...volume.protocols import Remote
from ..metastore.open_volumes import Volumes
from ..metastore.organisations import Organisations
from ..metastore.pin_store import Pins
from .births import Births
from .objects import Objects

AT_ONCE: Final = 100_000
"""For so many volumes together all names are gone through once."""
_NAMES: Final = 10_000
"""In one part."""


class Orphan(NamedTuple):
    vid: VolumeId
    log: str
    lsn: int
    """Its newest; 0 where nothing was ever committed."""
    length: int
    """Bytes of it."""
    time_ms: int
    """Of its newest commit; of its birth where there is none."""


class Unread(NamedTuple):
    vid: VolumeId
    error: BudwoodError


@dataclass(frozen=True, slots=True)
class Orphans:
    """Of the store of these; `remote` tells its names."""

    remote: Remote
    volumes: Volumes
    pins: Pins
    organisations: Organisations

    async def until(self, time_ms: int) -> AsyncGenerator[Orphan | Unread]:
        """Those with nothing newer than that time, by id; and volumes without a name that can't be read.

        Raises Corrupt, Unsupported, Unavailable, Unauthorized where the names can't be read.
        """
        async for born in self._born(time_ms):
            for vid in await self._unnamed(born):
                try:
                    orphan = await self._look(vid, time_ms)
                except (Unavailable, Unauthorized):
                    raise
                except NotFound:
                    # It was removed, or its birth never stood.
                    continue
                except BudwoodError as error:
                    yield Unread(vid, error)
                    continue
                if orphan is not None:
                    yield orphan

    async def _born(self, time_ms: int) -> AsyncGenerator[list[VolumeId]]:
        """All volumes that were born until then, in lists of about AT_ONCE."""
        births = Births(Objects(self.volumes.logs.store, self.volumes.logs.patience))
        found, start = list[VolumeId](), ""
        while ids := await births.all(start):
            start = ids[-1]
            for text in ids:
                # What has another name is none; a scrub tells of it.
                with suppress(BadInput):
                    vid = VolumeId.parse(text)
                    if vid.time_ms > time_ms:
                        # Ids sort by time.
                        yield found
                        return
                    found.append(vid)
            if len(found) >= AT_ONCE:
                yield found
                found = []
        yield found

    async def _unnamed(self, born: list[VolumeId]) -> list[VolumeId]:
        """Those that no name leads to, of no organisation either."""
        left = {vid.raw: vid for vid in born}
        for org in ("", *await self.organisations.all()) if left else ():
            async for target in self._named(org):
                left.pop(target, None)
        return list(left.values())

    async def _look(self, vid: VolumeId, time_ms: int) -> Orphan | None:
        """None where it isn't one."""
        volume = await self.volumes.get(vid)
        state = volume.state
        if state.finished or state.time > time_ms:
            return None
        if any(pin.state is PinState.LIVE and pin.kind in KINDS for pin in await self.pins.all(vid)):
            return None
        return Orphan(vid, volume.log, state.head, state.length, state.time)

    async def _named(self, org: str) -> AsyncGenerator[bytes]:
        """What the names of an organisation lead to; of the store itself, for ""."""
        since, is_whole = 0, False
        while not is_whole:
            # What is renamed between two parts may go from where nobody has looked yet to where somebody has: so what
            # was changed since the first one is asked for, until one part is all.
            part = await self.remote.ask(PULL_NAMES, PullNamesRequest(since=since, limit=_NAMES, org=org))
            first, is_whole = part.head, not part.next
            while True:
                for entry in part.entries:
                    yield entry.target
                if not part.next:
                    break
                request = PullNamesRequest(since=since, after=part.next, limit=_NAMES, org=org)
                part = await self.remote.ask(PULL_NAMES, request)
            since = first
