"""Log outline: what stands in a log when a scrub of it begins, and so what must be there of it.

Found out once, before anything is verified, from listings, the plans that stand and the heads behind the newest rollup.
It is a value: whoever verifies a part of the log, wherever that runs, goes by the same one. What was appended or
collected after it was made is left for another time.
"""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass

from ...volume.entry import entry_key, parse_entry, slot_of
from ...volume.errors import BadInput, Corrupt, NotFound, Unsupported
from ...volume.rollup import Rollup, rollup_key, slot_of_rollup
from ..log.boundary import OVER, BoundaryWatch, boundary_key
from ..log.chain import newest_rollup, slot_covered_by, slot_named_by
from ..log.reader import LONG_TAIL
from ..store.tree_nodes import AT_ONCE
from .findings import Findings, Wrong, words_of
from .objects import Objects
from .plan_scrub import Plans, missing_boundary, read_plans
from .rollup_check import read_rollup_of


@dataclass(frozen=True, slots=True)
class Outline:
    log: str
    standing: tuple[str, ...]
    """Rollups that must stand or are of use, oldest first."""
    listed: frozenset[str]
    """All that stand."""
    newest: int
    """The last slot to look at; -1 where there is none."""
    tip: int
    """The last whose entry stands."""
    boundary: int
    collected: str
    """The newest plan that an entry acknowledges; "" where there is none."""
    oldest: int
    """The slot of the oldest rollup that must stand; -1 where nothing was collected."""
    begin_name: str
    """The rollup that readers begin from."""
    begin: Rollup | None
    """None where it can't be read, and where there is none."""

    @property
    def is_over(self) -> bool:
        """Whether nothing of the log need be there but the boundary that says so."""
        return self.boundary == OVER

    async def covering(self, objects: Objects, first: int) -> tuple[str, range]:
        """The rollup that a scrub from slot `first` on begins behind without trusting it, and the slots that this
        covers and that are looked at; "" where there is none. Raises Unavailable, Unauthorized."""
        limit = max(first, self.boundary)
        readable = [name for name in self.standing if self.boundary - 1 <= slot_of_rollup(name) < limit]
        for name in reversed(readable):
            if await self._is_readable(objects, name):
                return "", range(0)
        for name in self.standing if self.boundary or self.collected else ():
            if slot_of_rollup(name) >= self.boundary - 1 and await self._is_readable(objects, name):
                return name, range(max(limit, 1), slot_of_rollup(name) + 1)
        return "", range(0)

    async def _is_readable(self, objects: Objects, name: str) -> bool:
        try:
            await read_rollup_of(objects, self.log, name)
        except (Corrupt, Unsupported):
            return False
        return True

    def cuts(self, first: int, slots: int) -> list[str]:
        """Rollups that the log may be cut behind, so that each part has at least so many slots, from `first` on."""
        found, last = list[str](), max(first, self.boundary)
        for name in self.standing:
            slot = slot_of_rollup(name)
            if slot + 1 - last >= slots and slot < self.newest:
                found.append(name)
                last = slot + 1
        return found


async def outline_of(objects: Objects, log: str, findings: Findings) -> Outline:
    """Tells what is wrong with what it is made of. Raises Unavailable, Unauthorized."""
    return await _Outliner(objects, log, findings).run()


class _Outliner:
    def __init__(self, objects: Objects, log: str, findings: Findings) -> None:
        self.log = log
        self._objects = objects
        self._findings = findings
        self._standing: list[str] = []
        self._listed: frozenset[str] = frozenset()
        self._newest = -1
        self._tip = -1
        self._boundary = 0
        self._plans = Plans()
        self._collected = ""
        self._oldest = -1
        self._begin_name = ""
        self._begin: Rollup | None = None

    async def run(self) -> Outline:
        await self._list()
        if self._boundary != OVER:
            await self._find_begin()
            await self._find_collected()
        return Outline(
            log=self.log,
            standing=tuple(self._standing),
            listed=self._listed,
            newest=self._newest,
            tip=self._tip,
            boundary=self._boundary,
            collected=self._collected,
            oldest=self._oldest,
            begin_name=self._begin_name,
            begin=self._begin,
        )

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
        if self._boundary != OVER:
            self._plans = await read_plans(self._objects, self.log, self._findings)

    async def _find_collected(self) -> None:
        """The newest plan that is acknowledged, by the rollup that readers begin from and what came since; and which
        rollups must stand, and are of use."""
        begin, slot, epoch = self._begin, 0, 0
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
        name, least = self._begin_name, slot_of_rollup(plan.rollup) if plan else -1
        while name in self._listed and slot_of_rollup(name) >= least:
            row.append(name)
            try:
                name = (await read_rollup_of(self._objects, self.log, name)).previous
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
            if name in row or await self._is_made_from(name, self._begin_name):
                useful.append(name)
        self._standing = useful
        if plan is not None and plan.rollup not in self._listed:
            await self._named(plan.rollup)

    async def _is_made_from(self, name: str, previous: str) -> bool:
        try:
            return (await read_rollup_of(self._objects, self.log, name)).previous == previous
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
            self._begin_name = name
            try:
                self._begin = await read_rollup_of(self._objects, self.log, name)
            except (Corrupt, Unsupported):
                return

    async def _named(self, name: str) -> None:
        """A rollup that an entry names, and that wasn't there when this began to look."""
        key = rollup_key(self.log, name)
        if self._findings.knows(key):
            return
        try:
            await read_rollup_of(self._objects, self.log, name)
        except (Corrupt, Unsupported) as error:
            stops = self.log if name == self._begin_name else ""
            self._findings.tell(Wrong(key, [words_of(key, error)], stops=stops))
