"""World: the processes, volumes and clocks of one run, and what its actors share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random
from typing import Final, TypeVar

import trio

from ...server.node import Node
from ...server.upkeep.garbage_check import Refused
from ...volume import faults
from ...volume.calls import CREATE, CreateRequest
from ...volume.entry import EpochRecord
from ...volume.errors import (
    AlreadyExists,
    Conflict,
    Forgotten,
    NotFound,
    NotOwner,
    OutcomeUnknown,
    PagesNotHere,
    Unavailable,
)
from ...volume.ids import VolumeId
from ...volume.owner import Liveness
from .model import PAGE_SIZE, Snapshot, Violation, Volume
from .network import CALM, ROUGH, STORMY, Network, Weather
from .process import Process, cut
from .trace import Trace

T = TypeVar("T")

MAIN: Final = "main"
"""The shared log."""

LIES_MS: Final = (0, 0, 1_000, -5_000, 14_900, -14_900)
"""How wrong a clock of the day may be: two lie 30 s apart at the most, as is documented."""

MISHAPS: Final = (Unavailable, Conflict, NotOwner, Forgotten, NotFound, AlreadyExists, OutcomeUnknown, PagesNotHere)
"""What may be answered to an actor that goes by what it knows."""

_OF_SERVERS: Final = ("move:", "rollup:", "pin:", "collect:", "log:", "node:", "pagestore:", "fold:", "gc:", "retain:")


@dataclass(frozen=True, slots=True)
class Plan:
    """What a seed makes of a run, before anything happens."""

    weather: Weather
    private: bool
    """Whether the first volume has a log of its own."""
    volumes: int
    standby: bool
    """Whether a second node is ready to take the shared log."""
    embedded: int
    rolled_every: int
    small_nodes: bool
    mishaps: int
    """How many processes crash or sleep."""
    memory_bytes: int | None

    @classmethod
    def drawn(cls, random: Random) -> Plan:
        return cls(
            weather=random.choice((CALM, ROUGH, ROUGH, STORMY)),
            private=random.random() < 0.6,
            volumes=random.choice((1, 1, 2)),
            standby=random.random() < 0.4,
            embedded=random.choice((1, 2)),
            rolled_every=random.choice((2, 3, 6, 40)),
            small_nodes=random.random() < 0.3,
            mishaps=random.choice((0, 2, 4, 6)),
            memory_bytes=random.choice((None, None, 20_000)),
        )


class World:
    def __init__(self, seed: int, plan: Plan, tasks: trio.Nursery, trace: Trace) -> None:
        self.seed = seed
        self.plan = plan
        self.trace = trace
        self.tasks = tasks
        self.network = Network(self.random("network"), tasks)
        self.volumes: list[Volume] = []
        self.violation: BaseException | None = None
        self.ended = False
        """Whether nobody is to come back by itself any more."""
        self.processes: list[Process] = []
        self._numbers = 0
        self._made("node", MAIN)
        if plan.standby:
            self._made("standby", MAIN)
        for number in range(plan.embedded):
            self._made(f"embed{number}", None)
        for name in sorted(faults.registered()):
            if name.startswith(_OF_SERVERS):
                faults.arm(name, cut(name))

    def random(self, what: str) -> Random:
        """For one of those who draw: what others draw changes nothing for it."""
        return Random(f"{self.seed} {what}")

    def process(self, name: str, log: str | None) -> Process:
        random = self.random(name)
        return Process(
            name,
            log,
            self.network,
            self.trace,
            self.tasks,
            random,
            self.is_alive,
            lies_ms=random.choice(LIES_MS),
            memory_bytes=self.plan.memory_bytes,
        )

    def _made(self, name: str, log: str | None) -> None:
        self.processes.append(self.process(name, log))

    async def is_alive(self, owner: EpochRecord) -> Liveness:
        """As a node asks that finds the log owned."""
        alive = any(process.address == owner.address and process.is_alive_under(owner) for process in self.processes)
        return Liveness.ANSWERS if alive else Liveness.GONE

    def is_served(self, process: Process) -> bool:
        """Whether another has its log, and answers."""
        others = (other for other in self.processes if other is not process and other.log == process.log)
        return process.log is not None and any(other.is_up and not other.is_asleep for other in others)

    def fail(self, error: BaseException) -> None:
        """The run is over: something does not hold."""
        if self.violation is None:
            self.violation = error
            self.trace("VIOLATED", f"{type(error).__name__}: {error}")
        self.tasks.cancel_scope.cancel()

    def number(self) -> int:
        """One that nobody else has."""
        self._numbers += 1
        return self._numbers

    async def born(self, process: Process) -> None:
        vid = VolumeId.new()

        async def make(node: Node) -> None:
            await node.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE_SIZE))

        await process.ask(make)
        self.add(Volume(vid, len(self.volumes) + 1, known={0: Snapshot({}, 0)}))

    def add(self, volume: Volume) -> None:
        self.trace("model", f"{volume} begins at LSN {volume.start}")
        self.volumes.append(volume)

    def logs(self) -> list[str]:
        """Those that have anything."""
        names = [MAIN, *(volume.id for volume in self.volumes)]
        return [name for name in names if self.network.store.list_now(f"logs/{name}/", limit=1)]


class Actor:
    """Somebody who does one thing after another, with pauses, through whichever process answers."""

    name = "actor"

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.name = f"{type(self).__name__.lower()}{number}"
        self.random = world.random(self.name)

    async def run(self, steps: int) -> None:
        try:
            for _ in range(steps):
                await trio.sleep(self.pause_seconds())
                await self._once()
        except Exception as error:
            # It is none that is expected: whatever it is, it is what this run is for.
            self.world.fail(error)

    async def step(self) -> None:
        raise NotImplementedError

    def pause_seconds(self) -> float:
        return self.random.choice((0.0, 0.01, 0.1, 1.0, 10.0, 100.0, 400.0, 1000.0)) * self.random.random()

    def note(self, what: str) -> None:
        self.world.trace(self.name, what)

    def volume(self) -> Volume:
        return self.random.choice(self.world.volumes)

    def up(self) -> list[Process]:
        found = [process for process in self.world.processes if process.is_up]
        self.random.shuffle(found)
        return found

    async def somewhere(
        self, work: Callable[[Node], Awaitable[T]], heard: Callable[[T], None] = lambda _: None, *, tries: int = 3
    ) -> T:
        """From the first process that may do it."""
        refused: Exception = Unavailable("no process is up")
        for process in self.up()[:tries]:
            try:
                return await process.ask(work, heard)
            except NotOwner as error:
                refused = error
        raise refused

    async def _once(self) -> None:
        try:
            await self.step()
        except Refused as error:
            raise Violation(f"a garbage plan was wrong: {error}") from error
        except MISHAPS as error:
            self.note(f"is told {type(error).__name__}: {error}")
