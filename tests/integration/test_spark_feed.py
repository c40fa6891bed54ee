"""The change feed in a real Spark session: names and meanings that users know from Delta, and what it says if it can't.

That a mirror by the feed is the table at every LSN: tests/property/test_feed_mirror.py, which needs no Spark.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.feeds import Mirror, Source, sourced

from budwood.spark_export.source.change_feed import plan_feed
from budwood.spark_export.source.page_reader import open_volume
from budwood.spark_export.source.resolution import resolve
from budwood.spark_export.source.steps import plan_steps, run_steps
from budwood.volume.calls import ADVANCE, SNAPSHOT, SinceRequest, SnapshotRequest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 3000
MANY = f"WITH RECURSIVE r(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM r WHERE i < {ROWS})"


@pytest.fixture
def source(tmp_path: Path) -> Iterator[Source]:
    """Volume `v` at LSN 6."""
    with sourced(tmp_path) as source:
        source.commit(
            "CREATE TABLE t (id INTEGER PRIMARY KEY, a INTEGER, b TEXT); CREATE TABLE other (x)",
            f"{MANY} INSERT INTO t SELECT i, 0, 'text ' || i FROM r",
        )
        source.commit("UPDATE t SET a = 1 WHERE id IN (7, 2999)")
        source.commit("INSERT INTO other VALUES (1)")
        source.commit("DELETE FROM t WHERE id = 8", "INSERT INTO t VALUES (5000, 2, 'new')")
        source.commit("ALTER TABLE t ADD COLUMN c TEXT DEFAULT 'old'")
        source.commit("UPDATE t SET c = 'mine' WHERE id = 7")
        yield source


def load(spark: SparkSession, source: Source, **options: object) -> DataFrame:
    given = source.options(readChangeFeed=True, **options)
    return spark.read.format("budwood").options(**given).load()


def told(frame: DataFrame) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = [tuple(row) for row in frame.collect()]
    return sorted(rows, key=lambda row: (row[-2], row[0], row[-3]))


def at(source: Source, lsn: int) -> datetime:
    ms = source.remote.ask(SNAPSHOT, SnapshotRequest(source.vid.raw, lsn=lsn)).time
    return datetime.fromtimestamp(ms // 1000, UTC) + timedelta(milliseconds=ms % 1000)


def test_columns_and_rows_are_named_typed_and_dated_as_deltas_are(spark: SparkSession, source: Source) -> None:
    frame = load(spark, source, startingVersion=2, endingVersion=4)
    assert [(field.name, field.dataType.simpleString()) for field in frame.schema.fields] == [
        ("id", "bigint"),
        ("a", "bigint"),
        ("b", "string"),
        ("_change_type", "string"),
        ("_commit_version", "bigint"),
        ("_commit_timestamp", "timestamp"),
    ]
    rows = frame.selectExpr("id", "a", "b", "_change_type", "_commit_version", "unix_millis(_commit_timestamp)")
    times = {lsn: source.remote.ask(SNAPSHOT, SnapshotRequest(source.vid.raw, lsn=lsn)).time for lsn in (2, 4)}
    assert told(rows) == [
        (7, 1, "text 7", "update_postimage", 2, times[2]),
        (7, 0, "text 7", "update_preimage", 2, times[2]),
        (2999, 1, "text 2999", "update_postimage", 2, times[2]),
        (2999, 0, "text 2999", "update_preimage", 2, times[2]),
        (8, 0, "text 8", "delete", 4, times[4]),
        (5000, 2, "new", "insert", 4, times[4]),
    ]


def test_a_mirror_in_spark_is_the_table(spark: SparkSession, source: Source) -> None:
    mirror = Mirror()
    frame = load(spark, source, startingVersion=1, numPartitions=4)
    assert frame.rdd.getNumPartitions() >= 4
    # An added column says at its first LSN what the rows before it had: their old default.
    assert list(mirror.apply(told(frame))) == [1, 2, 4, 5, 6]
    assert mirror.sorted == source.rows(6)
    # What a DataFrame reads is settled when it is loaded.
    source.commit("DELETE FROM t")
    assert frame.where("_commit_version > 5").count() == 2


def test_times_bound_the_feed_and_both_ends_belong_to_it(spark: SparkSession, source: Source) -> None:
    def versions(**options: object) -> set[int]:
        return {row[0] for row in load(spark, source, **options).select("_commit_version").distinct().collect()}

    ms = timedelta(milliseconds=1)
    assert versions(startingTimestamp=at(source, 2), endingTimestamp=at(source, 4)) == {2, 4}
    assert versions(startingTimestamp=at(source, 2) + ms, endingTimestamp=at(source, 4) - ms) == set()
    assert versions(startingTimestamp=at(source, 4) - ms, endingVersion=5) == {4, 5}
    assert versions(startingTimestamp=at(source, 6) + ms) == set()
    assert versions(startingTimestamp="2001-01-01T00:00:00Z", endingVersion=1) == {1}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "readChangeFeed needs a start: the option startingVersion"),
        ({"startingVersion": 9}, "startingVersion is 9, and the feed ends at LSN 6"),
        ({"startingVersion": 5, "endingVersion": 4}, "startingVersion is 5, and the feed ends at LSN 4"),
        ({"startingVersion": 1, "endingVersion": 7}, "endingVersion is 7, and the newest LSN is 6"),
        ({"startingVersion": "latest"}, "startingVersion=latest is for streams"),
        ({"startingVersion": 1, "table": "sqlite_schema"}, "changes can be told of tables alone"),
        ({"startingVersion": 1, "table": "nothing"}, "nothing"),
    ],
)
def test_a_feed_that_cannot_be_is_refused_in_words(
    spark: SparkSession, source: Source, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(Exception, match=words) as caught:
        load(spark, source, **options).collect()
    assert "Traceback" not in str(caught.value)


def test_a_table_that_was_dropped_ends_in_deletes(spark: SparkSession, source: Source) -> None:
    source.commit("DROP TABLE t")
    rows = load(spark, source, startingVersion=6).groupBy("_commit_version", "_change_type").count().collect()
    assert {tuple(row) for row in rows} == {
        (6, "update_preimage", 1),
        (6, "update_postimage", 1),
        (7, "delete", ROWS),
    }


def test_what_is_forgotten_is_refused_and_since_is_named(spark: SparkSession, source: Source) -> None:
    frame = load(spark, source, startingVersion=3, endingVersion=4)
    source.remote.ask(ADVANCE, SinceRequest(source.vid.raw, since=4))
    with pytest.raises(Exception, match=r"LSN 2 is forgotten.*its since, is 4: start with 5 or later"):
        load(spark, source, startingVersion=3, endingVersion=6).collect()
    # Both of its ends are held since it was loaded; the step between them is not.
    with pytest.raises(Exception, match=r"LSN 3 .*forgotten"):
        frame.collect()
    assert load(spark, source, startingVersion=5).count() > 0


def test_a_feed_of_one_step_is_held_from_when_it_was_loaded(spark: SparkSession, source: Source) -> None:
    frame = load(spark, source, startingVersion=2, endingVersion=2)
    source.remote.ask(ADVANCE, SinceRequest(source.vid.raw, since=5))
    assert frame.count() == 4


def test_commits_that_leave_the_table_alone_cost_a_request_or_two_each(source: Source) -> None:
    source.commit("ALTER TABLE t RENAME COLUMN c TO d")
    last = 0
    for value in range(20):
        last = source.commit(f"INSERT INTO other VALUES ({value})")
    feed = plan_feed(resolve(source.options(readChangeFeed=True, startingVersion=last - 19)))
    reached = open_volume(feed.feed_table.ref)
    before = reached.requests
    pairs = [(lsn - 1, lsn) for lsn in range(feed.after + 1, feed.last + 1)]
    tasks = plan_steps(feed.feed_table, pairs)
    assert reached.requests - before == 2
    assert [row for task in tasks for row in run_steps(task)] == []
    assert reached.requests - before <= 20 + 10
