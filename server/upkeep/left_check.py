"""Left check: whether the fragments and the revisions of pins that a garbage plan takes out are what nobody goes by.

A part of garbage_check.py, which asks nothing that made the plan. What a volume has named is followed from its oldest
commit on, entry by entry and deadlist by deadlist, where the planner went from the newest back until it had found all;
a fragment's own index says whose it is; and of a pin each key is asked for.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Set
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial

from anyio.lowlevel import checkpoint as let_others

from ...volume.errors import BadInput
from ...volume.fragments import MOST_SHARDS
from ...volume.garbage import GarbagePlan, PlannedPin
from ...volume.ids import PinId, VolumeId
from ...volume.pins import Pin, attempts_of_label, parse_pin, pins_prefix, revision_key, revision_of
from ..log.term import read_epoch
from ..metastore.folded import Folded
from ..metastore.open_volume import Volume
from ..store.protocol import Store
from ..store.retrying import Patience, get_retried, retried
from ..store.tree_nodes import loading, several_at_once
from .deadlists import read_deadlist
from .unnamed import OLD_MS, volume_of


@dataclass(frozen=True, slots=True)
class LeftCheck:
    store: Store
    patience: Patience

    async def check_fragments(self, plan: GarbagePlan, said: int) -> None:
        """That their log says, with this plan or before, that they are named no more; and that they are that volume's,
        of an epoch in which fragments are written. Raises BadInput, Corrupt, Unavailable."""
        since = max(plan.fragments_since, said)
        if plan.fragments_since and not said < plan.fragments_since <= plan.time - OLD_MS:
            raise BadInput(f"fragments since {plan.fragments_since} are not old, or that was said before")
        for fragments in plan.fragments:
            if fragments.shard > MOST_SHARDS:
                raise BadInput(f"there is no shard {fragments.shard}")
            if fragments.epoch:
                record = await read_epoch(self.store, plan.log, fragments.epoch, patience=self.patience)
                if record.purpose != "writer":
                    raise BadInput(f"number {fragments.epoch} is a transaction's")
            keys = list[str]()
            for segment in fragments.segments:
                keys.append(fragments.key(plan.log, segment))
                if segment.time_ms >= since:
                    raise BadInput(f"{keys[-1]} can still be named")
            await several_at_once([partial(self._check_whose, key, VolumeId(fragments.vid)) for key in keys])

    async def _check_whose(self, key: str, wanted: VolumeId) -> None:
        vid = await volume_of(self.store, key, self.patience)
        if vid not in (None, wanted):
            raise BadInput(f"{key} is of volume {vid}")

    async def named(self, volume: Volume, keys: Set[str]) -> set[str]:
        """Those that the volume has named. Raises Corrupt, Unavailable, BadInput where it was folded meanwhile."""
        found = set[str]()
        history, folding = volume.history, volume.history.folding
        async with aclosing(self._named_by(volume)) as named:
            async for key in named:
                if key in keys:
                    found.add(key)
        if history.folding is not folding:
            raise BadInput(f"volume {volume.vid} was folded while it was looked at")
        return found

    async def _named_by(self, volume: Volume) -> AsyncGenerator[str]:
        history, folding = volume.history, volume.history.folding
        for lsn in range(history.folded_to + 1, history.head + 1):
            await let_others()
            for location in (await loading(partial(history.at, lsn))).locations:
                yield location.object
        if not isinstance(folding, Folded):
            return
        checkpoint: str = folding.name
        while checkpoint and (deadlist := await read_deadlist(self.store, checkpoint, self.patience)) is not None:
            for key in deadlist.objects:
                yield key
            checkpoint = deadlist.base
        for segment in (await loading(folding.segments)).values():
            yield segment.object

    async def check_pins(self, plan: GarbagePlan, said: int) -> None:
        """That other revisions say how they stand. Raises BadInput, NotFound, Corrupt, Unavailable."""
        if any(planned.ended for planned in plan.pins) and not (plan.fragments_since or said):
            raise BadInput("pins go that have ended, and who doesn't know of that is not kept out")
        for planned in plan.pins:
            vid, pin = VolumeId(planned.vid), PinId(planned.pin)
            keys = await self._list(pins_prefix(vid, pin), 1)
            newest = revision_of(keys[0]) if keys else -1
            first = revision_key(vid, pin, 0)
            begins = await self._list(first, 1) == [first]
            if planned.ended and begins:
                await self._check_ended(planned, newest)
            elif not planned.ended and (newest <= planned.upto or not begins):
                raise BadInput(f"revision {planned.upto} says how pin {pin} of volume {vid} stands")
            elif newest > planned.upto and planned.ended:
                raise BadInput(f"pin {pin} of volume {vid} has a revision {newest}")

    async def _check_ended(self, planned: PlannedPin, newest: int) -> None:
        vid, pin = VolumeId(planned.vid), PinId(planned.pin)
        stands = await self._read(revision_key(vid, pin, newest))
        if stands.holds or newest != planned.upto:
            raise BadInput(f"pin {pin} of volume {vid} did not end with revision {planned.upto}")
        if stands.label and not await self._is_followed(vid, pin, stands.label):
            raise BadInput(f"pin {pin} of volume {vid} is the newest that was called {stands.label!r}")

    async def _is_followed(self, vid: VolumeId, pin: PinId, label: str) -> bool:
        """Whether a pin stands that took the label after this one."""
        start, same = "", set[bytes]()
        while keys := await self._list(pins_prefix(vid), 1, start):
            other = PinId.parse(keys[0].split("/")[3])
            start = f"{pins_prefix(vid, other)[:-1]}0"
            # The ids of pins with labels have no time.
            if not other.time_ms and (await self._read(keys[0])).label == label:
                same.add(other.raw)
        return next(attempts_of_label(vid, label, same)) != pin

    async def _read(self, key: str) -> Pin:
        return parse_pin(key, await get_retried(self.store, key, patience=self.patience))

    async def _list(self, prefix: str, limit: int, start: str = "") -> list[str]:
        listed = partial(self.store.list, prefix, start=start, limit=limit)
        return await retried(f"list {prefix}", listed, self.patience)
