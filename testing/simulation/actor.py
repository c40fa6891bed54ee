"""Actor: somebody who does one thing after another, with pauses, through whichever process answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import trio

from ...server.node import Node
from ...server.upkeep.garbage_check import Refused
from ...volume.errors import (
    AlreadyExists,
    Conflict,
    Forgotten,
    NotFound,
    NotOwner,
    OutcomeUnknown,
    PagesNotHere,
    ReadOnly,
    Unavailable,
    Unsupported,
)
from ...volume.protocols import Remote
from .lines import Lines
from .model import Violation, Volume
from .process import Process
from .world import World

T = TypeVar("T")

MISHAPS: Final = (
    Unavailable,
    Conflict,
    NotOwner,
    Forgotten,
    NotFound,
    AlreadyExists,
    OutcomeUnknown,
    PagesNotHere,
    ReadOnly,
)
"""What may be answered to an actor that goes by what it knows."""

GRANTED: Final = "is the newest fold of volume"
"""Why a plan is refused that was right when it was made: a fold which it rejects was granted since."""


class Actor:
    """See above. `step` is what it does."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.name = f"{type(self).__name__.lower()}{number}"
        self.random = world.random(self.name)
        self._lines = Lines(world.at)

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

    async def routed(self, work: Callable[[Remote], Awaitable[T]], heard: Callable[[T], None] = lambda _: None) -> T:
        """From whoever may do it, as a client finds it that knows one process."""
        up = self.up()
        if not up:
            raise Unavailable("no process is up")
        return await self._lines.ask(up[0], work, heard)

    def excuse(self, error: Exception) -> None:
        """Nothing, if it may be told to anybody in this run; else the run is over."""
        switching = isinstance(error, Unsupported) and self.world.creates.switching
        if isinstance(error, MISHAPS) or switching:
            self.note(f"is told {type(error).__name__}: {error}")
        else:
            self.world.fail(error)

    async def _once(self) -> None:
        try:
            await self.step()
        except Refused as error:
            if GRANTED not in str(error):
                raise Violation(f"a garbage plan was wrong: {error}") from error
            self.note(f"is told Refused: {error}")
        except (*MISHAPS, Unsupported) as error:
            self.excuse(error)
