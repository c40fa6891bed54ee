"""Row changes, case by case: what of a table's declaration decides which rows are the same, and which differ; and how
little is read for it."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

import budwood
from budwood.rows.changeset import changeset
from budwood.rows.difference import Difference
from budwood.rows.row_changes import row_changes
from budwood.rows.table import tables_of
from budwood.rows.view import View
from budwood.sync.edge import Edge
from budwood.sync.edge import open as open_edge
from budwood.sync.engine import Engine
from budwood.volume.errors import Unsupported
from budwood.volume.pageset import PageSet
from budwood.volume.protocols import Durability

Told = list[tuple[object, ...]]
Work = str | Callable[[apsw.Connection], None]

CASES: dict[str, tuple[str, str, Told]] = {
    "a key that is spelled otherwise is the same": (
        "CREATE TABLE t(a TEXT COLLATE NOCASE PRIMARY KEY, b) WITHOUT ROWID; INSERT INTO t VALUES ('Ab', 1), ('c', 2)",
        "DELETE FROM t WHERE a = 'ab'; INSERT INTO t VALUES ('aB', 1)",
        [("update", ("Ab",), ("Ab", 1), ("aB", 1))],
    ),
    "by the key's collation, not the column's": (
        "CREATE TABLE t(a TEXT COLLATE NOCASE, c, PRIMARY KEY(a COLLATE BINARY));"
        "INSERT INTO t VALUES ('x', 1), ('X', 2)",
        "UPDATE t SET c = 3 WHERE c = 2",
        [("update", ("X",), ("X", 2), ("X", 3))],
    ),
    "by the key's collation, where all that the column's takes for one have changed": (
        "CREATE TABLE t(a TEXT COLLATE NOCASE, c, PRIMARY KEY(a COLLATE BINARY)) WITHOUT ROWID;"
        "INSERT INTO t VALUES ('x', 1), ('X', 2)",
        "UPDATE t SET c = c + 5",
        [("update", ("X",), ("X", 2), ("X", 7)), ("update", ("x",), ("x", 1), ("x", 6))],
    ),
    "by the key's collation, WITHOUT ROWID": (
        "CREATE TABLE t(a TEXT COLLATE NOCASE, c, PRIMARY KEY(a COLLATE BINARY)) WITHOUT ROWID;"
        "INSERT INTO t VALUES ('x', 1), ('X', 2)",
        "UPDATE t SET c = 3 WHERE c = 2",
        [("update", ("X",), ("X", 2), ("X", 3))],
    ),
    "a key that is equal, and of another type": (
        "CREATE TABLE t(a PRIMARY KEY, b) WITHOUT ROWID; INSERT INTO t VALUES (1, 1), (0.0, 1)",
        "DELETE FROM t; INSERT INTO t VALUES (1.0, 1), (-0.0, 1)",
        [("update", (0.0,), (0.0, 1), (-0.0, 1)), ("update", (1,), (1, 1), (1.0, 1))],
    ),
    "a key with one column twice": (
        "CREATE TABLE t(a, c, b, PRIMARY KEY(a, a COLLATE NOCASE, b)) WITHOUT ROWID; INSERT INTO t VALUES ('x', 1, 2)",
        "INSERT INTO t VALUES ('X', 1, 3)",
        [("insert", ("X", 3), None, ("X", 1, 3))],
    ),
    "a column that has come counts where it isn't its default, as its type makes it": (
        "CREATE TABLE t(a); INSERT INTO t VALUES (1), (2), (3)",
        "ALTER TABLE t ADD COLUMN z TEXT DEFAULT 5; UPDATE t SET z = '6' WHERE a = 3",
        [("update", (3,), (3,), (3, "6"))],
    ),
    "a column that has come, beside a long row": (
        "CREATE TABLE t(a); INSERT INTO t VALUES (printf('%.9999c', 'x')), (3)",
        "ALTER TABLE t ADD COLUMN z TEXT DEFAULT 5; UPDATE t SET z = '6' WHERE a = 3",
        [("update", (2,), (3,), (3, "6"))],
    ),
    "a column that was renamed is the same": (
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a, b); INSERT INTO t VALUES (1, 2, 3), (2, 3, 4)",
        "ALTER TABLE t RENAME COLUMN a TO z; UPDATE t SET b = 5 WHERE id = 2",
        [("update", (2,), (2, 3, 4), (2, 3, 5))],
    ),
    "columns that have changed their places": (
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a, b); INSERT INTO t VALUES (1, 2, 3), (2, 7, 7)",
        "ALTER TABLE t RENAME COLUMN a TO z; ALTER TABLE t RENAME COLUMN b TO a; ALTER TABLE t RENAME COLUMN z TO b",
        [("update", (1,), (1, 2, 3), (1, 2, 3))],
    ),
    "a column that was made anew with another default": (
        "CREATE TABLE t(a); INSERT INTO t VALUES (1); ALTER TABLE t ADD COLUMN z DEFAULT 5",
        "ALTER TABLE t DROP COLUMN z; ALTER TABLE t ADD COLUMN z DEFAULT 6",
        [("update", (1,), (1, 5), (1, 6))],
    ),
    "a column of another type": (
        "CREATE TABLE t(a REAL); INSERT INTO t VALUES (1)",
        "PRAGMA writable_schema = 1; UPDATE sqlite_schema SET sql = 'CREATE TABLE t(a INT)';PRAGMA writable_schema = 0",
        [("update", (1,), (1.0,), (1,))],
    ),
    "a key that was the rowid": (
        "CREATE TABLE t(id INTEGER PRIMARY KEY, b); INSERT INTO t VALUES (1, 2), (3, 4)",
        "ALTER TABLE t RENAME TO o; CREATE TABLE t(id INT PRIMARY KEY, b); INSERT INTO t SELECT * FROM o; DROP TABLE o;"
        "UPDATE t SET b = 9 WHERE id = 3; INSERT INTO t VALUES (NULL, 1)",
        [("update", (3,), (3, 4), (3, 9)), ("insert", (3,), None, (None, 1))],
    ),
    "another letter, and not another case of it": (
        'CREATE TABLE "É"(a); CREATE TABLE "é"(a)',
        'INSERT INTO "É" VALUES (1); INSERT INTO "é" VALUES (2)',
        [("insert", (1,), None, (1,)), ("insert", (1,), None, (2,))],
    ),
    "UTF-16": (
        "PRAGMA encoding = 'UTF-16le'; CREATE TABLE t(a TEXT PRIMARY KEY, b) WITHOUT ROWID;"
        "INSERT INTO t VALUES ('é', 1)",
        "UPDATE t SET b = 2",
        [("update", ("é",), ("é", 1), ("é", 2))],
    ),
    "a row that took another's rowid": (
        "CREATE TABLE t(a TEXT PRIMARY KEY, b); INSERT INTO t VALUES ('x', 1), ('y', 2)",
        "DELETE FROM t; INSERT INTO t VALUES ('y', 2), ('x', 3)",
        [("update", ("x",), ("x", 1), ("x", 3))],
    ),
}


@contextmanager
def compared(home: Path, setup: Work, change: Work) -> Generator[tuple[View, View]]:
    """The volume before and after a change."""
    with closing(budwood.connect("v", home=home, remote="")) as db, open_edge(home=home, remote="") as edge:
        run(db, setup)
        volume = edge.volume("v")
        with closing(volume.snapshot()) as old:
            run(db, change)
            with closing(volume.snapshot()) as new, View("v", old) as before, View("v", new) as after:
                yield before, after


def run(db: apsw.Connection, work: Work) -> None:
    if isinstance(work, str):
        db.execute(work)
    else:
        work(db)


def told(before: View, after: View, changed: PageSet | None = None) -> Told:
    return [(each.kind, each.key, each.old, each.new) for each in row_changes(before, after, changed)]


@pytest.mark.parametrize("case", CASES)
def test_of_each_declaration_the_rows_that_differ_are_told(case: str, tmp_path: Path) -> None:
    setup, change, wanted = CASES[case]
    with compared(tmp_path, setup, change) as views:
        assert told(*views) == wanted
        made = changeset(row_changes(*views), tables_of(views[1]))
        if not made.left_out and rows_of(views[0]).keys() == rows_of(views[1]).keys():
            assert rows_of(views[0], made.data) == rows_of(views[1])


def rows_of(view: View, applied: bytes = b"") -> dict[str, list[str]]:
    """Of each table as it is declared, with that changeset."""
    with closing(apsw.Connection(":memory:")) as db:
        with db.backup("main", view.connection, "main") as backup:
            backup.step()
        if applied:
            apsw.Changeset.apply(applied, db)
        tables = db.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'table'").fetchall()
        return {str(sql): sorted(map(repr, db.execute(f'SELECT * FROM "{name}"'))) for name, sql in tables}


def test_a_row_whose_overflow_pages_alone_differ_is_told_beside_another(tmp_path: Path) -> None:
    """Its cell stayed as it was, and so did that of its other neighbour."""

    def change(db: apsw.Connection) -> None:
        with closing(db.blob_open("main", "t", "b", 1, True)) as blob:
            blob.seek(4999)
            blob.write(b"!")
        db.execute("UPDATE t SET b = 2 WHERE a = 2")

    some = "CREATE TABLE t(a INTEGER PRIMARY KEY, b); INSERT INTO t VALUES (1, zeroblob(5000)), (2, 1), (3, 1)"
    with compared(tmp_path, some, change) as views:
        assert [(kind, key) for kind, key, *_ in told(*views)] == [("update", (1,)), ("update", (2,))]


def itself(*values: Any) -> Any:
    return values[0]


def test_what_needs_a_program_s_own_collation_is_told_or_refused_in_a_line(tmp_path: Path) -> None:
    def setup(db: apsw.Connection) -> None:
        db.create_collation("odd", lambda one, other: (one > other) - (one < other))
        db.create_scalar_function("same", itself, 1, deterministic=True)
        db.execute("CREATE TABLE a(x TEXT COLLATE odd PRIMARY KEY, y, z AS (same(y)), CHECK (same(y) > 0))")
        db.execute("CREATE TABLE b(x TEXT COLLATE odd PRIMARY KEY, y) WITHOUT ROWID; CREATE INDEX byy ON a(same(y))")
        db.execute("INSERT INTO a VALUES ('p', 1), ('q', 2); INSERT INTO b VALUES ('p', 1)")

    with compared(tmp_path / "a", setup, "UPDATE a SET y = 3 WHERE y = 2") as views:
        assert told(*views) == [("update", ("q",), ("q", 2), ("q", 3))]
        made = changeset(row_changes(*views), tables_of(views[1]))
        assert made.data == b""
        assert "can't be made anew" in made.left_out[0]
    with (
        compared(tmp_path / "b", setup, "UPDATE b SET y = 3") as views,
        pytest.raises(Unsupported, match="table b can't be asked for: no such collation"),
    ):
        told(*views)


def put(edge: Edge, name: str, data: bytes) -> None:
    volume = edge.volume(name) if any(row["name"] == name for row in edge.ls()) else edge.create(name, page_size=4096)
    writer = volume.writer()
    for page in range(-(-len(data) // 4096)):
        writer.write(page + 1, data[page * 4096 : (page + 1) * 4096].ljust(4096, b"\0"))
    writer.truncate(len(data))
    writer.commit(Durability.ORDERED)


@pytest.mark.parametrize("page_size", [512, 1024, 16384])
def test_a_database_s_pages_need_not_be_the_volume_s(page_size: int, tmp_path: Path) -> None:
    """As of one that was written through a mount."""
    file = tmp_path / "v.db"
    remote = f"file://{tmp_path}/store"
    with open_edge(home=tmp_path / "home", remote=remote) as edge, closing(apsw.Connection(str(file))) as db:
        some = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < 3000)"
        db.execute(f"PRAGMA page_size = {page_size}; CREATE TABLE t(a, b); {some} INSERT INTO t SELECT x, x FROM c")
        put(edge, "v", file.read_bytes())
        edge.volume("v").push()
        db.execute("UPDATE t SET b = 0 WHERE a IN (7, 2999)")
        put(edge, "v", file.read_bytes())
        with closing(Difference(edge, "v@base", "v")) as found:
            assert found.changed is not None
            kinds = [(each.kind, each.key) for each in found.rows()]
            assert kinds == [("update", (7,)), ("update", (2999,))]
            assert {each.key for each in row_changes(*found.views())} == {(7,), (2999,)}


def test_a_snapshot_of_nothing_has_no_tables(tmp_path: Path) -> None:
    home, remote = tmp_path / "home", f"file://{tmp_path}/store"
    with closing(budwood.connect("v", home=home, remote=remote)) as db:
        db.execute("CREATE TABLE t(a); INSERT INTO t VALUES (1); PRAGMA budwood_push")
    with budwood.diff("v@0", "v", home=home, remote=remote) as found:
        assert [(each.kind, each.new) for each in found.rows()] == [("insert", (1,))]
        assert [(each.kind, each.name) for each in found.schema()] == [("created", "t")]
    with budwood.diff("v", "v@0", home=home, remote=remote) as found:
        assert [each.kind for each in found.rows()] == ["delete"]


def test_of_a_large_table_little_is_fetched_for_a_small_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remote = f"file://{tmp_path}/store"
    with closing(budwood.connect("v", home=tmp_path / "one", remote=remote)) as db:
        db.execute(
            "CREATE TABLE n(id INTEGER PRIMARY KEY, w TEXT UNIQUE, x); CREATE TABLE k(w TEXT PRIMARY KEY, x);"
            "CREATE TABLE p(w TEXT PRIMARY KEY, x) WITHOUT ROWID; CREATE INDEX nx ON n(x)"
        )
        some = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < 20000)"
        for table in ("n(w, x)", "k", "p"):
            db.execute(f"{some} INSERT INTO {table} SELECT hex(randomblob(20)), randomblob(100) FROM c")
        db.execute("PRAGMA budwood_push")
        db.execute("UPDATE n SET x = zeroblob(100) WHERE id = 777; UPDATE k SET x = zeroblob(100) WHERE rowid = 777")
        db.execute("UPDATE p SET x = NULL WHERE w = (SELECT w FROM p LIMIT 1 OFFSET 7000); PRAGMA budwood_push")
        pages = int(str(db.pragma("page_count")))
    fetched = list[int]()
    fetch = Engine.fetch

    def counted(engine: Engine, *asked: Any) -> dict[int, bytes]:
        found = fetch(engine, *asked)
        fetched.append(len(found))
        return found

    monkeypatch.setattr(Engine, "fetch", counted)
    with budwood.diff("v@1", "v@2", home=tmp_path / "cold", remote=remote) as found:
        assert [(each.kind, each.table) for each in found.rows()] == [("update", table) for table in ("k", "n", "p")]
    # Whole frames come, and each has up to 64 pages.
    assert len(fetched) < 20
    assert sum(fetched) < pages / 3
