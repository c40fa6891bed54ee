"""Readers: the tasks that take the kernel's requests, and how they wait for them.

One task takes requests and answers them, without a switch between tasks for any that needs none: that is what makes a
request cheap. A handler that comes to wait (for a thread, the network, a lock) keeps that task, so another one begins
to take requests in its place (`Readers`), and ends when it is not needed any more. So the first step of each handler is
taken by hand (`driven`): if that was all of it, trio never hears of it.

A program's requests follow one another closely, and trio's way of waiting costs as much as answering one. So a reader
that has just answered lingers for the next one, which costs nothing but that moment, before it gives the turn away; at
the latest after a millisecond the other tasks have theirs (`wait_readable`).

A request that was seen may be gone when it is read: its program was killed, or what a signal was to interrupt has been
answered. Of a device that blocks, the read would then keep the whole process until the next request comes, whatever
else is ready meanwhile. So the device doesn't block, and reading nothing is no error. But pyfuse3 takes it for one, and
loses the loop's buffer (of a megabyte, two pages of which were used). A buffer that was never used has no memory yet:
so for some minutes after that has happened each request gets a loop of its own, which costs a tenth of the speed.
"""

from __future__ import annotations

import errno
import math
import os
import select
import time
import types
from collections.abc import Callable, Coroutine, Generator
from types import SimpleNamespace
from typing import Any, Final, TypeVar, cast

import pyfuse3
import trio

from .quick_lock import QuickLock

MOST_READERS: Final = 256
"""Requests that wait at once."""
_LINGER_SECONDS: Final = 0.00006
_TURN_SECONDS: Final = 0.001
_HIGHEST_FD: Final = 1023
"""For select, which alone waits for less than a millisecond."""

_CAREFUL_SECONDS: Final = 600.0
_NO_TASKS: Final = -(1 << 31)
"""pyfuse3 begins further loops while there are fewer than so many."""

T = TypeVar("T")


class _NextError(Exception):
    """Ends a loop of pyfuse3's as if the device were about to be closed: another one takes the next request."""


class Readers:
    """The tasks that take requests: at any time one of them isn't waiting."""

    def __init__(self) -> None:
        self._nursery: trio.Nursery | None = None
        self._tasks = 1
        self.waiting = 0
        """Requests that have to wait."""
        self._fresh: set[trio.lowlevel.Task] = set()
        """Whose loop has not read yet."""
        self._next: trio.lowlevel.Task | None = None
        """Whose loop has just made place for another."""
        self._careful_until = 0.0
        self._last_turn = 0.0
        """When the other tasks had theirs."""
        self.taken_back = 0
        """Requests that were gone when they were read."""

    async def run(self, nursery: trio.Nursery, device: int) -> None:
        """Serve until the mount ends. This task is the first reader, and stays."""
        os.set_blocking(device, False)
        self._nursery, self._tasks = nursery, 1
        # A reader ends where more than `min_tasks` others are idle, and this one never shall.
        await self._take(nursery, MOST_READERS)
        self._nursery = None

    async def take_one(self, nursery: trio.Nursery) -> None:
        """Before `run`: a single request, which must be there."""
        # As its own asyncio mode does: pyfuse3 waits by whatever stands there.
        pyfuse3.trio = _TRIO  # type: ignore[attr-defined]
        self._careful_until = math.inf
        self._fresh.add(trio.lowlevel.current_task())
        await pyfuse3._session_loop(nursery, MOST_READERS, _NO_TASKS)  # type: ignore[attr-defined]
        self._next, self._careful_until = None, 0.0

    def __enter__(self) -> None:
        self.waiting += 1
        if self._nursery is not None and self.waiting >= self._tasks and self._tasks < MOST_READERS:
            self._tasks += 1
            self._nursery.start_soon(self._read, self._nursery)

    def __exit__(self, *error: object) -> None:
        self.waiting -= 1

    async def _read(self, nursery: trio.Nursery) -> None:
        try:
            # It ends as soon as another reader is idle.
            await self._take(nursery, 0)
        finally:
            self._tasks -= 1

    async def _take(self, nursery: trio.Nursery, min_tasks: int) -> None:
        """By the loop that pyfuse3's main() runs."""
        task = trio.lowlevel.current_task()
        while True:
            self._fresh.add(task)
            try:
                await pyfuse3._session_loop(nursery, min_tasks, _NO_TASKS)  # type: ignore[attr-defined]
            except OSError as error:
                if error.errno != errno.EAGAIN:
                    raise
                self.taken_back += 1
                self._careful_until = time.monotonic() + _CAREFUL_SECONDS
                continue
            finally:
                self._fresh.discard(task)
            if self._next is not task:
                return
            self._next = None

    async def wait_readable(self, fd: int) -> None:
        now = time.monotonic()
        if now < self._careful_until:
            self._check_it_is_fresh()
        lingers = now - self._last_turn < _TURN_SECONDS and fd <= _HIGHEST_FD
        if lingers and _is_readable(fd, 0 if self.waiting else _LINGER_SECONDS):
            return
        while True:
            await trio.lowlevel.wait_readable(fd)
            self._last_turn = time.monotonic()
            # Other tasks had their turn since, and may have answered what there was to read of.
            if fd > _HIGHEST_FD or _is_readable(fd, 0):
                return

    def _check_it_is_fresh(self) -> None:
        task = trio.lowlevel.current_task()
        if task not in self._fresh:
            self._next = task
            raise _NextError
        self._fresh.discard(task)


def _is_readable(fd: int, seconds: float) -> bool:
    ready, _, _ = select.select((fd,), (), (), seconds)
    return bool(ready)


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


_TRIO: Final = SimpleNamespace(
    **{name: getattr(trio, name) for name in ("from_thread", "open_nursery")},
    ClosedResourceError=(trio.ClosedResourceError, _NextError),
    Lock=QuickLock,
    lowlevel=SimpleNamespace(
        current_task=trio.lowlevel.current_task,
        current_trio_token=trio.lowlevel.current_trio_token,
        notify_closing=trio.lowlevel.notify_closing,
        wait_readable=readers.wait_readable,
    ),
)
