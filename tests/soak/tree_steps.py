"""Tree steps: what programs do to a tree of files that two mounts share, drawn at either of them.

Every word that is written is written once. So whatever happens to the files, a word that was made, and that nobody who
saw it took away, must be somewhere in the end.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

PASSING = frozenset(
    {
        errno.EAGAIN,
        errno.EBUSY,
        errno.EEXIST,
        errno.EINVAL,
        errno.EIO,
        errno.EISDIR,
        errno.ENOENT,
        errno.ENOTDIR,
        errno.ENOTEMPTY,
    }
)
"""What a program meets where another one is quicker, or the network is away."""
NAMES = 9
DIRECTORIES = 4


def words(text: str) -> list[str]:
    return text.split()


def read_tree(directory: Path) -> dict[str, str]:
    """Texts of files by name; "/" of a directory. Raises OSError."""
    found = {path: path.is_dir() for path in sorted(directory.rglob("*"))}
    return {str(path.relative_to(directory)): "/" if is_dir else path.read_text() for path, is_dir in found.items()}


@dataclass
class TreeSteps:
    round: str
    dice: random.Random
    trees: Sequence[Path]
    made: list[str] = field(default_factory=list[str])
    """What programs were told is written. What they were told of an error for may be there or not."""
    gone: list[str] = field(default_factory=list[str])
    words: int = 0

    def step(self) -> None:
        tree = self.dice.choice(self.trees)
        files = [self.make, self.make, self.append, self.save, self.move, self.swap, self.remove]
        directories = [self.make_directory, self.move_directory, self.remove_directory]
        try:
            self.dice.choice([*files, *directories])(tree)
        except OSError as error:
            if error.errno not in PASSING:
                raise

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
        os.replace(saving, path)
        self.gone += before

    def remove(self, tree: Path) -> None:
        path = self._file(tree)
        before = words(path.read_text())
        path.unlink()
        self.gone += before

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

    def _word(self) -> str:
        self.words += 1
        return f"{self.round}.{self.words}"

    def _rename(self, old: Path, new: Path) -> None:
        if new.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(new))
        old.rename(new)

    def _file(self, tree: Path) -> Path:
        return self._drawn([path for path in tree.rglob("*") if path.is_file()])

    def _directory(self, tree: Path) -> Path:
        return self._drawn([tree, *(path for path in tree.rglob("*") if path.is_dir())])

    def _below(self, tree: Path) -> Path:
        return self._drawn([path for path in tree.rglob("*") if path.is_dir()])

    def _drawn(self, paths: list[Path]) -> Path:
        if not paths:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        return self.dice.choice(sorted(paths))
