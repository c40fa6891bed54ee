"""A zoo of databases (tests/zoo.py): what is read of each equals stock sqlite3's answer, value by value.

Spark reads every exhibit by each engine that can, in three partitions; one job for all, since jobs cost more than rows.
The scans below Spark are compared under every policy, cut in other ways, and at LSNs of the past.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import apsw
import pytest
from tests.zoo import ANIMALS, Animal, Exhibit, Misfit, expected, put, quoted, rows_of, types_of

import budwood
from budwood.spark_export.source.options import parse
from budwood.spark_export.source.page_reader import open_volume
from budwood.spark_export.source.scan import plan_scan, run_scan
from budwood.spark_export.source.volume_ref import VolumeRef, find_volume_ref
from budwood.sync.edge import Edge
from budwood.tables.scan_plan import Engine
from budwood.volume.errors import BadInput, NotFound

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWID = "the rowid"
POLICIES = ("fail", "null", "string")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("zoo")


@pytest.fixture(scope="module")
def edge(folder: Path) -> Iterator[Edge]:
    """Each animal at LSN 1."""
    with budwood.open(home=folder / "home", remote=(folder / "store").as_uri()) as edge:
        for animal in ANIMALS:
            path = path_of(folder, animal)
            animal.build(path)
            edge.create(animal.name, page_size=animal.volume_page_size)
            put(edge, animal.name, path.read_bytes(), animal.volume_page_size)
        yield edge


def path_of(folder: Path, animal: Animal) -> Path:
    return folder / f"{ANIMALS.index(animal)}.db"


def engines(exhibit: Exhibit) -> tuple[Engine, ...]:
    return (Engine.PAGES, Engine.GENERAL) if exhibit.both else (Engine.GENERAL,)


def wanted(path: Path, exhibit: Exhibit, policy: str) -> list[str]:
    """Sorted, each row as words that tell types, and -0.0 from 0.0. Raises Misfit."""
    types = [type_ for _, type_ in types_of(path, exhibit, policy)]
    types = ["bigint", *types] if exhibit.rowid else types
    stored = rows_of(path, exhibit.table, rowid=exhibit.rowid)
    return sorted(repr([expected(v, t, policy) for v, t in zip(row, types, strict=True)]) for row in stored)


def scanned(
    place: VolumeRef, exhibit: Exhibit, policy: str, engine: Engine, count: int, lsn: int | None = None
) -> list[str]:
    request = parse({"volume": "x", "table": exhibit.table, "typeMismatch": policy, **exhibit.options})
    scan = plan_scan(
        place,
        open_volume(place).snapshot(lsn=lsn),
        table=exhibit.table,
        options=request.types,
        rowid=ROWID if exhibit.rowid else None,
        engine=engine,
        count=count,
    )
    assert scan.plan.engine == engine
    rows: list[str] = []
    for task in scan.tasks:
        for batch in run_scan(task):
            batch.validate(full=True)
            rows += [repr([in_utc(value) for value in row.values()]) for row in batch.to_pylist()]
    return sorted(rows)


def in_utc(value: Any) -> Any:
    return value.astimezone(UTC) if isinstance(value, datetime) else value


@pytest.mark.parametrize("animal", ANIMALS, ids=lambda animal: animal.name)
def test_a_scan_by_either_engine_equals_sqlite3_under_every_policy(edge: Edge, folder: Path, animal: Animal) -> None:
    path = path_of(folder, animal)
    place = find_volume_ref(animal.name, remote=edge.remote)
    for exhibit in animal.exhibits:
        for policy in POLICIES:
            for number, engine in enumerate(engines(exhibit)):
                try:
                    want = wanted(path, exhibit, policy)
                except Misfit:
                    assert policy not in exhibit.policies
                    with pytest.raises(
                        BadInput, match=r"(table|view) .*, column .*, row(id)? -?\d+: .* can't be read as "
                    ):
                        scanned(place, exhibit, policy, engine, 1)
                    continue
                assert scanned(place, exhibit, policy, engine, 1 + 3 * number) == want, (exhibit.table, policy, engine)


def encoded(name: str, type_: str) -> str:
    """A column as text from which every bit of its values can be told."""
    column = "`" + name.replace("`", "``") + "`"
    match type_:
        case "string" | "binary":
            return f"hex({column})"
        case "timestamp":
            return f"CAST(unix_micros({column}) AS STRING)"
        case _:
            return f"CAST({column} AS STRING)"


def decoded(text: str | None, type_: str) -> Any:
    if text is None:
        return None
    match type_:
        case "bigint":
            return int(text)
        case "double":
            return float(text)
        case "string":
            return bytes.fromhex(text).decode()
        case "binary":
            return bytes.fromhex(text)
        case "boolean":
            return {"true": True, "false": False}[text]
        case "date":
            return date.fromisoformat(text)
        case "timestamp":
            return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=int(text))
        case _:
            return Decimal(text)


def load(spark: SparkSession, edge: Edge, volume: str, exhibit: Exhibit, policy: str, **options: object) -> DataFrame:
    reader = spark.read.format("budwood").option("remote", edge.remote).option("volume", volume)
    reader = reader.options(table=exhibit.table, typeMismatch=policy, **exhibit.options)
    if exhibit.rowid:
        reader = reader.option("rowIdColumn", ROWID)
    for name, value in options.items():
        reader = reader.option(name, str(value))
    return reader.load()


def test_rows_through_spark_equal_sqlite3s_by_both_engines(spark: SparkSession, edge: Edge, folder: Path) -> None:
    frames: list[DataFrame] = []
    asked: list[tuple[Animal, Exhibit, str, Engine, list[str]]] = []
    for animal in ANIMALS:
        for exhibit in animal.exhibits:
            for policy in exhibit.policies:
                for engine in engines(exhibit):
                    parts = {} if not exhibit.rowid else {"numPartitions": 3}
                    frame = load(spark, edge, animal.name, exhibit, policy, engine=engine, **parts)
                    names = [(name, type_) for name, type_ in frame.dtypes if name != ROWID]
                    promised = types_of(path_of(folder, animal), exhibit, policy)
                    assert names == [(name, "string" if type_ == "text" else type_) for name, type_ in promised]
                    columns = ", ".join(encoded(name, type_) for name, type_ in frame.dtypes)
                    frames.append(frame.selectExpr(f"{len(asked)} AS number", f"array({columns}) AS row"))
                    asked.append((animal, exhibit, policy, engine, [type_ for _, type_ in frame.dtypes]))
    got: list[list[str]] = [[] for _ in asked]
    rows: list[tuple[int, list[str | None]]] = [
        (row[0], row[1]) for row in reduce(lambda one, other: one.union(other), frames).collect()
    ]
    for number, values in rows:
        types = asked[number][4]
        got[number].append(repr([decoded(value, type_) for value, type_ in zip(values, types, strict=True)]))
    for (animal, exhibit, policy, engine, _), found in zip(asked, got, strict=True):
        want = wanted(path_of(folder, animal), exhibit, policy)
        assert sorted(found) == want, (animal.name, exhibit.table, policy, engine)


def test_a_row_of_spark_holds_values_of_pythons_own_types(spark: SparkSession, edge: Edge, folder: Path) -> None:
    for name, table in (("edges", "edges"), ("rules", "declared")):
        animal = next(animal for animal in ANIMALS if animal.name == name)
        exhibit = next(exhibit for exhibit in animal.exhibits if exhibit.table == table)
        rows = load(spark, edge, name, exhibit, "fail", numPartitions=2).collect()
        # Spark hands over times without a zone, in the machine's.
        got = [[in_utc(bytes(v) if isinstance(v, bytearray) else v) for v in tuple[Any, ...](row)] for row in rows]
        assert sorted(map(repr, got)) == wanted(path_of(folder, animal), exhibit, "fail")


def test_a_misfit_fails_the_job_with_table_column_and_rowid(spark: SparkSession, edge: Edge) -> None:
    frame = load(spark, edge, "kinds", Exhibit("mixed"), "fail")
    with pytest.raises(
        Exception,
        match=r"BadInput: table mixed, column (\w+), rowid \d+: .* can't be read as \w+: set type\.\1=\w+, or type",
    ):
        frame.collect()


@pytest.mark.parametrize("name", ["edges", "keys", "length"])
def test_an_lsn_of_the_past_is_read_as_it_was(edge: Edge, folder: Path, name: str) -> None:
    animal = next(animal for animal in ANIMALS if animal.name == name)
    versions = [path_of(folder, animal)]
    volume = f"{name}, in time"
    edge.create(volume, page_size=animal.volume_page_size)
    changes = [
        "DELETE FROM {} WHERE rowid % 2 = 0",
        "VACUUM",
        "ALTER TABLE {} ADD COLUMN late INT DEFAULT 5",
        "DROP TABLE {}",
    ]
    exhibit = next(exhibit for exhibit in animal.exhibits if exhibit.both)
    put(edge, volume, versions[0].read_bytes(), animal.volume_page_size)
    for number, change in enumerate(changes):
        later = folder / f"{name}-{number}.db"
        later.write_bytes(versions[-1].read_bytes())
        with closing(apsw.Connection(str(later))) as db:
            db.execute(change.format(quoted(exhibit.table)))
            db.execute("PRAGMA journal_mode = delete")
        put(edge, volume, later.read_bytes(), animal.volume_page_size)
        versions.append(later)
    place = find_volume_ref(volume, remote=edge.remote)
    for lsn, path in enumerate(versions[:-1], 1):
        for engine in engines(exhibit):
            assert scanned(place, exhibit, "fail", engine, 2, lsn) == wanted(path, exhibit, "fail")
    with pytest.raises(NotFound, match=f"no table or view '{exhibit.table}'"):
        scanned(place, exhibit, "fail", Engine.PAGES, 2)
