"""The same volumes through the standard library's sqlite3."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path

import apsw
import pytest

from budwood.testing.databases import MemoryDatabases
from budwood.testing.pages import MemorySnapshot, MemoryWriter
from budwood.vfs.stdlib import last_error, register_stdlib
from budwood.volume.errors import Busy, Corrupt, Full, NotFound, Unavailable

from ..waits import LIMIT_SECONDS


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


ERRORS = [
    (NotFound("no such page"), sqlite3.OperationalError, "SQLITE_CANTOPEN"),
    (Corrupt("a page", "it is torn"), sqlite3.DatabaseError, "SQLITE_CORRUPT"),
    (Unavailable("nobody answers"), sqlite3.OperationalError, "SQLITE_IOERR"),
    (Busy("someone writes"), sqlite3.OperationalError, "SQLITE_BUSY"),
    (ZeroDivisionError("a defect"), sqlite3.OperationalError, "SQLITE_IOERR_READ"),
]


@pytest.mark.parametrize(("error", "kind", "name"), ERRORS, ids=lambda value: getattr(value, "__name__", None))
def test_an_error_is_one_of_sqlite3_s_own_and_ours_is_told(
    error: Exception, kind: type[Exception], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with MemoryDatabases(warm_bytes=0) as databases:
        register_stdlib(databases.vfs.name)
        with closing(_open(databases, timeout=0)) as db:
            db.execute("create table t(a)")
            db.execute("insert into t values(1)")
            db.commit()
            databases.connect().execute("update t set a = 2")

            def fail(*_: object) -> bytes:
                raise error

            with monkeypatch.context() as patch:
                patch.setattr(MemorySnapshot, "read", fail)
                for _ in range(2):
                    with pytest.raises(kind) as caught:
                        db.execute("select a from t").fetchall()
                    assert isinstance(caught.value, sqlite3.Error)
                    assert caught.value.sqlite_errorname == name
                    assert str(last_error()) == str(error)
                    assert isinstance(last_error(), type(error))
            # Another view: what was patched is the one that was had.
            databases.connect().execute("update t set a = 3")
            assert db.execute("select a from t").fetchall() == [(3,)], "and it goes on"


def test_a_volume_that_is_missing_can_t_be_opened() -> None:
    with MemoryDatabases() as databases:
        register_stdlib(databases.vfs.name)
        with pytest.raises(sqlite3.OperationalError, match="unable to open database file"):
            _open(databases, more="&mode=rw")
        assert isinstance(last_error(), NotFound)
        with pytest.raises(sqlite3.OperationalError, match="unable to open database"):
            sqlite3.connect(":memory:").execute(f"attach 'file:gone?vfs={databases.vfs.name}&mode=ro' as gone")


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
                with pytest.raises(sqlite3.OperationalError, match="full"):
                    db.commit()
            db.rollback()
            assert db.execute("select count(*) from t").fetchone() == (0,)
            with db:
                db.execute("insert into t values(2)")
            assert db.execute("select a from t").fetchall() == [(2,)]


def test_an_interrupt_in_a_callback_comes_out_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with MemoryDatabases(warm_bytes=0) as databases:
        register_stdlib(databases.vfs.name)
        with closing(_open(databases)) as db:
            db.execute("create table t(a)")
            read, left = MemorySnapshot.read, iter(list[KeyboardInterrupt]())

            def interrupt(snapshot: MemorySnapshot, page: int) -> bytes:
                for each in left:
                    raise each
                return read(snapshot, page)

            monkeypatch.setattr(MemorySnapshot, "read", interrupt)
            databases.connect().execute("insert into t values(1)")
            left = iter([KeyboardInterrupt()])
            before = signal.signal(signal.SIGINT, signal.default_int_handler)
            try:
                with pytest.raises(KeyboardInterrupt):
                    _look(db)
            finally:
                signal.signal(signal.SIGINT, before)
            assert db.execute("select count(*) from t").fetchone() == (1,)


def _look(db: sqlite3.Connection) -> None:
    # Whichever comes first; the interrupt is on its way.
    with suppress(sqlite3.OperationalError):
        db.execute("select count(*) from t").fetchall()
    for _ in range(1000):
        pass


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


def test_a_vfs_that_nobody_registered_is_not_found() -> None:
    with pytest.raises(NotFound, match="register"):
        register_stdlib("budwood-nobody")
