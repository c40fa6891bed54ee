"""Unnamed: fragments that no commit has ever named, of pushes that were cut off (volume/garbage.py; S0.38, S2.22).

A fragment was named if a commit that is not folded names it, or a checkpoint leads to it, or a deadlist of the row that
stands has it: folding changes which of these it is, and nothing else does. So what is none of it was never named. It
can still be named, unless an entry has said otherwise (`fragments_since`): whoever plans proposes that of fragments
that are `OLD_MS` old, which is how long a push may take that need not send anything again.

The listing begins `OLD_MS` before what was said already: whoever slept since it chose an id may have stored its
fragment later. Nothing more is looked at, however many are named and stand.

Of what lies in memory at once: `_FEW` keys, and what goes, of which there are `MOST` in a plan.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

from anyio.lowlevel import checkpoint as let_others

from ...volume.errors import BadInput, BudwoodError, Corrupt, NotFound
from ...volume.fragments import FragmentName, fragment_name, shards_prefix
from ...volume.garbage import PlannedFragments
from ...volume.ids import SegmentId, VolumeId
from ...volume.segment import FOOTER_SIZE, SegmentIndex, parse_footer
from ..log.term import read_epoch
from ..metastore.folded import Folded
from ..metastore.logs import Log, Logs
from ..metastore.open_volume import Volume
from ..metastore.open_volumes import Volumes
from ..store.protocol import Keys, Store
from ..store.retrying import Patience, get_retried, retried
from ..store.tree_nodes import loading, several_at_once
from .deadlists import read_deadlist
from .removed import was_removed

OLD_MS: Final = 3 * 86_400_000
"""How old a fragment is before it is taken for one that nobody will name."""
MOST: Final = 16_384
"""Fragments in a plan; what is left is for the next."""
WORTH_IT: Final = 1_000
"""So many that were all named are worth an entry that says so, that they need not be looked at again."""
_FEW: Final = 4096
_LISTED: Final = 1000
_TAIL_BYTES: Final = 16_384


class Found(NamedTuple):
    fragments: tuple[PlannedFragments, ...] = ()
    since_ms: int = 0
    """What the plan is to say of fragments; 0: nothing new."""


@dataclass(slots=True)
class _Taken:
    """Unnamed ones: time, volume, shard, epoch and id of each; and up to when they are wanted."""

    upto_ms: int
    all: list[tuple[int, bytes, int, int, bytes]] = field(default_factory=list[tuple[int, bytes, int, int, bytes]])

    def add(self, vid: VolumeId, name: FragmentName) -> None:
        if name.segment.time_ms >= self.upto_ms:
            return
        self.all.append((name.segment.time_ms, vid.raw, name.shard, name.epoch, name.segment.raw))
        if len(self.all) > MOST:
            self.all.sort()
            self.upto_ms = self.all[MOST][0]
            older = [each for each in self.all if each[0] < self.upto_ms]
            if not older:
                # All of one millisecond: the rest of it is looked for again with the next plan.
                self.upto_ms += 1
            self.all = older or self.all[:MOST]

    def planned(self) -> tuple[PlannedFragments, ...]:
        groups: dict[tuple[bytes, int, int], list[bytes]] = {}
        for _, vid, shard, epoch, raw in self.all:
            groups.setdefault((vid, shard, epoch), []).append(raw)
        return tuple(
            PlannedFragments(vid=vid, epoch=epoch, ids=b"".join(sorted(ids)), shard=shard)
            for (vid, shard, epoch), ids in sorted(groups.items())
        )


@dataclass(frozen=True, slots=True)
class Unnamed:
    store: Store
    logs: Logs
    volumes: Volumes
    patience: Patience

    async def of(self, log: Log, now_ms: int) -> Found:
        """Raises Corrupt, Unavailable."""
        said = log.reader.chain.fragments_since
        taken, looked_at = _Taken(max(now_ms - OLD_MS, said)), 0
        async with aclosing(self._folders(log.name)) as folders:
            async for folder in folders:
                async with aclosing(self._few(folder, max(said - OLD_MS, 0), taken.upto_ms)) as some:
                    async for keys in some:
                        looked_at += len(keys)
                        for vid, left in (await self._unnamed(log, keys)).items():
                            for key in left:
                                taken.add(vid, fragment_name(log.name, key))
        moves = taken.upto_ms > said and (taken.all or looked_at >= WORTH_IT)
        return Found(taken.planned(), taken.upto_ms if moves else 0)

    async def _folders(self, log: str) -> AsyncGenerator[str]:
        """Those of writers' epochs that something lies in, with the "/" behind them: in no shard, and in each."""
        async with aclosing(self._below(f"logs/{log}/t/")) as epochs:
            async for folder, number in epochs:
                if int(number, 16) == 0 or await self._is_writers(log, int(number, 16)):
                    yield folder
        # In shards nobody else writes.
        async with aclosing(self._below(shards_prefix(log))) as shards:
            async for shard, _ in shards:
                async with aclosing(self._below(shard)) as epochs:
                    async for folder, _ in epochs:
                        yield folder

    async def _below(self, prefix: str) -> AsyncGenerator[tuple[str, str]]:
        """What something lies in there, and its last part: by a request for each, and one."""
        start = ""
        while keys := await self._list(prefix, start, 1):
            part = keys[0].removeprefix(prefix).partition("/")[0]
            yield f"{prefix}{part}/", part
            # Behind all that lies below: "0" is the character after "/".
            start = f"{prefix}{part}0"

    async def _is_writers(self, log: str, number: int) -> bool:
        try:
            return (await read_epoch(self.store, log, number, patience=self.patience)).purpose == "writer"
        except Corrupt:
            # A transaction that is settled, and all that lies there a checkpoint's; or nobody can tell.
            return False

    async def _few(self, folder: str, since_ms: int, upto_ms: int) -> AsyncGenerator[list[str]]:
        few = list[str]()
        start, end = (f"{folder}{first_id(ms)}" for ms in (since_ms, upto_ms))
        while True:
            keys = await self._list(folder, start, _LISTED)
            here = [key for key in keys if key < end]
            few += [key for key in here if is_fragment(key)]
            if len(few) >= _FEW or len(here) < _LISTED:
                yield few
                few = []
            if len(here) < _LISTED:
                return
            start = f"{keys[-1]}\0"

    async def _unnamed(self, log: Log, keys: list[str]) -> dict[VolumeId, set[str]]:
        """Those that nobody named, by their volumes; none of a volume that can't be read."""
        found: dict[VolumeId, set[str]] = {}
        if log.private:
            found[VolumeId.parse(log.name)] = set(keys)
        else:

            async def sort(key: str) -> None:
                vid = await volume_of(self.store, key, self.patience)
                if vid is not None:
                    found.setdefault(vid, set()).add(key)

            await several_at_once([partial(sort, key) for key in keys])
        for vid, left in found.items():
            try:
                volume = await self.volumes.get(vid, fresh=True)
                await strike(self.store, volume, left, self.patience)
            except NotFound:
                if not await was_removed(self.logs, log.name, vid):
                    left.clear()
            except BudwoodError:
                # Whoever can't tell keeps all of it.
                left.clear()
        return found

    async def _list(self, prefix: str, start: str, limit: int) -> Keys:
        listed = partial(self.store.list, prefix, start=start, limit=limit)
        return await retried(f"list {prefix}", listed, self.patience)


async def strike(store: Store, volume: Volume, keys: set[str], patience: Patience) -> None:
    """Take away those that the volume has ever named, as far as they stand; all, if it is folded meanwhile. Raises
    Corrupt, Unavailable, and what follows from a fold meanwhile."""
    history, folding = volume.history, volume.history.folding
    if isinstance(folding, Folded):
        keys.difference_update([segment.object for segment in (await loading(folding.segments)).values()])
        checkpoint: str = folding.name
        while checkpoint and keys and (deadlist := await read_deadlist(store, checkpoint, patience)) is not None:
            keys.difference_update(deadlist.objects)
            checkpoint = deadlist.base
    for lsn in range(history.head, history.folded_to, -1):
        if not keys:
            break
        await let_others()
        landed = await loading(partial(history.at, lsn))
        keys.difference_update([location.object for location in landed.locations])
    if history.folding is not folding or volume.ended:
        keys.clear()


async def volume_of(store: Store, key: str, patience: Patience) -> VolumeId | None:
    """Whose pages a fragment has, by its index; None where that can't be told, or it is gone. Raises Unavailable."""
    try:
        tail, size = await retried(f"get the end of {key}", partial(store.get_tail, key, _TAIL_BYTES), patience)
        footer = parse_footer(key, tail)
        if len(tail) < footer.index_size + FOOTER_SIZE:
            tail = await get_retried(store, key, start=size - footer.index_size - FOOTER_SIZE, patience=patience)
        index = SegmentIndex.parse(key, footer, tail[-FOOTER_SIZE - footer.index_size : -FOOTER_SIZE])
    except (NotFound, Corrupt, BadInput):
        return None
    return index.volumes[0].vid if len(index.volumes) == 1 else None


def is_fragment(key: str) -> bool:
    """Whether its last part is a segment's id."""
    try:
        SegmentId.parse(key.rpartition("/")[2])
    except BadInput:
        return False
    return True


def first_id(ms: int) -> str:
    """The lowest of that time."""
    return str(SegmentId.new(at_ms=ms, noise=bytes(9)))
