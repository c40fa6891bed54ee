"""Collector: deletes what of a log nobody can reach any more (DESIGN §4, rule 6; §5; S4.10).

    roll up → survey → plan → verify → write the plan → acknowledge it → publish the boundary → it is due
    … the store's gc interval …
    delete what the plan takes out, slowly → delete the plan

Any number of collectors may do this at once, and any may be cut off at any step: what stands says how far it came, and
whoever comes next goes on from there. A log has one plan at a time; of two that are made at once the log acknowledges
one. An acknowledged plan is deleted by whoever finds it due, twice if two do: no name is ever given again.

What is garbage once is so for ever, so a plan is verified before it is acknowledged. Two things are asked again before
they are deleted, by the log as it stands then: whether a transaction that it rejects was granted before the
acknowledgement, and whether a fragment was named before that.

A pin's id may be asked for again, as no other name is: so before a pin that has ended goes, what it ended with is put
where it stays for ever (volume/pins.py).

Crash windows (each a fault point): gc: plan written, not acknowledged · gc: acknowledged, boundary not published · gc:
boundary published, not due · gc: a pin's end kept, the pin not deleted · gc: some of it deleted · gc: all deleted but
the plan.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Final, NamedTuple, TypeAlias

import msgspec

from ...volume import faults
from ...volume.envelope import BOUNDARY, encode, seal
from ...volume.errors import Conflict, Corrupt, NotFound
from ...volume.garbage import (
    Due,
    GarbagePlan,
    PlannedPin,
    due_key,
    number_of_plan,
    parse_due,
    parse_plan,
    plan_key,
    plan_name,
    seal_due,
    seal_plan,
)
from ...volume.ids import PinId, VolumeId
from ...volume.pins import PinState, ended_key, parse_pin, revision_key, seal_pin
from ..log.boundary import Boundary, boundary_key
from ..log.chain import slot_covered_by
from ..log.log_writer import LogWriter
from ..metastore.entry_draft import Acknowledgement, RollupNaming
from ..metastore.logs import Log, Logs
from ..metastore.open_volumes import Volumes
from ..metastore.pin_store import Pins
from ..store.retrying import create_settled, get_retried, retried
from .deletion import Deletion
from .garbage import Garbage
from .garbage_check import GarbageCheck, Refused
from .garbage_plan import NOTHING_LEFT, Hold, Planner, Survey
from .over import OverLogs

_WRITTEN: Final = faults.point("gc: plan written, not acknowledged")
_ACKNOWLEDGED: Final = faults.point("gc: acknowledged, boundary not published")
_PUBLISHED: Final = faults.point("gc: boundary published, not due")
_END_KEPT: Final = faults.point("gc: a pin's end kept, the pin not deleted")
_DELETED: Final = faults.point("gc: all deleted but the plan")

_logger: Final = logging.getLogger(__name__)


class Stage(Enum):
    NOTHING = "nothing"
    """There is nothing to be deleted."""
    WAITING = "waiting"
    """A plan is acknowledged, and not due yet."""
    DONE = "done"
    """A plan was carried out."""


class Progress(NamedTuple):
    stage: Stage
    deleted: int = 0
    """Objects, or names of some that were gone already."""
    due_ms: int = 0
    """When what waits may be deleted."""
    planned: int = 0
    """The first slot that the plan did not look at."""
    holds: tuple[Hold, ...] = ()
    """What keeps the log from being cut off further, lowest first, where a plan was to be made."""
    looked: bool = False
    """Whether it was looked for what may go."""


Verify: TypeAlias = Callable[["Collector", GarbagePlan], Awaitable[None]]
"""Raises Refused if the plan takes out what somebody needs, and what kept it from finding that out: then nothing of it
is acknowledged."""


@dataclass(frozen=True, slots=True)
class Collector:
    logs: Logs
    volumes: Volumes
    pins: Pins
    gc_interval_seconds: float
    verify: Verify | None = None
    """Who has a plan verified before it is acknowledged; `check`, unless told."""

    @property
    def wait_seconds(self) -> float:
        """Until what was published to go may be deleted, whatever the clocks."""
        return self.gc_interval_seconds + self.pins.skew_seconds

    @property
    def over_logs(self) -> OverLogs:
        return OverLogs(self.logs, self.wait_seconds)

    async def collect(
        self,
        name: str,
        *,
        most_a_second: float = 0.0,
        on_deleted: Callable[[int], None] = lambda _: None,
        leftovers: bool = True,
        pinned: Collection[VolumeId] | None = None,
    ) -> Progress:
        """One step for that log: carry out the plan that is due, or make the next. At most so many objects are deleted
        in a second; 0: as many as can be. With `leftovers` the next one takes out, too, what must be looked for: of
        pins those of the volumes `pinned`; None: of all that the log has. Raises NotOwner, Refused, Conflict (another
        was quicker), Corrupt, Unavailable."""
        log = await self.logs.get(name)
        await self.logs.refresh(log, confirm=True)
        writer = await self.logs.writer(log)
        keys = await self._keys(name)
        newest = log.reader.chain.garbage
        stands = plan_key(name, newest) in keys
        for key in keys:
            if _plan_of(key) < newest or (_plan_of(key) == newest and not stands):
                # Never acknowledged, and it never can be; or left of one that was carried out.
                await self._delete(key)
        holds: tuple[Hold, ...] = ()
        if not stands:
            survey, plan = await self._plan(log, writer, newest, leftovers=leftovers, pinned=pinned)
            holds = tuple(survey.holds) if survey is not None else ()
            if plan is None:
                return Progress(Stage.NOTHING, holds=holds, looked=True)
        else:
            plan = await self._standing(name, newest)
            if plan is None:
                raise Conflict(f"another has just carried out the plan of log {name}: try again for the next one")
        due_ms, planned = await self._due(plan), slot_covered_by(plan.rollup) + 1
        if self.logs.now_ms() < due_ms:
            return Progress(Stage.WAITING, due_ms=due_ms, planned=planned, holds=holds, looked=not stands)
        deleted = await self._carry_out(plan, most_a_second, on_deleted)
        return Progress(Stage.DONE, deleted, due_ms, planned, holds, looked=not stands)

    async def reject(self, name: str, number: int) -> Progress:
        """Have the log reject that transaction at once, whoever holds it (S1.8): by a plan with a higher number, though
        there be nothing else to collect. One that stands already gives way to it, unless it is due. Raises Conflict
        (another was quicker), and as `collect` does."""
        log = await self.logs.get(name)
        await self.logs.refresh(log, confirm=True)
        writer = await self.logs.writer(log)
        newest, standing = log.reader.chain.garbage, None
        if newest and plan_key(name, newest) in await self._keys(name):
            standing = await self._standing(name, newest)
            if standing is not None and self.logs.now_ms() >= await self._due(standing):
                await self.collect(name)
                standing, newest = None, log.reader.chain.garbage
        if newest and number <= number_of_plan(newest):
            return Progress(Stage.NOTHING)
        _, plan = await self._plan(log, writer, newest, forced=True, instead_of=standing)
        if plan is None:
            raise Conflict(f"another is rolling up log {name}: try again")
        return Progress(Stage.WAITING, due_ms=await self._due(plan), planned=slot_covered_by(plan.rollup) + 1)

    async def is_waiting(self, name: str) -> bool:
        """Whether a plan stands that is not due yet."""
        log = await self.logs.get(name)
        await self.logs.refresh(log, confirm=True)
        plan = log.reader.chain.garbage
        try:
            due = parse_due(name, plan, await self._get(due_key(name, plan))) if plan else None
        except NotFound:
            return False
        return due is not None and self.logs.now_ms() < self._due_ms(due)

    async def planned(self, name: str) -> GarbagePlan | None:
        """The plan that stands, or the one that would be made now; nothing of it is written but a number."""
        log = await self.logs.get(name)
        await self.logs.refresh(log, confirm=True)
        newest = log.reader.chain.garbage
        if newest and (standing := await self._standing(name, newest)) is not None:
            return standing
        survey, now_ms = await self.planner.survey(log), self.logs.now_ms()
        left = await self.planner.leftovers(log, now_ms, None)
        return await self.planner.plan(log, survey, writer=b"", now_ms=now_ms, left=left)

    async def standing(self, name: str) -> tuple[GarbagePlan, int] | None:
        """The plan that the log has acknowledged and nobody has carried out yet, and when it is due; 0: nobody has said
        yet. None where there is none. Writes nothing."""
        log = await self.logs.get(name)
        await self.logs.refresh(log)
        newest = log.reader.chain.garbage
        plan = await self._standing(name, newest) if newest else None
        if plan is None:
            return None
        try:
            return plan, self._due_ms(parse_due(name, newest, await self._get(due_key(name, newest))))
        except NotFound:
            return plan, 0

    async def check(self, plan: GarbagePlan) -> None:
        """Whether all of a plan, or of a part of one, is out of reach, found out anew. Raises Refused, and what reading
        met."""
        async with GarbageCheck.open(self.logs.store, self.pins, self.gc_interval_seconds, self.logs.patience) as check:
            await check.check(plan)

    @property
    def garbage(self) -> Garbage:
        return Garbage(self.logs.store, self.logs.nodes, self.logs.patience)

    @property
    def planner(self) -> Planner:
        return Planner(self.logs.store, self.volumes, self.pins, self.logs.patience)

    async def survey(self, name: str) -> Survey:
        """What keeps the log from being cut off further. Raises Corrupt, Unavailable."""
        return await self.planner.survey(await self.logs.get(name))

    async def _plan(
        self,
        log: Log,
        writer: LogWriter,
        before: str,
        *,
        leftovers: bool = False,
        pinned: Collection[VolumeId] | None = None,
        forced: bool = False,
        instead_of: GarbagePlan | None = None,
    ) -> tuple[Survey | None, GarbagePlan | None]:
        """Made, verified, written and acknowledged, behind the plan `before`, which is carried out, or is `instead_of`;
        None where nothing is to go. The survey that it was made by, if there was one."""
        for _ in range(2):
            # Twice: the first may be one that was made already, or is being made, and covers less.
            if await log.rollup.write_newest():
                await writer.submit(RollupNaming(lambda: not log.reader.to_name))
        if not log.rolled.name or log.reader.chain.rollup != log.rolled.name:
            return None, None
        survey, now_ms = await self.planner.survey(log), self.logs.now_ms()
        plan = await self.planner.plan(
            log,
            survey,
            writer=writer.term.writer,
            now_ms=now_ms,
            left=await self.planner.leftovers(log, now_ms, pinned) if leftovers else NOTHING_LEFT,
            forced=forced,
            instead_of=instead_of,
        )
        if plan is None:
            return survey, None
        # Another may have been acknowledged while this made its own, and stands: it must not be passed over.
        plan = msgspec.structs.replace(plan, base=before)
        await (self.check(plan) if self.verify is None else self.verify(self, plan))
        name = plan_name(plan.number)
        key = plan_key(plan.log, name)
        if await create_settled(self.logs.store, key, seal_plan(plan), self.logs.patience) is not None:
            raise Corrupt(key, "other bytes stand there than were written")
        _WRITTEN()
        try:
            newest = partial(_newest_plan, log)
            await writer.submit(Acknowledgement(name, plan.base, newest, plan.fragments_since))
        except Conflict:
            # It never can be: another was.
            await self._delete(key)
            raise
        _ACKNOWLEDGED()
        return survey, plan

    async def _due(self, plan: GarbagePlan) -> int:
        """When what an acknowledged plan takes out may be deleted, whatever the clocks."""
        name = plan_name(plan.number)
        key = due_key(plan.log, name)
        try:
            data = await self._get(key)
        except NotFound:
            now_ms = self.logs.now_ms()
            if plan.slot:
                boundary = Boundary(log=plan.log, slot=plan.slot, time=now_ms)
                # Another collector's says the same, at another time.
                published = seal(BOUNDARY, encode(boundary))
                key_of_boundary = boundary_key(plan.log, plan.slot)
                await create_settled(self.logs.store, key_of_boundary, published, self.logs.patience)
            _PUBLISHED()
            ours = seal_due(Due(log=plan.log, number=plan.number, time=now_ms))
            theirs = await create_settled(self.logs.store, key, ours, self.logs.patience)
            data = ours if theirs is None else theirs
        return self._due_ms(parse_due(plan.log, name, data))

    def _due_ms(self, due: Due) -> int:
        return due.time + round(1000 * self.wait_seconds)

    async def _carry_out(self, plan: GarbagePlan, most_a_second: float, on_deleted: Callable[[int], None]) -> int:
        deletion = Deletion(self.logs.store, self.logs.patience, most_a_second, on_deleted)
        last = [plan_key(plan.log, plan_name(plan.number))]

        async def delete(batch: list[str], _why: str) -> None:
            if batch == last:
                _DELETED()
            await deletion.of(batch)

        plan = await self._as_it_stands(plan)
        for planned in plan.pins:
            if planned.ended:
                await self.keep_end(planned)
                _END_KEPT()
        await self.garbage.each(plan, delete)
        return deletion.count

    async def keep_end(self, planned: PlannedPin) -> None:
        """Where nobody has yet."""
        vid, pin = VolumeId(planned.vid), PinId(planned.pin)
        try:
            newest = revision_key(vid, pin, planned.upto)
            stands = parse_pin(newest, await self._get(newest))
        except NotFound:
            # It is deleted, by whoever has kept its end.
            return
        if stands.holds:
            # Made anew by somebody who slept: that is no pin.
            stands = msgspec.structs.replace(stands, state=PinState.EXPIRED)
        await create_settled(self.logs.store, ended_key(vid, pin), seal_pin(stands), self.logs.patience)

    async def _as_it_stands(self, plan: GarbagePlan) -> GarbagePlan:
        """Those of its transactions that were granted before it was acknowledged are not rejected; and fragments that
        were named before stay."""
        rejected = list[int]()
        async with GarbageCheck.open(self.logs.store, self.pins, self.gc_interval_seconds, self.logs.patience) as check:
            for number in plan.rejected:
                try:
                    await check.check_rejected(plan, number)
                except Refused as error:
                    _logger.warning("%s", error)
                else:
                    rejected.append(number)
            plan = await check.without_named(plan)
        return msgspec.structs.replace(plan, rejected=tuple(rejected))

    async def _standing(self, log: str, name: str) -> GarbagePlan | None:
        """The plan of that name; None if there is none, or another has carried it out."""
        try:
            return parse_plan(log, name, await self._get(plan_key(log, name)))
        except NotFound:
            return None

    async def _keys(self, log: str) -> list[str]:
        """Of the plans that stand, and what belongs to them."""
        prefix = f"logs/{log}/gc/"
        return await retried(f"list {prefix}", lambda: self.logs.store.list(prefix), self.logs.patience)

    async def _get(self, key: str) -> bytes:
        return await get_retried(self.logs.store, key, patience=self.logs.patience)

    async def _delete(self, key: str) -> None:
        await retried(f"delete {key}", lambda: self.logs.store.delete(key), self.logs.patience)


def _newest_plan(log: Log) -> str:
    return log.reader.chain.garbage


def _plan_of(key: str) -> str:
    """The name of the plan that an object under gc/ belongs to."""
    return key.split("/")[3]
