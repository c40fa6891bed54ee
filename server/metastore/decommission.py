"""Decommission: a node is taken out of the store for good, and its logs go on under another (S1.22).

Order, and why: the mark that the node owns nothing any more stands BEFORE its logs are looked for (retirement.py): it
takes numbers first and looks for the mark afterwards, so that what it takes meanwhile is either given up or found here.
Every log that it owns, or has a number for that may still fence, is taken under a fresh epoch, which is higher than any
of its own: whatever it sends from then on is void. Then its folds that are under way are rejected, so that what they
wrote goes with the next collection. At last all logs are looked at anew: what is told comes from that look alone.

Each step is found done if it was done, so whoever is cut off asks for the same again, or asks another node to.

Unless forced, nothing begins while an owner can't be asked: it may live, and be of use where it is. A node that lives
is told by nobody: it meets the fence at its next write, or sees it when somebody asks it who it is.

What no fence reaches: a process with the store's credentials may append to private logs, as any client may. Whoever
takes a node out for good revokes those.

Crash windows (each a fault point): decommission: marked, nothing taken · decommission: one log taken · decommission:
logs taken, folds not rejected.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from ...volume import faults
from ...volume.entry import EpochRecord
from ...volume.errors import BadInput, NotFound, Unavailable
from ...volume.owner import Liveness
from ...volume.retirement import Retirement
from ..log.listing import shared_logs
from ..log.term import find_epoch, numbers
from .log_ownership import Takeover
from .logs import Log, Logs
from .regions import node_in
from .retirement import retire, retirement_of
from .share import Share
from .standby import MISSES

_LOOKED_BACK: Final = 8
"""Numbers of a log, for the one under which the node had it."""

_MARKED: Final = faults.point("decommission: marked, nothing taken")
_TAKEN: Final = faults.point("decommission: one log taken")
_ALL_TAKEN: Final = faults.point("decommission: logs taken, folds not rejected")


class Trace(NamedTuple):
    """A number of a log that the node has."""

    log: Log
    record: EpochRecord
    owns: bool
    """Whether it is the newest that stands in the log; else it may still come to stand."""


@dataclass(frozen=True, slots=True)
class Decommissioner:
    logs: Logs
    ready_for: Callable[[Log], Awaitable[None]]
    reject: Callable[[str, str], Awaitable[list[int]]]
    """Rejects what a node has under way in a log; the numbers."""
    share: Share | None = None
    """Of several workers each takes the logs that fall to it, and looks whether any is left."""

    async def run(self, node: str, *, force: bool) -> Decommissioned:
        """Raises NotFound (no such node), BadInput, Unavailable (an owner doesn't answer, and it wasn't forced)."""
        store, patience = self.logs.store, self.logs.patience
        if node == self.logs.claim.name:
            raise BadInput(f"node {node} can't have its own logs when it is gone: ask another one to take it out")
        names = await shared_logs(store, patience)
        if node not in names and await retirement_of(store, node, patience) is None:
            raise NotFound(f"no node named {node!r} has ever served this store: `budwood nodes` lists those that have")
        before = await self._traces(node, names)
        if not force:
            await self._check_all_answer(node, before)
        claim, region = self.logs.claim, _region_of(before)
        wanted = Retirement(node=node, by=claim.name, address=claim.address, region=region, time=self.logs.now_ms())
        mark = await retire(store, wanted, patience)
        _MARKED()
        taken = list[str]()
        # Anew: what it had taken before it could see the mark.
        names = await shared_logs(store, patience)
        for trace in await self._traces(node, filter(self._falls_here, names)):
            await self.ready_for(trace.log)
            await self.logs.take_over(trace.log, Takeover.ALWAYS, stays=True)
            taken.append(trace.log.name)
            _TAKEN()
        _ALL_TAKEN()
        rejected = {name: found for name in names if (found := await self._rejected(name, node))}
        left = [trace.log.name for trace in await self._traces(node, await shared_logs(store, patience))]
        says = [] if force else [name for name in names if await self._still_says(name, node)]
        return Decommissioned(mark, tuple(taken), rejected, tuple(left), tuple(says))

    async def nearer(self, node: str) -> EpochRecord | None:
        """A node in the region of the one that is to go, where this one runs in another and has not begun."""
        store, patience = self.logs.store, self.logs.patience
        mark = await retirement_of(store, node, patience)
        if mark is not None and mark.by == self.logs.claim.name:
            return None
        traces = [] if mark is not None else await self._traces(node, await shared_logs(store, patience))
        region = _region_of(traces) if mark is None else mark.region
        return None if region in {"", self.logs.claim.region} else await node_in(self.logs, region, but=node)

    def _falls_here(self, log: str) -> bool:
        return self.share is None or self.share.of_log(log) == self.share.number

    async def _rejected(self, name: str, node: str) -> list[int]:
        """In logs that this node owns: in any other nobody but its owner could be granted anything."""
        return await self.reject(name, node) if (await self.logs.get(name)).owned else []

    async def _traces(self, node: str, names: Iterable[str]) -> list[Trace]:
        """What the store says of it, looked at now: its own log first."""
        found = list[Trace]()
        for name in sorted(names, key=lambda name: (name != node, name)):
            log = await self.logs.get(name)
            await self.logs.refresh(log, confirm=True)
            owner = await self.logs.owner(log)
            newest = 0 if owner is None else owner.n
            if owner is not None and owner.node == node:
                found.append(Trace(log, owner, owns=True))
                continue
            for n in await numbers(self.logs.store, name, newest + 1, self.logs.patience):
                record = await find_epoch(self.logs.store, name, n, patience=self.logs.patience)
                if record is not None and (record.node, record.purpose) == (node, "writer"):
                    found.append(Trace(log, record, owns=False))
                    break
        return found

    async def _check_all_answer(self, node: str, traces: list[Trace]) -> None:
        for trace in traces:
            owner = trace.record
            if trace.owns and owner.address and not await self._answers(owner):
                words = f"node {node} owns log {owner.log} and doesn't answer at {owner.address}"
                raise Unavailable(f"{words}: start it, or say that it is gone for good, with --force")

    async def _answers(self, owner: EpochRecord) -> bool:
        """One that is busy may be slow to."""
        for _ in range(MISSES):
            if await self.logs.liveness(owner) is Liveness.ANSWERS:
                return True
        return False

    async def _still_says(self, name: str, node: str) -> bool:
        """Whether it says that it owns a log which was taken from it: then it hasn't learnt of it yet."""
        store, patience = self.logs.store, self.logs.patience
        for n in reversed((await numbers(store, name, 0, patience))[-_LOOKED_BACK:]):
            record = await find_epoch(store, name, n, patience=patience)
            if record is not None and (record.node, record.purpose) == (node, "writer") and record.address:
                return await self.logs.liveness(record) is Liveness.ANSWERS
        return False


def _region_of(traces: list[Trace]) -> str:
    return next((trace.record.region for trace in traces if trace.record.region), "")


class Decommissioned(NamedTuple):
    mark: Retirement
    taken: tuple[str, ...]
    """Logs that were taken just now."""
    rejected: dict[str, list[int]]
    """Folds that were, by log."""
    left: tuple[str, ...]
    """Logs in which it has a number that stands, or may."""
    says: tuple[str, ...]
    """Logs that it still says it owns."""
