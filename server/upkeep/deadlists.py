"""Deadlists of a volume's folds, as they stand (S1.14).

A deadlist has the one before it among its objects, which goes last of them. So those that stand are the newest and an
unbroken row before it, whatever became of whoever deleted.
"""

from __future__ import annotations

from ...volume.checkpoint import Deadlist, deadlist_key, open_deadlist
from ...volume.errors import Corrupt, NotFound
from ..store.protocol import Store
from ..store.retrying import Patience, get_retried


async def read_deadlist(store: Store, checkpoint: str, patience: Patience) -> Deadlist | None:
    """None where it doesn't stand. Raises Corrupt, Unsupported, Unavailable."""
    key = deadlist_key(checkpoint)
    try:
        data = await get_retried(store, key, patience=patience)
    except NotFound:
        return None
    deadlist = open_deadlist(key, data)
    if deadlist.checkpoint != checkpoint:
        raise Corrupt(key, f"it says that it is that of {deadlist.checkpoint}")
    return deadlist
