"""Mirror steps: what programs do to a tree, in a mount and in a plain directory: both must come out the same.

What there is to do is drawn from what the plain directory holds. Whatever a step comes to there, a change or an error,
it has to come to in the mount.
"""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import sqlite3
import stat
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

NAMES: Final = ("x", "y", "z", "a name ü", "w.txt", "w.txt~")
DATABASES: Final = ("d.db", "e.db")
PAUSES_SECONDS: Final = (0.0,) * 9 + (0.05, 0.3, 1.1, 1.6)
"""Between two steps: those that a mount pushes while the next is on its way are among them."""
DATED_SECONDS: Final = 1_000_000_000
"""A time before that was given by a step; others are of the moment."""

Change = Callable[[Path], object]
"""Of a tree; the same of any that is the same."""
Step = tuple[str, Change]
"""In words, and what is done."""


class Shown(NamedTuple):
    kind: str
    mode: int
    content: str
    """A file's bytes, in hexadecimal digits, the sum of many, or a link's text."""
    dated: int = 0
    """The time that a step gave a file, in seconds."""


def shown(tree: Path, *, but: str = "") -> dict[str, Shown]:
    """What a program finds there, but for files with this in their names. Raises OSError."""
    paths = (path for path in sorted(tree.rglob("*")) if not but or but not in path.name)
    return {str(path.relative_to(tree)): _shown(path) for path in paths}


def _shown(path: Path) -> Shown:
    found = path.lstat()
    mode, dated = found.st_mode, int(found.st_mtime) if found.st_mtime < DATED_SECONDS else 0
    if stat.S_ISLNK(mode):
        return Shown("link", 0, str(path.readlink()))
    if stat.S_ISDIR(mode):
        # Its time moves with what is in it at that mount alone.
        return Shown("directory", stat.S_IMODE(mode), "")
    content = path.read_bytes()
    return Shown("file", stat.S_IMODE(mode), content.hex() if len(content) < 100_000 else _sum(content), dated)


def _sum(content: bytes) -> str:
    return f"{len(content)} B, {hashlib.sha256(content).hexdigest()}"


class NothingThere(Exception):
    """To do a step to."""


class MirrorSteps:
    def __init__(self, dice: random.Random, plain: Path, mount: Path) -> None:
        self._dice = dice
        self._trees = plain, mount
        for tree in self._trees:
            tree.mkdir(exist_ok=True)
        self.did: list[str] = []

    def run(self, steps: int) -> None:
        """Raises AssertionError of a step that doesn't come to the same."""
        draws = [self._write, self._write, self._make, self._link, self._remove, self._remove_tree, self._move]
        draws += [self._move, self._save, self._save, self._append, self._rewrite, self._cut, self._chmod, self._copy]
        draws += [self._date, self._grow, self._hold, self._hold, self._query, self._query]
        for _ in range(steps):
            try:
                words, change = self._dice.choice(draws)()
            except NothingThere:
                continue
            came_to = [_came_to(change, tree) for tree in self._trees]
            self.did.append(f"{words}: {came_to[0] or 'done'}")
            assert bool(came_to[0]) == bool(came_to[1]), f"{words}: {came_to[1] or 'done'} in the mount"
            time.sleep(self._dice.choice(PAUSES_SECONDS))

    # What there is to do, and to what. Paths are those within a tree.

    def _write(self) -> Step:
        path, data = self._new(), self._data(0, 1, 100, 5_000, 20_000)
        return f"write {len(data)} B to {path}", lambda tree: _no_link(tree / path).write_bytes(data)

    def _make(self) -> Step:
        path = self._new()
        return f"make directory {path}", lambda tree: (tree / path).mkdir()

    def _link(self) -> Step:
        path, text = self._new(), self._dice.choice(NAMES)
        return f"link {path} to {text}", lambda tree: (tree / path).symlink_to(text)

    def _remove(self) -> Step:
        path = self._any()
        return f"remove {path}", lambda tree: _remove(tree / path)

    def _remove_tree(self) -> Step:
        path = self._any()
        return f"remove tree {path}", lambda tree: shutil.rmtree(tree / path)

    def _move(self) -> Step:
        path, new = self._any(), self._new()
        return f"move {path} to {new}", lambda tree: (tree / path).rename(tree / new)

    def _chmod(self) -> Step:
        path, mode = self._any(), self._dice.choice((0o600, 0o644, 0o700, 0o755))
        return f"chmod {mode:o} {path}", lambda tree: _no_link(tree / path).chmod(mode)

    def _save(self) -> Step:
        path, data = self._file(), self._data(10, 3_000)
        return f"save {len(data)} B as {path}", lambda tree: _save(tree / path, data)

    def _append(self) -> Step:
        path, data = self._file(), self._data(4, 4_000)
        return f"append {len(data)} B to {path}", lambda tree: _put(tree / path, None, data)

    def _rewrite(self) -> Step:
        path, at, data = self._file(), self._dice.choice((0, 10, 5_000)), self._data(9)
        return f"rewrite {path} at {at}", lambda tree: _put(tree / path, at, data)

    def _cut(self) -> Step:
        path, length = self._file(), self._dice.choice((0, 1, 4_096, 30_000))
        return f"cut {path} to {length} B", lambda tree: os.truncate(tree / path, length)

    def _copy(self) -> Step:
        path, new = self._file(), self._new()
        return f"copy {path} to {new}", lambda tree: _copy(tree / path, tree / new)

    def _date(self) -> Step:
        path, seconds = self._any(), self._dice.randrange(1, DATED_SECONDS)
        return f"date {path} {seconds}", lambda tree: os.utime(_no_link(tree / path), (seconds, seconds))

    def _grow(self) -> Step:
        path, at, data = self._file(), self._dice.choice((40_000, 3_000_000)), self._data(7)
        return f"put {len(data)} B at {at} of {path}", lambda tree: _put(tree / path, at, data)

    def _hold(self) -> Step:
        path, data, length = self._file(), self._data(6, 9_000), self._dice.choice((None, 0, 5_000))
        words, meanwhile = self._dice.choice([self._move, self._remove, self._save, self._append, self._chmod])()

        def change(tree: Path) -> None:
            with (tree / path).open("r+b") as file:
                try:
                    meanwhile(tree)
                finally:
                    if length is not None:
                        file.truncate(length)
                    file.seek(0, os.SEEK_END)
                    file.write(data)

        return f"hold {path}, {words}, cut to {length}, append {len(data)} B", change

    def _query(self) -> Step:
        path = self._new().with_name(self._dice.choice(DATABASES))
        mode, value = self._dice.choice(("wal", "delete")), self._data(10, 10_000).hex()
        undone = self._dice.random() < 0.3

        def change(tree: Path) -> None:
            with closing(sqlite3.connect(_no_link(tree / path), isolation_level=None, timeout=60)) as db:
                db.execute(f"pragma journal_mode = {mode}").fetchall()
                db.execute("create table if not exists t (value text)")
                db.execute("begin immediate")
                db.execute("insert into t values (?)", [value])
                db.execute("delete from t where rowid % 5 = 0")
                db.execute("rollback" if undone else "commit")

        return f"{'undo ' if undone else ''}{mode} query of {len(value)} B to {path}", change

    def _data(self, *lengths: int) -> bytes:
        return self._dice.randbytes(self._dice.choice(lengths))

    def _new(self) -> Path:
        plain = self._trees[0]
        directories = [path for path in plain.rglob("*") if path.is_dir() and not path.is_symlink()]
        return self._dice.choice(sorted([plain, *directories])).relative_to(plain) / self._dice.choice(NAMES)

    def _any(self) -> Path:
        return self._drawn(lambda _: True)

    def _file(self) -> Path:
        return self._drawn(lambda path: path.is_file() and not path.is_symlink())

    def _drawn(self, wanted: Callable[[Path], bool]) -> Path:
        plain = self._trees[0]
        found = sorted(path.relative_to(plain) for path in plain.rglob("*") if wanted(path))
        if not found:
            raise NothingThere
        return self._dice.choice(found)


def _came_to(change: Change, tree: Path) -> str:
    try:
        change(tree)
    except (OSError, shutil.Error, sqlite3.Error) as error:
        return type(error).__name__
    return ""


def _no_link(path: Path) -> Path:
    """What it leads to may be another's."""
    if path.is_symlink():
        raise FileExistsError(path)
    return path


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    else:
        path.unlink()


def _save(path: Path, data: bytes) -> None:
    """As editors do."""
    saving = path.with_name(f"{path.name}.saving~")
    with saving.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    saving.replace(path)


def _put(path: Path, at: int | None, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(0, os.SEEK_END) if at is None else file.seek(at)
        file.write(data)


def _copy(path: Path, new: Path) -> None:
    if new.is_dir():
        raise IsADirectoryError(new)
    shutil.copyfile(path, _no_link(new))
