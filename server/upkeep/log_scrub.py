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
from dataclasses import replace
from typing import Final

from ...volume.entry import Entry, entry_key, parse_entry
from ...volume.errors import BadInput, Corrupt, Unsupported
from ...volume.records import Birth, Commit, Fold, Open, Record
from ...volume.rollup import Rollup, rollup_key, slot_of_rollup
from ..log.chain import GUEST, Chain, Verdict, newest_rollup, slot_covered_by
from ..log.term import read_epoch
from ..metastore.rolled_stream import RolledLog
from ..metastore.streams import Part
from ..store.tree_nodes import AT_ONCE, Nodes
from .births import NO_BIRTH, Births, key_of
from .covered_scrub import CoveredScrub, Link, Walked
from .entry_scrub import EntryScrub
from .findings import Findings, Span, Wrong, words_of
from .fold_scrub import check_deadlist
from .log_outline import Outline
from .lost_entry import LostEntry
from .moves import Moves
from .objects import Objects
from .plain_check import PlainCheck, is_plain_entry
from .reach import Reach
from .rollup_check import Behind, RollupCheck
from .stream_states import StreamStates

NODE_BYTES: Final = 16 << 20
"""Nodes of a log's rollups that are kept in memory."""


class LogScrub:
    def __init__(
        self,
        objects: Objects,
        outline: Outline,
        *,
        names: str,
        births: Births,
        reach: Reach,
        moves: Moves,
        findings: Findings,
    ) -> None:
        """`names` is the id of the store's namespace, "" where that isn't known."""
        self.log = log = outline.log
        self._outline = outline
        self._objects = objects
        self._births = births
        self._reach = reach
        self._findings = findings
        nodes = Nodes(objects.store, limit_bytes=NODE_BYTES, patience=objects.patience)
        self._base = RolledLog(nodes, log)
        """The newest rollup that was found right."""
        self._rollups = RollupCheck(objects, nodes, self._base, reach, names)
        self._rollups.begin_name, self._rollups.begin = outline.begin_name, outline.begin
        self._entries = EntryScrub(objects, log, reach, births)
        self.states = StreamStates(log, names, births, self._base, moves)
        self._names = names
        self._lost_entry = LostEntry(
            objects, log, names=names, reach=reach, rollups=self._rollups, entries=self._entries, states=self.states
        )
        self._plain = PlainCheck()
        self._chain = Chain(log=log)
        self._tails: dict[str, list[Part]] = {}
        self._unborn: set[str] = set()
        self._lost: list[int] = []
        """Slots whose entries can't be read, since the last one that could."""
        self._known = True
        """Whether none was lost since `base`."""
        self._standing = list(outline.standing)
        """Rollups, oldest first, from the next to look at on."""
        self._covered_from = 0
        self.covered_by = ""
        """The rollup that it began behind without trusting it."""
        self.walked = Walked(None)
        """Of the entries that this one covers."""

    @property
    def base(self) -> str:
        """The newest rollup that was found right; "" where none was yet."""
        return self._base.name

    @property
    def blind(self) -> bool:
        """Whether nodes may stand that nothing which can be read leads to (`sweep`)."""
        return self._rollups.blind

    async def run(
        self,
        first: int = 0,
        *,
        behind: str = "",
        end: int | None = None,
        covered_from: int = 0,
        passed: Callable[[int], None] = lambda _: None,
    ) -> None:
        """From that slot on, or behind a rollup that is right; up to the slot `end`. Of what the log's oldest rollup
        covers, from `covered_from` on. `passed` is told the next slot now and then. Raises Corrupt and Unsupported
        where the rollup `behind` can't be read, Unavailable, Unauthorized."""
        self._covered_from = covered_from
        if behind:
            self._go_by(behind, await self._rollups.read(behind))
        else:
            await self._epochs()
            await self._begin(first)
        self._standing = [name for name in self._standing if slot_of_rollup(name) >= self._chain.next]
        slot, last = self._chain.next, self._outline.newest if end is None else end - 1
        while slot <= last:
            keys = [entry_key(self.log, each) for each in range(slot, min(slot + AT_ONCE, last + 1))]
            if slot < first:
                keys = keys[: first - slot]
            found = await (self._objects.heads(keys) if slot < first else self._objects.get_all(keys))
            for key, data in zip(keys, found, strict=True):
                if data is None and not await self._was_acknowledged(slot):
                    return
                await self._slot(slot, key, data, quiet=slot < first)
                slot += 1
            passed(slot)

    async def run_covered(self, name: str, slots: range, link: Link | None, *, guessed: bool) -> None:
        """The entries of these slots, which that rollup covers: from that link, or from one that is guessed. Raises
        Corrupt and Unsupported where the rollup can't be read, Unavailable, Unauthorized."""
        rollup, covered = await self._rollups.read(name), self._covered()
        if guessed:
            link = await covered.guess(slots.stop, rollup)
        self.walked = await covered.entries(name, rollup, slots, link)

    async def sweep(self) -> None:
        """The nodes that nothing leads to any more, once one could not be read."""
        for wrong in await self._rollups.sweep():
            self._findings.tell(wrong)

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
        boundary = self._outline.boundary
        limit = max(first, boundary)
        for name in reversed(self._standing):
            if boundary - 1 <= slot_of_rollup(name) < limit:
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
        if boundary > self._chain.next and (self._rollups.begin is not None or not self._rollups.begin_name):
            problem = f"no rollup that can be read covers what lies below slot {boundary}"
            self._findings.tell(Wrong(entry_key(self.log, boundary), [problem], stops=self.log))
        if boundary > self._chain.next:
            self._chain = Chain(log=self.log, next=boundary)
            self._mark_lost(boundary - 1)

    async def _begin_covered(self, first: int) -> None:
        """Where something was collected: behind the oldest rollup that can be read and covers what is gone."""
        for name in self._standing if self._outline.boundary or self._outline.collected else ():
            if slot_of_rollup(name) >= self._outline.boundary - 1:
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
        covered = self._covered()
        if not first:
            await covered.anchor()
        slots = range(max(first, self._outline.boundary, self._covered_from, 1), rollup.slot + 1)
        self.walked = await covered.entries(name, rollup, slots, Link(rollup.canonical, rollup.digest))
        self.covered_by = name
        if right is not None:
            self._go_by(name, rollup)
            await covered.streams(self._base, self._outline.boundary)
        else:
            self._chain = Chain.behind(rollup)
            self._go_adrift()

    def _covered(self) -> CoveredScrub:
        rollups, entries = self._rollups, self._entries
        return CoveredScrub(self._objects, self.log, rollups, entries, self._births, self._reach, self._findings)

    async def _was_acknowledged(self, missing: int) -> bool:
        """Whether anything that stands behind the slot says that an entry was there."""
        if any(slot_of_rollup(name) >= missing for name in self._standing):
            return True
        for slot in range(self._outline.newest, missing, -1):
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
                    slot, data, newest=self._outline.newest, standing=self._standing, total=self._chain.total
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
        if is_plain_entry(entry):
            # Of no volume: no stream state, no pages, no rollup.
            self._plain.check(entry, data, wrong)
            self._entries.check_bytes(entry, data, wrong)
            found = await self._entries.check_epoch(entry, wrong)
            if found is not None and not quiet:
                self._findings.tell(found)
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
        if self._outline.collected in entry.header.garbage and before and before not in self._outline.listed:
            # The plan's own, or one behind it.
            await self._named(before)
        name = self._chain.rollup
        if (
            slot_covered_by(name) >= max(self._outline.boundary, self._outline.oldest)
            and name not in self._outline.listed
        ):
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
        return "" if slot > self._outline.tip or (begin is not None and slot <= begin.slot) else self.log


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
        n=header.n - (header.kind != GUEST),
        writer=header.writer if header.n or header.kind == GUEST else b"",
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
