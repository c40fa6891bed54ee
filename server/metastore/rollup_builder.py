"""Rollup builder: the next rollup of a log, from the one before it and what came since (volume/rollup.py; rule 9).

Streams are rolled up by the same `apply` that judges and follows them, one after the other, each entry's part whole or
not at all. Where a part can't be followed (a kind of record that nobody here knows, one that is damaged or that its
state refuses) it is kept as it stands, and so is all that its stream has from there on: whoever opens that stream meets
what stands there. Nothing else goes into a rollup than what stands in the log, the rollup before it, and births.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Final, NamedTuple, TypeAlias

import msgspec
from anyio.lowlevel import checkpoint

from ...volume.envelope import decode, encode
from ...volume.errors import Corrupt, Unsupported
from ...volume.pageset import encode_pages
from ...volume.records import Birth, Close, Commit, FoldRelocating, Open, Record
from ...volume.rollup import (
    CLIENT,
    COMMIT,
    FORK,
    PART,
    RUN,
    STATE,
    RolledClient,
    RolledCommit,
    RolledFork,
    RolledPart,
    RolledRun,
    RolledState,
    Rollup,
    Stay,
    number,
    rollup_key,
    seal_rollup,
    stream_key,
)
from ...volume.setsum import EMPTY_SUM, Setsum
from ...volume.tree_node import Pointer
from ..in_thread import in_thread
from ..log.chain import Chain
from ..store.tree_change import put, without
from ..store.tree_nodes import loading_in_turns
from .history import FAN, LEVEL_BITS, Landed, Run
from .layered_map import LayeredMap
from .names_rollup import NamesRollup
from .rolled_stream import RolledLog, RolledStream, commit_in, parts_of_run, run_key
from .state import Last, Refusal, StreamState, apply, born, carried_over
from .streams import Part

_MANY_PARTS: Final = 128
_TURN_ITEMS: Final = 64
"""Take about a millisecond."""
_STREAM_ITEMS: Final = 8
"""Take as long as a stream, besides its items."""

_Item: TypeAlias = tuple[bytes, bytes | None]


class Built(NamedTuple):
    name: str
    data: bytes
    rollup: Rollup
    made: tuple[tuple[Pointer, bytes], ...]
    """The nodes of its tree that weren't in the one before."""


async def build_rollup(
    base: RolledLog, chain: Chain, tails: Mapping[str, list[Part]], births: Mapping[str, Birth]
) -> Built:
    """The rollup of everything before slot `chain.next`, from `base` and what every stream has behind that. `births`
    are those of volumes that `base` knows nothing of. Raises Corrupt, Unavailable."""
    slot = chain.next - 1
    up = await rolled_up(base, tails, births)
    splices = [without(key) if value is None else put(key, value) for key, value in up.items]
    changed = await base.tree.changed(splices, slot)
    live = changed.root.setsum if changed.root else EMPTY_SUM
    if Setsum.of_sums((live, chain.collected)).digest != chain.total:
        raise Corrupt(rollup_key(base.log, base.name), f"with what came since it is not what log {base.log} comes to")
    rollup = Rollup(
        log=base.log,
        slot=slot,
        epoch=chain.epoch,
        n=chain.n,
        writer=chain.writer,
        canonical=chain.slot,
        digest=chain.digest,
        total=chain.total,
        collected=chain.collected,
        named=chain.rollup,
        tree=changed.root,
        previous=base.name,
        folds=up.folds,
        garbage=chain.garbage,
        fragments_since=chain.fragments_since,
        policies=up.policies,
        relocations=up.relocations,
        rules=up.rules,
        shards=chain.shards,
        followed=up.followed,
    )
    return Built(*seal_rollup(rollup), rollup, changed.made)


class RolledUp(NamedTuple):
    items: list[_Item]
    """Those that a rollup has anew, or otherwise than the one before, sorted; None: which it has no more."""
    folds: bool
    """Whether a stream in it was folded."""
    policies: bool
    """Whether one has a policy, or one in an earlier rollup had."""
    relocations: bool
    """The same of a fold that has relocated pages."""
    rules: bool
    """And of rules."""
    followed: bool
    """Whether it is known that every part was followed, in the one before too."""


async def rolled_up(base: RolledLog, tails: Mapping[str, list[Part]], births: Mapping[str, Birth]) -> RolledUp:
    """What a rollup has otherwise than `base`, of every stream that has more behind that. See `build_rollup`."""
    left, items = list(tails.items()), list[_Item]()
    folds, policies, relocations, rules = base.folds, base.policies, base.relocations, base.rules
    names: dict[str, NamesRollup] = {}

    async def roll() -> RolledUp:
        nonlocal folds, policies, relocations, rules
        turns = _Turns()
        while left:
            stream, parts = left[-1]
            volume = _StreamRollup(base, stream, births.get(stream))
            if volume.known:
                items.extend(await _all_of(volume.changes(parts), turns, at_once=len(parts) > _MANY_PARTS))
                folds, policies = folds or volume.folded, policies or volume.has_policy
                relocations, rules = relocations or volume.has_relocations, rules or volume.has_rules
            else:
                of_names = names.setdefault(stream, NamesRollup(base, stream))
                items.extend(await _all_of(of_names.changes(parts), turns, at_once=True))
                policies = policies or of_names.has_policy
            # What was rolled up stays when the next one must wait for a node.
            left.pop()
        followed = base.followed and not any(key[16:17] == PART for key, _ in items)
        return RolledUp(sorted(items, key=itemgetter(0)), folds, policies, relocations, rules, followed)

    return await loading_in_turns(roll)


class _Turns:
    """Between which the loop is everybody's. A thread beside it would be no help: they would take the interpreter from
    each other, each time that a commit's page is hashed."""

    def __init__(self) -> None:
        self._worked = 0

    async def worked(self, items: int) -> None:
        self._worked += items
        if self._worked >= _TURN_ITEMS:
            self._worked = 0
            await checkpoint()


async def _all_of(changes: Iterator[_Item], turns: _Turns, *, at_once: bool) -> list[_Item]:
    """In a thread, where there is much to be done before the first of them comes, `at_once`."""
    if at_once:
        return await in_thread(list, changes)
    made: list[_Item] = []
    for item in changes:
        made.append(item)
        await turns.worked(1)
    await turns.worked(_STREAM_ITEMS)
    return made


@dataclass(slots=True)
class _Stay:
    stands: Stay
    """As far as it was rolled up."""
    landed: list[tuple[Landed, RolledCommit]] = field(default_factory=list[tuple[Landed, RolledCommit]])
    """The commits that came since."""


class _StreamRollup:
    """One stream's part of a rollup."""

    def __init__(self, base: RolledLog, stream: str, birth: Birth | None) -> None:
        self._log = base.log
        self._key = stream_key(stream)
        self._rolled = RolledStream(base, stream)
        self._birth = birth
        self._state: StreamState | None = None
        self._stays: list[_Stay] = []
        before = self._rolled.state()
        if before is not None:
            self._stays = [_Stay(stay) for stay in before.stays]
            self._state = self._rolled.restored(before.stays[-1], self._key, finished=before.finished)
        self._page_size = before.page_size if before else birth.page_size if birth else 0
        self._folded = before.folded if before else EMPTY_SUM
        self._folded_before = _folded_to(self._state)

    @property
    def known(self) -> bool:
        """Whether it is a volume that holds pages."""
        return self._page_size > 0

    def changes(self, parts: list[Part]) -> Iterator[tuple[bytes, bytes | None]]:
        """What it puts into the tree. Raises NotLoaded."""
        followed = 0
        if not self._rolled.unfollowed():
            while followed < len(parts) and self._follow(parts[followed]):
                followed += 1
        for part in parts[followed:]:
            yield self._key + PART + number(part.slot), encode(RolledPart(size=part.size, part=part.carried))
        if followed:
            yield from self._state_changes()

    @property
    def folded(self) -> bool:
        return self._state is not None and self._state.fold is not None

    @property
    def has_policy(self) -> bool:
        return any(stay.stands.policy is not None for stay in self._stays)

    @property
    def has_rules(self) -> bool:
        return any(stay.stands.rules is not None for stay in self._stays)

    @property
    def has_relocations(self) -> bool:
        return any(isinstance(stay.stands.fold, FoldRelocating) for stay in self._stays)

    def _follow(self, part: Part) -> bool:
        """Whether the stream takes the part. If not, all is as it was."""
        state, stays = self._state, len(self._stays)
        stands, landed = (self._stays[-1].stands, len(self._stays[-1].landed)) if stays else (None, 0)
        try:
            records = zip(part.carried.decode(part.key), part.carried.records, strict=True)
            if all(self._take(record, raw, part) for record, raw in records):
                return True
        except (Corrupt, Unsupported):
            # It is kept as it stands, and whoever opens the stream meets the same.
            pass
        self._state = state
        del self._stays[stays:]
        if stands is not None:
            self._stays[-1].stands = stands
            del self._stays[-1].landed[landed:]
        return False

    def _take(self, record: Record, raw: bytes, part: Part) -> bool:
        state = self._state
        if isinstance(record, Open) and (state is None or state.closed is not None):
            return self._open(record)
        if state is None:
            if self._birth is None or self._birth.log != self._log:
                return False
            state = born(self._birth)
            self._stays.append(_Stay(Stay(start=state.head, start_length=state.length)))
        after = apply(state, record)
        if isinstance(after, Refusal):
            return False
        stay = self._stays[-1]
        if isinstance(record, Commit):
            rolled = RolledCommit(slot=part.slot, size=part.size, before=state.length, record=raw)
            stay.landed.append((Landed.of(record, part.key, part.size, state.length), rolled))
        if isinstance(record, Close):
            stay.stands = msgspec.structs.replace(stay.stands, closed=(record.to, part.slot))
        self._state, stay.stands = after, _standing_at(stay.stands, after)
        return True

    def _open(self, record: Open) -> bool:
        """Early ones don't say when the newest commit was made: whoever comes here with the volume knows."""
        if record.vid != self._key:
            return False
        known = self._state
        clients = known.clients if known else LayeredMap[bytes, Last]()
        forks = known.forks if known else LayeredMap[bytes, int]()
        self._state = carried_over(record, clients, forks)
        stay = Stay(start=record.head, start_length=record.length, opened=(record.log, record.slot))
        self._stays.append(_Stay(_standing_at(stay, self._state)))
        return True

    def _state_changes(self) -> Iterator[tuple[bytes, bytes | None]]:
        state = self._state
        assert state is not None
        if _folded_to(state) > self._folded_before:
            yield from self._without_folded(_folded_to(state))
        stays = tuple(stay.stands for stay in self._stays)
        rolled = RolledState(page_size=self._page_size, stays=stays, finished=state.finished, folded=self._folded)
        yield self._key + STATE, encode(rolled)
        for stay in self._stays:
            for landed, commit in stay.landed:
                if landed.lsn > _folded_to(state):
                    yield self._key + COMMIT + number(landed.lsn), encode(commit)
            yield from self._runs(stay, _folded_to(state))
        for client, last in state.clients.changed():
            yield self._key + CLIENT + client, None if last is None else encode(RolledClient(**last._asdict()))
        for child, lsn in state.forks.changed():
            yield self._key + FORK + child, None if lsn is None else encode(RolledFork(lsn=lsn))

    def _without_folded(self, folded_to: int) -> Iterator[tuple[bytes, None]]:
        """Take out the commits that were folded, and the runs that begin with one."""
        sums = [self._folded]
        for rest, value in self._rolled.between(COMMIT):
            if int.from_bytes(rest, "big") <= folded_to:
                sums.append(commit_in(self._log, decode(self._log, value, RolledCommit)).setsum)
                yield self._key + COMMIT + rest, None
        for rest, _ in self._rolled.between(RUN):
            start, level, place = parts_of_run(rest)
            if start + (place << LEVEL_BITS * level) < folded_to:
                yield self._key + RUN + rest, None
        landed = (landed for stay in self._stays for landed, _ in stay.landed if landed.lsn <= folded_to)
        self._folded = Setsum.of_sums([*sums, *(each.setsum for each in landed)]).digest

    def _runs(self, stay: _Stay, folded_to: int) -> Iterator[tuple[bytes, bytes]]:
        """Those that are whole now, level by level; none that begins with a folded commit."""
        start, total = stay.stands.start, stay.stands.head - stay.stands.start
        old = total - len(stay.landed)
        rolled = self._rolled.range(self._page_size, start)
        runs = {old + at: Run.of(landed, self._page_size) for at, (landed, _) in enumerate(stay.landed)}
        level = 0
        while runs:
            made: dict[int, Run] = {}
            size = 1 << LEVEL_BITS * (level + 1)
            first = max(old // size, -(-(folded_to - start) // size))
            for place in range(first, total // size):
                parts = range(place * FAN, (place + 1) * FAN)
                run = Run.joined(runs[part] if part in runs else rolled.run(level, part) for part in parts)
                value = RolledRun(pages=encode_pages(run.pages), floor=run.floor, reach=run.reach)
                yield run_key(self._key, start, level + 1, place), encode(value)
                made[place] = run
            runs, level = made, level + 1


def _standing_at(stay: Stay, state: StreamState) -> Stay:
    return msgspec.structs.replace(
        stay,
        head=state.head,
        length=state.length,
        time=state.time,
        since=state.since,
        collect=state.collect,
        collected=state.collected,
        fold=state.fold,
        policy=state.policy,
        rules=state.rules,
    )


def _folded_to(state: StreamState | None) -> int:
    return state.fold.lsn if state is not None and state.fold is not None else 0
