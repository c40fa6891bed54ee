"""Forked steps: what a home does in a child that dies at a fault point, stops there, or passes it and says so.

A child is forked and not started: it has imported everything, and a case takes a tenth of a second. What forks it must
not have the home open.
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
from typing import Final

import budwood.sync.push
from budwood.volume import faults

from ..power.program import small_journal

DIED: Final = -signal.SIGKILL
STOPPED: Final = signal.SIGSTOP

Rows = dict[str, set[int]]


class Town:
    """A folder with a home and its store, always at the same path, and one beside to take it from."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "town"
        self.folder.mkdir()
        self._said = folder / "said"
        self._trace = folder / "trace"
        self._numbers = count(1)

    def kept(self) -> Path:
        """As it is now."""
        beside = self.folder.with_name(f"kept-{next(self._numbers)}")
        shutil.copytree(self.folder, beside)
        return beside

    def back(self, kept: Path) -> None:
        shutil.rmtree(self.folder)
        shutil.copytree(kept, self.folder)

    def run(self, action: Callable[[], object], *, cut: str = "", traced: bool = False) -> int:
        """How it ended: 0, DIED, or 1 with a traceback in `said`. It dies at `cut`, as "point#n"."""
        return ended(self.start(action, cut, DIED, traced=traced))

    def stop(self, action: Callable[[], object], at: str) -> int | None:
        """A child that has stopped at the point; None if it never came there."""
        pid = self.start(action, at, -STOPPED)
        return pid if os.WIFSTOPPED(os.waitpid(pid, os.WUNTRACED)[1]) else None

    def start(self, action: Callable[[], object], at: str = "", by: int = DIED, *, traced: bool = False) -> int:
        pid = os.fork()
        if pid:
            return pid
        try:
            small_journal()
            # Each segment is noted: the pushes of these tests have few.
            budwood.sync.push.NOTED_BYTES = 1
            for name in faults.registered() if traced else ():
                faults.arm(name, partial(self._note, name))
            if at:
                name, _, nth = at.partition("#")
                times = count(1)
                faults.arm(name, lambda: os.kill(os.getpid(), -by) if next(times) == int(nth) else None)
            action()
        except BaseException:
            self._said.write_text(traceback.format_exc())
            os._exit(1)
        os._exit(0)

    @property
    def said(self) -> str:
        return self._said.read_text()

    def reached(self) -> list[str]:
        """Each point that traced children have come to, at its first time and at its last."""
        names = self._trace.read_text().splitlines() if self._trace.exists() else []
        self._trace.unlink(missing_ok=True)
        return sorted({f"{name}#{nth}" for name in names for nth in (1, names.count(name))})

    def _note(self, name: str) -> None:
        with self._trace.open("a") as file:
            file.write(f"{name}\n")


def ended(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
