"""Shared logs: those of a store, as an operator looks at them: who owns each, and what of it is about to be deleted."""

from __future__ import annotations

from functools import partial

import msgspec

from ...volume.errors import BudwoodError
from ...volume.garbage import GarbagePlan
from ...volume.store_report import CollectionPlan, SharedLog, SharedLogs
from ..log.listing import shared_logs
from ..metastore.logs import Logs
from ..store.tree_nodes import several_at_once
from .collector import Collector


async def told(logs: Logs, collector: Collector, *, after: str, limit: int) -> SharedLogs:
    """Raises Unavailable, Unauthorized where the store can't be listed."""
    names = await shared_logs(logs.store, logs.patience, after=after, limit=limit)
    found = dict[str, SharedLog]()

    async def look(name: str) -> None:
        found[name] = await _told(logs, collector, name)

    await several_at_once([partial(look, name) for name in names])
    return SharedLogs(logs=tuple(found[name] for name in names), next=names[-1] if len(names) == limit else "")


async def _told(logs: Logs, collector: Collector, name: str) -> SharedLog:
    row = SharedLog(log=name)
    try:
        owner = await logs.owner(await logs.get(name))
        if owner is not None:
            life = await logs.liveness(owner)
            row = SharedLog(
                log=name,
                node=owner.node,
                epoch=owner.n,
                since=owner.time,
                region=owner.region,
                address=owner.address,
                state=life.value,
            )
        standing = await collector.standing(name)
        return row if standing is None else msgspec.structs.replace(row, plan=_in_numbers(*standing))
    except BudwoodError as error:
        return msgspec.structs.replace(row, problem=str(error))


def _in_numbers(plan: GarbagePlan, due_ms: int) -> CollectionPlan:
    return CollectionPlan(
        number=plan.number,
        time=plan.time,
        due=due_ms,
        first=plan.first,
        slot=plan.slot,
        folds=len(plan.folds),
        fragments=sum(len(each.segments) for each in plan.fragments),
        transactions=len(plan.rejected),
        pins=len(plan.pins),
    )
