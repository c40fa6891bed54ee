"""An export killed at every fault point that it passes; the next run leaves exactly one copy of the table.

The targets are driven in processes of their own with real Parquet files, as a run drives them (one_export.py), since
starting Spark takes longer than all the rest; one whole export with Spark is killed at the end. What is read is read
by each format's own reader.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from tests.lakes import Export, rows_of

import budwood
from budwood.spark_export.export.iceberg import CATALOG_FILE
from budwood.spark_export.export.iceberg_catalog import CATALOG
from budwood.spark_export.export.parquet import ParquetTarget
from budwood.spark_export.export.results import Action
from budwood.spark_export.export.run import Format, export

from .crash_harness import cut, finish
from .one_export import CHILD, VERSIONS, bring, open_target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WRITTEN: Final = "export: files written, not committed"
COMMITTED: Final = "export: committed, not swept"

PARQUET_FIRST: Final = (
    WRITTEN,
    "parquet: intent recorded, nothing moved in",
    "parquet: a file moved in, others not",
    "parquet: a file moved in, others not#2",
    "parquet: moved in, old ones not removed",
    "parquet: state recorded, intent not removed",
    COMMITTED,
)
PARQUET_AGAIN: Final = (
    WRITTEN,
    "parquet: intent recorded, nothing moved in",
    "parquet: a file moved in, others not",
    "parquet: moved in, old ones not removed",
    "parquet: old ones removed, state not recorded",
    "parquet: state recorded, intent not removed",
    COMMITTED,
)
SWEPT: Final = "runs: swept, mark not removed"
LAKE: Final = (
    "runs: marked, nothing written",
    WRITTEN,
    "runs: files listed, not committed",
    COMMITTED,
    SWEPT,
)

LAKE_WHOLE: Final = (("first", WRITTEN), ("first", COMMITTED), ("replaced", "runs: files listed, not committed"))

EXPIRY: Final = (
    "iceberg: files listed, snapshots not expired",
    "iceberg: snapshots expired, files not removed",
)

CUTS: Final = (PARQUET_FIRST, PARQUET_AGAIN, LAKE, EXPIRY)

CASES: Final = (
    *(("parquet", "first", point) for point in PARQUET_FIRST),
    *(("parquet", "merged", point) for point in PARQUET_AGAIN),
    *(("parquet", "replaced", point) for point in PARQUET_AGAIN[2:5]),
    *((lake, "merged", point) for lake in ("delta", "iceberg") for point in LAKE),
    *((lake, version, point) for lake in ("delta", "iceberg") for version, point in LAKE_WHOLE),
)


def expected(version: str) -> list[str]:
    target = ParquetTarget("file:///nowhere")
    return Export(target).expected(VERSIONS[version][1])


@pytest.mark.parametrize("point", EXPIRY)
def test_what_an_expiry_that_was_cut_off_leaves_goes_with_the_next_run(tmp_path: Path, point: str) -> None:
    folder = tmp_path / "lake" / "shop" / "orders"
    url = folder.as_uri()
    for version in ("first", "merged"):
        bring("iceberg", url, version)
    before = set(folder.rglob("*"))
    assert cut(point, CHILD, "iceberg", url, "retained") == []
    assert rows_of(open_target("iceberg", url).read()) == expected("merged")
    open_target("iceberg", url).sweep()
    if point == EXPIRY[0]:
        assert set(folder.rglob("*")) == before
        bring("iceberg", url, "retained")
    assert rows_of(open_target("iceberg", url).read()) == expected("merged")
    assert only_what_is_read(tmp_path / "lake") == {"metadata", "data"}


def only_what_is_read(lake: Path) -> set[str]:
    """In which folders files lie that the table is made of; there are no others."""
    with closing(SqlCatalog(CATALOG, uri=f"sqlite:///{lake / CATALOG_FILE}")) as catalog:
        table = catalog.load_table(("shop", "orders"))
        (snapshot,) = table.metadata.snapshots
        read = {snapshot.manifest_list, *(each.manifest_path for each in snapshot.manifests(table.io))}
        read |= {task.file.file_path for task in table.scan().plan_files()}
    there = [path for path in (lake / "shop" / "orders").rglob("*") if path.suffix in (".avro", ".parquet")]
    assert {str(path) for path in there} == read
    return {path.relative_to(lake / "shop" / "orders").parts[0] for path in there}


@pytest.mark.parametrize(("format_", "version", "point"), CASES)
def test_the_next_run_leaves_exactly_one_copy(tmp_path: Path, format_: str, version: str, point: str) -> None:
    url = (tmp_path / "lake" / "shop" / "orders").as_uri()
    if version != "first":
        bring(format_, url, "first")
    assert cut(point, CHILD, format_, url, version) == []
    if format_ != "parquet" and version != "first":
        # These have one place where a reader looks first: it sees the one or the other before anybody mends anything.
        found = rows_of(open_target(format_, url).read())
        assert found in (expected("first"), expected(version))
        assert (found == expected(version)) == (point in (COMMITTED, SWEPT))
    bring(format_, url, version)
    there = only_one_copy(format_, url, version)
    bring(format_, url, version)
    assert only_one_copy(format_, url, version) == there, "a run that had nothing to do did something"


def only_one_copy(format_: str, url: str, version: str) -> dict[str, int]:
    """What lies in the folder, if it reads as this version."""
    lsn, rows = VERSIONS[version]
    target = open_target(format_, url)
    state = target.state()
    assert state is not None
    assert (state.lsn, state.rows) == (lsn, len(rows))
    assert rows_of(target.read()) == expected(version)
    folder = Path(url.removeprefix("file://"))
    there = {str(path.relative_to(folder)): path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}
    if isinstance(target, ParquetTarget):
        assert set(there) == {"_budwood/state.json", *(file.path for file in target.files())}
        assert sum(pq.ParquetFile(folder / file.path).metadata.num_rows for file in target.files()) == len(rows)
    return there


def test_a_killed_run_that_is_not_run_again_leaves_the_old_table(tmp_path: Path) -> None:
    """Until its commit nobody sees what it wrote."""
    url = (tmp_path / "orders").as_uri()
    bring("parquet", url, "first")
    cut(WRITTEN, CHILD, "parquet", url, "replaced")
    assert rows_of(open_target("parquet", url).read()) == expected("first")


def test_a_killed_run_may_be_followed_by_another_version(tmp_path: Path) -> None:
    """What it had committed is finished first, then replaced."""
    for point in ("parquet: a file moved in, others not", "parquet: old ones removed, state not recorded"):
        url = (tmp_path / str(len(point)) / "orders").as_uri()
        bring("parquet", url, "first")
        cut(point, CHILD, "parquet", url, "merged")
        bring("parquet", url, "replaced")
        only_one_copy("parquet", url, "replaced")


def test_the_child_does_what_it_says(tmp_path: Path) -> None:
    url = (tmp_path / "orders").as_uri()
    assert finish(CHILD, "parquet", url, "first") == ["first"]
    only_one_copy("parquet", url, "first")


WHOLE: Final = """
import sys
from budwood.spark_export.export.run import Format, export
from budwood.spark_export.session import start
session = start("budwood killed", master="local[1]", settings={"spark.local.dir": sys.argv[3]})
export("shop", to=sys.argv[2], remote=sys.argv[1], format=sys.argv[4], session=session)
"""
"""A whole export, with a Spark of its own, which ends when the process that started it has."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("format_", "point"), [("parquet", "parquet: a file moved in, others not"), ("delta", WRITTEN)]
)
def test_a_whole_export_killed_and_run_again_is_there_once(
    spark: SparkSession, tmp_path: Path, format_: str, point: str
) -> None:
    remote, lake = (tmp_path / "store").as_uri(), tmp_path / "lake"
    with budwood.open(home=tmp_path / "home", remote=remote) as edge:
        with closing(budwood.connect("shop", home=tmp_path / "home", remote=remote)) as db:
            db.execute("CREATE TABLE one (a INTEGER PRIMARY KEY, b TEXT); INSERT INTO one VALUES (1, 'x'), (2, 'y')")
            db.execute("CREATE TABLE two (a TEXT PRIMARY KEY, b) WITHOUT ROWID; INSERT INTO two VALUES ('k', NULL)")
        edge.volume("shop").push()
    cut(point, WHOLE, remote, lake, tmp_path / "spark", format_)
    results = export("shop", to=lake, remote=remote, format=cast(Format, format_), session=spark, verify=True)
    assert {result.table for result in results} == {"one", "two"}
    assert {result.action for result in results} <= {Action.WRITTEN, Action.UNCHANGED}
    assert all(result.verified for result in results)
    rows = open_target(format_, (lake / "shop" / "one").as_uri()).read().read_all().to_pylist()
    assert sorted((row["a"], row["b"]) for row in rows) == [(1, "x"), (2, "y")]
