"""Listing: the logs of a store, by one LIST for each, however many objects each has; and less for those that are over,
of which one object is left."""

from __future__ import annotations

from enum import Enum
from functools import partial
from typing import Final

from ...volume.errors import BadInput, NotFound
from ...volume.ids import VolumeId, check_node
from ..store.protocol import Store
from ..store.retrying import Patience, retried
from .boundary import OVER, boundary_key

_LOGS: Final = "logs/"

_MOST_OVER: Final = 1000
"""Keys of a LIST, where all of those before were of logs that are over."""

_BEHIND_VOLUMES: Final = str(VolumeId(bytes([VolumeId.TYPE, *(255 for _ in range(15))]))) + "~"
"""Sorts behind the private log of every volume, and before no node's name that sorts behind one."""


class Over(Enum):
    """Whether logs that are over count (boundary.py)."""

    PASSED = "passed over"
    CLEARED_PASSED = "passed over, unless more is left of them than their boundary"
    COUNTED = "counted"


async def next_log(
    store: Store, log: str, patience: Patience, *, itself: bool = False, over: Over = Over.PASSED
) -> str:
    """The first of the logs after that one, or of all if it is ""; "" behind the last. With `itself` that one counts,
    if it stands. Raises Unavailable, Unauthorized."""
    # '0' follows '/', so this lies behind all that the log has.
    start, limit = f"{_LOGS}{log}{'/' if itself else '0'}" if log else "", 1
    while keys := await retried(f"list {_LOGS}", partial(store.list, _LOGS, start=start, limit=limit), patience):
        is_over = ""
        for key in keys:
            name = key.split("/")[1]
            if over is not Over.COUNTED and key == boundary_key(name, OVER):
                is_over = name
            elif name != is_over or over is Over.CLEARED_PASSED:
                return name
        start = f"{_LOGS}{is_over}0" if over is Over.PASSED else f"{keys[-1]}\0"
        limit = min(4 * limit, _MOST_OVER)
    return ""


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
    if await next_log(store, log, patience, itself=True, over=Over.CLEARED_PASSED) != log:
        raise NotFound(f"there is no log {log!r} in this store")
