"""Worker: one thread, for what blocks on behalf of an event loop (aio.py).

Its work is done in the order in which it was given. Whoever waits for a piece of it may be cancelled: work that had
not begun isn't done then, and what is under way can see that it isn't wanted any more (`is_unwanted`), and is waited
for by nobody; what it still comes to is undone by `unwanted`. The next piece begins when it has ended, so that a
connection never has two at a time.

The loop waits for no lock that is held for longer than an assignment.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any, Final, Generic, TypeVar

import anyio
from anyio.lowlevel import current_token

from ..volume.thread_limit import start_thread

T = TypeVar("T")


def waker(event: anyio.Event) -> Callable[[], None]:
    """Sets the event of this task's loop, from any thread, and waits for nothing: a loop may be waiting for the thread.
    One that has ended has nobody who waits."""
    loop: Any = current_token().native_token
    soon = loop.call_soon_threadsafe if hasattr(loop, "call_soon_threadsafe") else loop.run_sync_soon

    def wake() -> None:
        with suppress(RuntimeError):
            soon(event.set)

    return wake


class _Job(Generic[T]):
    result: T

    def __init__(self, work: Callable[[], T], unwanted: Callable[[T], object] | None, wake: Callable[[], None]) -> None:
        self.work = work
        self.unwanted = unwanted
        self.wake = wake
        self.error: BaseException | None = None
        self.abandoned = False

    def do(self) -> None:
        try:
            self.result = self.work()
        except BaseException as error:
            self.error = error

    def drop(self) -> None:
        if self.error is None and self.unwanted is not None:
            self.unwanted(self.result)


class Worker:
    def __init__(self, name: str) -> None:
        self._jobs: Final = SimpleQueue[_Job[Any] | None]()
        self._lock: Final = Lock()
        self._current: _Job[Any] | None = None
        start_thread(Thread(target=self._run, name=name, daemon=True))

    @property
    def is_unwanted(self) -> bool:
        """Whether the work that asks this, in the thread, was cancelled."""
        current = self._current
        return current is not None and current.abandoned

    async def do(self, work: Callable[[], T], *, unwanted: Callable[[T], object] | None = None) -> T:
        """What `work` comes to, or raises. Where its caller is cancelled, see above."""
        ended = anyio.Event()
        job = _Job(work, unwanted, waker(ended))
        self._jobs.put(job)
        try:
            await ended.wait()
        except BaseException:
            self._abandon(job)
            raise
        if job.error is not None:
            raise job.error
        return job.result

    def begin(self, work: Callable[[], object]) -> None:
        """Do it after all else, and wait for nothing: what a garbage collector may call."""
        self._jobs.put(_Job(work, None, lambda: None))

    def stop(self) -> None:
        """The thread ends after what it was given before."""
        self._jobs.put(None)

    def _abandon(self, job: _Job[Any]) -> None:
        with self._lock:
            job.abandoned = True

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            with self._lock:
                if job.abandoned:
                    continue
                self._current = job
            job.do()
            with self._lock:
                self._current = None
                abandoned = job.abandoned
            if abandoned:
                job.drop()
            else:
                job.wake()
            del job
