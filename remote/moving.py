"""Moving: a volume goes to another log while it is used (server/metastore/move.py; S1.23).

The node that is to have it reads it first, and again for as long as the one that has it says that it has read too
little: so writers wait for a few round trips. Nothing changes until then; whoever is cut off asks for the same again.
"""

from __future__ import annotations

from typing import Final

from ..volume.calls import MOVE_LOG, READY, MoveRequest
from ..volume.errors import Busy, NotOwner, Unavailable
from ..volume.ids import VolumeId
from ..volume.protocols import Remote

MOST_ROUNDS: Final = 16
"""In each a node reads what came while it read before: less and less, since it reads faster than anyone commits."""


async def move_volume(remote: Remote, vid: VolumeId, to: str, *, takeover: bool = False) -> str:
    """The log that the volume is in afterwards: `to` is a node's name or "private". Raises NotOwner, NotFound,
    Unavailable; Busy where it can't be caught up with."""
    for rounds in range(MOST_ROUNDS, 0, -1):
        ready = -1 if to == "private" else await _ready(remote, vid, to, takeover)
        try:
            request = MoveRequest(vid.raw, to=to, takeover=takeover, ready=ready)
            return (await remote.ask(MOVE_LOG, request)).log
        except Busy:
            if rounds == 1 or to == "private":
                raise
    raise AssertionError


async def _ready(remote: Remote, vid: VolumeId, to: str, takeover: bool) -> int:
    try:
        return (await remote.ask(READY, MoveRequest(vid.raw, to=to))).slot
    except (NotOwner, Unavailable):
        if not takeover:
            raise
        # Its owner is gone, too.
        return -1
