"""Surveys: a node's last survey of its store, made anew when somebody asks and it is old (costs.py).

A survey lists the whole store, so one is made at a time, and an answer doesn't wait for it for long.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import anyio
import msgspec
from anyio.abc import TaskGroup

from ...volume.errors import BudwoodError
from ...volume.store_report import Holding, StoreCosts, WrittenDay
from ..store.protocol import Store
from ..store.retrying import Patience
from .costs import Costs, Usage, Wanted, days_of, survey, total_of

FRESH_MS: Final = 15 * 60_000
ANSWER_SECONDS: Final = 2.0
LARGEST: Final = 50
_NAMES: Final = 4
"""Of one volume."""


class Surveys:
    """Belongs to one event loop."""

    def __init__(self, store: Store, tasks: TaskGroup, patience: Patience, now_ms: Callable[[], int]) -> None:
        self._store = store
        self._tasks = tasks
        self._patience = patience
        self._now_ms = now_ms
        self._last = StoreCosts()
        self._under_way: _Survey | None = None

    async def last(self) -> StoreCosts:
        if self._under_way is None and self._now_ms() - self._last.time >= FRESH_MS:
            self._under_way = _Survey()
            self._tasks.start_soon(self._survey, self._under_way)
        if self._under_way is not None:
            with anyio.move_on_after(ANSWER_SECONDS):
                await self._under_way.ended.wait()
        return msgspec.structs.replace(self._last, under_way=self._under_way is not None)

    def close(self) -> None:
        """The one that is under way is given up."""
        if self._under_way is not None:
            self._under_way.scope.cancel()

    async def _survey(self, made: _Survey) -> None:
        began_ms = self._now_ms()
        try:
            with made.scope:
                costs = await survey(self._store, Wanted(began_ms), patience=self._patience)
                self._last = _told(costs, began_ms)
        except BudwoodError as error:
            # What was known before stays to be looked at, and the next who asks has it tried again.
            self._last = msgspec.structs.replace(self._last, problem=str(error))
        finally:
            self._under_way = None
            made.ended.set()


class _Survey:
    def __init__(self) -> None:
        self.scope = anyio.CancelScope()
        self.ended = anyio.Event()


def _told(costs: Costs, began_ms: int) -> StoreCosts:
    largest = sorted(costs.usages, key=lambda usage: -usage.bytes)[:LARGEST]
    days = [
        WrittenDay(day=day, commits=creates.commits, creates=creates.all, bytes=creates.bytes)
        for day, creates in days_of(costs.usages)
    ]
    return StoreCosts(
        time=began_ms,
        objects=costs.objects,
        total=_holding(total_of(costs.usages)),
        largest=tuple(_holding(usage) for usage in largest),
        days=tuple(days),
        covers_days=costs.covers_days,
        unread=len(costs.unread),
    )


def _holding(usage: Usage) -> Holding:
    return Holding(
        volume=usage.volume,
        log=usage.log,
        names=tuple(usage.names[:_NAMES]),
        pages=usage.pages,
        entries=round(usage.entries),
        records=usage.records,
        waiting=usage.waiting,
        commits_a_day=usage.commits_a_day,
        creates_a_day=usage.creates_a_day,
    )
