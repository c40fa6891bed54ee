"""Runs: which export wrote where, so that what a killed one left is told from what is being written.

A run that is to write says so first: it makes a mark in the table's folder, `_budwood/runs/{number}-{run}`, and then
its files go to `data/{number}-{run}/`. `number` is the number of the commit that the run may become: one more than that
of the table's newest. Tables number their commits without gaps and let nobody commit a number twice, so a run whose
number is not above the newest either became that commit or can never become one. `sweep` needs no clock and no lock
to know that what it removes is dead: not by what an age may suggest, but because a commit of it would be refused.

So files of a run that was killed go with the first sweep after the next commit. Before it commits, a run lists in its
mark the files that its commit takes; all others in its folder were left over by attempts of tasks that failed, and go
with them.

    runs = Runs("file:///lake/shop/orders")
    folder = runs.begin("2f7c", newest + 1)     # executors write there
    runs.keep([…])                              # and then the commit
    runs.sweep(newest, is_committed)

Crash windows (each a fault point, each cut by tests/fault/test_export_killed.py):
  runs: marked, nothing written · runs: files listed, not committed · runs: swept, mark not removed
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import Final

from ...volume import faults
from ...volume.errors import BadInput
from .files import get, join, name_of, names_in, put, remove
from .target import METADATA_FOLDER

DATA: Final = "data"
"""Where data files lie, within the table's folder."""

_MARKED: Final = faults.point("runs: marked, nothing written")
_LISTED: Final = faults.point("runs: files listed, not committed")
_SWEPT: Final = faults.point("runs: swept, mark not removed")

_RUNS: Final = "runs"
_MARK: Final = re.compile(r"(\d{20})-([A-Za-z0-9_-]+)")


class Runs:
    """Of one table, whose folder is `url`. Not for two threads at once."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self._marks = join(self.url, METADATA_FOLDER, _RUNS)
        self.mark = ""
        """The name of the run that began last."""

    def begin(self, run: str, number: int) -> str:
        """Mark the run as one that may become commit `number`; the URL of its folder."""
        name = f"{number:020}-{run}"
        if not _MARK.fullmatch(name):
            raise BadInput(f"{run!r} can't name a run: letters, digits, - and _ can")
        put(join(self._marks, name), b"[]")
        _MARKED()
        self.mark = name
        return self.folder

    @property
    def folder(self) -> str:
        """Of the run that began last."""
        if not self.mark:
            raise BadInput(f"no run has begun at {self.url}: ask for its folder first")
        return join(self.url, DATA, self.mark)

    def keep(self, paths: Iterable[str]) -> None:
        """What the commit takes, of whatever lies in the folder of the run that began last."""
        if self.mark:
            names = sorted(map(name_of, paths))
            put(join(self._marks, self.mark), json.dumps(names).encode())
            _LISTED()

    def unfinished(self) -> bool:
        """Whether there is anything to sweep, or a run under way."""
        return bool(names_in(self._marks))

    def sweep(
        self, newest: int, committed: Callable[[int, str], bool], abandon: Callable[[str], None] | None = None
    ) -> None:
        """`committed` tells whether commit `number` was made by run `run`; `abandon` removes what the format itself
        wrote for a run's commit that never was."""
        for name in sorted(names_in(self._marks)):
            found = _MARK.fullmatch(name)
            if found is None or int(found[1]) > newest:
                continue
            mark, folder = join(self._marks, name), join(self.url, DATA, name)
            stands = committed(int(found[1]), found[2])
            kept: set[str] = set(json.loads(get(mark) or b"[]")) if stands else set()
            if kept:
                for left in names_in(folder).keys() - kept:
                    remove(join(folder, left))
            else:
                remove(folder)
            if abandon is not None and not stands:
                abandon(name)
            _SWEPT()
            remove(mark)
            if name == self.mark:
                # What is committed from now on is not this run's, and doesn't say what lies in its folder.
                self.mark = ""
