"""Cluster: pieces of a store's upkeep spread over Spark's executors, from a driver that stays asynchronous.

    with started("budwood scrub", "local[*]", url) as cluster:
        answers = await cluster.scrub(store_id, parts)

A piece is a value, and so is its answer; an error of ours is an answer too, and the driver's to judge. Executors open
the store by its URL, with credentials of their own.

Memory: the driver holds a wave of pieces and their answers: so many for each core that few wait for the last.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from ...server.in_thread import in_thread
from ...server.upkeep.plan_parts import ENTRIES
from ...server.upkeep.scrub_part import Outcome, Part
from ...volume.errors import BadInput, BudwoodError
from ...volume.garbage import GarbagePlan
from ..export.job import cluster_of, run_job
from ..export.quiet_session import start_quietly
from ..session import end
from . import tasks

if TYPE_CHECKING:
    from pyspark import SparkContext

P = TypeVar("P")
A = TypeVar("A")

_A_CORE: Final = 16
"""Pieces of a wave."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Each call does its pieces anywhere, in any order, some twice if Spark likes, and answers in their order. Raises
    Unavailable where Spark itself failed."""

    context: SparkContext
    url: str
    """Of the store."""
    entries: int = ENTRIES
    """Of a garbage plan, that one task verifies."""

    @property
    def wave(self) -> int:
        """So many pieces are worth a job."""
        return self.context.defaultParallelism * _A_CORE

    async def scrub(self, store_id: str, parts: Sequence[Part]) -> list[Outcome | BudwoodError]:
        return await self._each("scrub", parts, partial(tasks.scrub, self.url, store_id))

    async def plan(self, logs: Sequence[str]) -> list[GarbagePlan | BudwoodError | None]:
        return await self._each("plan", logs, partial(tasks.plan, self.url))

    async def verify(self, parts: Sequence[GarbagePlan]) -> list[BudwoodError | None]:
        return await self._each("verify", parts, partial(tasks.verify, self.url))

    async def turn(self, logs: Sequence[str]) -> list[tasks.Turned | BudwoodError]:
        return await self._each("collect", logs, partial(tasks.turn, self.url, self.entries))

    async def _each(self, name: str, pieces: Sequence[P], work: Callable[[P], A]) -> list[A | BudwoodError]:
        job = partial(run_job, self.context, f"budwood {name}", pieces, [1] * len(pieces), work)
        # Whoever is interrupted does not wait for it: its session ends, and the job with that.
        return await in_thread(job, abandon_on_cancel=True)


def check_reachable(url: str) -> None:
    """Raises BadInput for a store that no executor can open."""
    if url.partition(":")[0] == "memory":
        raise BadInput("a memory:// store is of one process alone, and Spark's executors are others: leave out --spark")


@contextmanager
def started(name: str, master: str, url: str) -> Generator[Cluster]:
    """With a session of its own, which ends with it. Raises UsageError where Spark or a Java is missing, BadInput for a
    store that executors can't open, Unavailable where Spark doesn't start."""
    check_reachable(url)
    session = start_quietly(name, master=master)
    try:
        yield Cluster(cluster_of(session), url)
    finally:
        end(session)
