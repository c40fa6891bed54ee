"""What is read by default of databases as programs make them: everything, as what it is; and how it is found out."""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from tests.images import ImagePages
from tests.ordinary import ORDINARY, Ordinary

from budwood.tables import type_inference as found
from budwood.tables.general_engine import GeneralEngine, quoted
from budwood.tables.page_engine import PageEngine
from budwood.tables.page_source import PageSource, database
from budwood.tables.scan_plan import Engine, Mismatch, Options, Plan, Target, make_plan
from budwood.tables.schema import Relation, Schema, describe_query, read_relation, read_schema
from budwood.tables.splits import splits
from budwood.tables.type_inference import infer_types
from budwood.volume.errors import BadInput


def opened(path: Path) -> tuple[ImagePages, PageSource, Schema]:
    image = ImagePages(path.read_bytes())
    source, header = database(image)
    return image, source, read_schema(source, header)


def made(path: Path, statements: str, rows: list[tuple[object, ...]] | None = None) -> Path:
    with closing(sqlite3.connect(path)) as db, db:
        db.executescript(statements)
        if rows:
            db.executemany(f"INSERT INTO t VALUES ({', '.join('?' * len(rows[0]))})", rows)
    return path


def read(source: PageSource, schema: Schema, plan: Plan) -> list[tuple[object, ...]]:
    batches: list[pa.RecordBatch] = []
    if plan.engine == Engine.GENERAL:
        batches += GeneralEngine(source, schema, plan).batches()
    else:
        (run,) = splits(source, plan.relation.root, schema.header, count=1)
        batches += PageEngine(source, schema.header, plan).batches(run.leaves)
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


def types(plan: Plan) -> list[str]:
    return [str(reading.target) for reading in plan.readings]


def plan_of(source: PageSource, schema: Schema, relation: Relation, options: Options | None = None) -> Plan:
    return make_plan(schema, relation, options=infer_types(source, schema, relation, options))


@pytest.mark.parametrize("ordinary", ORDINARY, ids=lambda each: each.name)
def test_an_ordinary_database_is_read_as_it_is_without_an_option(ordinary: Ordinary, tmp_path: Path) -> None:
    path = made(tmp_path / "db", ordinary.statements)
    _, source, schema = opened(path)
    names = schema.names()
    with closing(sqlite3.connect(path)) as db:
        if db.execute("SELECT 1 FROM sqlite_schema WHERE name = 'sqlite_sequence'").fetchone():
            names.append("sqlite_sequence")
        shadows = ("titles_",)
        seen: dict[str, str] = {}
        for name in (name for name in names if not name.startswith(shadows)):
            relation = read_relation(source, schema, name)
            plan = plan_of(source, schema, relation)
            seen |= {f"{name}.{r.column.name}": str(r.target) for r in plan.readings}
            columns = ", ".join(quoted(reading.column.name) for reading in plan.readings)
            want = db.execute(f"SELECT {columns} FROM {quoted(name)}").fetchall()
            # A whole number may come as a double, which holds it exactly: 1 == 1.0. Nothing else equals another.
            assert Counter(read(source, schema, plan)) == Counter(want), name
        told = {"INT": "long", "CHAR": "string", "TEXT": "string", "REAL": "double", "FLOA": "double"}
        for column, target in seen.items():
            table, _, own = column.partition(".")
            declared = read_relation(source, schema, table).column(own).declared.upper()
            plain = next((kind for part, kind in told.items() if part in declared), None)
            assert target == ordinary.types.get(column, plain), column
        assert ordinary.types.keys() <= seen.keys()
        for query, want_types in ordinary.queries.items():
            plan = plan_of(source, schema, describe_query(source, schema, query))
            assert types(plan) == want_types, query
            assert read(source, schema, plan) == db.execute(query).fetchall()


def test_what_most_values_are_is_what_the_column_is_and_the_others_fail_with_the_option_that_helps(
    tmp_path: Path,
) -> None:
    rows: list[tuple[object, ...]] = [(n, n / 2, f"{n}", b"b") for n in range(5)]
    rows += [("", "n/a", 7, "text")]
    path = made(tmp_path / "db", "CREATE TABLE t (a, b DECIMAL(9, 2), c, d)", rows)
    _, source, schema = opened(path)
    relation = read_relation(source, schema, "t")
    plan = plan_of(source, schema, relation)
    assert types(plan) == ["long", "double", "string", "binary"]
    for column, value in (("a", "TEXT ''"), ("b", "TEXT 'n/a'"), ("c", "INTEGER 7"), ("d", "TEXT 'text'")):
        with pytest.raises(BadInput, match=rf"^table t, column {column}, rowid 6: {value} can't be read as ") as caught:
            read(source, schema, make_plan(schema, relation, columns=[column], options=Options(inferred=plan.inferred)))
        helps = f"set type.{column}=text, or typeMismatch=null to have such values as null"
        assert str(caught.value).endswith(helps)
        told = infer_types(source, schema, relation, Options(types={column: Target.TEXT}), [column])
        assert len(read(source, schema, make_plan(schema, relation, columns=[column], options=told))) == 6
    lenient = plan_of(source, schema, relation, Options(mismatch=Mismatch.NULL))
    assert read(source, schema, lenient)[5] == (None, None, None, None)
    assert types(plan_of(source, schema, relation, Options(mismatch=Mismatch.STRING))) == ["text"] * 4


def test_options_say_what_is_not_told_and_then_nothing_is_looked_at(tmp_path: Path) -> None:
    path = made(tmp_path / "db", "CREATE TABLE t (a, n NUMERIC, d DATE, i INT)", [(1, 2, "2024-01-01", 3)])
    image, source, schema = opened(path)
    relation = read_relation(source, schema, "t")
    for options in (
        Options(untyped=Target.LONG, numeric=Target.TEXT),
        Options(types={"A": Target.LONG, "n": Target.DOUBLE, "D": Target.STRING}),
        Options(mismatch=Mismatch.STRING),
        Options(untyped=Target.LONG, dates=True, types={"n": Target.LONG}),
    ):
        image.asked.clear()
        assert infer_types(source, schema, relation, options) == options
        assert not image.asked
    seen = infer_types(source, schema, relation)
    image.asked.clear()
    assert infer_types(source, schema, relation, seen) == seen
    assert infer_types(source, schema, relation, None, ["i"]) == Options()
    assert not image.asked


def test_a_large_table_is_looked_at_in_a_few_places_from_its_first_leaf_to_its_last(tmp_path: Path) -> None:
    rows: list[tuple[object, ...]] = [(None, n, "x" * 50) for n in range(20_000)]
    path = made(tmp_path / "db", "CREATE TABLE t (late, n DATE, pad TEXT)", rows)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE t SET late = 'only here' WHERE rowid = 20000")
    image, source, schema = opened(path)
    relation = read_relation(source, schema, "t")
    image.asked.clear()
    assert types(plan_of(source, schema, relation)) == ["string", "long", "string"]
    # Besides the interior pages, the leaves in one request.
    assert len(image.asked[-1]) == found.SAMPLE_BYTES // 4096
    assert sum(map(len, image.asked)) < found.SAMPLE_BYTES // 4096 + 12


@pytest.mark.parametrize("without_rowid", [False, True])
def test_long_rows_are_looked_at_without_their_chains(without_rowid: bool, tmp_path: Path) -> None:
    rows: list[tuple[object, ...]] = [("2024-01-01", n, b"b" * 50_000, 5) for n in range(20)]
    key = ", PRIMARY KEY (n, d)) WITHOUT ROWID" if without_rowid else ")"
    path = made(tmp_path / "db", f"CREATE TABLE t (d DATE, n NUMERIC, b, i{key}", rows)
    image, source, schema = opened(path)
    relation = read_relation(source, schema, "t")
    image.asked.clear()
    assert types(plan_of(source, schema, relation)) == ["string", "double", "binary", "long"]
    assert sum(map(len, image.asked)) < 20


def test_rows_from_before_a_column_are_looked_at_with_its_default(tmp_path: Path) -> None:
    path = made(tmp_path / "db", "CREATE TABLE t (i INT)", [(n,) for n in range(9)])
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("ALTER TABLE t ADD COLUMN d DATETIME DEFAULT 12")
    _, source, schema = opened(path)
    assert types(plan_of(source, schema, read_relation(source, schema, "t"))) == ["long", "long"]
