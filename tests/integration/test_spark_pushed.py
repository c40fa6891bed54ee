"""Filters through a real Spark session: with push-down or without, a query has the same rows.

What Spark answers without push-down is asked in one job: each predicate is a column. With it each predicate has a
load() of its own, as it must (source/pushdown.py), and many are united to one job.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from contextlib import closing
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import budwood
from budwood.sync.edge import Edge

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SETTING = "spark.sql.python.filterPushdown.enabled"
PREDICATES = 240
ALONE = 24
TOGETHER = 10

TYPES = {"decimals": "true", "booleans": "true", "dates": "true", "timestamps": "true", "typeMismatch": "null"}
LEAST = "(-9223372036854775807 - 1)"
IDS = ["5", "0", "-1", "9223372036854775807", LEAST, "250", "299", "7L", "5.5", "5.0D", "'7'"]
POOLS: dict[str, list[str]] = {
    "id": IDS,
    "l": [*IDS, "9007199254740993", "9007199254740992", "9.007199254740993e15D"],
    "d": ["0.0D", "-0.0D", "1.5D", "double('NaN')", "double('Infinity')", "-double('Infinity')", "1", "1.5", "1e-300D"],
    "s": ["''", "'a'", "'A'", "'ab'", "'é'", "'日本'", "'\U0001f331'", "'a '", r"'a\0b'", "'\uffff'", "'7'"],
    "b": ["X''", "X'00'", "X'61'", "X'7F'", "X'80'", "X'FF'", "X'610062'"],
    "c": ["0", "1.5", "-1.50", "99999999.99", "0.01", "1.505", "1e0D", "100000000"],
    "o": ["true", "false"],
    "t": ["DATE'1970-01-01'", "DATE'2024-02-29'", "DATE'1582-10-07'", "DATE'9999-12-31'", "'2024-02-29'"],
    "w": [
        "TIMESTAMP'1970-01-01 00:00:00Z'",
        "TIMESTAMP'2024-02-29 12:30:00.000001Z'",
        "TIMESTAMP'2024-02-29 13:30:00+01:00'",
        "TIMESTAMP'1800-01-01 00:00:00Z'",
        "DATE'2024-02-29'",
    ],
}
STORED: dict[str, list[Any]] = {
    "l": [5, 0, -1, (1 << 63) - 1, -(1 << 63), 2**53, 2**53 + 1, 7, "no", 1.5],
    "d": [0.0, -0.0, 1.5, float("inf"), float("-inf"), 2.0**53, 1e-300, 7, "no"],
    "s": ["", "a", "A", "ab", "b", "é", "日本", "\U0001f331", "a\0b", "a ", "\uffff", "7", b"\xff"],
    "b": [b"", b"\0", b"a", b"\x7f", b"\x80", b"\xff", b"a\0b", "text"],
    "c": [0, 1.5, -1.5, 99999999.99, 0.01, 1e300],
    "o": [1, 0, 2],
    "t": ["1970-01-01", "2024-02-29", "1582-10-07", "9999-12-31", "never"],
    "w": ["1970-01-01", "2024-02-29 12:30:00.000001", "2024-02-29 12:30", "1800-01-01 00:00", "never"],
}


@pytest.fixture
def edge(tmp_path: Path) -> Iterator[Edge]:
    """Volume `v`: a table of every type, in pages of 512 bytes."""
    rng = random.Random(3)
    with budwood.open(home=tmp_path / "home", remote=(tmp_path / "store").as_uri()) as edge:
        with closing(budwood.connect("v", home=edge.home, remote=edge.remote)) as db:
            db.execute(
                "CREATE TABLE t (id INTEGER PRIMARY KEY, l INT, d REAL, s TEXT COLLATE NOCASE, b BLOB, "
                "c DECIMAL(10, 2), o BOOLEAN, t DATE, w TIMESTAMP)"
            )
            db.execute("CREATE TABLE keyed (a INT PRIMARY KEY, b INT) WITHOUT ROWID")
            db.execute("BEGIN")
            for number in (-(1 << 63), -1, (1 << 63) - 1, *range(300)):
                values = [rng.choice([None, *pool]) for pool in STORED.values()]
                db.execute(f"INSERT INTO t VALUES (?{', ?' * len(values)})", (number, *values))
                db.execute("INSERT INTO keyed VALUES (?, ?)", (number, number % 7))
            db.execute("COMMIT")
        edge.volume("v").push()
        yield edge


@pytest.fixture
def pushing(spark: SparkSession) -> Iterator[SparkSession]:
    spark.conf.set(SETTING, "true")
    try:
        yield spark
    finally:
        spark.conf.unset(SETTING)


def load(spark: SparkSession, edge: Edge, table: object = "t", **options: object) -> DataFrame:
    reader = (
        spark.read.format("budwood").option("remote", edge.remote).option("volume", "v").option("table", str(table))
    )
    for name, value in options.items():
        reader = reader.option(name, str(value))
    return reader.load()


def generated(rng: random.Random) -> str:
    column = rng.choice(list(POOLS))
    literals = POOLS[column]
    match rng.randrange(8):
        case 0:
            words = rng.choice(["IS NULL", "IS NOT NULL", "<=> NULL"])
        case 1 | 2:
            some = rng.choices(literals, k=rng.choice([1, 2, 3, 12]))
            words = f"IN ({', '.join([*some, *(['NULL'] if rng.randrange(3) == 0 else [])])})"
        case 3 if column == "s":
            part = rng.choice(literals)[1:-1]
            words = rng.choice([f"LIKE '{part}%'", f"LIKE '%{part}'", f"LIKE '%{part}%'", f"LIKE '{part}%{part}'"])
        case _:
            words = f"{rng.choice(['=', '<=>', '<', '<=', '>', '>=', '!='])} {rng.choice(literals)}"
    return f"NOT ({column} {words})" if rng.randrange(4) == 0 else f"{column} {words}"


def plan_text(frame: DataFrame) -> str:
    in_java: Any = frame._jdf  # pyright: ignore[reportPrivateUsage]
    return str(in_java.queryExecution().executedPlan().toString())


def test_predicates_have_the_same_rows_with_push_down_and_without(pushing: SparkSession, edge: Edge) -> None:
    rng = random.Random(8)
    words = sorted({generated(rng) for _ in range(PREDICATES)})
    without: dict[str, set[int]] = {one: set() for one in words}
    whole = load(pushing, edge, numPartitions=2, **TYPES).selectExpr("id AS the_id", *words).collect()
    for row in whole:
        for one, true in zip(words, row[1:], strict=True):
            if true:
                without[one].add(row.the_id)
    # Those that hold for most rows are asked together, the others by themselves, so that none hides another.
    broad = [one for one in words if len(without[one]) > 0.7 * len(whole)]
    asked = [[one] for one in rng.sample([one for one in words if one not in broad], ALONE)]
    asked += [broad[start : start + TOGETHER] for start in range(0, len(broad), TOGETHER)]
    frames: list[DataFrame] = []
    pushed = 0
    for number, some in enumerate(asked):
        engine = ("pages", "general")[number % 2]
        frame = load(pushing, edge, numPartitions=2, engine=engine, pushDownPredicate=True, **TYPES)
        frame = frame.where(" AND ".join(f"({one})" for one in some))
        frames.append(frame.selectExpr(f"{number} AS number", "id"))
        pushed += not re.search(r"\bFilter\b", plan_text(frame))
    got: list[list[int]] = [[] for _ in asked]
    rows: list[tuple[int, int]] = [
        (row[0], row[1]) for row in reduce(lambda one, other: one.union(other), frames).collect()
    ]
    for number, key in rows:
        got[number].append(key)
    for some, kept in zip(asked, got, strict=True):
        assert sorted(kept) == sorted(set[int].intersection(*(without[one] for one in some))), some
    assert pushed > ALONE // 2
    assert sum(map(bool, got)) > ALONE // 2


def test_filters_of_the_key_read_its_leaves_and_queries_and_views_are_filtered_too(
    pushing: SparkSession, edge: Edge
) -> None:
    def answer(words: str, **options: object) -> list[tuple[Any, ...]]:
        frame = load(pushing, edge, pushDownPredicate=True, **options).where(words)
        assert not re.search(r"\bFilter\b", plan_text(frame))
        return [tuple(row) for row in frame.collect()]

    frame = load(pushing, edge, columns="id", numPartitions=16, pushDownPredicate=True).where("id BETWEEN 100 AND 101")
    assert frame.rdd.getNumPartitions() == 1
    assert frame.collect() == [(100,), (101,)]
    for engine in ("pages", "general"):
        assert answer("id > 297", columns="id", engine=engine) == [(298,), (299,), ((1 << 63) - 1,)]
        assert answer("id > 9223372036854775807", columns="id", engine=engine) == []
        assert answer("r = 5", columns="id", rowIdColumn="r", engine=engine) == [(5, 5)]
    assert answer("a = 7", table="keyed") == [(7, 0)]
    query = pushing.read.format("budwood").options(remote=edge.remote, volume="v", pushDownPredicate=True)
    query = query.options(query="SELECT a, b + 1 AS c FROM keyed", numericAs="long", untypedAs="long")
    assert [tuple(row) for row in query.load().where("c = 7 AND a >= 0 AND a < 20").collect()] == [(6, 7), (13, 7)]
    # Spark's setting alone pushes nothing: its plan of a DataFrame would be used for whatever is asked of it next.
    frame = load(pushing, edge, columns="id")
    assert (frame.where("id = 5").count(), frame.count()) == (1, 303)
    assert frame.where("id = 5").union(frame.where("id = 6")).collect() == [(5,), (6,)]


def test_the_option_without_sparks_setting_names_the_setting(spark: SparkSession, edge: Edge) -> None:
    frame = load(spark, edge, columns="id", pushDownPredicate=True).where("id = 5")
    with pytest.raises(Exception, match=f"DATA_SOURCE_PUSHDOWN_DISABLED.*{SETTING}"):
        frame.collect()
    assert load(spark, edge, columns="id").where("id = 5").collect() == [(5,)]
