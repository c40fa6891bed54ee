"""Garbage collection spread over a cluster, by log; and of a log with a large plan, by parts of that.

    names of logs, a wave at a time                                               driver
    a log's turn: plan, verify, write, acknowledge; or carry out what is due      the executor that has the log
    where its plan is large: that turn, but for the verifying                     driver
    … and the verifying, in parts                                                 executors

A turn's order is the collector's, whoever has it (server/upkeep/collector.py): one plan stands in a log, it is verified
before it is acknowledged, and the interval goes by before anything is deleted. A plan counts as verified when every
part has been answered for, and by none with a word against it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass

from ...server.log.listing import Over, check_log, next_log
from ...server.store.protocol import Store
from ...server.store.retrying import PATIENT, Patience
from ...server.upkeep.collector import Collector, Verify
from ...server.upkeep.plan_parts import parts_of
from ...server.upkeep.rounds import Rounds, Watcher
from ...server.upkeep.upkeep import Extent
from ...volume.errors import BudwoodError
from ...volume.garbage import GarbagePlan
from .cluster import Cluster
from .tasks import Turned, node_of


@dataclass(frozen=True, slots=True)
class SpreadGarbage:
    cluster: Cluster
    store: Store
    patience: Patience = PATIENT

    async def collect(self, watcher: Watcher, names: list[str]) -> None:
        """One step for each log, or for those. Raises NotFound, Unavailable, Unauthorized."""
        async with aclosing(self._waves(names, Over.CLEARED_PASSED)) as waves:
            async for wave in waves:
                large = list[str]()
                for log, turned in zip(wave, await self.cluster.turn(wave), strict=True):
                    if isinstance(turned, BudwoodError):
                        watcher.failed(log, turned)
                    elif turned.is_large:
                        large.append(log)
                    else:
                        _tell(turned, watcher)
                if large:
                    async with node_of(self.store, spread_verifier(self.cluster)) as node:
                        await Rounds(node.logs, node.upkeep, watcher, Extent.NONE).once(large)

    async def plans(self, names: list[str]) -> AsyncGenerator[GarbagePlan | None]:
        """What stands in each log, or would be planned for it, in their order; nothing is written. Raises NotFound,
        Corrupt, Unavailable."""
        async with aclosing(self._waves(names, Over.PASSED)) as waves:
            async for wave in waves:
                for plan in await self.cluster.plan(wave):
                    if isinstance(plan, BudwoodError):
                        raise plan
                    yield plan

    async def _waves(self, names: list[str], over: Over) -> AsyncGenerator[list[str]]:
        for name in names:
            await check_log(self.store, name, self.patience)
        wave = list[str]()
        async for name in self._names(names, over):
            wave.append(name)
            if len(wave) >= self.cluster.wave:
                yield wave
                wave = []
        if wave:
            yield wave

    async def _names(self, names: list[str], over: Over) -> AsyncIterator[str]:
        for name in names:
            yield name
        name = ""
        while not names and (name := await next_log(self.store, name, self.patience, over=over)):
            yield name


def spread_verifier(cluster: Cluster) -> Verify:
    """A plan's verifier whose parts are done by executors."""

    async def verify(_collector: Collector, plan: GarbagePlan) -> None:
        for answer in await cluster.verify(parts_of(plan, entries=cluster.entries)):
            if answer is not None:
                raise answer

    return verify


def _tell(turned: Turned, watcher: Watcher) -> None:
    for log, turn in turned.turns:
        watcher.turned(log, turn)
    for log, why in turned.lefts:
        watcher.left(log, why)
    for log, error in turned.failures:
        watcher.failed(log, error)
