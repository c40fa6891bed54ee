"""The mixture of test_mixed.py, with one of the homes mounted: its volumes are files besides.

Programs write and read them there, rename and remove them, and keep them open while another process of the home, the
other home or the mount itself changes what they hold; the mount is ended and killed in between. Whoever looks at a file
finds the rows that the volume has, as soon as the mount has heard of them.

MIXED_SEEDS=1000 tries as many.
"""

from __future__ import annotations

import os
import random
import sqlite3
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest

from budwood.sync.volume import Volume
from budwood.volume.errors import Busy

from ..mounts import Mount, mounted, needs_fuse
from ..waits import LIMIT_SECONDS, wait_until
from .test_mixed import STEPS, Here, Mixed, Rows, mixing, rows_of

pytestmark = needs_fuse

SEEDS = int(os.environ.get("MIXED_SEEDS", "3"))
CHAIN = 80


class Connection(sqlite3.Connection):
    """`with` it is a transaction, as with apsw's."""

    def __enter__(self) -> Connection:
        self.execute("BEGIN")
        return self


class ByTheMount:
    """A volume whose verbs the mount is asked for, as `budwood push` does in a home that is mounted."""

    def __init__(self, volume: Volume, mount: Mount) -> None:
        self._volume = volume
        self._mount = mount

    def __getattr__(self, name: str) -> Any:
        return getattr(self._volume, name)

    def push(self) -> None:
        self._mount.ask("push", self._volume.name)

    def pull(self) -> None:
        self._mount.ask("pull", self._volume.name)

    def reset(self, *, discard: bool = False, keep_as: str | None = None) -> None:
        self._mount.ask("reset", self._volume.name, *(["--discard"] if discard else ["--keep-as", str(keep_as)]))


def _is_written_by_nobody(volume: Volume) -> bool:
    """The mount hears of a file that was closed after the program that closed it."""
    try:
        if volume.local.keep_write_lock():
            volume.local.drop_write_lock()
    except Busy:
        return False
    return True


class MixedMounted(Mixed):
    mount: Mount
    steps: ClassVar = STEPS + 3 * ["keep_open"] + 2 * ["rename_file"] + ["remove_file", "remount", "kill"]

    def __init__(self, folder: Path, dice: random.Random) -> None:
        super().__init__(folder, dice)
        self.kept: dict[str, sqlite3.Connection] = {}
        """By the names of their files: who reads them now and then."""

    def _pick(self, what: str, *, unheard: bool = False) -> tuple[int, str, Here, Any]:
        number, name, copy, volume = super()._pick(what, unheard=unheard)
        if number == 0:
            wait_until(lambda: _is_written_by_nobody(volume))
        if number or self.dice.random() < 0.5:
            return number, name, copy, volume
        self.said[-1] += ", by the mount"
        return number, name, copy, ByTheMount(volume, self.mount)

    def _opened(self, name: str, mode: str = "rw") -> sqlite3.Connection:
        uri = f"file:{self.mount.directory}/{name}?mode={mode}"
        return sqlite3.connect(uri, LIMIT_SECONDS, uri=True, isolation_level=None, factory=Connection)

    def _connected(self, number: int, name: str) -> Any:
        if number or self.dice.random() < 0.5:
            return super()._connected(number, name)
        self.said.append(f"  {name} opened in the mount")
        wait_until((self.mount.directory / name).exists)
        self._wait_for_readers(name, self.here[0][name].rows)
        return self._opened(name)

    def _wait_for_readers(self, name: str, rows: Rows) -> None:
        """Who opens what others have open sees what they see: the mount moves all of them in a moment."""
        if name in self.kept:
            wait_until(lambda: rows_of(self.kept[name]) == rows)

    def _look(self, number: int, name: str, copy: Here) -> None:
        super()._look(number, name, copy)
        if number == 0 and copy.is_whole:
            self._look_in_the_mount(name, copy.rows)

    def _look_in_the_mount(self, name: str, rows: Rows) -> None:
        wait_until((self.mount.directory / name).exists)
        self._wait_for_readers(name, rows)
        with closing(self._opened(name, self.dice.choice(["ro", "rw"]))) as db:
            assert rows_of(db) == rows

    def close_files(self) -> None:
        for db in self.kept.values():
            db.close()
        self.kept.clear()

    def keep_open(self) -> None:
        number, name, copy, _ = self._pick("keep open")
        if number == 0 and copy.is_whole:
            wait_until((self.mount.directory / name).exists)
            reader = self._opened(name, "ro")
            self._wait_for_readers(name, copy.rows)
            assert rows_of(reader) == copy.rows
            if name in self.kept:
                self.kept[name].close()
            self.kept[name] = reader

    def settle(self) -> None:
        # Who has it open stays with what it was.
        self.close_files()
        super().settle()

    def mv(self) -> None:
        self.close_files()
        super().mv()

    def rm(self) -> None:
        self.close_files()
        super().rm()

    def rename_file(self) -> None:
        self.close_files()
        number, name, copy, _ = self._pick("rename")
        if number or copy.there.known or copy.there.is_gone:
            return
        new = self._new_name()
        wait_until((self.mount.directory / name).exists)
        (self.mount.directory / name).rename(self.mount.directory / new)
        self._rename(0, name, new)
        self._look(0, new, copy)

    def remove_file(self) -> None:
        self.close_files()
        number, name, copy, _ = self._pick("unlink")
        if number or copy.there.known or self._is_last:
            return
        wait_until((self.mount.directory / name).exists)
        self._disconnect_from(0, name)
        (self.mount.directory / name).unlink()
        del self.here[0][name]
        assert name not in {row["name"] for row in self.edges[0].ls()}

    def rebuild(self) -> None:
        """A home that is in use isn't."""
        with self._unmounted():
            super().rebuild()

    def remount(self) -> None:
        self.said.append("remount")
        with self._unmounted():
            pass

    @contextmanager
    def _unmounted(self) -> Generator[None]:
        self.close_files()
        self.mount.stop()
        yield
        self.mount.start("--no-sync")

    def kill(self) -> None:
        self.said.append("kill the mount")
        self.mount.kill()
        self.close_files()
        self.mount.start("--no-sync")


@pytest.mark.parametrize("seed", range(SEEDS))
def test_whoever_looks_at_a_file_finds_the_rows_of_its_volume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    with (
        mixing(MixedMounted, tmp_path, monkeypatch, seed) as mixed,
        mounted(tmp_path, "--no-sync", home="home0", remote=mixed.url) as mixed.mount,
    ):
        mixed.run(CHAIN)
        mixed.close_files()
