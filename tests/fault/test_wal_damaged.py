"""A -wal that a crash left and that is damaged or missing: the commits that it held are lost, as they are in SQLite;
how many is said, once, and its bytes are kept.

The crash is one of the machine: what was committed since the local store was flushed last is in the -wal alone. It is
made by putting the store's file back as it was then.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from ..integration.cli import Command
from ..mounts import Mount, mounted, needs_fuse
from ..waits import wait_until

pytestmark = needs_fuse

BEFORE, AFTER = 3, 5
"""Commits that the store has, and those that only the -wal has."""
FRAME = 24 + 4096


def flipped(offset: int) -> Callable[[Path], None]:
    def damage(wal: Path) -> None:
        with wal.open("r+b") as file:
            file.seek(offset)
            (byte,) = file.read(1)
            file.seek(offset)
            file.write(bytes([byte ^ 1]))

    return damage


def cut(length: int) -> Callable[[Path], None]:
    return lambda wal: os.truncate(wal, length)


def nothing(wal: Path) -> None:
    """It is whole."""


def zeroed(wal: Path) -> None:
    wal.write_bytes(bytes(wal.stat().st_size))


def removed(wal: Path) -> None:
    wal.unlink()


def without_its_folder(wal: Path) -> None:
    shutil.rmtree(wal.parent)


DAMAGES: dict[str, tuple[Callable[[Path], None], int]] = {
    "whole": (nothing, 0),
    "a bit of the header": (flipped(20), AFTER),
    "a bit of a commit that the store has": (flipped(32 + 30), AFTER),
    "a bit of the first": (flipped(32 + BEFORE * FRAME + 100), AFTER),
    "a bit of the last but one": (flipped(32 + (BEFORE + AFTER - 2) * FRAME + 4000), 2),
    "a salt of the last": (flipped(32 + (BEFORE + AFTER - 1) * FRAME + 8), 1),
    "cut in the last": (cut(32 + (BEFORE + AFTER) * FRAME - 10), 1),
    "cut to nothing": (cut(0), AFTER),
    "zeroed": (zeroed, AFTER),
    "missing": (removed, AFTER),
    "missing with its folder": (without_its_folder, AFTER),
}


def committed(mount: Mount, synchronous: str = "full") -> tuple[sqlite3.Connection, Path]:
    """One page a commit; a connection that has it open, and a copy of the store without the last ones."""
    db = sqlite3.connect(mount.directory / "a.db", isolation_level=None)
    db.execute("pragma journal_mode = wal")
    db.execute("create table t(a)")
    db.execute("pragma wal_checkpoint(truncate)").fetchall()
    db.execute(f"pragma synchronous = {synchronous}")
    for number in range(BEFORE):
        db.execute("insert into t values(?)", (number,))
    mount.ask("settle")
    data, copy = mount.home / "store" / "data.mdb", mount.home.with_name("data.mdb before")
    shutil.copyfile(data, copy)
    for number in range(BEFORE, BEFORE + AFTER):
        db.execute("insert into t values(?)", (number,))
    return db, copy


def crash(mount: Mount, copy: Path) -> Path:
    """What it leaves of the -wal."""
    (wal,) = (mount.home / "mount" / "sidecars").iterdir()
    mount.kill()
    shutil.copyfile(copy, mount.home / "store" / "data.mdb")
    return wal


def rows(mount: Mount) -> list[int]:
    with closing(sqlite3.connect(mount.directory / "a.db")) as db:
        assert db.execute("pragma integrity_check").fetchone() == ("ok",)
        return [row[0] for row in db.execute("select a from t order by a")]


@pytest.mark.parametrize(("damage", "lost"), DAMAGES.values(), ids=DAMAGES)
def test_commits_that_a_damaged_wal_has_lost_are_counted_and_told_once(
    tmp_path: Path, damage: Callable[[Path], None], lost: int
) -> None:
    with mounted(tmp_path, "--no-sync") as mount:
        db, copy = committed(mount)
        with closing(db):
            wal = crash(mount, copy)
        damage(wal)
        left = wal.read_bytes() if wal.exists() else None
        mount.start("--no-sync")
        notices = mount.ask("about")["notices"]
        kept = mount.home / "mount" / "kept"
        if not lost:
            assert notices == []
            assert not kept.exists()
        else:
            (notice,) = notices
            were = (
                "1 commit that a program was told of is"
                if lost == 1
                else f"{lost} commits that a program was told of are"
            )
            assert notice.startswith(f"a.db: {were} lost: the -wal that held them is ")
            assert mount.said().count(notice) == 1
            if left is None:
                assert notice.endswith("is missing")
                assert not kept.exists()
            else:
                (path,) = kept.iterdir()
                assert notice.endswith(f"is damaged; it is kept as {path}")
                assert path.read_bytes() == left
        assert rows(mount) == list(range(BEFORE + AFTER - lost))
        mount.remount()
        assert mount.ask("about")["notices"] == []
        assert rows(mount) == list(range(BEFORE + AFTER - lost))


def test_what_a_damaged_wal_has_lost_stands_in_the_status_until_the_file_was_let_go(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with mounted(tmp_path, "--no-sync") as mount:
        db, copy = committed(mount)
        with closing(db):
            wal = crash(mount, copy)
        removed(wal)
        mount.start("--no-sync")
        words = f"{AFTER} commits that a program was told of are lost: the -wal that held them is missing"
        command = Command(capsys, mount.home)
        for _ in range(2):
            assert command.ok("status").splitlines()[-1] == f"a.db: {words}"
            assert command.ok("status", "a.db").splitlines()[-1] == f"a.db: {words}"
            assert [row["lost"] for row in mount.ask("status")] == [words]
            mount.stop()
            (row,) = json.loads(command.ok("status", "--json"))
            assert row["lost"] == words
            mount.start("--no-sync")
        assert rows(mount) == list(range(BEFORE))
        wait_until(lambda: [row["lost"] for row in mount.ask("status")] == [""])
        assert "lost" not in command.ok("status")
        mount.remount()
        assert [row["lost"] for row in mount.ask("status")] == [""]


def test_commits_that_were_never_flushed_are_counted_by_what_is_left_of_them(tmp_path: Path) -> None:
    with mounted(tmp_path, "--no-sync") as mount:
        db, copy = committed(mount, "normal")
        with closing(db):
            wal = crash(mount, copy)
        flipped(32 + (BEFORE + 1) * FRAME + 100)(wal)
        mount.start("--no-sync")
        (notice,) = mount.ask("about")["notices"]
        # That of the damaged frame itself, and those behind it.
        assert notice.startswith(f"a.db: {AFTER - 1} commits ")
        assert rows(mount) == list(range(BEFORE + 1))


@pytest.mark.parametrize("boot", ["this", "an earlier"])
def test_the_last_commit_that_a_power_loss_has_torn_may_be_one_that_nobody_was_told_of(
    tmp_path: Path, boot: str
) -> None:
    """Where the system hadn't written down by then how many there were."""
    with mounted(tmp_path, "--no-sync") as mount:
        db, copy = committed(mount, "full")
        with closing(db):
            wal = crash(mount, copy)
        flipped(32 + (BEFORE + AFTER - 1) * FRAME + 100)(wal)
        (mount.home / "mount" / "tallies" / wal.name.removesuffix("-wal")).unlink()
        if boot == "an earlier":
            os.utime(wal, (0, 0))
        mount.start("--no-sync")
        assert len(mount.ask("about")["notices"]) == (boot == "this")
        assert rows(mount) == list(range(BEFORE + AFTER - 1))


def test_a_wal_that_ended_well_leaves_nothing_to_tell(tmp_path: Path) -> None:
    """However it ended: checkpointed and begun anew, removed with its last connection, let go after a kill."""
    with mounted(tmp_path, "--no-sync") as mount:
        db, _ = committed(mount)
        with closing(db):
            db.execute("pragma wal_checkpoint(restart)").fetchall()
            db.execute("insert into t values(8)")
            mount.kill()
        mount.start("--no-sync")
        assert mount.ask("about")["notices"] == []
        assert rows(mount) == list(range(9))
        assert list((mount.home / "mount" / "tallies").iterdir()) == []


@pytest.mark.parametrize(
    "garbage",
    [bytes(9_000), bytes(32) + b"\1" * 9_000, bytes(8) + b"\0\0\x10\0" + bytes(20) + b"\1" * 9_000, b"\xff" * 9_000],
    ids=["zeros", "zeros at first", "a page size alone", "ones"],
)
def test_what_is_no_log_stands_in_nobody_s_way(tmp_path: Path, garbage: bytes) -> None:
    """SQLite takes it for empty; so does whoever writes the database as a file."""
    with mounted(tmp_path, "--no-sync") as mount:
        path = mount.directory / "a.db"
        with closing(sqlite3.connect(path)) as db:
            db.execute("CREATE TABLE t(x)")
        with path.open("r+b", buffering=0) as file, Path(f"{path}-wal").open("wb", buffering=0) as wal:
            wal.write(garbage)
            file.seek(0, os.SEEK_END)
            file.write(b"beyond")
            os.fsync(file.fileno())
        assert path.read_bytes()[-6:] == b"beyond"
        mount.kill()
        mount.start()
        assert path.read_bytes()[-6:] == b"beyond"
        with closing(sqlite3.connect(path)) as db:
            assert db.execute("SELECT count(*) FROM t").fetchone() == (0,)
