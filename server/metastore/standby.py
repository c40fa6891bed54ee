"""Stand-by: takes over the shared logs of nodes that can't be reached any more (DESIGN §5, failover; S1.21, S1.23).

It follows the shared logs of others, so that it has read what they hold, and asks their owners whether they live. Whose
owner has not answered for `MISSES` looks in a row is fenced by a fresh epoch, or for `FARTHER_MISSES` where that runs
in another region: that is safe whoever lives. Looks are counted, and not time, so that a stand-by that slept takes
nobody for dead. There is no clock in it, no election, and nothing that has to be right about who is dead. Of two
stand-bys the later fence wins, and the other is sent to it. An owner that was deposed while it lived says so at its
next write, and takes its log back once the stand-by is gone.

Following has a limit, so that a node serves its own callers meanwhile: of each log so many entries at a look (S1.27).
One that falls behind says so, and when it has caught up. It is no limit for whoever asks this node for the newest, nor
where a log is taken over: those read all.

An owner that can't be asked from here (volume/owner.py) is left alone; an operator says whether it lives
(`budwood takeover`). Who listens nowhere, as whoever took a log for one move, owns it no more once its process ends.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

import anyio
from anyio.abc import TaskGroup

from ...volume.entry import EpochRecord
from ...volume.errors import BudwoodError, NotOwner
from ...volume.owner import Liveness
from ..log.listing import shared_logs
from .log_ownership import Takeover
from .logs import Log, Logs

MISSES: Final = 5
FARTHER_MISSES: Final = 2 * MISSES
"""Where the owner runs in another region: a stand-by of that one comes first."""
EVERY_SECONDS: Final = 0.5
FOLLOW_SECONDS: Final = 1.0
"""Between two reads of a log, which cost requests to the store."""
CATCH_UP_ENTRIES: Final = 512
CATCH_UP_BYTES: Final = 8 << 20
"""At a read, of each log: some ten times what an owner appends in a second."""
LIST_SECONDS: Final = 30.0
"""Between two looks for logs of nodes that are new."""

_logger: Final = logging.getLogger(__name__)


@dataclass(slots=True)
class _Followed:
    """A log of another's."""

    owner: EpochRecord | None = None
    read_at: float = -math.inf
    unanswered: int = 0
    """Looks in a row."""
    asking: bool = False
    behind: bool = False
    """It was not read to its end."""


class Standby:
    """Of one node, for the logs that `minds` is true of. Belongs to one event loop."""

    def __init__(self, logs: Logs, minds: Callable[[str], bool] = lambda _: True) -> None:
        self._logs = logs
        self._minds = minds
        self._names: Collection[str] = ()
        self._listed_at = -math.inf
        self._followed: dict[str, _Followed] = {}

    async def run(self) -> None:
        """Until cancelled. What goes wrong at one log keeps nobody from the others, and is tried again."""
        async with anyio.create_task_group() as tasks:
            while True:
                await self.look(tasks)
                await self._logs.patience.sleep(EVERY_SECONDS)

    async def look(self, tasks: TaskGroup) -> None:
        """Once at each log of another's; nothing, once its node was taken out for good. Owners are asked by tasks of
        their own: one that hangs holds nobody up."""
        if self._logs.retired:
            return
        try:
            now = self._logs.patience.now()
            if now >= self._listed_at + LIST_SECONDS:
                self._names = await shared_logs(self._logs.store, self._logs.patience)
                self._listed_at = now
        except BudwoodError as error:
            _logger.warning("the logs of other nodes can't be listed: %s", error)
        for name in self._names:
            if name == self._logs.claim.log or not self._minds(name):
                continue
            try:
                await self._look_at(name, tasks)
            except BudwoodError as error:
                _logger.warning("log %s: %s", name, error)
            except Exception:
                # Whoever is served here is not to go down with it.
                _logger.exception("log %s can't be looked at just now", name)

    async def _look_at(self, name: str, tasks: TaskGroup) -> None:
        log = await self._logs.get(name)
        if log.owned:
            self._followed.pop(name, None)
            return
        followed = self._followed.setdefault(name, _Followed())
        now = self._logs.patience.now()
        if self._is_due(followed) or now >= followed.read_at + FOLLOW_SECONDS:
            await self._follow(log, followed)
            followed.read_at = now
        if followed.owner is None:
            return
        if self._is_due(followed):
            await self._take(log, followed.owner)
            del self._followed[name]
            return
        followed.unanswered += 1
        if not followed.asking:
            followed.asking = True
            tasks.start_soon(self._ask, followed, followed.owner)

    def _is_due(self, followed: _Followed) -> bool:
        """Whether its owner was silent for long enough."""
        here = followed.owner is None or followed.owner.region in {"", self._logs.claim.region}
        return followed.unanswered >= (MISSES if here else FARTHER_MISSES)

    async def _follow(self, log: Log, followed: _Followed) -> None:
        _tell(log.name, followed, behind=not await self._logs.catch_up(log, CATCH_UP_ENTRIES, CATCH_UP_BYTES))
        before = followed.owner
        if before is None or before.n != log.reader.chain.epoch:
            # Whoever it is, it was not asked yet.
            followed.owner = await self._logs.owner(log)
            followed.unanswered = 0

    async def _ask(self, followed: _Followed, owner: EpochRecord) -> None:
        try:
            life = await self._logs.liveness(owner)
        except Exception:
            # What went wrong here says nothing about the owner.
            _logger.exception("whether %s lives can't be found out just now", owner.node or owner.address)
            life = Liveness.UNKNOWN
        finally:
            followed.asking = False
        if life is not Liveness.GONE and followed.owner is owner:
            followed.unanswered = 0

    async def _take(self, log: Log, owner: EpochRecord) -> None:
        who = owner.address or owner.node or "a process"
        try:
            # It was asked often enough: asking once more would hold up whoever waits.
            await self._logs.take_over(log, Takeover.ALWAYS, stays=True)
        except NotOwner as error:
            # Another was quicker.
            _logger.warning("%s", error)
        else:
            _logger.warning("log %s is taken over: %s, which owned it, can't be reached", log.name, who)


def _tell(name: str, followed: _Followed, *, behind: bool) -> None:
    if behind and not followed.behind:
        most = f"{CATCH_UP_ENTRIES} entries or {CATCH_UP_BYTES >> 20} MiB"
        _logger.warning("log %s is followed by %s at a look, and isn't caught up with yet", name, most)
    elif followed.behind and not behind:
        _logger.warning("log %s is caught up with", name)
    followed.behind = behind
