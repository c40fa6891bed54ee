"""Spark: volumes as tables, against other ways from a SQLite file to a DataFrame; each ratio from one interleaved run.

    python -m bench.spark [--quick] [scan filter export far changes skew cores decode]

A table of a million rows and eight columns lies in a volume, pushed to a store on this machine's disk, and in a plain
file, which the other ways read. Sessions have two cores. Each query is planned anew, with all that this takes, and ends
in a sink that takes every row with all its columns.
"""

from __future__ import annotations

import random
import shutil
import sqlite3
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql.functions import spark_partition_id

import budwood
from budwood.spark_export import java
from budwood.spark_export.export.run import export
from budwood.spark_export.session import check_libraries, end
from budwood.spark_export.source.page_reader import open_volume
from budwood.spark_export.source.volume_ref import find_volume_ref
from budwood.tables.changes.change_plan import plan_changes
from budwood.tables.changes.page_diff import run_changes
from budwood.volume.errors import UsageError
from budwood.volume.pageset import PageSet, span

from . import decode
from .cores import child
from .far import cold_read
from .harness import Figure, report, scratch, take_turns, timed
from .rivals import Rivals, adjoin, jdbc_jar
from .sessions import drain, load, session_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CORES: Final = 2
PARTITIONS: Final = 4
COLUMNS: Final = decode.COLUMNS
OURS: Final = "budwood"
CLUSTERS: Final = 16
SPLITS: Final = 8


@dataclass(frozen=True)
class Size:
    """How much is measured."""

    rows: int = 1_000_000
    rounds: int = 7
    short_rounds: int = 15
    """Many short turns: a query of a tenth of a second is soon disturbed."""
    long_rounds: int = 3
    """Of what takes many seconds."""
    copies: int = 4
    """The table that one core and two scan is so many times as long: what a query costs in itself is to count less."""


QUICK: Final = Size(rows=100_000, rounds=3, short_rounds=5, long_rounds=1, copies=2)


@dataclass(frozen=True)
class Setting:
    """The table in all its places."""

    session: SparkSession
    folder: Path
    remote: str
    rivals: Rivals
    size: Size
    has_jdbc: bool
    has_pandas: bool

    def ours(self, **options: object) -> DataFrame:
        return load(self.session, self.remote, "bench", **options)

    def push(self, path: Path, name: str) -> None:
        push(self.folder, self.remote, path, name)

    @property
    def parquet(self) -> Path:
        return self.folder / "parquet"

    @property
    def slow(self) -> str:
        return "sqlite3 → pandas → createDataFrame" if self.has_pandas else "sqlite3 → pyarrow → createDataFrame"

    def slowly(self) -> DataFrame:
        return self.rivals.pandas() if self.has_pandas else self.rivals.pyarrow(COLUMNS)


def push(folder: Path, remote: str, path: Path, name: str) -> None:
    with budwood.open(home=folder / "home", remote=remote) as edge:
        edge.import_(path, name)
        edge.volume(name).push()


def faster(
    name: str, seconds: Mapping[str, Sequence[float]], other: str, bound: float | None, note: str = ""
) -> Figure:
    """How many times as fast as the other way."""
    ratios = [theirs / ours for theirs, ours in zip(seconds[other], seconds[OURS], strict=True)]
    return Figure(name, statistics.median(ratios), "×", bound, ratios, _told(seconds, other, note), least=True)


def takes(name: str, seconds: Mapping[str, Sequence[float]], other: str, bound: float, note: str = "") -> Figure:
    """How many times as long as the other way."""
    ratios = [ours / theirs for theirs, ours in zip(seconds[other], seconds[OURS], strict=True)]
    return Figure(name, statistics.median(ratios), "×", bound, ratios, _told(seconds, other, note))


def _told(seconds: Mapping[str, Sequence[float]], other: str, note: str) -> str:
    ours, theirs = (statistics.median(seconds[side]) for side in (OURS, other))
    return f"{ours:.2f} s against {theirs:.2f}" + (f"; {note}" if note else "")


def turns(queries: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    def side(query: Callable[[], object]) -> Callable[[], float]:
        return lambda: timed(query)

    return take_turns({name: side(query) for name, query in queries.items()}, rounds)


def check(setting: Setting) -> None:
    """Every way has the same rows; a way that hasn't is no rival. Warms them up, too."""
    sums = [f"sum({name})" for name in ("id", "a", "b", "n")] + ["count(*)", "sum(length(s))", "sum(length(u))"]
    ways = {OURS: setting.ours(), "parquet": setting.rivals.parquet(setting.parquet), setting.slow: setting.slowly()}
    if setting.has_jdbc:
        ways["jdbc"] = setting.rivals.jdbc()
    found = {name: tuple(map(int, frame.selectExpr(*sums).collect()[0])) for name, frame in ways.items()}
    assert len(set(found.values())) == 1, found


def scans(setting: Setting) -> list[Figure]:
    queries: dict[str, Callable[[], object]] = {
        setting.slow: lambda: drain(setting.slowly()),
        OURS: lambda: drain(setting.ours(numPartitions=PARTITIONS)),
        "parquet": lambda: drain(setting.rivals.parquet(setting.parquet)),
    }
    if setting.has_jdbc:
        queries["jdbc"] = lambda: drain(setting.rivals.jdbc())
    seconds = turns(queries, setting.size.rounds)
    figures = [faster(f"full scan, against {setting.slow}", seconds, setting.slow, 5)]
    if setting.has_jdbc:
        figures.append(faster("full scan, against JDBC at equal partitions", seconds, "jdbc", 1.5))
    figures.append(takes("full scan, time against Spark's own of Parquet", seconds, "parquet", 2.5))
    return figures


def filters(setting: Setting) -> list[Figure]:
    """A load serves one query with push-down, so each query loads anew."""
    if not setting.has_jdbc:
        return []
    middle, part = setting.size.rows // 2, setting.size.rows // 100
    wheres = {
        "1 row in 100, by a column without an index": "a = 42",
        "1 row in 100, by a range of keys": f"id BETWEEN {middle} AND {middle + part}",
    }
    return [filtered(setting, name, where) for name, where in wheres.items()]


def filtered(setting: Setting, name: str, where: str) -> Figure:
    seconds = turns(
        {
            "jdbc": lambda: drain(setting.rivals.jdbc().where(where)),
            OURS: lambda: drain(setting.ours(pushDownPredicate="true").where(where)),
        },
        setting.size.short_rounds,
    )
    note = f"JDBC in {PARTITIONS} partitions, budwood in as many as it makes itself"
    return takes(f"{name}, time against JDBC", seconds, "jdbc", 1.3, note)


def exports(setting: Setting) -> list[Figure]:
    """Each time into a folder of its own."""
    number = iter(range(1000))
    split_bytes = -(-setting.rivals.path.stat().st_size // PARTITIONS)

    def ours() -> None:
        to = setting.folder / f"lake{next(number)}"
        export("bench", to=to, remote=setting.remote, split_bytes=split_bytes, session=setting.session)

    def theirs() -> None:
        setting.slowly().write.parquet(str(setting.folder / f"lake{next(number)}"))

    seconds = turns({"theirs": theirs, OURS: ours}, setting.size.long_rounds)
    return [faster(f"Parquet export, against {setting.slow} → write", seconds, "theirs", 5)]


def commit_little(setting: Setting) -> int:
    """One commit that changes, adds and removes a few rows here and there; how many pages it wrote."""
    rng = random.Random(5)
    keys = rng.sample(range(setting.size.rows), 120)
    home = setting.folder / "home"
    with closing(budwood.connect("bench", home=home, remote=setting.remote)) as db, db:
        db.executemany("UPDATE t SET x = x + 1 WHERE id = ?", [(key,) for key in keys[:100]])
        db.executemany("DELETE FROM t WHERE id = ?", [(key,) for key in keys[100:]])
        db.execute(f"INSERT INTO t SELECT id + {setting.size.rows}, a, b, x, y, s, u, n FROM t LIMIT 20")
    with budwood.open(home=home, remote=setting.remote) as edge:
        edge.volume("bench").push()
    return len(open_volume(find_volume_ref("bench", remote=setting.remote)).changed(1, 2))


def changes(setting: Setting) -> list[Figure]:
    pages = commit_little(setting)
    expected = {"update_preimage": 100, "update_postimage": 100, "delete": 20, "insert": 20}

    def feed() -> DataFrame:
        return setting.ours(readChangeFeed="true", startingVersion=2, endingVersion=2)

    def differences() -> None:
        old, new = setting.ours(versionAsOf=1), setting.ours(versionAsOf=2)
        drain(new.exceptAll(old))
        drain(old.exceptAll(new))

    found = {row[0]: row[1] for row in feed().groupBy("_change_type").count().collect()}
    assert found == expected, found
    rounds = setting.size.long_rounds
    in_spark = turns({"exceptAll": differences, OURS: lambda: drain(feed())}, rounds)
    alone = turns({"all rows": lambda: differ(setting, None), OURS: lambda: differ(setting, pages)}, rounds)
    note = f"120 rows changed, 20 of them deleted, and 20 added, on {pages} pages"
    return [
        faster("a small commit's change feed, against two exceptAll", in_spark, "exceptAll", 15, note),
        faster("the same without Spark, against our own comparison of all rows", alone, "all rows", 15),
    ]


def differ(setting: Setting, told: int | None) -> None:
    """The step's rows, in this process: by the pages that changed, or as if that weren't known."""
    reached = open_volume(find_volume_ref("bench", remote=setting.remote))
    old, new = (reached.pages(reached.snapshot(lsn=lsn)) for lsn in (1, 2))
    changed: PageSet = span(1, max(old.page_count, new.page_count)) if told is None else reached.changed(1, 2)
    planned = plan_changes(old, new, changed, "t")
    rows = sum(batch.num_rows for task in planned.tasks for batch in run_changes(task, old, new))
    assert rows == 240, (rows, planned.method, planned.reason)


def skew(setting: Setting) -> list[Figure]:
    """Rows of the largest partition against the mean; keys in clusters, as keys are that hold a time or a device."""
    rows = setting.size.rows // 5
    path = setting.folder / "clustered.db"
    decode.fill(path, rows)
    width = -(-rows // CLUSTERS)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("CREATE TABLE c (id INTEGER PRIMARY KEY, a INT, b BIGINT, x REAL, y REAL, s TEXT, u TEXT, n INT)")
        # Each cluster begins farther from the one before.
        db.execute(f"INSERT INTO c SELECT id + (id / {width} * (id / {width})) * 10000000, a, b, x, y, s, u, n FROM t")
        db.execute("DROP TABLE t")
        db.execute("ALTER TABLE c RENAME TO t")
        (last,) = db.execute("SELECT max(id) FROM t").fetchone()
    setting.push(path, "clustered")
    frames = {OURS: load(setting.session, setting.remote, "clustered", numPartitions=SPLITS)}
    if setting.has_jdbc:
        frames["jdbc"] = Rivals(setting.session, path, rows, SPLITS).jdbc(last=last)
    found: dict[str, float] = {}
    for name, frame in frames.items():
        counted = frame.groupBy(spark_partition_id()).count().collect()
        assert sum(row[1] for row in counted) == rows
        found[name] = max(row[1] for row in counted) * SPLITS / rows
    note = f"rows, {CLUSTERS} clusters" + (f"; JDBC's ranges of keys: {found['jdbc']:.1f}×" if "jdbc" in found else "")
    return [Figure(f"the largest of {SPLITS} splits against the mean", found[OURS], "×", 1.2, note=note)]


def cores(folder: Path, remote: str, path: Path, size: Size) -> list[Figure]:
    enlarge(path, folder / "large.db", size)
    push(folder, remote, folder / "large.db", "large")
    partitions = PARTITIONS * 2
    with (
        child(1, remote, "large", partitions, folder / "bound", processors=1) as bound,
        child(1, remote, "large", partitions, folder / "one") as one,
        child(2, remote, "large", partitions, folder / "two") as two,
    ):
        for each in (bound, one, two):
            each.answer()
        seconds = take_turns({"bound": bound.scan, "one": one.scan, OURS: two.scan}, size.rounds)
    note = f"{size.rows * size.copies:,} rows, {partitions} partitions"
    free = "its Java and its Python keep two processors busy"
    return [
        faster("full scan, local[2] against local[1] on one processor", seconds, "bound", 1.6, note),
        faster("full scan, local[2] against local[1] on all processors", seconds, "one", 1.6, free),
    ]


def decoder(path: Path, extras: Path, size: Size) -> list[Figure]:
    """Of one core; `python -m bench.decode` has more."""
    if not adjoin("adbc_driver_sqlite", extras):
        say("ADBC is not compared: adbc-driver-sqlite isn't installed, and pip can't have it")
        return []
    pa.set_cpu_count(1)
    ways = decode.Ways(path)
    return [
        decode.faster(
            f"decoder alone, {len(columns)} columns, against ADBC, per core",
            partial(ways.pages, columns),
            partial(ways.adbc, columns),
            2,
            size.rows,
        )
        for columns in (COLUMNS, ("a", "x"))
    ]


def say(line: str) -> None:
    print(f"spark: {line}", file=sys.stderr)


def far(setting: Setting) -> list[Figure]:
    return cold_read(setting.session, setting.folder, setting.rivals.path, setting.size.rows)


IN_SESSION: Final[Mapping[str, Callable[[Setting], list[Figure]]]] = {
    "scan": scans,
    "filter": filters,
    "export": exports,
    "far": far,
    "changes": changes,
    "skew": skew,
}
PARTS: Final = (*IN_SESSION, "cores", "decode")


def in_session(folder: Path, extras: Path, remote: str, path: Path, size: Size, wanted: Sequence[str]) -> list[Figure]:
    """What is measured in one session of two cores."""
    chosen = [measure for name, measure in IN_SESSION.items() if name in wanted]
    if not chosen:
        return []
    has_jdbc, has_pandas = jdbc_jar() is not None, adjoin("pandas", extras)
    if not has_jdbc:
        say("JDBC is not compared: its jar isn't here (apt-get install libxerial-sqlite-jdbc-java)")
    if not has_pandas:
        say("pandas isn't installed, and pip can't have it: sqlite3 → pyarrow → createDataFrame stands in for it")
    session = session_of(f"local[{CORES}]", folder / "session")
    try:
        rivals = Rivals(session, path, size.rows, PARTITIONS)
        setting = Setting(session, folder, remote, rivals, size, has_jdbc, has_pandas)
        setting.ours().write.parquet(str(setting.parquet))
        check(setting)
        return [figure for measure in chosen for figure in measure(setting)]
    finally:
        end(session)


def enlarge(path: Path, large: Path, size: Size) -> None:
    """The same rows several times, under further keys."""
    shutil.copy(path, large)
    with closing(sqlite3.connect(large)) as db, db:
        for copy in range(1, size.copies):
            db.execute(
                f"INSERT INTO t SELECT id + {copy * size.rows}, a, b, x, y, s, u, n FROM t WHERE id < {size.rows}"
            )


def main(arguments: Sequence[str]) -> None:
    size = QUICK if "--quick" in arguments else Size()
    wanted = [name for name in arguments if name != "--quick"] or PARTS
    if set(wanted) - set(PARTS):
        raise SystemExit(f"spark: the parts are {', '.join(PARTS)}; and --quick makes all of them small")
    try:
        check_libraries()
        java.find()
    except UsageError as error:
        raise SystemExit(f"spark: {error}") from None
    # What pip brings lies outside of the checkout, whose checks look at all that lies in it.
    with scratch() as folder, TemporaryDirectory(prefix="budwood-bench-") as extras:
        remote = (folder / "store").as_uri()
        path = folder / "bench.db"
        decode.fill(path, size.rows)
        push(folder, remote, path, "bench")
        figures = in_session(folder, Path(extras), remote, path, size, wanted)
        if "cores" in wanted:
            figures += cores(folder, remote, path, size)
        if "decode" in wanted:
            figures += decoder(path, Path(extras), size)
    # What is kept as the bench's result is a whole run.
    name = "spark" if size == Size() and set(wanted) == set(PARTS) else "spark in part"
    report(f"{name}: {size.rows:,} rows × {len(COLUMNS)} columns, local[{CORES}]", figures)


if __name__ == "__main__":
    main(sys.argv[1:])
