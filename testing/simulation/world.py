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
from ...volume.calls import CREATE, SET_MODE, CreateRequest, ModeRequest
from ...volume.entry import EpochRecord
from ...volume.ids import VolumeId
from ...volume.owner import Liveness
from ...volume.rules import EXCLUSIVE, OPTIMISTIC, REPLICATED
from .entry_watch import EntryWatch
from .model import PAGE_SIZE, Snapshot, Volume
from .network import CALM, ROUGH, STORMY, Network, Weather
from .process import Process, cut
from .record_store import Creates
from .trace import Trace

MAIN: Final = "main"
SHARED: Final = (MAIN, "east", "west")
"""The logs of nodes."""

LIES_MS: Final = (0, 0, 1_000, -5_000, 14_900, -14_900)
"""How wrong a clock of the day may be: two lie 30 s apart at the most, as is documented."""

_OF_SERVERS: Final = ("move:", "rollup:", "pin:", "collect:", "log:", "node:", "pagestore:", "fold:", "gc:", "retain:")
_OF_TWO_PHASES: Final = ("two-phase:", "native:")
_ALPHAS: Final = (1, 2, 4, 8)


@dataclass(frozen=True, slots=True)
class Plan:
    """What a seed makes of a run, before anything happens."""

    weather: Weather
    private: bool
    """Whether the first volume has a log of its own."""
    volumes: int
    nodes: int
    standbys: int
    """How many of them are ready to take the others' logs."""
    looks_seconds: float
    """Between two looks that a stand-by takes at a log."""
    spare: bool
    """Whether another process is ready to take the first node's log, under that node's name."""
    embedded: int
    rolled_every: int
    small_nodes: bool
    mishaps: int
    """How many processes crash, sleep, are cut off or deposed."""
    memory_bytes: int | None
    two_phase: bool
    switches: bool
    """Whether a store that creates in two phases is switched to native creates meanwhile."""
    ruled: bool
    """Whether some volumes are exclusive or replicated."""

    @classmethod
    def drawn(cls, random: Random) -> Plan:
        nodes = random.choice((1, 1, 2, 2, 3))
        two_phase = random.random() < 0.2
        return cls(
            weather=random.choice((CALM, ROUGH, ROUGH, STORMY)),
            private=random.random() < 0.4,
            volumes=random.choice((1, 2, 2, 3)),
            nodes=nodes,
            standbys=random.randint(0, nodes) if nodes > 1 else 0,
            looks_seconds=random.choice((200.0, 600.0, 1800.0)),
            spare=random.random() < 0.2,
            embedded=random.choice((0, 1, 1, 2)),
            rolled_every=random.choice((2, 3, 6, 40)),
            small_nodes=random.random() < 0.3,
            mishaps=random.choice((0, 2, 4, 6)),
            memory_bytes=random.choice((None, None, 40_000)),
            two_phase=two_phase,
            switches=two_phase and random.random() < 0.3,
            ruled=random.random() < 0.5,
        )


def _batching(random: Random) -> Batching:
    return Batching(alpha=random.choice(_ALPHAS), window_seconds=random.choice((0.0, 0.0, 0.02)))


class World:
    def __init__(self, seed: int, plan: Plan, tasks: trio.Nursery, trace: Trace) -> None:
        self.seed = seed
        self.plan = plan
        self.trace = trace
        self.tasks = tasks
        self.network = Network(self.random("network"), tasks, EntryWatch(self.fail).sent)
        self.creates = Creates(self.network, self.fail, two_phase=plan.two_phase)
        self.volumes: list[Volume] = []
        self.violation: BaseException | None = None
        self.ended = False
        """Whether nobody is to come back by itself any more."""
        self.processes: list[Process] = []
        self._numbers = 0
        self.shared = SHARED[: plan.nodes]
        for number, log in enumerate(self.shared):
            self._made("node" if not number else log, log, standby=number >= plan.nodes - plan.standbys)
        if plan.spare:
            self._made("spare", MAIN)
        for number in range(plan.embedded):
            self._made(f"embed{number}", None)
        reached = _OF_SERVERS + (_OF_TWO_PHASES if plan.two_phase else ())
        self.points = sorted(name for name in faults.registered() if name.startswith(reached))
        """Fault points that a server may reach: not all that this process happens to have loaded."""
        for name in self.points:
            faults.arm(name, cut(name))

    def random(self, what: str) -> Random:
        """For one of those who draw: what others draw changes nothing for it."""
        return Random(f"{self.seed} {what}")

    def process(self, name: str, log: str | None, *, standby: bool = False) -> Process:
        random = self.random(name)
        return Process(
            name,
            log,
            self.creates.way_of,
            self.trace,
            self.tasks,
            random,
            self.liveness,
            lies_ms=random.choice(LIES_MS),
            memory_bytes=self.plan.memory_bytes,
            batching=partial(_batching, self.random(f"batching of {name}")),
            standby=standby,
        )

    def _made(self, name: str, log: str | None, *, standby: bool = False) -> None:
        self.processes.append(self.process(name, log, standby=standby))

    def at(self, address: str) -> Process | None:
        return next((process for process in self.processes if process.address == address), None)

    async def liveness(self, asker: Process, owner: EpochRecord) -> Liveness:
        """As a node asks that finds the log owned."""
        process = self.at(owner.address) if owner.address else None
        if process is None or (process is not asker and (process.is_apart or asker.is_apart)):
            return Liveness.GONE
        return Liveness.ANSWERS if await process.holds(owner) else Liveness.GONE

    def is_served(self, process: Process) -> bool:
        """Whether another has its log, and answers."""
        others = (other for other in self.processes if other is not process and other.log == process.log)
        return process.log is not None and any(other.is_up and not other.is_asleep for other in others)

    def owners(self) -> list[tuple[Process, str]]:
        """Processes that are up, and believe that they own a log which several share."""
        return [
            (process, log)
            for process in self.processes
            if (node := process.node) is not None
            for log, _ in node.logs.held()
        ]

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
        vid, random = VolumeId.new(), self.random(f"mode {len(self.volumes)}")
        mode = random.choice((OPTIMISTIC, EXCLUSIVE, REPLICATED)) if self.plan.ruled else OPTIMISTIC

        async def make(node: Node) -> None:
            await node.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE_SIZE))
            if mode != OPTIMISTIC:
                await node.ask(SET_MODE, ModeRequest(vid.raw, mode=mode))

        await process.ask(make)
        self.add(Volume(vid, len(self.volumes) + 1, known={0: Snapshot({}, 0)}, mode=mode))

    def add(self, volume: Volume) -> None:
        self.trace("model", f"{volume} begins at LSN {volume.start}")
        self.volumes.append(volume)

    def logs(self) -> list[str]:
        """Those that have anything."""
        names = [*self.shared, *(volume.id for volume in self.volumes)]
        return [name for name in names if self.network.store.list_now(f"logs/{name}/", limit=1)]
