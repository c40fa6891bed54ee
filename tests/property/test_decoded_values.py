"""Both engines against stock sqlite3, value by value, over random databases of every page size and kind."""

from __future__ import annotations

import math
import sqlite3
from contextlib import closing
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.images import ImagePages, Recipe, make_database

from budwood.tables.general_engine import GeneralEngine
from budwood.tables.page_engine import PageEngine
from budwood.tables.page_source import PageSource, database
from budwood.tables.scan_plan import Engine, Mismatch, Options, Plan, Predicate, Target, make_plan
from budwood.tables.schema import Kind, Relation, Schema, describe_query, read_relation, read_schema
from budwood.tables.splits import splits
from budwood.tables.trees import whole_tree
from budwood.volume.errors import BadInput, Corrupt, StoreError, Unsupported

Value = None | int | float | str | bytes


class Stored(bytes):
    """A TEXT's bytes."""


def oracle(path: Path, sql: str) -> list[tuple[Value, ...]]:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
        db.text_factory = Stored
        return db.execute(sql).fetchall()


def expected(value: Value, target: Target, policy: Mismatch) -> Value:
    """What a value becomes, said anew: BadInput as the exception it is."""
    if value is None:
        return None
    match target, value:
        case Target.TEXT, float():
            words = {math.inf: "Infinity", -math.inf: "-Infinity"}
            return words.get(value) or repr(value)
        case Target.TEXT, int():
            return str(value)
        case ((Target.TEXT | Target.STRING), Stored()):
            try:
                return value.decode()
            except UnicodeDecodeError:
                if policy == Mismatch.STRING:
                    return value.decode(errors="replace")
        case Target.TEXT, bytes():
            return "X'" + "".join(f"{byte:02X}" for byte in value) + "'"
        case Target.LONG, int():
            return value
        case Target.DOUBLE, float():
            return value
        case Target.DOUBLE, int() if abs(value) <= 2**53 or int(float(value)) == value:
            return float(value)
        case Target.BINARY, bytes() if not isinstance(value, Stored):
            return value
        case _:
            pass
    if policy == Mismatch.NULL:
        return None
    raise BadInput(repr(value))


def same(one: list[tuple[Value, ...]], other: list[tuple[Value, ...]]) -> None:
    assert len(one) == len(other)
    for left, right in zip(one, other, strict=True):
        assert [(type(value), repr(value)) for value in left] == [(type(value), repr(value)) for value in right]


def rows_of(batches: list[pa.RecordBatch]) -> list[tuple[Value, ...]]:
    for batch in batches:
        batch.validate(full=True)
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


def quoted(plan: Plan) -> str:
    names = [f'"{reading.column.name}"' for reading in plan.readings]
    return ", ".join([*(["rowid"] if plan.rowid else []), *names])


def check(path: Path, source: PageSource, schema: Schema, plan: Plan, parts: int = 3) -> None:
    """The plan's rows, whole and in parts, equal sqlite3's; or both say that a value does not fit."""
    relation = plan.relation
    table = f"({relation.sql})" if relation.kind == Kind.QUERY else relation.name
    stored = oracle(
        path, f"SELECT {quoted(plan)} FROM {table}" + (" NOT INDEXED" if relation.kind == Kind.TABLE else "")
    )
    targets = [*([Target.LONG] if plan.rowid else []), *(reading.target for reading in plan.readings)]
    try:
        want = [tuple(expected(v, t, plan.mismatch) for v, t in zip(row, targets, strict=True)) for row in stored]
    except BadInput:
        with pytest.raises(BadInput, match="can't be read as"):
            read(source, schema, plan, 1)
        return
    same(read(source, schema, plan, 1), want)
    if plan.rowid:
        same(read(source, schema, plan, parts), want)


def read(source: PageSource, schema: Schema, plan: Plan, parts: int) -> list[tuple[Value, ...]]:
    rows: list[tuple[Value, ...]] = []
    if plan.engine == Engine.GENERAL and parts == 1:
        return rows_of(list(GeneralEngine(source, schema, plan).batches()))
    for split in splits(source, plan.relation.root, schema.header, count=parts):
        if plan.engine == Engine.PAGES:
            batches = list(PageEngine(source, schema.header, plan).batches(split.leaves))
        else:
            batches = list(GeneralEngine(source, schema, plan).batches((split.first, split.last)))
        rows += rows_of(batches)
    return rows


def engines(schema: Schema, relation: Relation, options: Options, rowid: str | None) -> list[Plan]:
    """A plan for each engine that can."""
    plan = make_plan(schema, relation, options=options, rowid=rowid)
    if plan.engine == Engine.GENERAL:
        return [plan]
    return [plan, make_plan(schema, relation, options=options, rowid=rowid, engine=Engine.GENERAL)]


RECIPES = st.builds(
    Recipe,
    seed=st.integers(0, 1 << 32),
    page_size=st.sampled_from([512 << shift for shift in range(8)]),
    reserve=st.sampled_from([0, 0, 8, 32]),
    encoding=st.sampled_from(["UTF-8", "UTF-8", "UTF-8", "UTF-16le", "UTF-16be"]),
    auto_vacuum=st.integers(0, 2),
    columns=st.sampled_from([1, 3, 5, 8]),
    rows=st.sampled_from([0, 3, 60, 200]),
    strict=st.booleans(),
    generated=st.booleans(),
    long=st.sampled_from([0, 0, 700, 5000, 40000]),
    vacuum=st.booleans(),
)


@settings(max_examples=min(settings().max_examples // 2, 1000))
@given(RECIPES, st.sampled_from(list(Mismatch)))
@example(Recipe(1, 4096, columns=200, rows=300), Mismatch.NULL)
@example(Recipe(2, 512, columns=200, rows=60, long=3000), Mismatch.STRING)
@example(Recipe(3, 512, rows=3000), Mismatch.NULL)
@example(Recipe(4, 512, rows=300, long=40000, generated=True), Mismatch.STRING)
@example(Recipe(5, 65536, rows=900, long=200_000), Mismatch.NULL)
def test_both_engines_read_what_sqlite3_reads(recipe: Recipe, policy: Mismatch) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "db"
        make_database(path, recipe)
        source, header = database(ImagePages(path.read_bytes()))
        schema = read_schema(source, header)
        options = Options(mismatch=policy, untyped=Target.TEXT if recipe.seed % 2 else Target.BINARY)
        for name in schema.names():
            relation = read_relation(source, schema, name)
            rowid = "the rowid" if relation.kind == Kind.TABLE and not relation.without_rowid else None
            for plan in engines(schema, relation, options, rowid):
                check(path, source, schema, plan)
        some = describe_query(source, schema, "SELECT c0, count(*) AS n FROM t GROUP BY c0 ORDER BY c0")
        check(path, source, schema, make_plan(schema, some, options=options))


@settings(max_examples=min(settings().max_examples, 300))
@given(RECIPES, st.integers(0, 7), st.integers(-10, 2000))
def test_a_predicate_keeps_its_rows_and_all_their_values(recipe: Recipe, chosen: int, least: int) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "db"
        make_database(path, recipe)
        source, header = database(ImagePages(path.read_bytes()))
        schema = read_schema(source, header)
        relation = read_relation(source, schema, "t")
        columns = [column.name for column in relation.columns if column.name != "later"]
        options = Options(mismatch=Mismatch.STRING)
        plan = make_plan(schema, relation, columns=columns, options=options, rowid="the rowid")
        if plan.engine == Engine.GENERAL:
            return
        first = make_plan(
            schema, relation, columns=[columns[chosen % len(columns)]], options=options, rowid="the rowid"
        )

        def keep(batch: pa.RecordBatch) -> pa.BooleanArray:
            rows = rows_of([batch])
            kept = [None if value is None else isinstance(rowid, int) and rowid >= least for rowid, value in rows]
            return pa.array(kept, pa.bool_())

        leaves = [leaf for split in splits(source, relation.root, header, count=1) for leaf in split.leaves]
        whole = rows_of(list(PageEngine(source, header, plan).batches(leaves)))
        filtered = rows_of(list(PageEngine(source, header, plan, Predicate(first, keep)).batches(leaves)))
        place = 1 + columns.index(first.readings[0].column.name)
        same(filtered, [row for row in whole if row[place] is not None and isinstance(row[0], int) and row[0] >= least])
        low, high = least, least + 500
        ranged = rows_of(list(PageEngine(source, header, plan).batches(leaves, (low, high))))
        same(ranged, [row for row in whole if isinstance(row[0], int) and low <= row[0] <= high])


@settings(max_examples=min(3 * settings().max_examples, 3000))
@given(st.data())
def test_a_damaged_page_is_corrupt_or_read_as_sqlite3_reads_it_and_never_another_error(
    data: st.DataObject,
) -> None:
    image = sound_image()
    spoiled = bytearray(image)
    for _ in range(data.draw(st.integers(1, 4))):
        page = data.draw(st.sampled_from(pages_of_table()))
        spoiled[512 * (page - 1) + data.draw(st.integers(0, 511))] = data.draw(st.integers(0, 255))
    source, header = database(ImagePages(bytes(spoiled)))
    try:
        schema = read_schema(source, header)
        relation = read_relation(source, schema, "t")
        options = Options(mismatch=Mismatch.STRING)
        plan = make_plan(schema, relation, options=options, rowid="the rowid", engine=Engine.PAGES)
        got = read(source, schema, plan, 1)
    except (Corrupt, Unsupported):
        return
    with TemporaryDirectory() as folder:
        path = Path(folder) / "db"
        path.write_bytes(spoiled)
        try:
            stored = oracle(path, f"SELECT {quoted(plan)} FROM t NOT INDEXED")
        except sqlite3.DatabaseError:
            return  # It looks at more than is needed to read the rows: order, free blocks.
    targets = [Target.LONG, *(reading.target for reading in plan.readings)]
    want = [tuple(expected(v, t, Mismatch.STRING) for v, t in zip(row, targets, strict=True)) for row in stored]
    same(got, want)


@cache
def sound_image() -> bytes:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "db"
        make_database(path, Recipe(9, 512, columns=4, rows=60, long=900))
        return path.read_bytes()


@cache
def pages_of_table() -> list[int]:
    """Where damage counts: the pages of `t`, chains included."""
    source, header = database(ImagePages(sound_image()))
    return sorted(whole_tree(source, read_relation(source, read_schema(source, header), "t").root, header))


def test_errors_of_the_store_pass_through() -> None:
    class Failing(ImagePages):
        def read(self, pages: object) -> dict[int, bytes]:
            raise StoreError("gone")

    with pytest.raises(StoreError, match="gone"):
        database(Failing(sound_image()))
