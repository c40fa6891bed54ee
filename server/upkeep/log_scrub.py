"""Log scrub: one log, slot by slot, from its anchor, from behind its boundary or from where an earlier scrub came to.

Every entry is read whole: its head, by the rules that any reader goes by (log/chain.py); its body, its fragments and
what its commits say of them (entry_scrub.py); what its records come to (stream_states.py); and behind its slot the
rollups that cover it (rollup_check.py). What was appended after this began is left for another time.

After an entry that can't be read the chain goes on by the next one's own word, and states by the next rollup's. So the
damage of one object is told once, and what stands behind it is verified all the same.

To go on at a slot, the heads from the newest rollup before it are read again, and nothing is said of them.

A log that was collected begins behind the oldest rollup that must stand: that of the plan which is acknowledged, or the
last in the row of those that were named, each made from the one before. What is older, and entries below the boundary,
may be there or not. What stands from the boundary up to that rollup's slot is covered_scrub.py's.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing
from dataclasses import replace
from typing import Final

from ...volume.entry import Entry, entry_key, parse_entry, slot_of
from ...volume.errors import BadInput, Corrupt, NotFound, Unsupported
from ...volume.records import Birth, Commit, Fold, Open, Record
from ...volume.rollup import Rollup, rollup_key, slot_of_rollup
from ..log.boundary import BoundaryWatch, boundary_key
from ..log.chain import Chain, Verdict, newest_rollup, slot_covered_by, slot_named_by
from ..log.reader import LONG_TAIL
from ..log.term import read_epoch
from ..metastore.rolled_stream import RolledLog
from ..metastore.streams import Part
from ..store.tree_nodes import AT_ONCE, Nodes
from .births import Births, key_of
from .covered_scrub import CoveredScrub
from .entry_scrub import EntryScrub
from .findings import Findings, Span, Wrong, words_of
from .fold_scrub import check_deadlist
from .lost_entry import LostEntry
from .moves import Moves
from .objects import Objects
from .plan_scrub import Plans, missing_boundary, read_plans
from .reach import Reach
from .rollup_check import Behind, RollupCheck
from .stream_states import NO_BIRTH, StreamStates

NODE_BYTES: Final = 16 << 20
"""Nodes of a log's rollups that are kept in memory."""


class LogScrub:
    def __init__(
        self, objects: Objects, log: str, *, names: str, births: Births, reach: Reach, moves: Moves, findings: Findings
    ) -> None:
        """`names` is the id of the store's namespace, "" where that isn't known."""
        self.log = log
        self._objects = objects
        self._births = births
        self._reach = reach
        self._findings = findings
        nodes = Nodes(objects.store, limit_bytes=NODE_BYTES, patience=objects.patience)
        self._base = RolledLog(nodes, log)
        """The newest rollup that was found right."""
        self._rollups = RollupCheck(objects, nodes, self._base, reach, names)
        self._entries = EntryScrub(objects, log, reach, births)
        self.states = StreamStates(log, names, births, self._base, moves)
        self._names = names
        self._lost_entry = LostEntry(
            objects, log, names=names, reach=reach, rollups=self._rollups, entries=self._entries, states=self.states
        )
        self._chain = Chain(log=log)
        self._tails: dict[str, list[Part]] = {}
        self._unborn: set[str] = set()
        self._lost: list[int] = []
        """Slots whose entries can't be read, since the last one that could."""
        self._known = True
        """Whether none was lost since `base`."""
        self._standing: list[str] = []
        """Rollups, oldest first, from the next to look at on."""
        self._listed: frozenset[str] = frozenset()
        """All that stand."""
        self._newest = -1
        """The last slot to look at."""
        self._tip = -1
        """The last whose entry stands."""
        self._boundary = 0
        self._plans = Plans()
        self._collected = ""
        """The newest plan that an entry acknowledges."""
        self._oldest = -1
        """The slot of the oldest rollup that must stand; -1 where nothing was collected."""

    async def run(self, first: int = 0, passed: Callable[[int], None] = lambda _: None) -> None:
        """From that slot on. `passed` is told the next slot now and then. Raises Unavailable, Unauthorized."""
        await self._list()
        await self._begin(first)
        slot = self._chain.next
        while slot <= self._newest:
            keys = [entry_key(self.log, each) for each in range(slot, min(slot + AT_ONCE, self._newest + 1))]
            if slot < first:
                keys = keys[: first - slot]
            found = await (self._objects.heads(keys) if slot < first else self._objects.get_all(keys))
            for key, data in zip(keys, found, strict=True):
                if data is None and not await self._was_acknowledged(slot):
                    return
                await self._slot(slot, key, data, quiet=slot < first)
                slot += 1
            passed(slot)
        if self._rollups.blind:
            for wrong in await self._rollups.sweep():
                self._findings.tell(wrong)

    async def _list(self) -> None:
        """What stands, before anything is read: rollups first, since they cover what is listed after them."""
        prefix = rollup_key(self.log, "")
        async for key in self._objects.keys(prefix):
            try:
                slot_of_rollup(key.removeprefix(prefix))
            except BadInput:
                self._findings.tell(Wrong(key, ["it stands among the rollups of a log and is none"]))
            else:
                self._standing.append(key.removeprefix(prefix))
        async with aclosing(self._objects.keys(f"logs/{self.log}/entries/")) as keys:
            async for key in keys:
                try:
                    self._newest = slot_of(key)
                    break
                except BadInput:
                    self._findings.tell(Wrong(key, ["it stands among the entries of a log and is none"]))
        self._listed = frozenset(self._standing)
        self._tip = self._newest
        # A rollup stands only behind what it covers.
        self._newest = max([self._newest, *map(slot_of_rollup, self._standing[-1:])])
        watch = BoundaryWatch(self._objects.store, self.log, 1, self._objects.patience)
        async for key in self._objects.keys(f"logs/{self.log}/boundary/"):
            try:
                self._boundary = max(self._boundary, await watch.at(key))
            except NotFound:
                # Collected since it was listed, for a higher one.
                continue
            except (Corrupt, Unsupported) as error:
                highest = not self._boundary
                self._findings.tell(Wrong(key, [words_of(key, error)], stops=self.log if highest else ""))
                self._boundary = max(self._boundary, slot_of(key))
        self._plans = await read_plans(self._objects, self.log, self._findings)
        await self._epochs()

    async def _epochs(self) -> None:
        """Those of transactions, which no entry speaks of; a collector reads them."""
        prefix = f"logs/{self.log}/epochs/"
        async for key in self._objects.keys(prefix):
            try:
                n = int(key.removeprefix(prefix), 16)
                record = await read_epoch(self._objects.store, self.log, n, patience=self._objects.patience)
            except ValueError:
                self._findings.tell(Wrong(key, ["it stands among the epochs of a log and is none"]))
            except (Corrupt, Unsupported) as error:
                self._findings.tell(Wrong(key, [words_of(key, error)]))
            else:
                self._objects.count += record.purpose == "transaction"

    async def _begin(self, first: int) -> None:
        """Behind the newest rollup that covers nothing from `first` on, and all below the boundary; or behind the
        oldest that must stand."""
        await self._find_begin()
        await self._find_collected()
        limit = max(first, self._boundary)
        for name in reversed(self._standing):
            if self._boundary - 1 <= slot_of_rollup(name) < limit:
                try:
                    rollup = await self._rollups.read(name)
                except (Corrupt, Unsupported):
                    continue
                if slot_of_rollup(name) < first:
                    self._go_by(name, rollup)
                else:
                    await self._begin_behind(name, rollup, first)
                break
        else:
            await self._begin_covered(first)
        if self._boundary > self._chain.next and (self._rollups.begin is not None or not self._rollups.begin_name):
            problem = f"no rollup that can be read covers what lies below slot {self._boundary}"
            self._findings.tell(Wrong(entry_key(self.log, self._boundary), [problem], stops=self.log))
        if self._boundary > self._chain.next:
            self._chain = Chain(log=self.log, next=self._boundary)
            self._mark_lost(self._boundary - 1)
        self._standing = [name for name in self._standing if slot_of_rollup(name) >= self._chain.next]

    async def _begin_covered(self, first: int) -> None:
        """Where something was collected: behind the oldest rollup that can be read and covers what is gone."""
        for name in self._standing if self._boundary or self._collected else ():
            if slot_of_rollup(name) >= self._boundary - 1:
                try:
                    rollup = await self._rollups.read(name)
                except (Corrupt, Unsupported) as error:
                    stops = self.log if name == self._rollups.begin_name else ""
                    key = rollup_key(self.log, name)
                    self._findings.tell(Wrong(key, [words_of(key, error)], stops=stops))
                    self._rollups.blind = True
                    continue
                await self._begin_behind(name, rollup, first)
                return

    async def _begin_behind(self, name: str, rollup: Rollup, first: int) -> None:
        """A rollup before which nothing was followed: all of it, and what it covers from `first` on, is looked at."""
        right, wrongs = await self._rollups.check(name, Behind(self._chain, {}, {}, (), False))
        for wrong in wrongs:
            self._findings.tell(wrong)
        covered = CoveredScrub(self._objects, self.log, self._rollups, self._entries, self._reach, self._findings)
        if not first:
            await covered.anchor()
        await covered.entries(name, rollup, max(first, self._boundary, 1))
        if right is not None:
            self._go_by(name, rollup)
            await covered.streams(self._base, self._boundary)
        else:
            self._chain = Chain.behind(rollup)
            self._go_adrift()

    async def _find_collected(self) -> None:
        """The newest plan that is acknowledged, by the rollup that readers begin from and what came since; and which
        rollups must stand, and are of use."""
        begin, slot, epoch = self._rollups.begin, 0, 0
        if begin is not None:
            self._collected, slot, epoch = begin.garbage, begin.slot + 1, begin.epoch
        while slot <= self._newest:
            keys = [entry_key(self.log, each) for each in range(slot, min(slot + AT_ONCE, self._newest + 1))]
            for key, data in zip(keys, await self._objects.heads(keys), strict=True):
                try:
                    header = parse_entry(key, data).header if data is not None else None
                except (Corrupt, Unsupported):
                    continue
                if header is not None and header.epoch >= epoch:
                    epoch = header.epoch
                    self._collected = max([self._collected, *header.garbage])
            slot += len(keys)
        if self._collected:
            await self._find_oldest()
            await self._find_boundary()

    async def _find_oldest(self) -> None:
        plan, row = self._plans.stand.get(self._collected), list[str]()
        name, least = self._rollups.begin_name, slot_of_rollup(plan.rollup) if plan else -1
        while name in self._listed and slot_of_rollup(name) >= least:
            row.append(name)
            try:
                name = (await self._rollups.read(name)).previous
            except (Corrupt, Unsupported):
                # Whatever stands before it may be in the row.
                row += [each for each in self._standing if least <= slot_of_rollup(each) < slot_of_rollup(name)]
                break
        if plan is None and self._collected in self._plans.damaged | self._plans.due:
            # What it takes out of the row isn't known.
            row = row[:1]
        self._oldest = min([least, *map(slot_of_rollup, row)]) if plan else min(map(slot_of_rollup, row), default=-1)
        useful = list[str]()
        for name in self._standing:
            if name in row or await self._is_made_from(name, self._rollups.begin_name):
                useful.append(name)
        self._standing = useful
        if plan is not None and plan.rollup not in self._listed:
            await self._named(plan.rollup)

    async def _is_made_from(self, name: str, previous: str) -> bool:
        try:
            return (await self._rollups.read(name)).previous == previous
        except (Corrupt, Unsupported):
            return slot_of_rollup(name) > slot_covered_by(previous)

    async def _find_boundary(self) -> None:
        """It may be lost, and what lies below it gone all the same."""
        plan = self._plans.stand.get(self._collected)
        if plan is not None:
            wrong = missing_boundary(plan, self._plans, self._collected, [self._boundary])
            if wrong is not None:
                self._findings.tell(wrong)
                self._boundary = plan.slot
        first = max(self._boundary, 1)
        if first <= self._tip and await self._objects.get(entry_key(self.log, first)) is None:
            lowest = first
            async for key in self._objects.keys(f"logs/{self.log}/entries/"):
                slot = slot_of(key)
                lowest = slot if slot else lowest
            if not self._boundary and lowest > first + 1:
                key = boundary_key(self.log, lowest)
                self._findings.tell(Wrong(key, [f"it is missing, though what lies below slot {lowest} is deleted"]))
                self._boundary = lowest

    async def _find_begin(self) -> None:
        """The rollup that readers begin from."""
        name = ""
        for slot in (self._newest, self._newest - 1):
            data = await self._objects.get(entry_key(self.log, slot)) if slot > 0 else None
            if data is not None:
                try:
                    entry = parse_entry(entry_key(self.log, slot), data)
                    slot_named_by(entry)
                except (Corrupt, Unsupported):
                    continue
                name = entry.header.rollup
                break
        if self._newest - slot_covered_by(name) > LONG_TAIL:
            name = newest_rollup(name, *(each for each in self._standing if slot_of_rollup(each) < self._newest))
        if name:
            self._rollups.begin_name = name
            try:
                self._rollups.begin = await self._rollups.read(name)
            except (Corrupt, Unsupported):
                return

    async def _was_acknowledged(self, missing: int) -> bool:
        """Whether anything that stands behind the slot says that an entry was there."""
        if any(slot_of_rollup(name) >= missing for name in self._standing):
            return True
        for slot in range(self._newest, missing, -1):
            data = await self._objects.get(entry_key(self.log, slot))
            if data is not None:
                try:
                    return parse_entry(entry_key(self.log, slot), data).header.acked >= missing
                except (Corrupt, Unsupported):
                    continue
        return False

    async def _slot(self, slot: int, key: str, data: bytes | None, *, quiet: bool) -> None:
        wrong = Wrong(key)
        try:
            if data is None:
                raise Corrupt(key, "it is missing, though later ones build on it")
            entry = parse_entry(key, data)
        except (Corrupt, Unsupported) as error:
            wrong.add(words_of(key, error))
            wrong.stops = self._stops(slot)
            if not quiet:
                spans, more = await self._lost_entry.spoils(
                    slot, data, newest=self._newest, standing=self._standing, total=self._chain.total
                )
                wrong.add("; ".join([*wrong.problems, *([more] if more else [])]), spans)
                del wrong.problems[:-1]
            self._mark_lost(slot)
        else:
            await self._entry(entry, data or b"", wrong, quiet=quiet)
        if not quiet:
            self._findings.tell(wrong)
        while self._standing and slot_of_rollup(self._standing[0]) <= slot:
            name = self._standing.pop(0)
            if not quiet:
                await self._rollup(name)

    async def _entry(self, entry: Entry, data: bytes, wrong: Wrong, *, quiet: bool) -> None:
        before = "" if self._lost else self._chain.rollup
        if self._judge(entry, wrong) is Verdict.VOID:
            if not quiet:
                self._entries.check_bytes(entry, data, wrong)
            return
        took: list[tuple[str, Commit]] = []
        for stream, carried in entry.header.streams.items():
            part = Part(entry.key, entry.size, entry.header.i, carried, None)
            self._tails.setdefault(stream, []).append(part)
            head = max(await self.states.head_of(stream), 0)
            taken = await self.states.take(stream, part, quiet=quiet)
            took += [(stream, record) for record in taken.records if isinstance(record, Commit)]
            if not quiet:
                await self._folds(stream, entry.header.i, taken.records)
            if taken.missing_birth and not quiet:
                await self._missing_birth(stream)
            for problem in taken.problems:
                wrong.add(problem, [Span(stream, head + 1, None, stream == self._names)])
        if quiet:
            return
        if self._collected in entry.header.garbage and before and before not in self._listed:
            # The plan's own, or one behind it.
            await self._named(before)
        name = self._chain.rollup
        if slot_covered_by(name) >= max(self._boundary, self._oldest) and name not in self._listed:
            await self._named(name)
        for found in await self._entries.check(entry, data, took, wrong):
            self._findings.tell(found)

    def _judge(self, entry: Entry, wrong: Wrong) -> Verdict:
        """What the entry is by the chain, which goes on behind it in any case."""
        chain = self._chain if not self._lost else _resumed(self._chain, entry, self._lost)
        try:
            verdict = chain.judge(entry)
            if verdict is Verdict.VOID:
                self._chain = chain.past_void(entry)
                return verdict
            self._chain = chain.past(entry)
        except (Corrupt, Unsupported) as error:
            wrong.add(words_of(entry.key, error))
            wrong.stops = self._stops(entry.header.i)
            self._chain = _behind(entry, chain)
        self._lost = []
        return Verdict.CANONICAL

    async def _folds(self, stream: str, slot: int, records: tuple[Record, ...]) -> None:
        """Of folds that no plan has carried out yet, since the log's oldest rollup knows nothing of them, the deadlists
        must stand; but those of a volume that moved away are another log's."""
        for record in records:
            fold = record if isinstance(record, Fold) else record.fold if isinstance(record, Open) else None
            volume = await self._reach.volume(stream) if fold is not None else None
            if fold is None or volume is None or volume.log != self.log:
                continue
            if all(place.log != self.log or place.slot < slot for place in volume.closes):
                await check_deadlist(self._objects, fold, self._findings)

    async def _missing_birth(self, stream: str) -> None:
        self._unborn.add(stream)
        if await self._births.is_missing(stream) and not self._findings.knows(key_of(stream)):
            spoilt = await self._reach.of_all(stream, 1, whole=True)
            self._findings.tell(Wrong(key_of(stream), [NO_BIRTH], spoilt))

    async def _named(self, name: str) -> None:
        """A rollup that an entry names, and that wasn't there when this began to look."""
        key = rollup_key(self.log, name)
        if self._findings.knows(key):
            return
        try:
            await self._rollups.read(name)
        except (Corrupt, Unsupported) as error:
            stops = self.log if name == self._rollups.begin_name else ""
            self._findings.tell(Wrong(key, [words_of(key, error)], stops=stops))

    async def _rollup(self, name: str) -> None:
        births: dict[str, Birth] = {}
        for stream in self._tails:
            birth = await self._births.get(stream)
            if birth is not None and birth.kind == "pages":
                births[stream] = birth
            elif birth is None and stream != self._names:
                self._unborn.add(stream)
        known = self._known and not self._lost
        behind = Behind(self._chain, self._tails, births, self._unborn, known)
        rollup, wrongs = await self._rollups.check(name, behind)
        for wrong in wrongs:
            self._findings.tell(wrong)
        if rollup is not None:
            self._go_by(name, rollup)

    def _go_by(self, name: str, rollup: Rollup) -> None:
        self._base.move_on(name, rollup)
        self._chain = Chain.behind(rollup)
        self._tails, self._lost, self._known = {}, [], True
        self.states.rebase()

    def _mark_lost(self, slot: int) -> None:
        self._chain = replace(self._chain, next=slot + 1)
        self._lost.append(slot)
        self._go_adrift()

    def _go_adrift(self) -> None:
        self._known, self.states.adrift = False, True

    def _stops(self, slot: int) -> str:
        """The log, if its readers come to that slot, and find it wrong: an end that is missing looks like none."""
        begin = self._rollups.begin
        return "" if slot > self._tip or (begin is not None and slot <= begin.slot) else self.log


def _resumed(chain: Chain, entry: Entry, lost: list[int]) -> Chain:
    """The chain before that entry, some before it being lost, by its own word where it must be."""
    header = entry.header
    stands = (header.previous, header.previous_digest) == (chain.slot, chain.digest)
    if header.epoch < chain.epoch or stands or header.previous not in lost:
        # What was lost was void, or this is.
        return replace(chain, next=header.i)
    return replace(
        chain,
        next=header.i,
        epoch=header.epoch,
        n=header.n - 1,
        writer=header.writer if header.n else b"",
        slot=header.previous,
        digest=header.previous_digest,
        total=header.prev_sum,
        collected=header.collected,
        rollup=_named_by(entry, chain),
    )


def _behind(entry: Entry, chain: Chain) -> Chain:
    """The chain behind an entry that does not continue it, by the entry's own word."""
    header = entry.header
    return replace(
        chain,
        next=header.i + 1,
        epoch=max(header.epoch, chain.epoch),
        n=header.n,
        writer=header.writer,
        slot=header.i,
        digest=entry.digest,
        total=header.total,
        collected=header.collected,
        rollup=_named_by(entry, chain),
    )


def _named_by(entry: Entry, chain: Chain) -> str:
    try:
        return newest_rollup(chain.rollup, entry.header.rollup)
    except BadInput:
        return chain.rollup
