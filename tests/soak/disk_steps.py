"""Disk steps: what programs do in a mount whose home lies on a disk that fills up and has room again.

A step that comes to an error has changed nothing, or, where it writes, no other file than its own. A database has the
rows that its programs were told of; where the last one was told of an error, maybe that one's.
"""

from __future__ import annotations

import os
import random
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Final, NamedTuple

from ..small_disk import fill, relieve
from .mirror_steps import Shown, shown

NAMES: Final = ("a", "b", "c", "d/a", "d/b", "e", "e/f")
DATABASES: Final = ("x.db", "y.db", "d/x.db")
FILLED: Final = 0.06
RELIEVED: Final = 0.05
LEFT_BYTES: Final = (0, 0, 4_096, 20_000, 100_000)


class Step(NamedTuple):
    words: str
    change: Callable[[], object]
    writes: tuple[Path, ...] = ()
    """Whatever else is there stays as it is where the step comes to an error; all of it, where it writes nothing."""


def files_of(tree: Path) -> dict[str, Shown]:
    """But for databases, which have -journals and -wals of their own beside them."""
    return shown(tree, but=".db")


class DiskSteps:
    def __init__(self, dice: random.Random, tree: Path, disk: Path, rows: dict[str, list[int]]) -> None:
        self._dice = dice
        self._tree = tree
        self._disk = disk
        self.rows = rows
        """By database, how many it may have."""
        self.did: list[str] = []

    def run(self, steps: int) -> None:
        """Raises AssertionError."""
        draws = [self._write, self._write, self._append, self._cut, self._save, self._make, self._link, self._remove]
        draws += [self._remove, self._move, self._chmod, self._date, self._query, self._query]
        for _ in range(steps):
            luck = self._dice.random()
            if luck < FILLED:
                fill(self._disk, self._dice.choice(LEFT_BYTES))
            elif luck < FILLED + RELIEVED:
                relieve(self._disk)
            self._do(self._dice.choice(draws)())

    def _do(self, step: Step) -> None:
        before, came_to = files_of(self._tree), "done"
        try:
            step.change()
        except (OSError, sqlite3.Error) as error:
            came_to = str(error)
        self.did.append(f"{step.words}: {came_to}")
        if came_to == "done":
            return
        own = {str(path.relative_to(self._tree)) for path in step.writes}
        after = files_of(self._tree)
        changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
        assert changed <= own, f"{step.words} came to {came_to}, and changed {sorted(changed - own)}"

    # Each in words, what it does, and what it writes.

    def _write(self) -> Step:
        path, data = self._path(), self._data(0, 1, 3_000, 60_000, 400_000)
        return Step(f"write {len(data)} B to {path.name}", lambda: path.write_bytes(data), self._behind(path))

    def _append(self) -> Step:
        path, data = self._path(), self._data(10, 60_000)

        def append() -> None:
            with path.open("r+b") as file:
                file.seek(0, os.SEEK_END)
                file.write(data)

        return Step(f"append {len(data)} B to {path.name}", append, self._behind(path))

    def _cut(self) -> Step:
        path, length = self._path(), self._dice.choice((0, 10, 5_000))
        return Step(f"cut {path.name} to {length} B", lambda: os.truncate(path, length), self._behind(path))

    def _save(self) -> Step:
        path, data = self._path(), self._data(100, 60_000)
        saving = path.with_name(f"{path.name}~")

        def save() -> None:
            try:
                with saving.open("wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                saving.replace(path)
            finally:
                with suppress(OSError):
                    saving.unlink()

        # It is all or nothing of the file itself.
        return Step(f"save {len(data)} B as {path.name}", save, (saving,))

    def _make(self) -> Step:
        path = self._path()
        return Step(f"make directory {path.name}", path.mkdir)

    def _link(self) -> Step:
        path = self._path()
        return Step(f"link {path.name}", lambda: path.symlink_to("x"))

    def _remove(self) -> Step:
        path = self._path()
        is_directory = path.is_dir() and not path.is_symlink()
        return Step(f"remove {path.name}", path.rmdir if is_directory else path.unlink)

    def _move(self) -> Step:
        path, new = self._path(), self._path()

        def move() -> None:
            path.rename(new)
            for name in [name for name in self.rows if name.startswith(f"{path.relative_to(self._tree)}/")]:
                moved = new.relative_to(self._tree) / Path(name).relative_to(path.relative_to(self._tree))
                self.rows[str(moved)] = self.rows.pop(name)

        return Step(f"move {path.name} to {new.name}", move)

    def _chmod(self) -> Step:
        path, mode = self._path(), self._dice.choice((0o600, 0o644, 0o755))
        return Step(f"chmod {mode:o} {path.name}", lambda: path.chmod(mode))

    def _date(self) -> Step:
        path, seconds = self._path(), self._dice.randrange(1, 1_000_000)
        return Step(f"date {path.name} {seconds}", lambda: os.utime(path, (seconds, seconds)))

    def _query(self) -> Step:
        path, mode = self._tree / self._dice.choice(DATABASES), self._dice.choice(("wal", "delete"))
        value, name = self._data(10, 60_000), str(path.relative_to(self._tree))

        def query() -> None:
            with closing(sqlite3.connect(path, timeout=10, isolation_level=None)) as db:
                db.execute(f"pragma journal_mode = {mode}").fetchall()
                db.execute("create table if not exists t (x)")
                (count,) = db.execute("select count(*) from t").fetchone()
                wanted = self.rows.get(name, [0])
                assert count in wanted, f"{name} has {count} rows, and {wanted} were told of"
                self.rows[name] = [count, count + 1]
                db.execute("begin immediate")
                db.execute("insert into t values (?)", (value,))
                db.execute("commit")
                self.rows[name] = [count + 1]

        return Step(f"{mode} query of {len(value)} B to {name}", query)

    def _path(self) -> Path:
        return self._tree / self._dice.choice(NAMES)

    def _behind(self, path: Path) -> tuple[Path, ...]:
        """Itself, and where it leads to."""
        return path, path.with_name("x")

    def _data(self, *lengths: int) -> bytes:
        return self._dice.randbytes(self._dice.choice(lengths))


def flush(tree: Path) -> None:
    """What was written is committed; there is room."""
    for name, each in files_of(tree).items():
        if each.kind == "file":
            with (tree / name).open("r+b") as file:
                os.fsync(file.fileno())
