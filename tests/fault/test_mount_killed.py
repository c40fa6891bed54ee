"""A mount killed in the middle of SQLite's commits: after it is mounted again, each transaction is there whole or not
at all, the database is sound, and what SQLite had acknowledged is there.

Four ways to die:
- between any two calls of a commit, in every journal mode: SQLite runs on a VFS that does nothing but kill the mount
  after the n-th call, for every n until the commit comes through (of like calls in a row the first counts, unless the
  search is deep);
- within the mount, at every fault point of its own (`CUTS`);
- at random moments under a writer in another process, which says what was acknowledged;
- and the program that writes is killed instead of the mount: the next one to open the database finds its last commit.
"""

from __future__ import annotations

import os
import random
import sqlite3
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import apsw
import pytest

from ..mounts import Mount, mounted, needs_fuse
from ..untold import write_untold
from ..waits import LIMIT_SECONDS

pytestmark = needs_fuse

MODES = ("delete", "truncate", "persist", "memory", "off", "wal")
ROLLBACK_MODES = ("delete", "truncate", "persist")
DEEP = os.environ.get("HYPOTHESIS_PROFILE") == "deep"

REQUEST_CUTS: Final = (
    "mount: a request that changes something is about to be answered",
    "mount: a request changed something, the program not told",
)
WAL_CUTS: Final = (
    "mount: commits in the -wal, not in the local store",
    "mount: commits of the -wal in the local store, the -wal still there",
)
TAKEN_BACK: Final = "mount: commits of the -wal taken back in the local store, their frames still there"
CUTS: Final = (REQUEST_CUTS, WAL_CUTS, (TAKEN_BACK,))
"""The mount's own fault points."""

ENDED = (sqlite3.OperationalError, sqlite3.DatabaseError, OSError)


class Killing:
    """SQLite's own VFS, that kills a mount when so many calls that change something have been made."""

    def __init__(self, mount: Mount) -> None:
        self.mount = mount
        self.left: int | None = None
        self.last: tuple[object, ...] = ()
        killing = self

        class File(apsw.VFSFile):
            def xWrite(self, data: Any, offset: int) -> None:  # noqa: N802 - SQLite's names
                super().xWrite(data, offset)
                killing.step(self, "xWrite")

            def xTruncate(self, newsize: int) -> None:  # noqa: N802
                super().xTruncate(newsize)
                killing.step(self, "xTruncate")

            def xSync(self, flags: int) -> None:  # noqa: N802
                super().xSync(flags)
                killing.step(self, "xSync")

            def xClose(self) -> None:  # noqa: N802
                super().xClose()
                killing.step(self, "xClose")

            def xUnlock(self, level: int) -> None:  # noqa: N802
                super().xUnlock(level)
                killing.step(self, "xUnlock")

        class Files(apsw.VFS):
            def __init__(self) -> None:
                super().__init__("killing", base="unix")

            def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
                return File("unix", name, flags)

            def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802
                super().xDelete(filename, syncdir)
                killing.step(None, "xDelete")

        self.vfs = Files()

    def step(self, *like: object) -> None:
        if self.left is not None and (DEEP or like != self.last):
            self.last = like
            self.left -= 1
            if self.left == 0:
                self.mount.kill()

    def connect(self, path: Path, mode: str, synchronous: str) -> apsw.Connection:
        db = apsw.Connection(str(path), vfs="killing")
        if mode == "wal":
            # The index of the -wal lies in memory then: shared memory doesn't pass through this VFS.
            db.execute("pragma locking_mode = exclusive")
        db.execute(f"pragma journal_mode = {mode}")
        db.execute(f"pragma synchronous = {synchronous}")
        return db


def prepare(path: Path, mode: str) -> None:
    """A database of some pages, in the mode, with the number 0 all over it."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute(f"pragma journal_mode = {mode}").fetchall()
        db.execute("begin")
        db.execute("create table t(id integer primary key, number, body)")
        db.executemany("insert into t values(?, 0, zeroblob(900))", ((n,) for n in range(12)))
        db.execute("commit")


CHANGE = "begin immediate; update t set number = number + 1, body = randomblob(900); commit"
"""Of every row, so that a mixture shows."""


def numbers(path: Path) -> set[int]:
    """As the next one finds them who opens the database; one number, if no transaction was torn."""
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("pragma integrity_check").fetchone() == ("ok",)
        return {row[0] for row in db.execute("select number from t")}


def commits(mount: Mount, name: str) -> int:
    mount.ask("settle")
    base, _, unpushed = str(mount.ask("status", name)[0]["lsn"]).partition("+")
    assert base == "0"
    return int(unpushed or 0)


CASES = [(mode, "full") for mode in MODES] + [("wal", "normal")] + [(mode, "normal") for mode in MODES[:-1] if DEEP]


@pytest.mark.parametrize(("mode", "synchronous"), CASES)
def test_a_mount_killed_after_any_call_of_a_commit_has_all_of_it_or_nothing(
    tmp_path: Path, mode: str, synchronous: str
) -> None:
    with mounted(tmp_path, "--no-sync") as mount:
        path = mount.directory / "one.db"
        prepare(path, mode)
        killing, nth, number, made, outcomes = Killing(mount), 0, 0, commits(mount, "one.db"), set[bool]()
        try:
            while mount.lives:
                nth += 1
                acknowledged = commit_killed_after(killing, nth, path, mode, synchronous)
                if mount.lives:
                    break
                mount.start("--no-sync")
                found = numbers(path)
                assert found in ({number}, {number + 1}), f"killed after call {nth}"
                (now,) = found
                assert not acknowledged or now == number + 1, f"call {nth}: what was acknowledged is gone"
                made += now - number
                assert commits(mount, "one.db") == made, f"call {nth}: one LSN for all of it, none for nothing"
                outcomes.add(now == number + 1)
                number = now
        finally:
            killing.vfs.unregister()
        assert nth > 4, "the commit was cut in several places"
        assert outcomes == {False, True}, "some of the kills came before the commit, some after it"


def commit_killed_after(killing: Killing, nth: int, path: Path, mode: str, synchronous: str) -> bool:
    """Whether SQLite said that the transaction was committed."""
    db = killing.connect(path, mode, synchronous)
    acknowledged = False
    try:
        db.execute("select count(*) from t").fetchall()
        killing.left, killing.last = nth, ()
        db.execute(CHANGE)
        acknowledged = True
    except (apsw.Error, OSError):
        pass
    finally:
        with suppress(apsw.Error, OSError):
            db.close(force=True)
        killing.left = None
    return acknowledged


WRITER = """
import sqlite3, sys
path, mode, synchronous, start = sys.argv[1:]
db = sqlite3.connect(path, timeout=300, isolation_level=None)
db.execute(f"pragma journal_mode = {mode}").fetchall()
db.execute(f"pragma synchronous = {synchronous}")
db.execute("pragma cache_size = 5")
for number in range(int(start), 1 << 30):
    db.execute("begin immediate")
    db.execute("update t set number = ?, body = randomblob(900)", (number,))
    db.execute("commit")
    print(number, flush=True)
"""
"""Ends when the mount does, with an error."""


@contextmanager
def child(program: str, *arguments: object) -> Generator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def last_of(output: str, otherwise: int) -> int:
    lines = output.split("\n")[:-1]
    return int(lines[-1]) if lines else otherwise


@pytest.mark.parametrize("mode", MODES)
def test_a_mount_killed_under_a_writer_keeps_what_was_acknowledged(tmp_path: Path, mode: str) -> None:
    chance = random.Random(mode)
    with mounted(tmp_path, "--no-sync") as mount:
        path, number = mount.directory / "one.db", 0
        prepare(path, mode)
        before = commits(mount, "one.db")
        for turn in range(20 if DEEP else 2):
            synchronous = ("full", "normal")[turn % 2]
            with child(WRITER, path, mode, synchronous, number + 1) as writer:
                assert writer.stdout is not None
                first = writer.stdout.readline()
                assert first, writer.communicate()
                time.sleep(chance.random() * 0.15)  # Not for synchronisation: any moment will do.
                mount.kill()
                # `communicate` would pass over what `readline` has read ahead.
                output = writer.stdout.read()
            acknowledged = last_of(first + output, number)
            mount.start("--no-sync")
            (now,) = numbers(path)
            assert acknowledged <= now <= acknowledged + 1
            number = now
            assert commits(mount, "one.db") == before + number


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("point", ["commit: about to be written", "commit: written, the writer not told"])
@pytest.mark.parametrize("nth", [1, 3] if DEEP else [1])
def test_a_commit_cut_within_the_mount_is_there_whole_or_not_at_all(
    tmp_path: Path, mode: str, point: str, nth: int
) -> None:
    with mounted(tmp_path, "--no-sync") as mount:
        path = mount.directory / "one.db"
        prepare(path, mode)
        before = commits(mount, "one.db")
        mount.stop()
        mount.start("--no-sync", fault=f"{point}#{nth}")
        with child(WRITER, path, mode, "full", 1) as writer:
            output, _ = writer.communicate(timeout=LIMIT_SECONDS)
            mount.died()
        acknowledged = last_of(output, 0)
        mount.start("--no-sync")
        (now,) = numbers(path)
        if mode == "wal":
            # They become LSNs behind the writer's back; the -wal has them all.
            assert acknowledged <= now <= acknowledged + 1
        else:
            assert acknowledged == nth - 1
            assert now == acknowledged + (point == "commit: written, the writer not told")
        assert commits(mount, "one.db") == before + now


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("point", REQUEST_CUTS)
def test_a_mount_cut_within_any_request_of_a_transaction_has_all_of_it_or_nothing(
    tmp_path: Path, mode: str, point: str
) -> None:
    """Some of the first requests: a transaction makes about thirty where there is a journal."""
    chance, number = random.Random(f"{mode} {point}"), 0
    with mounted(tmp_path, "--no-sync") as mount:
        path = mount.directory / "one.db"
        prepare(path, mode)
        before = commits(mount, "one.db")
        for nth in range(1, 100) if DEEP else sorted(chance.sample(range(1, 100), 2)):
            mount.stop()
            mount.start("--no-sync", fault=f"{point}#{nth}")
            with child(WRITER, path, mode, "full", number + 1) as writer:
                output, _ = writer.communicate(timeout=LIMIT_SECONDS)
                mount.died()
            acknowledged = last_of(output, number)
            mount.start("--no-sync")
            (now,) = numbers(path)
            assert acknowledged <= now <= acknowledged + 1, f"cut at request {nth}"
            number = now
            assert commits(mount, "one.db") == before + number, f"cut at request {nth}"


@pytest.mark.parametrize("point", WAL_CUTS)
@pytest.mark.parametrize("nth", [1, 2])
def test_commits_that_wait_in_a_wal_outlive_the_mount(tmp_path: Path, point: str, nth: int) -> None:
    with mounted(tmp_path, "--no-sync") as mount:
        path = mount.directory / "one.db"
        prepare(path, "wal")
        before = commits(mount, "one.db")
        mount.stop()
        mount.start("--no-sync", fault=f"{point}#{nth}")
        with child(WRITER, path, "wal", "normal", 1) as writer:
            output, _ = writer.communicate(timeout=LIMIT_SECONDS)
            mount.died()
        acknowledged = last_of(output, 0)
        mount.start("--no-sync")
        (now,) = numbers(path)
        assert acknowledged <= now <= acknowledged + 1
        assert commits(mount, "one.db") == before + now
        # And once more, since the first time may have left something behind.
        mount.kill()
        mount.start("--no-sync")
        assert numbers(path) == {now}
        assert commits(mount, "one.db") == before + now


HALF = """
import sqlite3, sys
path, mode, whole = sys.argv[1:]
db = sqlite3.connect(path, timeout=300, isolation_level=None)
db.execute(f"pragma journal_mode = {mode}").fetchall()
db.execute("pragma cache_size = 2")
db.execute("pragma wal_autocheckpoint = 0").fetchall()
for number in range(1, int(whole) + 1):
    db.execute("begin")
    db.execute("update t set number = ?, body = randomblob(900)", (number,))
    db.execute("commit")
db.execute("begin immediate")
db.execute("update t set number = -1, body = randomblob(900)")
db.execute("insert into t select id + 1000, -1, randomblob(9000) from t")
print("half", flush=True)
sys.stdin.read()
"""
"""Commits, and then waits within a transaction that has spilled."""


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("mode", [*ROLLBACK_MODES, "wal"])
def test_a_program_killed_within_a_transaction_leaves_its_last_commit(tmp_path: Path, mode: str, beside: bool) -> None:
    """With another that has the database open all the while, and without."""
    with mounted(tmp_path, "--no-sync") as mount:
        path = mount.directory / "one.db"
        prepare(path, mode)
        before = commits(mount, "one.db")
        with closing(sqlite3.connect(path)) as other, child(HALF, path, mode, 3) as writer:
            if beside:
                assert other.execute("select count(*) from t").fetchone() == (12,)
            else:
                other.close()
            assert writer.stdout is not None
            assert writer.stdout.readline() == "half\n", writer.communicate()
            assert commits(mount, "one.db") == before + 3, "what has spilled is no commit"
            writer.kill()
            writer.wait()
            assert numbers(path) == {3}
            if beside:
                assert other.execute("select count(*), sum(number) from t").fetchone() == (12, 36)
        assert commits(mount, "one.db") == before + 3
        with closing(sqlite3.connect(path, isolation_level=None)) as db:
            db.execute("update t set number = 4")
        mount.remount()
        assert numbers(path) == {4}
        assert commits(mount, "one.db") == before + 4


def test_a_program_and_the_mount_killed_within_a_transaction_leave_the_last_commit(tmp_path: Path) -> None:
    with mounted(tmp_path, "--no-sync") as mount:
        for mode in (*ROLLBACK_MODES, "wal"):
            path = mount.directory / f"{mode}.db"
            prepare(path, mode)
            before = commits(mount, f"{mode}.db")
            with child(HALF, path, mode, 2) as writer:
                assert writer.stdout is not None
                assert writer.stdout.readline() == "half\n", writer.communicate()
                mount.kill()
            mount.start("--no-sync")
            assert numbers(path) == {2}
            assert commits(mount, f"{mode}.db") == before + 2


def test_a_commit_that_the_mount_did_not_survive_is_an_error_and_not_silence(tmp_path: Path) -> None:
    with mounted(tmp_path, "--no-sync") as mount:
        path = mount.directory / "one.db"
        prepare(path, "delete")
        with closing(sqlite3.connect(path, isolation_level=None)) as db:
            db.execute("begin")
            db.execute("update t set number = 9")
            mount.kill()
            with pytest.raises(ENDED):
                db.execute("commit")
        mount.start("--no-sync")
        assert numbers(path) == {0}


def test_a_mount_killed_while_a_transaction_is_taken_back_has_all_of_it_or_nothing(tmp_path: Path) -> None:
    """Its program died before it told anybody, and another one goes on without it."""
    with mounted(tmp_path, "--no-sync", fault=TAKEN_BACK) as mount:
        path = mount.directory / "one.db"
        prepare(path, "wal")
        with closing(sqlite3.connect(path, isolation_level=None)) as db:
            db.execute("update t set number = 1")
            write_untold(path, "update t set number = 2", tmp_path)
            mount.ask("settle")
            with pytest.raises(sqlite3.OperationalError):
                db.execute("update t set number = 3 where id = 1")
            with suppress(*ENDED):
                db.close()
        mount.died()
        mount.start("--no-sync")
        assert numbers(path) in ({1}, {2})
        with closing(sqlite3.connect(path, isolation_level=None)) as db:
            db.execute("update t set number = 4")
        mount.kill()
        mount.start("--no-sync")
        assert numbers(path) == {4}
