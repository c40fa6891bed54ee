"""Nemesis: whoever crashes processes and puts them to sleep; and who starts those that are down."""

from __future__ import annotations

from typing import Final

import trio

from .actor import Actor
from .process import Process, Trap
from .world import MAIN, World

NAPS: Final = (100.0, 2000.0, 4000.0, 10_000.0, 3 * 86_400.0, 9 * 86_400.0)


class Nemesis(Actor):
    """Crashes processes, puts them to sleep, and starts those that are down."""

    def pause_seconds(self) -> float:
        return self.random.choice((1.0, 100.0, 1000.0, 4000.0)) * self.random.random()

    async def step(self) -> None:
        up = self.up()
        if not up:
            return
        process = up[0]
        match self.random.choice(("crash", "trap", "point", "point", "nap", "nap at", "nap at", "sleeper", "sleeper")):
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
                logs = [name for name in self.world.logs() if name != MAIN] or [MAIN]
                part = self.random.choice((f"/{self.random.choice(logs)}/entries/", "/pins/"))
                process.trap = Trap(part, self.random.randint(1, 2), self.random.choice(NAPS[-3:]), "create")
            case _:
                part = self.random.choice(("/entries/", "/entries/", "/pins/", "/t/", "/gc/", "/rollups/", ""))
                op = self.random.choice(("create", "create", "get", "delete", ""))
                process.trap = Trap(part, self.random.randint(1, 4), self._nap(), op)

    def _nap(self) -> float:
        return self.random.choice(NAPS) * (0.5 + self.random.random())


async def brought_back(world: World, process: Process) -> None:
    """Starts a process whenever it is down, some time later; one whose log another serves, hardly ever."""
    random = world.random(f"back {process.name}")
    while not world.ended:
        if process.is_up:
            await process.down()
        await trio.sleep(random.choice((5.0, 60.0, 1500.0)) * random.random() + 1)
        if not world.ended and not process.is_up and (not world.is_served(process) or random.random() < 0.02):
            await process.start()
