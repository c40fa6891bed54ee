"""Loop: this process's one event loop for blocking callers, in a daemon thread made at the first call.

A call costs one hop there and one back. Ctrl-C while waiting cancels the call. At exit what is under way is cancelled
and the thread ends. A child after `os.fork()` has no such thread, and makes its own.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context, copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, TypeVarTuple

from ..volume.errors import Unavailable
from ..volume.thread_limit import start_thread
from ..volume.tracebacks import strip_traceback

if TYPE_CHECKING:
    import asyncio

EXIT_SECONDS: Final = 5.0

T = TypeVar("T")
A = TypeVarTuple("A")


class Job(Generic[T]):
    """Work for the loop: begun there, so that nothing is made that nobody takes, and given up at any moment.

    An exception may come to whoever waits at any instruction (Ctrl-C, the time limit of a task that he runs in). So he
    holds nothing that the loop's thread needs: `threading.Event` and `Future` may keep their lock for ever then.
    """

    def __init__(self, function: Callable[[*A], Coroutine[Any, Any, T]], *args: *A) -> None:
        self._work: Callable[[], Coroutine[Any, Any, T]] = partial(function, *args)
        self._done: Callable[[], None] | None = None
        self._task: asyncio.Task[T] | None = None
        self._abandoned = False
        self._error: BaseException | None = None
        self._running = threading.Lock()
        self._running.acquire()

    def begin(self) -> None:
        """In the loop's thread, as what follows."""
        import asyncio

        try:
            self._task = asyncio.get_running_loop().create_task(self._work())
        except Exception as error:
            # A call of the function with arguments that it doesn't take.
            self._end(error)
            return
        self._task.add_done_callback(lambda task: self._end(None if task.cancelled() else task.exception()))
        if self._abandoned:
            self._task.cancel()

    def _end(self, error: BaseException | None) -> None:
        self._error = error
        self._running.release()
        if self._done is not None:
            self._done()

    def abandon(self) -> None:
        self._abandoned = True
        if self._task is not None:
            self._task.cancel()

    def when_done(self, done: Callable[[], None]) -> None:
        """Before it is begun: `done` is called in the loop's thread."""
        self._done = done

    @property
    def has_ended(self) -> bool:
        return not self._running.locked()

    def wait(self) -> None:
        with self._running:
            pass

    def result(self) -> T:
        """What it came to, once it has ended. Raises what it raised; Unavailable if it was cancelled."""
        self.wait()
        try:
            if self._error is not None:
                raise strip_traceback(self._error) if isinstance(self._error, Exception) else self._error
            if self._task is None or self._task.cancelled():
                raise Unavailable("the process is ending", determinate=False, hopeless=True)
            return self._task.result()
        finally:
            del self  # Which has the error, whose traceback has this frame.


class Begun(Generic[T]):
    """A call under way that nobody waits for."""

    def __init__(self, host: Portal, job: Job[T], done: Callable[[], None]) -> None:
        self._host = host
        self._job = job
        job.when_done(done)
        host.start(job)

    def result(self) -> T:
        """As a job's."""
        return self._job.result()

    def abandon(self) -> None:
        self._host.abandon(self._job)


def _context() -> Context:
    """The caller's, by which a trace goes on; but for the word that everything runs in trio, which anyio has said in a
    task of that."""
    context = copy_context()
    # While another thread imports the module it has no such variable yet, and nobody has said anything by it.
    said = getattr(sys.modules.get("sniffio"), "current_async_library_cvar", None)
    if said is not None:
        context.run(said.set, None)
    return context


class Portal:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        """Raises Unavailable where the process may have no thread, or no file, for it."""
        self.loop: asyncio.AbstractEventLoop
        self._stop: asyncio.Event
        self._starting = threading.Lock()
        self._failed: BaseException | None = None
        self._closings: set[asyncio.Task[None]] = set()
        self._lock = threading.RLock()  # The garbage collector may close a remote while its holder starts a job.
        self._ending = False
        self._thread = threading.Thread(target=self._run, name="budwood-portal", daemon=True)
        try:
            self._starting.acquire()
            start_thread(self._thread)
            self._starting.acquire()
            if self._failed is not None:
                raise self._failed
        except (RuntimeError, OSError) as error:
            why = (error.strerror if isinstance(error, OSError) else None) or error
            raise Unavailable(f"this process can't begin to speak with a remote: {why}") from error

    def _run(self) -> None:
        import asyncio

        async def main() -> None:
            self.loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
            # In one of its threads the name of a node is looked up.
            self.loop.set_default_executor(pool)
            self._starting.release()
            await self._stop.wait()
            await _cancel_tasks()

        try:
            _check_room()
            from ..volume.thread_pool import ThreadPool

            pool = ThreadPool(thread_name_prefix="budwood-lookup")
            asyncio.run(main())
        except BaseException as error:
            if hasattr(self, "loop"):
                raise
            self._failed = error
            self._starting.release()

    def start(self, job: Job[Any]) -> None:
        """Begin a job in the loop. Raises Unavailable if the loop is ending: it would never take the first step."""
        with self._lock:
            if self._ending:
                raise Unavailable("the process is ending", hopeless=True)
            self.loop.call_soon_threadsafe(job.begin, context=_context())

    def call(self, function: Callable[[*A], Coroutine[Any, Any, T]], *args: *A) -> T:
        """Do `function(*args)` in the loop and wait for it."""
        self.refuse_own_thread()
        job = Job(function, *args)
        try:
            self.start(job)
            return job.result()
        except BaseException:
            # Ctrl-C comes to whoever waits, not to the work.
            if not job.has_ended:
                self.abandon(job)
            raise
        finally:
            del job

    @property
    def is_here(self) -> bool:
        """Whether this is its own thread, where nothing that it does may be waited for."""
        return threading.current_thread() is self._thread

    def give_back(self, function: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """As `call`, for what closes something. In its own thread, where the garbage collector may come upon a
        connection that nobody closed, that is begun and not waited for; what fails there asyncio logs.
        """
        if not self.is_here:
            self.call(function)
            return
        task = self.loop.create_task(function())
        self._closings.add(task)
        task.add_done_callback(self._closings.discard)

    def refuse_own_thread(self) -> None:
        if self.is_here:
            raise RuntimeError("a blocking call from the portal's own thread would wait for itself")

    def abandon(self, job: Job[Any]) -> None:
        """Cancel a job; harmless when it has ended, or the loop has."""
        with suppress(RuntimeError):  # What a loop that is closed says.
            self.loop.call_soon_threadsafe(job.abandon)

    def close(self) -> None:
        """Cancel what is under way and end the thread."""
        with self._lock:
            self._ending = True
            self.loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(EXIT_SECONDS)


def _check_room() -> None:
    """Raises OSError unless there is room for the files that a loop opens: where there is none, asyncio raises it too,
    and leaves tracebacks on standard error besides."""
    import selectors
    import socket

    one, other = socket.socketpair()
    with one, other, selectors.DefaultSelector():
        pass


async def _cancel_tasks() -> None:
    """Cancel every task of the running loop but this one, each once and after its first step, and wait for them.

    asyncio.run would cancel those too that wait for their first step: what such a task was to await is never awaited,
    which Python tells on standard error.
    """
    import asyncio
    from inspect import CORO_CREATED, getcoroutinestate, iscoroutine

    me, cancelled = asyncio.current_task(), set[asyncio.Task[Any]]()
    while others := asyncio.all_tasks() - cancelled - {me}:
        for task in others:
            work = task.get_coro()
            if not (iscoroutine(work) and getcoroutinestate(work) == CORO_CREATED):
                task.cancel()
                cancelled.add(task)
        await asyncio.sleep(0)
    if cancelled:
        await asyncio.wait(cancelled)


_lock = threading.Lock()
_portal: Portal | None = None
_inherited: Final[list[object]] = []
"""What a forked child must neither use nor let be collected: collecting it would close it, and it is the parent's."""


_ending = False


def portal() -> Portal:
    """This process's portal. Raises Unavailable once the interpreter is on its way out: it starts no thread any more,
    and would wait for that for ever."""
    global _portal
    with _lock:
        if _portal is None:
            if _ending:
                raise Unavailable("the process is ending", hopeless=True)
            _portal = Portal()
        return _portal


def standing() -> Portal | None:
    """The portal, if it was made and has not ended."""
    return _portal


def is_ending() -> bool:
    """Whether this process begins nothing with a remote any more."""
    return _ending


def call(function: Callable[[*A], Coroutine[Any, Any, T]], *args: *A) -> T:
    """`function(*args)`, run in this process's portal."""
    return portal().call(function, *args)


@atexit.register
def end() -> None:
    """This process ends: what is under way is cancelled, and every later call raises Unavailable at once."""
    global _portal, _ending
    _ending = True
    ending, _portal = _portal, None
    if ending is not None:
        ending.close()


def _in_child() -> None:
    global _lock, _portal
    _inherited.append(_portal)
    _lock, _portal = threading.Lock(), None


os.register_at_fork(after_in_child=_in_child)
