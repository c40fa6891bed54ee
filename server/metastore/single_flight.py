"""Single flight: work that belongs to the node, and not to whoever was the first to need it.

Callers join it by its name, and may leave: it goes on in the node's own tasks. What it comes to, or what befalls it, is
told to all who wait; whoever comes after that begins anew. An error that is none of ours ends this work alone: it is
logged once, whole, and those who wait are told that it happened.

`Pauses` keep whoever begins anew again and again from doing it at once.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

import anyio
from anyio.abc import TaskGroup

from ...volume.errors import BudwoodError, Unavailable

FIRST_SECONDS: Final = 0.25
LONGEST_SECONDS: Final = 5.0
FORGIVEN_SECONDS: Final = 30.0

T = TypeVar("T")

_logger: Final = logging.getLogger(__name__)


class _Work(Generic[T]):
    """Once `done` is set there is an answer, or an error."""

    __slots__ = ("answer", "done", "error", "scope")

    def __init__(self) -> None:
        self.scope = anyio.CancelScope()
        self.done = anyio.Event()
        self.answer: list[T] = []
        self.error: Exception | None = None


class SingleFlight(Generic[T]):
    """Work of one kind, by name. `what` says what it is, in a log's line."""

    def __init__(self, tasks: TaskGroup, what: str) -> None:
        self._tasks = tasks
        self._what = what
        self._under_way: dict[str, _Work[T]] = {}
        self._stopped = False

    def __contains__(self, name: str) -> bool:
        return name in self._under_way

    async def join(self, name: str, work: Callable[[], Awaitable[T]]) -> T:
        """What `work` comes to, or what is under way by that name. Cancelling the call ends nothing."""
        found = self.begin(name, work)
        await found.done.wait()
        if found.error is not None:
            # One error may be told to many, and its traceback would grow with each.
            raise found.error.with_traceback(None)
        return found.answer[0]

    def begin(self, name: str, work: Callable[[], Awaitable[T]]) -> _Work[T]:
        """As `join`, for whoever doesn't wait."""
        found = self._under_way.get(name)
        if found is None and self._stopped:
            raise Unavailable("this node is shutting down")
        if found is None:
            found = self._under_way[name] = _Work[T]()
            self._tasks.start_soon(self._run, name, found, work)
        return found

    def stop(self, after_seconds: float = 0.0) -> None:
        """End all of it, at once or when that time has passed, and begin nothing: those who wait, and those who come,
        are told that the node shuts down."""
        self._stopped = True
        for work in self._under_way.values():
            if after_seconds:
                work.scope.deadline = anyio.current_time() + after_seconds
            else:
                work.scope.cancel()

    async def _run(self, name: str, own: _Work[T], work: Callable[[], Awaitable[T]]) -> None:
        own.error = Unavailable("this node is shutting down")
        try:
            with own.scope:
                own.answer.append(await work())
                own.error = None
        except BudwoodError as error:
            own.error = error
        except Exception as error:
            _logger.exception("%s %s failed", self._what, name)
            own.error = Unavailable(f"{self._what} {name} failed ({error!r}): the node's log says more")
        finally:
            del self._under_way[name]
            own.done.set()


class Backoff:
    """Between one try and the next: none at first, then twice as long each time, until there was none for a while."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._pause_seconds = 0.0
        self._next_at = 0.0

    def left_seconds(self) -> float:
        return max(0.0, self._next_at - self._now())

    def tried(self) -> None:
        """Something was tried: how long until the next time."""
        now = self._now()
        if now > self._next_at + FORGIVEN_SECONDS:
            self._pause_seconds = 0.0
        self._next_at = now + self._pause_seconds
        self._pause_seconds = min(max(2 * self._pause_seconds, FIRST_SECONDS), LONGEST_SECONDS)
