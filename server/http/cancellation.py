"""Connection: work that ends when its caller goes away, or when the node stops."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

from .asgi import Receive

T = TypeVar("T")


async def while_connected(
    receive: Receive, work: Callable[[], Awaitable[T]], *, stopping: anyio.Event | None = None
) -> T | None:
    """What `work` returns or raises; None if the caller went away first, or `stopping` was set. The body must have
    been read."""
    result: list[T] = []
    failure: Exception | None = None

    async with anyio.create_task_group() as tasks:

        async def watch() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            tasks.cancel_scope.cancel()

        async def watch_stopping(event: anyio.Event) -> None:
            await event.wait()
            tasks.cancel_scope.cancel()

        tasks.start_soon(watch)
        if stopping is not None:
            tasks.start_soon(watch_stopping, stopping)
        try:
            result.append(await work())
        except Exception as error:
            # Kept from the group, which would wrap it.
            failure = error
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure
    return result[0] if result else None
