"""Ended forks: those that were removed, and of which nothing is left. Their parent holds nothing for them any more
(DESIGN §5; docs/design/0134-ended-forks.md).

A volume that was removed keeps its birth until nothing of it is held, and all of its own forks have ended. So one
without a birth has ended, if its log says that it was removed: one whose birth is only missing has not.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import partial
from typing import Final

from ...volume.errors import Corrupt, NotFound, Unsupported
from ...volume.ids import VolumeId
from ...volume.pins import FORK
from ..metastore.births import read_birth
from ..metastore.logs import Logs
from ..metastore.open_volume import Volume
from ..metastore.pin_store import Pins
from ..store.tree_nodes import loading, several_at_once
from .removed import was_removed

MOST: Final = 64
"""Forks of a volume that are looked at for one fold, with a request for each: of more, any."""


@dataclass(frozen=True, slots=True)
class EndedForks:
    logs: Logs
    pins: Pins

    async def of(self, volume: Volume, below: int) -> frozenset[bytes]:
        """Of its forks at LSNs below that one. Raises Corrupt, Unavailable."""
        forks = await loading(lambda: list(volume.state.forks.items()))
        return frozenset(await self._ended({child: VolumeId(child) for child, lsn in forks if lsn < below}, volume))

    async def pinned_for(self, volume: Volume) -> list[bytes]:
        """The ids of the pins that hold something of the volume for ended forks."""
        pins = [pin for pin in await self.pins.all(volume.vid) if pin.kind == FORK and pin.holds]
        return await self._ended({pin.id: VolumeId.parse(pin.owner) for pin in pins}, volume)

    async def has_ended(self, fork: VolumeId, holder: Volume) -> bool:
        """Of a fork that `holder` holds something for."""
        try:
            await read_birth(self.logs.store, fork, self.logs.patience)
        except NotFound:
            # It was in one that its parent was in, or in a log of its own.
            places = [holder.log, holder.birth.log, *(place.log for place in holder.closes), str(fork)]
            for log in dict.fromkeys(places):
                if await was_removed(self.logs, log, fork):
                    return True
        except (Corrupt, Unsupported):
            # What can't be read is there.
            pass
        return False

    async def _ended(self, forks: dict[bytes, VolumeId], holder: Volume) -> list[bytes]:
        ended = list[bytes]()

        async def look(each: bytes) -> None:
            if await self.has_ended(forks[each], holder):
                ended.append(each)

        some = random.sample(list(forks), MOST) if len(forks) > MOST else list(forks)
        await several_at_once([partial(look, each) for each in some])
        return ended
