"""A home whose process is killed at each point of what it does, and the next one at each point of doing it again and of
what comes after: the third finds all that was told, ends what was begun, and pushes what a new home then reads.

By default each eighth of the first points, and of the second; `KILLS=1` takes each of them.
"""

from __future__ import annotations

import os
import shutil
import signal
import traceback
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path

import pytest

import budwood.sync.push
from budwood.volume import faults

from ..power.program import small_journal
from .test_each_refusal import STEPS, Place, make_origin, proven

EACH = int(os.environ.get("KILLS", "8"))
DIED = -signal.SIGKILL

Rows = dict[str, set[int]]


class Town:
    """A folder with a home and its store, always at the same path, and one beside to take it from."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "town"
        self._said = folder / "said"
        self._numbers = count(1)

    def kept(self) -> Path:
        """As it is now."""
        beside = self.folder.with_name(f"kept-{next(self._numbers)}")
        shutil.copytree(self.folder, beside)
        return beside

    def back(self, kept: Path) -> None:
        shutil.rmtree(self.folder)
        shutil.copytree(kept, self.folder)

    def child(self, action: Callable[[], object], *, cut: str = "", trace: Path | None = None) -> int:
        """How it ended: 0, DIED, or 1 with a traceback in `said`."""
        pid = os.fork()
        if pid:
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        try:
            small_journal()
            # Each segment is noted: the pushes of these tests have few.
            budwood.sync.push.NOTED_BYTES = 1
            if trace is not None:
                for name in faults.registered():
                    faults.arm(name, partial(_note, trace, name))
            if cut:
                name, _, nth = cut.partition("#")
                left = iter(range(int(nth) - 1))
                faults.arm(name, lambda: None if next(left, None) is not None else os.kill(os.getpid(), signal.SIGKILL))
            action()
        except BaseException:
            self._said.write_text(traceback.format_exc())
            os._exit(1)
        os._exit(0)

    @property
    def said(self) -> str:
        return self._said.read_text()


def _note(trace: Path, name: str) -> None:
    with trace.open("a") as file:
        file.write(f"{name}\n")


def reached(trace: Path) -> list[str]:
    """Each point at its first time and at its last, as "point#n"."""
    names = trace.read_text().splitlines() if trace.exists() else []
    trace.unlink(missing_ok=True)
    return sorted({f"{name}#{nth}" for name in names for nth in (1, names.count(name))})


@pytest.mark.parametrize("step", STEPS)
def test_who_is_killed_twice_has_lost_nothing_and_ends_what_was_begun(tmp_path: Path, step: str) -> None:
    town, trace = Town(tmp_path), tmp_path / "trace"
    town.folder.mkdir()
    assert town.child(lambda: make_origin(town.folder)) == 0, town.said
    told: Rows = {"shared": {0, 2}, "ours": {0, 1}, "alone": {0}, "large": {0}}
    origin = town.kept()

    def place() -> Place:
        return Place(town.folder / "home", town.folder / "store", told)

    def begin() -> None:
        STEPS[step](place())

    def go_on() -> None:
        there = place()
        STEPS[step](there)
        proven(there, town.folder / "fresh", told)

    assert town.child(begin, trace=trace) == 0, town.said
    first = reached(trace)
    assert first
    cases = count()
    for point in first[::EACH]:
        town.back(origin)
        assert town.child(begin, cut=point) == DIED, point
        cut = town.kept()
        assert town.child(go_on, trace=trace) == 0, f"{point}: {town.said}"
        for again in reached(trace):
            if next(cases) % EACH:
                continue
            town.back(cut)
            # What runs beside the step may pass a point less often than it did.
            if town.child(go_on, cut=again) == DIED:
                assert town.child(go_on) == 0, f"{point}, then {again}: {town.said}"
        shutil.rmtree(cut)
