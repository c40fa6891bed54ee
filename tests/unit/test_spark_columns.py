"""What a database's tables are: told by SQLite itself from the schema's pages alone."""

from __future__ import annotations

import pickle
from pathlib import Path

import apsw
import pytest
from tests.images import ImagePages

from budwood.tables.general_engine import GeneralEngine
from budwood.tables.page_source import PageSource, database
from budwood.tables.scan_plan import Engine, Options, Target, make_plan
from budwood.tables.schema import (
    Affinity,
    Generated,
    Kind,
    Relation,
    Schema,
    describe_query,
    read_relation,
    read_schema,
)
from budwood.volume.errors import BadInput, Corrupt, NotFound, Unsupported


def made(*statements: str, page_size: int = 4096) -> tuple[ImagePages, PageSource, Schema]:
    with_size = apsw.Connection(":memory:")
    with_size.execute(f"PRAGMA page_size = {page_size}")
    for statement in statements:
        with_size.execute(statement)
    image = ImagePages(with_size.serialize("main"))
    source, header = database(image)
    return image, source, read_schema(source, header)


def relation(*statements: str, name: str = "t") -> Relation:
    _, source, schema = made(*statements)
    return read_relation(source, schema, name)


@pytest.mark.parametrize(
    ("declared", "affinity"),
    [
        ("INT", Affinity.INTEGER),
        ("CHARINT", Affinity.INTEGER),
        ("varchar(70)", Affinity.TEXT),
        ("CLOB", Affinity.TEXT),
        ("BLOB", Affinity.BLOB),
        ("", Affinity.BLOB),
        ("double precision", Affinity.REAL),
        ("FLOATING POINT", Affinity.INTEGER),
        ("DECIMAL(10,5)", Affinity.NUMERIC),
        ("STRING", Affinity.NUMERIC),
        ("ANY", Affinity.NUMERIC),
    ],
)
def test_an_affinity_is_what_sqlite_gives_the_column(declared: str, affinity: Affinity) -> None:
    (column,) = relation(f"CREATE TABLE t (a {declared})").columns
    assert column.affinity == affinity
    # Asked of SQLite by what it makes of a text that looks like a number, and of a whole number.
    db = apsw.Connection(":memory:")
    db.execute(f"CREATE TABLE t (a {declared}); INSERT INTO t VALUES ('5'), (5), (x'05')")
    kinds = "".join(str(row[0])[0] for row in db.execute("SELECT typeof(a) FROM t"))
    assert kinds == {"INTEGER": "iib", "NUMERIC": "iib", "TEXT": "ttb", "BLOB": "tib", "REAL": "rrb"}[affinity]


def test_an_integer_primary_key_is_the_rowid_but_for_one_that_descends() -> None:
    def rowid(columns: str) -> list[bool]:
        return [column.rowid for column in relation(f"CREATE TABLE t ({columns})").columns]

    assert rowid("a, id INTEGER PRIMARY KEY") == [False, True]
    assert rowid("a, id integer, PRIMARY KEY (id)") == [False, True]
    assert rowid("a, id INTEGER PRIMARY KEY DESC") == [False, False]
    assert rowid("a, id INTEGER, PRIMARY KEY (id DESC)") == [False, True]
    assert rowid("a, id INT PRIMARY KEY") == [False, False]
    assert rowid("a INTEGER, id INTEGER, PRIMARY KEY (a, id)") == [False, False]
    assert rowid("id INTEGER PRIMARY KEY, a) WITHOUT ROWID --") == [False, False]


def test_generated_columns_have_a_place_in_the_record_only_if_stored() -> None:
    columns = relation("CREATE TABLE t (a, b AS (a + 1), c AS (a + 2) STORED, d)").columns
    assert [(c.name, c.stored, c.generated) for c in columns] == [
        ("a", 0, Generated.NO),
        ("b", -1, Generated.VIRTUAL),
        ("c", 1, Generated.STORED),
        ("d", 2, Generated.NO),
    ]


@pytest.mark.parametrize(
    ("column", "default"),
    [
        ("TEXT DEFAULT 5", "5"),
        ("INT DEFAULT '5'", 5),
        ("REAL DEFAULT 5", 5.0),
        ("DEFAULT (CAST(7 AS TEXT))", "7"),
        ("BLOB DEFAULT x'00ff'", b"\0\xff"),
        ("DEFAULT bare", "bare"),
        ("INT DEFAULT -9223372036854775808", -(1 << 63)),
        ("DEFAULT (-1.5)", -1.5),
        ("DEFAULT ('x' -- a comment\n)", "x"),
        ("DEFAULT NULL", None),
        ("", None),
    ],
)
def test_a_default_is_what_sqlite_reads_in_rows_from_before_the_column(column: str, default: object) -> None:
    statements = ("CREATE TABLE t (a)", "INSERT INTO t VALUES (1)", f"ALTER TABLE t ADD COLUMN b {column}")
    assert relation(*statements).column("b").default == default
    db = apsw.Connection(":memory:")
    for statement in statements:
        db.execute(statement)
    assert db.execute("SELECT b FROM t").fetchall() == [(default,)]


def test_a_default_that_is_not_constant_is_null() -> None:
    found = relation("CREATE TABLE t (a, b DEFAULT CURRENT_TIMESTAMP, c DEFAULT (1 + 2), d DEFAULT (random()))")
    assert [column.default for column in found.columns] == [None] * 4


def test_names_types_collations_and_keys_are_told_however_they_are_written() -> None:
    found = relation(
        'CREATE TABLE "odd ""name" ([a b] TEXT COLLATE nocase NOT NULL, "c""d" INT UNIQUE, e INT, '
        'PRIMARY KEY ("c""d", [a b])) STRICT',
        name='ODD "NAME',
    )
    assert (found.name, found.kind, found.strict, found.without_rowid) == ('odd "name', Kind.TABLE, True, False)
    assert [(c.name, c.collation, c.not_null, c.key_place, c.enforced) for c in found.columns] == [
        ("a b", "NOCASE", True, 2, True),
        ('c"d', "BINARY", True, 1, True),
        ("e", "BINARY", False, 0, True),
    ]


def test_a_schema_over_many_pages_with_statistics_is_read_by_its_own_pages_alone() -> None:
    image, source, schema = made(
        *(f"CREATE TABLE t{number} (a, b TEXT DEFAULT '{'x' * 900}')" for number in range(60)),
        "CREATE TABLE big (a); WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000) "
        "INSERT INTO big SELECT i FROM n; CREATE INDEX big_a ON big (a); ANALYZE",
        page_size=512,
    )
    assert schema.names() == [*(f"t{number}" for number in range(60)), "big"]
    assert [column.name for column in read_relation(source, schema, "T33").columns] == ["a", "b"]
    asked = {page for request in image.asked for page in request}
    assert len(asked) < image.page_count / 2
    assert asked <= set(schema.pages)


def test_what_is_not_there_is_said_with_what_is() -> None:
    _, source, schema = made("CREATE TABLE t (a)", "CREATE VIEW v AS SELECT a FROM t")
    with pytest.raises(NotFound, match="no table or view 'x'; it has t, v"):
        read_relation(source, schema, "x")
    with pytest.raises(NotFound, match="no column 'b'; it has a"):
        read_relation(source, schema, "t").column("b")


def test_a_volume_without_a_database_is_refused_in_words() -> None:
    with pytest.raises(BadInput, match="no SQLite database"):
        database(ImagePages(b"hello" * 1000, 4096))
    with pytest.raises(BadInput, match="is empty"):
        database(ImagePages(b"", 4096))
    image = bytearray(made("CREATE TABLE t (a)")[0].image)
    image[19] = 3
    with pytest.raises(Unsupported, match="newer SQLite"):
        database(ImagePages(bytes(image)))


def test_a_schema_that_sqlite_does_not_know_is_refused_in_its_words() -> None:
    _, source, schema = made(
        "CREATE TABLE t (a)", "PRAGMA writable_schema = 1", "UPDATE sqlite_schema SET sql = 'CREATE TABLE t (a,, b)'"
    )
    with pytest.raises((Unsupported, Corrupt), match="schema"):
        read_relation(source, schema, "t")


def test_views_queries_and_virtual_tables_are_described() -> None:
    _, source, schema = made(
        "CREATE TABLE t (a INT, b TEXT)",
        "CREATE VIEW v AS SELECT a, a + 1 AS c, b FROM t",
        "CREATE VIRTUAL TABLE f USING fts5 (x, y)",
        "CREATE VIEW over AS SELECT x FROM f",
    )
    view = read_relation(source, schema, "v")
    assert (view.kind, [(c.name, c.affinity, c.stored) for c in view.columns]) == (
        Kind.VIEW,
        [("a", Affinity.INTEGER, -1), ("c", Affinity.BLOB, -1), ("b", Affinity.TEXT, -1)],
    )
    assert [c.name for c in read_relation(source, schema, "over").columns] == ["x"]
    full_text = read_relation(source, schema, "f")
    assert full_text.kind == Kind.VIRTUAL
    assert [r.column.name for r in make_plan(schema, full_text).readings] == ["x", "y"]
    query = describe_query(source, schema, "SELECT a, max(b) AS m FROM t GROUP BY a -- all")
    assert [(c.name, c.affinity) for c in query.columns] == [("a", Affinity.INTEGER), ("m", Affinity.BLOB)]
    for wrong in ("DELETE FROM t", "SELECT 1; SELECT 2", "SELECT nothing FROM t", "PRAGMA page_size", ""):
        with pytest.raises(BadInput, match="can't be prepared"):
            describe_query(source, schema, wrong)


def test_a_query_can_attach_no_file(tmp_path: Path) -> None:
    _, source, schema = made("CREATE TABLE t (a)")
    aside = tmp_path / "aside"
    with pytest.raises(BadInput):
        describe_query(source, schema, f"SELECT 1); ATTACH '{aside}' AS x; CREATE TABLE x.t (a); SELECT (1")
    assert not aside.exists()


@pytest.mark.parametrize(
    ("statement", "name", "reason"),
    [
        ("CREATE TABLE t (a PRIMARY KEY) WITHOUT ROWID", "t", "WITHOUT ROWID"),
        ("CREATE VIEW t AS SELECT 1 AS a", "t", "it is a view"),
        ("CREATE VIRTUAL TABLE t USING rtree (a, b, c)", "t", "it is a virtual table"),
        ("CREATE TABLE t (a, b AS (a))", "t", "its column b is generated when it is read"),
        ("PRAGMA encoding = 'UTF-16le'; CREATE TABLE t (a)", "t", "UTF-16-LE"),
        ("CREATE TABLE t (a)", "sqlite_schema", "schema"),
    ],
)
def test_what_the_page_engine_does_not_do_is_said_by_the_plan(statement: str, name: str, reason: str) -> None:
    _, source, schema = made(statement)
    found = read_relation(source, schema, name)
    plan = make_plan(schema, found)
    assert plan.engine == Engine.GENERAL
    assert reason in plan.reason
    with pytest.raises(BadInput, match="the page engine can't read"):
        make_plan(schema, found, engine=Engine.PAGES)


def test_a_generated_column_that_is_not_asked_for_leaves_the_page_engine() -> None:
    _, source, schema = made("CREATE TABLE t (a, b AS (a), c)")
    assert make_plan(schema, read_relation(source, schema, "t"), columns=["c", "A"]).engine == Engine.PAGES


def test_schemas_relations_and_plans_travel_to_other_processes() -> None:
    _, source, schema = made("CREATE TABLE t (a INT, b TEXT DEFAULT 'x')", "CREATE VIEW v AS SELECT b FROM t")
    for name in schema.names():
        plan = make_plan(schema, read_relation(source, schema, name), options=Options(types={"b": Target.TEXT}))
        assert pickle.loads(pickle.dumps((schema, plan))) == (schema, plan)


def test_plans_refuse_what_makes_no_sense() -> None:
    _, source, schema = made("CREATE TABLE t (a, [the rowid] INT)", "CREATE TABLE k (a PRIMARY KEY) WITHOUT ROWID")
    t, k = read_relation(source, schema, "t"), read_relation(source, schema, "k")
    for wrong in (
        lambda: make_plan(schema, t, columns=["a", "A"]),
        lambda: make_plan(schema, t, rowid="the rowid"),
        lambda: make_plan(schema, k, rowid="r"),
        lambda: make_plan(schema, t, options=Options(types={"a": Target.DECIMAL})),
        lambda: list(GeneralEngine(source, schema, make_plan(schema, k)).batches((1, 2))),
    ):
        with pytest.raises(BadInput):
            wrong()
    with pytest.raises(NotFound):
        make_plan(schema, t, options=Options(types={"b": Target.LONG}))
