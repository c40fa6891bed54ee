"""Readers: the tasks that take the kernel's requests, and how they wait for them.

One task takes requests and answers them, without a switch between tasks for any that needs none: that is what makes a
request cheap. A handler that comes to wait (for a thread, the network, a lock) keeps that task, so another one begins
to take requests in its place (`Readers`), and ends when it is not needed any more. So the first step of each handler is
taken by hand (`driven`): if that was all of it, trio never hears of it.

A program's requests follow one another closely, and trio's way of waiting costs as much as answering one. So a reader
that has just answered lingers for the next one, which costs nothing but that moment, before it gives the turn away; at
the latest after a millisecond the other tasks have theirs (`_wait_readable`).
"""

from __future__ import annotations

import select
import time
import types
from collections.abc import Callable, Coroutine, Generator
from types import SimpleNamespace
from typing import Any, Final, TypeVar, cast

import pyfuse3
import trio

from .gate import Gate

__all__ = ["Readers", "driven", "readers"]

MOST_READERS: Final = 256
"""Requests that wait at once."""
_LINGER_SECONDS: Final = 0.00006
_TURN_SECONDS: Final = 0.001
_HIGHEST_FD: Final = 1023
"""For select, which alone waits for less than a millisecond."""

T = TypeVar("T")


class Readers:
    """The tasks that take requests: at any time one of them isn't waiting."""

    def __init__(self) -> None:
        self._nursery: trio.Nursery | None = None
        self._tasks = 1
        self._waiting = 0

    async def run(self, nursery: trio.Nursery) -> None:
        """Serve until the mount ends. This task is the first reader, and stays."""
        self._nursery, self._tasks = nursery, 1
        # As its own asyncio mode does: pyfuse3 waits by whatever stands there.
        pyfuse3.trio = _TRIO  # type: ignore[attr-defined]
        # A reader ends where more than `min_tasks` others are idle, and this one never shall.
        await pyfuse3.main(min_tasks=MOST_READERS, max_tasks=1)
        self._nursery = None

    @property
    def waiting(self) -> int:
        """Requests that have to wait."""
        return self._waiting

    def __enter__(self) -> None:
        self._waiting += 1
        if self._nursery is not None and self._waiting >= self._tasks and self._tasks < MOST_READERS:
            self._tasks += 1
            self._nursery.start_soon(self._read, self._nursery)

    def __exit__(self, *error: object) -> None:
        self._waiting -= 1

    async def _read(self, nursery: trio.Nursery) -> None:
        try:
            # The loop that main() runs, once more: it ends as soon as another reader is idle.
            await pyfuse3._session_loop(nursery, 0, 1)  # type: ignore[attr-defined]
        finally:
            self._tasks -= 1


readers: Final = Readers()
"""A process has one mount."""


@types.coroutine
def driven(work: Coroutine[Any, Any, T]) -> Generator[Any, Any, T]:
    """Await `work`, as one that waits only from its first stop on."""
    try:
        stop = work.send(None)
    except StopIteration as done:
        return cast("T", done.value)
    with readers:
        while True:
            try:
                answer = yield stop
            except GeneratorExit:
                work.close()
                raise
            except BaseException as error:
                step: Callable[[Any], Any] = work.throw
                argument: Any = error
            else:
                step, argument = work.send, answer
            try:
                stop = step(argument)
            except StopIteration as done:
                return cast("T", done.value)


class _Turn:
    """When the other tasks had theirs."""

    last = 0.0


async def _wait_readable(fd: int) -> None:
    now = time.monotonic()
    if now - _Turn.last < _TURN_SECONDS and fd <= _HIGHEST_FD:
        ready, _, _ = select.select((fd,), (), (), 0 if readers.waiting else _LINGER_SECONDS)
        if ready:
            return
    await trio.lowlevel.wait_readable(fd)
    _Turn.last = time.monotonic()


_TRIO: Final = SimpleNamespace(
    **{name: getattr(trio, name) for name in ("ClosedResourceError", "from_thread", "open_nursery")},
    Lock=Gate,
    lowlevel=SimpleNamespace(
        current_task=trio.lowlevel.current_task,
        current_trio_token=trio.lowlevel.current_trio_token,
        notify_closing=trio.lowlevel.notify_closing,
        wait_readable=_wait_readable,
    ),
)
