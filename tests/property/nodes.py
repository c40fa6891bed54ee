"""Nodes of this process that can die: what stands for a node's process in a property test.

    town = Town("main")                     # None: nodes without a log of their own, as an embedded process has
    town.start(HOME)                        # a node at an address; its store outlives it
    faults.arm(point, town.cut)             # whoever reaches the point dies there, with everything it has in memory
    town.kill(HOME)

`town.remote` is what an edge is given for its remote: it follows the log from address to address (remote/routed.py),
and a call to an address where nobody lives, or whose node dies on the way, ends as over a network: Unavailable,
determinate only if nothing was sent. Nodes live in the portal's loop, as an embedded one does. Pauses take no time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

from budwood.remote.loop import call
from budwood.remote.portal import BlockingRemote
from budwood.remote.routed import Routed
from budwood.server.node import Node
from budwood.server.store.retrying import Patience
from budwood.testing.clock import ManualClock
from budwood.testing.stores import MemoryStore, RiggedStore
from budwood.volume import faults
from budwood.volume.entry import EpochRecord
from budwood.volume.errors import Unavailable
from budwood.volume.owner import Liveness
from budwood.volume.protocols import PagesRead, Remote

HOME = "test://home"


class _Process:
    """A node and the task it lives in."""

    def __init__(self, town: Town, address: str) -> None:
        self.town = town
        self.address = address
        self.dead = False
        self.node: Node | None = None
        self.failure: BaseException | None = None
        self._settled = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def opened(self) -> bool:
        await self._settled.wait()
        return self.node is not None

    async def kill(self) -> None:
        self.dead = True
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _run(self) -> None:
        clock = ManualClock(jumps=True)
        patience = Patience(deadline_seconds=5.0, now=clock.now, sleep=clock.sleep, draw=lambda: 1.0)
        try:
            async with Node.open(
                self.town.store,
                name=self.town.log,
                address=self.address,
                patience=patience,
                probe_owner=self.town.is_alive,
                takeover=True,
                memory_bytes=self.town.memory_bytes,
            ) as self.node:
                self._settled.set()
                await asyncio.Event().wait()
        except BaseException as failure:
            # Killed, or cut by a fault; either way nothing of it goes on.
            self.failure = failure
        finally:
            self.dead = True
            self._settled.set()


class _Wire:
    """A client's way to whoever lives at an address."""

    def __init__(self, town: Town, address: str) -> None:
        self.url = address
        self._town = town

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        async def ask(*arguments: Any, **options: Any) -> Any:
            process, node = self._reach()
            return await self._heard(process, lambda: getattr(node, name)(*arguments, **options))

        return ask

    @asynccontextmanager
    async def read_pages(self, *arguments: Any, **options: Any) -> AsyncGenerator[PagesRead]:
        _, node = self._reach()
        async with node.read_pages(*arguments, **options) as read:
            yield read

    async def aclose(self) -> None:
        """Nothing is held."""

    def _reach(self) -> tuple[_Process, Node]:
        process = self._town.processes.get(self.url)
        if process is None or process.dead or process.node is None:
            raise Unavailable(f"nobody answers at {self.url}")
        return process, process.node

    async def _heard(self, process: _Process, ask: Callable[[], Awaitable[Any]]) -> Any:
        """The answer, unless the node died before it could give one."""
        self._town.asked = process
        try:
            answer = await ask()
        except BaseException as failure:
            if isinstance(failure, faults.Cut) or process.dead:
                raise Unavailable(f"{self.url} hung up", determinate=False) from failure
            raise
        if process.dead:
            raise Unavailable(f"{self.url} hung up", determinate=False)
        return answer


class Town:
    """Nodes by address, over one store."""

    def __init__(self, log: str | None, memory_bytes: int | None = None) -> None:
        self.log = log
        self.memory_bytes = memory_bytes
        self.memory = MemoryStore()
        self.store = RiggedStore(self.memory)
        self.processes: dict[str, _Process] = {}
        self.asked: _Process | None = None
        """Whoever was asked last, or is starting: the one that a fault cuts."""

    def start(self, address: str = HOME) -> bool:
        """Whether it opened; a fault may have killed it on the way."""

        async def begin() -> bool:
            self.asked = self.processes[address] = _Process(self, address)
            return await self.asked.opened()

        return call(begin)

    def kill(self, address: str = HOME) -> None:
        process = self.processes.pop(address, None)
        if process is not None:
            call(process.kill)

    async def is_alive(self, owner: EpochRecord) -> Liveness:
        """As a node that was deposed asks."""
        process = self.processes.get(owner.address)
        return Liveness.GONE if process is None or process.dead else Liveness.ANSWERS

    def cut(self) -> None:
        """The action of an armed fault point: the node dies here."""
        assert self.asked is not None
        self.asked.dead = True
        raise faults.Cut

    def remote(self) -> BlockingRemote:
        async def connect() -> Remote:
            return Routed(self._wire(HOME), self._wire, lambda refused: refused.owner)

        return BlockingRemote(HOME, connect)

    def _wire(self, address: str) -> Remote:
        return cast("Remote", _Wire(self, address))
