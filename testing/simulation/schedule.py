"""Schedule: one run of a small deployment, from its seed to its end (DESIGN §9).

    outcome = run_schedule(7)
    outcome.violation        None, or what did not hold
    outcome.trace            the last events; the same seed gives the same

Nodes, embedded processes, committers, readers, holders, an edge, keepers and a nemesis share one store for some hours
or days of simulated time. Of several nodes some stand by; volumes have modes, and sources; some stores create in two
phases. Whatever is answered is held against a model (model.py, reading.py). In the end the network
is calm, every process is awake, and

- what became of every commit is asked;
- a process that comes fresh to the bare store reads every LSN of every volume;
- half of what is held is let go; all is folded, and collected until there is nothing to collect;
- another one, fresh to what is left, reads all of it once more, and a scrub finds nothing wrong.

`audit` is given what the store holds then, and the pages of all LSNs that are promised. It may raise: tests give it a
reader of the formats that shares no code with the product.
"""

from __future__ import annotations

import logging
import traceback
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Final
from unittest.mock import patch

import trio

from ...server.log import reader
from ...server.metastore import rolled_stream, rollups, standby
from ...server.store.tree import Tree
from ...server.store.tree_change import Bounds
from ...volume.errors import BudwoodError
from .actor import Actor
from .clients import Committer, Reader, Rush
from .determinism import determined, run
from .ending import Audit, end
from .holders import Edge, Holder
from .keepers import Keeper
from .model import Violation
from .nemesis import Nemesis, Switcher, brought_back
from .trace import Trace
from .world import Plan, World

STEPS: Final = 32
"""Of all actors together."""


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
    with determined(seed), schedule.patched(), _heard(schedule.logged):
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
        self._world: World | None = None

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
        """Rollups come as often as the plan says, and their trees are of as many nodes; and so stand-bys look."""
        plan = self._plan
        with ExitStack() as stack:
            stack.enter_context(patch.object(rollups, "FEWEST", plan.rolled_every))
            stack.enter_context(patch.object(rollups, "A_NODE", 0))
            stack.enter_context(patch.object(standby, "EVERY_SECONDS", plan.looks_seconds))
            stack.enter_context(patch.object(standby, "LIST_SECONDS", 30 * plan.looks_seconds))
            stack.enter_context(patch.object(reader, "LONG_TAIL", 2 * plan.rolled_every))
            if plan.small_nodes:
                small = partial(Tree, bounds=Bounds(most_bytes=1000, most_children=4))
                stack.enter_context(patch.object(rolled_stream, "Tree", small))
                stack.enter_context(patch.object(rollups, "NODE_BYTES", 2000))
            yield

    def logged(self, error: BaseException) -> None:
        """The product has logged this, and went on."""
        if not isinstance(error, BudwoodError) and self._world is not None:
            self._world.fail(error)

    async def main(self) -> None:
        async with trio.open_nursery() as tasks:
            self._world = world = World(self._seed, self._plan, tasks, self._trace)
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
            if process.name != "spare" and not await process.start():
                raise AssertionError(f"{process.name} does not start in a calm network")
        draws = world.random("volume")
        for number in range(self._plan.volumes):
            private = self._plan.private if number == 0 else draws.random() < 0.3
            alone = [process for process in world.processes if (process.log is None) is private and process.is_up]
            await world.born(draws.choice(alone or world.processes[:1]))
        world.network.weather = self._plan.weather
        for process in world.processes:
            world.tasks.start_soon(brought_back, world, process)
        actors: list[Actor] = [Committer(world, 0), Committer(world, 1), Reader(world, 0), Holder(world, 0)]
        actors += [Keeper(world, 0), Keeper(world, 1), Edge(world, 0), Rush(world, 0)]
        each = max(1, self._steps // len(actors))
        async with trio.open_nursery() as acting:
            for actor in actors:
                acting.start_soon(actor.run, each)
            acting.start_soon(Nemesis(world, 0).run, self._plan.mishaps)
            if self._plan.switches:
                acting.start_soon(Switcher(world, 0).run, 1)
        await end(world, self._audit)


def _random(seed: int) -> Random:
    return Random(f"{seed} plan")


def _words(error: BaseException) -> str:
    if isinstance(error, Violation):
        return str(error)
    return "".join(traceback.format_exception(error)).strip()


class _Listener(logging.Handler):
    def __init__(self, met: Callable[[BaseException], None]) -> None:
        super().__init__(logging.ERROR)
        self._met = met

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and isinstance(error := record.exc_info[1], Exception):
            self._met(error)


@contextmanager
def _heard(met: Callable[[BaseException], None]) -> Generator[None]:
    """What the product logs is no news here, but for errors that it did not foresee."""
    logger, listener = logging.getLogger(__name__.partition(".")[0]), _Listener(met)
    propagates, logger.propagate = logger.propagate, False
    logger.addHandler(listener)
    try:
        yield
    finally:
        logger.removeHandler(listener)
        logger.propagate = propagates
