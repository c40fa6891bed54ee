"""SQLite over the edge: several processes on one home, errors in words, crashes that leave nothing half done."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

import budwood
import budwood.vfs
from budwood.sync import name_table
from budwood.sync.edge import open as open_edge
from budwood.sync.volume import Volume
from budwood.vfs.stdlib import register_stdlib

from .. import fork_server
from ..waits import LIMIT_SECONDS

_URI = apsw.SQLITE_OPEN_URI | apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def _start(code: str, *args: object) -> subprocess.Popen[str]:
    return fork_server.Popen(
        [sys.executable, "-P", "-c", code, *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def _rows(db: apsw.Connection, pragma: str) -> list[dict[str, object]]:
    [(text,)] = db.execute(f"pragma {pragma}").fetchall()
    assert isinstance(text, str)
    return msgspec.json.decode(text, type=list[dict[str, object]])


def test_four_processes_may_make_the_same_volume_at_once(home: Path) -> None:
    code = (
        "import sys, budwood\n"
        "db = budwood.connect('new', home=sys.argv[1], timeout=300)\n"
        "db.execute('create table if not exists t(a)')\n"
        "db.execute('insert into t values(?)', (int(sys.argv[2]),))\n"
    )
    processes = [_start(code, home, number) for number in range(4)]
    for process in processes:
        _, errors = process.communicate(timeout=LIMIT_SECONDS)
        assert process.returncode == 0, errors
    with closing(budwood.connect("new", home=home)) as db:
        assert db.execute("select a from t order by a").fetchall() == [(0,), (1,), (2,), (3,)]


@pytest.mark.parametrize("face", ["pages", "volume", "volume_here"])
def test_a_volume_that_another_makes_after_it_was_not_found_is_opened(
    home: Path, monkeypatch: pytest.MonkeyPatch, face: str
) -> None:
    made: list[Volume] = []

    def find_place(*asked: Any) -> object:
        if not made:
            made.append(other.create("new"))
        return name_table.find_place(*asked)

    monkeypatch.setattr("budwood.sync.edge.find_place", find_place)
    with open_edge(home=home) as edge, open_edge(home=home) as other:
        assert getattr(edge, face)("new").id == made[0].id


def test_a_killed_writer_leaves_its_volume_as_it_was_and_its_lock_free(home: Path) -> None:
    with closing(budwood.connect("inventory", home=home)) as db:
        db.execute("create table t(a); insert into t values('kept')")
        code = (
            "import os, signal, sys, budwood\n"
            "db = budwood.connect('inventory', home=sys.argv[1])\n"
            "db.execute('pragma cache_size = 5; begin; insert into t select randomblob(3000) from "
            "(with recursive n(i) as (values(1) union all select i + 1 from n where i < 400) select i from n)')\n"
            "os.kill(os.getpid(), signal.SIGKILL)\n"
        )
        process = _start(code, home)
        process.communicate(timeout=LIMIT_SECONDS)
        assert process.returncode == -signal.SIGKILL
        assert db.execute("select a from t").fetchall() == [("kept",)]
        db.execute("insert into t values('after')")
        assert db.execute("pragma integrity_check").fetchall() == [("ok",)]
        assert _rows(db, "budwood_status")[0]["lsn"] == "0+3"


def test_pragmas_tell_of_the_edge(home: Path) -> None:
    with closing(budwood.connect("inventory", home=home)) as db:
        db.execute("create table t(a); insert into t values(1)")
        assert _rows(db, "budwood_status")[0]["unpushed"] == 2
        assert len(_rows(db, "budwood_log")) == 2
        assert _rows(db, "budwood_snapshot")
        with pytest.raises(budwood.UsageError, match="remote"):
            db.execute("pragma budwood_push")


def test_the_snapshot_pragma_tells_of_the_view_that_the_transaction_reads(home: Path) -> None:
    with closing(budwood.connect("inventory", home=home)) as db, closing(budwood.connect("inventory", home=home)) as by:
        db.execute("create table t(a)")
        db.execute("begin")
        assert db.execute("select count(*) from t").fetchall() == [(0,)]
        (held,) = _rows(db, "budwood_snapshot")
        by.execute("insert into t values(randomblob(20000))")
        assert _rows(db, "budwood_snapshot") == [held]
        assert held["lsn"] == "0+1"
        assert held["length"] != _rows(by, "budwood_snapshot")[0]["length"]
        db.execute("commit")
        (newest,) = _rows(db, "budwood_snapshot")
        assert newest["lsn"] == "0+2"
        assert newest == _rows(by, "budwood_snapshot")[0]


def test_errors_come_out_as_ours(home: Path) -> None:
    for mode in ("ro", "rw"):
        with pytest.raises(budwood.NotFound, match="'nowhere'"):
            budwood.connect("nowhere", home=home, mode=mode)
    with pytest.raises(budwood.BadInput, match="can't name a volume"):
        budwood.connect("/etc/passwd", home=home)
    with pytest.raises(budwood.BadInput, match="mode"):
        budwood.connect("x", home=home, mode="w")
    with pytest.raises(budwood.Unavailable):
        budwood.connect("x", home=home, remote="http://127.0.0.1:9")
    with pytest.raises(budwood.NotFound):
        budwood.connect("x", home=home, lsn=3)
    assert not (home / "x").exists()


def test_a_read_only_connection_reads_and_is_refused_writing(home: Path) -> None:
    with closing(budwood.connect("inventory", home=home)) as db:
        db.execute("create table t(a); insert into t values(1)")
        with closing(budwood.connect("inventory", home=home, mode="ro")) as view:
            assert view.execute("select a from t").fetchall() == [(1,)]
            with pytest.raises(apsw.ReadOnlyError):
                view.execute("insert into t values(2)")
            db.execute("insert into t values(2)")
            assert view.execute("select a from t").fetchall() == [(1,), (2,)]


def test_uris_and_the_standard_library_open_the_same_volume(home: Path) -> None:
    budwood.vfs.register(home=home, name="budwood-test")
    register_stdlib("budwood-test")
    with closing(apsw.Connection("file:inventory?vfs=budwood-test", _URI)) as db:
        db.execute("create table t(a); insert into t values(1)")
        with closing(sqlite3.connect("file:inventory?vfs=budwood-test", uri=True)) as other, other:
            other.execute("insert into t values(2)")
        with closing(budwood.connect("inventory", home=home)) as third:
            assert third.execute("select a from t").fetchall() == [(1,), (2,)]
        elsewhere = home.parent / "elsewhere"
        with closing(apsw.Connection(f"file:inventory?vfs=budwood-test&home={elsewhere}", _URI)) as far:
            assert far.execute("select * from sqlite_schema").fetchall() == []
        db.execute(f"attach 'file:side?home={elsewhere}' as side; create table side.u(a)")
        with closing(budwood.connect("side", home=elsewhere, mode="ro")) as side:
            assert side.execute("select name from sqlite_schema").fetchall() == [("u",)]


def test_a_child_opens_anew_and_the_parent_goes_on(home: Path) -> None:
    with closing(budwood.connect("inventory", home=home)) as db:
        db.execute("create table t(a); insert into t values(1)")
        child = os.fork()
        if child == 0:
            code = 1
            try:
                try:
                    db.execute("select * from t").fetchall()
                except budwood.UsageError:
                    fresh = budwood.connect("inventory", home=home, timeout=LIMIT_SECONDS)
                    fresh.execute("insert into t values(2)")
                    fresh.close()
                    code = 0
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert db.execute("select a from t").fetchall() == [(1,), (2,)]


@pytest.mark.parametrize("page_size", [512, 1024, 16384, 65536])
def test_page_sizes_and_vacuum_reach_the_local_store(home: Path, page_size: int) -> None:
    with closing(budwood.connect("sized", home=home)) as db:
        db.execute(f"pragma page_size = {page_size}; pragma auto_vacuum = 1; pragma cache_size = 10")
        db.execute("create table t(a integer primary key, b)")
        with db:
            db.executemany("insert into t(b) values(?)", ((bytes(1500),) for _ in range(300)))
        db.execute("delete from t where a > 20; vacuum")
    with closing(budwood.connect("sized", home=home, mode="rw")) as db:
        assert db.execute("pragma page_size").fetchall() == [(page_size,)]
        assert db.execute("select count(*), sum(length(b)) from t").fetchall() == [(20, 30000)]
        assert db.execute("pragma integrity_check").fetchall() == [("ok",)]
        with pytest.raises(budwood.BadInput, match="-byte pages"):
            db.execute("pragma page_size = 2048")
