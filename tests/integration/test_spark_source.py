"""Tables of volumes in a Spark session: what a DataFrame reads, and goes on reading, and what it says if it can't."""

from __future__ import annotations

import importlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import budwood
from budwood.remote.portal import BlockingRemote, open_remote
from budwood.sync.edge import Edge
from budwood.volume.calls import ADVANCE, PIN, PINS, UNPIN, PinRequest, SinceRequest, UnpinRequest, VolumeRequest
from budwood.volume.ids import VolumeId

from ..waits import LIMIT_SECONDS, wait_until
from .cli import serving

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

ROWS = 4000
STOCK = (
    "CREATE TABLE t (id INTEGER PRIMARY KEY, n INTEGER, name TEXT);"
    f"INSERT INTO t WITH RECURSIVE r(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM r WHERE i < {ROWS})"
    " SELECT i, 1, printf('a name of some length, %d', i) || hex(randomblob(40)) FROM r;"
    "CREATE VIEW first AS SELECT id, n FROM t WHERE id <= 10"
)


@pytest.fixture(params=["file", "http"])
def remote(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    store = tmp_path / "store"
    if request.param == "file":
        yield store.as_uri()
        return
    with serving(store) as url:
        yield url


@pytest.fixture
def edge(tmp_path: Path, remote: str) -> Iterator[Edge]:
    """Volume `v` at LSN 1: ROWS rows over about a hundred pages."""
    with budwood.open(home=tmp_path / "home", remote=remote) as edge:
        write(edge, STOCK)
        yield edge


@pytest.fixture(scope="module")
def stocked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Edge]:
    """Volume `v` in a directory, for tests that change nothing: at LSN 2 it has more tables than at LSN 1."""
    folder = tmp_path_factory.mktemp("stocked")
    with budwood.open(home=folder / "home", remote=(folder / "store").as_uri()) as edge:
        write(edge, STOCK)
        write(
            edge, "CREATE TABLE empty (a TEXT); CREATE TABLE mixed (b INTEGER); INSERT INTO mixed VALUES (1), ('words')"
        )
        yield edge


@pytest.fixture
def there(edge: Edge) -> Iterator[tuple[BlockingRemote, VolumeId]]:
    with closing(open_remote(edge.remote)) as remote:
        yield remote, edge.volume("v").id


def write(edge: Edge, sql: str) -> None:
    with closing(budwood.connect("v", home=edge.home, remote=edge.remote)) as db:
        db.execute(sql)
    edge.volume("v").push()


def load(spark: SparkSession, edge: Edge, **options: object) -> DataFrame:
    reader = spark.read.format("budwood").option("remote", edge.remote).option("volume", "v")
    for name, value in options.items():
        reader = reader.option(name.replace("__", "."), str(value))
    return reader.load()


def total(frame: DataFrame) -> tuple[int, int]:
    (found,) = frame.selectExpr("count(*)", "sum(n)").collect()
    return found[0], found[1]


def gate(begun: Path, go: Path) -> Callable[[Iterable[Row]], Iterator[int]]:
    """Rows pass once `go` is there; `begun` says that the first have come. Made here, so that workers get it whole."""
    tries = round(100 * LIMIT_SECONDS)

    def pass_on(rows: Iterable[Row]) -> Iterator[int]:

        for row in rows:
            begun.touch()
            for _ in range(tries):
                if go.exists():
                    break
                time.sleep(0.01)
            assert go.exists()
            yield row["n"]

    return pass_on


def test_a_job_reads_the_lsn_that_it_began_at_while_commits_go_on_and_since_advances(
    spark: SparkSession, edge: Edge, there: tuple[BlockingRemote, VolumeId], tmp_path: Path
) -> None:
    frame = load(spark, edge, table="t", numPartitions=8, cacheBytes=1)
    begun, go = tmp_path / "begun", tmp_path / "go"
    answers: list[list[int]] = []
    gated = frame.rdd.mapPartitions(gate(begun, go))
    job = threading.Thread(target=lambda: answers.append(gated.collect()))
    job.start()
    try:
        wait_until(begun.exists)
        remote, vid = there
        for _ in range(3):
            write(edge, "UPDATE t SET n = n + 1; DELETE FROM t WHERE id % 7 = n")
        assert remote.ask(ADVANCE, SinceRequest(vid.raw, since=4)).since == 4
    finally:
        go.touch()
        job.join()
    assert answers == [[1] * ROWS]
    # Partitions that are read for the first time now are no others; and a DataFrame stays where it was loaded.
    assert total(frame) == (ROWS, ROWS)
    assert total(load(spark, edge, table="t")) != (ROWS, ROWS)
    # It was the lease that did it.
    for pin in remote.ask(PINS, VolumeRequest(vid.raw)).pins:
        remote.ask(UNPIN, UnpinRequest(vid.raw, pin=pin.pin_id.raw))
    write(edge, "UPDATE t SET n = 0")
    alone = load(spark, edge, table="t", numPartitions=2, leaseSeconds=0)
    write(edge, "UPDATE t SET n = 2")
    remote.ask(ADVANCE, SinceRequest(vid.raw, since=6))
    with pytest.raises(Exception, match=r"Forgotten: LSN 5 of volume \S+ is forgotten, and no pin holds it"):
        total(alone)
    with pytest.raises(Exception, match=r"^\[PYTHON_DATA_SOURCE_ERROR\]") as refused:
        load(spark, edge, table="t", versionAsOf=1)
    said = "Forgotten: LSN 1 of volume 'v' is forgotten, and no pin holds it: it can be read from LSN 6 to 6; load the"
    assert said in str(refused.value)
    assert "Traceback" not in str(refused.value)


def test_the_session_found_the_format_by_itself(spark: SparkSession) -> None:
    """No test registers it. What Spark looks for is a class of this name in a package whose name begins so."""
    import pkgutil

    import pyspark_budwood

    from budwood.spark_export.source.datasource import BudwoodDataSource

    assert pyspark_budwood.DefaultSource is BudwoodDataSource
    assert "pyspark_budwood" in {module.name for module in pkgutil.iter_modules()}


def test_importing_spark_export_registers_with_a_session_that_runs_already(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyspark.sql.datasource import DataSourceRegistration

    from budwood import spark_export
    from budwood.spark_export.source.datasource import BudwoodDataSource

    registered: list[object] = []

    def register(_: DataSourceRegistration, source: object) -> None:
        registered.append(source)

    monkeypatch.setattr(DataSourceRegistration, "register", register)
    importlib.reload(spark_export)
    assert registered == [BudwoodDataSource]


def test_tables_views_queries_and_their_options(spark: SparkSession, stocked: Edge) -> None:
    def read(**options: object) -> DataFrame:
        return load(spark, stocked, **options)

    assert [(field.name, field.dataType.simpleString()) for field in read(table="t").schema] == [
        ("id", "bigint"),
        ("n", "bigint"),
        ("name", "string"),
    ]
    parts = read(table="t", numPartitions=3, columns="name, ID", rowIdColumn="_rowid")
    assert parts.columns == ["_rowid", "name", "id"]
    assert parts.rdd.getNumPartitions() == 3
    assert parts.where("_rowid = id AND name LIKE 'a name%'").count() == ROWS
    assert read(table="t", splitBytes="64k").rdd.getNumPartitions() > 3
    assert total(read(table="T", engine="general", numPartitions=2)) == (ROWS, ROWS)
    assert sorted(read(table="first").collect())[-1] == (10, 1)
    counted = read(query="SELECT count(*) AS Rows, max(name) AS last FROM t", type__rows="long", type__last="string")
    assert [row["Rows"] for row in counted.collect()] == [ROWS]
    # Only what is asked for is looked at, and nothing is what a table without rows gives.
    assert read(table="empty").collect() == []
    assert read(table="empty").schema.names == ["a"]
    assert read(table="mixed", typeMismatch="null").collect() == [(1,), (None,)]
    assert sorted(row["b"] for row in read(table="mixed", typeMismatch="string").collect()) == ["1", "words"]


def test_the_same_rows_with_filters_pushed_down_and_without_and_whatever_spark_s_setting(
    spark: SparkSession, stocked: Edge
) -> None:
    where = "id > 100 AND id <= 200 AND name LIKE 'a name%'"
    setting = "spark.sql.python.filterPushdown.enabled"
    before = spark.conf.get(setting)
    try:
        for enabled in ("false", "true"):
            spark.conf.set(setting, enabled)
            plain = load(spark, stocked, table="t", numPartitions=2)
            assert plain.where(where).count() == 100
            # A DataFrame serves many queries.
            assert plain.count() == ROWS
        pushed = load(spark, stocked, table="t", numPartitions=2, pushDownPredicate="true").where(where)
        assert pushed.count() == 100
        assert pushed.rdd.getNumPartitions() <= 2
        nothing = load(spark, stocked, table="t", pushDownPredicate="true").where("id < 5 AND id > 7")
        assert nothing.collect() == []
    finally:
        spark.conf.set(setting, str(before))


def test_time_travel_by_lsn_and_by_time_and_a_home_in_place_of_a_remote(spark: SparkSession, stocked: Edge) -> None:
    newest, first = stocked.volume("v").log()
    with pytest.raises(Exception, match=r"NotFound: the database has no table or view 'empty'; it has t, first"):
        load(spark, stocked, table="empty", versionAsOf=1)
    with pytest.raises(Exception, match=r"NotFound: the database has no table or view 'empty'; it has t, first"):
        load(spark, stocked, table="empty", timestampAsOf=first["time"])
    assert load(spark, stocked, table="empty", timestampAsOf=newest["time"]).columns == ["a"]
    with closing(open_remote(stocked.remote)) as remote:
        remote.ask(PIN, PinRequest(stocked.volume("v").moment(1).vid, lsn=1, seconds=0, kind="named", label="v1"))
    with pytest.raises(Exception, match=r"NotFound: the database has no table or view 'empty'; it has t, first"):
        load(spark, stocked, table="empty", versionAsOf="@v1")
    assert load(spark, stocked, table="first", versionAsOf="@v1").count() == 10
    remembered = spark.read.format("budwood").option("home", str(stocked.home)).option("volume", "v")
    assert remembered.option("table", "first").load().count() == 10


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"table": "t", "versionAsOf": 9}, r"NotFound: volume \S+ has no LSN 9; its newest is 2"),
        ({"table": "t", "versionAsOf": "@v2"}, r"NotFound: no LSN of volume \S+ is called 'v2'"),
        ({"table": "nope"}, r"NotFound: the database has no table or view 'nope'; it has "),
        ({"table": "t", "columns": "id, nope"}, r"NotFound: table t has no column 'nope'; it has id, n, name"),
        ({"table": "t", "type__nope": "long"}, r"NotFound: table t has no column 'nope'; it has id, n, name"),
        ({"table": "first", "engine": "pages"}, r"BadInput: the page engine can't read first: it is a view"),
        ({"query": "SELEKT 1"}, r"BadInput: the query can't be prepared: .*; it must be one SELECT"),
        ({"tabel": "t"}, r"BadInput: option tabel is unknown: did you mean table\?"),
        ({"table": "t", "remote": "ftp://host"}, r"BadInput: 'ftp://host' is no remote: it must start with one of"),
    ],
)
def test_what_can_t_be_read_is_told_when_it_is_loaded_in_one_line(
    spark: SparkSession, stocked: Edge, options: dict[str, object], said: str
) -> None:
    with pytest.raises(Exception, match=said) as refused:
        load(spark, stocked, **options)
    assert str(refused.value).startswith("[PYTHON_DATA_SOURCE_ERROR]")
    assert "Traceback" not in str(refused.value)


def test_a_schema_of_one_s_own_and_writing_are_refused(spark: SparkSession, stocked: Edge) -> None:
    place = {"remote": stocked.remote, "volume": "v", "table": "t"}
    with pytest.raises(Exception, match=r"BadInput: the schema is the table's own: leave schema\(…\) out"):
        spark.read.format("budwood").options(**place).schema("id int").load().collect()
    with pytest.raises(Exception, match=r"BadInput: volumes are read through Spark, not written"):
        spark.range(3).write.format("budwood").options(**place).mode("append").save()


def test_a_value_that_is_not_its_column_s_fails_the_job_with_its_table_column_and_rowid(
    spark: SparkSession, stocked: Edge
) -> None:
    frame = load(spark, stocked, table="mixed")
    with pytest.raises(Exception, match=r"BadInput: .*mixed.*\bb\b.*rowid 2") as refused:
        frame.collect()
    assert "Traceback" not in str(refused.value)
