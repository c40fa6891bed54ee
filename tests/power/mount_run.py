"""Mount run: a program is recorded that works in a mount (mount_program.py), and the states of its home's disk judged.

A home takes changes in one order, whatever they change. So the tree that a state holds is the tree after some step:
one that had begun, and none before what a flush made sure. A database in WAL mode is the program's own -wal first: of
its rows the first ones are there, and once it is mounted again all of those that a COMMIT at FULL has made sure.
"""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import budwood
from budwood.sync.namespace import Namespace
from budwood.sync.record_check import check_records
from budwood.sync.volume import Volume
from budwood.volume.pageset import page_count

from ..mounts import Mount
from .disk import notes_of, read_log
from .mount_program import DATABASES, ROLLBACK, MountProgram, Tree, furnish
from .run import Recorded, recording

T = TypeVar("T")


class RecordedMount(NamedTuple):
    recorded: Recorded
    trees: list[Tree]
    notes: list[tuple[int, dict[str, Any]]]
    """Each with its step of the record."""

    def judge(self, share: float, folder: Path, cut: int) -> None:
        """A state of the disk, a `share` of them in a mount. Raises AssertionError, and whatever the home raises."""
        begun: dict[str, int] = {}
        sure: dict[str, int] = {}
        for number, line in self.notes:
            if number < cut:
                for kind, marks in (("begin", begun), ("sure", sure)):
                    if kind in line:
                        of = line.get("db", "")
                        marks[of] = max(marks.get(of, 0), line[kind])
        by_mount = random.Random(cut).random() < share
        found = found_mounted(folder) if by_mount else found_in(folder / "home")
        if by_mount:
            assert found_in(folder / "home") == found, "the home holds something else than its mount has shown"
        for name in DATABASES.keys() - ROLLBACK.keys():
            rows = found.pop(name)
            assert isinstance(rows, frozenset)
            assert rows == frozenset(range(1, len(rows) + 1)), f"{name} has {sorted(rows)}"
            assert len(rows) <= begun.get(name, 0)
            assert not by_mount or len(rows) >= sure.get(name, 0), f"{name} has {len(rows)} rows of {sure[name]}"
        fitting = [step for step, tree in enumerate(self.trees) if tree == found]
        first, last = sure.get("", 0), begun.get("", 0)
        assert any(first <= step <= last for step in fitting), f"the tree is that of {fitting}, not {first} to {last}"


def record_program(place: Path, steps: int, seed: int) -> RecordedMount:
    """In an empty folder: what a mount's home gets of so many steps."""

    def work(directory: Path, notes: Path, tree: Tree) -> list[Tree]:
        program = MountProgram(directory, notes, tree, seed)
        program.run(steps)
        return program.trees

    recorded, trees = record_mount(place, work)
    noted = [note for inode in recorded.notes for note in notes_of(recorded.steps, inode)]
    return RecordedMount(recorded, trees, noted)


def record_mount(place: Path, work: Callable[[Path, Path, Tree], T], *, furnished: bool = True) -> tuple[Recorded, T]:
    """In an empty folder: what a mount's home gets of some `work` in its directory, which is told what it finds there,
    and notes in a file what it does; and what that work returned. A home that isn't `furnished` is made by the mount.
    """
    before, directory, log = place / "before", place / "directory", place / "log"
    before.mkdir()
    directory.mkdir()
    tree: Tree = {}
    if furnished:
        with serving(before / "home", place / "furnished") as mount:
            tree = furnish(mount.directory)
    folder = place / "folder"
    shutil.copytree(before, folder, ignore=lambda above, names: [name for name in names if name == "control"])
    inodes = {str(path.relative_to(folder)): path.stat().st_ino for path in [folder, *folder.rglob("*")]}
    notes = "notes.program"
    with recording(folder, directory, log), serving(directory / "home", place / "mounted") as mount:
        result = work(mount.directory, directory / notes, tree)
    said = {(folder / notes).stat().st_ino: "program"}
    return Recorded(before, inodes, said, read_log(log), {}), result


@contextmanager
def serving(home: Path, directory: Path) -> Generator[Mount]:
    mount = Mount(home, directory)
    mount.start("--no-sync")
    try:
        yield mount
        mount.stop()
        for line in mount.said().splitlines():
            assert "Traceback" not in line, mount.said()
            # What wasn't to be flushed may be torn, and what was behind it is told.
            assert "lost" not in line or "normal.db" in line, line
    finally:
        mount.end()


def found_in(home: Path) -> Tree:
    tree: Tree = {}
    with budwood.open(home=home, remote="") as edge:
        check_records(edge.environment)
        for entry in Namespace(edge).entries():
            if entry.name not in DATABASES:
                tree[entry.name] = None if entry.kind == "directory" else _content(edge.volume(entry.name))
    for name in DATABASES:
        with closing(budwood.connect(name, home=home, remote="")) as db:
            assert db.execute("PRAGMA integrity_check").get == "ok", name
            tree[name] = frozenset(n for (n,) in db.execute("SELECT n FROM t"))
    return tree


def _content(volume: Volume) -> bytes:
    with closing(volume.snapshot()) as view:
        last = page_count(view.length, view.page_size) if view.length else 0
        return b"".join(view.read(page) for page in range(1, last + 1))[: view.length]


def found_mounted(folder: Path) -> Tree:
    for path in (folder / "home").rglob("*"):
        # Before this machine was booted.
        os.utime(path, (0, 0))
    tree: Tree = {}
    with serving(folder / "home", folder / "mounted") as mount:
        for above, names, files in os.walk(mount.directory):
            if ".budwood" in names:
                names.remove(".budwood")
            place = Path(above).relative_to(mount.directory)
            tree |= {str(place / name): None for name in names}
            tree |= {str(place / name): (Path(above) / name).read_bytes() for name in files if ".db" not in name}
        for name in DATABASES:
            with closing(sqlite3.connect(mount.directory / name)) as db:
                assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",), name
                tree[name] = frozenset(n for (n,) in db.execute("SELECT n FROM t"))
    return tree
