"""Random commits, and a mirror that knows nothing but the change feed: at every LSN it is the table itself."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.feeds import NAME, Mirror, Source, sourced

import budwood
from budwood.spark_export.source.change_feed import ChangeFeedReader, plan_feed
from budwood.spark_export.source.resolution import resolve
from budwood.volume.calls import SNAPSHOT, SnapshotRequest

TABLES = [
    "CREATE TABLE t (id INTEGER PRIMARY KEY, a INTEGER, b TEXT, c BLOB)",
    "CREATE TABLE t (id TEXT PRIMARY KEY, a INTEGER, b TEXT, c BLOB) WITHOUT ROWID",
    "CREATE TABLE t (id INTEGER PRIMARY KEY, a INTEGER, b TEXT, c BLOB); CREATE INDEX i ON t (b)",
]
OTHER = "CREATE TABLE other (n INTEGER PRIMARY KEY, x BLOB)"
GROWING = "CAST(printf('%.*c', i % 50, 'x') || i AS BLOB)"
MANY = "WITH RECURSIVE r(i) AS (SELECT {0} UNION ALL SELECT i + 1 FROM r WHERE i < {0} + {1})"

keys, few = st.integers(-5, 300), st.integers(0, 120)
statements = st.one_of(
    st.builds(
        (MANY + " INSERT OR IGNORE INTO t SELECT i, i % 7, 'text ' || i, " + GROWING + " FROM r").format,
        keys,
        few,
    ),
    st.builds("INSERT OR REPLACE INTO t VALUES ({}, 1, NULL, zeroblob({}))".format, keys, st.integers(0, 9000)),
    st.builds("UPDATE t SET a = a + 1 WHERE CAST(id AS INTEGER) % {} = 0".format, st.integers(2, 60)),
    st.builds("UPDATE t SET b = b || ' and more, {}' WHERE CAST(id AS INTEGER) BETWEEN {} AND 200".format, few, keys),
    # In place, and often in an overflow page alone.
    st.builds(
        "UPDATE t SET c = CAST(substr(c, 1, length(c) - 1) || x'{:02x}' AS BLOB) WHERE length(c) > 40".format, few
    ),
    st.builds("DELETE FROM t WHERE CAST(id AS INTEGER) BETWEEN {0} AND {0} + {1}".format, keys, few),
    st.just("DELETE FROM t"),
    st.builds((MANY + " INSERT OR REPLACE INTO other SELECT i, zeroblob(i % 90) FROM r").format, keys, few),
    st.just("DELETE FROM other"),
    st.just("VACUUM"),
    st.just("CREATE TABLE IF NOT EXISTS third AS SELECT * FROM t"),
    st.just("DROP TABLE IF EXISTS third"),
)
commits = st.lists(st.lists(statements, min_size=1, max_size=3), min_size=1, max_size=7)


def read_feed(options: dict[str, str]) -> Iterator[tuple[Any, ...]]:
    """As Spark does it, without it: what is planned is pickled on its way to where it is read."""
    feed = pickle.loads(pickle.dumps(plan_feed(resolve(options))))
    reader = ChangeFeedReader(feed)
    for partition in reader.partitions():
        again = pickle.loads(pickle.dumps(partition))
        for batch in pickle.loads(pickle.dumps(reader)).read(again):
            assert batch.schema.equals(feed.schema)
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def newest_time(source: Source, lsn: int) -> Any:
    ms = source.remote.ask(SNAPSHOT, SnapshotRequest(source.vid.raw, lsn=lsn)).time
    return pa.scalar(ms * 1000, pa.timestamp("us", "UTC")).as_py()


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(TABLES), commits, st.integers(0, 3), st.sampled_from(["none", "2", "40k"]))
def test_a_mirror_by_the_feed_is_the_table_at_every_lsn(
    table: str, work: list[list[str]], skipped: int, cut: str
) -> None:
    with tempfile.TemporaryDirectory() as folder, sourced(Path(folder)) as source:
        source.commit(OTHER)
        source.commit(table)
        last = 2
        for some in work:
            last = source.commit(*some)
        first = min(1 + skipped, last)
        more = {"none": {}, "2": {"numPartitions": 2}, "40k": {"splitBytes": 40_000}}[cut]
        told = list(read_feed(source.options(readChangeFeed=True, startingVersion=first, **more)))
        mirror = Mirror({row[0]: row for row in (source.rows(first - 1) if first > 1 else [])})
        versions = {row[-2]: row[-1] for row in told}
        for lsn in range(first, last + 1):
            assert list(mirror.apply(row for row in told if row[-2] == lsn)) == [lsn] * (lsn in versions)
            assert mirror.sorted == source.rows(lsn), f"at LSN {lsn}"
            if lsn in versions:
                assert versions[lsn] == newest_time(source, lsn)
        assert set(versions) <= set(range(first, last + 1))


def test_a_fork_tells_what_its_parent_changed_before_it(tmp_path: Path) -> None:
    with sourced(tmp_path) as source:
        source.commit("CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT)", "INSERT INTO t VALUES (1, 'x')")
        source.commit("INSERT INTO t VALUES (2, 'y')")
        source.commit("DELETE FROM t")
        source.edge.fork(NAME, "f", lsn=2)
        with closing(budwood.connect("f", home=source.edge.home, remote=source.edge.remote)) as db:
            db.execute("INSERT INTO t VALUES (3, 'of the fork')")
        source.edge.volume("f").push()
        # Its own LSNs begin behind its parent's; those are readable as long as the parent has them.
        assert source.remote.ask(SNAPSHOT, SnapshotRequest(source.edge.volume("f").id.raw)).since > 1
        told = read_feed(source.options(volume="f", readChangeFeed=True, startingVersion=1))
        assert sorted(row[:4] for row in told) == [
            (1, "x", "insert", 1),
            (2, "y", "insert", 2),
            (3, "of the fork", "insert", 3),
        ]
