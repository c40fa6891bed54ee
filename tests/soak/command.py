"""What the soaks share as commands: their options, their folder, and how they end."""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from .report import Report
from .world import World

PROGRESS_SECONDS: Final = 10.0


def play_rounds(world: World, play_one: Callable[[], None], seconds: float) -> None:
    """One round at least, however long it takes; none after a violation."""
    until = time.monotonic() + seconds
    while not world.over.is_set() and not world.report.violations:
        play_one()
        print(world.report.line(), flush=True)
        if time.monotonic() >= until:
            return


def run(module: str, description: str, soak: Callable[[World, float], None], arguments: list[str]) -> int:
    """The exit status. The folder stays where something was violated."""
    options = argparse.ArgumentParser(prog=f"python -m {module}", description=description)
    options.add_argument("--minutes", type=float, default=1.0)
    options.add_argument("--seed", type=int, default=None, help="drawn, and told, if not given")
    chosen = options.parse_args(arguments)
    seed = random.SystemRandom().randrange(1 << 32) if chosen.seed is None else chosen.seed
    folder = Path(tempfile.mkdtemp(prefix="budwood-soak-")).resolve()
    print(f"seed {seed}, {chosen.minutes:g} minutes, in {folder}", flush=True)
    report = Report()
    world = World(folder, seed, report)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda _number, _frame: world.over.set())
    try:
        soak(world, chosen.minutes * 60)
    finally:
        world.over.set()
        world.children.close()
    print(report.summary(), flush=True)
    print(f"seed {seed}: {'FAILED, see ' + str(folder) if report.violations else 'all held'}", flush=True)
    if not report.violations:
        shutil.rmtree(folder)
    return 1 if report.violations else 0


def play(world: World, actors: Sequence[Callable[[], None]], seconds: float) -> None:
    """All of them at once, for so long or until one breaks; a line of progress now and then."""
    threads = [threading.Thread(target=guarded, args=(world, actor)) for actor in actors]
    for thread in threads:
        thread.start()
    passed = 0.0
    while passed < seconds and world.rest(min(PROGRESS_SECONDS, seconds - passed)):
        passed += PROGRESS_SECONDS
        print(world.report.line(), flush=True)
    world.over.set()
    for thread in threads:
        thread.join()


def guarded(world: World, actor: Callable[[], None]) -> None:
    """An actor that breaks is a violation, and ends the soak; the others come to their end."""
    try:
        actor()
    except Exception as error:
        world.report.violation(f"an actor broke: {error!r}")
        world.over.set()
        raise
