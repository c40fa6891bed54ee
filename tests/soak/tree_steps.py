"""Tree steps: what programs do to a tree of files and databases that two mounts share.

Every word that is written is written once. So whatever happens to the files, a word that was made, and that nobody who
saw it took away, must be somewhere in the end.
"""

from __future__ import annotations

import errno
import os
import random
import sqlite3
from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

CERTAIN: Final = frozenset(
    {
        errno.EAGAIN,
        errno.EBUSY,
        errno.EEXIST,
        errno.EINVAL,
        errno.EISDIR,
        errno.ENOENT,
        errno.ENOTDIR,
        errno.ENOTEMPTY,
    }
)
"""What a program meets where another one is quicker: nothing was done."""
DOUBTFUL: Final = frozenset({errno.ECONNABORTED, errno.EINTR, errno.EIO, errno.ENOTCONN})
"""Where the network is away, or the mount is killed: it may have been done."""
NAMES: Final = 9
DIRECTORIES: Final = 4
DATABASES: Final = 3
SIDECAR: Final = ".db-"
BUSY_SECONDS: Final = 5.0


def words(text: str) -> list[str]:
    return text.split()


def read_tree(directory: Path) -> dict[str, str]:
    """Words of files and databases by name; "/" of a directory. Raises OSError, sqlite3.Error."""
    found = {path: path.is_dir() for path in sorted(directory.rglob("*")) if SIDECAR not in path.name}
    return {str(path.relative_to(directory)): "/" if is_dir else _read(path) for path, is_dir in found.items()}


def _read(path: Path) -> str:
    content = path.read_bytes()
    if not content.startswith(b"SQLite format 3"):
        return content.decode()
    with closing(_opened(path)) as db:
        return " ".join(_rows(db))


def _opened(path: Path) -> sqlite3.Connection:
    uri = f"file:{str(path).replace('?', '%3f').replace('#', '%23')}?mode=rw"
    return sqlite3.connect(uri, uri=True, isolation_level=None, timeout=BUSY_SECONDS)


def _rows(db: sqlite3.Connection) -> list[str]:
    """None of a database that its maker was not quick enough with."""
    if not db.execute("select count(*) from sqlite_schema").fetchone()[0]:
        return []
    return [word for (word,) in db.execute("select word from t")]


@dataclass
class TreeSteps:
    round: str
    dice: random.Random
    trees: Sequence[Path]
    only_databases: bool = False
    """No other files."""
    made: list[str] = field(default_factory=list[str])
    """What programs were told is written. What they were told of an error for may be there or not."""
    gone: list[str] = field(default_factory=list[str])
    """What they took away, or may have."""
    words: int = 0

    def step(self) -> None:
        tree = self.dice.choice(self.trees)
        draws = [self.make_directory, self.move_directory, self.remove_directory]
        draws += [self.insert, self.insert, self.insert, self.remove_database, self.move_database]
        if not self.only_databases:
            draws += [self.make, self.make, self.append, self.save, self.move, self.swap, self.remove]
        try:
            self.dice.choice(draws)(tree)
        except OSError as error:
            if error.errno not in CERTAIN | DOUBTFUL:
                raise
        except sqlite3.OperationalError:
            # It is locked, or can't be opened, read or written just now.
            pass

    def make(self, tree: Path) -> None:
        path, word = self._directory(tree) / f"n{self.dice.randrange(NAMES)}", self._word()
        with path.open("x") as file:
            file.write(word)
        self.made.append(word)

    def append(self, tree: Path) -> None:
        word = self._word()
        with self._file(tree).open("r+") as file:
            file.read()
            file.write(f" {word}")
        self.made.append(word)

    def save(self, tree: Path) -> None:
        """As editors do."""
        path = self._file(tree)
        before = words(path.read_text())
        saving = path.with_name("saving~")
        if saving.exists():
            # Left by one that could not replace what it had read.
            self.gone += words(saving.read_text())
        word = self._word()
        saving.write_text(word)
        self.made.append(word)
        with self._taking(before):
            os.replace(saving, path)

    def remove(self, tree: Path) -> None:
        path = self._file(tree)
        with self._taking(words(path.read_text())):
            path.unlink()

    def move(self, tree: Path) -> None:
        self._rename(self._file(tree), self._directory(tree) / f"n{self.dice.randrange(NAMES)}")

    def move_directory(self, tree: Path) -> None:
        self._rename(self._below(tree), self._directory(tree) / f"d{self.dice.randrange(DIRECTORIES)}")

    def swap(self, tree: Path) -> None:
        one, other, aside = self._file(tree), self._file(tree), tree / "swapping~"
        if one != other:
            self._rename(one, aside)
            self._rename(other, one)
            self._rename(aside, other)

    def make_directory(self, tree: Path) -> None:
        (self._directory(tree) / f"d{self.dice.randrange(DIRECTORIES)}").mkdir()

    def remove_directory(self, tree: Path) -> None:
        self._below(tree).rmdir()

    def insert(self, tree: Path) -> None:
        directory = self._directory(tree)
        known = [path for path in directory.iterdir() if self._is_database(path)]
        path = self._drawn([*known, directory / f"b{self.dice.randrange(DATABASES)}.db"])
        path.touch()
        word = self._word()
        with closing(_opened(path)) as db:
            db.execute(f"pragma journal_mode = {self.dice.choice(('wal', 'delete', 'truncate'))}").fetchall()
            db.execute("create table if not exists t (word text primary key) without rowid")
            db.execute("insert into t values (?)", [word])
        self.made.append(word)

    def remove_database(self, tree: Path) -> None:
        path = self._database(tree)
        with closing(_opened(path)) as db:
            before = _rows(db)
        with self._taking(before):
            path.unlink()

    def move_database(self, tree: Path) -> None:
        self._rename(self._database(tree), self._directory(tree) / f"b{self.dice.randrange(DATABASES)}.db")

    @contextmanager
    def _taking(self, taken: Sequence[str]) -> Generator[None]:
        try:
            yield
        except OSError as error:
            if error.errno in DOUBTFUL:
                self.gone += taken
            raise
        self.gone += taken

    def _word(self) -> str:
        self.words += 1
        return f"{self.round}.{self.words}"

    def _rename(self, old: Path, new: Path) -> None:
        if new.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(new))
        old.rename(new)

    def _file(self, tree: Path) -> Path:
        return self._drawn([path for path in tree.rglob("*") if path.is_file() and ".db" not in path.name])

    def _database(self, tree: Path) -> Path:
        return self._drawn([path for path in tree.rglob("*") if self._is_database(path)])

    def _is_database(self, path: Path) -> bool:
        return ".db" in path.name and SIDECAR not in path.name

    def _directory(self, tree: Path) -> Path:
        return self._drawn([tree, *(path for path in tree.rglob("*") if path.is_dir())])

    def _below(self, tree: Path) -> Path:
        return self._drawn([path for path in tree.rglob("*") if path.is_dir()])

    def _drawn(self, paths: list[Path]) -> Path:
        if not paths:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        return self.dice.choice(sorted(paths))
