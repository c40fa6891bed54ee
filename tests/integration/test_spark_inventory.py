"""Metadata of volumes as rows, without Spark: against what the edge, the log and SQLite's own dbstat say."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

import budwood
from budwood.remote.portal import BlockingRemote, open_remote
from budwood.spark_export.source import catalog, inventory
from budwood.spark_export.source.inventory import SCHEMAS, plan_metadata, run_metadata
from budwood.spark_export.source.lease import take_lease
from budwood.spark_export.source.page_reader import open_volume
from budwood.spark_export.source.volume_ref import VolumeRef, find_volume_ref
from budwood.sync.edge import Edge
from budwood.volume.calls import (
    ADVANCE,
    CREATE,
    PIN,
    PULL_CHANGES,
    PULL_COMMITS,
    CreateRequest,
    PinRequest,
    RangeRequest,
    SinceRequest,
)
from budwood.volume.errors import BadInput
from budwood.volume.ids import ClientId, PinId, VolumeId
from budwood.volume.pageset import decode_pages, page_count
from budwood.volume.protocols import Durability

Row = dict[str, Any]

SHOP = """
    CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT NOT NULL, price DECIMAL(10, 2));
    CREATE INDEX by_item ON orders (item);
    INSERT INTO orders WITH RECURSIVE r(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM r WHERE i < 1500)
        SELECT i, printf('item %d', i % 97), i / 4.0 FROM r;
    CREATE TABLE scans (image BLOB);
    INSERT INTO scans VALUES (randomblob(30000)), (randomblob(9000)), (x'00');
    CREATE TABLE stock (item TEXT PRIMARY KEY, n INT, note TEXT) WITHOUT ROWID;
    INSERT INTO stock WITH RECURSIVE r(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM r WHERE i < 120)
        SELECT 'item ' || i, i, hex(randomblob(i * 7 % 900)) FROM r;
    CREATE TABLE counted (id INTEGER PRIMARY KEY AUTOINCREMENT);
    CREATE TABLE gone (x); INSERT INTO gone VALUES (zeroblob(100000)); DROP TABLE gone;
    CREATE VIEW dear AS SELECT id, price FROM orders WHERE price > 100;
"""


@pytest.fixture
def edge(tmp_path: Path) -> Iterator[Edge]:
    with budwood.open(home=tmp_path / "home", remote=(tmp_path / "store").as_uri()) as edge:
        yield edge


@pytest.fixture
def shop(edge: Edge) -> Edge:
    """Volume `shop` at LSN 4."""
    write(edge, SHOP)
    for price in range(3):
        write(edge, f"UPDATE orders SET price = {price} WHERE id = 700")
    return edge


@pytest.fixture
def remote(edge: Edge) -> Iterator[BlockingRemote]:
    with closing(open_remote(edge.remote)) as remote:
        yield remote


def write(edge: Edge, sql: str, name: str = "shop") -> None:
    with closing(budwood.connect(name, home=edge.home, remote=edge.remote)) as db:
        db.execute(sql)
    edge.volume(name).push()


def put(edge: Edge, name: str, page_size: int, pages: dict[int, bytes], length: int | None = None) -> None:
    """A commit of bare pages."""
    volume = edge.volume(name) if name in {row["name"] for row in edge.ls()} else edge.create(name, page_size=page_size)
    writer = volume.writer(page_size=page_size)
    for index, page in pages.items():
        writer.write(index, page)
    if length is not None:
        writer.truncate(length)
    taken = writer.commit(Durability.ORDERED)
    assert taken is not None
    taken.close()
    volume.push()


def put_image(edge: Edge, name: str, page_size: int, path: Path) -> None:
    image = path.read_bytes()
    pages = [image[at : at + page_size].ljust(page_size, b"\0") for at in range(0, len(image), page_size)]
    put(edge, name, page_size, dict(enumerate(pages, 1)), len(image))


def place_of(edge: Edge, name: str = "shop") -> VolumeRef:
    return find_volume_ref(name, remote=edge.remote)


def rows(place: VolumeRef, kind: str, *, lsn: int | None = None, **how: Any) -> list[Row]:
    """All rows, each task read as an executor would."""
    view = open_volume(place).snapshot(lsn=lsn)
    found: list[Row] = []
    for number, task in enumerate(plan_metadata(place, view, kind, **how)):
        assert task.number == number
        for batch in run_metadata(pickle.loads(pickle.dumps(task))):
            assert batch.schema.equals(SCHEMAS[kind])
            batch.validate(full=True)
            found += batch.to_pylist()
    return found


def read_all(edge: Edge, name: str, lsn: int) -> dict[int, bytes]:
    """As the edge reads it."""
    snapshot = edge.volume(name).snapshot(lsn=lsn)
    try:
        count = page_count(snapshot.length, snapshot.page_size)
        return {index: bytes(snapshot.read(index)) for index in range(1, count + 1)}
    finally:
        snapshot.close()


def dbstat(edge: Edge, name: str, tmp_path: Path) -> dict[str, Counter[str]]:
    """Each tree's pages by their sort, as SQLite counts them; the image's pages in all under ""."""
    image = tmp_path / "image.db"
    edge.volume(name).export(image)
    with closing(apsw.Connection(str(image))) as db:
        found: dict[str, Counter[str]] = {}
        for tree, sort in db.execute("SELECT name, pagetype FROM dbstat"):
            found.setdefault(str(tree), Counter())[str(sort)] += 1
        pages, free = (int(str(db.pragma(name))) for name in ("page_count", "freelist_count"))
        found[""] = Counter(all=pages, free=free)
    return found


def test_the_history_has_a_row_for_each_commit_as_the_log_tells_them(shop: Edge, remote: BlockingRemote) -> None:
    place = place_of(shop)
    found = rows(place, "history")
    told = remote.ask(PULL_COMMITS, RangeRequest(place.vid.raw)).commits
    assert [row["lsn"] for row in found] == [1, 2, 3, 4]
    for row, commit in zip(found, told, strict=True):
        assert (row["base"], row["length"], row["page_count"] * 4096) == (commit.lsn - 1, commit.length, commit.length)
        assert row["time"].timestamp() * 1000 == pytest.approx(commit.time, abs=0.01)
        assert row["pages_written"] == len(decode_pages("", commit.pages))
        assert row["bytes_written"] == row["pages_written"] * 4096
        assert row["client"] == str(ClientId(commit.client))
    assert found[0]["pages_written"] == found[0]["page_count"]
    assert 0 < found[3]["pages_written"] < 5
    assert [row["lsn"] for row in rows(place, "history", lsn=2)] == [1, 2]


def test_a_long_history_is_read_in_parts(shop: Edge, monkeypatch: pytest.MonkeyPatch) -> None:
    place = place_of(shop)
    view = open_volume(place).snapshot()
    assert len(plan_metadata(place, view, "history")) == 1
    assert [(task.first, task.last) for task in plan_metadata(place, view, "history", count=3)] == [
        (1, 1),
        (2, 2),
        (3, 4),
    ]
    monkeypatch.setattr(inventory, "TASK_COMMITS", 2)
    assert len(plan_metadata(place, view, "history")) == 2
    assert rows(place, "history") == rows(place, "history", count=4)


def test_what_is_forgotten_before_or_during_the_job_has_no_history(shop: Edge) -> None:
    place = place_of(shop)
    view = open_volume(place).snapshot()
    tasks = plan_metadata(place, view, "history", count=2)
    open_volume(place).remote.ask(ADVANCE, SinceRequest(place.vid.raw, since=3))
    assert [row["lsn"] for task in tasks for batch in run_metadata(task) for row in batch.to_pylist()] == [3, 4]
    assert [row["lsn"] for row in rows(place, "history")] == [3, 4]


def test_snapshots_say_who_holds_them_and_that_of_this_job_is_nobody(shop: Edge, remote: BlockingRemote) -> None:
    place = place_of(shop)
    named = remote.ask(
        PIN, PinRequest(place.vid.raw, lsn=2, seconds=0, kind="named", owner="the audit", pin=PinId.new().raw)
    )
    lease = remote.ask(PIN, PinRequest(place.vid.raw, lsn=4, seconds=600, owner="a report", pin=PinId.new().raw))
    view = open_volume(place).snapshot()
    own = take_lease(place, view.lsn)
    tasks = plan_metadata(place, view, "snapshots", lease=own)
    found = [row for task in tasks for batch in run_metadata(task) for row in batch.to_pylist()]
    own.release()
    assert [(row["lsn"], row["held"], [pin["owner"] for pin in row["pins"]]) for row in found] == [
        (1, False, []),
        (2, True, ["the audit"]),
        (3, False, []),
        (4, True, ["a report"]),
    ]
    (two,), (four,) = found[1]["pins"], found[3]["pins"]
    assert (two["id"], two["kind"], two["expires"]) == (str(named.pin_id), "named", None)
    assert four["expires"].timestamp() * 1000 == pytest.approx(lease.expiry, abs=0.01)
    history = rows(place, "history")
    same = ("lsn", "time", "length", "page_count")
    assert [[row[name] for name in same] for row in found] == [[row[name] for name in same] for row in history]


def test_below_since_only_what_is_held_is_a_snapshot(shop: Edge, remote: BlockingRemote) -> None:
    """By a pin, or by a fork; and of a fork, what its parent still has or holds."""
    place = place_of(shop)
    remote.ask(PIN, PinRequest(place.vid.raw, lsn=1, seconds=600, owner="a pin", pin=PinId.new().raw))
    shop.fork("shop", "branch", lsn=2).push()
    branch = place_of(shop, "branch")
    write(shop, "DELETE FROM scans", "branch")
    assert [row["lsn"] for row in rows(branch, "snapshots")] == [1, 2, 3]
    remote.ask(ADVANCE, SinceRequest(place.vid.raw, since=4))
    found = rows(place, "snapshots", count=2)
    assert [(row["lsn"], row["held"]) for row in found] == [(1, True), (2, True), (4, False)]
    # The edge leases what it reads lazily.
    (fork,) = (pin for pin in found[1]["pins"] if pin["kind"] != "sync")
    assert (fork["kind"], fork["owner"], fork["expires"]) == ("fork", str(branch.vid), None)
    theirs = rows(branch, "snapshots")
    assert [(row["lsn"], row["held"]) for row in theirs] == [(1, True), (2, True), (3, False)]
    assert theirs[0]["pins"][0]["owner"] == "a pin"
    assert [row["lsn"] for row in rows(branch, "history")] == [2, 3]


def test_tables_are_told_with_their_columns_engine_and_size(shop: Edge, tmp_path: Path) -> None:
    place = place_of(shop)
    found = {row["name"]: row for row in rows(place, "tables")}
    assert list(found) == ["orders", "scans", "stock", "counted", "dear"]
    stat = dbstat(shop, "shop", tmp_path)
    for name in ("orders", "scans", "stock", "counted"):
        row, pages = found[name], stat[name]
        told = {"internal": row["interior_pages"], "leaf": row["leaf_pages"], "overflow": row["overflow_pages"]}
        assert {sort: count for sort, count in told.items() if count} == dict(pages)
        assert row["bytes"] == sum(pages.values()) * 4096
        assert row["exact"]
    assert found["orders"]["index_pages"] == sum(stat["by_item"].values())
    assert found["scans"]["overflow_pages"] > 8
    assert [found[name]["rows"] for name in ("orders", "scans", "stock", "counted")] == [1500, 3, 120, 0]
    assert {name: (row["kind"], row["engine"], row["reason"]) for name, row in found.items()} == {
        "orders": ("table", "pages", "a rowid table of UTF-8 text"),
        "scans": ("table", "pages", "a rowid table of UTF-8 text"),
        "stock": ("table", "general", "it is WITHOUT ROWID"),
        "counted": ("table", "pages", "a rowid table of UTF-8 text"),
        "dear": ("view", "general", "it is a view"),
    }
    assert [(c["name"], c["declared"], c["type"], c["not_null"], c["key"]) for c in found["orders"]["columns"]] == [
        ("id", "INTEGER", "long", False, 1),
        ("item", "TEXT", "string", True, None),
        ("price", "DECIMAL(10, 2)", "double", False, None),
    ]
    assert [column["type"] for column in found["scans"]["columns"]] == ["binary"]
    # Which type the price has in a view, only the view's answer could tell.
    assert [column["type"] for column in found["dear"]["columns"]] == ["long", None]
    assert found["dear"]["rows"] is found["dear"]["root"] is found["dear"]["bytes"] is None
    assert found["dear"]["sql"].startswith("CREATE VIEW dear")
    assert (found["stock"]["without_rowid"], found["orders"]["without_rowid"]) == (True, False)
    assert rows(place, "tables", count=3) == list(found.values())


def test_what_many_leaves_hold_is_projected_from_a_few_and_says_so(
    shop: Edge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(shop, "INSERT INTO orders SELECT id + 2000, item, price FROM orders WHERE id % 3 = 0")
    monkeypatch.setattr(catalog, "SAMPLE_LEAVES", 4)
    found = {row["name"]: row for row in rows(place_of(shop), "tables")}
    assert [found[name]["exact"] for name in ("orders", "scans", "stock", "counted")] == [False, True, False, True]
    assert found["orders"]["rows"] == pytest.approx(2000, rel=0.15)
    assert found["stock"]["rows"] == pytest.approx(120, rel=0.5)
    stat = dbstat(shop, "shop", tmp_path)
    assert found["orders"]["leaf_pages"] == stat["orders"]["leaf"], "pages of a tree are counted, not projected"


def test_a_table_that_nobody_can_read_is_told_with_the_reason(edge: Edge, tmp_path: Path) -> None:
    write(edge, "CREATE VIRTUAL TABLE words USING fts5(text); INSERT INTO words VALUES ('a word'); CREATE TABLE t(a)")
    write(edge, "CREATE VIEW lost AS SELECT * FROM t; DROP TABLE t")
    found = {row["name"]: row for row in rows(place_of(edge), "tables")}
    assert (found["words"]["kind"], found["words"]["engine"], found["words"]["rows"]) == ("virtual", "general", None)
    assert [column["name"] for column in found["words"]["columns"]] == ["text"]
    assert found["words_content"]["kind"] == "shadow"
    assert found["words_content"]["rows"] == 1
    assert (found["lost"]["kind"], found["lost"]["engine"], found["lost"]["columns"]) == ("view", None, None)
    assert "main.t" in found["lost"]["reason"]


def test_the_columns_of_a_virtual_table_are_not_asked_for_where_that_might_read_a_large_snapshot(
    edge: Edge, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(edge, "CREATE VIRTUAL TABLE words USING fts5(text)")
    monkeypatch.setattr(catalog, "LARGE_BYTES", 4096)
    (words, *shadows) = rows(place_of(edge), "tables")
    assert (words["name"], words["kind"], words["columns"]) == ("words", "virtual", None)
    assert "large" in words["reason"]
    assert all(row["columns"] for row in shadows)


def test_files_tell_of_every_page_whose_it_is_and_where_it_lies(
    shop: Edge, remote: BlockingRemote, tmp_path: Path
) -> None:
    place = place_of(shop)
    found = rows(place, "files")
    stat = dbstat(shop, "shop", tmp_path)
    assert sum(row["pages"] for row in found) == stat[""]["all"]
    pages: Counter[tuple[str | None, str | None, str]] = Counter()
    for row in found:
        pages[row["table"], row["index"], row["part"]] += row["pages"]
    for name in ("orders", "scans", "stock", "counted", "sqlite_sequence"):
        assert pages[name, None, "table"] == stat[name]["internal"] + stat[name]["leaf"]
    assert pages["orders", "by_item", "index"] == stat["by_item"]["internal"] + stat["by_item"]["leaf"]
    assert pages["sqlite_schema", None, "schema"] == stat["sqlite_schema"].total()
    assert pages[None, None, "overflow"] == sum(tree["overflow"] for tree in stat.values()) > 8
    assert pages[None, None, "free"] == stat[""]["free"] > 0
    for row in found:
        assert row["volume"] == str(place.vid)
        assert (tmp_path / "store" / row["object"]).stat().st_size == row["object_bytes"]
        assert 0 < row["stored_bytes"] < row["object_bytes"]
        assert 1 <= row["frames"] <= row["pages"]
        assert 1 <= row["first_lsn"] <= row["last_lsn"] <= 4
    changed = decode_pages("", remote.ask(PULL_CHANGES, RangeRequest(place.vid.raw, after=3)).pages)
    assert sum(row["pages"] for row in found if row["last_lsn"] == 4) == len(changed)
    assert len({row["object"] for row in found if row["table"] == "orders"}) >= 2
    assert {row["last_lsn"] for row in rows(place, "files", lsn=1)} == {1}


@pytest.mark.parametrize(("page_size", "volume_page_size"), [(1024, 4096), (8192, 1024), (512, 512)])
@pytest.mark.parametrize("vacuum", ["NONE", "FULL"])
def test_files_hold_whatever_the_page_sizes_are(
    edge: Edge, tmp_path: Path, page_size: int, volume_page_size: int, vacuum: str
) -> None:
    image = tmp_path / "made.db"
    with closing(apsw.Connection(str(image))) as db:
        db.execute(f"PRAGMA page_size = {page_size}; PRAGMA auto_vacuum = {vacuum};{SHOP}")
    put_image(edge, "odd", volume_page_size, image)
    found = rows(place_of(edge, "odd"), "files")
    parts: Counter[str] = Counter()
    trees: Counter[str] = Counter()
    for row in found:
        parts[row["part"]] += row["pages"]
        trees[row["index"] or row["table"] or ""] += row["pages"]
    expected: dict[str, set[int]] = {}
    with closing(apsw.Connection(str(image))) as db:
        for tree, number, sort in db.execute("SELECT name, pageno, pagetype FROM dbstat"):
            name = str(sort) if sort == "overflow" else str(tree)
            first = (int(str(number)) - 1) * page_size
            expected.setdefault(name, set()).update(
                at // volume_page_size for at in range(first, first + page_size, 512)
            )
    overflow = expected.pop("overflow")
    assert {name: trees[name] for name in expected} == {name: len(pages) for name, pages in expected.items()}
    count = page_count(image.stat().st_size, volume_page_size)
    if page_size >= volume_page_size:
        assert sum(parts.values()) == count
        assert parts["overflow"] == len(overflow)
    else:
        assert sum(parts.values()) >= count, "a page of the volume holds several of the database, of several tables"
    assert ("pointer map" in parts) == (vacuum == "FULL")


def test_files_and_pages_of_a_volume_that_holds_no_database(edge: Edge, tmp_path: Path) -> None:
    """Pages 3 to 5 were never written, 6 is cut off and back, 7 is in part beyond the end."""
    put(edge, "raw", 512, {1: b"a" * 512, 2: b"b" * 512, 6: b"f" * 512})
    put(edge, "raw", 512, {2: b"B" * 512}, 5 * 512)
    put(edge, "raw", 512, {7: b"g" * 512}, 6 * 512 + 100)
    place = place_of(edge, "raw")
    assert {(row["table"], row["part"], row["object"] is None, row["pages"]) for row in rows(place, "files")} == {
        (None, "pages", True, 4),
        (None, "pages", False, 1),
    }
    assert len(rows(place, "files")) == 4
    found = rows(place, "pages")
    assert [(row["index"], row["lsn"]) for row in found] == [
        (1, 1),
        (2, 2),
        (3, None),
        (4, None),
        (5, None),
        (6, None),
        (7, 3),
    ]
    for lsn in (1, 2, 3):
        assert {row["index"]: row["bytes"] for row in rows(place, "pages", lsn=lsn)} == read_all(edge, "raw", lsn)
    with pytest.raises(BadInput, match="no SQLite database"):
        rows(place, "tables")
    assert len(rows(place, "history")) == len(rows(place, "snapshots")) == 3


def test_pages_are_those_that_an_edge_reads_at_every_lsn_however_they_are_parted(
    shop: Edge, remote: BlockingRemote, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inventory, "BATCH_BYTES", 5 * 4096)
    place = place_of(shop)
    newest: dict[int, int] = {}
    found: list[Row] = []
    for commit in remote.ask(PULL_COMMITS, RangeRequest(place.vid.raw)).commits:
        newest |= dict.fromkeys(decode_pages("", commit.pages), commit.lsn)
        found = rows(place, "pages", lsn=commit.lsn, split_bytes=100_000)
        assert {row["index"]: row["bytes"] for row in found} == read_all(shop, "shop", commit.lsn)
        assert {row["index"]: row["lsn"] for row in found} == newest
    assert len(plan_metadata(place, open_volume(place).snapshot(), "pages", split_bytes=100_000)) > 3
    assert rows(place, "pages", count=7) == found
    assert rows(place, "pages", pages=(5, 9)) == found[4:9]
    assert rows(place, "pages", pages=(len(found), len(found) + 100)) == found[-1:]
    assert rows(place, "pages", pages=(len(found) + 1, len(found) + 100)) == []


def test_pages_are_fetched_in_few_requests(shop: Edge) -> None:
    place = VolumeRef(shop.remote, place_of(shop).vid, "shop", cache_bytes=1)
    reached = open_volume(place)
    before = reached.requests
    found = rows(place, "pages")
    assert len(found) > 80
    assert reached.requests - before <= 4


def test_an_empty_volume_has_nothing_to_tell(edge: Edge, remote: BlockingRemote) -> None:
    vid = VolumeId.new()
    remote.ask(CREATE, CreateRequest(vid.raw, page_size=4096))
    place = place_of(edge, str(vid))
    assert [rows(place, kind) for kind in ("history", "snapshots", "files", "pages")] == [[], [], [], []]
    with pytest.raises(BadInput, match="empty"):
        rows(place, "tables")
    with pytest.raises(BadInput, match="take one of history, tables, files, snapshots, pages"):
        rows(place, "lsns")
