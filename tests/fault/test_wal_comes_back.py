"""A -wal that a power loss brings back: what was taken over before is not taken over again."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.mounts import Mount, mounted, needs_fuse

import budwood

pytestmark = [needs_fuse, pytest.mark.slow]


def count(mount: Mount) -> int:
    with closing(sqlite3.connect(mount.directory / "a.db")) as db:
        (rows,) = db.execute("SELECT count(*) FROM t").fetchone()
        return int(rows)


def lsn(home: Path) -> str:
    with budwood.open(home=home) as edge:
        return str(edge.volume("a.db").status()["lsn"])


@pytest.mark.parametrize("restarted", [False, True], ids=["as it was", "as it was before it started over"])
def test_an_old_wal_that_comes_back_undoes_nothing(tmp_path: Path, restarted: bool) -> None:
    with mounted(tmp_path, "--no-sync") as mount:
        db = sqlite3.connect(mount.directory / "a.db", isolation_level=None)
        with closing(db):
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("CREATE TABLE t(a)")
            db.execute("INSERT INTO t VALUES (1)")
            mount.ask("settle")
            (file,) = (mount.home / "mount" / "sidecars").iterdir()
            old = file.read_bytes()
            if restarted:
                db.execute("PRAGMA wal_checkpoint(RESTART)")
            db.execute("INSERT INTO t VALUES (2)")
            mount.ask("settle")
            if not restarted:
                # A longer one has come, and of it only what was there before is back.
                assert file.read_bytes() != old
            # Killed with the database open: the -wal stays for the next mount.
            mount.kill()
        before = lsn(mount.home)
        file.write_bytes(old)
        mount.start("--no-sync")
        assert count(mount) == 2
    assert lsn(mount.home) == before
