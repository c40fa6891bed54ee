"""Listing: the logs of a store, by one LIST for each, however many objects each has."""

from __future__ import annotations

from functools import partial

from ...volume.errors import NotFound
from ..store.protocol import Store
from ..store.retrying import Patience, retried

_LOGS = "logs/"


async def next_log(store: Store, log: str, patience: Patience, *, itself: bool = False) -> str:
    """The first of the logs after that one, or of all if it is ""; "" behind the last. With `itself` that one counts,
    if it stands. Raises Unavailable, Unauthorized."""
    # '0' follows '/', so this lies behind all that the log has.
    start = f"{_LOGS}{log}{'/' if itself else '0'}" if log else ""
    keys = await retried(f"list {_LOGS}", partial(store.list, _LOGS, start=start, limit=1), patience)
    return keys[0].split("/")[1] if keys else ""


async def newest_entry(store: Store, log: str, patience: Patience) -> str:
    """The key of the log's newest; "" where it has none. Raises Unavailable, Unauthorized."""
    prefix = f"{_LOGS}{log}/entries/"
    keys = await retried(f"list {prefix}", partial(store.list, prefix, limit=1), patience)
    return keys[0] if keys else ""


async def check_log(store: Store, log: str, patience: Patience) -> None:
    """Raises NotFound if there is none of that name, Unavailable, Unauthorized."""
    if await next_log(store, log, patience, itself=True) != log:
        raise NotFound(f"there is no log {log!r} in this store")
