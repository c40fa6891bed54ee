"""Stock SQLite on a mount, in every journal mode: each transaction that changes something makes one LSN, nothing else
makes any, and each LSN holds what that transaction left.

The model is a database file beside it, driven alike; what it holds after each transaction, page by page, is what the
LSN's export must hold. Counters in the header, which SQLite moves without a change, are left out of both.
"""

from __future__ import annotations

import hashlib
import shutil
import sqlite3
import struct
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest

from budwood.sync.edge import open as open_edge

from ..mounts import MODULE_SECONDS, Mount, mounted, needs_fuse
from ..waits import LIMIT_SECONDS
from .cli import Command

pytestmark = needs_fuse

MODES = ("delete", "truncate", "persist", "memory", "off", "wal")
SYNCHRONOUS = ("full", "normal")
COMMAND = shutil.which("sqlite3")

Transaction = Callable[[sqlite3.Connection], None]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mount]:
    """One mount with a remote, that syncs when it is told to and not before."""
    folder = tmp_path_factory.mktemp("mounted")
    with mounted(folder, "--no-sync", remote=f"file://{folder / 'store'}", limit_seconds=MODULE_SECONDS) as mount:
        yield mount


def lsn(mount: Mount, name: str) -> str:
    """ "3+2": two commits after the remote's third. Every commit in a -wal has become one by then."""
    mount.ask("settle")
    found = mount.ask("status", name)
    return str(found[0]["lsn"])


def open_database(path: Path, mode: str, synchronous: str = "full", locking: str = "normal") -> sqlite3.Connection:
    """Transactions are said in SQL; a cache of a few pages, so that larger ones spill."""
    db = sqlite3.connect(path, timeout=LIMIT_SECONDS, isolation_level=None)
    db.execute(f"pragma locking_mode = {locking}")
    assert db.execute(f"pragma journal_mode = {mode}").fetchone() == (mode,)
    db.execute(f"pragma synchronous = {synchronous}")
    db.execute("pragma cache_size = 8")
    return db


def held(content: bytes) -> bytes:
    """What a database file says: without the counters of its header (a change counter, and the versions that go with
    it), and without what lies in pages that are free, which SQLite needn't write, or beyond its end, which it cuts off
    after a commit.
    """
    if not content:
        return content
    said = bytearray(content)
    said[24:28], said[92:100] = bytes(4), bytes(8)
    size = int.from_bytes(said[16:18]) or 4096
    del said[int.from_bytes(said[28:32]) * size :]
    trunk = int.from_bytes(said[32:36])
    while trunk:
        start = (trunk - 1) * size
        trunk, count = struct.unpack_from(">II", said, start)
        for leaf in struct.unpack_from(f">{count}I", said, start + 8):
            said[(leaf - 1) * size : leaf * size] = bytes(size)
    return bytes(said)


def state(db: sqlite3.Connection) -> bytes:
    """What a connection sees, as a file."""
    return held(db.serialize()) if db.execute("pragma page_count").fetchone() != (0,) else b""


def filler(seed: object, length: int) -> bytes:
    return hashlib.shake_128(repr(seed).encode()).digest(length)


# The workload. In `off` mode SQLite can't roll back: what would have to is left out there.


def make(db: sqlite3.Connection) -> None:
    db.execute("begin")
    db.execute("create table item(id integer primary key, version, body blob)")
    db.execute("create table tally(name text primary key, number) without rowid")
    db.execute("create index by_version on item(version, id)")
    db.execute("insert into tally values('total', 0)")
    db.execute("commit")


def fill(db: sqlite3.Connection) -> None:
    db.execute("begin immediate")
    db.executemany("insert into item values(?, 0, ?)", ((n, filler(n, 700)) for n in range(200)))
    db.execute("update tally set number = (select count(*) from item)")
    db.execute("commit")


def nothing(db: sqlite3.Connection) -> None:
    db.execute("begin immediate")
    db.execute("update item set version = 1 where id < 0")
    db.execute("commit")
    assert db.execute("select count(*) from item").fetchone() == (200,)


def the_same_again(db: sqlite3.Connection) -> None:
    """Whether this changes something is SQLite's to say: it writes the page, and moves a counter or not."""
    db.execute("update item set version = version where id < 3")


def one_row(db: sqlite3.Connection) -> None:
    db.execute("update item set version = version + 1 where id = 7")


def rolled_back(db: sqlite3.Connection) -> None:
    db.execute("begin")
    db.execute("delete from item where id > 10")
    db.execute("create table never(x)")
    db.execute("rollback")


def savepoints(db: sqlite3.Connection) -> None:
    db.execute("begin")
    db.execute("insert into item values(1000, 5, 'kept')")
    db.execute("savepoint outer")
    db.execute("update item set body = 'lost' where id < 50")
    db.execute("savepoint inner")
    db.execute("delete from tally")
    db.execute("rollback to inner")
    db.execute("rollback to outer")
    db.execute("update tally set number = number + 1")
    db.execute("release outer")
    db.execute("commit")


def savepoint_alone(db: sqlite3.Connection) -> None:
    db.execute("savepoint whole")
    db.execute("insert into item values(1001, 6, zeroblob(3000))")
    db.execute("release whole")


def failed_statement(db: sqlite3.Connection) -> None:
    db.execute("begin")
    db.execute("insert into tally values('second', 2)")
    with pytest.raises(sqlite3.IntegrityError):
        db.execute("insert into item select case id when 190 then 1 else id + 5000 end, 9, body from item")
    db.execute("commit")


def spilled(db: sqlite3.Connection) -> None:
    db.execute("begin")
    db.executemany(
        "update item set version = 3, body = ? where id = ?", ((filler(("s", n), 900), n) for n in range(200))
    )
    db.execute("commit")


def spilled_and_rolled_back(db: sqlite3.Connection) -> None:
    db.execute("begin")
    db.executemany("update item set body = ? where id = ?", ((filler(("r", n), 900), n) for n in range(200)))
    db.execute("insert into item select id + 20000, version, body from item")
    db.execute("rollback")


def spilled_rolled_back_to_a_savepoint(db: sqlite3.Connection) -> None:
    db.execute("begin")
    db.execute("update tally set number = number + 1")
    db.execute("savepoint large")
    db.executemany("update item set body = ? where id = ?", ((filler(("p", n), 900), n) for n in range(200)))
    db.execute("rollback to large")
    db.execute("commit")


def large_value(db: sqlite3.Connection) -> None:
    db.execute("insert into item values(2000, 0, ?)", (filler("large", 300_000),))


def fewer(db: sqlite3.Connection) -> None:
    db.execute("delete from item where id between 20 and 1999")


def vacuum(db: sqlite3.Connection) -> None:
    db.execute("vacuum")


def after_vacuum(db: sqlite3.Connection) -> None:
    db.execute("insert into item select id + 3000, version, body from item where id < 20")


def header_alone(db: sqlite3.Connection) -> None:
    db.execute("pragma user_version = 77")


def checkpoint(db: sqlite3.Connection) -> None:
    for kind in ("passive", "restart", "truncate"):
        db.execute(f"pragma wal_checkpoint({kind})").fetchall()


def auto_checkpoint(db: sqlite3.Connection) -> None:
    """A checkpoint of its own accord, at the end of a transaction."""
    db.execute("pragma wal_autocheckpoint = 3").fetchall()
    db.execute("update item set version = 8 where id < 20")
    db.execute("pragma wal_autocheckpoint = 1000").fetchall()


def closed_and_opened(db: sqlite3.Connection) -> None:
    """Changes nothing; the test does it."""


def schema(db: sqlite3.Connection) -> None:
    db.execute("begin")
    db.execute("alter table item add column note default 'none'")
    db.execute("drop index by_version")
    db.execute("commit")


WORKLOAD: tuple[Transaction, ...] = (
    make,
    fill,
    nothing,
    one_row,
    the_same_again,
    closed_and_opened,
    rolled_back,
    savepoints,
    savepoint_alone,
    failed_statement,
    spilled,
    checkpoint,
    one_row,
    spilled_and_rolled_back,
    closed_and_opened,
    spilled_rolled_back_to_a_savepoint,
    auto_checkpoint,
    large_value,
    fewer,
    vacuum,
    checkpoint,
    closed_and_opened,
    after_vacuum,
    header_alone,
    schema,
    one_row,
)
ROLLING_BACK = (
    rolled_back,
    savepoints,
    failed_statement,
    spilled_and_rolled_back,
    spilled_rolled_back_to_a_savepoint,
)


def workload(mode: str) -> list[Transaction]:
    return [each for each in WORKLOAD if mode != "off" or each not in ROLLING_BACK]


CASES = (
    *((mode, synchronous, "normal") for mode in MODES for synchronous in SYNCHRONOUS),
    ("delete", "full", "exclusive"),
    ("persist", "normal", "exclusive"),
    ("wal", "full", "exclusive"),
)


@pytest.mark.parametrize(("mode", "synchronous", "locking"), CASES)
def test_each_transaction_that_changes_something_is_one_lsn_which_holds_what_it_left(
    shared: Mount, tmp_path: Path, capsys: pytest.CaptureFixture[str], mode: str, synchronous: str, locking: str
) -> None:
    name = f"each/{mode}-{synchronous}-{locking}.db"
    path, beside = shared.directory / name, tmp_path / "model.db"
    path.parent.mkdir(exist_ok=True)
    states = [b""]
    with ExitStack() as stack:

        def opened() -> tuple[sqlite3.Connection, sqlite3.Connection]:
            pair = [open_database(each, mode, synchronous, locking) for each in (path, beside)]
            for each in pair:
                stack.callback(each.close)
            return pair[0], pair[1]

        def check(what: str) -> None:
            """What was done made an LSN, if the model has changed; it is pushed, so that the next has a number too."""
            now, before, after = state(model), len(states) - 1, lsn(shared, name)
            if now != states[-1] or (what == "the_same_again" and after != str(before)):
                states.append(now)
            assert after == (f"{before}+1" if len(states) - 1 > before else f"{before}"), f"after {what}"
            shared.ask("push", name)
            assert lsn(shared, name) == str(len(states) - 1), f"after {what} and a push"

        db, model = opened()
        check("opening")
        for transaction in workload(mode):
            transaction(db)
            transaction(model)
            if transaction is closed_and_opened:
                db.close()
                model.close()
                db, model = opened()
            check(transaction.__name__)
        assert db.execute("pragma integrity_check").fetchone() == ("ok",)
        assert state(db) == states[-1]
    assert len(states) > 10, "the model has changed"
    others = Command(capsys, tmp_path / "another home", shared.remote)
    for number in range(1, len(states)):
        exported = tmp_path / f"at {number}.db"
        others.ok("export", name, str(exported), "--lsn", str(number))
        assert held(exported.read_bytes()) == states[number], f"LSN {number} holds something else"
        with closing(sqlite3.connect(exported)) as at:
            assert at.execute("pragma integrity_check").fetchone() == ("ok",)


@pytest.mark.parametrize("mode", MODES)
def test_what_is_reopened_after_a_remount_is_what_was_committed(tmp_path: Path, mode: str) -> None:
    with mounted(tmp_path, "--no-sync") as mount:
        path, beside = mount.directory / "one.db", tmp_path / "model.db"
        for part in (workload(mode)[:7], workload(mode)[7:]):
            with closing(open_database(path, mode)) as db, closing(open_database(beside, mode)) as model:
                for transaction in part:
                    transaction(db)
                    transaction(model)
                left, count = state(model), lsn(mount, "one.db")
            mount.stop()
            mount.start("--no-sync")
            assert lsn(mount, "one.db") == count
            with closing(sqlite3.connect(path)) as db:
                assert db.execute("pragma integrity_check").fetchone() == ("ok",)
                assert state(db) == left


@pytest.mark.parametrize("mode", MODES)
def test_a_change_of_mode_keeps_the_rows_and_every_commit(shared: Mount, mode: str) -> None:
    name = f"changed-{mode}.db"
    with closing(sqlite3.connect(shared.directory / name, isolation_level=None)) as db:
        db.execute("create table t(a)")
        for number, next_mode in enumerate(("wal", mode, "wal", mode, "delete")):
            assert db.execute(f"pragma journal_mode = {next_mode}").fetchone() == (next_mode,)
            before = commits(shared, name)
            db.execute("insert into t values(?)", (number,))
            assert commits(shared, name) == before + 1
        assert db.execute("select a from t").fetchall() == [(n,) for n in range(5)]
        assert db.execute("pragma integrity_check").fetchone() == ("ok",)


@contextmanager
def other_process(path: Path, mode: str) -> Generator[Callable[[], None]]:
    """One that has committed, and has the database open until it is told that it is done."""
    program = f"""
import sqlite3
db = sqlite3.connect({str(path)!r}, isolation_level=None)
db.execute("pragma journal_mode = {mode}")
db.execute("insert into t values (1)")
input(print("ready", flush=True) or "")
db.close()
"""
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:

        def done() -> None:
            child.communicate("\n", timeout=LIMIT_SECONDS)
            assert child.returncode == 0

        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        yield done


def commits(mount: Mount, name: str) -> int:
    """How many there are in all, of a volume that was never pushed."""
    base, _, unpushed = lsn(mount, name).partition("+")
    assert base == "0"
    return int(unpushed or 0)


WRITER = """
import sqlite3, sys
path, mode, name, count = sys.argv[1:]
db = sqlite3.connect(path, timeout=300, isolation_level=None)
assert db.execute(f"pragma journal_mode = {mode}").fetchone() == (mode,)
print("ready", flush=True)
sys.stdin.readline()
for number in range(int(count)):
    db.execute("begin immediate")
    (value,) = db.execute("select value from counter").fetchone()
    db.execute("update counter set value = ?", (value + 1,))
    db.execute("insert into entry values(?, ?, ?)", (name, number, value))
    db.execute("commit")
db.close()
"""


@contextmanager
def writer(path: Path, mode: str, name: str, count: int) -> Generator[subprocess.Popen[str]]:
    child = subprocess.Popen(
        [sys.executable, "-c", WRITER, path, mode, name, str(count)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with child:
        try:
            yield child
        finally:
            child.kill()


@pytest.mark.parametrize("mode", MODES)
def test_no_read_modify_write_of_several_processes_is_lost(shared: Mount, mode: str) -> None:
    name, writers, each = f"counted-{mode}.db", 4, 20
    path = shared.directory / name
    with closing(open_database(path, mode)) as db:
        db.execute("create table counter(value)")
        db.execute("insert into counter values(0)")
        db.execute("create table entry(writer, number, value)")
    before = commits(shared, name)
    with ExitStack() as stack:
        children = [stack.enter_context(writer(path, mode, f"writer {n}", each)) for n in range(writers)]
        for child in children:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n", child.communicate()
        for child in children:
            assert child.stdin is not None
            child.stdin.write("go\n")
            child.stdin.flush()
        for child in children:
            _, errors = child.communicate(timeout=LIMIT_SECONDS)
            assert child.returncode == 0, errors
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("pragma integrity_check").fetchone() == ("ok",)
        assert db.execute("select value from counter").fetchone() == (writers * each,)
        values = [row[0] for row in db.execute("select value from entry order by value")]
        assert values == list(range(writers * each))
    assert commits(shared, name) == before + writers * each


@pytest.mark.skipif(COMMAND is None, reason="there is no sqlite3 command")
@pytest.mark.parametrize("mode", MODES)
def test_the_sqlite3_command_reads_and_writes_beside_the_library(shared: Mount, mode: str) -> None:
    name = f"commanded-{mode}.db"
    path = shared.directory / name
    assert run_command(path, f"pragma journal_mode={mode}; create table t(a, b);").splitlines() == [mode]
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute(f"pragma journal_mode = {mode}").fetchall()
        for number in range(5):
            run_command(path, f"insert into t values({number}, 'command');")
            db.execute("insert into t values(?, 'library')", (number,))
        assert db.execute("select count(*), sum(a) from t").fetchone() == (10, 20)
        assert commits(shared, name) >= 11
        assert run_command(path, "select count(*), sum(a) from t; pragma integrity_check;") == "10|20\nok\n"
    dumped = run_command(path, ".dump")
    assert dumped.count("INSERT INTO t") == 10


def run_command(path: Path, text: str) -> str:
    done = subprocess.run(
        [COMMAND or "", "-batch", path],
        input=f".timeout 30000\n{text}\n",
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout


def test_a_reader_sees_one_transaction_while_others_commit(shared: Mount) -> None:
    path = shared.directory / "read.db"
    with closing(open_database(path, "wal")) as db, closing(sqlite3.connect(path, isolation_level=None)) as reader:
        db.execute("create table t(a)")
        db.execute("insert into t values(1)")
        reader.execute("begin")
        assert reader.execute("select a from t").fetchall() == [(1,)]
        for number in range(2, 30):
            db.execute("insert into t values(?)", (number,))
        db.execute("pragma wal_checkpoint(passive)").fetchall()
        assert reader.execute("select count(*) from t").fetchone() == (1,)
        reader.execute("commit")
        assert reader.execute("select count(*) from t").fetchone() == (29,)


@pytest.mark.parametrize("mode", ["delete", "truncate", "persist"])
def test_a_writer_waits_for_a_reader_and_a_reader_for_a_writer(shared: Mount, mode: str) -> None:
    """The locks are those of any file system: without a busy timeout, the second is told so at once."""
    path = shared.directory / f"locked-{mode}.db"
    with closing(open_database(path, mode)) as db, closing(sqlite3.connect(path, isolation_level=None)) as other:
        db.execute("create table t(a)")
        other.execute("pragma busy_timeout = 0")
        db.execute("begin exclusive")
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            other.execute("select * from t").fetchall()
        db.execute("rollback")
        other.execute("begin")
        assert other.execute("select * from t").fetchall() == []
        db.execute("pragma busy_timeout = 0")
        db.execute("begin")
        db.execute("insert into t values(1)")
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            db.execute("commit")
        other.execute("commit")
        db.execute("commit")
        assert other.execute("select * from t").fetchall() == [(1,)]


@pytest.mark.parametrize("mode", MODES)
def test_a_database_is_opened_again_as_soon_as_it_is_closed(shared: Mount, mode: str) -> None:
    """The mount hears of a close when it has returned, perhaps after the next open."""
    name = f"reopened-{mode}.db"
    path = shared.directory / name
    with closing(open_database(path, mode)) as db:
        db.execute("create table t(a)")
    before = commits(shared, name)
    for number in range(60):
        with closing(open_database(path, mode)) as db:
            db.execute("insert into t values(?)", (number,))
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("select count(*), sum(a) from t").fetchone() == (60, sum(range(60)))
    assert commits(shared, name) == before + 60


@pytest.mark.parametrize("rounds", ["restart", "truncate"])
def test_each_commit_is_one_lsn_when_a_wal_starts_over(shared: Mount, rounds: str) -> None:
    """Over the frames of its last round, or from nothing."""
    name = f"rounds-{rounds}.db"
    with closing(open_database(shared.directory / name, "wal")) as db:
        db.execute("create table t(a)")
        before = commits(shared, name)
        for number in range(24):
            db.execute("insert into t values(zeroblob(?))", (number * 500,))
            assert commits(shared, name) == before + number + 1
            if number % 7 == 6:
                assert db.execute(f"pragma wal_checkpoint({rounds})").fetchone()[0] == 0


def test_two_databases_in_one_transaction_are_both_changed(shared: Mount) -> None:
    first, second = shared.directory / "first.db", shared.directory / "second.db"
    with closing(open_database(first, "delete")) as db:
        db.execute("create table t(a)")
        db.execute(f"attach '{second}' as second")
        db.execute("create table second.u(a)")
        before = commits(shared, "first.db"), commits(shared, "second.db")
        db.execute("begin")
        db.execute("insert into t values(1)")
        db.execute("insert into second.u values(2)")
        db.execute("commit")
        assert (commits(shared, "first.db"), commits(shared, "second.db")) == (before[0] + 1, before[1] + 1)
        db.execute("begin")
        db.execute("insert into t values(1)")
        db.execute("insert into second.u values(2)")
        db.execute("rollback")
        assert (commits(shared, "first.db"), commits(shared, "second.db")) == (before[0] + 1, before[1] + 1)
        assert db.execute("select t.a, u.a from t, u").fetchall() == [(1, 2)]
    assert {path.name for path in shared.directory.glob("*-mj*")} == set()


def test_sidecars_stand_beside_their_database_and_never_become_volumes(shared: Mount) -> None:
    for mode in MODES:
        path = shared.directory / "sidecars" / f"{mode}.db"
        path.parent.mkdir(exist_ok=True)
        with closing(open_database(path, mode)) as db:
            make(db)
            expected = {"wal": {"-wal", "-shm"}, "truncate": {"-journal"}, "persist": {"-journal"}}.get(mode, set())
            assert beside(path) == expected
        if mode == "wal":
            assert beside(path) == set()
    with open_edge(home=shared.home) as edge:
        known = {row["name"] for row in edge.ls() if row["name"].startswith("sidecars/")}
    assert known == {f"sidecars/{mode}.db" for mode in MODES}


def beside(path: Path) -> set[str]:
    return {each.name.removeprefix(path.name) for each in path.parent.iterdir() if each.name.startswith(path.name)} - {
        ""
    }


@pytest.mark.parametrize("mode", ["memory", "off"])
def test_who_closes_it_commits_nothing_of_a_transaction_of_another(shared: Mount, mode: str) -> None:
    """Without a journal a transaction ends when the file is flushed or closed: by whom it was written."""
    path = shared.directory / f"closed-{mode}.db"
    with closing(open_database(path, mode)) as db:
        db.execute("create table t(body)")
        with other_process(path, mode) as done:
            before = commits(shared, path.name)
            db.execute("begin immediate")
            db.execute(
                "with recursive n(i) as (select 1 union all select i + 1 from n where i < 200) "
                "insert into t select zeroblob(900) from n"
            )
            done()
            assert commits(shared, path.name) == before
            db.execute("commit")
        assert commits(shared, path.name) == before + 1


@pytest.mark.parametrize("mode", ["delete", "truncate", "persist", "wal"])
def test_who_opens_it_read_only_just_after_its_last_writer_left_reads(shared: Mount, mode: str) -> None:
    """A -journal goes with the last who has the database open: nobody finds it there and then not."""
    path = shared.directory / f"left-{mode}.db"
    for n in range(100):
        with closing(sqlite3.connect(path, isolation_level=None)) as db:
            db.execute(f"pragma journal_mode = {mode}").fetchall()
            db.execute("create table if not exists t(x)")
            db.execute("insert into t values(0)")
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
            assert db.execute("select count(*) from t").fetchone() == (n + 1,)
