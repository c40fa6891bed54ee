"""What is known of a volume beside its rows, as Spark shows it: the same as without it, at the LSN that was asked for.

What the rows say is tested in test_spark_inventory.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

import pytest

import budwood
from budwood.spark_export.source.inventory import SCHEMAS, plan_metadata, run_metadata
from budwood.spark_export.source.options import parse
from budwood.spark_export.source.page_reader import open_volume
from budwood.spark_export.source.volume_ref import find_volume_ref
from budwood.sync.edge import Edge
from budwood.volume.errors import BadInput

from .cli import serving
from .test_spark_inventory import SHOP, put, read_all, write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Edge]:
    """Volume `shop` at LSN 3 on a node; and `raw`, which holds no database."""
    folder = tmp_path_factory.mktemp("metadata")
    with serving(folder / "store") as url, budwood.open(home=folder / "home", remote=url) as edge:
        write(edge, SHOP)
        for price in range(2):
            write(edge, f"UPDATE orders SET price = {price} WHERE id = 700")
        put(edge, "raw", 512, {1: b"a" * 512, 4: b"d" * 512}, 3 * 512 + 7)
        yield edge


def load(spark: SparkSession, edge: Edge, metadata: str, volume: str = "shop", **options: object) -> DataFrame:
    reader = spark.read.format("budwood").option("remote", edge.remote).option("volume", volume)
    for name, value in options.items():
        reader = reader.option(name, str(value))
    return reader.option("metadata", metadata).load()


def as_python(frame: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict(recursive=True) for row in frame.collect()]


def without_leases(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**row, "held": None, "pins": [pin for pin in row["pins"] if pin["kind"] != "lease"]} for row in rows]


@pytest.mark.parametrize("kind", SCHEMAS)
def test_spark_shows_what_is_told_without_it(spark: SparkSession, shop: Edge, kind: str) -> None:
    """Order aside; binary columns come as bytearrays, times without a zone in the session's own."""
    place = find_volume_ref("shop", remote=shop.remote)
    view = open_volume(place).snapshot()
    expected = [
        row for task in plan_metadata(place, view, kind) for batch in run_metadata(task) for row in batch.to_pylist()
    ]
    found = as_python(load(spark, shop, kind, numPartitions=3))
    if kind == "snapshots":
        # Its own lease, which other loads at this LSN share, isn't told; `expected` was told without one.
        expected, found = without_leases(expected), without_leases(found)
    assert len(found) == len(expected) > 2
    assert sorted(map(repr, map(plain, found))) == sorted(map(repr, map(plain, expected)))


def plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: plain(part) for name, part in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [plain(part) for part in cast("Sequence[object]", value)]
    if isinstance(value, bytearray):
        return bytes(value)
    return value.timestamp() if isinstance(value, datetime) else value


def test_a_past_version_has_the_tables_and_files_of_then(spark: SparkSession, shop: Edge) -> None:
    assert load(spark, shop, "history", versionAsOf=2).count() == 2
    assert as_python(load(spark, shop, "files", versionAsOf=1).selectExpr("max(last_lsn) AS n")) == [{"n": 1}]
    pages = load(spark, shop, "pages", versionAsOf=1).where("lsn > 1")
    assert pages.count() == 0


def test_pages_come_in_parts_and_are_those_that_an_edge_reads(spark: SparkSession, shop: Edge) -> None:
    frame = load(spark, shop, "pages", splitBytes="64k", versionAsOf=2)
    assert frame.rdd.getNumPartitions() > 3
    assert {row["index"]: bytes(row["bytes"]) for row in frame.collect()} == read_all(shop, "shop", 2)
    some = load(spark, shop, "pages", versionAsOf=2, pageRange="5-7").collect()
    assert [row["index"] for row in some] == [5, 6, 7]
    raw = load(spark, shop, "pages", "raw").collect()
    assert {row["index"]: bytes(row["bytes"]) for row in raw} == read_all(shop, "raw", 1)


def test_metadata_is_joined_and_summed_as_any_table_is(spark: SparkSession, shop: Edge) -> None:
    load(spark, shop, "files").createOrReplaceTempView("metadata_files")
    load(spark, shop, "tables").createOrReplaceTempView("metadata_tables")
    found = spark.sql(
        "SELECT t.name, t.interior_pages + t.leaf_pages AS pages, sum(f.pages) AS placed FROM metadata_tables t"
        " JOIN metadata_files f ON f.table = t.name AND f.index IS NULL GROUP BY 1, 2"
    ).collect()
    assert {row["name"] for row in found} == {"orders", "scans", "stock", "counted"}
    assert all(row["pages"] == row["placed"] for row in found)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"metadata": "logs"}, "option metadata 'logs': it must be one of history, tables, files, snapshots, pages"),
        ({"metadata": "pages", "pageRange": "9-3"}, "the first and the last page, counted from 1, like 1-1000"),
        ({"metadata": "pages", "pageRange": "0"}, "the first and the last page, counted from 1, like 1-1000"),
        ({"metadata": "tables", "pageRange": "1-3"}, "option pageRange is for the metadata pages"),
        ({"metadata": "tables", "table": "t"}, "one of the options table, query and metadata"),
    ],
)
def test_an_option_that_can_t_be_meant_is_refused(options: dict[str, str], words: str) -> None:
    with pytest.raises(BadInput) as refused:
        parse({"volume": "shop"} | options)
    assert words in str(refused.value)


def test_the_tables_of_what_is_no_database_are_refused_in_one_clear_line(spark: SparkSession, shop: Edge) -> None:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException, match="the volume holds no SQLite database: only its raw pages can be read"):
        load(spark, shop, "tables", "raw").collect()
