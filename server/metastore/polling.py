"""Polling: looks at logs for those who wait for them to grow (S0.30, S3.16).

A log is looked at once for all who wait, however many: while there is anyone, by one task, which tells all of them what
a look met. Whoever waits holds no task and no timer of its own here.

A log that this process owns tells by itself, and is looked at every `CONFIRM_SECONDS`, for whether it still is this
process's. One that others append to is looked at every `POLL_SECONDS`, or less often where so many are waited for that
these would be more than `MOST_LOOKS_PER_SECOND`. All but one of its looks in `CONFIRM_SECONDS` are glances
(log/reader.py): two requests would be made each second where one will do.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, Final

import anyio
from anyio.abc import TaskGroup

from ...volume.errors import BudwoodError, Unavailable
from .open_stream import OpenStream

POLL_SECONDS: Final = 1.0

CONFIRM_SECONDS: Final = 10.0
"""How often it is looked at whether this process still owns a log, and whether a log's tip still stands (S0.30)."""

MOST_LOOKS_PER_SECOND: Final = 100.0
"""At all logs together that others append to."""

_logger: Final = logging.getLogger(__name__)


class _Watch:
    """One log, while anyone waits for it."""

    def __init__(self) -> None:
        self.waiters = Counter[OpenStream[Any]]()
        """How many wait for each of its streams."""
        self.failure: BudwoodError | None = None
        """What the last look met."""
        self.scope = anyio.CancelScope()


class LogWatches:
    """All logs that are waited for. `look(log, glance)` reads what was appended to one, `is_owned(log)` says whether
    this process alone appends to it. Belongs to one event loop."""

    def __init__(
        self, tasks: TaskGroup, look: Callable[[str, bool], Awaitable[None]], is_owned: Callable[[str], bool]
    ) -> None:
        self._tasks = tasks
        self._look = look
        self._is_owned = is_owned
        self._watches: dict[str, _Watch] = {}
        self._stopped = False

    async def changed(self, log: str, stream: OpenStream[Any], at_most_seconds: float | None = None) -> None:
        """Return when a stream of that log has changed, has ended, may have more to take, or after that time. Nothing
        is awaited before the stream is looked at. Raises what looking at its log met."""
        if self._stopped:
            raise Unavailable("this node is shutting down")
        watch = self._watches.get(log)
        if watch is None:
            watch = self._watches[log] = _Watch()
            self._tasks.start_soon(self._run, log, watch)
        watch.waiters[stream] += 1
        before = watch.failure
        try:
            with anyio.move_on_after(at_most_seconds):
                await stream.changed().wait()
        finally:
            watch.waiters[stream] -= 1
            if not watch.waiters[stream]:
                del watch.waiters[stream]
            if not watch.waiters:
                watch.scope.cancel()
                if self._watches.get(log) is watch:
                    del self._watches[log]
        if watch.failure is not None and watch.failure is not before and not stream.ended:
            raise watch.failure.with_traceback(None)

    def stop(self) -> None:
        """Look no more: those who wait are told that the node shuts down."""
        self._stopped = True
        for watch in self._watches.values():
            self._fail(watch, Unavailable("this node is shutting down"))
            watch.scope.cancel()

    async def _run(self, log: str, watch: _Watch) -> None:
        with watch.scope:
            looked_at = anyio.current_time()
            while True:
                owned = self._is_owned(log)
                await anyio.sleep(CONFIRM_SECONDS if owned else self._pause_seconds())
                now = anyio.current_time()
                glance = not owned and now - looked_at < CONFIRM_SECONDS
                looked_at = looked_at if glance else now
                try:
                    await self._look(log, glance)
                    watch.failure = None
                except BudwoodError as error:
                    self._fail(watch, error)
                except Exception as error:
                    _logger.exception("looking at log %s failed", log)
                    self._fail(watch, Unavailable(f"looking at log {log} failed ({error!r}): try again"))

    def _pause_seconds(self) -> float:
        return max(POLL_SECONDS, len(self._watches) / MOST_LOOKS_PER_SECOND)

    def _fail(self, watch: _Watch, error: BudwoodError) -> None:
        watch.failure = error
        for stream in watch.waiters:
            stream.tell()
