"""Awaited: the snapshot of an LSN that is still to come (S3.17).

    info = await snapshot_when(remote, vid, 9, wait_seconds=60)

It waits for the volume's upper to pass that LSN, by long polls, so that nothing is asked again and again; and then the
snapshot is what it is for everybody, for ever. A remote that doesn't answer for a while is asked again as long as there
is time.
"""

from __future__ import annotations

from typing import Final

import anyio

from ..volume.calls import SNAPSHOT, WAIT, SnapshotRequest, WaitRequest
from ..volume.errors import Unavailable
from ..volume.ids import VolumeId
from ..volume.protocols import Remote
from ..volume.wire import SnapshotInfo
from .listening import WAIT_SECONDS

_PAUSE_SECONDS: Final = 1.0


async def snapshot_when(remote: Remote, vid: VolumeId, lsn: int, *, wait_seconds: float) -> SnapshotInfo:
    """The snapshot at that LSN, as soon as it was made. Raises NotFound if it wasn't by then, Forgotten, Unavailable if
    nobody answered in the end."""
    end = anyio.current_time() + wait_seconds
    while (left := end - anyio.current_time()) > 0:
        try:
            request = WaitRequest(vid.raw, after=lsn - 1, timeout_seconds=min(left, WAIT_SECONDS))
            if (await remote.ask(WAIT, request)).lsn >= lsn:
                break
        except Unavailable:
            if anyio.current_time() + _PAUSE_SECONDS >= end:
                raise
            await anyio.sleep(_PAUSE_SECONDS)
    return await remote.ask(SNAPSHOT, SnapshotRequest(vid.raw, lsn=lsn))
