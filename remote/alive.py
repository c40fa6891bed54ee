"""Alive: whether the node that a log names as its owner still answers (DESIGN §5, failover).

An answer proves life; silence proves nothing, and nothing here relies on it: who is wrongly taken for dead is fenced,
not corrupted.
"""

from __future__ import annotations

from typing import Final

from ..volume.errors import BudwoodError
from .http import HttpRemote, Timing
from .routed import base_url

__all__ = ["is_alive"]

ALIVE_SECONDS: Final = 2.0


async def is_alive(address: str, log: str, epoch: int) -> bool:
    """Whether the node at `address` answers within 2 s that it owns `log`, under this epoch or a newer one."""
    if not address:
        return False
    timing = Timing(connect_seconds=ALIVE_SECONDS, read_seconds=ALIVE_SECONDS, retry_seconds=0.0)
    remote = HttpRemote(base_url(address), timing=timing)
    try:
        told = await remote.health()
    except BudwoodError:
        return False
    finally:
        await remote.aclose()
    return told.log == log and told.epoch >= epoch
