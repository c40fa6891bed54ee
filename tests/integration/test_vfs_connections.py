"""Connections to one volume: what they see of each other, who may write, and what is refused in words."""

from __future__ import annotations

import gc
import os
import threading
import time
import traceback
import weakref
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import apsw
import msgspec
import pytest

from budwood.testing.databases import MemoryDatabases
from budwood.testing.memory_pages import MemorySnapshot, MemoryVolume, MemoryWriter
from budwood.vfs.codes import last_error
from budwood.volume.errors import (
    BadInput,
    BudwoodError,
    Busy,
    Conflict,
    Corrupt,
    Full,
    NotFound,
    Unavailable,
    UsageError,
)
from budwood.volume.protocols import Durability

from ..waits import LIMIT_SECONDS

SERIES = "with recursive n(i) as (values(1) union all select i + 1 from n where i < {}) insert into t select {} from n"


@pytest.fixture
def databases() -> Iterator[MemoryDatabases]:
    with MemoryDatabases() as made:
        yield made
        gc.collect()


def _values(db: apsw.Connection) -> list[int]:
    return [row[0] for row in db.execute("select a from t order by rowid")]


def _pair(databases: MemoryDatabases, *, timeout: float = 0.0) -> tuple[apsw.Connection, apsw.Connection]:
    first = databases.connect(timeout=timeout)
    first.execute("create table t(a); insert into t values(1)")
    return first, databases.connect(timeout=timeout)


def test_a_commit_is_seen_by_the_next_transaction_and_by_no_earlier_one(databases: MemoryDatabases) -> None:
    first, second = _pair(databases)
    second.execute("begin")
    assert _values(second) == [1]
    first.execute("insert into t values(2)")
    assert _values(second) == [1]
    second.execute("commit")
    assert _values(second) == [1, 2]


def test_another_history_with_the_same_stored_counter_flushes_the_cache(databases: MemoryDatabases) -> None:
    """The mutant "change counter taken from the page" shows stale rows here."""
    db, other = _pair(databases)
    volume = databases.volumes["memory"]
    common = volume.content()
    assert volume.page_size
    other.execute("insert into t values(20)")
    theirs = volume.content()
    volume.replace(*common, page_size=volume.page_size)
    # Who has seen the other history would store page 1, for another schema cookie.
    databases.connect().execute("insert into t values(30)")
    assert _values(db) == [1, 30]
    assert theirs[0][1][24:40] == volume.read(1, volume.head)[24:40], "what is stored can't tell the two apart"
    volume.replace(*theirs, page_size=volume.page_size)
    assert _values(db) == [1, 20]
    assert _values(other) == [1, 20]


def test_its_own_commits_keep_the_cache(databases: MemoryDatabases, monkeypatch: pytest.MonkeyPatch) -> None:
    db = databases.connect()
    db.execute("create table t(a)")
    reads: list[int] = []
    read = MemorySnapshot.read

    def counted(self: MemorySnapshot, page: int) -> bytes:
        reads.append(page)
        return read(self, page)

    monkeypatch.setattr(MemorySnapshot, "read", counted)
    for value in range(50):
        db.execute("insert into t values(?)", (value,))
        assert _values(db)[-1] == value
    assert not reads, "page 1, which a commit compares with the stored one, is as its last commit left it"


def test_a_commit_compares_its_page_1_with_the_one_that_is_stored_now(
    databases: MemoryDatabases, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And with none that stood there before another's commit, or that a commit of its own failed to leave."""
    first, second = _pair(databases)

    def version(db: apsw.Connection) -> int:
        return int(db.pragma("user_version"))

    for db, others, value in ((first, second, 7), (second, first, 5), (first, second, 7), (first, second, 7)):
        db.pragma("user_version", value)
        assert (version(db), version(others)) == (value, value)

    def full(*_: object) -> None:
        raise Full("no room")

    with monkeypatch.context() as patch:
        patch.setattr(MemoryWriter, "commit", full)
        with pytest.raises(apsw.FullError):
            first.pragma("user_version", 8)
    first.execute("begin; pragma user_version = 9; rollback")
    for value in (8, 9, 7):
        first.pragma("user_version", value)
        assert (version(first), version(second)) == (value, value)


def test_a_busy_writer_fails_at_once_without_a_timeout(databases: MemoryDatabases) -> None:
    first, second = _pair(databases)
    first.execute("begin immediate")
    with pytest.raises(apsw.BusyError):
        second.execute("begin immediate")
    assert _values(second) == [1], "readers don't wait"
    first.execute("rollback")
    second.execute("begin immediate; insert into t values(3); commit")
    assert _values(first) == [1, 3]


def test_an_error_that_was_met_keeps_no_connection_open(databases: MemoryDatabases) -> None:
    """`last_error` kept the one that was raised, and that, by its traceback, every local of its callers."""
    first, _ = _pair(databases)
    first.execute("begin immediate")

    def meet() -> weakref.ref[apsw.Connection]:
        other = databases.connect()
        try:
            other.execute("begin immediate")
        except apsw.BusyError:
            return weakref.ref(other)
        raise AssertionError("two writers at once")

    met = meet()
    assert met() is None
    assert isinstance(last_error(), Busy)


def test_a_busy_writer_waits_with_a_timeout(databases: MemoryDatabases) -> None:
    first, second = _pair(databases, timeout=LIMIT_SECONDS)
    first.execute("begin immediate; insert into t values(2)")
    waiting = threading.Event()
    waited: list[int] = []

    def busy(times: int) -> bool:
        waiting.set()
        waited.append(times)
        return len(waited) < 1_000_000

    second.set_busy_handler(busy)
    thread = threading.Thread(target=second.execute, args=("update t set a = a + 10",))
    thread.start()
    assert waiting.wait(LIMIT_SECONDS)
    first.execute("commit")
    thread.join(LIMIT_SECONDS)
    assert _values(first) == [11, 12]


def test_a_busy_handler_waits_in_a_way_that_lets_other_threads_go_on(
    databases: MemoryDatabases, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite's own way of sleeping would come back through apsw with the GIL held: 4 s for what takes 15 ms."""
    first, second = _pair(databases, timeout=LIMIT_SECONDS)
    first.execute("begin immediate; insert into t values(2)")
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if first.in_transaction:
            first.execute("commit")

    with monkeypatch.context() as patch:
        patch.setattr(time, "sleep", sleep)
        second.execute("update t set a = a + 10")
    assert waits
    assert _values(second) == [11, 12]


def test_a_reader_that_turns_writer_too_late_gets_busy_snapshot_and_keeps_its_view(databases: MemoryDatabases) -> None:
    first, second = _pair(databases, timeout=LIMIT_SECONDS)
    second.execute("begin")
    assert _values(second) == [1]
    first.execute("insert into t values(2)")
    with pytest.raises(apsw.BusyError) as caught:
        second.execute("insert into t values(3)")
    assert vars(caught.value)["extendedresult"] == apsw.SQLITE_BUSY_SNAPSHOT, "at once: to wait could not help it"
    assert _values(second) == [1]
    second.execute("rollback; begin; insert into t values(3); commit")
    assert _values(first) == [1, 2, 3]


def test_increments_from_several_threads_are_all_there(databases: MemoryDatabases) -> None:
    databases.connect().execute("create table t(a); insert into t values(0)")
    failures: list[BaseException] = []

    def work() -> None:
        try:
            db = databases.connect(timeout=LIMIT_SECONDS)
            for number in range(100):
                if number % 2:
                    db.execute("update t set a = a + 1")
                else:
                    db.execute("begin immediate; update t set a = a + 1; commit")
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert _values(databases.connect()) == [400]


def test_a_large_transaction_that_is_cut_off_leaves_nothing(databases: MemoryDatabases) -> None:
    db = databases.connect()
    db.execute("create table t(a); pragma cache_size = 5; begin")
    db.execute(SERIES.format(500, "randomblob(900)"))
    assert databases.volumes["memory"].locked
    db.close()
    volume = databases.volumes["memory"]
    assert not volume.locked
    assert volume.head == 1
    assert _values(databases.connect()) == []


@pytest.mark.parametrize(
    ("error", "kin"),
    [
        (Full("no room on the disk"), apsw.FullError),
        (Conflict("someone was first"), apsw.BusyError),
        (Unavailable("no answer"), apsw.IOError),
        (Corrupt("a page", "it is torn"), apsw.IOError),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_failed_commit_rolls_back_and_its_reader_is_told(
    databases: MemoryDatabases, monkeypatch: pytest.MonkeyPatch, error: BudwoodError, kin: type[apsw.Error]
) -> None:
    db, other = _pair(databases)
    db.execute("insert into t values(2); begin; insert into t values(3)")
    running = db.execute("select t.a from t, t as b order by t.rowid")
    next(running)

    def fail(self: MemoryWriter, durability: Durability) -> MemorySnapshot:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(MemoryWriter, "commit", fail)
        with pytest.raises(type(error), match=str(error)) as caught:
            db.execute("commit")
    assert isinstance(caught.value, kin)
    with pytest.raises(apsw.Error):
        list(running)
    assert not db.in_transaction
    other.execute("insert into t values(4)")
    assert _values(db) == [1, 2, 4]


@pytest.mark.parametrize("error", [Full("no room on the disk"), Corrupt("a page", "it is torn"), Busy("later")])
@pytest.mark.parametrize("nested", [False, True])
def test_an_error_comes_out_of_a_with_block_as_it_was_raised(
    databases: MemoryDatabases, monkeypatch: pytest.MonkeyPatch, error: BudwoodError, nested: bool
) -> None:
    db, other = _pair(databases)

    def fail(*_: object) -> MemorySnapshot:
        raise error

    def insert() -> None:
        with db, db if nested else nullcontext():
            db.execute("insert into t values(2)")

    def insert_and_fail() -> None:
        with db:
            db.execute("insert into t values(3)")
            raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(MemoryWriter, "commit", fail)
        with pytest.raises(type(error), match=str(error)) as caught:
            insert()
    assert isinstance(caught.value, apsw.Error)
    shown = "".join(traceback.format_exception(caught.value))
    assert "database or disk is full" not in shown
    assert "disk I/O error" not in shown
    with pytest.raises(ZeroDivisionError):
        insert_and_fail()
    with db:
        db.execute("insert into t values(4)")
    assert _values(other) == [1, 4]


@pytest.mark.parametrize("nested", [False, True])
def test_what_sqlite_has_rolled_back_itself_comes_out_of_a_with_block_as_it_was_raised(
    databases: MemoryDatabases, nested: bool
) -> None:
    db, other = _pair(databases)
    db.execute(
        "create trigger none before insert on t when new.a < 0 begin select raise(rollback, 'none below 0'); end"
    )

    def insert() -> None:
        with db, db if nested else nullcontext():
            db.execute("insert into t values(2)")
            db.execute("insert into t values(-1)")

    with pytest.raises(apsw.ConstraintError, match="none below 0"):
        insert()
    with db, db if nested else nullcontext():
        db.execute("insert into t values(3)")
    assert _values(other) == [1, 3]


def test_two_volumes_in_one_transaction_are_refused_and_neither_changes(databases: MemoryDatabases) -> None:
    for journal in ("delete", "memory"):
        db = databases.connect("one")
        db.execute("create table if not exists t(a); attach 'two' as two; create table if not exists two.u(a)")
        db.execute(f"pragma journal_mode = {journal}")
        heads = [databases.volumes[name].head for name in ("one", "two")]
        db.execute("begin; insert into t values(1); insert into two.u values(2)")
        with pytest.raises(UsageError, match="one transaction can't write to"):
            db.execute("commit")
        assert not db.in_transaction
        assert [databases.volumes[name].head for name in ("one", "two")] == heads
        assert db.execute("select * from t, two.u").fetchall() == []
        db.execute("insert into two.u select count(*) from t")
        assert db.execute("select a from two.u").fetchall() == [(0,)]
        db.execute("delete from two.u")
        db.close()


def test_two_volumes_are_refused_beside_a_plain_main_database_too(databases: MemoryDatabases, tmp_path: Path) -> None:
    vfs = databases.vfs.name
    flags = apsw.SQLITE_OPEN_URI | apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
    db = apsw.Connection(str(tmp_path / "plain.db"), flags)
    for name in ("one", "two"):
        db.execute(f"attach 'file:{name}?vfs={vfs}' as {name}; create table {name}.t(a)")
    db.execute("create table t(a)")
    heads = [volume.head for volume in databases.volumes.values()]
    for mode in ("delete", "memory"):
        db.execute(f"pragma one.journal_mode = {mode}; pragma two.journal_mode = {mode}").fetchall()
        db.execute("begin; insert into t values(1)")
        with pytest.raises(UsageError, match="one transaction can't write to two volumes"):
            db.execute("insert into one.t values(1); insert into two.t values(1); commit")
        assert not db.in_transaction
        assert [volume.head for volume in databases.volumes.values()] == heads
        assert db.execute("select count(*) from t").fetchall() == [(0,)]
    db.execute("begin; insert into one.t values(1); insert into t values(1); commit")
    assert db.execute("select (select a from t) + (select a from one.t)").fetchall() == [(2,)]


def test_a_file_written_beside_a_volume_is_refused_before_anything_is_committed(
    databases: MemoryDatabases, tmp_path: Path
) -> None:
    """SQLite would commit both through a journal beside the main database, and a volume has no such place."""
    db = databases.connect("one")
    db.execute(f"create table t(a); attach 'file:{tmp_path}/plain.db?vfs={apsw.vfs_names()[0]}' as plain")
    db.execute("create table plain.u(a)")
    with pytest.raises(UsageError, match="several databases"):
        db.execute("begin; insert into t values(1); insert into plain.u values(1); commit")
    assert db.execute("select (select count(*) from t), (select count(*) from u)").fetchall() == [(0, 0)]
    db.execute("insert into plain.u values(1); insert into t select a from plain.u")
    assert db.execute("select (select a from t) + (select a from u)").fetchall() == [(2,)]


def test_a_missing_volume_is_not_found_by_either_way_of_opening(databases: MemoryDatabases) -> None:
    with pytest.raises(NotFound, match="no volume 'nowhere'"):
        databases.connect("nowhere", mode="rw")
    flags = apsw.SQLITE_OPEN_URI | apsw.SQLITE_OPEN_READWRITE
    with pytest.raises(NotFound, match="no volume 'nowhere'") as caught:
        apsw.Connection(f"file:nowhere?vfs={databases.vfs.name}", flags)
    assert isinstance(caught.value, apsw.CantOpenError)


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("file:/etc/passwd?vfs={}", "can't name a volume"),
        ("file:../up?vfs={}", "can't name a volume"),
        ("file:a%0Ab?vfs={}", "can't name a volume"),
        ("file:memory?vfs={}&lsn=seven", "not a number"),
        ("file:memory?vfs={}&lsn=1&at=2030-01-01", "not both"),
        ("file:memory?vfs={}&lsn=99", "no LSN 99"),
    ],
)
def test_a_bad_uri_is_refused_in_words(databases: MemoryDatabases, uri: str, words: str) -> None:
    databases.connect().execute("create table t(a)")
    flags = apsw.SQLITE_OPEN_URI | apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
    with pytest.raises(UsageError, match=words):
        apsw.Connection(uri.format(databases.vfs.name), flags)
    assert list(databases.volumes) == ["memory"]


def test_a_path_is_answered_with_the_uri_that_attaches_the_file(databases: MemoryDatabases, tmp_path: Path) -> None:
    db, path = databases.connect(), tmp_path / "plain.db"
    db.execute("create table t(a); insert into t values (7)")
    for statement in ("vacuum into ?", "attach ? as plain"):
        with pytest.raises(UsageError, match="can't name a volume") as caught:
            db.execute(statement, (str(path),))
        uri = str(caught.value).split("'")[-2]
        db.execute(statement, (uri,))
    assert db.execute("select a from plain.t").fetchall() == [(7,)]
    db.execute("detach plain")


def test_a_name_stays_a_name(databases: MemoryDatabases) -> None:
    for name in ("a/b.c/d e", "größe", "x?y#z%41", "ends-journal", "ends-wal"):
        db = databases.connect(name)
        db.execute("create table t(a)")
        assert name in databases.volumes
        assert not Path(name).exists()
        db.close()


def test_pragmas_answer_json(databases: MemoryDatabases) -> None:
    db = databases.connect()
    db.execute("create table t(a); insert into t values(1)")
    [(text,)] = db.execute("pragma budwood_log").fetchall()
    assert isinstance(text, str)
    assert [row["lsn"] for row in msgspec.json.decode(text)] == [1, 2]
    [(text,)] = db.execute("pragma budwood_log('2')").fetchall()
    assert isinstance(text, str)
    assert [row["lsn"] for row in msgspec.json.decode(text)] == [2]
    [(text,)] = db.execute("pragma budwood_status").fetchall()
    assert isinstance(text, str)
    assert [row["lsn"] for row in msgspec.json.decode(text)] == [2]
    with pytest.raises(BadInput, match="no remote"):
        db.execute("pragma budwood_push")
    with pytest.raises(BadInput, match="there is no PRAGMA budwood_pus;"):
        db.execute("pragma budwood_pus")
    db.execute("begin immediate")
    for verb in ("push", "pull", "fetch"):
        with pytest.raises(BadInput, match="inside a write transaction"):
            db.execute(f"pragma budwood_{verb}")
    assert db.in_transaction


def test_modes_that_a_volume_cannot_have(databases: MemoryDatabases) -> None:
    db = databases.connect()
    db.execute("create table t(a unique); insert into t values(5)")
    with pytest.raises(BadInput, match="journal_mode=OFF"):
        db.execute("pragma journal_mode = off")
    assert db.pragma("journal_mode", "wal") == "delete"
    assert db.pragma("locking_mode", "exclusive") == "normal"
    with pytest.raises(BadInput, match="4096-byte pages"):
        db.execute("pragma page_size = 8192")
    db.execute("pragma page_size = 4096; pragma page_size = 1000")
    with pytest.raises(apsw.ConstraintError):
        db.execute("insert into t values(1), (2), (5)")
    assert _values(db) == [5]


def test_a_size_settled_before_the_first_commit_is_kept_or_named(databases: MemoryDatabases) -> None:
    databases.volumes["sized"] = MemoryVolume("sized", page_size=8192)
    flags = apsw.SQLITE_OPEN_URI | apsw.SQLITE_OPEN_READWRITE
    unaware = apsw.Connection(f"file:sized?vfs={databases.vfs.name}", flags)
    with pytest.raises(BadInput, match="PRAGMA page_size = 8192"):
        unaware.execute("create table t(a)")
    assert databases.volumes["sized"].head == 0
    aware = databases.connect("sized")
    aware.execute("create table t(a)")
    assert aware.pragma("page_size") == 8192
    assert unaware.execute("select count(*) from t").fetchall() == [(0,)]


def test_the_exclusive_mode_of_a_plain_main_database_loses_no_update(
    databases: MemoryDatabases, tmp_path: Path
) -> None:
    """Set for the whole connection, the mode is out of the VFS's hearing: SQLite never unlocks."""
    first, _ = _pair(databases)
    flags = apsw.SQLITE_OPEN_URI | apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
    db = apsw.Connection(str(tmp_path / "plain.db"), flags)
    db.execute(f"attach 'file:memory?vfs={databases.vfs.name}' as v; pragma locking_mode = exclusive")
    for value in (2, 3, 4):
        db.execute("insert into v.t values(?)", (value,))
        assert _values(first) == list(range(1, value + 1))
    first.execute("insert into t values(5)")
    with pytest.raises(Conflict):
        db.execute("insert into v.t values(6)")
    db.close()
    assert _values(first) == [1, 2, 3, 4, 5]


def test_copies_in_and_out_keep_every_page(databases: MemoryDatabases, tmp_path: Path) -> None:
    source = apsw.Connection(str(tmp_path / "source.db"))
    source.execute("pragma page_size = 1024; create table t(a)")
    source.execute(SERIES.format(5000, "i"))
    db = databases.connect("copy")
    with db.backup("main", source, "main") as backup:
        backup.step(-1)
    assert databases.volumes["copy"].page_size == 1024
    assert db.execute("select count(*), sum(a) from t").fetchall() == [(5000, 12502500)]
    db.execute("delete from t where a % 10; vacuum; vacuum into 'file:smaller'")
    smaller = databases.connect("smaller", mode="ro")
    assert smaller.execute("select count(*), sum(a) from t").fetchall() == [(500, 1252500)]
    settled = databases.connect("settled")
    settled.execute("create table mine(a)")
    with pytest.raises(BadInput, match="4096-byte pages"), settled.backup("main", source, "main") as backup:
        backup.step(-1)
    assert settled.execute("select name from sqlite_schema").fetchall() == [("mine",)]


def test_an_immutable_or_unlocked_view_does_not_move(databases: MemoryDatabases) -> None:
    first, _ = _pair(databases)
    flags = apsw.SQLITE_OPEN_URI | apsw.SQLITE_OPEN_READONLY
    for parameter in ("immutable=1", "nolock=1", "lsn=2"):
        view = apsw.Connection(f"file:memory?vfs={databases.vfs.name}&{parameter}", flags)
        before = _values(view)
        first.execute("insert into t values(7)")
        view.cache_flush()
        view.execute("pragma shrink_memory")
        assert _values(view) == before
        view.close()


def test_a_connection_from_before_a_fork_is_refused_in_words(databases: MemoryDatabases) -> None:
    db, _ = _pair(databases)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            db.execute("select * from t").fetchall()
            os.write(writer, b"it answered")
        except BaseException as error:
            os.write(writer, str(error).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as answer:
        assert b"opened before os.fork()" in answer.read()
    os.waitpid(child, 0)
    assert _values(db) == [1]
