"""Soak: schedules of whole deployments on a simulated clock, network and store (testing/simulation).

Each seed that finds something is told on standard output as soon as it is done, with the last events before it, and
the exit status is 1. The same seed does the same again, with the same version of Budwood.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ..volume.errors import BadInput, BudwoodError
from .common_options import Context, option
from .output import count_of, printable, say
from .progress import progress_line

if TYPE_CHECKING:
    from ..testing.simulation.schedule import Outcome

_SEEDS: Final = re.compile(r"(\d{1,18})(?:-(\d{1,18}))?", re.ASCII)
_TOLD_EVENTS: Final = 60
_MOST_JOBS: Final = 256


def soak(
    _context: Context,
    seeds: Annotated[str, option("--seeds", "A-B", "The first and the last seed; or one alone, to replay it.")],
    steps: Annotated[
        int | None,
        typer.Option("--steps", metavar="N", min=1, help="Of all actors together; 35 by default.", show_default=False),
    ] = None,
    jobs: Annotated[
        int, typer.Option("--jobs", metavar="N", min=1, max=_MOST_JOBS, help="Processes that share the seeds.")
    ] = 1,
) -> None:
    """Run simulated deployments, one for each seed, and tell what does not hold."""
    chosen = _seeds_of(seeds)
    try:
        from ..testing.simulation.schedule import STEPS
        from ..testing.simulation.soak import outcomes
    except ModuleNotFoundError as error:
        raise BudwoodError(f"simulating needs the package {error.name!r}: pip install 'budwood[testing]'") from error
    began, done, events, hours, failed = time.monotonic(), 0, 0, 0.0, list[int]()
    with (
        progress_line() as line,
        outcomes(chosen, steps=STEPS if steps is None else steps, jobs=jobs) as found,
    ):
        for outcome in found:
            done, events, hours = done + 1, events + outcome.events, hours + outcome.hours
            if outcome.violation is not None:
                failed.append(outcome.seed)
                _tell(outcome)
            violations = count_of(len(failed), "violation")
            line(f"{done:,} of {count_of(len(chosen), 'schedule')}, {count_of(events, 'event')}, {violations}")
    minutes = (time.monotonic() - began) / 60
    figures = [
        count_of(done, "schedule"),
        count_of(events, "event"),
        f"{hours / 24:,.0f} days simulated",
        f"{minutes:.1f} minutes",
        count_of(len(failed), "violation"),
    ]
    say(", ".join(figures))
    if failed:
        given = "" if steps is None else f" --steps {steps}"
        replay = "; ".join(f"budwood soak --seeds {seed}{given}" for seed in failed[:5])
        say(f"seeds {', '.join(map(str, failed))}: {replay}")
        raise typer.Exit(1)


VERBS: Final[dict[str, Callable[..., None]]] = {"soak": soak}


def _seeds_of(text: str) -> range:
    """Raises BadInput."""
    found = _SEEDS.fullmatch(text)
    first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
    if last < first:
        raise BadInput(f"{text!r} names no seeds: write the first and the last one, as 1-1000, or one alone")
    return range(first, last + 1)


def _tell(outcome: Outcome) -> None:
    say(printable(f"seed {outcome.seed}: {outcome.violation}"))
    for event in outcome.trace[-_TOLD_EVENTS:]:
        say(printable(f"  {event}"))
    sys.stdout.flush()
