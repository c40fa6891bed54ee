"""World: the processes, volumes and clocks of one run, and what its actors share."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Final

import trio

from ...server.log.waiting import Batching
from ...server.node import Node
from ...volume import faults
from ...volume.calls import CREATE, CreateRequest
from ...volume.entry import EpochRecord
from ...volume.ids import VolumeId
from ...volume.owner import Liveness
from .model import PAGE_SIZE, Snapshot, Volume
from .network import CALM, ROUGH, STORMY, Network, Weather
from .process import Process, cut
from .trace import Trace

MAIN: Final = "main"
"""The shared log."""

LIES_MS: Final = (0, 0, 1_000, -5_000, 14_900, -14_900)
"""How wrong a clock of the day may be: two lie 30 s apart at the most, as is documented."""

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


def _batching(random: Random) -> Batching:
    return Batching(alpha=random.choice((1, 2, 4)), window_seconds=random.choice((0.0, 0.02)))


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
        self.points = sorted(name for name in faults.registered() if name.startswith(_OF_SERVERS))
        """Fault points that a server may reach: not all that this process happens to have loaded."""
        for name in self.points:
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
            batching=partial(_batching, self.random(f"batching of {name}")),
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
