"""The bench's passthrough is a file system that SQLite can trust in every journal mode, else it were no yardstick."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Generator
from contextlib import closing
from pathlib import Path

import pytest

from ..mounts import is_mounted, needs_fuse
from ..waits import LIMIT_SECONDS

ROOT = Path(__file__).parents[2]

pytestmark = needs_fuse


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("folder")


@pytest.fixture(scope="module")
def mount(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Generator[Path]:
    directory = tmp_path_factory.mktemp("mnt")
    command = [sys.executable, "-m", "bench.passthrough", str(folder), str(directory)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == f"passthrough: {directory} mounted\n"
        yield directory
        process.terminate()
        assert process.wait(LIMIT_SECONDS) == 0
        assert not is_mounted(directory)
    finally:
        process.kill()
        process.communicate()
        if is_mounted(directory):
            subprocess.run(["fusermount3", "-u", "-z", directory], check=False)


@pytest.mark.parametrize("synchronous", ["full", "normal"])
@pytest.mark.parametrize("mode", ["delete", "truncate", "persist", "memory", "off", "wal"])
def test_sqlite_works_on_it(mount: Path, folder: Path, mode: str, synchronous: str) -> None:
    name = f"{mode}-{synchronous}.db"
    uris = [f"file:{mount / name}", f"file:{mount / name}"]
    with (
        closing(sqlite3.connect(uris[0], uri=True, isolation_level=None)) as one,
        closing(sqlite3.connect(uris[1], uri=True, isolation_level=None, timeout=0)) as two,
    ):
        assert one.execute(f"PRAGMA journal_mode = {mode}").fetchone() == (mode,)
        one.execute(f"PRAGMA synchronous = {synchronous}")
        one.execute("CREATE TABLE t(n INTEGER PRIMARY KEY, v BLOB)")
        one.execute("PRAGMA cache_size = 5")  # Spills.
        for first in range(0, 1000, 100):
            with one:
                one.execute("BEGIN IMMEDIATE")
                one.executemany("INSERT INTO t VALUES(?, zeroblob(500))", ((n,) for n in range(first, first + 100)))
                with pytest.raises(sqlite3.OperationalError, match="locked"):
                    two.execute("BEGIN IMMEDIATE")
            assert two.execute("SELECT count(*) FROM t").fetchone() == (first + 100,)
        if mode != "off":
            one.execute("BEGIN")
            one.execute("DELETE FROM t")
            one.execute("ROLLBACK")
        for db in (one, two):
            assert db.execute("SELECT count(*), sum(n) FROM t").fetchone() == (1000, 499500)
            assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    # What it shows is the real file.
    with closing(sqlite3.connect(f"file:{folder / name}?mode=ro", uri=True)) as real:
        assert real.execute("SELECT count(*), sum(n) FROM t").fetchone() == (1000, 499500)


def test_files_are_passed_on(mount: Path, folder: Path) -> None:
    (mount / "d").mkdir(mode=0o750)
    (mount / "d" / "a").write_bytes(b"one")
    with (mount / "d" / "a").open("r+b", buffering=0) as file:
        file.seek(0, os.SEEK_END)
        file.write(b"two")
        os.rename(mount / "d" / "a", mount / "b")
        os.fsync(file.fileno())
        os.unlink(mount / "b")
        assert os.pread(file.fileno(), 100, 0) == b"onetwo"
        assert os.fstat(file.fileno()).st_nlink == 0
    assert not (folder / "b").exists()
    with (mount / "c").open("ab") as file:
        file.write(b"x" * 5000)
        file.flush()
        os.ftruncate(file.fileno(), 100)
        file.write(b"y")
    assert (folder / "c").read_bytes() == b"x" * 100 + b"y"
    os.symlink("c", mount / "link")
    assert os.readlink(folder / "link") == os.readlink(mount / "link") == "c"
    (mount / "c").chmod(0o600)
    os.utime(mount / "c", ns=(1_000, 2_000))
    found = (folder / "c").stat()
    assert (found.st_mode & 0o777, found.st_atime_ns, found.st_mtime_ns) == (0o600, 1_000, 2_000)
    assert {"c", "d", "link"} <= set(os.listdir(mount))
    os.rmdir(mount / "d")
    with pytest.raises(FileNotFoundError):
        (mount / "d").stat()


def test_a_folder_of_many_names_is_listed_whole(mount: Path, folder: Path) -> None:
    (folder / "many").mkdir()
    for number in range(3000):
        (folder / "many" / f"{number:05}").touch()
    assert sorted(os.listdir(mount / "many")) == [f"{number:05}" for number in range(3000)]
