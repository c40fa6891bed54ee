"""The same volumes through the standard library's sqlite3."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from budwood.testing.databases import MemoryDatabases
from budwood.vfs.stdlib import register_stdlib
from budwood.volume.errors import NotFound


def _open(
    databases: MemoryDatabases, name: str = "memory", *, more: str = "", timeout: float = 5.0
) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{name}?vfs={databases.vfs.name}{more}", uri=True, timeout=timeout)


def test_the_standard_library_reads_writes_and_rolls_back(tmp_path: Path) -> None:
    with MemoryDatabases() as databases:
        register_stdlib(databases.vfs.name)
        register_stdlib(databases.vfs.name)
        names = apsw.vfs_names()
        with closing(_open(databases)) as db:
            db.execute("pragma cache_size = 10")
            with db:
                db.execute("create table t(a integer primary key, b unique)")
                db.executemany("insert into t(b) values(?)", ((f"{number:05}" * 40,) for number in range(2000)))
            db.execute("delete from t where a < 1000")
            with pytest.raises(sqlite3.IntegrityError):
                db.execute("update t set b = 'same'")
            assert db.execute("select count(distinct b) from t").fetchone() == (1001,)
            db.rollback()
            assert db.execute("select count(*) from t").fetchone() == (2000,)
            assert db.execute("pragma integrity_check").fetchone() == ("ok",)
            db.execute("vacuum")
            ours = databases.connect()
            assert ours.execute("select count(*), sum(length(b)) from t").fetchall() == [(2000, 400_000)]
            ours.execute("delete from t where a > 5")
            assert db.execute("select count(*) from t").fetchone() == (5,)
            with closing(_open(databases, timeout=0)) as other:
                ours.execute("begin immediate")
                with pytest.raises(sqlite3.OperationalError, match="locked"):
                    other.execute("insert into t(b) values(1)")
                ours.execute("rollback")
        with closing(_open(databases, more="&lsn=2&mode=ro")) as past:
            assert past.execute("select count(*) from t").fetchone() == (2000,)
        # The other library must not have changed the list of this one.
        assert apsw.vfs_names() == names
        with closing(apsw.Connection(str(tmp_path / "x"), vfs=names[-1])) as plain:
            assert plain.execute("select 1").fetchall() == [(1,)]


def test_an_error_has_ours_as_its_cause() -> None:
    with MemoryDatabases() as databases:
        register_stdlib(databases.vfs.name)
        with pytest.raises((SystemError, sqlite3.OperationalError)) as caught:
            _open(databases, more="&mode=rw")
        assert isinstance(caught.value.__cause__ or caught.value.__context__, NotFound)


def test_a_vfs_that_nobody_registered_is_not_found() -> None:
    with pytest.raises(NotFound, match="register"):
        register_stdlib("budwood-nobody")
