"""Readiness: whether callers should be sent to this node now, and if not, why (`/readyz`).

A node that isn't ready may well be alive: it still answers whoever comes. What it looks at:

    draining            it was told to stop, and ends when those under way are answered
    log_lost            another owns its log: it answers reads, and sends writers there
    store_unreachable   the store has not answered lately, and does not when it is asked now
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import anyio
import msgspec

from ...volume.calls import HELLO, Done
from ...volume.errors import BudwoodError, StoreError
from ...volume.protocols import Remote

LATELY_SECONDS: Final = 10.0
ANSWER_SECONDS: Final = 3.0
DRAINING: Final = "draining"
LOG_LOST: Final = "log_lost"
STORE_UNREACHABLE: Final = "store_unreachable"


class Readiness(msgspec.Struct, frozen=True):
    """What `/readyz` answers."""

    ready: bool
    reasons: tuple[str, ...] = ()


class StoreReach:
    """When the store answered last, as those see who ask it; `ask` asks it something that costs next to nothing."""

    def __init__(self, now: Callable[[], float] = anyio.current_time) -> None:
        self.ask: Callable[[], Awaitable[object]] | None = None
        self._now = now
        self._answered_at = float("-inf")

    def note(self, error: BaseException | None) -> None:
        """A request has ended so: with an answer, unless it is that there was none."""
        if error is None or (isinstance(error, BudwoodError) and not isinstance(error, StoreError)):
            self._answered_at = self._now()

    async def is_given(self) -> bool:
        """Asks only if it has not answered lately."""
        if self.ask is None or self._now() - self._answered_at < LATELY_SECONDS:
            return True
        with anyio.move_on_after(ANSWER_SECONDS):
            try:
                await self.ask()
            except StoreError:
                return False
            return True
        return False


async def readiness(remote: Remote, reach: StoreReach, stopping: anyio.Event | None) -> Readiness:
    """Of the node that `remote` is."""
    reasons = list[str]()
    if stopping is not None and stopping.is_set():
        reasons.append(DRAINING)
    if not (await remote.ask(HELLO, Done())).epoch:
        reasons.append(LOG_LOST)
    if not await reach.is_given():
        reasons.append(STORE_UNREACHABLE)
    return Readiness(ready=not reasons, reasons=tuple(reasons))
