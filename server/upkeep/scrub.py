"""Scrub: all of a store, verified from the bytes (CHECKLIST S1: verified by somebody who trusts nobody).

    async with open_scrub(store, told) as scrub:
        await scrub.run(start=Position.parse("log:main:4096"))

One verifier for each kind of key, and a place for those to come:

    root, nodes/{node}/retired           here
    access/…                             access_check.py
    volumes/{vid}/birth, pins/…          volume_scrub.py
    logs/{log}/entries/…, boundary/…     log_scrub.py; epochs/…, t/…, as the entries name them: entry_scrub.py; of a log
                                         that was cut off, what stands before its oldest rollup: covered_scrub.py
    logs/{log}/rollups/…, nodes/…        rollup_check.py
    logs/{log}/t/…                       as checkpoints lead there, and deadlists: fold_scrub.py
    logs/{log}/gc/…                      plan_scrub.py
    names                                the records of one log's stream: stream_states.py

It is made of parts, each of which can be done elsewhere (scrub_part.py, spread_scrub.py).

Each wrong object is told once, with what it spoils; nothing that is wrong stops the rest. What nothing names (a push or
a rollup that was cut off leaves such) and garbage aren't looked at, and what nothing that stands speaks of isn't
missed: the newest entries of a log, the newest revisions of a pin, a whole pin, a volume without a record, a plan.

Memory: an entry or a fragment at a time, sixteen entries ahead, and of a log what it carries behind its newest rollup.
Nodes may write meanwhile: what wasn't there when its log was listed is left for another time.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import Final, Protocol

from ...volume.entry import slot_of
from ...volume.errors import BadInput, BudwoodError, Corrupt, NotFound, Unsupported
from ...volume.ids import VolumeId
from ...volume.retirement import retired_key
from ...volume.rollup import slot_of_rollup
from ..log.listing import Over, newest_entry, next_log
from ..metastore.logs import is_private
from ..metastore.retirement import parse_retirement
from ..store.protocol import Store
from ..store.retrying import PATIENT, Patience
from ..store.root import GC_INTERVAL_SECONDS, ROOT_KEY, Root, check_way, newest_root
from .access_check import check_access, namespaces
from .births import Births
from .findings import Findings, Told, Wrong, words_of
from .log_outline import Outline, outline_of
from .log_scrub import LogScrub
from .moves import Moves, Unmet
from .objects import Objects
from .position import Position
from .reach import Reach, Unlock
from .scrub_part import CoveredPart, Left, LogPart, NodesPart, Part, VolumesPart
from .volume_scrub import VolumeScrub

VOLUMES: Final = 64
"""That a part looks at."""


class Watcher(Told, Protocol):
    """Whoever waits for a scrub."""

    def passed(self, position: Position, objects: int, size_bytes: int) -> None:
        """All before that position is done: so many objects, with so many bytes, by now."""
        ...


class Scrub:
    def __init__(self, objects: Objects, root: Root | None, births: Births, reach: Reach, watcher: Watcher) -> None:
        self._objects = objects
        self._root = root
        self._births = births
        self._reach = reach
        self._watcher = watcher
        self.findings = Findings(watcher)
        self._names = str(root.names_id) if root is not None else ""
        self._namespaces: frozenset[str] = frozenset()
        """Of organisations, each of which is a private log of that name."""
        self._moves = Moves(objects, reach, self.findings)

    @property
    def objects(self) -> int:
        """How many were read."""
        return self._objects.count

    @property
    def bytes(self) -> int:
        return self._objects.bytes

    @property
    def locked(self) -> frozenset[str]:
        """Encrypted volumes that no key at hand opens, so far."""
        return frozenset(self._reach.locked)

    @property
    def store_id(self) -> str:
        """What the root says; "" where it can't be read."""
        return str(self._root.store_id) if self._root is not None else ""

    async def run(self, start: Position | None = None) -> None:
        """The whole store, from that position on. Raises Unavailable, Unauthorized, and NotFound where there is no
        store."""
        async with aclosing(self.parts(start)) as parts:
            async for part in parts:
                await self.do(part)

    async def of_volumes(self, vids: Collection[VolumeId], start: Position | None = None) -> None:
        """These alone, with those that they were forked from, and all logs that they were in."""
        async with aclosing(self.parts_of_volumes(vids, start)) as parts:
            async for part in parts:
                await self.do(part)

    async def parts(self, start: Position | None = None, *, slots: int = 0) -> AsyncGenerator[Part]:
        """Of the whole store, from that position on. A log is one part, unless parts of so many `slots` are wanted.
        Raises Unavailable, Unauthorized."""
        start = start or Position()
        if not start.log:
            behind = start.vid
            if not behind:
                await check_access(self._objects, self.findings)
            while vids := await self._births.all(behind):
                for few in _few(vids):
                    yield VolumesPart(few)
                behind = vids[-1]
        store, patience = self._objects.store, self._objects.patience
        log = await next_log(store, start.log, patience, itself=True, over=Over.COUNTED)
        while log:
            async for part in self._parts_of_log(start if log == start.log else Position(log=log), slots):
                yield part
            log = await next_log(store, log, patience, over=Over.COUNTED)

    async def parts_of_volumes(
        self, vids: Collection[VolumeId], start: Position | None = None, *, slots: int = 0
    ) -> AsyncGenerator[Part]:
        """As `parts`, for what `of_volumes` looks at."""
        start = start or Position()
        wanted, logs = await self._origins(vids)
        if not start.log:
            for few in _few(sorted(each for each in wanted if each > start.vid)):
                yield VolumesPart(few)
        for log in sorted(logs, key=_place):
            if _place(log) >= _place(start.log):
                async for part in self._parts_of_log(start if log == start.log else Position(log=log), slots):
                    yield part

    async def do(self, part: Part) -> Left:
        """One part. What it finds is told; what other parts are to know of it is answered. Raises Corrupt and
        Unsupported where it can't begin as it assumes, Unavailable, Unauthorized."""
        if isinstance(part, VolumesPart):
            for vid in part.vids:
                await self._volume(vid)
            return Left()
        if isinstance(part, NodesPart):
            await self._log_scrub(part.outline).sweep()
            return Left()
        if isinstance(part, CoveredPart):
            scrub = self._log_scrub(part.outline)
            await scrub.run_covered(part.rollup, part.slots, part.link, guessed=part.guessed)
            return Left(walked=scrub.walked)
        if not part.first:
            await self._mark(part.log)
        outline = part.outline or await outline_of(self._objects, part.log, self.findings)
        if outline.is_over:
            return Left()
        scrub = self._log_scrub(outline)

        def passed(slot: int) -> None:
            if slot > part.first:
                position = Position(log=part.log, slot=slot, blind=part.blind or scrub.blind)
                self._watcher.passed(position, self.objects, self.bytes)

        await scrub.run(part.first, behind=part.behind, end=part.upto, covered_from=part.covered_from, passed=passed)
        blind = part.blind or scrub.blind
        if part.outline is None and blind:
            await scrub.sweep()
        return Left(scrub.base, blind, scrub.covered_by, scrub.walked)

    async def find_namespaces(self) -> None:
        """Those of organisations. Raises Unavailable."""
        self._namespaces = frozenset(await namespaces(self._objects))

    async def _mark(self, log: str) -> None:
        """That its node was taken out for good, where it was."""
        if is_private(log):
            return
        key = retired_key(log)
        data = await self._objects.get(key)
        try:
            if data is not None:
                parse_retirement(key, data)
        except (Corrupt, Unsupported) as error:
            problem = f"{words_of(key, error)}, so that a node of this name can't be started"
            self.findings.tell(Wrong(key, [problem]))

    async def meet(self, unmet: Unmet) -> None:
        """Moves that another part met one side of. Raises Unavailable."""
        await self._moves.meet(unmet)

    @property
    def unmet(self) -> Unmet:
        return self._moves.unmet

    async def find(self, names: Collection[str]) -> list[VolumeId]:
        """The volumes of those names; an id stands for itself. Raises NotFound, and Corrupt where the names can't be
        read."""
        found: list[VolumeId] = []
        for name in names:
            if _is_volume(name):
                found.append(VolumeId.parse(name))
            elif self._root is None:
                raise Corrupt(ROOT_KEY, "so no name can be looked up: give the volumes' ids")
            else:
                found.append(await self._reach.named(name))
        return found

    async def _origins(self, vids: Collection[VolumeId]) -> tuple[set[str], set[str]]:
        """These volumes with those that they were forked from, and all logs that they were in."""
        wanted, waiting, logs = set[str](), [str(vid) for vid in vids], set[str]()
        while waiting:
            vid = waiting.pop()
            wanted.add(vid)
            birth = await self._births.get(vid)
            logs.add(birth.log if birth is not None else vid)
            volume = await self._reach.volume(vid)
            if volume is not None:
                logs |= {volume.log, *(close.log for close in volume.closes)}
            parent = "" if birth is None or not birth.parent else str(VolumeId(birth.parent))
            waiting += [parent] if parent and parent not in wanted else []
        return wanted, logs

    async def _parts_of_log(self, start: Position, slots: int) -> AsyncGenerator[Part]:
        log, first = start.log, start.slot
        if not slots or not await self._has_slots(log, first + 2 * slots):
            yield LogPart(log, first, blind=start.blind)
            return
        outline = await outline_of(self._objects, log, self.findings)
        if outline.is_over:
            return
        rollup, covered = await outline.covering(self._objects, first)
        # The last of them first: from there it follows which of them count.
        pieces = [covered[at : at + slots] for at in reversed(range(0, len(covered), slots))]
        head = LogPart(log, first, outline, blind=start.blind)
        if len(pieces) > 1:
            head = replace(head, covered_by=rollup, covered_from=pieces[0].start)
        names = outline.cuts(first, slots)
        ends = [*(slot_of_rollup(name) + 1 for name in names), None]
        yield replace(head, upto=ends[0])
        for piece in pieces[1:]:
            yield CoveredPart(outline, rollup, piece)
        for name, begins, upto in zip(names, ends, ends[1:], strict=False):
            yield LogPart(log, begins or 0, outline, name, upto)

    async def _has_slots(self, log: str, slots: int) -> bool:
        newest = await newest_entry(self._objects.store, log, self._objects.patience)
        try:
            return not newest or slot_of(newest) >= slots
        except BadInput:
            # It is none: whoever looks at the log tells.
            return True

    async def _volume(self, vid: str) -> None:
        await VolumeScrub(self._objects, self._births, self._reach, self.findings).run(vid)
        if _is_volume(vid):
            self._watcher.passed(Position(vid=vid), self.objects, self.bytes)

    def _log_scrub(self, outline: Outline) -> LogScrub:
        return LogScrub(
            self._objects,
            outline,
            names=outline.log if outline.log in self._namespaces else self._names,
            births=self._births,
            reach=self._reach,
            moves=self._moves,
            findings=self.findings,
        )


@asynccontextmanager
async def open_scrub(
    store: Store, watcher: Watcher, *, patience: Patience = PATIENT, unlock: Unlock | None = None
) -> AsyncGenerator[Scrub]:
    """With `unlock` encrypted pages are opened, too. Raises NotFound where there is no store, Unsupported where it is
    opened another way than its root says, Unavailable, Unauthorized."""
    objects = Objects(store, patience)
    births = Births(objects)
    data = await objects.get(ROOT_KEY)
    if data is None and not await objects.listed("logs/", limit=1):
        raise NotFound(f"there is no Budwood store at {store.url}")
    root, wrong = None, Wrong(ROOT_KEY, stops="*")
    try:
        if data is None:
            raise Corrupt(ROOT_KEY, "it is missing, though a store stands beside it")
        root = await newest_root(store, data, patience)
    except (Corrupt, Unsupported) as error:
        wrong.add(words_of(ROOT_KEY, error))
    if root is not None and data is not None:
        await check_way(store, root, data, patience)
    # Without a root no name is looked up, and nobody waits for an interval.
    names = root.names_id if root is not None else VolumeId.new()
    interval = root.gc_interval_seconds if root is not None else GC_INTERVAL_SECONDS
    async with Reach.open(objects, births, names, interval, unlock) as reach:
        scrub = Scrub(objects, root, births, reach, watcher)
        await scrub.find_namespaces()
        scrub.findings.tell(wrong)
        yield scrub


def _few(vids: Sequence[str]) -> Iterator[tuple[str, ...]]:
    for first in range(0, len(vids), VOLUMES):
        yield tuple(vids[first : first + VOLUMES])


def _place(log: str) -> str:
    """Logs come in the order of their keys."""
    return f"{log}/" if log else ""


def _is_volume(vid: str) -> bool:
    try:
        VolumeId.parse(vid)
    except BudwoodError:
        return False
    return True
