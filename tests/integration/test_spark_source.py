"""Tables of volumes in a real Spark session: what a DataFrame reads, and goes on reading, and what it says if it can't."""

from __future__ import annotations

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
from budwood.volume.ids import VolumeId

from .cli import serving

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

ROWS = 4000
LIMIT_SECONDS = 60.0


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
        write(
            edge,
            "CREATE TABLE t (id INTEGER PRIMARY KEY, n INTEGER, name TEXT);"
            f"INSERT INTO t WITH RECURSIVE r(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM r WHERE i < {ROWS})"
            " SELECT i, 1, printf('a name of some length, %d', i) || hex(randomblob(40)) FROM r;"
            "CREATE VIEW first AS SELECT id, n FROM t WHERE id <= 10",
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


def wait_until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + LIMIT_SECONDS
    while not holds():
        assert time.monotonic() < end, "it never came to that"
        time.sleep(0.01)


def gate(begun: Path, go: Path) -> Callable[[Iterable[Row]], Iterator[int]]:
    """Rows pass once `go` is there; `begun` says that the first have come. Made within a function: workers get it whole."""
    limit_seconds = LIMIT_SECONDS

    def pass_on(rows: Iterable[Row]) -> Iterator[int]:
        import time

        for row in rows:
            begun.touch()
            end = time.monotonic() + limit_seconds
            while not go.exists():
                assert time.monotonic() < end
                time.sleep(0.01)
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
        assert remote.advance(vid, 4) == 4
    finally:
        go.touch()
        job.join()
    assert answers == [[1] * ROWS]
    # Partitions that are read for the first time now are no others; and a DataFrame stays where it was loaded.
    assert total(frame) == (ROWS, ROWS)
    assert total(load(spark, edge, table="t")) != (ROWS, ROWS)
    # It was the pin that did it.
    for pin in remote.pins(vid):
        remote.unpin(vid, pin.pin_id)
    with pytest.raises(Exception, match=r"^\[PYTHON_DATA_SOURCE_ERROR\]") as refused:
        load(spark, edge, table="t", versionAsOf=1)
    assert (
        "Forgotten: LSN 1 of volume 'v' is forgotten, and no pin holds it: it can be read from LSN 4 to 4; load the table"
        in str(refused.value)
    )
    assert "Traceback" not in str(refused.value)
