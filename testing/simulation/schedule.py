"""Schedule: one run of a small deployment, from its seed to its end (DESIGN §9; S2.1 of nobody's list is left to luck).

    outcome = run_schedule(7)
    outcome.violation        None, or what did not hold
    outcome.trace            the last events; the same seed gives the same

Nodes, embedded processes, committers, readers, holders, an edge, keepers and a nemesis share one store for some hours
or days of simulated time. Whatever is answered is held against a model (model.py, reading.py). In the end the network
is calm, every process is awake, and

- what became of every commit is asked;
- a process that comes fresh to the bare store reads every LSN of every volume;
- all that nobody holds is let go, folded and collected, until there is nothing to collect; and all is read once more.

`audit` is given what the store holds then, and may raise: tests give it a reader of the formats that shares no code
with the product.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final
from unittest.mock import patch

import trio

from ...server.log import reader
from ...server.metastore import rolled_stream, rollups
from ...server.node import Node
from ...server.store.root import GC_INTERVAL_SECONDS
from ...server.store.tree import Tree
from ...server.store.tree_change import Bounds
from ...server.upkeep.collector import Stage
from ...volume import faults
from ...volume.calls import UNPIN, UnpinRequest
from ...volume.errors import Conflict, NotFound, Unavailable
from ...volume.wire import Committed
from .actors import PAST_INTERVAL, Committer, Edge, Holder, Keeper, Nemesis, Reader, brought_back
from .determinism import determined, run
from .model import Attempt, Violation, Volume
from .network import CALM
from .process import Process
from .reading import changes_between, commits_of, newest, read_at
from .trace import Trace
from .world import _OF_SERVERS, Actor, Plan, World

Audit = Callable[[Mapping[str, bytes]], None]

STEPS: Final = 35
"""Of all actors together."""

_FEWEST: Final = rollups.FEWEST

_ROUNDS: Final = 8
"""Of collections at the end, at the most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    seed: int
    violation: str | None
    events: int
    """Requests, and what actors and processes did."""
    sum: int
    """Of all events: two runs that differ have another."""
    hours: float
    """Of simulated time."""
    counts: Counter[str] = field(default_factory=Counter[str])
    trace: tuple[str, ...] = ()
    """The last events, of a run that failed."""


def run_schedule(seed: int, *, steps: int = STEPS, audit: Audit | None = None) -> Outcome:
    """See above. Whatever happens in it is told, and nothing raised but what is wrong with the simulation itself."""
    schedule = Schedule(seed, steps, audit)
    with determined(seed), schedule.patched(), _silent():
        run(schedule.main)
    return schedule.outcome()


class Schedule:
    def __init__(self, seed: int, steps: int, audit: Audit | None) -> None:
        self._seed = seed
        self._steps = steps
        self._audit = audit
        self._trace = Trace()
        self._plan = Plan.drawn(_random(seed))
        self._violation: BaseException | None = None
        self._hours = 0.0

    def outcome(self) -> Outcome:
        failed = self._violation
        return Outcome(
            seed=self._seed,
            violation=None if failed is None else _words(failed),
            events=self._trace.events,
            sum=self._trace.sum,
            hours=self._hours,
            counts=self._trace.counts,
            trace=self._trace.last() if failed is not None else (),
        )

    @contextmanager
    def patched(self) -> Generator[None]:
        """Rollups come as often as the plan says, and their trees are of as many nodes."""
        plan = self._plan
        with ExitStack() as stack:
            stack.enter_context(patch.object(rollups, "FEWEST", plan.rolled_every))
            stack.enter_context(patch.object(rollups, "A_NODE", 0))
            stack.enter_context(patch.object(reader, "LONG_TAIL", 2 * plan.rolled_every))
            if plan.small_nodes:
                small = partial(Tree, bounds=Bounds(most_bytes=1000, most_children=4))
                stack.enter_context(patch.object(rolled_stream, "Tree", small))
                stack.enter_context(patch.object(rollups, "NODE_BYTES", 2000))
            yield

    async def main(self) -> None:
        async with trio.open_nursery() as tasks:
            world = World(self._seed, self._plan, tasks, self._trace)
            try:
                await self._play(world)
            except Exception as error:
                world.fail(error)
            finally:
                self._hours = trio.current_time() / 3600
                tasks.cancel_scope.cancel()
        self._violation = world.violation

    async def _play(self, world: World) -> None:
        for process in world.processes:
            if process.name != "standby" and not await process.start():
                raise AssertionError(f"{process.name} does not start in a calm network")
        for number in range(self._plan.volumes):
            private = self._plan.private if number == 0 else world.random("volume").random() < 0.5
            await world.born(world.processes[-1] if private else world.processes[0])
        world.network.weather = self._plan.weather
        for process in world.processes:
            world.tasks.start_soon(brought_back, world, process)
        points = sorted(name for name in faults.registered() if name.startswith(_OF_SERVERS))
        actors: list[Actor] = [Committer(world, 0), Committer(world, 1), Reader(world, 0), Holder(world, 0)]
        actors += [Keeper(world, 0), Keeper(world, 1), Edge(world, 0)]
        each = max(1, self._steps // len(actors))
        async with trio.open_nursery() as acting:
            for actor in actors:
                acting.start_soon(actor.run, each)
            acting.start_soon(Nemesis(world, 0, points).run, self._plan.mishaps)
        await self._end(world, actors)

    async def _end(self, world: World, actors: list[Actor]) -> None:
        trace = world.trace
        trace("the end", "is near")
        world.network.weather, world.ended = CALM, True
        for process in world.processes:
            process.trap, process.fault = None, ""
            process.wake()
        # What is on its way arrives, and who slept goes on.
        await trio.sleep(2 * 3600.0)
        for process in world.processes:
            if process.broken is not None:
                raise process.broken
        for process in world.processes:
            await process.stop()
        node, other = world.process("last", "main"), world.process("fresh", None)
        for process in (node, other):
            if not await process.start():
                raise Violation(f"a store that was left in peace can't be opened: {process.name}")
        both = (node, other)
        for volume in world.volumes:
            await _settle(both, volume)
            await _read_all(other, volume)
        trace("the end", "lets go")
        # A collection's own entries are not worth a rollup any more, which would be collected in its turn.
        rollups.FEWEST = _FEWEST  # type: ignore[misc]
        for volume in world.volumes:
            await _let_go(both, volume)
        await trio.sleep(PAST_INTERVAL)
        await _collect_all(world, both)
        for process in both:
            await process.stop()
        last = world.process("bare", None)
        if not await last.start():
            raise Violation("a store that was collected can't be opened")
        for volume in world.volumes:
            await _read_all(last, volume)
        await last.stop()
        if self._audit is not None:
            self._audit(world.network.store.objects)


async def _settle(both: tuple[Process, Process], volume: Volume) -> None:
    """Asks what became of each commit, by sending it once more."""
    for lsn in sorted(volume.attempts):
        for attempt in volume.attempts[lsn]:
            if not attempt.acknowledged_ms and not attempt.refused and not attempt.landed:
                await _ask_again(both, volume, attempt)


async def _ask_again(both: tuple[Process, Process], volume: Volume, attempt: Attempt) -> None:
    async def send(node: Node) -> Committed:
        return await node.commit(attempt.request, attempt.segment)

    for process in both:
        try:
            volume.acknowledge(attempt, (await process.ask(send)).lsn)
        except Conflict:
            volume.refuse(attempt)
        except Exception:
            if process is both[-1]:
                raise
            continue
        return


async def _read_all(process: Process, volume: Volume) -> None:
    info = await newest(process, volume)
    if info.lsn > volume.start:
        await read_at(process, volume, info.lsn)
    if info.lsn not in (volume.head, volume.start) and volume.at(info.lsn) is None:
        raise Violation(f"{volume}: its newest LSN {info.lsn} is nobody's")
    readable = volume.readable()
    for lsn in range(volume.start + 1, volume.head + 1):
        await read_at(process, volume, lsn)
    for first, last in zip(readable, readable[1:], strict=False):
        await changes_between(process, volume, first, last)
    await commits_of(process, volume)


async def _let_go(both: tuple[Process, Process], volume: Volume) -> None:
    """Of all that is held but by forks, and of every LSN but the newest, and every other volume keeps its pins."""
    for number, pin in enumerate(list(volume.held)):
        if number % 2:
            continue

        async def unpin(node: Node, raw: bytes = pin.raw) -> None:
            await node.ask(UNPIN, UnpinRequest(volume.vid.raw, pin=raw))

        volume.held.pop(pin)
        try:
            await _either(both, unpin)
        except NotFound:
            # It has ended.
            continue


async def _collect_all(world: World, both: tuple[Process, Process]) -> None:
    for volume in world.volumes:

        async def fold(node: Node, vid: Any = volume.vid) -> None:
            await node.folder.fold(vid)

        await _either(both, fold)
    for _ in range(_ROUNDS):
        stages = list[Stage]()
        for log in world.logs():

            async def collect(node: Node, name: str = log) -> Stage:
                return (await node.collector.collect(name)).stage

            stages.append(await _either(both, collect))
        world.trace("the end", f"collects: {', '.join(stage.value for stage in stages)}")
        if set(stages) == {Stage.NOTHING}:
            return
        await trio.sleep(GC_INTERVAL_SECONDS + 61.0)
    raise Violation(f"after {_ROUNDS} collections in peace there still is something to collect")


async def _either(both: tuple[Process, Process], work: Callable[[Node], Any]) -> Any:
    """By the one that owns the log, or by the other."""
    from ...volume.errors import NotOwner

    try:
        return await both[0].ask(work)
    except NotOwner:
        return await both[1].ask(work)


def _random(seed: int) -> Any:
    from random import Random

    return Random(f"{seed} plan")


def _words(error: BaseException) -> str:
    import traceback

    if isinstance(error, Violation):
        return str(error)
    return "".join(traceback.format_exception(error)).strip()


@contextmanager
def _silent() -> Generator[None]:
    """What the product logs of what befalls it is no news here."""
    logger = logging.getLogger("budwood")
    before = logger.level, logger.propagate, list(logger.handlers)
    logger.propagate = False
    logger.addHandler(handler := logging.NullHandler())
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before[0])
        logger.propagate = before[1]
