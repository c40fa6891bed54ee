"""Transactions of a log's folds: how each that has a number stands, by what the store says (S1.8).

Nobody keeps their states (log/transaction.py). What each is derived from:

    committed             its checkpoint is in its volume's row of folds
    reject-pending        a fold with a higher number was granted in this log; or its deadlist, which says what it began
                          with, speaks of a checkpoint that isn't its volume's any more; or the volume is gone
    reject-acknowledged   a garbage plan of a higher number was acknowledged, and it wasn't granted
    garbage-collected     that plan was carried out, and nothing lies below its prefix; of one that was committed, its
                          deadlist, which goes last of all that it was about, doesn't stand
    open                  nothing of that. One that began with a checkpoint that isn't the volume's any more, and has
                          the higher number, is called so until its deadlist stands, or a plan says more

A number that is settled goes with the plan that settles it, so what is listed is what the log still has to do with.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from ...volume.checkpoint import deadlist_key, number_of_transaction, transaction_prefix
from ...volume.entry import EpochRecord
from ...volume.errors import Conflict, NotFound
from ...volume.garbage import number_of_plan, plan_key
from ...volume.ids import VolumeId
from ..log.transaction import Event, State, after
from ..metastore.log_ownership import Takeover
from ..metastore.logs import Log, Logs
from ..metastore.open_volumes import Volumes
from ..store.retrying import retried
from .collector import Collector, Progress
from .deadlists import read_deadlist


class Transaction(NamedTuple):
    number: int
    vid: VolumeId
    state: State
    began_ms: int
    """By the clock of whoever began it."""
    node: str = ""
    """Whose it is, where that was said."""


class Room(NamedTuple):
    """What lies below a transaction's prefix."""

    objects: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Transactions:
    logs: Logs
    volumes: Volumes
    collector: Collector

    async def of(self, name: str) -> list[Transaction]:
        """Those of a log, oldest first. Raises Corrupt, Unavailable."""
        log = await self.logs.get(name)
        await self.logs.refresh(log, confirm=True)
        taken = await self.collector.planner.taken(name)
        return [await self._transaction(log, record) for _, record in sorted(taken.items()) if record.stream]

    async def room(self, log: str, number: int) -> Room:
        """By a LIST of its prefix."""
        prefix = f"{transaction_prefix(log, number)}/"
        store, patience = self.logs.store, self.logs.patience
        sizes = [size for _, size in await retried(f"list {prefix}", partial(store.sizes, prefix), patience)]
        return Room(len(sizes), sum(sizes))

    async def reject(self, name: str, number: int) -> Progress:
        """Have the log reject it now, so that it can't be granted any more, whoever holds it. One that is rejected
        already stays so, which costs no write. A shared log is taken for it, if its owner is gone: while that lives,
        nobody else could be granted anything there. Raises NotFound (no such transaction), Conflict (it was granted,
        or another was quicker), NotOwner, Refused, Corrupt, Unavailable."""
        await self._check(name, number)
        log = await self.logs.get(name)
        takes = not log.private and not log.owned
        if takes:
            await self.logs.take_over(log, Takeover.IF_GONE)
        try:
            progress = await self.collector.reject(name, number)
        finally:
            if takes:
                self.logs.release(log)
        # It may have been granted before the log acknowledged that.
        await self._check(name, number)
        return progress

    async def reject_all(self, name: str, node: str) -> list[int]:
        """Have the log reject those that a node has under way, and with them whatever else is; their numbers. Raises as
        `reject`."""
        pending = {State.OPEN, State.REJECT_PENDING}
        found = [each.number for each in await self.of(name) if each.node == node and each.state in pending]
        if found:
            await self.reject(name, found[-1])
        return found

    async def _check(self, name: str, number: int) -> None:
        found = next((each for each in await self.of(name) if each.number == number), None)
        if found is None:
            raise NotFound(f"log {name} has no transaction {number}: budwood transactions lists those that it has")
        if found.state is State.COMMITTED:
            words = f"transaction {number} of log {name} was granted: it is what volume {found.vid} is read by"
            raise Conflict(words)

    async def _transaction(self, log: Log, record: EpochRecord) -> Transaction:
        n, vid = record.n, VolumeId(record.stream)
        events = list[Event]()
        granted = await self.collector.planner.granted(log.name, n, vid.raw)
        if granted:
            events.append(Event.GRANT)
        elif await self._is_overtaken(log.name, n, vid):
            events.append(Event.OVERTAKE)
        newest = log.reader.chain.garbage
        if newest and n < number_of_plan(newest):
            events.append(Event.ACKNOWLEDGE)
            if await self._is_over(log.name, n, newest, granted=granted):
                events.append(Event.CARRY_OUT)
        return Transaction(n, vid, after(*events), record.time, record.node)

    async def _is_overtaken(self, log: str, n: int, vid: VolumeId) -> bool:
        try:
            fold = (await self.volumes.get(vid)).state.fold
        except NotFound:
            return True
        stands = fold.checkpoint if fold else ""
        granted = number_of_transaction(log, stands)
        if granted is not None and granted > n:
            return True
        deadlist = await read_deadlist(self.logs.store, transaction_prefix(log, n), self.logs.patience)
        return deadlist is not None and deadlist.base != stands

    async def _is_over(self, log: str, n: int, newest: str, *, granted: bool) -> bool:
        checkpoint = transaction_prefix(log, n)
        if granted:
            return not await self._stands(deadlist_key(checkpoint))
        return not await self._stands(plan_key(log, newest)) and not await self._stands(f"{checkpoint}/")

    async def _stands(self, prefix: str) -> bool:
        keys = await retried(f"list {prefix}", partial(self.logs.store.list, prefix, limit=1), self.logs.patience)
        return bool(keys)
