"""Tables of volumes into Parquet with Spark: what is written, what a rerun does, what an incremental export leaves
alone, and what it says of what it can't do. Delta's and Iceberg's own ways are in test_export_lakes.py; here each is
run once as a whole. The command is run in this process, on the tests' session.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

import budwood
from budwood.remote.portal import open_remote
from budwood.spark_export.export import Action, Incomplete, Result, export, quiet_session
from budwood.spark_export.export.files import join
from budwood.spark_export.export.lock import locks
from budwood.spark_export.export.parquet import ParquetTarget
from budwood.spark_export.export.run import FORMATS, Format
from budwood.spark_export.export.table_selection import ChosenVolume, choose
from budwood.sync.edge import Edge
from budwood.volume.calls import ADVANCE, PIN, PINS, PinRequest, SinceRequest, VolumeRequest
from budwood.volume.errors import AlreadyExists, BadInput, Busy, Corrupt, Forgotten, NotFound, Unsupported
from budwood.volume.pins import PinState
from budwood.volume.protocols import Durability

from .cli import Command

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDERS = 3000
SHOP = f"""
CREATE TABLE orders (id INTEGER PRIMARY KEY, what TEXT, price REAL, raw BLOB);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {ORDERS})
    INSERT INTO orders SELECT i, 'order ' || i, i * 0.5, CASE WHEN i % 3 THEN x'00ff' END FROM n;
CREATE TABLE notes (note TEXT); INSERT INTO notes VALUES ('one'), (NULL), ('');
CREATE TABLE places (name TEXT PRIMARY KEY, n INTEGER) WITHOUT ROWID; INSERT INTO places VALUES ('a', 1), ('b', 2);
CREATE TABLE empty (a INTEGER, b TEXT);
CREATE VIEW cheap AS SELECT id, price FROM orders WHERE price < 10;
"""
TABLES = {"orders": ORDERS, "notes": 3, "places": 2, "empty": 0}


@pytest.fixture
def edge(tmp_path: Path) -> Iterator[Edge]:
    with budwood.open(home=tmp_path / "home", remote=(tmp_path / "store").as_uri()) as edge:
        write(edge, SHOP)
        yield edge


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake"


def write(edge: Edge, sql: str, name: str = "shop") -> int:
    """One commit, pushed; its LSN."""
    with closing(budwood.connect(name, home=edge.home, remote=edge.remote)) as db:
        db.execute(sql)
    return int(edge.volume(name).push())


def rows(edge: Edge, sql: str, name: str = "shop") -> list[tuple[Any, ...]]:
    with closing(budwood.connect(name, home=edge.home, remote=edge.remote)) as db:
        return sorted(db.execute(sql).fetchall(), key=repr)


def read(folder: Path) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in pads.dataset(folder).to_table().to_pylist()), key=repr)


def by_table(results: list[Result]) -> dict[str, Result]:
    return {result.table: result for result in results}


def files(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_ino for path in folder.glob("*.parquet")}


def test_every_table_is_there_once_as_spark_and_arrow_read_it(spark: SparkSession, edge: Edge, lake: Path) -> None:
    results = by_table(export("shop", to=lake, remote=edge.remote, session=spark, split_bytes=40_000, verify=True))
    assert {name: result.rows for name, result in results.items()} == TABLES
    assert {result.action for result in results.values()} == {Action.WRITTEN}
    assert all(result.verified and result.lsn == 1 and result.seconds > 0 for result in results.values())
    orders = lake / "shop" / "orders"
    assert len(files(orders)) > 1, "it is cut into several files"
    assert read(orders) == rows(edge, "SELECT * FROM orders")
    found = [(row["id"], row["what"], row["price"], row["raw"]) for row in spark.read.parquet(str(orders)).collect()]
    assert sorted(((*most, raw and bytes(raw)) for *most, raw in found), key=repr) == read(orders)
    assert read(lake / "shop" / "places") == rows(edge, "SELECT * FROM places")


def test_a_table_without_a_key_of_its_own_gets_its_rowid(spark: SparkSession, edge: Edge, lake: Path) -> None:
    write(edge, "CREATE TABLE taken (_rowid TEXT); INSERT INTO taken VALUES ('x')")
    export("shop", to=lake, tables=["notes", "empty", "taken"], remote=edge.remote, session=spark)
    assert read(lake / "shop" / "notes") == rows(edge, "SELECT rowid, note FROM notes")
    assert pads.dataset(lake / "shop" / "notes").schema.names == ["_rowid", "note"]
    assert pads.dataset(lake / "shop" / "taken").schema.names == ["_rowid_2", "_rowid"]
    assert spark.read.parquet(str(lake / "shop" / "empty")).columns == ["_rowid", "a", "b"]


def test_a_rerun_does_nothing_and_starts_no_spark(spark: SparkSession, edge: Edge, lake: Path) -> None:
    export("shop", to=lake, remote=edge.remote, session=spark)
    before = {path: path.stat().st_mtime_ns for path in lake.rglob("*") if path.is_file()}

    def never() -> SparkSession:
        raise AssertionError("Spark was asked for")

    results = export("shop", to=lake, remote=edge.remote, session=never)
    assert {result.action for result in results} == {Action.UNCHANGED}
    assert {result.table: result.rows for result in results} == TABLES
    assert {path: path.stat().st_mtime_ns for path in lake.rglob("*") if path.is_file()} == before


def test_any_lsn_time_or_label_can_be_exported(spark: SparkSession, edge: Edge, lake: Path) -> None:
    first = edge.volume("shop").moment(1)
    with closing(open_remote(edge.remote)) as remote:
        remote.ask(PIN, PinRequest(first.vid, lsn=1, seconds=0, kind="named", label="v1"))
    write(edge, "INSERT INTO notes VALUES ('two')")
    for number, (lsn, at_ms, label) in enumerate(((1, None, ""), (None, first.time, ""), (None, None, "v1"))):
        (result,) = export(
            "shop",
            to=lake / str(number),
            tables=["notes"],
            lsn=lsn,
            at_ms=at_ms,
            label=label,
            remote=edge.remote,
            session=spark,
        )
        assert (result.lsn, result.rows) == (1, 3)
    with pytest.raises(BadInput, match="no two of them"):
        export("shop", to=lake, lsn=1, label="v1", remote=edge.remote, session=spark)
    with pytest.raises(NotFound, match="is called 'v2'"):
        export("shop", to=lake, label="v2", remote=edge.remote, session=spark)


def test_a_name_that_looks_like_a_pattern_is_a_volume_s(edge: Edge) -> None:
    edge.fork("shop", "shop[1]").push()
    for name, wanted in (("shop[1]", ["shop[1]"]), ("sho[p]", ["shop"]), ("shop*", ["shop", "shop[1]"])):
        found = [each for each in choose([name], remote=edge.remote, token=None) if isinstance(each, ChosenVolume)]
        assert sorted(each.ref.name for each in found) == wanted


def test_an_older_lsn_needs_a_word(spark: SparkSession, edge: Edge, lake: Path) -> None:
    write(edge, "INSERT INTO notes VALUES ('two')")
    export("shop", to=lake, tables=["notes"], remote=edge.remote, session=spark)
    with pytest.raises(AlreadyExists, match="LSN 2, which is newer than 1"):
        export("shop", to=lake, tables=["notes"], lsn=1, remote=edge.remote, session=spark)
    (result,) = export("shop", to=lake, tables=["notes"], lsn=1, replace=True, remote=edge.remote, session=spark)
    assert (result.action, result.lsn, result.rows) == (Action.WRITTEN, 1, 3)
    assert len(read(lake / "shop" / "notes")) == 3


def test_a_table_that_does_not_say_any_more_what_it_is_needs_a_word(
    spark: SparkSession, edge: Edge, lake: Path
) -> None:
    run = partial(export, "shop", to=lake, tables=["notes"], format="delta", remote=edge.remote, session=spark)
    run()
    place = lake / "shop" / "notes"
    DeltaTable(place).alter.set_table_properties({"delta.logRetentionDuration": "interval 9 days"})
    DeltaTable(place).create_checkpoint()
    (place / "_delta_log" / f"{0:020}.json").unlink()
    with pytest.raises(BadInput, match="replace the table"):
        run()
    (result,) = run(replace=True, verify=True)
    assert (result.action, result.verified) == (Action.WRITTEN, True)
    assert run()[0].action == Action.UNCHANGED


def test_another_volume_under_the_same_name_needs_a_word(spark: SparkSession, edge: Edge, lake: Path) -> None:
    export("shop", to=lake, tables=["notes"], remote=edge.remote, session=spark)
    edge.mv("shop", "old shop")
    write(edge, "CREATE TABLE notes (note TEXT); INSERT INTO notes VALUES ('another')")
    with pytest.raises(AlreadyExists, match="another volume"):
        export("shop", to=lake, tables=["notes"], remote=edge.remote, session=spark)
    (result,) = export(
        "shop", to=lake, tables=["notes"], replace=True, incremental=True, remote=edge.remote, session=spark
    )
    assert (result.action, result.reason) == (Action.WRITTEN, "another volume stood there")
    assert read(lake / "shop" / "notes") == [(1, "another")]


def test_incremental_writes_only_files_that_hold_a_changed_row(spark: SparkSession, edge: Edge, lake: Path) -> None:
    orders = lake / "shop" / "orders"

    def run() -> dict[str, Result]:
        return by_table(
            export(
                "shop", to=lake, incremental=True, verify=True, remote=edge.remote, session=spark, split_bytes=40_000
            )
        )

    run()
    before = files(orders)
    write(edge, "UPDATE orders SET what = 'changed' WHERE id IN (1, 2); DELETE FROM orders WHERE id = 3")
    results = run()
    assert results["orders"].action == Action.MERGED
    assert results["orders"].rows == ORDERS - 1
    assert (results["notes"].action, results["notes"].reason) == (
        Action.UNCHANGED,
        "nothing of it changed since LSN 1",
    )
    assert read(orders) == rows(edge, "SELECT * FROM orders")
    after = files(orders)
    assert len(before.items() & after.items()) == len(before) - 1, "one file alone held the changed rows"
    # The first row of a file and the last of the one before.
    first = sorted(file.rowids[0] for file in ParquetTarget(orders.as_uri()).files() if file.rowids)[2]
    for rowid in (first, first - 1):
        write(edge, f"UPDATE orders SET what = 'edge' WHERE id = {rowid}")
        assert run()["orders"].action == Action.MERGED
        assert read(orders) == rows(edge, "SELECT * FROM orders")
    # Pages changed, and no row.
    write(
        edge,
        f"INSERT INTO orders (id, what) VALUES ({ORDERS + 1}, 'short-lived'); DELETE FROM orders WHERE id > {ORDERS}",
    )
    here = files(orders)
    assert (run()["orders"].action, files(orders)) == (Action.UNCHANGED, here)
    assert read(orders) == rows(edge, "SELECT * FROM orders")
    # New rows behind the last, before the first, and none left of some file.
    write(edge, f"INSERT INTO orders (id, what) VALUES ({ORDERS + 7}, 'late'), (-5, 'early')")
    write(edge, "DELETE FROM orders WHERE id BETWEEN 500 AND 2500")
    assert run()["orders"].action == Action.MERGED
    assert read(orders) == rows(edge, "SELECT * FROM orders")
    write(edge, "DELETE FROM orders")
    assert run()["orders"].rows == 0
    assert read(orders) == []
    write(edge, "INSERT INTO orders (id, what) VALUES (1, 'again')")
    assert run()["orders"].rows == 1
    assert read(orders) == rows(edge, "SELECT * FROM orders")
    assert by_table(export("shop", to=lake, remote=edge.remote, session=spark))["orders"].action == Action.UNCHANGED


def test_incremental_writes_whole_what_it_cannot_merge_and_says_so(spark: SparkSession, edge: Edge, lake: Path) -> None:
    def run() -> Result:
        return export("shop", to=lake, tables=["notes"], incremental=True, remote=edge.remote, session=spark)[0]

    assert run().reason == ""
    write(edge, "ALTER TABLE notes ADD COLUMN more INTEGER DEFAULT 7")
    altered = run()
    assert (altered.action, altered.reason) == (Action.WRITTEN, "its columns changed")
    assert read(lake / "shop" / "notes") == rows(edge, "SELECT rowid, note, more FROM notes")
    head = write(edge, "INSERT INTO notes VALUES ('five', 5)")
    vid = edge.volume("shop").id
    with closing(open_remote(edge.remote)) as remote:
        for pin in remote.ask(PINS, VolumeRequest(vid.raw)).pins:
            assert pin.state != PinState.LIVE, f"the export still holds {pin}"
        remote.ask(ADVANCE, SinceRequest(vid.raw, since=head))
    forgotten = run()
    assert (forgotten.action, forgotten.reason) == (Action.WRITTEN, "LSN 2, which the target holds, is forgotten")
    with pytest.raises(Forgotten, match="LSN 1"):
        export("shop", to=lake, tables=["notes"], lsn=1, replace=True, remote=edge.remote, session=spark)
    (view,) = export("shop", to=lake, tables=["cheap"], incremental=True, remote=edge.remote, session=spark)
    assert (view.action, view.rows) == (Action.WRITTEN, 19)


def test_a_column_that_is_found_to_be_of_another_type_is_written_whole(
    spark: SparkSession, edge: Edge, lake: Path
) -> None:
    def run() -> Result:
        return export("shop", to=lake, tables=["found"], incremental=True, remote=edge.remote, session=spark)[0]

    write(edge, "CREATE TABLE found (id INTEGER PRIMARY KEY, d DATE); INSERT INTO found VALUES (1, 20300131)")
    assert run().action == Action.WRITTEN
    write(edge, "INSERT INTO found VALUES (3, 20300201)")
    merged = run()
    assert (merged.action, merged.rows) == (Action.MERGED, 2)
    write(edge, "UPDATE found SET d = '2030-01-31'")
    whole = run()
    assert (whole.action, whole.reason) == (Action.WRITTEN, "its columns changed")
    assert read(lake / "shop" / "found") == rows(edge, "SELECT * FROM found")


def test_what_cannot_be_merged_and_did_not_change_is_left_alone(spark: SparkSession, edge: Edge, lake: Path) -> None:
    def run() -> dict[str, tuple[Action, str]]:
        tables = ["places", "empty"]
        results = export(
            "shop", to=lake, tables=tables, incremental=True, verify=True, remote=edge.remote, session=spark
        )
        return {result.table: (result.action, result.reason) for result in results}

    run()
    write(edge, "INSERT INTO notes VALUES ('elsewhere')")
    unchanged = (Action.UNCHANGED, "nothing of it changed since LSN 1")
    assert run() == {"places": unchanged, "empty": unchanged}
    write(edge, "INSERT INTO places VALUES ('c', 3); INSERT INTO empty VALUES (1, 'x')")
    assert run() == {
        "places": (Action.WRITTEN, "its key is no rowid, by which files are told apart"),
        "empty": (Action.WRITTEN, "its files don't tell which rowids they hold"),
    }


@pytest.mark.parametrize("format_", [each for each in FORMATS if each != "parquet"])
def test_the_other_formats_are_written_merged_and_verified(
    spark: SparkSession, edge: Edge, lake: Path, format_: Format, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("deltalake" if format_ == "delta" else "pyiceberg")

    def run(retain_seconds: float | None = None) -> dict[str, Action]:
        results = export(
            "shop",
            to=lake,
            format=format_,
            incremental=True,
            verify=True,
            retain_seconds=retain_seconds,
            remote=edge.remote,
            session=spark,
        )
        assert all(result.verified for result in results)
        return {result.table: result.action for result in results}

    assert set(run().values()) == {Action.WRITTEN}
    write(
        edge,
        "UPDATE orders SET what = 'changed' WHERE id = 1; DELETE FROM orders WHERE id = 2;"
        "INSERT INTO orders (id) VALUES (5000); INSERT INTO notes VALUES ('more')",
    )
    done = run()
    assert (done["orders"], done["notes"], done["empty"]) == (Action.MERGED, Action.MERGED, Action.UNCHANGED)
    before = {path for path in lake.rglob("*.parquet") if path.is_file()}
    monkeypatch.setattr("budwood.spark_export.export.run._LEAST_RETAINED_SECONDS", 0)
    assert set(run(retain_seconds=0).values()) == {Action.UNCHANGED}
    gone = before - {path for path in lake.rglob("*.parquet") if path.is_file()}
    assert {path.relative_to(lake).parts[:2] for path in gone} == {("shop", "orders"), ("shop", "notes")}
    assert set(run().values()) == {Action.UNCHANGED}


def test_many_volumes_are_one_job_and_what_is_no_database_is_passed_over(
    spark: SparkSession, edge: Edge, lake: Path
) -> None:
    for number in range(9):
        write(edge, f"CREATE TABLE t (a INTEGER PRIMARY KEY); INSERT INTO t VALUES ({number})", f"edge/{number}")
    writer = edge.create("edge/stray", page_size=4096).writer()
    writer.write(1, b"no database!" + bytes(4084))
    writer.commit(Durability.DURABLE)
    edge.volume("edge/stray").push()
    told: list[tuple[str, int, int]] = []

    def tell(doing: str, done: int, total: int) -> None:
        told.append((doing, done, total))

    results = export("edge/*", to=lake, remote=edge.remote, session=spark, progress=tell)
    written = [result for result in results if result.action == Action.WRITTEN]
    assert [result.volume for result in written] == [f"edge/{number}" for number in range(9)]
    assert [read(lake / f"edge~2F{number}" / "t") for number in range(9)] == [[(number,)] for number in range(9)]
    (skipped,) = (result for result in results if result.action == Action.SKIPPED)
    assert (skipped.volume, skipped.table) == ("edge/stray", "")
    assert "no SQLite database" in skipped.reason
    assert told[0][0] == "writing"
    assert told[-1][1] == told[-1][2] > 0
    everything = export(every=True, to=lake, tables=["t", "notes"], remote=edge.remote, session=spark)
    assert sorted({result.volume for result in everything}) == sorted(
        ["shop", "edge/stray", *(f"edge/{number}" for number in range(9))]
    )


def test_what_is_exported_is_held_while_commits_and_retention_go_on(
    spark: SparkSession, edge: Edge, lake: Path
) -> None:
    expected = rows(edge, "SELECT * FROM orders")
    vid = edge.volume("shop").id
    forgotten: list[int] = []

    def forget(doing: str, done: int, total: int) -> None:
        if doing == "writing" and not forgotten:
            head = write(edge, "DELETE FROM orders WHERE id > 7")
            with closing(open_remote(edge.remote)) as remote:
                assert PinState.LIVE in {pin.state for pin in remote.ask(PINS, VolumeRequest(vid.raw)).pins}
                forgotten.append(remote.ask(ADVANCE, SinceRequest(vid.raw, since=head)).since)

    (result,) = export(
        "shop", to=lake, tables=["orders"], verify=True, remote=edge.remote, session=spark, progress=forget
    )
    assert forgotten == [2]
    assert (result.lsn, result.rows, result.verified) == (1, ORDERS, True)
    assert read(lake / "shop" / "orders") == expected
    with closing(open_remote(edge.remote)) as remote:
        assert remote.ask(PINS, VolumeRequest(vid.raw)).pins == ()


def test_what_fails_stops_no_other(spark: SparkSession, edge: Edge, lake: Path) -> None:
    write(edge, "CREATE TABLE mixed (n INTEGER); INSERT INTO mixed VALUES (1), ('words')")
    with pytest.raises(Incomplete, match=r"2 of 3 .* shop, table missing") as raised:
        export("shop", to=lake, tables=["missing", "mixed", "notes"], remote=edge.remote, session=spark)
    results = by_table(raised.value.results)
    assert {name: result.action for name, result in results.items()} == {
        "missing": Action.FAILED,
        "mixed": Action.FAILED,
        "notes": Action.WRITTEN,
    }
    assert isinstance(results["mixed"].error, BadInput)
    assert "mixed" in results["mixed"].reason
    assert not (lake / "shop" / "mixed" / "_budwood").exists() or not list((lake / "shop" / "mixed").glob("*.parquet"))
    (mended,) = export(
        "shop", to=lake, tables=["mixed"], options={"typeMismatch": "null"}, remote=edge.remote, session=spark
    )
    assert read(lake / "shop" / "mixed") == [(1, 1), (2, None)]
    assert mended.rows == 2


def test_a_view_of_what_is_gone_and_a_module_that_is_nowhere_are_no_tables(
    spark: SparkSession, edge: Edge, lake: Path
) -> None:
    with closing(budwood.connect("old", home=edge.home, remote=edge.remote)) as db:
        db.execute("CREATE TABLE t(a); INSERT INTO t VALUES (1)")
        db.execute("CREATE TABLE gone(a); CREATE VIEW v AS SELECT * FROM gone; DROP TABLE gone")
        db.execute("CREATE VIRTUAL TABLE words USING fts5(word); PRAGMA writable_schema = ON")
        db.execute("UPDATE sqlite_schema SET sql = replace(sql, 'fts5', 'nowhere') WHERE name = 'words'")
    edge.volume("old").push()
    results = by_table(export("old", to=lake, remote=edge.remote, session=spark))
    # What the module kept its own in is nobody's by now.
    assert results.keys() >= {"t", "words_data"}
    assert not results.keys() & {"v", "words", "gone"}
    assert (results["t"].action, results["t"].rows) == (Action.WRITTEN, 1)
    with pytest.raises(Unsupported, match=r"no such table: main\.gone"):
        export("old", to=lake, tables=["v"], remote=edge.remote, session=spark)


def test_a_target_that_was_tampered_with_is_found_by_verify(spark: SparkSession, edge: Edge, lake: Path) -> None:
    export("shop", to=lake, tables=["orders"], remote=edge.remote, session=spark)
    (path,) = (lake / "shop" / "orders").glob("*.parquet")
    table = pads.dataset(path).to_table()
    prices = table["price"].to_pylist()
    prices[17] = 0.25
    with pq.ParquetWriter(path, table.schema) as writer:
        writer.write_table(table.set_column(2, "price", pa.array(prices)))
    (unseen,) = export("shop", to=lake, tables=["orders"], remote=edge.remote, session=spark)
    assert unseen.action == Action.UNCHANGED
    with pytest.raises(Corrupt, match=r"it reads as 3,000 rows \(checksum .* table orders has 3,000 rows"):
        export("shop", to=lake, tables=["orders"], verify=True, remote=edge.remote, session=spark)
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(Corrupt, match=r"it can't be read .*: export it again with --replace"):
        export("shop", to=lake, tables=["orders"], verify=True, remote=edge.remote, session=spark)
    (again,) = export("shop", to=lake, tables=["orders"], verify=True, replace=True, remote=edge.remote, session=spark)
    assert (again.action, again.verified) == (Action.WRITTEN, True)
    assert read(lake / "shop" / "orders") == rows(edge, "SELECT * FROM orders")


def test_bad_calls_are_refused_before_anything_is_done(edge: Edge, lake: Path) -> None:
    calls: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"volumes": "shop", "format": "orc"}, BadInput, "parquet, delta, iceberg"),
        ({"volumes": ()}, BadInput, "name the volumes"),
        ({"volumes": "shop", "every": True}, BadInput, "name the volumes"),
        ({"volumes": "shop", "lsn": 1, "at_ms": 1}, BadInput, "no two of them"),
        ({"volumes": ["shop", "x"], "lsn": 1}, BadInput, "one volume's"),
        ({"volumes": "shop*", "lsn": 1}, BadInput, "one volume's"),
        ({"volumes": "shop", "options": {"type.nosuch": "text"}}, BadInput, "no.* column 'nosuch'"),
        ({"volumes": "shop", "options": {"versionAsOf": "1"}}, BadInput, "versionAsOf"),
        ({"volumes": "shop", "options": {"typeMismatch": "maybe"}}, BadInput, "typeMismatch"),
        ({"volumes": "nosuch"}, NotFound, "nosuch"),
        ({"volumes": "no*"}, NotFound, r"'no\*'"),
        ({"volumes": "shop", "lsn": 9}, NotFound, "9"),
        ({"volumes": "shop", "at_ms": 1}, NotFound, "did not exist"),
    ]
    for arguments, error, words in calls:
        with pytest.raises(error, match=words):
            export(to=lake, remote=edge.remote, **arguments)
    assert not list(lake.rglob("*.parquet"))
    with pytest.raises(BadInput, match="ftp"):
        export("shop", to="ftp://here", remote=edge.remote)
    with pytest.raises(BadInput, match="no password") as caught:
        export("shop", to="s3://key:sEcret@bucket/x", remote=edge.remote)
    assert "sEcret" not in str(caught.value)
    with pytest.raises(BadInput, match="need a remote"):
        export("shop*", to=lake, home=str(edge.home))


def test_the_command_tells_what_it_did(
    spark: SparkSession, edge: Edge, lake: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def start_quietly(name: str, *, master: str) -> SparkSession:
        assert (name, master) == ("budwood spark-export", "local[*]")
        return spark

    def end(session: SparkSession) -> None:
        assert session is spark

    monkeypatch.setattr(quiet_session, "start_quietly", start_quietly)
    monkeypatch.setattr("budwood.spark_export.session.end", end)
    command = Command(capsys, edge.home)
    said = command.ok("spark-export", "shop", "--to", str(lake), "-t", "orders", "-t", "notes", "--verify")
    lines = [line.split() for line in said.splitlines()]
    assert lines[0] == ["volume", "table", "done", "lsn", "rows", "size", "seconds", "note"]
    assert lines[1][:6] == ["shop", "orders", "written,", "verified", "1", "3,000"]
    (row, _) = json.loads(
        command.ok("spark-export", "shop", "--to", str(lake), "-t", "orders", "-t", "notes", "--json")
    )
    assert row.pop("seconds") >= 0
    assert row == {
        "volume": "shop",
        "table": "orders",
        "action": "unchanged",
        "lsn": 1,
        "rows": ORDERS,
        "bytes": 0,
        "url": (lake / "shop" / "orders").as_uri(),
        "verified": False,
        "reason": "LSN 1 stands there already",
    }
    failed = command("spark-export", "shop", "--to", str(lake), "-t", "notes", "-t", "none")
    assert failed.code == 1
    assert "failed" in failed.out
    assert failed.err.startswith("budwood: 1 of 2 were not exported; the first, shop, table none:")
    assert "--to" in command("spark-export", "shop").line(2)
    elsewhere = Command(capsys, edge.home / "nowhere", edge.remote)
    assert "unchanged" in elsewhere.ok("spark-export", "shop", "--to", str(lake), "-t", "orders")
    homeless = Command(capsys, edge.home / "nowhere")
    assert "no home at" in homeless("spark-export", "shop", "--to", str(lake)).line(1)
    assert "NAME=VALUE" in command("spark-export", "shop", "--to", str(lake), "--option", "x").line(2)
    for age, words in (("10m", "for 1h at least"), ("long", "no time to last")):
        assert words in command("spark-export", "shop", "--to", str(lake), "--retain", age).line(2)


def test_a_table_that_another_export_writes_is_left_to_it(spark: SparkSession, edge: Edge, lake: Path) -> None:
    with locks(lake.as_uri()) as others:
        others.take(join(lake.as_uri(), "shop", "notes"))
        with pytest.raises(Busy, match="another export"):
            export("shop", to=lake, tables=["notes"], remote=edge.remote, session=spark)


@pytest.mark.slow
def test_the_command_starts_java_and_java_says_nothing(
    spark: SparkSession, edge: Edge, lake: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a process of its own. (The session is asked for so that this is skipped where there is no Java.)"""
    said = Command(capsys, edge.home, edge.remote).process(
        "spark-export", "shop", "--to", str(lake), "-t", "orders", "--master", "local[1]", "--json"
    )
    assert (said.code, said.err) == (0, "")
    assert json.loads(said.out)[0]["action"] == "written"
    assert read(lake / "shop" / "orders") == rows(edge, "SELECT * FROM orders")
