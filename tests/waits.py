"""Waits: a test waits for a condition, and one generous limit ends what would never come.

    wait_until(lambda: path.exists())
    child.communicate(timeout=LIMIT_SECONDS)

The limit measures nothing. A machine may run eight other programs on each of its processors, so nobody's limit is
shorter than this one; BUDWOOD_TEST_LIMIT_SECONDS makes it longer, or shorter for whoever looks for a hang. How long
something takes is the benches' to tell (bench/); what a test counts are requests, rows and calls. A test that hangs
where no limit reaches ends by pytest's own, which prints every thread's stack (`faulthandler_timeout`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import anyio

LIMIT_SECONDS: Final = float(os.environ.get("BUDWOOD_TEST_LIMIT_SECONDS", "300"))

OVERDUE: Final = "the limit of a wait was reached"
"""Stands in every failure of `wait_until`; the mutants' runner tells by it that time alone may have failed a test."""

_PAUSE_SECONDS: Final = 0.01


T = TypeVar("T")


def wait_until(holds: Callable[[], T], seconds: float = LIMIT_SECONDS) -> T:
    """Return as soon as `holds()` is true, with what it gave; fails at the limit."""
    end = time.monotonic() + seconds
    while not (found := holds()):
        assert time.monotonic() < end, f"{OVERDUE}: {seconds:.0f} s"
        time.sleep(_PAUSE_SECONDS)
    return found


async def until(holds: Callable[[], Awaitable[T]], seconds: float = LIMIT_SECONDS) -> T:
    """The same, where looking is waited for."""
    end = time.monotonic() + seconds
    while not (found := await holds()):
        assert time.monotonic() < end, f"{OVERDUE}: {seconds:.0f} s"
        await anyio.sleep(_PAUSE_SECONDS)
    return found
