"""The lite client: SQLite straight over a node or a store. (S2.31)"""

from __future__ import annotations

import gc
import queue
import subprocess
import sys
import threading
import weakref
from collections import Counter
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, asynccontextmanager, closing
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, cast

import anyio
import anyio.to_thread
import apsw
import msgspec
import pytest

import budwood
import budwood.lite
from budwood.lite.pages import LitePages
from budwood.lite.source import Source
from budwood.lite.transaction import LiteWriter
from budwood.remote.loop import call
from budwood.remote.portal import open_remote
from budwood.server.http.run_node import serve
from budwood.server.node import Node
from budwood.server.store.open_store import open_store
from budwood.volume.calls import (
    CREATE,
    PIN,
    PULL_COMMITS,
    SNAPSHOT,
    CreateRequest,
    PinRequest,
    RangeRequest,
    SnapshotRequest,
)
from budwood.volume.errors import Conflict, Full, NotFound, Unavailable
from budwood.volume.ids import VolumeId, is_ephemeral
from budwood.volume.protocols import Durability, Remote

from ..waits import LIMIT_SECONDS


@dataclass
class Counted:
    """A node that counts the calls it answers, each of which is one HTTP request, and fails those it is told to."""

    inner: Remote
    calls: Counter[str] = field(default_factory=Counter[str])
    lose_answer_of: set[str] = field(default_factory=set[str])

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.inner, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            asked = args[0].name if name == "ask" else name
            self.calls[asked] += 1
            if asked in self.lose_answer_of:
                self.lose_answer_of.remove(asked)
                return self._lost(method(*args, **kwargs))
            return method(*args, **kwargs)

        return call

    async def _lost(self, work: Any) -> Any:
        await work
        raise Unavailable("the answer was lost", determinate=False)


@dataclass
class Served:
    url: str
    store: str
    node: Counted

    def requests(self) -> int:
        """How many since the last time this was asked."""
        total = self.node.calls.total()
        self.node.calls.clear()
        return total


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    store = f"file://{tmp_path}/store"
    ready: queue.Queue[tuple[str, Counted]] = queue.Queue()
    ended = threading.Event()

    @asynccontextmanager
    async def open_node(address: str) -> AsyncGenerator[Remote, None]:
        async with aclosing(await open_store(store)) as opened, Node.open(opened, name="main", address=address) as node:
            yield cast("Remote", Counted(node))

    async def main() -> None:
        stop = anyio.Event()

        async def end() -> None:
            await anyio.to_thread.run_sync(ended.wait)
            stop.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(end)
            await serve(
                open_node, port=0, on_ready=lambda url, node: ready.put((url, cast("Counted", node))), stop=stop
            )

    thread = threading.Thread(target=anyio.run, args=(main,), kwargs={"backend": "asyncio"})
    thread.start()
    try:
        url, node = ready.get(timeout=LIMIT_SECONDS)
        yield Served(url, store, node)
    finally:
        ended.set()
        thread.join(LIMIT_SECONDS)
    assert not thread.is_alive()


@pytest.fixture
def inventory(served: Served, tmp_path: Path) -> str:
    """A pushed database of 3 MB; its volume's id."""
    with closing(budwood.connect("inventory", home=tmp_path / "home", remote=served.url)) as db:
        db.execute("create table t(a integer primary key, b)")
        with db:
            db.executemany("insert into t(b) values(?)", ((f"row {number} " * 20,) for number in range(15_000)))
        db.execute("pragma budwood_push").fetchall()
        vid = _row(db, "budwood_status")["id"]
    served.requests()
    return str(vid)


def _row(db: apsw.Connection, pragma: str) -> dict[str, Any]:
    [(text,)] = db.execute(f"pragma {pragma}").fetchall()
    return msgspec.json.decode(cast("str", text), type=list[dict[str, Any]])[0]


def _count(db: apsw.Connection) -> object:
    return db.execute("select count(*) from t").fetchall()[0][0]


def test_a_known_lsn_costs_one_request_and_a_point_query_few_more(served: Served, inventory: str) -> None:
    with closing(budwood.lite.connect(served.url, inventory, 1)) as db:
        assert served.requests() == 1, "the first page brings its snapshot along"
        assert db.execute("select a from t where a = 9000").fetchall() == [(9000,)]
        assert served.requests() <= 2
        assert db.execute("select a from t where a = 9001").fetchall() == [(9001,)]
        assert served.requests() == 0
        assert _count(db) == 15_000
        assert served.requests() <= 20
    assert served.requests() == 0


def test_a_name_costs_no_request_more(served: Served, inventory: str) -> None:
    with closing(budwood.lite.connect(served.url, "inventory", 1, mode="ro")):
        assert served.requests() == 1


@pytest.mark.parametrize("kind", ["lite", "edge"])
def test_a_connection_that_nobody_closed_is_collected_in_the_loop_s_own_thread(
    served: Served, inventory: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The garbage collector runs wherever it likes."""
    told: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", told.append)

    def leave() -> weakref.ref[apsw.Connection]:
        if kind == "lite":
            db = budwood.lite.connect(served.url, inventory)
        else:
            db = budwood.connect("inventory", home=tmp_path / "home", remote=served.url)
        db.execute("begin immediate; insert into t(b) values('never committed')")
        # A circle, which only the collector takes away.
        db.set_busy_handler(lambda tries: bool(db))
        return weakref.ref(db)

    async def collect() -> None:
        gc.collect()

    gc.disable()
    try:
        left = leave()
        call(collect)
    finally:
        gc.enable()
    assert left() is None
    assert told == []
    with closing(budwood.lite.connect(served.url, inventory)) as db:
        assert _count(db) == 15_000


def test_a_commit_is_one_remote_commit_that_everyone_sees(served: Served, inventory: str, tmp_path: Path) -> None:
    with closing(budwood.lite.connect(served.url, inventory)) as db:
        served.requests()
        db.execute("insert into t(b) values('lite')")
        assert served.node.calls["commit"] == 1
        assert served.node.calls["write_pages"] == 0
        assert _row(db, "budwood_snapshot")["lsn"] == 2
        assert _count(db) == 15_001
    with closing(budwood.connect("inventory", home=tmp_path / "home")) as edge:
        edge.execute("pragma budwood_pull").fetchall()
        assert _count(edge) == 15_001
        assert edge.execute("pragma integrity_check").fetchall() == [("ok",)]


def test_an_embedded_store_serves_it_too(served: Served, inventory: str) -> None:
    with closing(budwood.lite.connect(served.store, "inventory")) as db:
        assert _count(db) == 15_000


def test_a_large_transaction_goes_out_in_segments(served: Served, inventory: str) -> None:
    with closing(budwood.lite.connect(served.url, inventory)) as db:
        db.execute("insert into t(b) select randomblob(4000) from t limit 900")
        assert served.node.calls["write_pages"] >= 1
        assert db.execute("pragma integrity_check").fetchall() == [("ok",)]
    with closing(budwood.lite.connect(served.url, inventory, mode="ro")) as db:
        assert _count(db) == 15_900


def test_a_transaction_larger_than_its_memory_is_refused_and_changes_nothing(served: Served, inventory: str) -> None:
    with closing(budwood.lite.connect(served.url, inventory, memory_bytes=1 << 20)) as db:
        with pytest.raises(Full, match="1 MiB"):
            db.execute("update t set b = b || 'x'")
        assert not db.in_transaction
        assert _row(db, "budwood_status")["held_bytes"] <= 1 << 20
        assert db.execute("select count(*) from t where b like '%x'").fetchall() == [(0,)]
        db.execute("update t set b = 'small' where a = 1")
        assert _row(db, "budwood_snapshot")["lsn"] == 2


def test_the_late_committer_conflicts_and_its_next_transaction_sees_the_winner(served: Served, inventory: str) -> None:
    with (
        closing(budwood.lite.connect(served.url, inventory)) as first,
        closing(budwood.lite.connect(served.url, inventory)) as second,
    ):
        first.execute("begin immediate; insert into t(b) values('first')")
        second.execute("insert into t(b) values('second')")
        with pytest.raises(Conflict) as caught:
            first.execute("commit")
        assert isinstance(caught.value, apsw.BusyError)
        assert not first.in_transaction
        first.execute("insert into t(b) values('first')")
        assert first.execute("select b from t where a > 15000").fetchall() == [("second",), ("first",)]


def test_the_snapshot_pragma_tells_of_the_view_that_the_transaction_reads(served: Served, inventory: str) -> None:
    with (
        closing(budwood.lite.connect(served.url, inventory)) as reader,
        closing(budwood.lite.connect(served.url, inventory)) as other,
    ):
        reader.execute("begin")
        assert _count(reader) == 15_000
        other.execute("insert into t(b) values('more')")
        reader.execute("pragma budwood_pull").fetchall()
        assert _row(reader, "budwood_snapshot")["lsn"] == 1
        assert _count(reader) == 15_000
        reader.execute("commit")
        assert _count(reader) == 15_001
        assert _row(reader, "budwood_snapshot")["lsn"] == 2


def test_increments_from_several_lite_clients_are_all_there(served: Served, inventory: str) -> None:
    with closing(budwood.lite.connect(served.url, inventory)) as db:
        db.execute("create table n(a); insert into n values(0)")
    failures: list[BaseException] = []

    def work() -> None:
        try:
            with closing(budwood.lite.connect(served.url, inventory, timeout=LIMIT_SECONDS)) as db:
                done = 0
                while done < 10:
                    try:
                        db.execute("update n set a = a + 1")
                        done += 1
                    except Conflict:
                        pass
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    with closing(budwood.lite.connect(served.url, inventory)) as db:
        assert db.execute("select a from n").fetchall() == [(30,)]


def test_a_lost_answer_is_settled_by_its_token(served: Served, inventory: str) -> None:
    with closing(budwood.lite.connect(served.url, inventory)) as db:
        served.node.lose_answer_of.add("commit")
        db.execute("insert into t(b) values('once')")
        assert served.node.calls["outcome"] == 1
        assert _row(db, "budwood_snapshot")["lsn"] == 2
        assert _count(db) == 15_001
        db.execute("insert into t(b) values('twice')")
        assert _count(db) == 15_002


def test_no_volume_remembers_who_came_once(served: Served, inventory: str) -> None:
    """As functions do, that are called a million times. Who keeps a home is remembered."""
    for at in range(5):
        with closing(budwood.lite.connect(served.url, inventory)) as db:
            db.execute("insert into t(b) values(?)", (str(at),))
    with closing(open_remote(served.url)) as remote:
        commits = remote.ask(PULL_COMMITS, RangeRequest(VolumeId.parse(inventory).raw, after=1)).commits
    assert len({commit.client for commit in commits}) == 5
    assert all(is_ephemeral(commit.client) for commit in commits)


def test_a_view_moves_when_it_is_asked_to(served: Served, inventory: str) -> None:
    with (
        closing(budwood.lite.connect(served.url, inventory, refresh=None)) as still,
        closing(budwood.lite.connect(served.url, inventory, refresh=0)) as eager,
        closing(budwood.lite.connect(served.url, inventory, 1, mode="ro")) as pinned,
        closing(budwood.lite.connect(served.url, inventory)) as writer,
    ):
        for db in (still, eager, pinned):
            assert _count(db) == 15_000
        writer.execute("delete from t where a % 2")
        assert [_count(db) for db in (still, eager, pinned)] == [15_000, 7_500, 15_000]
        served.requests()
        still.execute("pragma budwood_pull").fetchall()
        assert _count(still) == 7_500
        with pytest.raises(budwood.BadInput, match="pinned"):
            pinned.execute("pragma budwood_pull")
        with pytest.raises(apsw.ReadOnlyError):
            pinned.execute("delete from t")


def test_what_came_along_unread_is_forgotten_when_it_changes(served: Served, inventory: str) -> None:
    with (
        closing(budwood.lite.connect(served.url, inventory, refresh=None)) as reader,
        closing(budwood.lite.connect(served.url, inventory)) as writer,
    ):
        assert reader.execute("select a from t where a = 1").fetchall() == [(1,)]
        writer.execute("update t set b = 'new' where a in (2, 400, 9000)")
        reader.execute("pragma budwood_pull").fetchall()
        assert reader.execute("select a from t where b = 'new'").fetchall() == [(2,), (400,), (9000,)]


def test_a_known_past_lsn_is_read_as_it_was_until_it_is_written(served: Served, inventory: str) -> None:
    with closing(budwood.lite.connect(served.url, inventory)) as writer:
        writer.execute("insert into t(b) values('new')")
        with closing(budwood.lite.connect(served.url, inventory, 1)) as past:
            assert _count(past) == 15_000
            past.execute("insert into t(b) values('on the newest')")
            assert _count(past) == 15_002


def test_the_past_is_found_by_a_time_or_a_label(served: Served, inventory: str) -> None:
    with closing(open_remote(served.url)) as remote:
        vid = VolumeId.parse(inventory)
        first = remote.ask(PIN, PinRequest(vid.raw, lsn=1, seconds=0, kind="named", label="v1"))
        then = remote.ask(SNAPSHOT, SnapshotRequest(vid.raw, lsn=first.lsn))
    with closing(budwood.lite.connect(served.url, inventory)) as writer:
        writer.execute("insert into t(b) values('new')")
        for at in ("@v1", then.time, datetime.fromtimestamp(then.time / 1000).astimezone().isoformat()):
            with closing(budwood.lite.connect(served.url, inventory, at=at, mode="ro")) as past:
                assert _count(past) == 15_000
                with pytest.raises(budwood.BadInput, match="pinned to LSN 1"):
                    past.pragma("budwood_pull")
        writer.execute(f"attach 'file:{inventory}?at=@v1&mode=ro' as past")
        assert next(writer.execute("select count(*) from past.t")) == (15_000,)
        assert _count(writer) == 15_001
    for at, said in (
        ("@v2", "no LSN of volume .* is called 'v2'"),
        ("@", "stands before a label"),
        ("soon", "is no time"),
        (1, "did not exist"),
    ):
        with pytest.raises(budwood.BudwoodError, match=said):
            budwood.lite.connect(served.url, inventory, at=at)
    with pytest.raises(budwood.BadInput, match="not both"):
        budwood.lite.connect(served.url, inventory, 1, at="@v1")
    with closing(open_remote(served.url)) as remote:
        empty = VolumeId.new()
        remote.ask(CREATE, CreateRequest(vid=empty.raw, page_size=4096))
    with pytest.raises(budwood.BadInput, match="had no commits yet"):
        budwood.lite.connect(served.url, str(empty), at=datetime.now())


def test_what_cannot_be_opened_says_so(served: Served, inventory: str) -> None:
    with pytest.raises(NotFound, match="no volume 'nowhere'"):
        budwood.lite.connect(served.url, "nowhere")
    with pytest.raises(NotFound):
        budwood.lite.connect(served.url, str(VolumeId.new()))
    with pytest.raises(NotFound):
        budwood.lite.connect(served.url, inventory, 99)
    with closing(budwood.lite.connect(served.url, inventory)) as db, pytest.raises(apsw.Error, match="0 is not an LSN"):
        db.execute(f"attach 'file:{inventory}?lsn=0&mode=ro' as past")
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"volume": None}, "None can't name a volume: it isn't text"),
        ({"lsn": "1"}, "'1' is not an LSN"),
        ({"lsn": -1}, "-1 is not an LSN"),
        ({"memory_bytes": -1}, "-1 bytes of memory"),
    ]
    for options, said in wrong:
        arguments: dict[str, Any] = {"volume": inventory, **options}
        with pytest.raises(budwood.BadInput, match=said):
            budwood.lite.connect(served.url, **arguments)
    with pytest.raises(budwood.BadInput, match="never creates"):
        budwood.lite.connect(served.url, inventory, mode="rwc")
    with pytest.raises(Unavailable):
        budwood.lite.connect("http://127.0.0.1:9", inventory)


def test_memory_stays_within_its_bound_during_a_scan(served: Served, inventory: str) -> None:
    with closing(budwood.lite.connect(served.url, inventory, memory_bytes=512 * 1024)) as db:
        assert db.execute("select count(*), sum(length(b)) from t").fetchall()[0][0] == 15_000
        assert _row(db, "budwood_status")["held_bytes"] <= 512 * 1024


def test_a_shrunken_and_regrown_volume_reads_zeros_where_it_was_cut(served: Served, inventory: str) -> None:
    """The floor travels with the commit: else what was cut off would come back. (B9)"""
    with closing(open_remote(served.url)) as remote:
        pages = LitePages(
            Source(remote, VolumeId.parse(inventory), lsn=None, memory_bytes=1 << 22),
            "inventory",
            read_only=False,
            fixed=False,
            refresh_seconds=None,
        )
        before = pages.snapshot()
        last = before.length // before.page_size
        cut = last - 10
        writer = pages.writer(before)
        assert isinstance(writer, LiteWriter)
        writer.truncate(cut * before.page_size)
        writer.write(last, b"z" * before.page_size)
        assert writer.read(last - 1) == bytes(before.page_size)
        after = writer.commit(Durability.DURABLE)
        assert after is not None
        fresh = Source(remote, VolumeId.parse(inventory), lsn=None, memory_bytes=1 << 22)
        for page in range(cut, last + 1):
            expected = before.read(page) if page == cut else b"z" * before.page_size if page == last else bytes(4096)
            assert after.read(page) == expected
            assert fresh.page(fresh.view, page) == expected


def test_it_loads_no_local_store_no_object_store_and_no_web_framework(served: Served, inventory: str) -> None:
    code = (
        "import sys, budwood.lite\n"
        "db = budwood.lite.connect(sys.argv[1], sys.argv[2], 1)\n"
        "assert db.execute('select a from t where a = 77').fetchall() == [(77,)]\n"
        "db.close()\n"
        "unwanted = ('lmdb', 'obstore', 'uvloop', 'granian', 'budwood.sync', 'budwood.server')\n"
        "print([name for name in sys.modules if name.startswith(unwanted)])\n"
    )
    command = [sys.executable, "-P", "-c", code, served.url, inventory]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr
