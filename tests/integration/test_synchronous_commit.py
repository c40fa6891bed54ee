"""Synchronous commits: how one asks for them, and what COMMIT says when the remote doesn't agree or isn't there."""

from __future__ import annotations

import json
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

import budwood
from budwood import dbapi, vfs
from budwood.remote.portal import BlockingRemote
from budwood.sync import confirm
from budwood.volume import faults
from budwood.volume.errors import BadInput, Busy, Conflict, Full, Unavailable
from budwood.volume.wire import CommitRequest, Committed

from .. import fork_server
from ..waits import LIMIT_SECONDS
from .cli import serving


@pytest.fixture
def store(tmp_path: Path) -> str:
    """With a volume `v`, of a table with one row."""
    with closing(connect(tmp_path, (tmp_path / "store").as_uri())) as db:
        db.execute("create table t(a); insert into t values(1)")
    return (tmp_path / "store").as_uri()


def connect(folder: Path, remote: str, home: str = "ann", **options: Any) -> apsw.Connection:
    given: dict[str, Any] = {"name": "v", "synchronous_commit": True, **options}
    return budwood.connect(home=folder / home, remote=remote, **given)


def rows(db: apsw.Connection) -> list[object]:
    return [row[0] for row in db.execute("select a from t order by a")]


def status(db: apsw.Connection) -> dict[str, Any]:
    (told,) = json.loads(str(db.execute("pragma budwood_status").get))
    return dict(told)


def test_a_commit_is_the_remotes_when_it_returns(tmp_path: Path, store: str) -> None:
    with closing(connect(tmp_path, store)) as db, closing(connect(tmp_path, store, "bob")) as other:
        assert (status(db)["lsn"], status(db)["remote_name"]) == ("2", "v")
        assert rows(other) == [1]
        db.execute("begin; update t set a = 1 where a = 7; commit")
        db.execute("begin immediate; commit")
        assert status(db)["lsn"] == "2", "what changes nothing is no commit"


@pytest.mark.parametrize("way", ["connect", "pragma", "uri", "dbapi"])
def test_ways_to_ask_for_it(tmp_path: Path, store: str, way: str) -> None:
    options: dict[str, Any] = {"home": tmp_path / "ann", "remote": store}
    if way == "dbapi":
        with closing(dbapi.connect("v", synchronous_commit=True, **options)) as db:
            assert db.execute("pragma budwood_synchronous_commit").fetchone() == ("1",)
            db.execute("insert into t values(2)")
            db.commit()
            assert db.status()["lsn"] == "3"
        return
    if way == "uri":
        vfs.register(name="here", **options)
        flags = apsw.SQLITE_OPEN_URI | apsw.SQLITE_OPEN_READWRITE
        made = apsw.Connection("file:v?vfs=here&synchronous_commit=yes", flags=flags)
    else:
        made = budwood.connect("v", synchronous_commit=way == "connect", **options)
    with closing(made) as connection:
        if way == "pragma":
            assert connection.execute("pragma budwood_synchronous_commit").get == "0"
            assert connection.execute("pragma budwood_synchronous_commit = on").get == "1"
        connection.execute("insert into t values(2)")
        assert status(connection)["lsn"] == "3"
        assert connection.execute("pragma budwood_synchronous_commit = off").get == "0"
        connection.execute("insert into t values(3)")
        assert status(connection)["lsn"] == "3+1"
        with pytest.raises(BadInput, match="on or off"):
            connection.execute("pragma budwood_synchronous_commit = maybe")


def test_where_the_remote_has_moved_on_nothing_stays(tmp_path: Path, store: str) -> None:
    with closing(connect(tmp_path, store)) as db, closing(connect(tmp_path, store, "bob")) as other:
        other.execute("insert into t values(2)")
        db.execute("begin; insert into t values(9); create table u(b); delete from t where a = 1")
        with pytest.raises(Conflict, match=r"from LSN 2 to 3.*pull") as refused:
            db.execute("commit")
        assert isinstance(refused.value, apsw.BusyError)
        assert vars(refused.value)["extendedresult"] == apsw.SQLITE_BUSY_SNAPSHOT
        assert not db.in_transaction
        assert rows(db) == [1]
        assert db.execute("select name from sqlite_schema").fetchall() == [("t",)]
        assert db.execute("pragma integrity_check").get == "ok"
        assert status(db)["lsn"] == "2"
        db.execute("pragma budwood_pull")
        db.execute("insert into t values(3)")
        assert rows(db) == [1, 2, 3]
    with closing(dbapi.connect("v", home=tmp_path / "bob", remote=store, synchronous_commit=True)) as late:
        late.execute("insert into t values(9)")
        with pytest.raises(sqlite3.OperationalError, match="moved on") as told:
            late.commit()
        assert told.value.sqlite_errorname == "SQLITE_BUSY_SNAPSHOT"
        assert late.execute("select count(*) from t").fetchone() == (2,)


def test_without_an_answer_the_commits_fate_is_told(
    tmp_path: Path, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(confirm, "DELAYS_SECONDS", ())
    with serving(tmp_path / "store") as url:
        db = connect(tmp_path, url)
        db.execute("insert into t values(2)")
    with closing(db):
        with pytest.raises(Unavailable, match="was rolled back, since the remote has not") as away:
            db.execute("insert into t values(3)")
        assert away.value.determinate
        assert rows(db) == [1, 2]
    with closing(connect(tmp_path, store)) as db:
        # The node's owner of the log is gone; a store in this process goes on.
        send = BlockingRemote.commit

        def lose(self: Any, request: CommitRequest, segment: bytes = b"") -> Committed:
            send(self, request, segment)
            patched.setattr(BlockingRemote, "ask", cut)
            raise Unavailable("the connection was cut", determinate=False)

        def cut(*_arguments: object) -> object:
            raise Unavailable("there is no connection", determinate=True)

        with monkeypatch.context() as patched:
            patched.setattr(BlockingRemote, "commit", lose)
            with pytest.raises(Unavailable, match=r"is unknown.*pull before you make it again") as unknown:
                db.execute("insert into t values(4)")
            assert not unknown.value.determinate
            assert rows(db) == [1, 2]
        with pytest.raises(Conflict):
            db.execute("insert into t values(4)")
        db.execute("pragma budwood_pull")
        assert rows(db) == [1, 2, 4], "it had landed, once"


def test_what_was_committed_alone_goes_first(tmp_path: Path, store: str) -> None:
    with closing(connect(tmp_path, store)) as db, closing(connect(tmp_path, "", synchronous_commit=False)) as alone:
        alone.execute("insert into t values(2)")
        db.execute("insert into t values(3)")
        assert status(db)["lsn"] == "4"
        assert rows(alone) == [1, 2, 3]
        assert db.execute("pragma budwood_pull").get
        with closing(connect(tmp_path, store, "bob")) as other:
            other.execute("insert into t values(4)")
        alone.execute("insert into t values(5)")
        with pytest.raises(apsw.BusyError, match="1 unpushed commit, and the remote has newer ones"):
            db.execute("insert into t values(6)")
        assert rows(db) == [1, 2, 3, 5], "that stays, as ever"


def test_a_push_that_is_under_way_is_waited_for_and_the_commit_can_be_asked_for_again(
    tmp_path: Path, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(confirm, "LOCK_SECONDS", 0.0)
    with closing(connect(tmp_path, store)) as db, budwood.open(home=tmp_path / "ann", remote=store) as edge:
        db.execute("begin; insert into t values(2)")
        with edge.volume("v").local.sync_lock(), pytest.raises(Busy):
            db.execute("commit")
        assert db.in_transaction, "as with any lock that is held"
        db.execute("insert into t values(3); commit")
        assert rows(db) == [1, 2, 3]
        assert status(db)["lsn"] == "3"
        assert db.execute("pragma integrity_check").get == "ok"


def test_what_can_not_be_had_is_refused(tmp_path: Path, store: str) -> None:
    with closing(connect(tmp_path, "", "offline")) as nowhere, pytest.raises(BadInput, match="no remote"):
        nowhere.execute("create table t(a)")
    beside = tmp_path / "beside.db"
    with closing(apsw.Connection(str(beside))) as db:
        db.execute("create table f(a)")
        vfs.register(name="place", home=tmp_path / "ann", remote=store)
        flags = apsw.SQLITE_OPEN_URI | apsw.SQLITE_OPEN_READWRITE
    with closing(apsw.Connection(str(beside), flags=flags)) as db:
        db.execute("attach 'file:v?vfs=place&synchronous_commit=on' as v")
        db.execute("begin; insert into f values(1); insert into v.t values(2)")
        with pytest.raises(BadInput, match="joint with other databases"):
            db.execute("commit")
        assert db.execute("select count(*) from f").get == 0
        db.execute("insert into v.t values(2)")
    with budwood.open(home=tmp_path / "ann", remote=store) as edge:
        edge.volume("v").set_mode("pull")
        with closing(connect(tmp_path, store)) as db, pytest.raises(BadInput, match="sync mode"):
            db.execute("insert into t values(3)")


def test_a_commit_that_this_home_can_not_take_is_said_to_stand(tmp_path: Path, store: str) -> None:
    def full() -> None:
        raise Full("no room on the disk")

    with closing(connect(tmp_path, store)) as db:
        faults.arm("commit: about to be written", full)
        try:
            with pytest.raises(Full, match=r"has acknowledged this commit, as LSN 3.*don't make it again"):
                db.execute("insert into t values(2)")
        finally:
            faults.disarm()
        assert rows(db) == [1]
        db.execute("pragma budwood_pull")
        assert rows(db) == [1, 2]


COUNT = """
import sys, apsw, budwood
db = budwood.connect("v", home=sys.argv[1], remote=sys.argv[2], synchronous_commit=True, timeout=60)
done = 0
while done < 8:
    try:
        db.execute("begin immediate")
        db.execute("update t set a = a + 1")
        db.execute("commit")
        done += 1
    except apsw.BusyError:
        if db.in_transaction:
            db.execute("rollback")
        try:
            db.execute("pragma budwood_pull")
        except apsw.BusyError:
            pass  # The other process of this home has the volume: it has moved, or will.
db.close()
"""


def test_processes_of_two_homes_lose_no_update(tmp_path: Path, store: str) -> None:
    with serving(tmp_path / "store") as url:
        homes = [tmp_path / home for home in ("ann", "ann", "bob")]
        children = [fork_server.Popen([sys.executable, "-P", "-c", COUNT, str(home), url]) for home in homes]
        assert [child.wait(LIMIT_SECONDS) for child in children] == [0, 0, 0]
        with closing(connect(tmp_path, url, "new")) as db:
            assert rows(db) == [25]
            assert status(db)["lsn"] == "26", "each is a commit of its own"


def test_what_is_rolled_back_is_sent_to_nobody(tmp_path: Path, store: str) -> None:
    """A cache that overflows writes before the commit, and SQLite writes it back, and syncs, when that is not to be."""
    fill = "insert into t select randomblob(900) from (with recursive n(i) as (values(1) union all select i + 1 from n \
        where i < 400) select i from n)"
    with closing(connect(tmp_path, store)) as db, closing(connect(tmp_path, store, "fresh", name="empty")) as empty:
        db.execute("pragma cache_size = 5")
        db.execute("begin; create table u(b)")
        db.execute(fill)
        db.execute("rollback")
        assert (rows(db), status(db)["lsn"]) == ([1], "2")
        db.execute("begin; savepoint s")
        db.execute(fill)
        db.execute("rollback to s; insert into t values(2); commit")
        assert (rows(db), status(db)["lsn"]) == ([1, 2], "3")
        empty.execute("pragma cache_size = 5")
        empty.execute("begin; create table t(a)")
        empty.execute(fill)
        empty.execute("rollback")
        assert status(empty)["lsn"] == "0"
        empty.execute("pragma user_version = 3")
        assert status(empty)["lsn"] == "1"
        for each in (db, empty):
            assert each.execute("pragma integrity_check").get == "ok"
    with closing(connect(tmp_path, store, "new")) as db:
        assert rows(db) == [1, 2]
