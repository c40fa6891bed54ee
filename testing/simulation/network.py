"""Network: the store, and each process's way to it, on which requests and answers are late, lost or come twice.

    refused     the request was not let in, and its caller is told so
    lost        it never arrives; its caller is told that nobody knows
    unanswered  it arrives, and the answer doesn't
    twice       it arrives, and once more some time later
    stalled     it takes minutes, longer than its caller waits

Whoever is cut off from the store (process.py) hears of none of its requests; those that were on their way arrive.

Whoever is cut off with a request on its way leaves it there: a create may arrive long after its process has crashed. No
request is on its way for as long as the store's gc interval; what was not sent yet, because its process slept, may be
sent at any time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from random import Random
from typing import Final, NamedTuple, Protocol

import trio

from ...server.store.protocol import Data, Keys, Sizes, buffers
from ...volume.errors import AlreadyExists, BudwoodError, Unavailable
from ..stores import MemoryStore
from .trace import Trace

LATE_SECONDS: Final = (0.5, 30.0, 600.0)
"""Of what arrives after its caller gave up, and of what comes twice."""
AT_ONCE: Final = 0.7
CHANGES_AT_ONCE: Final = 0.2
"""So many requests take no time: of those that change nothing, and of the others."""
STALLED_SECONDS: Final = (5.0, 20.0, 300.0)
CUT_SECONDS: Final = 4.0
"""After which whoever is cut off gives a request up."""


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

    def __init__(self, random: Random, tasks: trio.Nursery, sent: Callable[[Caller, str, bytes], None]) -> None:
        """`sent` is told of all that is to be stored."""
        self.store = MemoryStore("test://simulation")
        self.honours_create = True
        """Else a create is a put."""
        self.weather = CALM
        self.sent = sent
        self._random = random
        self._tasks = tasks

    def draw(self) -> float:
        return self._random.random()

    def seconds(self) -> float:
        return self.weather.seconds * (0.5 + self._random.random())

    def choice(self, seconds: tuple[float, ...]) -> float:
        return self._random.choice(seconds) * (0.5 + self._random.random())

    def later(self, caller: Caller, words: str, again: Callable[[], Awaitable[None]]) -> None:
        """It arrives when nobody waits for it any more."""
        self._tasks.start_soon(self._arrive_late, caller, words, again)

    async def _arrive_late(self, caller: Caller, words: str, again: Callable[[], Awaitable[None]]) -> None:
        await trio.sleep(self.choice(LATE_SECONDS))
        caller.trace(caller.name, f"late {words}")
        # Nobody hears what came of it.
        with suppress(BudwoodError):
            await again()

    def create_now(self, key: str, data: bytes) -> None:
        if self.honours_create:
            self.store.create_now(key, data)
        else:
            self.store.put_now(key, data)


class Caller(Protocol):
    """Whose connection it is: see process.Process."""

    name: str
    trace: Trace

    @property
    def is_cut(self) -> bool: ...
    @property
    def alpha(self) -> int: ...

    async def reach(self, op: str, key: str) -> None: ...

    async def awake(self) -> None: ...


class Way:
    """Of one process to a store."""

    def __init__(self, network: Network, process: Caller) -> None:
        self.network = network
        self.process = process

    async def send(
        self, op: str, key: str, again: Callable[[], Awaitable[None]] | None = None, *, twice: bool = True
    ) -> bool:
        """Returns when the request arrives; whether its answer will be lost. `again` is what it changes, done at any
        time; and perhaps `twice`."""
        network, process, words = self.network, self.process, f"{op} {key}"
        await process.reach(op, key)
        process.trace(process.name, words)
        if process.is_cut:
            await trio.sleep(CUT_SECONDS)
            raise Unavailable(f"{words}: cut off", determinate=False)
        weather, draw = network.weather, network.draw()
        for rate, what in ((weather.refused, "refused"), (weather.lost, "lost")):
            if draw < rate:
                process.trace(process.name, f"{what} {words}")
                await trio.sleep(network.seconds())
                raise Unavailable(f"{words}: {what}", determinate=what == "refused")
            draw -= rate
        if draw < weather.unanswered:
            await self._on_its_way(network.seconds(), words, again)
            return True
        draw -= weather.unanswered
        if draw < weather.twice and again is not None and twice:
            network.later(process, words, again)
        draw -= weather.twice
        stalls = 0 <= draw < weather.stalled
        if not stalls and network.draw() < (AT_ONCE if again is None else CHANGES_AT_ONCE):
            return False
        await self._on_its_way(network.choice(STALLED_SECONDS) if stalls else network.seconds(), words, again)
        return False

    async def answer(self, op: str, key: str, lost: bool) -> None:
        if lost or self.process.is_cut:
            self.process.trace(self.process.name, f"unanswered {op} {key}")
            await trio.sleep(self.network.seconds())
            raise Unavailable(f"{op} {key}: no answer", determinate=False)
        await self.process.awake()

    async def _on_its_way(self, seconds: float, words: str, again: Callable[[], Awaitable[None]] | None) -> None:
        try:
            await trio.sleep(seconds)
        except trio.Cancelled:
            if again is not None and self.network.draw() < 0.5:
                self.network.later(self.process, words, again)
            raise


class Connection(Way):
    """The store as one process has it: see server.store.protocol.Store, and PlainStore."""

    @property
    def url(self) -> str:
        return self.network.store.url

    async def get(self, key: str, *, start: int = 0, end: int | None = None) -> bytes:
        lost = await self.send("get", key)
        data = self.network.store.get_now(key, start=start, end=end)
        await self.answer("get", key, lost)
        return data

    async def get_tail(self, key: str, size: int) -> tuple[bytes, int]:
        lost = await self.send("get_tail", key)
        found = self.network.store.get_tail_now(key, size)
        await self.answer("get_tail", key, lost)
        return found

    async def create(self, key: str, data: Data) -> None:
        whole = b"".join(buffers(data))

        async def again() -> None:
            if key not in self.network.store.objects or not self.network.honours_create:
                self.network.create_now(key, whole)

        self.network.sent(self.process, key, whole)
        lost = await self.send("create", key, again)
        try:
            self.network.create_now(key, whole)
        except AlreadyExists:
            await self.answer("create", key, lost)
            raise
        await self.answer("create", key, lost)

    async def put(self, key: str, data: Data) -> None:
        whole = b"".join(buffers(data))

        async def again() -> None:
            self.network.store.put_now(key, whole)

        self.network.sent(self.process, key, whole)
        lost = await self.send("put", key, again)
        self.network.store.put_now(key, whole)
        await self.answer("put", key, lost)

    async def delete(self, key: str) -> None:
        async def again() -> None:
            self.network.store.delete_now(key)

        lost = await self.send("delete", key, again)
        self.process.trace.count("objects deleted", int(key in self.network.store.objects))
        self.network.store.delete_now(key)
        await self.answer("delete", key, lost)

    async def list(self, prefix: str, *, start: str = "", limit: int | None = None) -> Keys:
        lost = await self.send("list", prefix)
        keys = self.network.store.list_now(prefix, start=start, limit=limit)
        await self.answer("list", prefix, lost)
        return keys

    async def sizes(self, prefix: str, *, start: str = "", limit: int | None = None) -> Sizes:
        lost = await self.send("list", prefix)
        sizes = self.network.store.sizes_now(prefix, start=start, limit=limit)
        await self.answer("list", prefix, lost)
        return sizes

    async def aclose(self) -> None:
        """Nothing is held."""
