"""Reading where nothing can be written: a full disk, a limit of file sizes, a home on a read-only file system, a home
of somebody else.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

import budwood
from budwood.sync.edge import open as open_edge
from budwood.volume.errors import Full, ReadOnly, Unavailable

from ..waits import LIMIT_SECONDS
from .cli import Command

ROWS = 400

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounting, and giving files away, takes root")


def make(tmp_path: Path) -> str:
    """A store with a volume in two LSNs; its URL."""
    remote = f"file://{tmp_path}/store"
    with closing(budwood.connect("v", home=tmp_path / "maker", remote=remote)) as db:
        db.execute("create table t(a integer primary key, b); create table other(a)")
        db.execute("pragma budwood_push").fetchall()
        db.execute("begin")
        db.executemany("insert into t(b) values(?)", ((f"{n}-" * 200,) for n in range(ROWS)))
        db.execute("commit")
        db.execute("pragma budwood_push").fetchall()
    return remote


def mounted(*arguments: str) -> Callable[[], object]:
    """Gives what ends it."""
    subprocess.run(["mount", *arguments], check=True, capture_output=True, timeout=LIMIT_SECONDS)
    return lambda: subprocess.run(["umount", "-l", arguments[-1]], check=True, timeout=LIMIT_SECONDS)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Four megabytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    try:
        end = mounted("-t", "tmpfs", "-o", "size=4m", "none", str(folder))
    except (subprocess.CalledProcessError, FileNotFoundError):
        pytest.skip("this machine mounts no tmpfs")
    yield folder
    end()


def fill(disk: Path) -> None:
    with (disk / "filler").open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))
    assert os.statvfs(disk).f_bavail == 0


@needs_root
@pytest.mark.parametrize("lsn", [None, 1, 2])
def test_pages_that_are_not_held_are_read_on_a_full_disk(tmp_path: Path, small_disk: Path, lsn: int | None) -> None:
    remote, home = make(tmp_path), small_disk / "home"
    with open_edge(home=home, remote=remote) as edge:
        edge.volume("v")
    fill(small_disk)
    count = [(0,)] if lsn == 1 else [(ROWS,)]
    for mode in ("ro", "rw") if lsn is None else ("ro",):
        with closing(budwood.connect("v", home=home, remote=remote, lsn=lsn, mode=mode)) as db:
            assert db.execute("select count(*) from t where b != ''").fetchall() == count
            assert db.execute("pragma integrity_check").fetchall() == [("ok",)]
    with open_edge(home=home, remote=remote) as edge:
        volume = edge.volume("v")
        assert volume.status()["held_pages"] == 0
        volume.export(tmp_path / "file")
        with pytest.raises(Full):
            volume.fetch()
    with closing(budwood.connect("v", home=home, remote=remote)) as db:
        with pytest.raises(Full):
            db.execute("insert into other values(1)")
        (small_disk / "filler").unlink()
        db.execute("insert into other values(1)")
        assert db.execute("select count(*) from t").fetchall() == [(ROWS,)]


def test_pages_are_read_where_files_may_not_grow(tmp_path: Path) -> None:
    """RLIMIT_FSIZE stands in for a full disk where nobody is root."""
    remote, home = make(tmp_path), tmp_path / "home"
    with open_edge(home=home, remote=remote) as edge:
        edge.volume("v")
    code = (
        "import sys, budwood\n"
        "db = budwood.connect('v', home=sys.argv[1], remote=sys.argv[2], mode='ro')\n"
        "print(db.execute(\"select count(*) from t where b != ''\").fetchall())\n"
    )

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))

    command = [sys.executable, "-c", code, str(home), remote]
    ran = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=LIMIT_SECONDS, preexec_fn=limited
    )
    assert (ran.stdout, ran.returncode) == (f"[({ROWS},)]\n", 0), ran.stderr


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    """The home of the volume on a file system that is read-only."""
    make(tmp_path)
    folder = tmp_path / "ro"
    folder.mkdir()
    try:
        end = mounted("--bind", str(tmp_path / "maker"), str(folder))
    except (subprocess.CalledProcessError, FileNotFoundError):
        pytest.skip("this machine makes no bind mounts")
    try:
        subprocess.run(
            ["mount", "-o", "remount,ro,bind", str(folder)], check=True, capture_output=True, timeout=LIMIT_SECONDS
        )
        yield folder
    finally:
        end()


@needs_root
def test_a_home_on_a_read_only_file_system_is_read(tmp_path: Path, read_only: Path) -> None:
    remote = f"file://{tmp_path}/store"
    for lsn in (None, 1, 2):
        with closing(budwood.connect("v", home=read_only, remote=remote, lsn=lsn, mode="ro")) as db:
            assert db.execute("select count(*) from t where b != ''").fetchall() == [(0 if lsn == 1 else ROWS,)]
    with closing(budwood.connect("v", home=read_only, remote=remote)) as db:
        assert db.execute("select count(*) from t").fetchall() == [(ROWS,)]
        with pytest.raises(Exception, match="readonly"):
            db.execute("insert into other values(1)")
        assert db.execute("select count(*) from t").fetchall() == [(ROWS,)]
    with open_edge(home=read_only, remote=remote) as edge:
        volume = edge.volume("v")
        assert volume.read_only
        assert [row["name"] for row in edge.ls()] == ["v"]
        assert volume.status()["lsn"] == "2"
        volume.export(tmp_path / "file")
        for refused in (volume.push, volume.pull, volume.writer, lambda: edge.create("w")):
            with pytest.raises(ReadOnly):
                refused()


@needs_root
def test_commands_read_a_read_only_home(tmp_path: Path, read_only: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = Command(capsys, read_only)
    assert command.ok("sql", "v", "select count(*) from t") == f"{ROWS}\n"
    assert json.loads(command.ok("status", "v", "--json"))[0]["lsn"] == "2"
    assert "v" in command.ok("ls")
    command.ok("export", "v", str(tmp_path / "file"))
    assert (tmp_path / "file").stat().st_size > ROWS * 200
    assert "read" in command("sql", "v", "insert into other values(1)").line()
    assert "read" in command("create", "w").line()


@needs_root
def test_a_home_that_is_being_written_is_not_read_without_a_place_in_its_table_of_readers(
    tmp_path: Path, read_only: Path
) -> None:
    """Through the read-only file system no reader can say that it is there."""
    code = (
        "import sys, budwood\n"
        "with budwood.open(home=sys.argv[1], remote=''):\n"
        "    print('open', flush=True)\n"
        "    sys.stdin.read()\n"
    )
    with open_edge(home=read_only, remote="") as edge:
        volume = edge.volume("v")
        with subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path / "maker")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as other:
            assert other.stdout is not None
            assert other.stdin is not None
            assert other.stdout.readline() == "open\n"
            with pytest.raises(Unavailable, match="another one has it open"):
                volume.status()
            other.stdin.close()
            assert other.wait(LIMIT_SECONDS) == 0
        assert volume.status()["lsn"] == "2"


@needs_root
def test_a_home_of_somebody_else_is_read_and_not_written(tmp_path: Path) -> None:
    remote = make(tmp_path)
    home = tmp_path / "maker"
    for path in (home, *home.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    for path in (tmp_path, *tmp_path.parents):
        if path.stat().st_mode & 0o001 == 0 and path != Path("/"):
            path.chmod(path.stat().st_mode | 0o001)
    code = (
        "import os, sys\n"
        "import budwood, budwood.sync.edge, budwood.vfs.connect\n"
        "os.setgid(12345); os.setuid(12345)\n"
        "db = budwood.connect('v', home=sys.argv[1], remote='')\n"
        "print(db.execute('select count(*) from t').fetchall())\n"
        "try:\n"
        "    db.execute('insert into other values(1)')\n"
        "except Exception as error:\n"
        "    print(type(error).__name__)\n"
    )
    # Its owner is neither root nor that user.
    for path in (home, *home.rglob("*")):
        os.chown(path, 23456, 23456)
    command = [sys.executable, "-c", code, str(home), remote]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT_SECONDS)
    assert ran.stdout.splitlines() == [f"[({ROWS},)]", "ReadOnlyError"], ran.stderr
    shutil.rmtree(home)
