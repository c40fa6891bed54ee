"""Progress: a bar on standard error while long work runs, if someone watches.

Without a terminal on standard error nothing is drawn and nothing is loaded, so that logs and pipes stay clean. Work
that ends within half a second shows no bar at all.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final, TypeAlias

Step: TypeAlias = Callable[[int, int], None]
"""Told how many pages are done, or what else is counted, and of how many."""

Line: TypeAlias = Callable[[str], None]
"""Told what is being done now."""

_PATIENCE_SECONDS: Final = 0.5


@contextmanager
def progress(doing: str, *, quiet: bool = False, unit: str = "pages") -> Generator[Step | None]:
    """Give what comes out of this to the work as its `progress`; `doing` says what it does, as "pushing inventory"."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TextColumn(unit))
    bar = Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True)
    task = bar.add_task(doing, total=None)
    began = time.monotonic()

    def step(done: int, total: int) -> None:
        bar.update(task, completed=done, total=total)
        if not bar.live.is_started and time.monotonic() - began > _PATIENCE_SECONDS:
            bar.start()

    try:
        yield step
    finally:
        if bar.live.is_started:
            bar.stop()


@contextmanager
def progress_line() -> Generator[Line]:
    """The same for work whose end nobody knows: a line that says how far it has come."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    # What is printed to the same terminal meanwhile goes above it.
    bar = Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=sys.stdout.isatty())
    task = bar.add_task("", total=None)
    with bar:
        yield lambda words: bar.update(task, description=words)
