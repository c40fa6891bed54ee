"""What is written to a database's own file is what the file holds, whoever wrote it: a program does the same on a mount
and on a plain directory, which is the model, and the two files are the same bytes afterwards.
"""

from __future__ import annotations

import ctypes
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from ..mounts import Mount, mounted, needs_fuse

pytestmark = needs_fuse

ROLLBACK_MODES = ("delete", "truncate", "persist", "memory", "off")
COUNT = slice(28, 32)
"""The page count in a database's header."""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mount]:
    with mounted(tmp_path_factory.mktemp("bytes"), "--no-sync") as mount:
        yield mount


def fill(path: Path, mode: str = "delete") -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute(f"pragma journal_mode = {mode}").fetchall()
        db.execute("create table t(id integer primary key, body)")
        db.executemany("insert into t values(?, zeroblob(900))", ((n,) for n in range(40)))


def written(path: Path, offset: int, data: bytes, *, flushed: bool) -> None:
    fd = os.open(path, os.O_WRONLY)
    try:
        os.pwrite(fd, data, offset)
        if flushed:
            os.fsync(fd)
    finally:
        os.close(fd)


@pytest.mark.parametrize("flushed", [True, False], ids=["flushed", "closed"])
@pytest.mark.parametrize("pages", [1, 3, 0xFFFFFFFF])
def test_a_page_count_that_a_program_writes_cuts_nothing(
    shared: Mount, tmp_path: Path, flushed: bool, pages: int
) -> None:
    path, model = shared.directory / f"counted-{flushed}-{pages}.db", tmp_path / "model.db"
    for each in (path, model):
        fill(each)
        written(each, COUNT.start, pages.to_bytes(4), flushed=flushed)
    assert path.read_bytes() == model.read_bytes()


@pytest.mark.parametrize("mode", ROLLBACK_MODES)
def test_what_lies_behind_a_database_stays_there_when_sqlite_writes_to_it(
    shared: Mount, tmp_path: Path, mode: str
) -> None:
    """Somebody's own bytes, whole pages of them: SQLite doesn't cut them off."""
    path, model = shared.directory / f"behind-{mode}.db", tmp_path / "model.db"
    for each in (path, model):
        fill(each)
        with each.open("ab") as file:
            file.write(b"not SQLite's" * 2048)
        with closing(sqlite3.connect(each, isolation_level=None)) as db:
            db.execute(f"pragma journal_mode = {mode}").fetchall()
            db.execute("update t set body = 'changed' where id = 7")
    assert path.stat().st_size == model.stat().st_size
    assert path.read_bytes() == model.read_bytes()


@pytest.mark.parametrize("mode", ROLLBACK_MODES)
@pytest.mark.parametrize("chunk_bytes", [0, 65536])
def test_a_database_is_as_long_as_on_any_disk_whatever_room_it_has_reserved(
    shared: Mount, tmp_path: Path, mode: str, chunk_bytes: int
) -> None:
    """SQLite grows and cuts a file by chunks where it is told to (SQLITE_FCNTL_CHUNK_SIZE)."""
    path, model = shared.directory / f"chunks-{chunk_bytes}-{mode}.db", tmp_path / "model.db"
    steps: tuple[Callable[[apsw.Connection], object], ...] = (
        lambda db: db.execute("create table t(id integer primary key, body)"),
        lambda db: db.execute(
            "with recursive n(i) as (values(1) union all select i + 1 from n where i < 90) "
            "insert into t select i, zeroblob(3000) from n"
        ),
        lambda db: db.execute("delete from t where id > 9"),
        lambda db: db.execute("vacuum"),
        lambda db: db.execute("insert into t values(1000, zeroblob(9000))"),
    )
    sizes: list[list[int]] = []
    for each in (path, model):
        with closing(apsw.Connection(str(each))) as db:
            db.file_control("main", apsw.SQLITE_FCNTL_CHUNK_SIZE, ctypes.addressof(ctypes.c_int(chunk_bytes)))
            db.execute(f"pragma journal_mode = {mode}").fetchall()
            sizes.append([])
            for step in steps:
                step(db)
                sizes[-1].append(each.stat().st_size)
    assert sizes[0] == sizes[1]
    assert path.read_bytes() == model.read_bytes()
