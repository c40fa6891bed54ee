"""Rounds: upkeep of a whole store by a process that serves none of it (`budwood upkeep`, `budwood gc`).

Log after log has its turn (upkeep.py). A private one anybody may tend. A shared one is left to its node while that one
answers, or might; where it is gone, the log is taken for the turn, and a node that comes back takes its own again.

Whoever goes round and round asks of each log one thing, its newest entry, and tends it when much has come, or a little
an hour ago, or what was planned is due; and once a day in any case, as a node does.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple, Protocol

from ...volume.entry import slot_of
from ...volume.errors import BudwoodError, Conflict, NotOwner, Unavailable
from ...volume.plain_records import is_plain
from ..log.boundary import LogIsOver
from ..log.listing import Over, check_log, newest_entry, next_log
from ..metastore.log_ownership import Takeover
from ..metastore.logs import Logs
from .garbage_check import Refused
from .tidying import Tidying
from .upkeep import DAY_SECONDS, NEW_ENTRIES, RETAIN_SECONDS, Extent, Turn, Upkeep

EVERY_SECONDS: Final = 60.0
"""Between two rounds."""


class Watcher(Protocol):
    """Whoever waits for it."""

    def turned(self, log: str, turn: Turn) -> None: ...

    def left(self, log: str, why: NotOwner | Conflict) -> None:
        """To its node, or to somebody who was quicker."""
        ...

    def failed(self, log: str, error: BudwoodError) -> None: ...

    def deleted(self, log: str, objects: int) -> None:
        """So many more."""
        ...


class _Tended(NamedTuple):
    """Of one log."""

    slot: int
    """The newest, after its turn."""
    next_at: float
    """When it has another, whatever came."""
    next_if_changed_at: float


@dataclass(slots=True)
class Rounds:
    logs: Logs
    upkeep: Upkeep
    watcher: Watcher
    extent: Extent
    _tended: dict[str, _Tended] = field(default_factory=dict[str, _Tended])

    async def once(self, names: list[str] | None = None) -> None:
        """Each log in turn, or those. Raises NotFound, and Unavailable and Unauthorized where they can't be listed, or
        where the time is wrong."""
        await self.upkeep.clock.check()
        store, patience = self.logs.store, self.logs.patience
        for name in names or ():
            await check_log(store, name, patience)
        for name in names or ():
            await self._turn(name)
        if not names:
            await self._tidy(Tidying(store, patience))
        name = ""
        while not names and (name := await next_log(store, name, patience, over=Over.CLEARED_PASSED)):
            await self._turn(name)

    async def for_ever(self) -> None:
        """Until it is cancelled. A store that doesn't answer is told of, and asked again. Raises Unauthorized."""
        tidying = Tidying(self.logs.store, self.logs.patience)
        while True:
            await self._tidy(tidying)
            try:
                await self._round()
            except Unavailable as error:
                self.watcher.failed("", error)
            await self.logs.patience.sleep(EVERY_SECONDS)

    async def _tidy(self, tidying: Tidying) -> None:
        failure = await tidying.if_due()
        if failure is not None:
            self.watcher.failed("", failure)

    async def _round(self) -> None:
        await self.upkeep.clock.check()
        store, patience = self.logs.store, self.logs.patience
        name, stand = "", set[str]()
        while name := await next_log(store, name, patience, over=Over.CLEARED_PASSED):
            stand.add(name)
            newest = await newest_entry(store, name, patience)
            slot = slot_of(newest) if newest else 0
            if self._is_due(name, slot):
                due_ms, slot = await self._turn(name) or (0, slot)
                now = patience.now()
                wait = max(due_ms - self.logs.now_ms(), 0) / 1000 if due_ms else DAY_SECONDS
                self._tended[name] = _Tended(slot, now + wait, now + RETAIN_SECONDS)
        for gone in self._tended.keys() - stand:
            del self._tended[gone]

    def _is_due(self, name: str, slot: int) -> bool:
        now, tended = self.logs.patience.now(), self._tended.get(name)
        if tended is None or now >= tended.next_at or slot - tended.slot >= NEW_ENTRIES:
            return True
        return slot > tended.slot and now >= tended.next_if_changed_at

    async def _turn(self, name: str) -> tuple[int, int] | None:
        """When what waits may be deleted, and the newest slot by then; None where it had no turn."""
        try:
            turn, slot = await self._tend(name)
        except (NotOwner, Conflict) as error:
            if isinstance(error, Refused):
                self.watcher.failed(name, error)
            else:
                self.watcher.left(name, error)
            return None
        except BudwoodError as error:
            self.watcher.failed(name, error)
            return None
        self.watcher.turned(name, turn)
        return turn.due_ms, slot

    async def _tend(self, name: str) -> tuple[Turn, int]:
        """What was done, and the newest slot by then."""
        tend = partial(self.upkeep.tend, name, self.extent, on_deleted=partial(self.watcher.deleted, name))
        try:
            log = await self.logs.get(name)
        except LogIsOver:
            return await tend(), 0
        tails = log.streams.tails(log.reader.chain.next)
        if any(is_plain(part.carried) for parts in tails.values() for part in parts[:1]):
            # A log by itself (docs/log.md): no volume is in it, and whoever appends to it is not to be deposed.
            return Turn(), log.reader.chain.next - 1
        takes = not log.private and not log.owned
        if takes and not await self.upkeep.has_work(name, self.extent):
            # An epoch would be more than it is worth.
            return Turn(), log.reader.chain.next - 1
        if takes:
            await self.logs.take_over(log, Takeover.IF_GONE)
        try:
            turn = await tend()
        finally:
            if takes:
                self.logs.release(log)
        return turn, log.reader.chain.next - 1
