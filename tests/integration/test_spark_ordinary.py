"""Ordinary databases in a Spark session, without an option: all that tables, views and queries hold, and as what."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.ordinary import ORDINARY, Ordinary

import budwood
from budwood.spark_export.source import scan
from budwood.sync.edge import Edge
from budwood.tables.type_inference import infer_types

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TABLES = {
    "chinook": ["Invoice", "Sales"],
    "northwind": ["Categories", "Order Details"],
    "django": ["shop_order"],
    "rails": ["users"],
    "places": ["moz_meta", "titles"],
    "state": ["notes", "made", "empty"],
}
SHOWN = {"long": "bigint"}


@pytest.fixture(scope="module")
def edge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Edge]:
    folder = tmp_path_factory.mktemp("ordinary")
    with budwood.open(home=folder / "home", remote=(folder / "store").as_uri()) as edge:
        for each in ORDINARY:
            with closing(sqlite3.connect(folder / each.name)) as db, db:
                db.executescript(each.statements)
            edge.import_(folder / each.name, each.name).push()
        yield edge


def load(spark: SparkSession, edge: Edge, volume: str, **options: str) -> DataFrame:
    return spark.read.format("budwood").options(remote=edge.remote, volume=volume, **options).load()


def rows_of(frame: DataFrame) -> list[tuple[object, ...]]:
    return [tuple(row) for row in frame.collect()]


@pytest.mark.parametrize("ordinary", ORDINARY, ids=lambda each: each.name)
def test_an_ordinary_database_is_read_through_spark(spark: SparkSession, edge: Edge, ordinary: Ordinary) -> None:
    with closing(sqlite3.connect(edge.home.parent / ordinary.name)) as db:
        for table in TABLES[ordinary.name]:
            frame = load(spark, edge, ordinary.name, table=table)
            told = {f"{table}.{name}": type_ for name, type_ in frame.dtypes}
            for name, target in ordinary.types.items():
                if name.startswith(f"{table}."):
                    assert told[name] == SHOWN.get(target, target), name
            columns = ", ".join(f'"{name}"' for name in frame.columns)
            assert Counter(rows_of(frame)) == Counter(db.execute(f'SELECT {columns} FROM "{table}"'))
        for query, targets in list(ordinary.queries.items())[:2]:
            frame = load(spark, edge, ordinary.name, query=query)
            assert [type_ for _, type_ in frame.dtypes] == [SHOWN.get(target, target) for target in targets]
            assert Counter(rows_of(frame)) == Counter(db.execute(query))


def test_a_mismatch_in_spark_names_the_option_that_helps_and_it_helps(
    spark: SparkSession, edge: Edge, tmp_path: Path
) -> None:
    path = tmp_path / "db"
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("CREATE TABLE t (n NUMERIC)")
        db.executemany("INSERT INTO t VALUES (?)", [(1,), (2.5,), ("n/a",)])
    edge.import_(path, "mixed").push()
    with pytest.raises(
        Exception, match=r"table t, column n, rowid 3: TEXT 'n/a' can't be read as double: set type.n=t"
    ):
        load(spark, edge, "mixed", table="t").collect()
    read = load(spark, edge, "mixed", table="t", **{"type.n": "text"})
    assert [row["n"] for row in read.collect()] == ["1", "2.5", "n/a"]


def test_what_was_found_when_it_was_loaded_is_not_looked_for_again(edge: Edge, monkeypatch: pytest.MonkeyPatch) -> None:
    from budwood.spark_export.source.datasource import BudwoodDataSource

    looks: list[object] = []

    def counted(source: object, schema: object, relation: object, options: object, *rest: object) -> object:
        found = infer_types(source, schema, relation, options, *rest)  # type: ignore[arg-type]  # pyright: ignore
        looks.extend([found] if found is not options else [])
        return found

    monkeypatch.setattr(scan, "infer_types", counted)
    source = BudwoodDataSource({"remote": str(edge.remote), "volume": "chinook", "query": "SELECT count(*) FROM Track"})
    schema = source.schema()
    assert schema.simpleString() == "struct<count(*):bigint>"
    source.reader(schema).partitions()
    assert len(looks) == 1
