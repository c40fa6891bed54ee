"""Left behind: logs of this node's workers for whom there is no worker any more, since fewer are started by now.

Whoever they fall to (share.py) takes them as it starts, so that their volumes can be written as ever. What another node
has taken meanwhile, or made under such a name, is left alone: the newest epoch says whose it is.
"""

from __future__ import annotations

import logging
from typing import Final

from ...volume.errors import NotOwner
from ..log.listing import next_log
from .log_ownership import Takeover
from .logs import Logs
from .share import Share, logs_behind

_logger: Final = logging.getLogger(__name__)


async def take_left_behind(logs: Logs, share: Share) -> None:
    """One LIST where there are none. Raises Unavailable, Unauthorized, Corrupt."""
    store, patience, begin = logs.store, logs.patience, logs_behind(share.node)
    name = await next_log(store, begin, patience, itself=True)
    while name.startswith(begin):
        if share.is_left_behind(name):
            await _take(logs, share, name)
        name = await next_log(store, name, patience)


async def _take(logs: Logs, share: Share, name: str) -> None:
    log = await logs.get(name)
    owner = await logs.owner(log)
    if owner is None or owner.node != share.node:
        return
    try:
        await logs.take_over(log, Takeover.IF_GONE, stays=True)
    except NotOwner as error:
        _logger.warning("%s", error)
