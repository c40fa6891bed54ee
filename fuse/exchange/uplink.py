"""Uplink: whether the remote answers, for what the mount syncs in the background.

While it doesn't, tries are spaced out up to half a minute, and the log hears of the first failure and of the end.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import trio

from ...sync.connection import Connection
from ...volume.calls import A, Call, Q
from ...volume.errors import BudwoodError
from ..requests.guarded import log

FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 30.0


class Uplink:
    """One remote. For the mount's event loop; `on_answer` hears that it answers again."""

    def __init__(self, url: str, on_answer: Callable[[], None] = lambda: None) -> None:
        self.url = url
        self._on_answer = on_answer
        self.error = ""
        """Why it is offline; "" while it answers."""
        self.pause_seconds = 0.0
        self._until = 0.0
        self._last_answer = float("-inf")
        self._answered = trio.Event()

    def works(self) -> float:
        """It has answered. The time, for whoever goes on asking (`fails`)."""
        again = bool(self.error)
        self.error, self.pause_seconds, self._until = "", 0.0, 0.0
        self._last_answer = trio.current_time()
        if again:
            log.warning("%s answers again", self.url)
            self.nudge()
            self._on_answer()
        return self._last_answer

    def fails(self, error: BudwoodError, *, since: float) -> None:
        """What was begun at `since`, by trio's clock, has failed. Where others had an answer after that, it tells
        nothing of now: whoever tries again finds out.
        """
        if since < self._last_answer:
            return
        if not self.error:
            log.warning("%s can't be reached, and is tried again: %s", self.url, error)
        self.error = str(error)
        now = trio.current_time()
        # Many who ask at once fail together, which is one failure.
        if now >= self._until:
            self.pause_seconds = min(LONGEST_PAUSE_SECONDS, max(FIRST_PAUSE_SECONDS, 2 * self.pause_seconds))
            self._until = now + self.pause_seconds / 2

    def nudge(self) -> None:
        """It may answer again: whoever waits to try does so now."""
        self._answered.set()
        self._answered = trio.Event()

    async def pause(self) -> None:
        """Before the next try; cut short by a `nudge`, and as soon as someone else's succeeds."""
        with trio.move_on_after(self.pause_seconds * random.uniform(0.5, 1.0)):
            await self._answered.wait()


async def ask_in_background(connection: Connection, call: Call[Q, A], request: Q) -> A:
    """Ask a remote without a thread that waits. Raises what the remote raises."""
    token, ended = trio.lowlevel.current_trio_token(), trio.Event()

    def done() -> None:
        try:
            token.run_sync_soon(ended.set)
        except trio.RunFinishedError:
            # The mount has ended meanwhile, and nobody asks any more.
            return

    asking = connection.remote.begin(lambda remote: remote.ask(call, request), done)
    try:
        await ended.wait()
    except trio.Cancelled:
        asking.abandon()
        raise
    return asking.result()
