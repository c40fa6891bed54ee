"""Listing: the logs of a store, by one LIST for each, however many objects each has."""

from __future__ import annotations

from functools import partial
from typing import Final

from ...volume.errors import BadInput, NotFound
from ...volume.ids import VolumeId, check_node
from ..store.protocol import Store
from ..store.retrying import Patience, retried

_LOGS = "logs/"

_BEHIND_VOLUMES: Final = str(VolumeId(bytes([VolumeId.TYPE, *(255 for _ in range(15))]))) + "~"
"""Sorts behind the private log of every volume, and before no node's name that sorts behind one."""


async def next_log(store: Store, log: str, patience: Patience, *, itself: bool = False) -> str:
    """The first of the logs after that one, or of all if it is ""; "" behind the last. With `itself` that one counts,
    if it stands. Raises Unavailable, Unauthorized."""
    # '0' follows '/', so this lies behind all that the log has.
    start = f"{_LOGS}{log}{'/' if itself else '0'}" if log else ""
    keys = await retried(f"list {_LOGS}", partial(store.list, _LOGS, start=start, limit=1), patience)
    return keys[0].split("/")[1] if keys else ""


async def shared_logs(store: Store, patience: Patience, *, after: str = "", limit: int | None = None) -> list[str]:
    """Those that bear a node's name, however many volumes have a log of their own; so many at most, behind that one.
    Raises Unavailable, Unauthorized."""
    found, name = list[str](), after
    while len(found) != limit and (name := await next_log(store, name, patience)):
        try:
            found.append(check_node(name))
        except BadInput:
            name = _BEHIND_VOLUMES
    return found


async def newest_entry(store: Store, log: str, patience: Patience) -> str:
    """The key of the log's newest; "" where it has none. Raises Unavailable, Unauthorized."""
    prefix = f"{_LOGS}{log}/entries/"
    keys = await retried(f"list {prefix}", partial(store.list, prefix, limit=1), patience)
    return keys[0] if keys else ""


async def check_log(store: Store, log: str, patience: Patience) -> None:
    """Raises NotFound if there is none of that name, Unavailable, Unauthorized."""
    if await next_log(store, log, patience, itself=True) != log:
        raise NotFound(f"there is no log {log!r} in this store")
