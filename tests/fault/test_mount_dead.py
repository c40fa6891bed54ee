"""A mount whose process is dead, is dying, or is stopped: whoever is on it gets an error and ends, and every command of
ours answers. Nothing that was started for the mount is left.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest

from .. import fork_server
from ..integration.test_mount_sync import connect, make, number, set_all, shows
from ..mounts import ENTRY, Mount, mounted, needs_fuse
from ..waits import LIMIT_SECONDS, wait_until

pytestmark = needs_fuse

HOLDING = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=0)
db.execute("begin")
db.execute("select count(*) from item").fetchone()
print("within", flush=True)
sys.stdin.readline()
"""
"""Stays within a read transaction."""

WORKING = """
import os, sqlite3, sys
path, begun = sys.argv[1:]
db = sqlite3.connect(path, isolation_level=None, timeout=0)
while True:
    try:
        os.stat(path)
        with open(path, "rb") as file:
            file.read(100)
        db.execute("select min(v) from item").fetchone()
        db.execute("begin immediate")
        db.execute("update item set v = -1 where id = 1")
        db.execute("rollback")
    except sqlite3.OperationalError as error:
        if error.sqlite_errorname.split("_")[1] not in ("BUSY", "LOCKED"):
            raise
    if begun:
        print("working", flush=True)
        begun = ""
"""
"""Reads, and writes what it takes back, until the mount is gone, which is an error."""


@contextmanager
def program(text: str, *arguments: object) -> Generator[subprocess.Popen[str]]:
    command = [sys.executable, "-I", "-c", text, *map(str, arguments)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline(), child.communicate()
            yield child
        finally:
            child.kill()


def device(directory: Path) -> str:
    """As the kernel's tables write it; the directory isn't looked at."""
    wanted = os.fspath(directory).replace(" ", "\\040")
    with open("/proc/self/mountinfo") as table:
        return next(line.split()[2] for line in table if line.split()[4] == wanted)


def is_being_moved(directory: Path) -> bool:
    """Whether someone holds the locks that keep others from writing to a database of the mount, without being SQLite:
    RESERVED, or WRITE in the -shm, for an open file and not for a process.
    """
    major, _, minor = device(directory).partition(":")
    where = f" {int(major):02x}:{int(minor):02x}:"
    with open("/proc/locks") as table:
        ours = [line.split() for line in table if "OFDLCK" in line and where in line]
    places = [(int(each[-2]), int(each[-1])) for each in ours if each[3] == "WRITE" and each[-1] != "EOF"]
    # Adjacent locks are one in the table.
    return any(start <= place <= end for start, end in places for place in (0x40000001, 120))


def command(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return fork_server.run([*ENTRY, "--home", str(home), *arguments], timeout=LIMIT_SECONDS)


def children_of(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_gone(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    # Nobody here may wait for it: it has another parent by now.
    return state in "ZX"


@contextmanager
def node(folder: Path) -> Generator[tuple[str, subprocess.Popen[str]]]:
    """A node that may be stopped: its URL, its process."""
    with fork_server.Popen(
        [*ENTRY, "serve", "--create", "--store", (folder / "store").as_uri(), "--listen", "127.0.0.1:0"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().split()[-1], process
        finally:
            process.kill()


@contextmanager
def pair(folder: Path) -> Generator[tuple[Mount, Mount]]:
    remote = (folder / "store").as_uri()
    with (
        mounted(folder, "--no-sync", remote=remote, home="home-a", directory="a") as one,
        mounted(folder, "--no-sync", remote=remote, home="home-b", directory="b") as two,
    ):
        yield one, two


@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_a_mount_killed_while_it_moves_an_open_database_ends_and_so_do_its_programs(tmp_path: Path, mode: str) -> None:
    with pair(tmp_path) as (one, two), closing(make(one.directory / "shop", mode)) as ours:
        one.ask("push")
        two.ask("pull")
        path = two.directory / "shop"
        assert shows(path, 0)
        for turn in range(1, 5):
            set_all(ours, turn)
            one.ask("push", "shop")
            with ExitStack() as programs:
                holding = programs.enter_context(program(HOLDING, path))
                working = programs.enter_context(program(WORKING, path, "yes"))
                pull = programs.enter_context(
                    fork_server.Popen(
                        [*ENTRY, "--home", str(two.home), "pull", "shop"],
                        stdout=subprocess.DEVNULL,
                        stderr=subprocess.DEVNULL,
                    )
                )
                programs.callback(pull.kill)
                assert two.process is not None
                process, others = two.process, children_of(two.process.pid)
                wait_until(lambda: is_being_moved(two.directory))
                process.kill()
                try:
                    assert process.wait(LIMIT_SECONDS) == -signal.SIGKILL
                    assert working.wait(LIMIT_SECONDS) == 1
                    assert pull.wait(LIMIT_SECONDS) != 0
                    wait_until(lambda: all(map(is_gone, others)))  # noqa: B023 - called in this turn
                    if turn == 1:
                        assert command(two.home, "status").returncode == 0
                        assert "dead" in command(two.home, "mounts").stdout
                        assert "has died" in command(two.home, "doctor").stdout
                    # Taken away even from under who has files open there.
                    assert "had died" in command(two.home, "umount", str(two.directory)).stdout
                    holding.communicate("end\n", timeout=LIMIT_SECONDS)
                finally:
                    two.end()
            two.start("--no-sync")
            two.ask("pull", "shop")
            with closing(connect(path)) as theirs:
                assert number(theirs) == turn
                assert theirs.execute("pragma integrity_check").fetchone() == ("ok",)


LOOKING = """
import os, sys
print("looking", flush=True)
os.stat(sys.argv[1])
"""


def has_begun_to_look(mount: Mount) -> bool:
    return int(mount.ask("metrics")["requests_total"]["request"].get("lookup", 0)) > 1


def tells_the_kernel(pid: int) -> bool:
    """Whether a thread of the process waits, and for no signal, until the kernel has forgotten something."""
    tasks = list(Path(f"/proc/{pid}/task").iterdir())
    asleep = [each for each in tasks if (each / "stat").read_text().rpartition(")")[2].split()[0] == "D"]
    return any("fuse" in (each / "wchan").read_text() for each in asleep)


def test_a_mount_killed_while_it_waits_for_a_request_of_its_own_ends(tmp_path: Path) -> None:
    """The kernel is told to forget a name, and waits for a lookup in the same directory, which waits for the remote."""
    with (
        node(tmp_path) as (url, served),
        mounted(tmp_path, "--no-sync", remote=url, home="home-a", directory="a") as one,
        mounted(tmp_path, "--no-sync", remote=url, home="home-b", directory="b") as two,
    ):
        (one.directory / "far").write_bytes(b"far")
        one.ask("push")
        two.ask("pull")
        (two.directory / "near").write_bytes(b"near")
        assert two.process is not None
        process, others = two.process, children_of(two.process.pid)
        served.send_signal(signal.SIGSTOP)
        with program(LOOKING, two.directory / "far") as looking:
            wait_until(lambda: has_begun_to_look(two))
            assert command(two.home, "mv", "near", "elsewhere").returncode == 0
            wait_until(lambda: tells_the_kernel(process.pid))
            with program(LOOKING, two.directory / "near") as another:
                process.kill()
                try:
                    assert process.wait(LIMIT_SECONDS) == -signal.SIGKILL
                    assert looking.wait(LIMIT_SECONDS) == 1
                    another.wait(LIMIT_SECONDS)  # Cut off, or answered just before: it ends.
                    wait_until(lambda: all(map(is_gone, others)))
                    assert command(two.home, "status").returncode == 0
                    assert "had died" in command(two.home, "umount", str(two.directory)).stdout
                finally:
                    two.end()
        served.send_signal(signal.SIGCONT)


def test_a_mount_whose_process_is_stopped_keeps_no_command_waiting(tmp_path: Path) -> None:
    with mounted(tmp_path, "--no-sync") as mount:
        (mount.directory / "file").write_bytes(b"one")
        (tmp_path / "link").symlink_to(mount.directory)
        assert mount.process is not None
        told = f"is stopped, and can't answer 'settle': kill -CONT {mount.process.pid} lets its process go on"
        mount.process.send_signal(signal.SIGSTOP)
        try:
            for each in (["status"], ["push", "file"], ["umount", str(tmp_path / "link")]):
                done = command(mount.home, *each)
                assert done.returncode != 0
                assert told in done.stderr
            assert f"{mount.process.pid}, stopped" in command(mount.home, "mounts").stdout
            assert "is stopped" in command(mount.home, "doctor").stdout
            assert "is a mount of" in command(mount.home, "mount", str(tmp_path / "link")).stderr
        finally:
            mount.process.send_signal(signal.SIGCONT)
        assert command(mount.home, "status").returncode == 0
        assert (mount.directory / "file").read_bytes() == b"one"


def test_a_locker_that_is_killed_is_begun_anew_and_none_outlives_its_mount(tmp_path: Path) -> None:
    with pair(tmp_path) as (one, two), closing(make(one.directory / "shop", "wal")) as ours:
        one.ask("push")
        two.ask("pull")
        assert two.process is not None
        lockers: list[int] = []
        with closing(connect(two.directory / "shop")) as theirs:
            assert number(theirs) == 0
            for turn in range(1, 4):
                wait_until(lambda: not set(children_of(two.process.pid)) & set(lockers))  # type: ignore[union-attr]
                wait_until(lambda: children_of(two.process.pid))  # type: ignore[union-attr]
                (locker,) = children_of(two.process.pid)
                for value in (turn, turn + 10):
                    set_all(ours, value)
                    one.ask("push", "shop")
                    two.ask("pull", "shop")
                    assert number(theirs) == value
                    # What a terminal or a supervisor sends is not meant for it.
                    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                        os.kill(locker, each)
                assert children_of(two.process.pid) == [locker]
                assert os.getsid(locker) == locker
                lockers.append(locker)
                os.kill(locker, signal.SIGKILL)
            set_all(ours, 4)
            one.ask("push", "shop")
            two.ask("pull", "shop")
            assert number(theirs) == 4
            lockers += children_of(two.process.pid)
        two.stop()
        assert all(map(is_gone, lockers))


def test_a_locker_that_is_killed_while_it_holds_the_locks_leaves_everything_as_it_was(tmp_path: Path) -> None:
    with pair(tmp_path) as (one, two), closing(make(one.directory / "shop", "wal")) as ours:
        one.ask("push")
        two.ask("pull")
        path = two.directory / "shop"
        assert shows(path, 0)
        set_all(ours, 1)
        one.ask("push", "shop")
        assert two.process is not None
        with program(HOLDING, path) as holding, closing(connect(path)) as theirs:
            pull = fork_server.Popen(
                [*ENTRY, "--home", str(two.home), "pull", "shop"],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )
            with pull:
                wait_until(lambda: is_being_moved(two.directory))
                for each in children_of(two.process.pid):
                    os.kill(each, signal.SIGKILL)
                _, heard = pull.communicate(timeout=LIMIT_SECONDS)
                assert "can't be locked" in heard or "within transactions" in heard
            assert number(theirs) == 0
            holding.communicate("end\n", timeout=LIMIT_SECONDS)
            two.ask("pull", "shop")
            assert number(theirs) == 1
            assert theirs.execute("pragma integrity_check").fetchone() == ("ok",)
