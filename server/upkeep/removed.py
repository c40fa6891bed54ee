"""Removed: whether a volume without a birth is one that was removed, or one whose birth is only missing."""

from __future__ import annotations

from ...volume.ids import VolumeId
from ..metastore.logs import Logs
from ..metastore.rolled_stream import RolledStream
from ..store.tree_nodes import loading


async def was_removed(logs: Logs, name: str, vid: VolumeId) -> bool:
    """As the rollups of the logs say that it moved through, from that one on. Raises Corrupt, Unavailable."""
    seen = set[str]()
    while name not in seen:
        seen.add(name)
        state = await loading(RolledStream((await logs.get(name)).rolled, str(vid)).state)
        if state is None:
            break
        last = state.stays[-1]
        if last.closed is None:
            return state.finished and last.since > last.head
        name, _ = last.closed
    return False
