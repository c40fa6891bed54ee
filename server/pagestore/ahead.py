"""Work ahead of a slow consumer: results come in the order of the items, while later items are already being worked on.

Bounded twice: at most `limit` items are begun and not yet consumed, and together they weigh no more than `window`
(one item is always let through, however heavy). A failure is raised where its result would have come, after
everything before it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from typing import Generic, TypeVar

import anyio
from anyio.abc import TaskGroup

__all__ = ["ahead"]

T = TypeVar("T")
R = TypeVar("R")


class _Slot(Generic[R]):
    """One item's place in the order; `item` is None for the end, or for the failure to get another item."""

    __slots__ = ("done", "failure", "last", "result", "weight")

    def __init__(self, weight: int, *, last: bool = False) -> None:
        self.weight = weight
        self.last = last
        self.done = anyio.Event()
        self.result: R | None = None
        self.failure: Exception | None = None


class _Ahead(Generic[T, R]):
    def __init__(self, work: Callable[[T], Awaitable[R]], weigh: Callable[[T], int], limit: int, window: int) -> None:
        self.work = work
        self.weigh = weigh
        self.limit = limit
        self.window = window
        self.slots: deque[_Slot[R]] = deque()
        self.weight = 0
        self.changed = anyio.Event()

    def signal(self) -> None:
        self.changed.set()
        self.changed = anyio.Event()

    async def pump(self, items: AsyncIterable[T], tasks: TaskGroup) -> None:
        end = _Slot[R](0, last=True)
        try:
            async for item in items:
                weight = self.weigh(item)
                while self.slots and (len(self.slots) >= self.limit or self.weight + weight > self.window):
                    await self.changed.wait()
                slot = _Slot[R](weight)
                self.weight += weight
                self.slots.append(slot)
                self.signal()
                tasks.start_soon(self.run, slot, item)
        except Exception as error:
            end.failure = error
        end.done.set()
        self.slots.append(end)
        self.signal()

    async def run(self, slot: _Slot[R], item: T) -> None:
        try:
            slot.result = await self.work(item)
        except Exception as error:
            slot.failure = error
        slot.done.set()

    async def results(self) -> AsyncIterator[R]:
        while True:
            while not self.slots:
                await self.changed.wait()
            slot = self.slots[0]
            await slot.done.wait()
            if slot.failure is not None:
                raise slot.failure
            if slot.last:
                return
            assert slot.result is not None
            yield slot.result
            # The consumer is done with it only now: until then its bytes count.
            slot.result = None
            self.weight -= slot.weight
            self.slots.popleft()
            self.signal()


def ahead(
    tasks: TaskGroup,
    items: AsyncIterable[T],
    work: Callable[[T], Awaitable[R]],
    *,
    limit: int,
    window: int = 1,
    weigh: Callable[[T], int] = lambda _: 0,
) -> AsyncIterator[R]:
    """The results of `work` for each item, in order. The tasks live in the caller's group, whose cancellation ends
    them."""
    worker = _Ahead(work, weigh, limit, window)
    tasks.start_soon(worker.pump, items, tasks)
    return worker.results()
