"""The page engine's corners, and what becomes of values that don't fit: each against stock sqlite3's own answer."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import apsw
import pyarrow as pa
import pytest
from tests.images import ImagePages

from budwood.sqlite.record import Value
from budwood.tables import conversion as mismatch_
from budwood.tables import general_engine as general
from budwood.tables import page_engine as decode
from budwood.tables import record_columns as records
from budwood.tables.general_engine import GeneralEngine
from budwood.tables.page_engine import PageEngine
from budwood.tables.page_source import database
from budwood.tables.scan_plan import Engine, Mismatch, Options, Predicate, Target, make_plan
from budwood.tables.schema import describe_query, read_relation, read_schema
from budwood.tables.splits import splits
from budwood.tables.type_inference import infer_types
from budwood.volume.errors import BadInput, Corrupt


def image_of(*statements: str, rows: Sequence[tuple[Value, ...]] | None = None, page_size: int = 4096) -> ImagePages:
    """`rows` go into table t."""
    db = apsw.Connection(":memory:")
    db.execute(f"PRAGMA page_size = {page_size}")
    for statement in statements:
        db.execute(statement)
    if rows:
        with db:
            db.executemany(f"INSERT INTO t VALUES ({', '.join('?' * len(rows[0]))})", rows)
    return ImagePages(db.serialize("main"))


def read(
    image: ImagePages,
    options: Options | None = None,
    *,
    engine: Engine | None = None,
    columns: list[str] | None = None,
    rowid: str | None = None,
    predicate: Callable[[pa.RecordBatch], pa.BooleanArray] | None = None,
) -> list[pa.RecordBatch]:
    source, header = database(image)
    schema = read_schema(source, header)
    relation = read_relation(source, schema, "t")
    options = infer_types(source, schema, relation, options, columns)
    plan = make_plan(schema, relation, columns=columns, options=options, rowid=rowid, engine=engine)
    image.asked.clear()
    if plan.engine == Engine.GENERAL:
        return list(GeneralEngine(source, schema, plan).batches())
    (split,) = splits(source, relation.root, header, count=1)
    image.asked.clear()
    options = infer_types(source, schema, relation, options, ["a"]) if predicate else options
    first = Predicate(make_plan(schema, relation, columns=["a"], options=options), predicate) if predicate else None
    return list(PageEngine(source, header, plan, first).batches(split.leaves))


def rows_of(batches: list[pa.RecordBatch]) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


BOTH = pytest.mark.parametrize("engine", list(Engine))


@BOTH
def test_a_nan_is_null_as_sqlite_reads_it(engine: Engine) -> None:
    for declared in ("REAL", "NUMERIC", ""):
        image = image_of(f"CREATE TABLE t (a {declared})", rows=[(1.5,), (12345.678,), (2.5,)])
        place = image.image.index(struct.pack(">d", 12345.678))
        nan = struct.pack(">d", math.nan)
        spoiled = ImagePages(image.image[:place] + nan + image.image[place + 8 :])
        db = apsw.Connection(":memory:")
        db.deserialize("main", spoiled.image)
        assert db.execute("SELECT a FROM t").fetchall() == [(1.5,), (None,), (2.5,)]
        options = Options(untyped=Target.DOUBLE)
        assert rows_of(read(spoiled, options, engine=engine)) == [(1.5,), (None,), (2.5,)]


@BOTH
def test_an_error_names_table_column_row_and_value_and_says_what_to_do(engine: Engine) -> None:
    image = image_of("CREATE TABLE t (id INTEGER PRIMARY KEY, a INT)", rows=[(1, 5), (70, "abc"), (71, b"x")])
    words = "table t, column a, rowid 70: TEXT 'abc' can't be read as long: set type.a=text, or typeMismatch=null to "
    with pytest.raises(BadInput, match=words):
        read(image, engine=engine)
    assert rows_of(read(image, Options(mismatch=Mismatch.NULL), engine=engine)) == [(1, 5), (70, None), (71, None)]
    assert rows_of(read(image, Options(mismatch=Mismatch.STRING), engine=engine)) == [
        (1, "5"),
        (70, "abc"),
        (71, "X'78'"),
    ]


@BOTH
def test_integers_that_a_double_does_not_hold_are_mismatches(engine: Engine) -> None:
    exact = [0, 1, -1, 2**53, -(2**53), 2**62, -(2**63), 2**53 + 2]
    image = image_of("CREATE TABLE t (a NUMERIC)", rows=[(value,) for value in exact])
    assert rows_of(read(image, engine=engine)) == [(float(value),) for value in exact]
    for lost in (2**53 + 1, -(2**53) - 1, 2**63 - 1, 2**62 + 1):
        image = image_of("CREATE TABLE t (a NUMERIC)", rows=[(1,), (lost,)])
        double = Options(numeric=Target.DOUBLE)
        with pytest.raises(BadInput, match=f"rowid 2: INTEGER {lost} can't be read as double: set type.a=text"):
            read(image, double, engine=engine)
        assert rows_of(read(image, replace(double, mismatch=Mismatch.NULL), engine=engine)) == [(1.0,), (None,)]
        assert rows_of(read(image, engine=engine)) == [(1,), (lost,)]


@BOTH
def test_declared_types_are_believed_where_told_and_exactly(engine: Engine) -> None:
    options = Options(decimals=True, booleans=True, dates=True, timestamps=True)
    good: list[tuple[Value, ...]] = [
        (12, 1, "2024-02-29", "2024-02-29 12:30:01.5"),
        (-0.25, 0, "0001-01-01", "2024-02-29T12:30Z"),
        (99999999.99, None, "9999-12-31", "1969-12-31 23:59:59.999999+02:00"),
        (0, None, None, "2024-02-29"),
        (1e5, 1, None, None),
    ]
    table = "CREATE TABLE t (a DECIMAL(10, 2), b BOOLEAN, c DATE, d TIMESTAMP)"
    image = image_of(table, rows=good)
    assert rows_of(read(image, options, engine=engine)) == [
        (Decimal("12.00"), True, date(2024, 2, 29), datetime(2024, 2, 29, 12, 30, 1, 500000, UTC)),
        (Decimal("-0.25"), False, date(1, 1, 1), datetime(2024, 2, 29, 12, 30, tzinfo=UTC)),
        (Decimal("99999999.99"), None, date(9999, 12, 31), datetime(1969, 12, 31, 21, 59, 59, 999999, UTC)),
        (Decimal("0.00"), None, None, datetime(2024, 2, 29, tzinfo=UTC)),
        (Decimal("100000.00"), True, None, None),
    ]
    wrong: list[tuple[Value, ...]] = [
        (0.125, 2, "2024-02-30", "2024-02-29 25:00"),
        (10**8, "yes", "2024-2-1", "2024-02-29 12:30:01.1234567"),
        (math.inf, 0.5, 20240229, 1709210000),
        ("12,5", -1, "2024-02-29 ", "now"),
    ]
    image = image_of(table, rows=wrong)
    lenient = Options(Mismatch.NULL, decimals=True, booleans=True, dates=True, timestamps=True)
    assert rows_of(read(image, lenient, engine=engine)) == [(None,) * 4] * 4
    for column in "abcd":
        with pytest.raises(BadInput, match=f"column {column}, rowid [1-4]: "):
            read(image, options, engine=engine, columns=[column])


@BOTH
@pytest.mark.parametrize("mismatch", [Mismatch.FAIL, Mismatch.NULL])
def test_a_column_is_made_as_a_whole_and_never_value_by_value(
    engine: Engine, mismatch: Mismatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One value costs as much as all of its column, so that rows times rows would be the price of a table."""
    rows: list[tuple[Value, ...]] = [(n / 4, n % 2, "2024-02-29", "2024-02-29 12:30:01") for n in range(300)]
    rows += [(None,) * 4, *([("x",) * 4] * (mismatch == Mismatch.NULL))]
    image = image_of("CREATE TABLE t (a DECIMAL(10, 2), b BOOLEAN, c DATE, d TIMESTAMP)", rows=rows)
    asked: list[int] = []

    def value(_: object, row: int) -> None:
        asked.append(row)

    for values in (records.Stored, mismatch_.Objects):
        monkeypatch.setattr(values, "value", value)
    for flags in (
        Options(mismatch, decimals=True, booleans=True, dates=True, timestamps=True),
        Options(Mismatch.STRING),
    ):
        assert len(rows_of(read(image, flags, engine=engine))) == len(rows)
    assert asked == []


@BOTH
def test_types_can_be_named_column_by_column(engine: Engine) -> None:
    image = image_of("CREATE TABLE t (a, b INT, c TEXT)", rows=[("x", 1, "y"), (5, None, "z"), (b"\1", 2, None)])
    options = Options(types={"A": Target.TEXT, "b": Target.DOUBLE})
    assert rows_of(read(image, options, engine=engine)) == [("x", 1.0, "y"), ("5", None, "z"), ("X'01'", 2.0, None)]


@BOTH
def test_strict_columns_and_rowids_keep_their_types_under_string(engine: Engine) -> None:
    image = image_of("CREATE TABLE t (id INTEGER PRIMARY KEY, a INT, b ANY) STRICT", rows=[(7, 5, 1.0), (8, None, "w")])
    batches = read(image, Options(mismatch=Mismatch.STRING), engine=engine, rowid="r")
    assert [str(type_) for type_ in batches[0].schema.types] == ["int64", "int64", "int64", "string"]
    assert rows_of(batches) == [(7, 7, 5, "1.0"), (8, 8, None, "w")]


@BOTH
def test_rows_are_counted_even_if_no_column_is_read(engine: Engine) -> None:
    image = image_of("CREATE TABLE t (a)", rows=[(number,) for number in range(1000)])
    assert sum(batch.num_rows for batch in read(image, columns=[], engine=engine)) == 1000


def test_every_way_to_say_rowid_may_be_a_columns_name() -> None:
    image = image_of("CREATE TABLE t (rowid TEXT, oid TEXT)", rows=[("x", "y")])
    for engine in Engine:
        assert rows_of(read(image, rowid="r", engine=engine)) == [(1, "x", "y")]
    image = image_of("CREATE TABLE t (rowid TEXT, oid TEXT, _rowid_ TEXT)", rows=[("x", "y", "z")])
    assert rows_of(read(image, rowid="r")) == [(1, "x", "y", "z")]
    assert rows_of(read(image, engine=Engine.GENERAL)) == [("x", "y", "z")]
    with pytest.raises(BadInput, match="hides its rowid"):
        read(image, rowid="r", engine=Engine.GENERAL)


def test_an_overflowing_value_that_is_not_wanted_is_not_read() -> None:
    rows: list[tuple[Value, ...]] = [(number, "long " * 4000, number) for number in range(50)]
    image = image_of("CREATE TABLE t (a INT, b TEXT, c INT)", rows=rows)
    assert rows_of(read(image, columns=["a"])) == [(number,) for number in range(50)]
    few = sum(map(len, image.asked))
    assert few <= 60
    assert rows_of(read(image, columns=["c", "b"])) == [(c, b) for _, b, c in rows]
    assert sum(map(len, image.asked)) >= few + 200

    def keep(batch: pa.RecordBatch) -> pa.BooleanArray:
        return pa.array([row == (7,) for row in rows_of([batch])], pa.bool_())

    assert rows_of(read(image, columns=["b"], predicate=keep)) == [("long " * 4000,)]
    assert sum(map(len, image.asked)) <= few + 5


def test_a_chain_laid_down_in_one_run_is_read_in_one_request() -> None:
    image = image_of("CREATE TABLE t (a BLOB)", rows=[(bytes(3_000_000),)])
    assert rows_of(read(image)) == [(bytes(3_000_000),)]
    assert len(image.asked) == 2


def test_long_rows_come_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "PORTION_BYTES", 100_000)
    long = [bytes([number]) * (30_000 if number % 9 else 150_000) for number in range(40)]
    rows: list[tuple[Value, ...]] = list(enumerate(long))
    batches = read(image_of("CREATE TABLE t (a INT, b BLOB)", rows=rows))
    assert rows_of(batches) == rows
    assert len(batches) > 10
    assert all(batch.num_rows == 1 or batch.nbytes <= 101_000 for batch in batches)


def test_damage_is_corrupt_and_names_the_page() -> None:
    image = image_of("CREATE TABLE t (a INT, b TEXT)", rows=[(1, "x" * 9000)] * 3)
    source, header = database(image)
    schema = read_schema(source, header)
    relation = read_relation(source, schema, "t")
    root, plan = relation.root, make_plan(schema, relation)
    at = (root - 1) * 4096
    cell = at + int.from_bytes(image.image[at + 8 : at + 10], "big")
    overflow = cell + 3 + (4096 - 12) * 32 // 255 - 23 + (9005 - ((4096 - 12) * 32 // 255 - 23)) % 4092
    for place, wrong, words in [
        (at, b"\x0a", "no table's leaf"),
        (at + 3, b"\xff\xff", "can't hold its cells"),
        (at + 8, b"\0\1", "cell outside"),
        (cell, b"\xff" * 5, "too long"),
        (cell + 3, b"\x7f", "header that doesn't fit|reserved|ends beyond"),
        (cell + 4, b"\x0a", "reserved"),
        (overflow, bytes(4), "names page 0|ends early"),
    ]:
        spoiled = bytearray(image.image)
        spoiled[place : place + len(wrong)] = wrong
        engine = PageEngine(ImagePages(bytes(spoiled)), header, plan)
        with pytest.raises(Corrupt, match=words):
            list(engine.batches([root]))


def test_a_value_that_runs_out_of_its_record_is_corrupt_and_not_the_next_rows_bytes() -> None:
    image = image_of("CREATE TABLE t (a INT, b TEXT)", rows=[(2, "first"), (3, "other")])
    source, header = database(image)
    schema = read_schema(source, header)
    relation = read_relation(source, schema, "t")
    # The second row's cell lies before the first's; its text is made two bytes longer.
    at = image.image.index(b"\x03\x01\x17\x03other") + 2
    spoiled = bytearray(image.image)
    spoiled[at] += 4
    engine = PageEngine(ImagePages(bytes(spoiled)), header, make_plan(schema, relation))
    with pytest.raises(Corrupt, match=f"page {relation.root}: the record of rowid 2 has a value that ends beyond it"):
        list(engine.batches([relation.root]))


def test_a_table_is_read_by_its_own_tree_even_if_an_index_has_all_that_is_asked() -> None:
    rows: list[tuple[Value, ...]] = [(1000 - number, "x" * 500) for number in range(300)]
    image = image_of("CREATE TABLE t (a INT, b TEXT)", "CREATE INDEX t_a ON t (a)", rows=rows, page_size=512)
    for rowid in (None, "r"):
        got = rows_of(read(image, columns=["a"], rowid=rowid, engine=Engine.GENERAL))
        assert [row[-1] for row in got] == [a for a, _ in rows]
    keyed = image_of(
        'CREATE TABLE t (a INT, b TEXT, "c ""d" INT, PRIMARY KEY (b, a)) WITHOUT ROWID',
        "CREATE INDEX t_a ON t (a)",
        rows=[(a, b, 1) for a, b in rows],
        page_size=512,
    )
    assert {a for (a,) in rows_of(read(keyed, columns=["a"]))} == {a for a, _ in rows}


def test_views_over_views_queries_and_virtual_tables_are_answered_from_the_pages_they_need() -> None:
    image = image_of(
        "CREATE TABLE t (a INT, b TEXT)",
        "CREATE TABLE other (c BLOB)",
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 500) "
        "INSERT INTO other SELECT zeroblob(4000) FROM n",
        "CREATE INDEX t_b ON t (b, a)",
        "CREATE VIEW one AS SELECT b, a * 2 AS c FROM t WHERE b > 'k3'",
        "CREATE VIEW two AS SELECT count(*) AS n, max(b) AS m FROM one",
        "CREATE VIRTUAL TABLE words USING fts5 (w)",
        "INSERT INTO words VALUES ('the quick'), ('brown fox')",
    )
    db = apsw.Connection(":memory:")
    db.deserialize("main", image.image)
    db.execute("INSERT INTO t SELECT value, 'k' || value FROM json_each('[1, 30, 31, 4]')")
    image = ImagePages(db.serialize("main"))
    source, header = database(image)
    schema = read_schema(source, header)

    def answer(sql: str) -> list[tuple[object, ...]]:
        image.asked.clear()
        relation = describe_query(source, schema, sql)
        plan = make_plan(schema, relation, options=Options(mismatch=Mismatch.STRING))
        return rows_of(list(GeneralEngine(source, schema, plan).batches()))

    words = Options(mismatch=Mismatch.STRING)
    plan = make_plan(schema, read_relation(source, schema, "two"), columns=["m"], options=words)
    assert rows_of(list(GeneralEngine(source, schema, plan).batches())) == [("k4",)]
    assert answer("SELECT w FROM words WHERE words MATCH 'fox'") == [("brown fox",)]
    assert answer("SELECT a FROM t WHERE b = 'k31'") == [("31",)]
    assert answer("SELECT j.value FROM t, json_each('[5]') AS j LIMIT 1") == [("5",)]
    plain = image_of("CREATE TABLE t (a INT)", "CREATE TABLE other (c)", "INSERT INTO other VALUES (zeroblob(4000000))")
    source, header = database(plain)
    schema = read_schema(source, header)
    image = plain
    assert answer("SELECT count(*) FROM t") == [("0",)]
    assert sum(map(len, plain.asked)) < 10


def test_a_column_for_the_rowid_has_a_name_of_its_own_whatever_its_case() -> None:
    image = image_of("CREATE TABLE t (a INTEGER PRIMARY KEY)", "INSERT INTO t VALUES (7)")
    assert rows_of(read(image, rowid="b")) == [(7, 7)]
    with pytest.raises(BadInput, match="has a column 'A': name the rowid otherwise"):
        read(image, rowid="A")


@pytest.mark.parametrize("filtered", [False, True])
def test_a_key_is_read_alone_where_even_the_header_of_its_record_overflows(filtered: bool) -> None:
    def keep(batch: pa.RecordBatch) -> pa.BooleanArray:
        return pa.array([True] * batch.num_rows)

    predicate = keep if filtered else None
    columns = ", ".join(f"c{number}" for number in range(900))
    image = image_of(
        f"CREATE TABLE t (a INTEGER PRIMARY KEY, {columns})",
        f"INSERT INTO t (a) VALUES (7), ({1 << 40})",
        page_size=512,
    )
    assert rows_of(read(image, columns=["a"], predicate=predicate)) == [(7,), (1 << 40,)]
    assert rows_of(read(image, columns=["a", "c899"], predicate=predicate)) == [(7, None), (1 << 40, None)]


def test_long_rows_that_sqlite_reads_come_in_batches_of_bounded_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(general, "BATCH_BYTES", 10_000)
    image = image_of("CREATE TABLE t (a INTEGER PRIMARY KEY, b BLOB) WITHOUT ROWID", rows=[(n, b"x") for n in range(9)])
    source, header = database(image)
    schema = read_schema(source, header)
    query = describe_query(source, schema, "SELECT zeroblob(a * 3000) AS b FROM t")
    plan = make_plan(schema, query, options=infer_types(source, schema, query))
    batches = list(GeneralEngine(source, schema, plan).batches())
    assert [batch.num_rows for batch in batches] == [4, 1, 1, 1, 1, 1]
    assert sum(len(blob) for (blob,) in rows_of(batches) if isinstance(blob, bytes)) == 3000 * sum(range(9))


def test_the_schema_is_a_table_like_others_even_in_parts() -> None:
    names = [f"t{number}" for number in range(60)]
    source, header = database(image_of(*(f"CREATE TABLE {name} (a)" for name in names), page_size=512))
    schema = read_schema(source, header)
    plan = make_plan(schema, read_relation(source, schema, "sqlite_schema"), columns=["name"])
    runs = splits(source, 1, header, count=3)
    assert len(runs) == 3
    engine = GeneralEngine(source, schema, plan)
    assert rows_of([batch for run in runs for batch in engine.batches((run.first, run.last))]) == [
        (name,) for name in names
    ]


@pytest.mark.parametrize("auto_vacuum", [0, 1])
def test_a_query_that_checks_the_database_is_answered_from_all_of_it(auto_vacuum: int) -> None:
    image = image_of(
        f"PRAGMA auto_vacuum = {auto_vacuum}",
        "CREATE TABLE t (a INTEGER PRIMARY KEY, b REFERENCES t)",
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000) "
        "INSERT INTO t SELECT i, i % 7 + 1 FROM n",
        "INSERT INTO t VALUES (5000, -1)",
        page_size=512,
    )
    source, header = database(image)
    schema = read_schema(source, header)
    for sql, expected in (
        ("SELECT * FROM pragma_integrity_check", "ok"),
        ("SELECT quick_check FROM pragma_quick_check", "ok"),
        ("SELECT rowid FROM pragma_foreign_key_check", "5000"),
    ):
        plan = make_plan(schema, describe_query(source, schema, sql), options=Options(mismatch=Mismatch.STRING))
        assert rows_of(list(GeneralEngine(source, schema, plan).batches())) == [(expected,)]


@BOTH
def test_databases_marked_wal_and_of_old_libraries_are_read_as_they_are(engine: Engine, tmp_path: Path) -> None:
    path = tmp_path / "db"
    db = apsw.Connection(str(path))
    db.pragma("journal_mode", "wal")
    db.execute("CREATE TABLE t (a INT); INSERT INTO t VALUES (1), (2)")
    db.close()
    image = bytearray(path.read_bytes())
    assert image[18:20] == b"\2\2"
    assert rows_of(read(ImagePages(bytes(image)), engine=engine)) == [(1,), (2,)]
    image[28:32], image[92:96] = (1).to_bytes(4, "big"), bytes(4)  # a page count that an old library left behind
    assert rows_of(read(ImagePages(bytes(image)), engine=engine)) == [(1,), (2,)]
    path.write_bytes(image)
    assert apsw.Connection(str(path)).execute("SELECT a FROM t").fetchall() == [(1,), (2,)]


def test_no_temporary_file_is_left_behind(tmp_path: Path) -> None:
    image = image_of("CREATE TABLE t (a INT, b INT AS (length(a)))", rows=[])
    source, header = database(image)
    schema = read_schema(source, header)
    relation = read_relation(source, schema, "t", tmp_path)
    engine = GeneralEngine(source, schema, make_plan(schema, relation), tmp_path)
    assert list(engine.batches()) == []
    db = apsw.Connection(":memory:")
    db.deserialize("main", image.image)
    db.execute("INSERT INTO t (a) VALUES (1), ('x')")
    source, header = database(ImagePages(db.serialize("main")))
    reading = GeneralEngine(source, schema, make_plan(schema, relation), tmp_path).batches()
    with pytest.raises(BadInput):
        next(reading)
    reading = GeneralEngine(source, schema, make_plan(schema, relation, columns=["b"]), tmp_path).batches()
    next(reading)
    reading.close()
    assert list(tmp_path.iterdir()) == []


def test_few_rows_of_many_pages_come_together_whole_and_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "BATCH_BYTES", 4096)
    rows: list[tuple[Value, ...]] = [
        (number if number % 50 == 7 else -1, f"{number} " * (number % 9 * 400), None if number % 3 else number / 7)
        for number in range(3000)
    ]
    rows[1000:1400] = [(5, "dense", 0.5)] * 400
    image = image_of("CREATE TABLE t (a INT, b TEXT, c REAL)", rows=rows)

    def keep(batch: pa.RecordBatch) -> pa.BooleanArray:
        return pa.array(batch.column(0).to_numpy() >= 0)

    wanted = [row for row in rows if row[0] != -1]
    batches = read(image, columns=["a", "b", "c"], predicate=keep)
    assert rows_of(batches) == wanted
    for batch in batches:
        batch.validate(full=True)
    # By the page they would be hundreds; what is dense still comes by the page.
    assert len(batches) < 60
    short: list[tuple[Value, ...]] = [
        (number if number % 99 == 7 or number // 800 == 2 else -1,) for number in range(4000)
    ]
    image_of_short = image_of("CREATE TABLE t (a INT)", rows=short, page_size=512)
    monkeypatch.setattr(decode, "BATCH_BYTES", 512)
    assert rows_of(read(image_of_short, predicate=keep)) == [row for row in short if row[0] != -1]
    monkeypatch.setattr(decode, "BATCH_BYTES", 1024 * 1024)
    monkeypatch.setattr(decode, "_FEW_ROWS", 10)
    assert rows_of(read(image, columns=["a", "b", "c"], predicate=keep)) == wanted
    monkeypatch.setattr(decode, "PORTION_BYTES", 5000)
    assert rows_of(read(image, columns=["a", "b", "c"], predicate=keep)) == wanted
    assert rows_of(read(image, predicate=lambda batch: pa.array([None] * len(batch), pa.bool_()))) == []
