"""Stand-by: takes over the shared logs of nodes that can't be reached any more (DESIGN §5, failover; S1.21, S1.23).

It follows the shared logs of others, so that it has read what they hold, and asks their owners whether they live. Whose
owner has not answered `MISSES` times in a row is fenced by a fresh epoch: that is safe whoever lives. There is no clock
in it, no election, and nothing that has to be right about who is dead. Of two stand-bys the later fence wins, and the
other is sent to it. An owner that was deposed while it lived says so at its next write, and takes its log back once the
stand-by is gone.

An owner that can't be asked from here (volume/owner.py) is left alone; an operator says whether it lives
(`budwood takeover`). Who listens nowhere, as whoever took a log for one move, owns it no more once its process ends.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Collection
from typing import Final

from ...volume.entry import EpochRecord
from ...volume.errors import BudwoodError, NotOwner
from ...volume.owner import Liveness
from ..log.listing import shared_logs
from .log_ownership import Takeover
from .logs import Log, Logs

MISSES: Final = 3
EVERY_SECONDS: Final = 1.0
LIST_SECONDS: Final = 30.0
"""Between two looks for logs of nodes that are new."""

_logger: Final = logging.getLogger(__name__)


class Standby:
    """Of one node. Belongs to one event loop."""

    def __init__(self, logs: Logs) -> None:
        self._logs = logs
        self._names: Collection[str] = ()
        self._listed_at = -math.inf
        self._misses: dict[str, tuple[int, int]] = {}
        """By log: the owner's epoch, and how often it has not answered."""

    async def run(self) -> None:
        """Until cancelled. What goes wrong at one log keeps nobody from the others, and is tried again."""
        while True:
            await self.look()
            await self._logs.patience.sleep(EVERY_SECONDS)

    async def look(self) -> None:
        """Once at each log of another's."""
        try:
            now = self._logs.patience.now()
            if now >= self._listed_at + LIST_SECONDS:
                self._names = await shared_logs(self._logs.store, self._logs.patience)
                self._listed_at = now
        except BudwoodError as error:
            _logger.warning("the logs of other nodes can't be listed: %s", error)
        for name in self._names:
            if name == self._logs.claim.log:
                continue
            try:
                await self._look_at(name)
            except BudwoodError as error:
                _logger.warning("log %s: %s", name, error)

    async def _look_at(self, name: str) -> None:
        log = await self._logs.get(name)
        if log.owned:
            return
        await self._logs.refresh(log, confirm=True, glance=True)
        owner = await self._logs.owner(log)
        if owner is None:
            return
        life = await self._logs.liveness(owner)
        epoch, missed = self._misses.get(name, (0, 0))
        missed = missed + 1 if life is Liveness.GONE and epoch == owner.n else int(life is Liveness.GONE)
        self._misses[name] = owner.n, missed
        if missed >= MISSES:
            await self._take(log, owner)

    async def _take(self, log: Log, owner: EpochRecord) -> None:
        who = owner.address or owner.node or "a process"
        try:
            await self._logs.take_over(log, Takeover.IF_GONE, stays=True)
        except NotOwner as error:
            # It answers after all, or another was quicker.
            _logger.warning("%s", error)
        else:
            _logger.warning("log %s is taken over: %s, which owned it, can't be reached", log.name, who)
        del self._misses[log.name]
