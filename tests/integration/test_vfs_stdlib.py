"""The same volumes through the standard library's sqlite3."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from budwood.testing.databases import MemoryDatabases
from budwood.testing.memory_pages import MemorySnapshot, MemoryWriter
from budwood.vfs.codes import last_error
from budwood.vfs.standard import StandardConnection
from budwood.vfs.stdlib import register_stdlib
from budwood.volume.errors import BudwoodError, Busy, Corrupt, Full, NotFound, Unavailable

from ..waits import LIMIT_SECONDS


def _open(
    databases: MemoryDatabases, name: str = "memory", *, more: str = "", timeout: float = 5.0
) -> sqlite3.Connection:
    uri = f"file:{name}?vfs={databases.vfs.name}{more}"
    db: sqlite3.Connection = sqlite3.connect(uri, uri=True, timeout=timeout, factory=StandardConnection)
    return db


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


ERRORS = [
    (NotFound("no such page"), "SQLITE_CANTOPEN"),
    (Corrupt("a page", "it is torn"), "SQLITE_IOERR_CORRUPTFS"),
    (Unavailable("nobody answers"), "SQLITE_IOERR"),
    (Busy("someone writes"), "SQLITE_BUSY"),
]


@pytest.mark.parametrize(("error", "name"), ERRORS, ids=lambda value: type(value).__name__)
def test_an_error_is_one_of_sqlite3_s_own_with_our_words(
    error: BudwoodError, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with MemoryDatabases(warm_bytes=0) as databases:
        register_stdlib(databases.vfs.name)
        with closing(_open(databases, timeout=0)) as db:
            db.execute("create table t(a unique)")
            db.execute("insert into t values(1)")
            db.commit()
            databases.connect().execute("update t set a = 2")

            def fail(*_: object) -> bytes:
                raise error

            with monkeypatch.context() as patch:
                patch.setattr(MemorySnapshot, "read", fail)
                for look in (db.execute, db.cursor().execute):
                    with pytest.raises(sqlite3.DatabaseError, match=str(error)) as caught:
                        look("select a from t")
                    assert caught.value.sqlite_errorname == name
                    assert isinstance(caught.value.__cause__, type(error))
                    assert str(last_error()) == str(error)
            # Another view: what was patched is the one that was had.
            databases.connect().execute("update t set a = 3")
            assert db.execute("select a from t").fetchall() == [(3,)], "and it goes on"
            with pytest.raises(sqlite3.IntegrityError, match="UNIQUE"), db:
                db.execute("insert into t values(3)")
            with pytest.raises(sqlite3.OperationalError, match="no such table"):
                db.execute("select * from missing")


def test_a_volume_that_is_missing_can_t_be_opened() -> None:
    with MemoryDatabases() as databases:
        register_stdlib(databases.vfs.name)
        with pytest.raises(sqlite3.OperationalError, match="there is no volume 'memory'") as caught:
            _open(databases, more="&mode=rw")
        assert isinstance(caught.value.__cause__, NotFound)
        with closing(sqlite3.connect("file::memory:", uri=True, factory=StandardConnection)) as db:
            with pytest.raises(sqlite3.OperationalError, match="there is no volume 'gone'"):
                db.execute(f"attach 'file:gone?vfs={databases.vfs.name}&mode=ro' as gone")
            assert db.execute("select 1").fetchone() == (1,)


def test_a_pragma_that_fails_says_why() -> None:
    with MemoryDatabases() as databases:
        register_stdlib(databases.vfs.name)
        with closing(_open(databases)) as db:
            with pytest.raises(sqlite3.OperationalError, match="a volume in memory has no remote, so it can't push"):
                db.execute("pragma budwood_push")
            assert db.execute("pragma budwood_status").fetchall()


def test_a_commit_that_fails_is_rolled_back(monkeypatch: pytest.MonkeyPatch) -> None:
    with MemoryDatabases() as databases:
        register_stdlib(databases.vfs.name)
        with closing(_open(databases)) as db:
            db.execute("create table t(a)")
            db.commit()

            def full(*_: object) -> None:
                raise Full("no room")

            with monkeypatch.context() as patch:
                patch.setattr(MemoryWriter, "commit", full)
                db.execute("insert into t values(1)")
                with pytest.raises(sqlite3.OperationalError, match="no room"):
                    db.commit()
            db.rollback()
            assert db.execute("select count(*) from t").fetchone() == (0,)
            with db:
                db.execute("insert into t values(2)")
            assert db.execute("select a from t").fetchall() == [(2,)]


def test_a_program_that_ends_with_a_connection_open_ends_in_peace() -> None:
    code = (
        "import sqlite3, threading\n"
        "from budwood.testing.databases import MemoryDatabases\n"
        "from budwood.vfs.stdlib import register_stdlib\n"
        "databases = MemoryDatabases()\n"
        "register_stdlib(databases.vfs.name)\n"
        "def work(n):\n"
        "    db = sqlite3.connect(f'file:v{n}?vfs={databases.vfs.name}', uri=True)\n"
        "    db.execute('create table t(a)')\n"
        "    db.execute('insert into t values(1)')\n"
        "    kept.append(db)\n"
        "kept = []\n"
        "threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]\n"
        "[thread.start() for thread in threads]\n"
        "[thread.join() for thread in threads]\n"
        "work('main')\n"
        "print(len(kept))\n"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=LIMIT_SECONDS)
    assert (done.returncode, done.stdout, done.stderr) == (0, "5\n", "")


@pytest.mark.slow
def test_connections_by_uri_that_a_program_leaves_open_are_closed_when_it_ends(tmp_path: Path) -> None:
    code = (
        "import apsw, sqlite3, sys, budwood.vfs\n"
        "budwood.vfs.register(home=sys.argv[1])\n"
        "budwood.vfs.register_stdlib()\n"
        "flags = apsw.SQLITE_OPEN_URI | apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE\n"
        "first = apsw.Connection('file:first?vfs=budwood', flags)\n"
        "beside = apsw.Connection('', flags)\n"
        "beside.execute(\"attach 'file:beside?vfs=budwood' as volume\")\n"
        "third = sqlite3.connect('file:third?vfs=budwood', uri=True, factory=budwood.vfs.StandardConnection)\n"
        "for db, table in ((first, 'main.t'), (beside, 'volume.t'), (third, 'main.t')):\n"
        "    db.execute(f'create table {table}(a)')\n"
        "    db.execute('begin immediate')\n"
        "    db.execute(f'insert into {table} values(1)')\n"
    )
    command = [sys.executable, "-P", "-c", code, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_vfs_that_nobody_registered_is_not_found() -> None:
    with pytest.raises(NotFound, match="register"):
        register_stdlib("budwood-nobody")
