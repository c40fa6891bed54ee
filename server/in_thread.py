"""In a thread: work that would hold up the event loop of a node, also where no thread is to be had at once."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar, TypeVarTuple

import anyio
from anyio import CapacityLimiter, to_thread

from ..volume.thread_limit import run_patiently

T = TypeVar("T")
Args = TypeVarTuple("Args")


async def in_thread(
    work: Callable[[*Args], T],
    *args: *Args,
    limiter: CapacityLimiter | None = None,
    abandon_on_cancel: bool = False,
) -> T:
    """As anyio.to_thread.run_sync. Raises Unavailable where the system gives this process no thread for a while."""
    run = partial(to_thread.run_sync, abandon_on_cancel=abandon_on_cancel, limiter=limiter)
    return await run_patiently(run, partial(work, *args), anyio.sleep)
