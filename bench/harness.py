"""The bench's harness: ratios from interleaved runs, printed as they are.

Machines are shared and noisy, so no figure here is one absolute time: the two sides of a ratio take turns within one
run, in alternating order, and the figure is the median of the rounds' ratios. A figure that misses its bound is
printed like any other, marked, and the process still ends with 0: a bench reports, it doesn't judge.
"""

from __future__ import annotations

import json
import platform
import statistics
import sys
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.table import Table

RESULTS = Path(__file__).parent / "results"
ROUNDS = 7


@dataclass
class Figure:
    """One line of a table: what was measured, and the bound it was meant to keep: at most, or with `least` at least."""

    name: str
    value: float
    unit: str
    bound: float | None = None
    rounds: list[float] = field(default_factory=list[float])
    note: str = ""
    least: bool = False

    @property
    def kept(self) -> bool | None:
        if self.bound is None:
            return None
        return self.value >= self.bound if self.least else self.value <= self.bound


def timed(action: Callable[[], object]) -> float:
    """Seconds."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def take_turns(sides: Mapping[str, Callable[[], float]], rounds: int = ROUNDS) -> dict[str, list[float]]:
    """What each side says that it took, round by round, after one round to warm up. Another begins each time."""
    for run in sides.values():
        run()
    names = list(sides)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            seconds[name].append(sides[name]())
    return seconds


def compare(
    name: str,
    ours: Callable[[], object],
    theirs: Callable[[], object],
    bound: float,
    *,
    rounds: int = ROUNDS,
    note: str = "",
) -> Figure:
    """The median over `rounds` of (ours / theirs)."""
    seconds = take_turns({"theirs": lambda: timed(theirs), "ours": lambda: timed(ours)}, rounds)
    ratios = [mine / other for mine, other in zip(seconds["ours"], seconds["theirs"], strict=True)]
    detail = f"{statistics.median(seconds['ours']) * 1e3:.1f} ms a round; {note}".rstrip("; ")
    return Figure(name, statistics.median(ratios), "×", bound, ratios, detail)


@contextmanager
def scratch() -> Generator[Path]:
    """A directory on a real disk: BUDWOOD_BENCH_DIR, else beside this file (a /tmp in memory would flatter fsync)."""
    import os

    parent = Path(os.environ.get("BUDWOOD_BENCH_DIR", RESULTS))
    parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=parent, prefix="run-") as made:
        yield Path(made)


def report(title: str, figures: list[Figure]) -> None:
    """Print a table, and keep the figures as JSON under bench/results/."""
    table = Table(title=title, title_justify="left")
    for column, justify in (
        ("figure", "left"),
        ("median", "right"),
        ("spread", "right"),
        ("bound", "right"),
        ("", "left"),
    ):
        table.add_column(column, justify="right" if justify == "right" else "left")
    for figure in figures:
        spread = f"{min(figure.rounds):.2f}–{max(figure.rounds):.2f}" if figure.rounds else ""
        bound = "" if figure.bound is None else f"{'≥' if figure.least else '≤'} {figure.bound:g}{figure.unit}"
        mark = {None: "", True: "kept", False: "[bold]missed[/]"}[figure.kept]
        label = f"{figure.name}\n  [dim]{figure.note}[/]" if figure.note else figure.name
        table.add_row(label, f"{figure.value:.2f}{figure.unit}", spread, bound, mark)
    Console(width=None if sys.stdout.isatty() else 120).print(table)
    RESULTS.mkdir(exist_ok=True)
    kept = {"python": platform.python_version(), "machine": platform.machine(), "figures": [asdict(f) for f in figures]}
    (RESULTS / f"{title.split(':')[0].strip().replace(' ', '-')}.json").write_text(json.dumps(kept, indent=2) + "\n")
