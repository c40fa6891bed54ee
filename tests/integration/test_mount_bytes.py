"""What is written to a database's own file is what the file holds, whoever wrote it: a program does the same on a mount
and on a plain directory, which is the model, and the two files are the same bytes afterwards.
"""

from __future__ import annotations

import ctypes
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import apsw
import pytest

import budwood
from budwood.sync.edge import open as open_edge

from ..mounts import Mount, mounted, needs_fuse
from ..waits import wait_until

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


# Beside a -wal that is in use


SERVICE = """
import sqlite3, sys
path, backup = sys.argv[1:]
db = sqlite3.connect(path, isolation_level=None)
db.execute("pragma journal_mode = wal")
db.execute("pragma wal_autocheckpoint = 0")
db.execute("create table t(id integer primary key, version, body)")
db.executemany("insert into t values(?, 0, zeroblob(900))", ((n,) for n in range(60)))
db.execute("pragma wal_checkpoint(restart)").fetchall()
db.execute("vacuum into ?", (backup,))
for version in range(1, 5):
    db.execute("update t set version = ? where id < 30", (version,))
db.executemany("insert into t values(?, 9, zeroblob(900))", ((n,) for n in range(100, 120)))
print("idle", flush=True)
for line in sys.stdin:
    for statement in line.split(";"):
        db.execute(statement).fetchall()
    print("done", flush=True)
"""
"""Has a database open in WAL mode whose commits since the backup are in the -wal alone; then does what it is told."""


@contextmanager
def service(path: Path, backup: Path) -> Generator[subprocess.Popen[str]]:
    command = [sys.executable, "-I", "-c", SERVICE, str(path), str(backup)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "idle\n"
            yield child
        finally:
            child.kill()


def do(child: subprocess.Popen[str], statements: str) -> None:
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(f"{statements}\n")
    child.stdin.flush()
    assert child.stdout.readline() == "done\n"


def copied(path: Path, backup: Path) -> None:
    path.write_bytes(backup.read_bytes())


def in_place(path: Path, backup: Path) -> None:
    """As `dd conv=notrunc`, and then a cut."""
    content = backup.read_bytes()
    with path.open("r+b") as file:
        file.write(content)
        file.truncate(len(content))
        os.fsync(file.fileno())


def what_differs(path: Path, backup: Path) -> None:
    """As `rsync --inplace`."""
    content = backup.read_bytes()
    with path.open("r+b", buffering=0) as file:
        for at in range(0, len(content), 700):
            file.seek(at)
            if file.read(700) != content[at : at + 700]:
                os.pwrite(file.fileno(), content[at : at + 700], at)
        file.truncate(len(content))


def a_few_bytes(path: Path, backup: Path) -> None:
    written(path, 4096 + 1000, b"somebody's own", flushed=True)


def a_page_count(path: Path, backup: Path) -> None:
    written(path, COUNT.start, (2).to_bytes(4), flushed=True)


def behind_it(path: Path, backup: Path) -> None:
    with path.open("ab") as file:
        file.write(b"somebody's own" * 1000)


def nothing(path: Path, backup: Path) -> None:
    """The -wal stays."""


def removed(path: Path, backup: Path) -> None:
    Path(f"{path}-wal").unlink()


def cut(path: Path, backup: Path) -> None:
    os.truncate(f"{path}-wal", 0)


def begun_anew(path: Path, backup: Path) -> None:
    written(Path(f"{path}-wal"), 0, bytes(32), flushed=True)


Step = Callable[[Path, Path], None]

WRITERS: tuple[Step, ...] = (copied, in_place, what_differs, a_few_bytes, a_page_count, behind_it)
ENDS: tuple[Step, ...] = (nothing, removed, cut, begun_anew)


def rows(path: Path) -> object:
    """What SQLite finds, which may be that the file is none of its own any more."""
    try:
        with closing(sqlite3.connect(path)) as db:
            return db.execute("select count(*), sum(version), max(id) from t").fetchall()
    except sqlite3.DatabaseError as error:
        return str(error)


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("write", WRITERS)
def test_what_a_program_writes_beside_a_wal_that_is_in_use_stays(
    shared: Mount, tmp_path: Path, write: Step, end: Step
) -> None:
    path, model = shared.directory / f"{write.__name__}-{end.__name__}.db", tmp_path / "model.db"
    for each in (path, model):
        backup = each.with_name("backup.db")
        backup.unlink(missing_ok=True)
        with service(each, backup):
            write(each, backup)
            end(each, backup)
    assert path.read_bytes() == model.read_bytes()
    # One that holds nothing goes with the last who has the database open.
    assert Path(f"{path}-wal").exists() == (end is nothing)
    assert rows(path) == rows(model)
    assert path.read_bytes() == model.read_bytes()
    with closing(open_edge(home=shared.home)) as edge:
        edge.volume(path.name).export(tmp_path / "exported.db")
    assert (tmp_path / "exported.db").read_bytes() == model.read_bytes()


def test_a_cut_beside_a_wal_that_is_in_use_stays(shared: Mount, tmp_path: Path) -> None:
    """With nothing written after it."""
    path, model = shared.directory / "cut.db", tmp_path / "model.db"
    for each in (path, model):
        backup = each.with_name("backup.db")
        backup.unlink(missing_ok=True)
        with service(each, backup):
            os.truncate(each, 8192)
            removed(each, backup)
        assert each.stat().st_size == 8192
    assert path.read_bytes() == model.read_bytes()


@pytest.mark.parametrize("first", ["killed", "ended"])
@pytest.mark.parametrize("end", [nothing, removed])
@pytest.mark.parametrize("write", [copied, what_differs, a_few_bytes])
def test_what_a_program_wrote_beside_a_wal_survives_the_mount(
    tmp_path: Path, write: Step, end: Step, first: str
) -> None:
    """The -wal, too, which stands beside its file again: whoever restores a database may go on with that."""
    model, model_backup = tmp_path / "model.db", tmp_path / "model backup.db"
    with mounted(tmp_path, "--no-sync") as mount:
        path, backup = mount.directory / "one.db", mount.directory / "backup.db"
        for each, its in ((path, backup), (model, model_backup)):
            with service(each, its) as child:
                write(each, its)
                if first == "killed" and each is path:
                    mount.kill()
                child.kill()
        if first == "ended":
            mount.stop()
        mount.start("--no-sync")
        assert path.read_bytes() == model.read_bytes()
        for each, its in ((path, backup), (model, model_backup)):
            end(each, its)
        assert path.read_bytes() == model.read_bytes()
        assert rows(path) == rows(model)
        mount.remount()
        assert path.read_bytes() == model.read_bytes()
        assert rows(path) == rows(model)


@pytest.mark.parametrize("last", ["insert into t values(900, 7, 'x')", "pragma wal_checkpoint(truncate)", "vacuum"])
def test_a_service_goes_on_beside_what_was_written_to_its_database(shared: Mount, tmp_path: Path, last: str) -> None:
    """SQLite has its commits in the -wal, before and after; they come to the file by its checkpoint, as on any disk."""
    path, model = shared.directory / f"goes on {len(last)}.db", tmp_path / "model.db"
    for each in (path, model):
        backup = each.with_name("backup.db")
        backup.unlink(missing_ok=True)
        with service(each, backup) as child:
            a_few_bytes(each, backup)
            do(child, "update t set version = 20 where id = 3; insert into t values(800, 8, zeroblob(2000))")
            do(child, f"{last}; pragma wal_checkpoint(passive); update t set version = 21 where id = 5")
            if each is path:
                shared.ask("settle")
    assert rows(path) == rows(model)
    assert path.read_bytes() == model.read_bytes()


def test_a_wal_is_set_aside_when_the_database_beside_it_has_moved_on(tmp_path: Path) -> None:
    """Nobody may have a mixture of the two; its bytes are kept, and that is said."""
    with mounted(tmp_path, "--no-sync") as mount:
        path, backup = mount.directory / "one.db", tmp_path / "backup.db"
        with service(path, backup):
            copied(path, backup)
            bytes_before = Path(f"{path}-wal").read_bytes()
        assert mount.ask("status", "one.db")[0]["wal"] == "parted"
        for way in ("while it is mounted", "while it is not"):
            if way == "while it is not":
                with service(path, backup):
                    copied(path, backup)
                mount.stop()
            with closing(budwood.connect("one.db", home=mount.home)) as db:
                db.execute("update t set version = 50 where id = 1")
            if way == "while it is not":
                mount.start("--no-sync")
            wait_until(lambda: rows(path) == [(60, 50, 59)])
            assert not Path(f"{path}-wal").exists()
            kept = list((mount.home / "mount" / "kept").iterdir())
            assert [each.read_bytes()[:32] for each in kept if str(each) in mount.said()] != []
            path.unlink()
            backup.unlink()
            for each in kept:
                assert each.stat().st_size >= len(bytes_before)
