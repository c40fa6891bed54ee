"""Nemesis: whoever crashes processes, puts them to sleep, cuts them off and deposes them; who starts those that are
down; and who switches a store to native creates."""

from __future__ import annotations

from typing import Final

import trio

from ...server.node import Node
from ...volume.calls import TAKE_LOG, LogName
from ...volume.errors import BudwoodError
from .actor import Actor
from .clients import Client
from .process import Process, Trap
from .world import World

NAPS: Final = (100.0, 2000.0, 4000.0, 10_000.0, 3 * 86_400.0, 9 * 86_400.0)
CUTS: Final = (20.0, 300.0, 4000.0)
BEHIND_SECONDS: Final = (0.0, 0.005, 0.02, 0.05, 0.1, 100.0, 400.0)
"""How long an owner sleeps once it was deposed."""

_MISHAPS: Final = (
    *("crash", "trap", "point", "point", "nap", "nap at", "nap at", "sleeper", "sleeper"),
    *("cut", "apart", "both", "takeover", "depose", "depose", "depose", "records", "records"),
)

_SLEEPERS: Final = ("crash", "point", "nap", "nap at", *["sleeper"] * 6)
"""Of every fourth schedule: what only shows where somebody sleeps over a collection is rare among all that is above."""

_AT_RECORDS: Final = (
    *(("/pins/", "written"), ("/pins/", "list"), ("", "insert"), ("", "commit"), ("temporary/", "put"), ("", "put")),
)


class Nemesis(Client):
    """See above."""

    def pause_seconds(self) -> float:
        return self.random.choice((1.0, 100.0, 1000.0, 4000.0)) * self.random.random()

    async def step(self) -> None:
        up = self.up()
        if not up:
            return
        process = up[0]
        match self.random.choice(_SLEEPERS if self.world.seed % 4 == 2 else _MISHAPS):
            case "crash":
                process.crash()
            case "trap":
                process.trap = Trap("", self.random.randint(1, 60), 0.0)
            case "point":
                process.fault = self.random.choice(self.world.points)
            case "nap":
                process.sleep(self._nap())
            case "sleeper":
                # It wakes, and appends, when what stood in that slot may have been collected long ago; or holds what
                # others have let go of.
                logs = [name for name in self.world.logs() if name not in self.world.shared] or [*self.world.shared]
                part = self.random.choice((f"/{self.random.choice(logs)}/entries/", "/pins/"))
                process.trap = Trap(part, self.random.randint(1, 2), self.random.choice(NAPS[-3:]), "create")
            case "cut":
                process.cut(self._of(CUTS))
            case "apart":
                process.part(self._of(CUTS))
            case "both":
                process.cut(self._of(CUTS))
                process.part(self._of(CUTS))
            case "takeover":
                await self._take_over(process, self.random.choice(self.world.shared))
            case "depose":
                await self._depose()
            case "records" if self.world.creates.two_phase:
                if self.random.random() < 0.5:
                    await self._list_beside_a_copy()
                else:
                    self._nap_at_records(process)
            case _:
                part = self.random.choice(("/entries/", "/entries/", "/pins/", "/t/", "/gc/", "/rollups/", ""))
                op = self.random.choice(("create", "create", "get", "delete", ""))
                process.trap = Trap(part, self.random.randint(1, 4), self._nap(), op)

    def _nap_at_records(self, process: Process) -> None:
        """What it asks of the store and of the records lies apart."""
        part, op = self.random.choice(_AT_RECORDS)
        # Whoever sleeps between its last look at the clock and a put is awake again before its hand is taken for dead.
        process.trap = Trap(part, self.random.randint(1, 6), self._of(NAPS[:4]), op)

    async def _list_beside_a_copy(self) -> None:
        """Somebody lists while another's object is recorded, and copied between what the list asks for."""
        owners = self.world.owners()
        if not owners:
            return
        owner, log = self.random.choice(owners)
        others = [process for process in self.up() if process is not owner]
        if not others:
            return
        lister, entries = others[0], f"logs/{log}/entries/"

        async def lists(node: Node) -> None:
            await node.store.list(entries)

        async def asks() -> None:
            try:
                await lister.ask(lists)
            except BudwoodError as error:
                self.excuse(error)

        self.note(f"has {lister.name} list beside a copy of {owner.name}'s")
        copies = owner.trap = Trap(entries, self.random.choice((2, 2, 3, 4)), 2000.0, "put")
        async with trio.open_nursery() as tasks:
            for volume in self.free()[:3]:
                tasks.start_soon(self.rush, volume, tasks)
            if await self._springs(owner, copies):
                looks = lister.trap = Trap(entries, 1, 2000.0, self.random.choice(("list", "written")))
                tasks.start_soon(asks)
                await self._springs(lister, looks)
                owner.wake()
                await trio.sleep(self._of(BEHIND_SECONDS) + 1)
                lister.wake()

    async def _springs(self, process: Process, trap: Trap) -> bool:
        """Whether it sleeps by this one, after some time."""
        for _ in range(20):
            if process.trap is not trap:
                break
            await trio.sleep(self.random.choice((0.01, 0.1, 10.0)))
        return process.is_asleep

    async def _take_over(self, process: Process, log: str) -> None:
        """As an operator says, and nobody is asked."""
        if process.log is None:
            return
        self.note(f"has {process.name} take log {log}")

        async def take(node: Node) -> None:
            await node.ask(TAKE_LOG, LogName(log=log))

        await process.ask(take)
        self.world.trace.count("takeovers")

    async def _depose(self) -> None:
        """An owner sleeps with entries on their way, and wakes as another has taken its log and sends the next."""
        owners = self.world.owners()
        if not owners:
            return
        owner, log = self.random.choice(owners)
        others = [process for process in self.up() if process is not owner and process.log is not None]
        if not others:
            return
        self.note(f"lies in wait for {owner.name}")
        op = "put" if self.world.creates.two_phase and not self.world.creates.native else "create"
        trap = owner.trap = Trap(f"{log}/entries/", self.random.choice((1, 1, 2, 3)), 2000.0, op)
        async with trio.open_nursery() as tasks:
            for volume in self.free()[:3]:
                tasks.start_soon(self.rush, volume, tasks)
            if not await self._springs(owner, trap):
                return
            try:
                await self._take_over(others[0], log)
                for volume in self.free()[:3]:
                    tasks.start_soon(self.rush, volume, tasks)
            except BudwoodError as error:
                self.excuse(error)
            await trio.sleep(self._of(BEHIND_SECONDS))
            owner.wake()

    def _nap(self) -> float:
        return self._of(NAPS)

    def _of(self, seconds: tuple[float, ...]) -> float:
        return self.random.choice(seconds) * (0.5 + self.random.random())


class Switcher(Actor):
    """Switches the store to native creates, however often it takes, and has everybody start anew."""

    def pause_seconds(self) -> float:
        return 4000.0 * self.random.random()

    async def step(self) -> None:
        for _ in range(6):
            if self.up() and not self.world.creates.native:
                self.note("switches the store to native creates")
                try:
                    await self.world.creates.switch(self.up()[0])
                except BudwoodError as error:
                    self.note(f"is told {type(error).__name__}: {error}")
            if self.world.creates.native:
                break
            await trio.sleep(300.0 * self.random.random())
        if self.world.creates.native:
            self.world.trace.count("switches")
            for process in self.up():
                await trio.sleep(self.random.choice((0.0, 30.0, 1000.0)) * self.random.random())
                process.crash()


async def brought_back(world: World, process: Process) -> None:
    """Starts a process whenever it is down, some time later; one whose log another serves, hardly ever."""
    random = world.random(f"back {process.name}")
    while not world.ended:
        if process.is_up:
            await process.down()
        await trio.sleep(random.choice((5.0, 60.0, 1500.0, 4000.0)) * random.random() + 1)
        if not world.ended and not process.is_up and (not world.is_served(process) or random.random() < 0.02):
            await process.start(takeover=random.random() < 0.2)
