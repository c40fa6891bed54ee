"""Tasks: what an executor does of a store's upkeep, one piece at a time, by the functions that do it everywhere else.

Spark may run a piece twice, at once or one after the other, and may lose one halfway. Reading does no harm. A log's
turn is one of any number of collectors' (server/upkeep/collector.py): of two plans one is acknowledged, what was cut
off is found by whoever comes next, and a plan that is acknowledged waits its interval, whoever acknowledged it.

Each answer is a value, and small: of a turn what it came to, of a plan its ranges and names, not its keys.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeVar

import anyio

from ...remote.keyring import unlocked
from ...remote.owner_liveness import liveness_probe
from ...server.node import Node
from ...server.store.open_store import open_store
from ...server.store.protocol import Store
from ...server.upkeep.collector import Collector, Verify
from ...server.upkeep.plan_parts import parts_of
from ...server.upkeep.rounds import Rounds
from ...server.upkeep.scrub_part import Outcome, Part
from ...server.upkeep.spread_scrub import do_part
from ...server.upkeep.upkeep import HASTY, Extent, Turn
from ...volume.errors import BudwoodError, Conflict, NotOwner
from ...volume.garbage import GarbagePlan

A = TypeVar("A")


@dataclass(slots=True)
class Turned:
    """What became of a log's turn; a server.upkeep.rounds.Watcher while it lasts."""

    turns: list[tuple[str, Turn]] = field(default_factory=list[tuple[str, Turn]])
    lefts: list[tuple[str, NotOwner | Conflict]] = field(default_factory=list[tuple[str, NotOwner | Conflict]])
    failures: list[tuple[str, BudwoodError]] = field(default_factory=list[tuple[str, BudwoodError]])
    is_large: bool = False
    """Its plan is worth verifying in parts, so nothing was acknowledged here."""

    def turned(self, log: str, turn: Turn) -> None:
        self.turns.append((log, turn))

    def left(self, log: str, why: NotOwner | Conflict) -> None:
        self.lefts.append((log, why))

    def failed(self, log: str, error: BudwoodError) -> None:
        self.failures.append((log, error))

    def deleted(self, log: str, objects: int) -> None:
        pass


class LargePlan(Exception):
    """It is for the driver to have verified."""


def scrub(url: str, store_id: str, part: Part) -> Outcome:
    """Raises what `do_part` does."""

    async def work(store: Store) -> Outcome:
        return await do_part(store, store_id, part, unlock=unlocked)

    return _with_store(url, work)


def plan(url: str, log: str) -> GarbagePlan | None:
    """The plan that stands in that log, or would be made now; nothing is written. Raises Corrupt, Unavailable."""

    async def work(store: Store) -> GarbagePlan | None:
        async with node_of(store) as node:
            return await node.collector.planned(log)

    return _with_store(url, work)


def verify(url: str, part: GarbagePlan) -> None:
    """Raises Refused, and what reading met."""

    async def work(store: Store) -> None:
        async with node_of(store) as node:
            await node.collector.check(part)

    _with_store(url, work)


def turn(url: str, entries: int, log: str) -> Turned:
    """A log's whole turn, unless a plan is made of more parts than one, so many entries each. Raises NotFound,
    Unavailable, Unauthorized."""

    async def unless_large(collector: Collector, plan: GarbagePlan) -> None:
        if len(parts_of(plan, entries=entries)) > 1:
            raise LargePlan(log)
        await collector.check(plan)

    async def work(store: Store) -> Turned:
        async with node_of(store, unless_large) as node:
            turned = Turned()
            try:
                await Rounds(node.logs, node.upkeep, turned, Extent.NONE).once([log])
            except LargePlan:
                turned.is_large = True
            return turned

    return _with_store(url, work)


@asynccontextmanager
async def node_of(store: Store, verify: Verify | None = None) -> AsyncGenerator[Node]:
    """One that owns no log. Raises NotFound where there is no store."""
    async with Node.open(store, probe_owner=liveness_probe(), create=False, pace=HASTY, verify=verify) as node:
        yield node


def _with_store(url: str, work: Callable[[Store], Awaitable[A]]) -> A:
    async def main() -> A:
        store = await open_store(url, create=False)
        try:
            return await work(store)
        finally:
            await store.aclose()

    return anyio.run(main, backend="asyncio")
