"""A stream's reader, driven as Spark drives it: offsets through JSON, a process that is gone with whatever it knew, and
batches that run again. What Spark itself makes of it: test_spark_stream.py.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadAllAvailable
from tests.feeds import NAME, Mirror, Source, sourced
from tests.streams import Query

from budwood.spark_export.source.page_reader import open_volume
from budwood.spark_export.source.resolution import resolve
from budwood.spark_export.source.stream_leases import StreamLeases
from budwood.volume.calls import (
    ADVANCE,
    PIN,
    PINS,
    SNAPSHOT,
    UNPIN,
    PinRequest,
    SinceRequest,
    SnapshotRequest,
    UnpinRequest,
    VolumeRequest,
)
from budwood.volume.errors import BadInput, Forgotten, NotFound
from budwood.volume.ids import PinId

from ..waits import wait_until
from .cli import serving


@pytest.fixture
def source(tmp_path: Path) -> Iterator[Source]:
    """Volume `v` at LSN 2."""
    with sourced(tmp_path) as source:
        source.commit("CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT)", "INSERT INTO t VALUES (1, 'x'), (2, 'y')")
        source.commit("INSERT INTO t VALUES (3, 'z')")
        yield source


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody commits while a reader here waits for a commit."""
    monkeypatch.setattr("budwood.spark_export.source.stream.WAIT_SECONDS", 0.0)


@pytest.fixture
def query(source: Source) -> Iterator[Query]:
    query = Query(source, {"readChangeFeed": True})
    yield query
    query.kill()


def held(source: Source) -> list[int]:
    return sorted(
        pin.lsn
        for pin in source.remote.ask(PINS, VolumeRequest(source.vid.raw)).pins
        if pin.owner == "a stream in Spark"
    )


def lapse(source: Source) -> None:
    """All leases, as if their time had come."""
    for pin in source.remote.ask(PINS, VolumeRequest(source.vid.raw)).pins:
        source.remote.ask(UNPIN, UnpinRequest(source.vid.raw, pin=pin.pin_id.raw))


events = st.lists(st.sampled_from(["commit", "commit", "batch", "planned", "crash", "kill", "drop"]), max_size=14)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(events, st.none() | st.integers(1, 2), st.sampled_from(["whole", 1, 2, "latest"]))
def test_a_mirror_by_a_stream_that_is_killed_anywhere_is_the_table(
    schedule: list[str], most: int | None, start: str | int
) -> None:
    with tempfile.TemporaryDirectory() as folder, sourced(Path(folder)) as source:
        source.commit("CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT)", "INSERT INTO t VALUES (1, 'x'), (2, 'y')")
        source.commit("UPDATE t SET a = 'z' WHERE id = 2")
        options: dict[str, Any] = {"readChangeFeed": True}
        if most is not None:
            options["maxVersionsPerTrigger"] = most
        if start != "whole":
            options["startingVersion"] = start
        query, lsn = Query(source, options), 2
        mirror = Mirror()
        try:
            query.start()
            if start != "whole":
                before = lsn if start == "latest" else int(start) - 1
                mirror.rows = {row[0]: row for row in (source.rows(before) if before else [])}
            if start == "latest":
                assert query.process_all() == []
            for event in schedule:
                if event == "commit":
                    lsn = source.commit(
                        f"INSERT INTO t VALUES ({lsn * 10}, 'new')", f"UPDATE t SET a = a || {lsn} WHERE id % 3 = 2"
                    )
                elif event == "drop":
                    lsn = source.commit("DELETE FROM t WHERE id % 20 = 0", "CREATE TABLE IF NOT EXISTS u (x)")
                elif event == "kill":
                    query.kill()
                elif event == "planned":
                    if query.done == len(query.log):
                        query.plan()
                    query.kill()
                elif query.done < len(query.log) or query.plan():
                    query.run(crashes=event == "crash")
            query.process_all()
        finally:
            query.kill()
        list(mirror.apply(query.rows))
        assert mirror.sorted == source.rows(lsn)
        assert query.lsns()[-1] == lsn


def test_the_first_batch_that_runs_again_is_the_same_though_the_head_has_moved(source: Source, query: Query) -> None:
    query.plan()
    query.kill()
    source.commit("INSERT INTO t VALUES (4, 'later')")
    assert sorted(row[:2] for row in query.run(crashes=True)) == [(1, "x"), (2, "y"), (3, "z")]
    source.commit("DELETE FROM t")
    assert {row[2:4] for row in query.run()} == {("insert", 2)}
    assert [row[2:4] for row in query.process_all()] == [("delete", 4)] * 4 + [("insert", 3)]


def test_the_lsn_that_the_query_has_come_to_is_held_by_one_lease_across_restarts(source: Source, query: Query) -> None:
    query.process_all()
    assert held(source) == [2]
    for value in range(4, 7):
        lsn = source.commit(f"INSERT INTO t VALUES ({value}, 'x')")
        query.process_all()
        # The batch's beginning is let go of when the next one is planned.
        assert held(source) == [lsn - 1, lsn]
    query.kill()
    assert held(source) == [4, 5]
    source.remote.ask(ADVANCE, SinceRequest(source.vid.raw, since=5))
    assert not query.plan()
    assert held(source) == [5]


def test_a_checkpoint_ahead_of_the_volume_is_refused(source: Source, query: Query) -> None:
    source.commit("DELETE FROM t")
    query.process_all()
    source.commit("INSERT INTO t VALUES (4, 'w')")
    query.process_all()
    # As it looks where the store was put back to an older copy.
    query.log[-1] = json.dumps(json.loads(query.log[-1]) | {"lsn": 9, "after": 8})
    with pytest.raises(BadInput, match=r"has come to LSN 9, and volume 'v' ends at LSN 4: .* a new checkpoint"):
        query.plan()


def test_available_now_ends_where_the_volume_was_and_keeps_to_its_limit(source: Source, query: Query) -> None:
    query.options |= {"startingVersion": 1, "maxVersionsPerTrigger": 1}
    query.start(available_now=True)
    query.plan()
    source.commit("INSERT INTO t VALUES (4, 'later')")
    query.process_all()
    assert query.lsns() == [1, 2]
    query.kill()
    query.start(available_now=True)
    query.process_all()
    assert query.lsns() == [1, 2, 3]
    reader = query.reader
    assert reader is not None
    # Trigger.Once asks for all that there is, whatever the limit.
    source.commit("INSERT INTO t VALUES (5, 'later')")
    source.commit("INSERT INTO t VALUES (6, 'later')")
    query.kill()
    end = query.start().latestOffset(json.loads(query.log[-1]), ReadAllAvailable())
    assert end["lsn"] == 5


def test_an_lsn_that_was_forgotten_ends_the_query_and_says_the_way_out(source: Source, query: Query) -> None:
    query.process_all()
    query.kill()
    for value in range(4, 8):
        source.commit(f"INSERT INTO t VALUES ({value}, 'x')")
    lapse(source)
    source.remote.ask(ADVANCE, SinceRequest(source.vid.raw, since=5))
    with pytest.raises(Forgotten, match=r"come to LSN 2.*its since, is 5.*failOnDataLoss=false.*new checkpoint"):
        query.plan()
    assert query.lsns() == [2]


def test_where_losing_is_accepted_it_goes_on_from_the_oldest_that_can_be_read(source: Source, query: Query) -> None:
    query.process_all()
    query.kill()
    for value in range(4, 8):
        source.commit(f"INSERT INTO t VALUES ({value}, 'x')")
    lapse(source)
    source.remote.ask(ADVANCE, SinceRequest(source.vid.raw, since=5))
    query.options["failOnDataLoss"] = False
    assert [row[:4] for row in query.process_all()] == [(7, "x", "insert", 6)]
    assert json.loads(query.log[-1])["after"] == 5


@pytest.mark.parametrize("first", [1, 2, 3])
def test_a_start_that_somebody_holds_loses_no_rows_but_the_steps_between(
    source: Source, query: Query, first: int
) -> None:
    mirror = Mirror()
    if first > 1:
        mirror.rows = {row[0]: row for row in source.rows(first - 1)}
        hold = PinRequest(source.vid.raw, lsn=first - 1, pin=PinId.new().raw, seconds=0, kind="named")
        source.remote.ask(PIN, hold)
    for value in range(4, 7):
        source.commit(f"INSERT INTO t VALUES ({value}, 'x')", "UPDATE t SET a = a || 1 WHERE id = 1")
    query.options["startingVersion"] = first
    source.remote.ask(ADVANCE, SinceRequest(source.vid.raw, since=4))
    with pytest.raises(Forgotten, match=rf"what LSN {first} changed can't be told: LSN {first} is forgotten"):
        query.plan()
    query.kill()
    query.options["failOnDataLoss"] = False
    query.process_all()
    assert list(mirror.apply(query.rows)) == [4, 5]
    assert mirror.sorted == source.rows(5)


def test_a_start_that_somebody_holds_and_all_behind_it_that_can_be_read_is_whole(source: Source, query: Query) -> None:
    source.commit("INSERT INTO t VALUES (4, 'w')")
    source.remote.ask(PIN, PinRequest(source.vid.raw, lsn=1, pin=PinId.new().raw, seconds=0, kind="named"))
    source.remote.ask(ADVANCE, SinceRequest(source.vid.raw, since=2))
    query.options["startingVersion"] = 2
    assert [row[:4] for row in query.process_all()] == [(3, "z", "insert", 2), (4, "w", "insert", 3)]


def test_what_is_still_held_loses_no_rows_but_the_steps_between(source: Source, query: Query) -> None:
    query.process_all()
    query.kill()
    for value in range(4, 8):
        source.commit(f"INSERT INTO t VALUES ({value}, 'x')", "UPDATE t SET a = a || 1 WHERE id = 1")
    source.remote.ask(ADVANCE, SinceRequest(source.vid.raw, since=5))
    with pytest.raises(Forgotten, match="still holds LSN 2, so failOnDataLoss=false goes on with the sum"):
        query.plan()
    query.kill()
    query.options["failOnDataLoss"] = False
    query.process_all()
    assert query.lsns() == [2, 5, 6]
    mirror = Mirror()
    assert list(mirror.apply(query.rows)) == [2, 5, 6]
    assert mirror.sorted == source.rows(6)


def test_a_planned_batch_of_which_lsns_were_forgotten(source: Source, query: Query) -> None:
    query.process_all()
    for value in range(4, 8):
        source.commit(f"INSERT INTO t VALUES ({value}, 'x')")
    query.plan()
    query.kill()
    source.remote.ask(ADVANCE, SinceRequest(source.vid.raw, since=6))
    with pytest.raises(Forgotten, match="failOnDataLoss=false"):
        query.run()
    query.kill()
    query.options["failOnDataLoss"] = False
    assert [row[:4] for row in query.run()] == [(value, "x", "insert", 6) for value in range(4, 8)]


def test_a_first_batch_whose_lsn_was_forgotten_asks_for_a_new_checkpoint(source: Source, query: Query) -> None:
    query.plan()
    query.kill()
    source.commit("INSERT INTO t VALUES (4, 'x')")
    lapse(source)
    source.remote.ask(ADVANCE, SinceRequest(source.vid.raw, since=3))
    query.options["failOnDataLoss"] = False
    with pytest.raises(Forgotten, match=r"began with the table as LSN 2.*new checkpoint"):
        query.run()


def test_columns_that_change_end_the_query_and_started_again_it_has_them(source: Source, query: Query) -> None:
    query.process_all()
    source.commit("INSERT INTO t VALUES (4, 'x')")
    source.commit("ALTER TABLE t ADD COLUMN b TEXT")
    source.commit("INSERT INTO t VALUES (5, 'y', 'z')")
    query.plan()
    with pytest.raises(BadInput, match=r"LSN 4 .* other columns \(b is new\).*those of LSN 2: start the query again"):
        query.run()
    query.kill()
    assert [row[:-1] for row in query.run()] == [(4, "x", None, "insert", 3), (5, "y", "z", "insert", 5)]


def test_a_column_that_is_named_hides_others_that_come(source: Source, query: Query) -> None:
    query.options["columns"] = "a"
    query.process_all()
    source.commit("ALTER TABLE t ADD COLUMN b TEXT", "INSERT INTO t VALUES (4, 'x', 1)")
    assert [row[:-1] for row in query.process_all()] == [("x", "insert", 3)]


def test_a_table_that_is_dropped_ends_in_deletes_and_may_come_again(source: Source, query: Query) -> None:
    query.process_all()
    source.commit("DROP TABLE t")
    source.commit("CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT)", "INSERT INTO t VALUES (1, 'again')")
    found = [row[:-1] for row in query.process_all()]
    assert found == [
        (1, "again", "insert", 4),
        (1, "x", "delete", 3),
        (2, "y", "delete", 3),
        (3, "z", "delete", 3),
    ]


@pytest.mark.parametrize("fails", [True, False])
def test_a_volume_that_is_removed_ends_the_query_after_the_batch_that_it_holds(
    source: Source, query: Query, fails: bool
) -> None:
    query.options |= {"volume": source.vid, "failOnDataLoss": fails}
    query.process_all()
    source.commit("INSERT INTO t VALUES (4, 'held')")
    query.plan()
    source.edge.rm(NAME, remote=True)
    assert [row[:4] for row in query.run()] == [(4, "held", "insert", 3)]
    for _ in range(2):
        with pytest.raises(NotFound, match=r"^volume '\w+' was removed at LSN 3, and the stream has come to LSN 3$"):
            query.plan()
        query.kill()


@pytest.mark.parametrize("fails", [True, False])
def test_a_volume_that_is_removed_with_commits_that_the_query_has_not_come_to_ends_it_at_once(
    source: Source, query: Query, fails: bool
) -> None:
    query.options |= {"volume": source.vid, "failOnDataLoss": fails}
    query.process_all()
    source.commit("INSERT INTO t VALUES (4, 'lost')")
    source.edge.rm(NAME, remote=True)
    for _ in range(2):
        with pytest.raises(NotFound, match=r"^volume \w+ was removed$"):
            query.plan()
        query.kill()


def test_without_the_feed_new_rows_come_and_anything_else_ends_the_query(source: Source) -> None:
    query = Query(source)
    try:
        assert query.process_all() == [(1, "x"), (2, "y"), (3, "z")]
        source.commit("INSERT INTO t VALUES (4, 'new')", "VACUUM")
        assert query.process_all() == [(4, "new")]
        source.commit("INSERT INTO t VALUES (5, 'new')", "UPDATE t SET a = '' WHERE id = 1")
        query.plan()
        with pytest.raises(BadInput, match=r"LSN 4 of volume 'v' changed or deleted rows.*readChangeFeed=true"):
            query.run()
    finally:
        query.kill()


def test_a_name_that_leads_to_another_volume_does_not_continue_the_first_ones_checkpoint(
    source: Source, query: Query, tmp_path: Path
) -> None:
    query.process_all()
    query.kill()
    first = source.vid
    source.edge.mv(NAME, "old")
    source.commit("CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT)")
    assert source.vid != first
    with pytest.raises(BadInput, match=f"checkpoint is of table 't' of volume {first}.*read that one by its id"):
        query.start()
    query.kill()
    query.options["volume"] = str(first)
    assert query.process_all() == []


def test_a_stream_begins_where_it_is_told(source: Source) -> None:
    time_ms = source.remote.ask(SNAPSHOT, SnapshotRequest(source.vid.raw)).time
    for options, rows in (
        ({"startingVersion": 2}, [(3, "z", "insert", 2)]),
        ({"startingVersion": 3}, []),
        ({"startingVersion": "latest"}, []),
        ({"startingTimestamp": at(time_ms)}, [(3, "z", "insert", 2)]),
        ({"startingTimestamp": at(time_ms + 1)}, []),
    ):
        query = Query(source, {"readChangeFeed": True, **options})
        try:
            assert [row[:-1] for row in query.process_all()] == rows, options
            # The first batch is written down, with rows or without.
            assert query.lsns() == [2], options
        finally:
            query.kill()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"startingVersion": 4}, "startingVersion is 4, and the newest LSN is 2"),
        ({"startingTimestamp": "2999-01-01T00:00:00Z"}, "lies in the future"),
        ({"endingVersion": 2}, "endingVersion is not for streams"),
        ({"versionAsOf": 1}, "versionAsOf is not for streams"),
    ],
)
def test_a_start_that_cannot_be_is_refused(source: Source, options: dict[str, Any], words: str) -> None:
    query = Query(source, {"readChangeFeed": True, **options})
    try:
        with pytest.raises(BadInput, match=words):
            query.plan()
    finally:
        query.kill()


def test_a_lease_is_renewed_while_the_query_runs_and_no_longer(source: Source) -> None:
    place = resolve(source.options()).ref
    leases = StreamLeases(place, 9.0)
    pin = leases.take(2)
    (lease,) = leases.all()
    wait_until(
        lambda: [
            found
            for found in source.remote.ask(PINS, VolumeRequest(source.vid.raw)).pins
            if found.expiry > lease.expiry_ms
        ]
    )
    leases.close()
    assert str(lease.pin) == pin
    again = StreamLeases(place, 600.0)
    try:
        assert again.adopt(2, pin)
        assert held(source) == [2]
        source.commit("INSERT INTO t VALUES (4, 'x')")
        source.commit("INSERT INTO t VALUES (5, 'x')")
        again.release_below(3)
        assert held(source) == []
        lapse(source)
        source.remote.ask(ADVANCE, SinceRequest(source.vid.raw, since=4))
        # Another client learns of it when it looks.
        assert open_volume(place).snapshot().since == 4
        assert not again.adopt(2, pin)
        assert not again.adopt(3, "no pin's id")
        with pytest.raises(Forgotten):
            again.take(3)
    finally:
        again.close()


def test_without_leases_nothing_is_held_and_the_stream_runs_all_the_same(source: Source, query: Query) -> None:
    query.options["leaseSeconds"] = 0
    query.process_all()
    source.commit("INSERT INTO t VALUES (4, 'x')")
    query.process_all()
    query.kill()
    assert query.lsns() == [2, 3]
    assert source.remote.ask(PINS, VolumeRequest(source.vid.raw)).pins == ()
    assert "pin" not in json.loads(query.log[-1])
    source.commit("INSERT INTO t VALUES (5, 'x')")
    source.remote.ask(ADVANCE, SinceRequest(source.vid.raw, since=4))
    with pytest.raises(Forgotten, match="goes on without them"):
        query.plan()
    query.kill()
    query.options["failOnDataLoss"] = False
    assert query.process_all() == []


def test_a_stream_from_a_node_over_http(tmp_path: Path) -> None:
    with serving(tmp_path / "store") as url, sourced(tmp_path, url) as source:
        source.commit("CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT)", "INSERT INTO t VALUES (1, 'x'), (2, 'y')")
        query = Query(source, {"readChangeFeed": True})
        try:
            query.plan()
            query.run(crashes=True)
            source.commit("UPDATE t SET a = 'z' WHERE id = 2")
            source.commit("DELETE FROM t WHERE id = 1")
            query.process_all()
            query.kill()
            source.commit("INSERT INTO t VALUES (3, 'new')")
            query.process_all()
            assert held(source) == [3, 4]
        finally:
            query.kill()
        mirror = Mirror()
        assert list(mirror.apply(query.rows)) == [1, 2, 3, 4]
        assert mirror.sorted == source.rows(4)


def test_rowids_of_a_table_that_is_only_appended_to(source: Source) -> None:
    query = Query(source, {"rowIdColumn": "r", "columns": "a"})
    try:
        assert query.process_all() == [(1, "x"), (2, "y"), (3, "z")]
    finally:
        query.kill()


def at(ms: int) -> str:
    seconds, rest = divmod(ms, 1000)
    return time.strftime(f"%Y-%m-%dT%H:%M:%S.{rest:03d}+00:00", time.gmtime(seconds))
