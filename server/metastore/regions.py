"""Regions: where nodes run, as their operators call it; a hint for whoever has a choice (S2.23).

A node says its region in the epochs that it takes, so a log's newest epoch names both its owner and where that runs.
There is no list of regions, and no order among them: two are the same, or they aren't. Nothing that must hold hangs on
it, and where no node of a region answers, any will do.
"""

from __future__ import annotations

from ...volume.entry import EpochRecord
from ..log.listing import shared_logs
from .logs import Logs


async def node_in(logs: Logs, region: str, *, but: str = "") -> EpochRecord | None:
    """A node that runs there, answers, and isn't that one. Raises what listing the logs met."""
    for name in await shared_logs(logs.store, logs.patience):
        owner = await logs.owner(await logs.get(name))
        fits = owner is not None and owner.region == region and owner.node not in {"", but}
        if owner is not None and fits and owner.address and await logs.is_alive(owner):
            return owner
    return None
