"""The index of a -wal that starts over is what SQLite itself makes of it, and SQLite goes on from it."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest

from budwood.sqlite.walindex import HEADER_SIZE, INFO_SIZE, restarted

GATE = """
import fcntl, os, struct, sys
from budwood.sqlite.walindex import LOCKS, gated
fd = os.open(sys.argv[1] + "-shm", os.O_RDWR)
for at in (LOCKS[0], LOCKS[1], LOCKS[-1]):
    fcntl.fcntl(fd, 37, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, at, 1, 0))
before = os.pread(fd, 136, 0)
marks = gated(before)
os.pwrite(fd, marks, 96)
print("closed", flush=True)
sys.stdin.readline()
os.pwrite(fd, before[96:96 + len(marks)], 96)
"""


def in_wal_mode(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(path, isolation_level=None)
    assert db.execute("pragma journal_mode = wal").fetchone() == ("wal",)
    db.execute("create table item(id integer primary key, body blob)")
    db.executemany("insert into item values(?, zeroblob(3000))", ((n,) for n in range(20)))
    return db


def index_of(path: Path) -> bytes:
    return path.with_name(f"{path.name}-shm").read_bytes()[:INFO_SIZE]


def test_it_is_what_sqlite_writes_after_a_checkpoint_that_empties_the_log(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with closing(in_wal_mode(path)) as db:
        before = index_of(path)
        db.execute("pragma wal_checkpoint(truncate)")
        theirs = index_of(path)
        ours = restarted(before, path.stat().st_size, theirs[36:40])
        assert ours is not None
        # The counter, which SQLite moves with the next transaction, and so the checksum, are ahead of theirs.
        assert (ours.header[:8], ours.header[12:40]) == (theirs[:8], theirs[12:40])
        assert int.from_bytes(ours.header[8:12], sys.byteorder) == int.from_bytes(theirs[8:12], sys.byteorder) + 1
        assert ours.marks == theirs[96:120]
        assert ours.begun == theirs[128:132]


def test_a_connection_that_was_open_goes_on_from_it(tmp_path: Path) -> None:
    path = tmp_path / "a"
    shm = path.with_name("a-shm")
    with closing(in_wal_mode(path)) as db, closing(in_wal_mode(tmp_path / "b")) as other:
        db.execute("pragma wal_checkpoint(passive)")
        other.execute("update item set body = 'theirs'")
        other.execute("pragma wal_checkpoint(truncate)")
        assert db.execute("select count(*) from item where body = 'theirs'").fetchone() == (0,)
        # Another database beneath it, as a pull brings one.
        content = (tmp_path / "b").read_bytes()
        with path.open("r+b") as file:
            file.write(content)
            file.truncate(len(content))
        os.truncate(path.with_name("a-wal"), 0)
        ours = restarted(index_of(path), len(content), b"salt")
        assert ours is not None
        with shm.open("r+b", buffering=0) as file:
            for place, data in (
                (HEADER_SIZE, ours.header),
                (0, ours.header),
                (96, ours.marks),
                (128, ours.begun),
            ):
                file.seek(place)
                file.write(data)
        assert db.execute("select count(*) from item where body = 'theirs'").fetchone() == (20,)
        db.execute("insert into item values(100, 'more')")
        assert db.execute("pragma integrity_check").fetchone() == ("ok",)
        assert db.execute("select count(*) from item").fetchone() == (21,)


@pytest.mark.parametrize("checkpoint", ["", "passive", "truncate"])
def test_a_gate_keeps_readers_out_and_lets_them_in_again(tmp_path: Path, checkpoint: str) -> None:
    """With WRITE, CKPT and READ4 locked: here by another process, as one's own locks are no hindrance."""
    path = tmp_path / "a"
    with closing(in_wal_mode(path)) as db:
        if checkpoint:
            db.execute(f"pragma wal_checkpoint({checkpoint})")
        command = [sys.executable, "-P", "-c", GATE, str(path)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "closed\n"
            let_in = threading.Event()

            def read() -> None:
                with closing(sqlite3.connect(path)) as reader:
                    assert reader.execute("select count(*) from item").fetchone() == (20,)
                let_in.set()

            thread = threading.Thread(target=read)
            thread.start()
            assert not let_in.wait(0.3)
            holder.communicate("open\n")
            thread.join()
            assert let_in.is_set()
        assert db.execute("pragma integrity_check").fetchone() == ("ok",)


def test_an_index_that_was_caught_in_the_middle_of_a_write_is_left_to_sqlite(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with closing(in_wal_mode(path)):
        index = index_of(path)
    assert restarted(index, 4096, b"salt") is not None
    assert restarted(index[:20] + bytes([index[20] ^ 1]) + index[21:], 4096, b"salt") is None
    both = bytearray(index)
    both[20] ^= 1
    both[HEADER_SIZE + 20] ^= 1
    assert restarted(bytes(both), 4096, b"salt") is None
    assert restarted(bytes(INFO_SIZE), 4096, b"salt") is None
    assert restarted(index[:100], 4096, b"salt") is None
