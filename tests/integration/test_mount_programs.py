"""Programs that know nothing of a mount do to its files what they do to any, and find there what they left."""

from __future__ import annotations

import os
import resource
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from functools import partial
from pathlib import Path

import pytest

from budwood.sync.edge import open as open_edge

from ..mounts import MODULE_SECONDS, Mount, mounted, needs_fuse
from ..untold import write_untold
from ..waits import LIMIT_SECONDS, wait_until

pytestmark = needs_fuse


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mount]:
    with mounted(tmp_path_factory.mktemp("programs"), "--no-sync", limit_seconds=MODULE_SECONDS) as mount:
        yield mount


def run(directory: Path, *command: str, seconds: float = LIMIT_SECONDS) -> str:
    done = subprocess.run(
        command, cwd=directory, capture_output=True, text=True, timeout=seconds, stdin=subprocess.DEVNULL, check=False
    )
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_git_works_in_a_repository_on_the_mount(shared: Mount) -> None:
    repository = shared.directory / "repository"
    repository.mkdir()
    run(repository, "git", "init", "-q", ".")
    for number in range(40):
        (repository / f"file {number}").write_text(f"{number}\n" * number)
    run(repository, "git", "add", ".")
    who = ("-c", "user.name=Somebody", "-c", "user.email=somebody@example.org")
    run(repository, "git", *who, "commit", "-qm", "First")
    run(repository, "git", "gc", "-q")
    run(repository, "git", "fsck", "--strict")
    run(shared.directory, "git", "clone", "-q", "repository", "clone")
    assert run(shared.directory / "clone", "git", "status", "--short") == ""
    assert (shared.directory / "clone" / "file 39").read_text() == "39\n" * 39


def test_a_program_keeps_the_directory_that_it_works_in_when_others_change_names(shared: Mount) -> None:
    """The mount looks all names up again; a directory that stands is not taken from under a program by that."""
    directory = shared.directory / "works here"
    directory.mkdir()
    with subprocess.Popen(
        ["sh", "-c", "while read line; do /bin/pwd; done"],
        cwd=directory,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        for number in range(3):
            with open_edge(home=shared.home) as edge:
                edge.create(f"made by another process {number}")
            wait_until((shared.directory / f"made by another process {number}").exists)
            program.stdin.write("\n")
            program.stdin.flush()
            assert program.stdout.readline() == f"{directory}\n"
        program.stdin.close()


def test_a_directory_has_a_link_for_each_directory_in_it(tmp_path: Path) -> None:
    """As programs believe that walk trees."""

    def counted(top: Path) -> None:
        for folder, below, _ in os.walk(top):
            assert Path(folder).stat().st_nlink == 2 + len(below), folder

    with mounted(tmp_path) as mount, open_edge(home=mount.home) as edge:
        top = mount.directory / "top"
        for name in ("a/b/c", "a/d", "e", "f"):
            (top / name).mkdir(parents=True)
            (top / name / "file").write_text("x")
        counted(top)
        (top / "a/b").rename(top / "e/b")
        (top / "f/file").unlink()
        (top / "a/d").rename(top / "f")
        (top / "e/b/c").rename(top / "c")
        counted(top)
        os.replace(top / "e/file", top / "f/file")
        (top / "e/b").rmdir()
        counted(top)
        edge.create("top/made/elsewhere")
        wait_until(lambda: (top / "made/elsewhere").exists())
        counted(top)
        edge.rm("top/made/elsewhere")
        wait_until(lambda: not (top / "made").exists())
        counted(top)
        mount.remount()
        counted(top)


def test_who_reads_an_open_directory_again_sees_what_came_and_went(shared: Mount) -> None:
    directory = shared.directory / "read twice"
    directory.mkdir()
    (directory / "before").touch()
    opened = os.open(directory, os.O_RDONLY)
    try:
        (directory / "since").touch()
        assert sorted(os.listdir(opened)) == ["before", "since"]
        (directory / "before").unlink()
        (directory / "later").touch()
        assert sorted(os.listdir(opened)) == ["later", "since"]
        again = os.open(directory, os.O_RDONLY)
        os.lseek(again, 1, os.SEEK_SET)
        assert len(os.listdir(again)) == 1, "whoever opens it anew goes on behind the first"
        os.close(again)
        shutil.rmtree(directory)
        assert os.listdir(opened) == []
    finally:
        os.close(opened)


def test_times_of_directories_survive_a_remount(tmp_path: Path) -> None:
    with mounted(tmp_path, "--no-sync") as mount:
        folder = mount.directory / "folder"
        (folder / "inner").mkdir(parents=True)
        (folder / "inner" / "file").write_text("one")
        (folder / "file").write_text("one")
        for each, seconds in ((folder / "inner", 5), (folder, 7)):
            os.utime(each, ns=(0, seconds * 1_000_000_000))
        mount.remount()
        assert [int(each.stat().st_mtime) for each in (folder, folder / "inner")] == [7, 5]


@pytest.mark.parametrize("goes_on", ["after it", "with a new round", "from nothing"])
def test_a_killed_writers_transaction_that_sqlite_goes_on_without_leaves_nothing(
    shared: Mount, tmp_path: Path, goes_on: str
) -> None:
    """It changes a row and its index. Then another program, which has the row's page in its cache, changes the row."""
    path = shared.directory / f"untold {goes_on}.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("pragma journal_mode = wal")
        db.execute("create table t(id integer primary key, body, number)")
        db.execute("create index by_body on t(body)")
        db.executemany("insert into t values(?, hex(randomblob(200)), 0)", ((n,) for n in range(100)))
        assert db.execute("pragma wal_checkpoint(restart)").fetchone()[0] == 0
        db.execute("update t set number = 1 where id = 5")
        before = db.execute("select * from t").fetchall()
        write_untold(path, "update t set body = 'untold', number = 2 where id = 7", tmp_path)
        shared.ask("settle")
        if goes_on != "after it":
            kind = "restart" if goes_on == "with a new round" else "truncate"
            assert db.execute(f"pragma wal_checkpoint({kind})").fetchone()[0] == 0
        db.execute("update t set number = number + 1 where id = 7")
        expected = [(id_, body, 1 if id_ == 7 else number) for id_, body, number in before]
        assert db.execute("select * from t").fetchall() == expected
        assert db.execute("pragma integrity_check").fetchone() == ("ok",)
        shared.ask("settle")
        with open_edge(home=shared.home) as edge:
            edge.volume(path.name).export(tmp_path / "exported.db")
        with closing(sqlite3.connect(tmp_path / "exported.db")) as exported:
            assert exported.execute("select * from t").fetchall() == expected
            assert exported.execute("pragma integrity_check").fetchone() == ("ok",)
    with closing(sqlite3.connect(path)) as again:
        assert again.execute("select * from t").fetchall() == expected


@pytest.mark.parametrize("mode", ["wal", "delete", "persist"])
def test_a_database_that_is_renamed_while_it_is_open_stays_one_database(shared: Mount, mode: str) -> None:
    """Whoever opens it by its new name finds the -wal that whoever has it open goes on writing."""
    path, renamed = shared.directory / f"old-{mode}.db", shared.directory / f"new-{mode}.db"
    with closing(filled(path, mode)) as db:
        path.rename(renamed)
        # The kernel is told of it when the rename was answered. Until then whoever had the database open would find its
        # journal, and no database beside it: an I/O error to SQLite.
        wait_until(lambda: not path.with_name(f"{path.name}-journal").exists())
        with closing(sqlite3.connect(renamed, isolation_level=None)) as other:
            assert other.execute("select a from t").fetchall() == [(1,)]
            other.execute("insert into t values(2)")
            if mode == "wal":
                db.execute("insert into t values(3)")
            else:
                # SQLite sees that its file has moved, and couldn't name the journal.
                with pytest.raises(sqlite3.OperationalError):
                    db.execute("insert into t values(3)")
            assert db.execute("select max(a) from t").fetchall() == other.execute("select max(a) from t").fetchall()
    expected = [1, 2, 3] if mode == "wal" else [1, 2]
    with closing(sqlite3.connect(renamed)) as again:
        assert [row[0] for row in again.execute("select a from t order by a")] == expected
    assert [each.name for each in shared.directory.glob(f"*-{mode}.db*")] == [renamed.name]


@pytest.mark.parametrize("mode", ["wal", "delete", "persist"])
@pytest.mark.parametrize("how", ["unlinked", "replaced"])
def test_a_database_made_in_the_place_of_one_that_is_open_has_nothing_of_it(
    shared: Mount, tmp_path: Path, mode: str, how: str
) -> None:
    """The -wal of the old one least of all; and the old one goes on, for those who have it open."""
    path = shared.directory / f"{how}-{mode}.db"
    with closing(filled(path, mode)) as db:
        if how == "unlinked":
            path.unlink()
        else:
            filled(tmp_path / "new.db", "delete").close()
            shutil.copyfile(tmp_path / "new.db", path.with_suffix(".tmp"))
            path.with_suffix(".tmp").rename(path)
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute(f"pragma journal_mode = {mode}")
            other.execute("create table if not exists t(a)")
            other.execute("delete from t")
            other.execute("insert into t values(10)")
            if mode == "wal":
                db.execute("insert into t values(2)")
            assert db.execute("select a from t").fetchall() == ([(1,), (2,)] if mode == "wal" else [(1,)])
            db.close()
            other.execute("insert into t values(11)")
            shared.ask("settle")
            with open_edge(home=shared.home) as edge:
                edge.volume(path.name).export(tmp_path / "exported.db")
    for each in (path, tmp_path / "exported.db"):
        with closing(sqlite3.connect(each)) as found:
            assert found.execute("select a from t").fetchall() == [(10,), (11,)]


def filled(path: Path, mode: str) -> sqlite3.Connection:
    db = sqlite3.connect(path, isolation_level=None)
    db.execute(f"pragma journal_mode = {mode}")
    db.execute("create table t(a)")
    db.execute("insert into t values(1)")
    return db


HOLDING = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("pragma journal_mode = wal").fetchall()
db.execute("pragma wal_autocheckpoint = 0")
db.execute("create table t(a)")
db.execute("insert into t values(zeroblob(100000))")
print("committed", flush=True)
sys.stdin.read()
"""


def test_a_killed_programs_database_is_looked_at_as_it_is_now(shared: Mount, tmp_path: Path) -> None:
    """Its length, which the kernel was told before, is that of the commits of its -wal as well."""
    path = shared.directory / "killed.db"
    with subprocess.Popen(
        [sys.executable, "-c", HOLDING, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "committed\n"
        before = path.stat()
        program.kill()
    wait_until(lambda: not Path(f"{path}-wal").exists())
    wait_until(lambda: path.stat().st_size > 100_000)
    wait_until(lambda: path.stat().st_mtime_ns > before.st_mtime_ns)
    shutil.copyfile(path, tmp_path / "copy.db")
    with closing(sqlite3.connect(tmp_path / "copy.db")) as copy:
        assert copy.execute("select length(a) from t").fetchone() == (100_000,)


def is_gone(path: Path) -> bool:
    return not path.exists()


@pytest.mark.parametrize("end", ["removed", "cut"])
def test_a_wal_is_ended_just_after_its_program_died(shared: Mount, end: str) -> None:
    """While the mount takes its commits over: whoever ends it waits for that, and is told that it is done."""
    for number in range(10):
        path = shared.directory / f"{end} {number}.db"
        with subprocess.Popen(
            [sys.executable, "-c", HOLDING, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as program:
            assert program.stdout is not None
            assert program.stdout.readline() == "committed\n"
            program.kill()
        wal = Path(f"{path}-wal")
        # It may be gone by then, of itself.
        with suppress(FileNotFoundError):
            wal.unlink() if end == "removed" else os.truncate(wal, 0)
        with closing(sqlite3.connect(path)) as db:
            assert db.execute("select length(a) from t").fetchone() == (100_000,)
        wait_until(partial(is_gone, wal))


def test_the_time_that_stat_tells_is_that_of_the_commit(tmp_path: Path) -> None:
    """Though a program looked at the file when it had written, and not yet closed it."""
    with mounted(tmp_path, "--no-sync") as mount:
        path = mount.directory / "file"
        with path.open("wb", buffering=0) as file:
            file.write(b"one")
            os.fstat(file.fileno())
        told = path.stat().st_mtime_ns
        mount.remount()
        assert path.stat().st_mtime_ns == told


@pytest.mark.slow
def test_more_files_are_open_at_once_than_a_process_may_have_by_default(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2200:
        pytest.skip("this machine lets no process have so many files open")
    with mounted(tmp_path, "--no-sync") as mount, ExitStack() as files:
        resource.setrlimit(resource.RLIMIT_NOFILE, (2200, hard))
        files.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        for number in range(1100):
            files.enter_context((mount.directory / f"file {number}").open("wb"))
        assert len(mount.ask("status")) == 1100


def test_a_program_whose_wal_was_removed_under_it_loses_nothing(shared: Mount) -> None:
    """It writes on in what it has open, though there is another -wal by then, and checkpoints when it closes."""
    path = shared.directory / "removed.db"
    with closing(filled(path, "wal")) as db:
        Path(f"{path}-wal").unlink()
        with closing(sqlite3.connect(path)) as other, suppress(sqlite3.OperationalError):
            other.execute("select a from t").fetchall()
        db.execute("insert into t values(2)")
    with closing(sqlite3.connect(path)) as again:
        assert again.execute("select a from t").fetchall() == [(1,), (2,)]


def test_a_mount_ends_well_as_soon_as_it_said_that_it_serves(tmp_path: Path) -> None:
    for _ in range(5):
        with mounted(tmp_path, "--no-sync"):
            pass
