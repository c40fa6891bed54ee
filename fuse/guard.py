"""Guard: around every handler, so that no error ends the mount, and no waiting holds up the others.

pyfuse3 passes FUSEError on to the program; any other exception would end the whole mount. What a handler raises
becomes the errno of that one call. Errors that say something about the store are logged; a defect of ours is logged
with its traceback.

**Waiting.** One task takes the kernel's requests and answers them, without a switch between tasks for any that needs
none: that is what makes a request cheap. A handler that comes to wait (for a thread, the network, a lock) keeps that
task, so another one begins to take requests in its place (`Readers`), and ends when it is not needed any more. So the
first step of each handler is taken by hand (`driven`): if that was all of it, trio never hears of it.
"""

from __future__ import annotations

import errno
import functools
import logging
import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Final, ParamSpec, TypeVar, cast

import pyfuse3
import trio

from ..volume import faults
from ..volume.errors import BudwoodError, StoreError
from .errnos import errno_of

__all__ = ["changing", "driven", "guarded", "log", "readers"]

MOST_READERS: Final = 256
"""Requests that wait at once."""

log: Final = logging.getLogger("budwood.fuse")

P = ParamSpec("P")
T = TypeVar("T")


BEGUN = faults.point("mount: a request that changes something is about to be answered")
DONE = faults.point("mount: a request changed something, the program not told")


class Readers:
    """The tasks that take requests: at any time one of them isn't waiting."""

    def __init__(self) -> None:
        self._nursery: trio.Nursery | None = None
        self._tasks = 1
        self._waiting = 0

    async def run(self, nursery: trio.Nursery) -> None:
        """Serve until the mount ends. This task is the first reader, and stays."""
        self._nursery, self._tasks = nursery, 1
        # A reader ends where more than `min_tasks` others are idle, and this one never shall.
        await pyfuse3.main(min_tasks=MOST_READERS, max_tasks=1)
        self._nursery = None

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


def guarded(handler: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    @functools.wraps(handler)
    async def run(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await driven(handler(*args, **kwargs))
        except pyfuse3.FUSEError:
            raise
        except BudwoodError as error:
            if isinstance(error, StoreError):
                log.warning("%s: %s", handler.__name__, error)
            else:
                log.info("%s: %s", handler.__name__, error)
            raise pyfuse3.FUSEError(errno_of(error)) from None
        except OSError as error:
            log.warning("%s: %s", handler.__name__, error)
            raise pyfuse3.FUSEError(error.errno or errno.EIO) from None
        except Exception:
            log.exception("%s: a defect, answered with EIO", handler.__name__)
            raise pyfuse3.FUSEError(errno.EIO) from None

    return run


def changing(handler: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """As `guarded`, for requests that change something: a crash may come before each, and before its answer."""
    run = guarded(handler)

    @functools.wraps(handler)
    async def change(*args: P.args, **kwargs: P.kwargs) -> T:
        BEGUN()
        result = await run(*args, **kwargs)
        DONE()
        return result

    return change
