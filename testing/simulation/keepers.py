"""Keepers: whoever lets volumes grow old, by hand, as a node's upkeep does by itself."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

import trio

from ...remote.moving import move_volume
from ...server.node import Node
from ...server.store.root import GC_INTERVAL_SECONDS
from ...server.upkeep.collector import Stage
from ...server.upkeep.upkeep import Extent
from ...volume.calls import ADVANCE, RETAIN, RetainRequest, SinceRequest
from ...volume.errors import Busy
from ...volume.protocols import Remote
from ...volume.retention_policy import RetentionPolicy
from .actor import Actor
from .model import Volume
from .record_store import tidied

HOUR_MS: Final = 3_600_000
PAST_INTERVAL: Final = GC_INTERVAL_SECONDS + 61.0
"""Seconds: what was planned is due, whatever the clocks."""


_RELOCATES: Final = 0.5


class Keeper(Actor):
    """Lets volumes grow old: moves `since`, folds, collects, enforces policies, moves volumes between logs."""

    def pause_seconds(self) -> float:
        return self.random.choice((0.1, 10.0, 400.0, 2000.0)) * self.random.random()

    async def step(self) -> None:
        volume = self.volume()
        if self.world.creates.two_phase and self.random.random() < 0.4:
            await self._tidy()
            return
        match self.random.choice(("age", "age", "age", "fold", "collect", "tend", "retain", "move", "move")):
            case "age":
                await self._age(volume)
            case "fold":
                await self._fold(volume)
            case "collect":
                await self._collect(self.random.choice(self.world.logs()))
            case "tend":
                await self._tend(self.random.choice(self.world.logs()))
            case "retain":
                await self._retain(volume)
            case _:
                await self._move(volume)

    async def _age(self, volume: Volume) -> None:
        """All of it, one after another, as long as it is let."""
        await self._advance(volume)
        await self._fold(volume)
        logs = self.world.logs()
        log = volume.id if volume.id in logs and self.random.random() < 0.7 else self.random.choice(logs)
        if await self._collect(log) is Stage.WAITING:
            await trio.sleep(PAST_INTERVAL)
            await self._collect(log)

    async def _advance(self, volume: Volume) -> None:
        since = max(volume.head - self.random.choice((0, 0, 1, 2, 5)), volume.start + 1)
        if since > volume.head:
            return
        volume.since = max(volume.since, since)

        async def ask(node: Node) -> None:
            await node.ask(ADVANCE, SinceRequest(volume.vid.raw, since=since))

        self.note(f"moves since of volume {volume.number} to {since}")
        await self.somewhere(ask)

    async def _fold(self, volume: Volume) -> None:
        relocate = self.random.random() < _RELOCATES
        volume.folds += 1

        async def fold(node: Node) -> bool:
            return await node.folder.fold(volume.vid, relocate=relocate) is not None

        if await self.somewhere(fold):
            self.note(f"has folded volume {volume.number}")
            self.world.trace.count("folds")

    async def _collect(self, log: str) -> Stage:
        async def collect(node: Node) -> Stage:
            return (await node.collector.collect(log)).stage

        stage = await self.somewhere(collect)
        self.note(f"collects {log}: {stage.value}")
        self.world.trace.count(f"collections {stage.value}")
        return stage

    async def _tend(self, log: str) -> None:
        extent = self.random.choice((Extent.WORTH_IT, Extent.FREED, Extent.ALL))

        async def tend(node: Node) -> None:
            for _, error in (await node.upkeep.tend(log, extent)).failures:
                raise error

        for volume in self.world.volumes:
            volume.folds += 1
        await self.somewhere(tend)
        self.world.trace.count("upkeep turns")

    async def _retain(self, volume: Volume) -> None:
        hours = self.random.choice((1, 6, 30))
        policy = RetentionPolicy(all_ms=hours * HOUR_MS, hourly_ms=self.random.choice((0, 48 * HOUR_MS)))
        volume.all_ms = min(volume.all_ms or policy.all_ms, policy.all_ms)

        async def ask(node: Node) -> None:
            await node.ask(RETAIN, RetainRequest(volume.vid.raw, policy=policy))
            await node.retainer.enforce(volume.vid)

        self.note(f"keeps {hours} h of volume {volume.number}")
        await self.somewhere(ask)
        self.world.trace.count("policies")

    async def _move(self, volume: Volume) -> None:
        to = self.random.choice((*self.world.shared, "private"))
        takeover = self.random.random() < 0.3

        async def ask(remote: Remote) -> None:
            # Where its writers are quicker than the node that is to have it, it stays.
            with suppress(Busy):
                await move_volume(remote, volume.vid, to, takeover=takeover)

        self.note(f"moves volume {volume.number} to {to}")
        await self.routed(ask)
        self.world.trace.count("moves")

    async def _tidy(self) -> None:
        gone = await self.somewhere(tidied)
        self.note(f"tidies {gone} up")
        self.world.trace.count("tidied", gone)
