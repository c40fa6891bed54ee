"""Removed: what the rollups of logs say of volumes that were removed. One without a birth was removed, or its birth is
only missing."""

from __future__ import annotations

from ...volume.errors import NotFound
from ...volume.ids import VolumeId
from ...volume.records import Fold, FoldRelocating
from ...volume.rollup import FORK
from ..metastore.logs import Logs
from ..metastore.open_volume import Volume
from ..metastore.open_volumes import Volumes
from ..metastore.rolled_stream import RolledStream
from ..store.tree_nodes import loading


def nothing_left(stream: RolledStream, fold: Fold) -> bool:
    """Whether the volume's newest fold has left nothing of it, so that a collector takes the rest. Then it was removed,
    and nobody can pin or fork it any more. One that has relocated has all its commits yet; and one whose forks live is
    what they begin with. Raises NotLoaded."""
    return fold.tree is None and not isinstance(fold, FoldRelocating) and next(stream.between(FORK), None) is None


async def find_unless_gone(volumes: Volumes, log: str, vid: VolumeId, *, fresh: bool = False) -> Volume | None:
    """None where it was removed, and is gone; `log` is one that it is in, or was. Raises NotFound where only its birth
    is missing, and whatever else keeps it from being read."""
    try:
        return await volumes.get(vid, fresh=fresh)
    except NotFound:
        if not await was_removed(volumes.logs, log, vid):
            raise
        return None


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
