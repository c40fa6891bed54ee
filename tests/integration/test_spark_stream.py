"""Streams in real Spark sessions, one of which is killed. Each batch's end, and what is asked of a reader in between:
test_spark_stream_reader.py.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.feeds import Mirror, Source, sourced

from budwood.volume.calls import ADVANCE, PINS, UNPIN, SinceRequest, UnpinRequest, VolumeRequest

from ..waits import LIMIT_SECONDS, wait_until
from .stream_job import into_files, stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

JOB = Path(__file__).with_name("stream_job.py")
FEED = {"readChangeFeed": True}


@pytest.fixture
def source(tmp_path: Path) -> Iterator[Source]:
    """Volume `v` at LSN 2."""
    with sourced(tmp_path) as source:
        source.commit("CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT)", "INSERT INTO t VALUES (1, 'x'), (2, 'y')")
        source.commit("INSERT INTO t VALUES (3, 'z')")
        yield source


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "stream"
    (folder / "out").mkdir(parents=True)
    return folder


def batches(folder: Path) -> dict[int, list[tuple[Any, ...]]]:
    """What the sink has, with ids and LSNs as numbers again."""
    found: dict[int, list[tuple[Any, ...]]] = {}
    for file in (folder / "out").glob("*.json"):
        rows = json.loads(file.read_text())
        found[int(file.stem)] = [(int(key), *rest, int(lsn), at) for key, *rest, lsn, at in rows]
    return found


def mirrored(folder: Path) -> list[tuple[Any, ...]]:
    """Every row of every batch, applied in the order of batches: one that is lost or repeated doesn't fit."""
    mirror = Mirror()
    for _, rows in sorted(batches(folder).items()):
        list(mirror.apply(rows))
    return mirror.sorted


def offsets(folder: Path) -> list[dict[str, Any]]:
    files = sorted((folder / "checkpoint" / "offsets").glob("[0-9]*"), key=lambda file: int(file.name))
    return [json.loads(file.read_text().splitlines()[-1]) for file in files]


def run(spark: SparkSession, source: Source, folder: Path, **options: object) -> None:
    """All that there is, as a job that is started now and then does."""
    given = source.options(**{**FEED, **options})
    query = stream(spark, folder, given, into_files(folder / "out")).trigger(availableNow=True).start()
    ended(query)


def ended(query: StreamingQuery) -> None:
    try:
        assert query.awaitTermination(round(LIMIT_SECONDS)), "it doesn't end"
    finally:
        query.stop()


def error_of(query: StreamingQuery) -> str:
    with pytest.raises(Exception, match=r"."):
        query.awaitTermination(round(LIMIT_SECONDS))
    return str(query.exception())


def test_a_session_that_is_killed_between_write_and_commit_and_another_that_goes_on_lose_and_repeat_nothing(
    spark: SparkSession, source: Source, folder: Path
) -> None:
    job = subprocess.Popen(
        [sys.executable, "-P", str(JOB), folder, json.dumps(source.options(**FEED)), "1"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    try:
        assert job.stdout is not None
        assert job.stdout.readline() == "written 0\n"
        source.commit("UPDATE t SET a = 'changed' WHERE id = 1")
        assert job.stdout.readline() == "written 1\n"
        source.commit("DELETE FROM t WHERE id = 2")
        # Its Java, which is of its group, with it: nobody gets to write down that the batch is done.
        os.killpg(job.pid, signal.SIGKILL)
    finally:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
        job.communicate()
    assert job.returncode == -signal.SIGKILL
    assert len(list((folder / "checkpoint" / "commits").glob("[0-9]*"))) == 1
    before = batches(folder)
    assert sorted(before) == [0, 1]
    # It may take its time to come back: what its leases hold can be read.
    source.remote.ask(ADVANCE, SinceRequest(source.vid.raw, since=4))
    run(spark, source, folder)
    after = batches(folder)
    assert {number: after[number] for number in before} == before
    assert sorted(after) == [0, 1, 2]
    assert mirrored(folder) == source.rows(4)
    assert [offset["lsn"] for offset in offsets(folder)] == [2, 3, 4]


def test_a_query_that_is_stopped_in_the_middle_and_started_again_loses_and_repeats_nothing(
    spark: SparkSession, source: Source, folder: Path
) -> None:
    written, stopping = threading.Event(), threading.Event()

    def until_stopped(number: int) -> None:
        """In the first batch: where it began, Spark has not written down."""
        written.set()
        assert stopping.wait(LIMIT_SECONDS)
        raise InterruptedError

    query = stream(spark, folder, source.options(**FEED), into_files(folder / "out", until_stopped)).start()
    stopper = threading.Thread(target=query.stop)
    try:
        assert written.wait(LIMIT_SECONDS)
        source.commit("UPDATE t SET a = a || '!'")
        stopper.start()
        wait_until(lambda: not query.isActive)
    finally:
        stopping.set()
        query.stop()
    stopper.join()
    assert list((folder / "checkpoint" / "commits").glob("[0-9]*")) == []
    before = batches(folder)
    run(spark, source, folder)
    assert batches(folder)[0] == before[0]
    assert mirrored(folder) == source.rows(3)


def test_available_now_keeps_to_its_limit_and_ends_though_commits_go_on(
    spark: SparkSession, source: Source, folder: Path
) -> None:
    def and_commit(number: int) -> None:
        source.commit(f"INSERT INTO t VALUES ({number + 10}, 'meanwhile')")

    source.commit("UPDATE t SET a = 'changed' WHERE id = 1")
    given = source.options(**FEED, startingVersion=1, maxVersionsPerTrigger=1)
    ended(stream(spark, folder, given, into_files(folder / "out", and_commit)).trigger(availableNow=True).start())
    assert [offset["lsn"] for offset in offsets(folder)] == [1, 2, 3]
    assert mirrored(folder) == source.rows(3)
    run(spark, source, folder, maxVersionsPerTrigger=2)
    assert [offset["lsn"] for offset in offsets(folder)] == [1, 2, 3, 5, 6]
    assert mirrored(folder) == source.rows(6)


def test_a_running_query_gets_each_commit_and_the_lease_goes_with_it(
    spark: SparkSession, source: Source, folder: Path
) -> None:
    query = stream(spark, folder, source.options(**FEED), into_files(folder / "out")).start()
    try:
        query.processAllAvailable()
        for value in range(4, 7):
            lsn = source.commit(f"INSERT INTO t VALUES ({value}, 'new')")
            query.processAllAvailable()
            assert mirrored(folder) == source.rows(lsn)
        held = [
            pin.lsn
            for pin in source.remote.ask(PINS, VolumeRequest(source.vid.raw)).pins
            if pin.owner == "a stream in Spark"
        ]
        assert held == [4, 5]
        assert query.lastProgress is not None
        assert json.loads(query.lastProgress["sources"][0]["endOffset"])["lsn"] == 5
    finally:
        query.stop()


def test_rows_that_are_appended_go_to_parquet_once_and_an_update_ends_the_query(
    spark: SparkSession, source: Source, folder: Path
) -> None:
    def begin() -> StreamingQuery:
        frame = spark.readStream.format("budwood").options(**source.options()).load()
        writer = frame.writeStream.format("parquet").option("checkpointLocation", str(folder / "checkpoint"))
        return writer.trigger(availableNow=True).start(str(folder / "lake"))

    ended(begin())
    source.commit("INSERT INTO t VALUES (4, 'new')")
    ended(begin())
    there: list[tuple[Any, ...]] = [tuple(row) for row in spark.read.parquet(str(folder / "lake")).collect()]
    assert sorted(there) == source.rows(3)
    source.commit("UPDATE t SET a = '' WHERE id = 4")
    query = begin()
    told = error_of(query)
    assert "LSN 4 of volume 'v' changed or deleted rows of table t" in told
    assert "readChangeFeed=true" in told
    assert spark.read.parquet(str(folder / "lake")).count() == 4


def test_what_was_forgotten_ends_the_query_or_is_left_out_as_told(
    spark: SparkSession, source: Source, folder: Path
) -> None:
    run(spark, source, folder)
    for value in range(4, 7):
        source.commit(f"INSERT INTO t VALUES ({value}, 'x')")
    for pin in source.remote.ask(PINS, VolumeRequest(source.vid.raw)).pins:
        source.remote.ask(UNPIN, UnpinRequest(source.vid.raw, pin=pin.pin_id.raw))
    source.remote.ask(ADVANCE, SinceRequest(source.vid.raw, since=4))
    query = stream(spark, folder, source.options(**FEED), into_files(folder / "out")).start()
    told = error_of(query)
    assert "the stream has come to LSN 2" in told
    assert "failOnDataLoss=false" in told
    assert "Traceback" not in told
    run(spark, source, folder, failOnDataLoss=False)
    assert [offset["lsn"] for offset in offsets(folder)] == [2, 5]
    assert [row[:4] for row in batches(folder)[1]] == [(6, "x", "insert", 5)]
