"""Removed: what the rollups of logs say of volumes that were removed. One without a birth was removed, or its birth is
only missing."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from ...volume.errors import NotFound
from ...volume.ids import VolumeId
from ...volume.records import Fold, FoldRelocating
from ...volume.rollup import FORK, RolledState
from ..log.boundary import LogIsOver
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
    """As the rollups of the logs say that it moved through, from that one on; or that its own log is over. Raises
    Corrupt, Unavailable."""
    try:
        last = await _last_stay(logs, name, vid)
    except LogIsOver as over:
        return over.log == str(vid)
    return last is not None and _is_finished(last.state)


async def is_over(logs: Logs, name: str, vid: VolumeId) -> bool:
    """Whether nothing is left of it but what logs say, as its newest fold does. Raises Corrupt, Unavailable."""
    last = await _last_stay(logs, name, vid)
    if last is None or not _is_finished(last.state):
        return False
    fold = last.state.stays[-1].fold
    return fold is not None and await loading(partial(nothing_left, last.stream, fold))


class _Last(NamedTuple):
    """Of a volume: what the log says that it was in last."""

    stream: RolledStream
    state: RolledState


async def _last_stay(logs: Logs, name: str, vid: VolumeId) -> _Last | None:
    """None where the rollups don't tell."""
    seen = set[str]()
    while name not in seen:
        seen.add(name)
        stream = RolledStream((await logs.get(name)).rolled, str(vid))
        state = await loading(stream.state)
        if state is None:
            break
        closed = state.stays[-1].closed
        if closed is None:
            return _Last(stream, state)
        name, _ = closed
    return None


def _is_finished(state: RolledState) -> bool:
    last = state.stays[-1]
    return state.finished and last.since > last.head
