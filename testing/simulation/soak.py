"""Soak: many schedules, one after another or in several processes, whose outcomes come in the order of their seeds."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final

from .schedule import Outcome, run_schedule

_FEW: Final = 4
"""Seeds that a process is given at once."""


@contextmanager
def outcomes(seeds: Sequence[int], *, steps: int, jobs: int) -> Generator[Iterator[Outcome]]:
    """Ends the processes, whether or not all of it was taken."""
    one = partial(run_schedule, steps=steps)
    if jobs <= 1 or len(seeds) <= 1:
        yield map(one, seeds)
        return
    # Not forked: the caller may have threads.
    with multiprocessing.get_context("spawn").Pool(jobs, _leave_interrupts) as pool:
        yield pool.imap(one, seeds, chunksize=_FEW)


def _leave_interrupts() -> None:
    """To the process that started this one, which ends it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
