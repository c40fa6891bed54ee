"""Work ahead of a slow consumer: results come in the order of the items, while later items are already being worked on.

Bounded twice: at most `limit` items are begun and not yet consumed, and together they weigh no more than `window`
(one item is always let through, however heavy). A failure is raised where its result would have come, after
everything before it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable
from contextlib import aclosing, asynccontextmanager
from typing import Generic, Self, TypeVar

import anyio
from anyio.abc import TaskGroup

T = TypeVar("T")
R = TypeVar("R")


class _Slot(Generic[R]):
    """One item's place in the order; the last one stands for the end, or for the failure to get another item."""

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
        self.taken = False
        """Whether the first slot's result is with the consumer."""

    def signal(self) -> None:
        self.changed.set()
        self.changed = anyio.Event()

    async def pump(self, items: AsyncGenerator[T, None], tasks: TaskGroup) -> None:
        end = _Slot[R](0, last=True)
        try:
            async with aclosing(items):
                async for item in items:
                    slot = await self.place(self.weigh(item))
                    tasks.start_soon(self.run, slot, item)
        except Exception as error:
            end.failure = error
        end.done.set()
        self.slots.append(end)
        self.signal()

    async def place(self, weight: int) -> _Slot[R]:
        while self.slots and (len(self.slots) >= self.limit or self.weight + weight > self.window):
            await self.changed.wait()
        slot = _Slot[R](weight)
        self.weight += weight
        self.slots.append(slot)
        self.signal()
        return slot

    async def run(self, slot: _Slot[R], item: T) -> None:
        try:
            slot.result = await self.work(item)
        except Exception as error:
            slot.failure = error
        slot.done.set()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> R:
        if self.taken:
            # The consumer is done with it only now: until then its bytes count.
            self.weight -= self.slots.popleft().weight
            self.taken = False
            self.signal()
        while not self.slots:
            await self.changed.wait()
        slot = self.slots[0]
        await slot.done.wait()
        if slot.failure is not None:
            raise slot.failure
        if slot.last:
            raise StopAsyncIteration
        result, slot.result, self.taken = slot.result, None, True
        assert result is not None
        return result


async def each(items: Iterable[T]) -> AsyncGenerator[T, None]:
    """Items that are at hand."""
    for item in items:
        yield item


@asynccontextmanager
async def concurrent_map(
    items: AsyncGenerator[T, None],
    work: Callable[[T], Awaitable[R]],
    *,
    limit: int,
    window: int = 1,
    weigh: Callable[[T], int] = lambda _: 0,
) -> AsyncGenerator[AsyncIterator[R], None]:
    """The results of `work` for each item, in order. All work ends with the context; an error that leaves the context
    is raised as it is, not in a group."""
    worker = _Ahead(work, weigh, limit, window)
    failure: BaseException | None = None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.pump, items, tasks)
        try:
            yield worker
        except anyio.get_cancelled_exc_class():
            raise
        except BaseException as error:
            # Kept from the group, which would wrap it in an ExceptionGroup.
            failure = error
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure
