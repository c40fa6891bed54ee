"""Run: programs are recorded, and the states of their disk judged."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

import budwood

from ..passed_through import passed_through
from ..waits import LIMIT_SECONDS
from .disk import Disk, Step, notes_of, read_log
from .program import small_journal
from .verdict import Promises, judge, rows_of

Way = tuple[str, str]
"""A program's name, and its `synchronous`."""
Judge = Callable[[Path, int], None]
"""Of a folder as a disk may have had it at that cut; raises if it isn't what it was to be."""


class Recorded(NamedTuple):
    """What programs did to a folder."""

    before: Path
    """A copy of the folder as it was."""
    inodes: dict[str, int]
    """Of what was in it."""
    notes: dict[int, str]
    """The programs by the inodes of their notes."""
    steps: list[Step]
    found: dict[str, set[tuple[str, int]]]
    """What the programs found there."""

    @property
    def promises(self) -> Promises:
        promises = Promises(before=self.found)
        for inode, who in self.notes.items():
            for number, line in notes_of(self.steps, inode):
                promises.note(number, who, line)
        return promises

    def disks(self) -> Iterator[tuple[int, Disk]]:
        """The disk before each step, and after the last."""
        disk = Disk(self.before, self.inodes)
        for number, step in enumerate(self.steps):
            yield number, disk
            disk.take(step)
        yield len(self.steps), disk


def recording(folder: Path, directory: Path, log: Path) -> AbstractContextManager[None]:
    return passed_through("tests.power.recorder", folder, directory, log)


def record(
    place: Path, ways: list[Way], commits: int, seed: int, disk: Disk | None = None, *, made: bool = True
) -> Recorded:
    """In an empty folder: what programs do to a new home, which they make themselves unless it is `made`, or to one of
    the states of a disk.
    """
    before, directory, log = place / "before", place / "directory", place / "log"
    before.mkdir()
    directory.mkdir()
    found: dict[str, set[tuple[str, int]]] = {}
    if disk is None and made:
        with budwood.open(home=before / "home", remote="") as edge:
            edge.create("first")
    elif disk is not None:
        disk.put(before, random.Random(f"{seed} again"))
        with tempfile.TemporaryDirectory(dir=place) as copy:
            shutil.copytree(before, copy, dirs_exist_ok=True)
            with budwood.open(home=Path(copy) / "home", remote="") as edge:
                volumes = [row["name"] for row in edge.ls()]
            found = rows_of(Path(copy) / "home", volumes)
    folder = place / "folder"
    shutil.copytree(before, folder)
    inodes = {str(path.relative_to(folder)): path.stat().st_ino for path in [folder, *folder.rglob("*")]}
    with recording(folder, directory, log):
        told = [str(commits), str(seed)]
        command = [sys.executable, "-P", "-m", "budwood.tests.power.program", str(directory)]
        programs = [subprocess.Popen([*command, *way, *told]) for way in ways]
        try:
            for program in programs:
                assert program.wait(LIMIT_SECONDS) == 0
        finally:
            for program in programs:
                program.kill()
                program.wait()
    notes = {(folder / f"notes.{name}").stat().st_ino: name for name, _ in ways}
    return Recorded(before, inodes, notes, read_log(log), found)


def record_again(place: Path, recorded: Recorded, ways: list[Way], commits: int, seed: int) -> Recorded:
    """In an empty folder: what programs do after a power loss somewhere in what was recorded."""
    chosen = random.Random(f"{seed} when").randrange(len(recorded.steps))
    disk = next(disk for cut, disk in recorded.disks() if cut == chosen)
    return record(place, ways, commits, seed, disk)


def judge_commits(recorded: Recorded, states: int, seed: int, scratch: Path) -> int:
    """`judge_states` by what its programs were promised."""
    promises = recorded.promises
    return judge_states(recorded, lambda folder, cut: judge(folder / "home", promises, cut), states, seed, scratch)


def judge_states(
    recorded: Recorded, judge: Judge, states: int, seed: int, scratch: Path, cuts: Collection[int] | None = None
) -> int:
    """Draw so many states, spread over all cuts or those that are given; how many were judged. Raises
    AssertionError.
    """
    small_journal()
    judged = 0
    cuts = range(len(recorded.steps) + 1) if cuts is None else cuts
    for cut, disk in recorded.disks():
        # A note is no write of the home's.
        if cut < len(recorded.steps) and recorded.steps[cut][0] == "write" and recorded.steps[cut][1] in recorded.notes:
            continue
        if cut not in cuts:
            continue
        randomness = random.Random(f"{seed} {cut}")
        expected = states / len(cuts)
        for number in range(int(expected) + (randomness.random() < expected % 1)):
            way = None if number == 0 and randomness.random() < 0.1 else random.Random(f"{seed} {cut} {number}")
            judge_state(disk, way, judge, cut, scratch)
            judged += 1
    return judged


def judge_promise(recorded: Recorded, judge: Judge, states: int, scratch: Path) -> None:
    """So many states at the moment at which the first note was made. Raises AssertionError."""
    small_journal()
    told = next(step for step, what in enumerate(recorded.steps) if what[0] == "write" and what[1] in recorded.notes)
    disk = next(disk for cut, disk in recorded.disks() if cut == told)
    for number in range(states):
        judge_state(disk, random.Random(number), judge, told, scratch)


def judge_state(disk: Disk, way: random.Random | None, judge: Judge, cut: int, scratch: Path) -> None:
    with tempfile.TemporaryDirectory(dir=scratch) as place:
        disk.put(Path(place), way)
        try:
            judge(Path(place), cut)
        except Exception as error:
            kept = tempfile.mkdtemp(prefix=f"failed-{cut}-", dir=scratch)
            shutil.copytree(place, kept, dirs_exist_ok=True)
            raise AssertionError(f"a state at cut {cut}, kept at {kept}: {error!r}") from error
