"""Sync run: a home is recorded that works with a store (sync_program.py), and the states of its disk judged.

The store keeps its power: beside each state of the home's disk stands what the store held at that moment. What must
hold, of all states: of each volume the rows that are there are those that were committed first; none is missing that
was told done at FULL, or was pushed; the home pushes what it has, replays it where the other home was first, and pulls,
and then a new home finds on the remote the same rows as it does.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any, Final, NamedTuple

import budwood

from ..waits import LIMIT_SECONDS
from .disk import notes_of, read_log
from .run import Recorded, recording
from .sync_program import HERE, OWN, SHARED, SURE, THEIRS, push

Rows = set[tuple[str, int]]

_NOTES: Final = "notes.sync"


class RecordedSync(NamedTuple):
    recorded: Recorded
    began: Path
    """The store as it was at first."""
    store: Path
    """As it is at the end."""
    notes: list[tuple[int, dict[str, Any]]]
    """Each with its step of the record."""

    def cuts_of_pushes(self) -> set[int]:
        """Where the store has something that the home is pushing, and the home may not know it yet."""
        cuts: set[int] = set()
        is_own, end = False, len(self.recorded.steps)
        for number, line in reversed(self.notes):
            if "object" not in line:
                is_own = "pushed" in line
            elif is_own:
                cuts |= set(range(number + 1, end))
            end = number
        return cuts

    def judge(self, folder: Path, cut: int) -> None:
        """A state of the disk. Raises AssertionError, and whatever the home raises."""
        said = [line for number, line in self.notes if number < cut]
        place = folder / "store"
        shutil.copytree(self.began, place)
        for line in said:
            if "object" in line:
                (place / line["object"]).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(self.store / line["object"], place / line["object"])
        kept = [line["kept"] for line in said if "kept" in line]
        home = _Home(folder / "home", f"file://{place}")
        before = home.rows(*OWN, SHARED, SURE, *kept)
        before[SHARED] = before[SHARED].union(*(before[name] for name in kept))
        for name in (*OWN, SHARED, SURE):
            _check_own(name, before[name], said)
        with budwood.open(home=home.path, remote=home.remote) as edge:
            here = {row["name"] for row in edge.ls()}
            for name in here & {*OWN, SHARED}:
                push(edge, name)
            for name in here & {SHARED, SURE, THEIRS}:
                edge.volume(name).pull()
            if SURE in here:
                # What it had got may have had no name there yet.
                push(edge, SURE)
        after, fresh = (each.rows(*OWN, SHARED, SURE, THEIRS) for each in (home, _Home(folder / "fresh", home.remote)))
        for name, rows in fresh.items():
            assert name not in here or after[name] == rows, f"{name} is another one on the remote"
            assert {n for who, n in rows if who != HERE} >= _upto(said, "others", name), f"{name} lacks what was pushed"
        assert all(before[name] == fresh[name] for name in OWN)
        assert {n for _, n in fresh[SURE]} >= _upto(said, "done", SURE), "COMMIT had waited for what isn't there"


class _Home(NamedTuple):
    path: Path
    remote: str

    def rows(self, *names: str) -> dict[str, Rows]:
        """Of each volume; none of one that is neither here nor on the remote."""
        with budwood.open(home=self.path, remote=self.remote) as edge:
            known = {row["name"] for row in [*edge.ls(), *edge.ls(remote=True)]}
        return {name: self._rows(name) if name in known else set() for name in names}

    def _rows(self, name: str) -> Rows:
        with closing(budwood.connect(name, home=self.path, remote=self.remote)) as db:
            assert db.execute("PRAGMA integrity_check").get == "ok", name
            if not db.execute("SELECT count(*) FROM sqlite_schema").get:
                return set()
            return {(who, n) for who, n in db.execute("SELECT who, n FROM t")}


def record_sync(place: Path, steps: int, seed: int) -> RecordedSync:
    """In an empty folder: what a home gets of so many steps."""
    before, directory, log = place / "before", place / "directory", place / "log"
    before.mkdir()
    directory.mkdir()
    began, store = place / "began", place / "store"
    with budwood.open(home=before / "home", remote=f"file://{store}") as edge:
        with closing(budwood.connect("first", home=before / "home", remote=edge.remote)) as db:
            db.execute("CREATE TABLE t(n)")
        edge.volume("first").push()
    shutil.copytree(store, began)
    folder = place / "folder"
    shutil.copytree(before, folder)
    inodes = {str(path.relative_to(folder)): path.stat().st_ino for path in [folder, *folder.rglob("*")]}
    told = map(str, (directory, place, steps, seed))
    program = [sys.executable, "-P", "-m", "budwood.tests.power.sync_program", *told]
    with recording(folder, directory, log):
        subprocess.run(program, check=True, timeout=LIMIT_SECONDS)
    said = {(folder / _NOTES).stat().st_ino: "sync"}
    recorded = Recorded(before, inodes, said, read_log(log), {})
    notes = [note for inode in said for note in notes_of(recorded.steps, inode)]
    return RecordedSync(recorded, began, store, notes)


def _check_own(name: str, rows: Rows, said: list[dict[str, Any]]) -> None:
    mine = {n for who, n in rows if who == HERE}
    begun = _upto(said, "begin", name)
    pushed = max((line["upto"] for line in said if line.get("pushed") == name), default=0)
    is_kept = name == SHARED or OWN.get(name) == "full"
    told = _upto(said, "done", name) if is_kept else set(range(1, pushed + 1))
    assert mine <= begun, f"{name} has rows that nobody has written yet: {mine - begun}"
    assert mine >= told, f"{name} lacks {told - mine}"
    assert mine == set(range(1, len(mine) + 1)), f"{name} lacks rows before others: {sorted(mine)}"


def _upto(said: list[dict[str, Any]], kind: str, volume: str) -> set[int]:
    return set(range(1, max((line[kind] for line in said if kind in line and line["volume"] == volume), default=0) + 1))
