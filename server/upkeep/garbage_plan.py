"""Planner: what of a log nobody can reach any more, from one rollup to the next (volume/garbage.py; S1.8, S4.10).

    entries       those below the first slot that pages are still read in; and none that the rollup doesn't cover
    folds         those of volumes whose newest fold is another than in the rollup that the last plan left as the oldest
    rollups       all that are older than the newest that is named
    transactions  those that took a number before this plan did: granted ones are settled, others are rejected with it,
                  and again with the next, until nothing of them is found: who was rejected may not know it yet
    fragments     that no commit has named, and none will (unnamed.py)
    pins          their revisions that say nothing any more (spent_pins.py)

The last two are looked for when that is asked for, since each look lists what there is. What the others cost follows
the streams that the log has, not its history: of each, its state and the oldest of its commits are looked at.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from anyio.lowlevel import checkpoint as let_others

from ...volume.checkpoint import number_of_transaction, transaction_prefix
from ...volume.entry import EpochRecord
from ...volume.envelope import decode
from ...volume.errors import BudwoodError, Corrupt, NotFound
from ...volume.garbage import GarbagePlan, PlannedFold, PlannedPin, number_of_plan
from ...volume.ids import VolumeId
from ...volume.records import Fold, settled_by
from ...volume.rollup import PART, RolledCommit, RolledState, rollup_key
from ..log.boundary import BoundaryWatch
from ..log.chain import slot_covered_by
from ..log.reader import read_rollup
from ..log.term import find_epoch, take_transaction
from ..metastore.folded import Folded
from ..metastore.logs import Log
from ..metastore.open_volume import Volume
from ..metastore.open_volumes import Volumes
from ..metastore.pin_store import Pins
from ..metastore.rolled_stream import RolledLog, RolledStream, commit_in
from ..store.protocol import Store
from ..store.retrying import Patience, retried
from ..store.tree_nodes import loading
from .deadlists import read_deadlist
from .removed import find_unless_gone, nothing_left
from .spent_pins import spent
from .unnamed import OLD_MS, Found, Unnamed

MOST_PINS: Final = 16_384
"""In a plan; what is left is for the next."""


class Hold(NamedTuple):
    """What keeps a log from being cut off further."""

    slot: int
    stream: bytes
    """The 16 bytes of its keys."""


class Survey(NamedTuple):
    """What a log's newest rollup says of what may go."""

    rollup: str
    holds: list[Hold]
    """Of each stream that has one, lowest first."""
    folds: list[PlannedFold]

    @property
    def slot(self) -> int:
        """The first that must stay."""
        covered = slot_covered_by(self.rollup) + 1
        return min(covered, self.holds[0].slot) if self.holds else covered


class Leftovers(NamedTuple):
    """What nothing that a log says leads to."""

    fragments: Found = Found()
    pins: tuple[PlannedPin, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.fragments.fragments or self.pins)


NOTHING_LEFT: Final = Leftovers()


@dataclass(frozen=True, slots=True)
class Planner:
    store: Store
    volumes: Volumes
    pins: Pins
    patience: Patience

    async def survey(self, log: Log) -> Survey:
        """Raises Corrupt, Unavailable."""
        rolled = log.rolled.as_it_is()
        before = await self._before(log, rolled)
        holds, folds = list[Hold](), list[PlannedFold]()
        key = await loading(rolled.next_stream)
        while key:
            await let_others()
            stream = RolledStream(rolled, key)
            state = await loading(stream.state)
            settled_to = 0 if state is None else await self._settled_to(key, state)
            slot = await loading(partial(_hold, stream, settled_to))
            if slot is not None:
                holds.append(Hold(slot, key))
            fold = None if state is None or state.stays[-1].closed else state.stays[-1].fold
            if fold is not None and fold != await _fold_in(before, key):
                folds.append(await loading(partial(_planned, stream, fold)))
            key = await loading(partial(rolled.next_stream, key))
        return Survey(rolled.name, sorted(holds), folds)

    async def leftovers(self, log: Log, now_ms: int, pinned: Iterable[VolumeId] | None) -> Leftovers:
        """Of all volumes in the log, or of those the pins. Raises Corrupt, Unavailable."""
        fragments = await Unnamed(self.store, self.volumes.logs, self.volumes, self.patience).of(log, now_ms)
        pins = list[PlannedPin]()
        for vid in await self._in(log) if pinned is None else pinned:
            pins += await spent(self.store, self.pins, vid, self.patience)
            if len(pins) >= MOST_PINS:
                break
        if any(pin.ended for pin in pins) and not (fragments.since_ms or log.reader.chain.fragments_since):
            # Who doesn't know that pins go must not take a label of theirs: it reads the log no further.
            fragments = fragments._replace(since_ms=now_ms - OLD_MS)
        return Leftovers(fragments, tuple(pins[:MOST_PINS]))

    async def plan(
        self,
        log: Log,
        survey: Survey,
        *,
        writer: bytes,
        now_ms: int,
        left: Leftovers = NOTHING_LEFT,
        forced: bool = False,
        instead_of: GarbagePlan | None = None,
    ) -> GarbagePlan | None:
        """None where nothing is to be deleted, which costs no write, unless `forced`. Without a `writer` no number is
        taken either: it is to be looked at. `instead_of` stands, and isn't due: all that it takes out, this does, but
        for leftovers, which are found again."""
        first = max(await BoundaryWatch(self.store, log.name, 0, self.patience).read(), 1)
        slot = survey.slot if survey.slot > first else 0
        if instead_of is not None and instead_of.slot:
            first, slot = instead_of.first, max(slot, instead_of.slot)
        oldest = await self.oldest_rollup(log.name)
        if not survey.rollup or not (forced or slot or survey.folds or left or oldest != survey.rollup):
            return None
        taken = await self.taken(log.name)
        number = max(taken, default=0) + 1
        if writer:
            number = await take_transaction(
                self.store,
                log.name,
                above=number - 1,
                writer=writer,
                now_ms=now_ms,
                node=self.volumes.logs.claim.name,
                patience=self.patience,
            )
        settled, rejected = list[int](), list[int]()
        for n, record in taken.items():
            is_settled = await self.granted(log.name, n, record.stream) or (
                instead_of is None and await self._is_gone(log, n)
            )
            (settled if is_settled else rejected).append(n)
        return GarbagePlan(
            log=log.name,
            number=number,
            base=log.reader.chain.garbage,
            rollup=survey.rollup,
            first=first,
            slot=slot,
            folds=tuple(survey.folds),
            rejected=tuple(rejected),
            settled=tuple(settled),
            fragments=left.fragments.fragments,
            fragments_since=left.fragments.since_ms,
            pins=left.pins,
            time=now_ms,
        )

    async def oldest_rollup(self, log: str) -> str:
        """Of those that stand; "" where there is none."""
        prefix = rollup_key(log, "")
        keys = await retried(f"list {prefix}", lambda: self.store.list(prefix, limit=1), self.patience)
        return keys[0].removeprefix(prefix) if keys else ""

    async def _in(self, log: Log) -> list[VolumeId]:
        """The volumes that are in the log now."""
        found = list[VolumeId]()
        for stream in sorted(log.streams.tails(log.reader.chain.next)):
            try:
                volume = await self.volumes.get(VolumeId.parse(stream))
            except BudwoodError:
                # The names, or what can't be followed.
                continue
            if volume.log == log.name:
                found.append(volume.vid)
        rolled, tails = log.rolled.as_it_is(), frozenset(vid.raw for vid in found)
        key = await loading(rolled.next_stream)
        while key:
            await let_others()
            state = await loading(RolledStream(rolled, key).state)
            if state is not None and key not in tails and state.stays[-1].closed is None and not state.finished:
                found.append(VolumeId(key))
            key = await loading(partial(rolled.next_stream, key))
        return found

    async def _before(self, log: Log, rolled: RolledLog) -> RolledLog | None:
        """What the plan before has left as the oldest; None where there was no plan."""
        oldest = await self.oldest_rollup(log.name)
        if not log.reader.chain.garbage or not oldest:
            return None
        before = RolledLog(rolled.nodes, log.name)
        before.move_on(oldest, await read_rollup(self.store, log.name, oldest, self.patience))
        return before

    async def _settled_to(self, key: bytes, state: RolledState) -> int:
        """Up to which LSN nothing of the volume lies in entries, wherever it is by now."""
        stay = state.stays[-1]
        if stay.closed is None:
            return settled_by(stay.fold)
        vid, (log, _) = VolumeId(key), stay.closed
        try:
            volume = await find_unless_gone(self.volumes, log, vid)
        except BudwoodError:
            # Whoever can't tell keeps all of it.
            return 0
        return stay.head if volume is None else volume.history.settled_to

    async def taken(self, log: str) -> dict[int, EpochRecord]:
        """The transactions that took a number; a plan's has no `stream`. Raises Corrupt, Unavailable."""
        prefix = f"logs/{log}/epochs/"
        keys = await retried(f"list {prefix}", lambda: self.store.list(prefix), self.patience)
        found: dict[int, EpochRecord] = {}
        for key in keys:
            n = int(key.removeprefix(prefix), 16)
            record = await find_epoch(self.store, log, n, patience=self.patience)
            # Another collector may have settled it since it was listed.
            if record is not None and record.purpose == "transaction":
                found[n] = record
        return found

    async def _is_gone(self, log: Log, n: int) -> bool:
        """Whether an earlier plan has rejected that transaction, and nothing was written for it since."""
        before = log.reader.chain.garbage
        if not before or n > number_of_plan(before):
            return False
        prefix = f"{transaction_prefix(log.name, n)}/"
        return not await retried(f"list {prefix}", lambda: self.store.list(prefix, limit=1), self.patience)

    async def granted(self, log: str, n: int, stream: bytes) -> bool:
        """Whether that transaction is a plan's or a granted fold's; where that can't be told, whether any of it is
        needed."""
        if not stream:
            return True
        try:
            volume = await self.volumes.get(VolumeId(stream), fresh=True)
        except NotFound:
            return False
        checkpoint = volume.state.fold.checkpoint if volume.state.fold else ""
        while checkpoint:
            found = number_of_transaction(log, checkpoint)
            if found is not None and found <= n:
                return found == n
            deadlist = await read_deadlist(self.store, checkpoint, self.patience)
            if deadlist is None:
                # It is gone with another log's garbage, if the volume moved. What is still needed tells.
                return await _leads_into(volume, f"{transaction_prefix(log, n)}/")
            checkpoint = deadlist.base
        return False


def _hold(stream: RolledStream, settled_to: int) -> int | None:
    """The lowest slot that something of the stream still lies in. Raises NotLoaded, Corrupt."""
    slots = list[int]()
    part = None if stream.log.followed else next(stream.between(PART), None)
    if part is not None:
        slots.append(int.from_bytes(part[0], "big"))
    for _, value in stream.commits_behind(settled_to):
        rolled = decode(stream.log.name, value, RolledCommit)
        commit = commit_in(stream.log.name, rolled)
        if any(not location.object for location in commit.locations):
            slots.append(rolled.slot)
            break
    return min(slots, default=None)


async def _leads_into(volume: Volume, prefix: str) -> bool:
    """Whether the volume's newest checkpoint needs an object of that prefix."""
    folding = volume.history.folding
    if not isinstance(folding, Folded):
        return False
    segments = (await loading(folding.segments)).values()
    needed = [*(segment.object for segment in segments), *await folding.tree.node_keys()]
    needed += [relocated.object for _, relocated in await loading(folding.relocations)]
    return any(key.startswith(prefix) for key in needed)


def _planned(stream: RolledStream, fold: Fold) -> PlannedFold:
    """Raises NotLoaded."""
    last = nothing_left(stream, fold)
    return PlannedFold(vid=fold.vid, checkpoint=fold.checkpoint, deadlist=fold.deadlist, last=last)


async def _fold_in(rolled: RolledLog | None, key: bytes) -> Fold | None:
    if rolled is None:
        return None
    try:
        state = await loading(RolledStream(rolled, key).state)
    except Corrupt:
        # It was collected, and then its rollup was written again, by whoever slept before the first time.
        return None
    # What a volume had when it left was no plan's here, and may have been none's where it went.
    return state.stays[-1].fold if state is not None and state.stays[-1].closed is None else None
