"""Mount program: changes files and databases of a mount step by step, and says in NOTES what it begins and is told.

    {"begin": 7}                   step 7 may show from now on
    {"sure": 7}                    a flush of what step 7 changed has returned, or a COMMIT that waits for the disk
    {"begin": 3, "db": "wal.db"}   of a database in WAL mode, whose commits come to the home by themselves: row 3
    {"sure": 3, "db": "wal.db"}

A step is one system call that changes what a tree shows; `trees` is the tree after each.
"""

from __future__ import annotations

import json
import os
import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final

Tree = dict[str, bytes | frozenset[int] | None]
"""By path: a file's bytes, a database's rows, or None for a directory."""

ROLLBACK: Final = {"delete.db": "DELETE", "truncate.db": "TRUNCATE", "persist.db": "PERSIST"}
DATABASES: Final = {
    **{name: (mode, "FULL") for name, mode in ROLLBACK.items()},
    "full.db": ("WAL", "FULL"),
    "normal.db": ("WAL", "NORMAL"),
}
"""Their journal modes, and what they are told of `synchronous`."""
_FOLDERS: Final = ("d1", "d2")
_CHECKPOINTS: Final = ("PASSIVE", "FULL", "RESTART", "TRUNCATE")
_SIZES: Final = (10, 3000, 4096, 9000, 70_000)


def furnish(directory: Path) -> Tree:
    """Databases without rows, and two directories."""
    for folder in _FOLDERS:
        (directory / folder).mkdir()
    for name, (mode, _) in DATABASES.items():
        with closing(sqlite3.connect(directory / name)) as db:
            db.execute(f"PRAGMA journal_mode = {mode}")
            db.execute("CREATE TABLE t(n INTEGER PRIMARY KEY, payload BLOB)")
            db.commit()
    return {**dict.fromkeys(_FOLDERS), **dict.fromkeys(ROLLBACK, frozenset[int]())}


class MountProgram:
    def __init__(self, directory: Path, notes: Path, tree: Tree, seed: int) -> None:
        self.trees = [tree]
        self._directory = directory
        self._dice = random.Random(seed)
        self._notes = os.open(notes, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        self._noted = 0
        self._rows = dict.fromkeys(DATABASES, 0)
        self._open: dict[str, sqlite3.Connection] = {}

    def run(self, count: int) -> None:
        kinds = [self._write] * 5 + [self._save] * 3 + [self._rename, self._unlink] * 2 + [self._insert] * 5
        kinds += [self._make_or_remove_folder, self._flush_folder, self._swap_folders]
        try:
            for _ in range(count):
                self._dice.choice(kinds)()
        finally:
            for db in self._open.values():
                db.close()
            os.close(self._notes)

    # What is noted

    def _note(self, **what: object) -> None:
        self._noted += os.pwrite(self._notes, json.dumps(what).encode() + b"\n", self._noted)

    def _begin(self, tree: Tree) -> None:
        self.trees.append(tree)
        self._note(begin=len(self.trees) - 1)

    def _sure(self, shown: Callable[[Tree], object]) -> None:
        """What is `shown` of the tree is on the disk: the step after which that was so."""
        wanted, step = shown(self.trees[-1]), len(self.trees) - 1
        while step and shown(self.trees[step - 1]) == wanted:
            step -= 1
        self._note(sure=step)

    @property
    def _tree(self) -> Tree:
        return dict(self.trees[-1])

    # Steps

    def _write(self, name: str = "", *, anew: bool | None = None) -> None:
        """Open, write here and there, perhaps cut it off; with an fsync, or without."""
        dice, tree, name = self._dice, self._tree, name or self._name()
        anew = dice.random() < 0.5 if anew is None else anew
        content = tree.get(name, b"")
        assert isinstance(content, bytes)
        tree[name] = content = b"" if anew else content
        self._begin(tree)
        fd = os.open(self._directory / name, os.O_RDWR | os.O_CREAT | (os.O_TRUNC if anew else 0), 0o644)
        try:
            for _ in range(dice.randrange(4)):
                data = dice.randbytes(dice.choice(_SIZES))
                at = dice.choice((0, len(content), dice.randrange(len(content) + 5000)))
                content = content[:at].ljust(at, b"\0") + data + content[at + len(data) :]
                self._begin({**tree, name: content})
                os.pwrite(fd, data, at)
                self._flush(fd, name, 0.25)
            if content and dice.random() < 0.1:
                content = content[: dice.randrange(len(content))]
                self._begin({**tree, name: content})
                os.ftruncate(fd, len(content))
            self._flush(fd, name, 0.5)
        finally:
            os.close(fd)

    def _save(self) -> None:
        """As editors do: another file takes the name."""
        self._write("new", anew=True)
        self._move("new", self._name())

    def _rename(self) -> None:
        files = self._files()
        if files:
            self._move(self._dice.choice(files), self._name())

    def _move(self, old: str, new: str) -> None:
        """A file, or a directory with what is in it."""
        if old == new:
            return
        tree = self._tree
        for path in [path for path in tree if path == old or path.startswith(f"{old}/")]:
            tree[new + path[len(old) :]] = tree.pop(path)
        self._begin(tree)
        os.rename(self._directory / old, self._directory / new)

    def _unlink(self) -> None:
        files = self._files()
        if files:
            self._remove(self._dice.choice(files))

    def _remove(self, name: str) -> None:
        tree = self._tree
        del tree[name]
        self._begin(tree)
        (self._directory / name).unlink()

    def _make_or_remove_folder(self) -> None:
        if "d3" not in self._tree:
            self._begin({**self._tree, "d3": None})
            (self._directory / "d3").mkdir()
            self._write("d3/x")
            return
        if "d3/x" in self._tree:
            self._remove("d3/x")
        tree = self._tree
        del tree["d3"]
        self._begin(tree)
        (self._directory / "d3").rmdir()

    def _flush_folder(self) -> None:
        folder = self._dice.choice(("", *(f"{folder}/" for folder in _FOLDERS)))
        fd = os.open(self._directory / folder, os.O_RDONLY)
        try:
            os.fsync(fd)
            self._sure(lambda tree: [path for path in tree if path.rpartition("/")[0] == folder[:-1]])
        finally:
            os.close(fd)

    def _swap_folders(self) -> None:
        one, other = _FOLDERS
        self._move(one, "aside")
        self._move(other, one)
        self._move("aside", other)

    def _insert(self) -> None:
        name, dice = self._dice.choice(list(DATABASES)), self._dice
        mode, synchronous = DATABASES[name]
        self._rows[name] = n = self._rows[name] + 1
        db = self._open.get(name)
        if db is None:
            db = self._open[name] = sqlite3.connect(self._directory / name, isolation_level=None)
            assert db.execute(f"PRAGMA journal_mode = {mode}").fetchone() == (mode.lower(),)
            db.execute(f"PRAGMA synchronous = {synchronous}")
            db.execute("PRAGMA wal_autocheckpoint = 15")
        if mode == "WAL":
            self._note(begin=n, db=name)
        else:
            rows = self._tree[name]
            assert isinstance(rows, frozenset)
            self._begin({**self._tree, name: rows | {n}})
        db.execute("BEGIN IMMEDIATE")
        db.execute("INSERT INTO t VALUES(?, ?)", (n, dice.randbytes(dice.choice((10, 500, 9000)))))
        if dice.random() < 0.2:
            db.execute("UPDATE t SET payload = randomblob(300) WHERE n % 5 = 0")
        db.execute("COMMIT")
        if mode != "WAL":
            self._sure(lambda tree: tree[name])
        elif synchronous == "FULL":
            self._note(sure=n, db=name)
        if dice.random() < 0.15:
            self._open.pop(name).close()
        elif dice.random() < 0.1:
            db.execute("VACUUM" if mode != "WAL" else f"PRAGMA wal_checkpoint({dice.choice(_CHECKPOINTS)})")

    # Chances

    def _flush(self, fd: int, name: str, chance: float) -> None:
        if self._dice.random() < chance:
            os.fsync(fd)
            self._sure(lambda tree: tree.get(name))

    def _name(self) -> str:
        return self._dice.choice(("", "", *(f"{folder}/" for folder in _FOLDERS))) + f"f{self._dice.randrange(5)}"

    def _files(self) -> list[str]:
        return [name for name, content in self._tree.items() if isinstance(content, bytes)]
