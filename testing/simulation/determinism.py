"""Determinism: everything that a run draws comes from its seed, and nothing from the machine.

Inside `determined(seed)`, and in `run` under it:

- trio runs its tasks in an order that the seed gives, on a clock that jumps to the next deadline as soon as nobody can
  go on; so days take no time;
- random bytes and the time of day, as `os.urandom` and `time.time_ns` give them, are the seed's and the clock's;
- what product code does in a thread is done at once, in its caller's place;
- objects die when the last reference to them goes, and not when a collection happens to come by.

This changes modules of the standard library for as long as it lasts: a process that simulates does nothing else
meanwhile.
"""

from __future__ import annotations

import gc
import math
import os
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import ExitStack, contextmanager
from random import Random
from typing import Any, Final
from unittest.mock import patch

import anyio.to_thread
import trio
from anyio.lowlevel import checkpoint
from trio._core import _run as scheduler  # pyright: ignore[reportPrivateUsage]

from ...volume import faults

BEGINNING_MS: Final = 1_700_000_000_000
"""The time of day at which every run begins."""


def true_ms() -> int:
    """Milliseconds since the Unix epoch, by the one clock that doesn't lie."""
    return BEGINNING_MS + round(trio.current_time() * 1000)


@contextmanager
def determined(seed: int) -> Generator[None]:
    """See above. Nothing in it can be nested."""
    bytes_of, draws = Random(f"bytes {seed}"), _draws()
    order = draws.getstate()
    collects = gc.isenabled()
    with ExitStack() as stack:
        stack.callback(draws.setstate, order)
        stack.callback(faults.disarm)
        stack.enter_context(patch.object(scheduler, "_ALLOW_DETERMINISTIC_SCHEDULING", True))
        stack.enter_context(patch.object(os, "urandom", bytes_of.randbytes))
        stack.enter_context(patch.object(time, "time_ns", lambda: true_ms() * 1_000_000))
        stack.enter_context(patch.object(anyio.to_thread, "run_sync", _at_once))
        draws.seed(seed)
        gc.disable()
        try:
            yield
        finally:
            if collects:
                gc.enable()


def _draws() -> Random:
    """What trio shuffles its tasks by. It has no public name; Hypothesis goes by it too."""
    return scheduler._r  # pyright: ignore[reportPrivateUsage]


def run(main: Callable[[], Awaitable[Any]]) -> None:
    """`main`, on a clock that begins at 0."""
    trio.run(main, clock=_Jumping())


class _Jumping(trio.abc.Clock):
    """Is at the next deadline as soon as all wait for one."""

    def __init__(self) -> None:
        self._now = 0.0
        self._idle = 0

    def start_clock(self) -> None:
        """It doesn't run."""

    def current_time(self) -> float:
        return self._now

    def deadline_to_sleep_time(self, deadline: float) -> float:
        if math.isfinite(deadline):
            self._now, self._idle = max(self._now, deadline), 0
        else:
            # As trio begins and ends it waits for itself alone.
            self._idle += 1
            assert self._idle < 1000, "everybody waits, and for no time that ever comes"
        return 0.0


async def _at_once(work: Callable[..., Any], *arguments: Any, **_options: Any) -> Any:
    await checkpoint()
    return work(*arguments)
