"""Network: the store, and each process's way to it, on which requests and answers are late, lost or come twice.

    refused     the request was not let in, and its caller is told so
    lost        it never arrives; its caller is told that nobody knows
    unanswered  it arrives, and the answer doesn't
    twice       it arrives, and once more some time later
    stalled     it takes minutes, longer than its caller waits

Whoever is cut off with a request on its way leaves it there: a create may arrive long after its process has crashed. No
request is on its way for as long as the store's gc interval; what was not sent yet, because its process slept, may be
sent at any time.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final, NamedTuple, Protocol

import trio

from ...server.store.protocol import Data, Keys, Sizes, buffers
from ...volume.errors import AlreadyExists, Unavailable
from ..stores import MemoryStore, Op
from .trace import Trace

LATE_SECONDS: Final = (0.5, 30.0, 600.0)
"""Of what arrives after its caller gave up, and of what comes twice."""
AT_ONCE: Final = 0.7
CHANGES_AT_ONCE: Final = 0.2
"""So many requests take no time: of those that change nothing, and of the others."""
STALLED_SECONDS: Final = (5.0, 20.0, 300.0)


class Weather(NamedTuple):
    """How often what happens to a request, between 0 and 1."""

    refused: float = 0.0
    lost: float = 0.0
    unanswered: float = 0.0
    twice: float = 0.0
    stalled: float = 0.0
    seconds: float = 0.02
    """That a request takes, about."""


CALM: Final = Weather()
ROUGH: Final = Weather(0.01, 0.005, 0.01, 0.01, 0.003)
STORMY: Final = Weather(0.03, 0.02, 0.04, 0.03, 0.01)


class Network:
    """One store, and what becomes of requests to it."""

    def __init__(self, random: Random, tasks: trio.Nursery) -> None:
        self.store = MemoryStore("test://simulation")
        self.weather = CALM
        self._random = random
        self._tasks = tasks

    def draw(self) -> float:
        return self._random.random()

    def seconds(self) -> float:
        return self.weather.seconds * (0.5 + self._random.random())

    def choice(self, seconds: tuple[float, ...]) -> float:
        return self._random.choice(seconds) * (0.5 + self._random.random())

    def later(self, process: str, note: Callable[[str, str], None], op: Op, key: str, data: bytes) -> None:
        """It arrives when nobody waits for it any more."""
        self._tasks.start_soon(self._arrive_late, process, note, op, key, data)

    async def _arrive_late(self, process: str, note: Callable[[str, str], None], op: Op, key: str, data: bytes) -> None:
        await trio.sleep(self.choice(LATE_SECONDS))
        note(process, f"late {op} {key}")
        if op == "delete":
            self.store.delete_now(key)
        elif key not in self.store.objects:
            self.store.create_now(key, data)


class Caller(Protocol):
    """Whose connection it is: see process.Process."""

    name: str
    trace: Trace

    async def reach(self, op: str, key: str) -> None: ...

    async def awake(self) -> None: ...


class Connection:
    """The store as one process has it: see server.store.protocol.Store."""

    def __init__(self, network: Network, process: Caller) -> None:
        self._network = network
        self._process = process

    @property
    def url(self) -> str:
        return self._network.store.url

    async def get(self, key: str, *, start: int = 0, end: int | None = None) -> bytes:
        lost = await self._send("get", key)
        data = self._network.store.get_now(key, start=start, end=end)
        await self._answer("get", key, lost)
        return data

    async def get_tail(self, key: str, size: int) -> tuple[bytes, int]:
        lost = await self._send("get_tail", key)
        found = self._network.store.get_tail_now(key, size)
        await self._answer("get_tail", key, lost)
        return found

    async def create(self, key: str, data: Data) -> None:
        whole = b"".join(buffers(data))
        lost = await self._send("create", key, whole)
        try:
            self._network.store.create_now(key, whole)
        except AlreadyExists:
            await self._answer("create", key, lost)
            raise
        await self._answer("create", key, lost)

    async def delete(self, key: str) -> None:
        lost = await self._send("delete", key)
        self._process.trace.count("objects deleted", int(key in self._network.store.objects))
        self._network.store.delete_now(key)
        await self._answer("delete", key, lost)

    async def list(self, prefix: str, *, start: str = "", limit: int | None = None) -> Keys:
        lost = await self._send("list", prefix)
        keys = self._network.store.list_now(prefix, start=start, limit=limit)
        await self._answer("list", prefix, lost)
        return keys

    async def sizes(self, prefix: str, *, start: str = "", limit: int | None = None) -> Sizes:
        lost = await self._send("list", prefix)
        sizes = self._network.store.sizes_now(prefix, start=start, limit=limit)
        await self._answer("list", prefix, lost)
        return sizes

    async def aclose(self) -> None:
        """Nothing is held."""

    async def _send(self, op: Op, key: str, data: bytes = b"") -> bool:
        """Returns when the request arrives; whether its answer will be lost."""
        network, process = self._network, self._process
        await process.reach(op, key)
        process.trace(process.name, f"{op} {key}")
        weather, draw = network.weather, network.draw()
        changes = op in ("create", "delete")
        for rate, what in ((weather.refused, "refused"), (weather.lost, "lost")):
            if draw < rate:
                process.trace(process.name, f"{what} {op} {key}")
                await trio.sleep(network.seconds())
                raise Unavailable(f"{op} {key}: {what}", determinate=what == "refused")
            draw -= rate
        if draw < weather.unanswered:
            await self._on_its_way(network.seconds(), op, key, data)
            return True
        draw -= weather.unanswered
        if draw < weather.twice and changes:
            network.later(process.name, process.trace, op, key, data)
        draw -= weather.twice
        stalls = 0 <= draw < weather.stalled
        if not stalls and network.draw() < (CHANGES_AT_ONCE if changes else AT_ONCE):
            return False
        await self._on_its_way(network.choice(STALLED_SECONDS) if stalls else network.seconds(), op, key, data)
        return False

    async def _on_its_way(self, seconds: float, op: Op, key: str, data: bytes) -> None:
        try:
            await trio.sleep(seconds)
        except trio.Cancelled:
            if op in ("create", "delete") and self._network.draw() < 0.5:
                self._network.later(self._process.name, self._process.trace, op, key, data)
            raise

    async def _answer(self, op: Op, key: str, lost: bool) -> None:
        if lost:
            self._process.trace(self._process.name, f"unanswered {op} {key}")
            await trio.sleep(self._network.seconds())
            raise Unavailable(f"{op} {key}: no answer", determinate=False)
        await self._process.awake()
