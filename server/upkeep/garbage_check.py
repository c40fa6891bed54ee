"""Verifier: whether all that a garbage plan takes out is out of reach, found out anew (S4.10, S4.24).

Nothing that made the plan is asked. The logs are read from the store by a reading of their own; entries are looked at
one by one, where the planner went by rollups; what a volume needs is listed from its checkpoint, its commits, its pins
and its forks, where the planner went by deadlists. A plan that any of it speaks against is refused as a whole, and
nothing of it is deleted.

    rollup      it is one that an entry has named, and it can be read
    entries     none has a page of a commit that wasn't folded, nor a record that can't be followed
    folds       nothing that one of them left out is needed by its volume; every LSN that is held can be read; and all
                that was folded is kept or superseded, by their sums
    rejected    no volume has that transaction
    fragments   nobody named one, and nobody can (left_check.py)
    pins        another revision says how the pin stands, or what it ended with
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final, Self

import anyio
import msgspec
from anyio.lowlevel import checkpoint as let_others

from ...volume.checkpoint import deadlist_key, number_of_transaction, transaction_prefix
from ...volume.entry import Entry, entry_key, parse_entry
from ...volume.envelope import START_BYTES, head_length
from ...volume.errors import BadInput, BudwoodError, Conflict, NotFound, Unavailable
from ...volume.garbage import GarbagePlan, PlannedFold, plan_key, plan_name
from ...volume.ids import VolumeId
from ...volume.pins import PinState
from ...volume.records import Commit, FoldRelocating
from ...volume.setsum import Setsum
from ...volume.tree_node import Pointer, node_key
from ..log.chain import slot_covered_by
from ..log.reader import read_rollup
from ..log.term import read_epoch
from ..metastore.folded import Folded
from ..metastore.logs import Logs
from ..metastore.open_volume import Volume
from ..metastore.open_volumes import Volumes
from ..metastore.pin_store import Pins
from ..metastore.rolled_stream import RolledStream
from ..store.protocol import Store
from ..store.retrying import Patience, get_retried
from ..store.tree_nodes import loading, several_at_once
from .deadlists import read_deadlist
from .ended_forks import EndedForks
from .left_check import LeftCheck
from .removed import find_unless_gone

_logger: Final = logging.getLogger(__name__)

_HEAD_BYTES: Final = 4096
_AT_ONCE: Final = 64


class Refused(Conflict):
    """A garbage plan that takes out what somebody needs: nothing of it is deleted."""


@dataclass(frozen=True, slots=True)
class GarbageCheck:
    _logs: Logs
    _volumes: Volumes
    _pins: Pins

    @classmethod
    @asynccontextmanager
    async def open(
        cls, store: Store, pins: Pins, gc_interval_seconds: float, patience: Patience
    ) -> AsyncGenerator[Self]:
        async def nothing(_key: str, _data: bytes) -> None:
            await let_others()

        errors = list[Exception]()
        async with anyio.create_task_group() as tasks:
            logs = Logs(
                store,
                tasks=tasks,
                now_ms=lambda: 0,
                seed=nothing,
                gc_interval_seconds=gc_interval_seconds,
                patience=patience,
            )
            try:
                yield cls(logs, Volumes(logs), pins)
            except Exception as error:
                # Else the group would wrap it.
                errors.append(error)
            finally:
                logs.close()
        if errors:
            raise errors[0]

    async def check(self, plan: GarbagePlan) -> None:
        """Raises Refused, and what reading met."""
        await self._check_rollup(plan)
        slots = range(plan.first, plan.slot)
        for first in range(0, len(slots), _AT_ONCE):
            few = slots[first : first + _AT_ONCE]
            await several_at_once([partial(self._check_entry, plan, slot) for slot in few])
        for fold in plan.folds:
            await self._check_fold(plan, fold)
        for number in plan.rejected:
            await self.check_rejected(plan, number)
        await self._check_left(plan)

    async def _check_left(self, plan: GarbagePlan) -> None:
        left, log = LeftCheck(self._logs.store, self._logs.patience), await self._logs.get(plan.log)
        if log.reader.chain.garbage not in (plan.base, plan_name(plan.number)):
            # What it says of the log was so when it was made; it never will be acknowledged.
            raise Conflict(f"garbage plan {log.reader.chain.garbage} was acknowledged meanwhile: make another")
        try:
            await left.check_fragments(plan, log.reader.chain.fragments_since)
            await left.check_pins(plan, log.reader.chain.fragments_since)
        except (BadInput, NotFound) as error:
            raise _refused(plan, f"of what it says to be left over: {error}") from error
        if named := await self._named(plan):
            raise _refused(plan, f"{min(named)} was named")

    async def without_named(self, plan: GarbagePlan) -> GarbagePlan:
        """Without those fragments that somebody has named until the plan was acknowledged, and those of volumes of
        which nobody can tell. Raises Unavailable."""
        named = await self._named(plan, doubted=True)
        if not named:
            return plan
        _logger.warning("log %s: %s was named before that was forbidden, and stays", plan.log, ", ".join(sorted(named)))
        fragments = [
            msgspec.structs.replace(
                each,
                ids=b"".join(segment.raw for segment in each.segments if each.key(plan.log, segment) not in named),
            )
            for each in plan.fragments
        ]
        return msgspec.structs.replace(plan, fragments=tuple(fragments))

    async def _named(self, plan: GarbagePlan, *, doubted: bool = False) -> set[str]:
        """Those of its fragments that their volumes have named; with `doubted` all of a volume that can't be read."""
        keys: dict[bytes, set[str]] = {}
        for each in plan.fragments:
            own = keys.setdefault(each.vid, set())
            own.update(each.keys(plan.log))
        left, named = LeftCheck(self._logs.store, self._logs.patience), set[str]()
        for vid, own in keys.items():
            try:
                volume = await self._volume(plan.log, VolumeId(vid), fresh=True)
                named |= await left.named(volume, own) if volume is not None else set()
            except Unavailable:
                raise
            except BudwoodError as error:
                if not doubted:
                    raise _refused(plan, f"what volume {VolumeId(vid)} has named can't be told: {error}") from error
                named |= own
        return named

    async def _check_rollup(self, plan: GarbagePlan) -> None:
        log = await self._logs.get(plan.log)
        await log.reader.refresh()
        covered = slot_covered_by(plan.rollup)
        if covered > slot_covered_by(log.rolled.name):
            raise _refused(plan, f"rollup {plan.rollup} is newer than any that a reader begins with")
        if covered + 1 < plan.slot:
            raise _refused(plan, f"rollup {plan.rollup} does not cover the slots up to {plan.slot}")
        await read_rollup(self._logs.store, plan.log, plan.rollup, self._logs.patience)

    async def _check_entry(self, plan: GarbagePlan, slot: int) -> None:
        entry = await self._entry(plan.log, slot)
        for stream, part in entry.header.streams.items() if entry else ():
            try:
                records = part.decode(entry_key(plan.log, slot))
                for record in records:
                    if isinstance(record, Commit) and any(not location.object for location in record.locations):
                        await self._check_commit(plan, slot, record)
            except (Refused, Unavailable):
                raise
            except BudwoodError as error:
                raise _refused(plan, f"what entry {slot} carries for {stream} can't be followed: {error}") from error

    async def _entry(self, log: str, slot: int) -> Entry | None:
        """None where it is gone already."""
        key = entry_key(log, slot)
        get = partial(get_retried, self._logs.store, key, patience=self._logs.patience)
        try:
            data = await get(end=_HEAD_BYTES)
            size = head_length(data)
            if size > len(data) >= START_BYTES:
                data += await get(start=len(data), end=size)
        except NotFound:
            return None
        return parse_entry(key, data)

    async def _check_commit(self, plan: GarbagePlan, slot: int, commit: Commit) -> None:
        """That its pages are read elsewhere by now; or that it never counted."""
        volume = await self._volume(plan.log, VolumeId(commit.vid))
        if volume is None:
            return
        history = volume.history
        if not history.folded_to < commit.lsn <= history.head:
            return
        landed = await loading(partial(history.at, commit.lsn))
        if any(location.object == entry_key(plan.log, slot) for location in landed.locations):
            raise _refused(plan, f"entry {slot} has pages of LSN {commit.lsn} of volume {volume.vid}")

    async def _volume(self, log: str, vid: VolumeId, *, fresh: bool = False) -> Volume | None:
        return await find_unless_gone(self._volumes, log, vid, fresh=fresh)

    async def _check_fold(self, plan: GarbagePlan, fold: PlannedFold) -> None:
        volume = await self._volumes.get(VolumeId(fold.vid), fresh=True)
        folding = volume.history.folding
        if not isinstance(folding, Folded):
            raise _refused(plan, f"volume {volume.vid} was never folded")
        is_left = folding.tree.root is not None or isinstance(folding.fold, FoldRelocating)
        is_left = is_left or await loading(lambda: next(volume.state.forks.items(), None)) is not None
        if fold.last and (is_left or not volume.state.is_forgotten):
            raise _refused(plan, f"volume {volume.vid} was not removed, or something of it is left")
        await self._check_held(plan, volume, folding)
        await self._check_sums(plan, volume, folding)
        checkpoint: str | None = fold.checkpoint
        while checkpoint:
            deadlist = await read_deadlist(self._logs.store, checkpoint, self._logs.patience)
            if deadlist is None:
                break
            if deadlist.vid != fold.vid:
                raise _refused(plan, f"{deadlist_key(checkpoint)} is not of volume {volume.vid}")
            dead = frozenset(deadlist.objects)
            _check_keys(plan, dead)
            await self._check_unneeded(plan, volume, folding, dead.__contains__)
            checkpoint = deadlist.base

    async def _check_unneeded(
        self, plan: GarbagePlan, volume: Volume, folding: Folded, goes: Callable[[str], bool]
    ) -> None:
        """That none of the objects goes that its checkpoint leads to, and its commits since then name."""

        def look(key: str) -> None:
            if goes(key):
                raise _refused(plan, f"volume {volume.vid} needs {key}")

        look(deadlist_key(folding.name))
        await self._each_node(folding, folding.tree.root, look)
        for segment in (await loading(folding.segments)).values():
            look(segment.object)
        for _, relocated in await loading(folding.relocations):
            look(relocated.object)
        history = volume.history
        for lsn in range(history.folded_to + 1, history.head + 1):
            for location in (await loading(partial(history.at, lsn))).locations:
                look(location.object)

    async def _each_node(self, folding: Folded, pointer: Pointer | None, look: Callable[[str], None]) -> None:
        if pointer is None:
            return
        folder = folding.tree.folder
        look(node_key(folder, pointer))
        if pointer.level:
            for child in (await self._logs.nodes.load(folder, pointer)).children:
                await self._each_node(folding, child, look)

    async def _check_held(self, plan: GarbagePlan, volume: Volume, folding: Folded) -> None:
        ended = EndedForks(self._logs, self._pins)
        for fork in map(VolumeId, folding.fold.ended):
            if not await ended.has_ended(fork, volume):
                raise _refused(plan, f"fork {fork} is there, and volume {volume.vid} holds nothing for it any more")
        lsns, _ = await loading(folding.regions)
        live = [pin.lsn for pin in await self._pins.all(volume.vid) if pin.state is PinState.LIVE]
        forks = [lsn for _, lsn in await loading(lambda: list(volume.state.forks.items()))]
        for lsn in (*live, *forks):
            if volume.history.start < lsn <= folding.lsn and lsn not in lsns:
                raise _refused(plan, f"LSN {lsn} of volume {volume.vid} is held, and its checkpoint leaves it out")

    async def _check_sums(self, plan: GarbagePlan, volume: Volume, folding: Folded) -> None:
        """All that was folded is in the checkpoint, or superseded."""
        folded = Setsum()
        for name in sorted({volume.birth.log, volume.log, *(place.log for place in volume.closes)}):
            log = await self._logs.get(name)
            stream = RolledStream(log.rolled, volume.id)
            state = await loading(stream.state)
            if state is None or state.stays[-1].fold != folding.fold:
                # It came since the rollup, or to another log: then the log's own sums are what there is.
                return
            folded += Setsum.of_sums([state.folded])
        kept = folding.tree.root.setsum if folding.tree.root else Setsum().digest
        if Setsum.of_sums([kept, folding.fold.superseded]).digest != folded.digest:
            raise _refused(plan, f"what was folded of volume {volume.vid} is neither kept nor superseded, by its sums")

    async def check_rejected(self, plan: GarbagePlan, number: int) -> None:
        """Raises Refused if that transaction was granted."""
        try:
            record = await read_epoch(self._logs.store, plan.log, number, patience=self._logs.patience)
            volume = await self._volume(plan.log, VolumeId(record.stream), fresh=True)
        except Unavailable:
            raise
        except (BadInput, BudwoodError) as error:
            raise _refused(plan, f"whose transaction {number} is can't be told: {error}") from error
        if volume is None:
            return
        folding, prefix = volume.history.folding, f"{transaction_prefix(plan.log, number)}/"
        if not isinstance(folding, Folded):
            return
        if number_of_transaction(plan.log, folding.name) == number:
            raise _refused(plan, f"transaction {number} is the newest fold of volume {volume.vid}")
        await self._check_unneeded(plan, volume, folding, lambda key: key.startswith(prefix))


def _check_keys(plan: GarbagePlan, dead: Iterable[str]) -> None:
    """What a fold leaves out are a transaction's objects, or fragments: never an entry, a rollup or anything that all
    rely upon."""
    for key in dead:
        parts = key.split("/")
        if parts[0] != "logs" or (len(parts), *parts[2:3]) not in ((5, "t"), (6, "shards")):
            raise _refused(plan, f"{key} is no object of a transaction")


def _refused(plan: GarbagePlan, why: str) -> Refused:
    return Refused(f"{plan_key(plan.log, plan_name(plan.number))} is wrong, and nothing of it is deleted: {why}")
