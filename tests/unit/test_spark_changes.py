"""Named cases of a feed's step: which method is taken and why, what is read for it, and that it is right."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import apsw
import pytest
from tests.feed_steps import SHOW_ALL, Change, Step, Value
from tests.images import ImagePages

from budwood.sqlite.btree import Kind
from budwood.tables import page_engine as decode
from budwood.tables.changes import change_batch as told_module
from budwood.tables.changes import overflow_candidates as candidates
from budwood.tables.changes import page_diff as rows_module
from budwood.tables.changes.change_plan import ChangePlan, Method
from budwood.tables.changes.page_diff import run_changes
from budwood.tables.page_source import database
from budwood.tables.scan_plan import Options, Target
from budwood.tables.schema import read_relation, read_schema
from budwood.tables.trees import walk
from budwood.volume.errors import BadInput, Corrupt, NotFound

LOOKED = "leaves that stayed and are looked at, with their chains: "
MAPPED = pytest.mark.parametrize("auto_vacuum", [0, 1, 2])


class Volume:
    """A database in memory, of which images are taken."""

    def __init__(self, *statements: str, page_size: int = 512, auto_vacuum: int = 0, encoding: str = "UTF-8") -> None:
        self.db = apsw.Connection(":memory:")
        self.db.execute(f"PRAGMA page_size = {page_size}; PRAGMA auto_vacuum = {auto_vacuum}")
        self.db.execute(f"PRAGMA encoding = '{encoding}'")
        self.run(*statements)

    def run(self, *statements: str) -> None:
        for statement in statements:
            self.db.execute(statement)

    def fill(self, table: str, rows: Sequence[tuple[Value, ...]]) -> None:
        with self.db:
            self.db.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(rows[0]))})", rows)

    def image(self) -> bytes:
        return self.db.serialize("main")

    def step(self, *statements: str) -> Step:
        old = self.image()
        self.run(*statements)
        return Step(old, self.image())

    def write(self, table: str, column: str, rowid: int, at: int, data: bytes) -> Step:
        """Into a value in its place, as sqlite3_blob_write does."""
        old = self.image()
        with self.db.blob_open("main", table, column, rowid, True) as blob:
            blob.seek(at)
            blob.write(data)
        return Step(old, self.image())


def numbered(count: int = 2000, auto_vacuum: int = 0) -> Volume:
    volume = Volume("CREATE TABLE t (id INTEGER PRIMARY KEY, a INT, b TEXT)", auto_vacuum=auto_vacuum)
    volume.run("CREATE TABLE other (a, b)")
    volume.fill("t", [(n, n % 10, f"row {n}") for n in range(count)])
    return volume


def with_blobs(auto_vacuum: int) -> Volume:
    """Of a BLOB of 3085 bytes nearly all lies in overflow pages, so that other rows lie in its leaf too."""
    volume = Volume("CREATE TABLE t (id INTEGER PRIMARY KEY, a INT, b BLOB)", auto_vacuum=auto_vacuum)
    volume.run("CREATE TABLE other (id INTEGER PRIMARY KEY, b BLOB)")
    volume.fill("t", [(n, n, bytes([n % 251]) * (3085 if n % 10 == 0 else 20)) for n in range(500)])
    volume.fill("other", [(n, bytes([n % 251]) * 3000) for n in range(20)])
    return volume


def kinds(told: list[Change]) -> dict[str, int]:
    return {kind: sum(change.kind == kind for change in told) for kind in sorted({change.kind for change in told})}


def pages_read(step: Step, plan: ChangePlan) -> int:
    """What planning and all tasks read of both snapshots, pages that are read twice counted twice."""
    again, old, new = step.plan()
    for task in again.tasks:
        list(run_changes(task, old, new))
    assert again.reason == plan.reason
    return sum(len(pages) for source in (old, new) if source for pages in source.asked)


def leaves_of(image: bytes, table: str = "t") -> int:
    source, header = database(ImagePages(image))
    return len(walk(source, read_relation(source, read_schema(source, header), table).root, header).leaves)


def test_a_small_commit_reads_the_leaves_that_changed_and_what_leads_there() -> None:
    volume = numbered(20_000)
    step = volume.step("UPDATE t SET a = 77 WHERE id IN (5, 9000)", "DELETE FROM t WHERE id = 12345")
    plan, told = step.check(options=SHOW_ALL)
    assert plan.method == Method.PAGES
    assert plan.reason == f"leaves that differ: 3 of {leaves_of(step.old)} before, 3 of {leaves_of(step.new)} now"
    assert kinds(told) == {"delete": 1, "update_postimage": 2, "update_preimage": 2}
    assert pages_read(step, plan) < leaves_of(step.old) / 10


def test_a_row_that_moved_to_another_leaf_is_not_told() -> None:
    volume = numbered(300)
    step = volume.step("UPDATE t SET b = b || hex(zeroblob(150)) WHERE id = 150")
    assert leaves_of(step.new) > leaves_of(step.old)
    plan, told = step.check()
    assert plan.method == Method.PAGES
    assert kinds(told) == {"update_postimage": 1, "update_preimage": 1}


def test_leaves_that_merge_tell_the_rows_that_are_gone_alone() -> None:
    volume = numbered(2000)
    plan, told = volume.step("DELETE FROM t WHERE id BETWEEN 500 AND 1500").check()
    assert plan.method == Method.PAGES
    assert kinds(told) == {"delete": 1001}


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO other SELECT a, b FROM t",
        "CREATE INDEX t_a ON t (a)",
        "CREATE TABLE further (a)",
        "PRAGMA user_version = 7",
        "ALTER TABLE t ADD COLUMN d TEXT",
        "UPDATE other SET b = hex(zeroblob(40000))",
    ],
)
@MAPPED
def test_commits_that_leave_the_table_alone_are_none_and_cost_little(statement: str, auto_vacuum: int) -> None:
    volume = numbered(3000, auto_vacuum=auto_vacuum)
    volume.run("INSERT INTO other VALUES (1, hex(zeroblob(30000)))")
    step = volume.step(statement)
    plan, told = step.check()
    assert told == []
    if auto_vacuum and "CREATE" in statement:
        # Roots lie in front of all other pages there, so one of this table's made room and lies elsewhere now.
        assert plan.reason == f"leaves that differ: 1 of {leaves_of(step.old)} before, 1 of {leaves_of(step.new)} now"
        return
    assert (plan.method, plan.tasks) == (Method.NONE, ())
    assert "none of them the table's" in plan.reason
    leaves, changed = leaves_of(step.old), len(step_pages(step))
    assert pages_read(step, plan) < leaves / 4 + 2 * changed + 40


@MAPPED
def test_a_value_that_changed_in_its_overflow_page_alone_is_told(auto_vacuum: int) -> None:
    volume = with_blobs(auto_vacuum)
    step = volume.write("t", "b", 250, 2000, b"in place")
    plan, told = step.check()
    assert plan.method == Method.PAGES
    count = leaves_of(step.old)
    assert plan.reason.startswith(f"leaves that differ: 0 of {count} before, 0 of {count} now; overflow pages")
    assert kinds(told) == {"update_postimage": 1, "update_preimage": 1}
    if auto_vacuum:
        assert plan.reason.endswith("by the pointer map of this table's rows: 1; " + LOOKED + "1")
        assert pages_read(step, plan) < count / 2 + 30
    else:
        assert plan.reason.endswith(f"which may be any row's: 1; {LOOKED}{count}")


@MAPPED
def test_an_overflow_page_that_changed_in_a_leaf_that_changed_too_is_told(auto_vacuum: int) -> None:
    volume = with_blobs(auto_vacuum)
    old = volume.image()
    volume.write("t", "b", 250, 2000, b"in place")
    volume.run("UPDATE t SET a = 7 WHERE id IN (249, 251)")
    plan, told = Step(old, volume.image()).check()
    assert kinds(told) == {"update_postimage": 3, "update_preimage": 3}
    assert "overflow pages that changed" in plan.reason


@MAPPED
def test_an_overflow_page_of_another_table_is_not_taken_for_this_ones(auto_vacuum: int) -> None:
    volume = with_blobs(auto_vacuum)
    plan, told = volume.write("other", "b", 7, 2000, b"in place").check()
    assert told == []
    # Without a map nobody knows whose page it is before all chains were looked at.
    assert plan.method == (Method.NONE if auto_vacuum else Method.PAGES)


@MAPPED
@pytest.mark.parametrize("table", ["t", "other"])
def test_chains_of_rows_that_changed_cause_no_look_at_other_rows(auto_vacuum: int, table: str) -> None:
    volume = with_blobs(auto_vacuum)
    step = volume.step(
        f"UPDATE {table} SET b = randomblob(3500) WHERE id = 10",
        f"DELETE FROM {table} WHERE id = 0",
        f"INSERT INTO {table} (id, b) VALUES (9999, randomblob(6000))",
    )
    plan, told = step.check()
    assert "looked at" not in plan.reason or auto_vacuum
    expected = {"delete": 1, "insert": 1, "update_postimage": 1, "update_preimage": 1}
    assert kinds(told) == (expected if table == "t" else {})
    assert plan.method == (Method.PAGES if table == "t" else Method.NONE)


@MAPPED
def test_of_many_pages_those_of_other_trees_are_told_by_their_interior_pages(
    auto_vacuum: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    volume = with_blobs(auto_vacuum)
    volume.run("CREATE TABLE large (a, b); CREATE INDEX large_b ON large (b)")
    volume.fill("large", [(n, f"row {n}") for n in range(5000)])
    step = volume.step("UPDATE large SET a = a + 1, b = b || 'x'")
    changed = len(step_pages(step))
    read: list[int] = []
    for many in (10_000, 100):
        monkeypatch.setattr(candidates, "_MANY", many)
        plan, told = step.check()
        assert (plan.method, told) == (Method.NONE, [])
        read.append(pages_read(step, plan))
    assert changed > read[0] > 3 * read[1]


def test_a_pointer_map_that_is_wrong_is_not_believed() -> None:
    volume = with_blobs(1)
    step = volume.write("t", "b", 250, 2000, b"in place")
    (page,) = (number for number in step_pages(step) if number != 1)
    number = (page - 2) // 103 * 103 + 2
    entry = (number - 1) * 512 + 5 * (page - number - 1)
    assert step.new[entry] == 4
    for kind, said in ((4, page + 5), (3, page + 5), (3, leaf_of("other", step.new)), (5, 3), (4, 1 << 30), (9, 9)):
        spoiled = bytearray(step.new)
        spoiled[entry : entry + 5] = bytes((kind, *said.to_bytes(4, "big")))
        plan, told = Step(step.old, bytes(spoiled)).feed()
        assert kinds(told) == {"update_postimage": 1, "update_preimage": 1}
        assert "may be any row's" in plan.reason


def leaf_of(table: str, image: bytes) -> int:
    source, header = database(ImagePages(image))
    return walk(source, read_relation(source, read_schema(source, header), table).root, header).leaves[0]


def step_pages(step: Step) -> list[int]:
    return [
        n + 1 for n in range(len(step.new) // 512) if step.old[n * 512 : n * 512 + 512] != step.new[n * 512 :][:512]
    ]


def test_rowids_that_change_are_a_delete_and_an_insert_and_replace_is_an_update() -> None:
    volume = numbered()
    _, told = volume.step("UPDATE t SET id = 100000 WHERE id = 5").check(rowid="r")
    assert kinds(told) == {"delete": 1, "insert": 1}
    _, told = volume.step("REPLACE INTO t VALUES (7, 7, 'another')").check(rowid="r")
    assert kinds(told) == {"update_postimage": 1, "update_preimage": 1}
    _, told = volume.step("REPLACE INTO t VALUES (7, 7, 'another')").check(rowid="r")
    assert told == []


def test_vacuum_of_the_same_page_size_compares_pages_and_tells_nothing(tmp_path: Path) -> None:
    volume = numbered(3000)
    volume.run("DELETE FROM t WHERE id % 3 = 0")
    step = volume.step("VACUUM")
    assert step.old != step.new
    plan, told = step.check()
    assert (plan.method, told) == (Method.PAGES, [])
    path = tmp_path / "db"
    path.write_bytes(step.new)
    db = apsw.Connection(str(path))
    db.execute("PRAGMA page_size = 4096; VACUUM")
    plan, told = Step(step.new, path.read_bytes()).check()
    assert (plan.method, plan.reason, told) == (Method.FULL, "the database's page size changed from 512 to 4096", [])


def test_a_table_made_anew_under_its_name_is_compared_by_rowid() -> None:
    volume = numbered(500)
    step = volume.step(
        "CREATE TABLE new (id INTEGER PRIMARY KEY, a INT, b TEXT)",
        "INSERT INTO new SELECT id, a, CASE id WHEN 7 THEN 'changed' ELSE b END FROM t WHERE id <> 8",
        "DROP TABLE t",
        "ALTER TABLE new RENAME TO t",
    )
    plan, told = step.check()
    assert plan.method == Method.PAGES
    assert kinds(told) == {"delete": 1, "update_postimage": 1, "update_preimage": 1}


def test_a_page_that_came_from_another_table_is_read_as_this_ones() -> None:
    volume = numbered(300)
    volume.run("INSERT INTO other SELECT a, b FROM t")
    step = volume.step("DELETE FROM other", "INSERT INTO t SELECT id + 1000, a, b FROM t")
    assert len(step.new) == len(step.old)
    plan, told = step.check()
    assert plan.method == Method.PAGES
    assert kinds(told) == {"insert": 300}
    plan, told = step.check("other", options=SHOW_ALL)
    assert kinds(told) == {"delete": 300}


def test_a_table_that_is_emptied_cut_and_grown_again() -> None:
    volume = numbered(2000, auto_vacuum=1)
    old = volume.image()
    volume.run("DELETE FROM t")
    assert len(volume.image()) < len(old)
    _, told = Step(old, volume.image()).check()
    assert kinds(told) == {"delete": 2000}
    volume.fill("t", [(n, n % 10, f"row {n}" if n != 77 else "new") for n in range(2000)])
    _, told = Step(old, volume.image()).check()
    assert kinds(told) == {"update_postimage": 1, "update_preimage": 1}


def test_columns_that_come_and_go_are_read_by_name() -> None:
    volume = numbered(50)
    step = volume.step("ALTER TABLE t ADD COLUMN c INT DEFAULT 5")
    plan, told = step.check()
    assert (plan.method, plan.reason) == (Method.FULL, "column c is new")
    assert kinds(told) == {"update_postimage": 50, "update_preimage": 50}
    plan, told = volume.step("ALTER TABLE t ADD COLUMN d INT").check()
    assert (plan.method, told) == (Method.NONE, [])
    plan, told = volume.step("ALTER TABLE t RENAME COLUMN b TO e").check()
    assert (plan.method, plan.reason) == (Method.FULL, "column e is new")
    assert kinds(told) == {"update_postimage": 50, "update_preimage": 50}
    step = volume.step("ALTER TABLE t DROP COLUMN a")
    plan, told = step.check()
    assert plan.method == Method.FULL
    assert told == []
    assert plan.schema.names == ["id", "e", "c", "d", "_change_type"]


def test_all_steps_of_a_feed_have_the_shape_of_its_end() -> None:
    volume = Volume("CREATE TABLE u (x)")
    images = [volume.image()]
    for statement in (
        "CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT)",
        "INSERT INTO t VALUES (1, '10'), (2, 'x')",
        "ALTER TABLE t ADD COLUMN b INT",
        "UPDATE t SET b = id",
        "DROP TABLE t",
        "CREATE VIEW t AS SELECT 1 AS a",
        "DROP VIEW t",
        "CREATE TABLE t (b INT, a TEXT PRIMARY KEY) WITHOUT ROWID",
        "INSERT INTO t VALUES (1, '10')",
        "DROP TABLE t",
        "CREATE TABLE t (id INTEGER PRIMARY KEY, b INT)",
        "INSERT INTO t VALUES (1, 7)",
    ):
        volume.run(statement)
        images.append(volume.image())
    feed = Step(images[0], images[-1]).plan(rowid="r")[0].plan
    told: list[Change] = []
    methods: list[str] = []
    for old, new in pairwise(images):
        plan, some = Step(old, new).check(feed=feed)
        assert plan.schema.names == ["r", "id", "b", "_change_type"]
        methods.append(plan.method)
        told += some
    assert methods == ["full", "pages", "none", "pages", *["full", "none", "none"], *["full"] * 4, "pages"]
    assert kinds(told) == {"delete": 3, "insert": 4, "update_postimage": 2, "update_preimage": 2}


def test_a_table_begins_and_ends_with_all_its_rows() -> None:
    volume = numbered(100)
    plan, told = Step(b"", volume.image()).check()
    assert (plan.method, plan.reason, kinds(told)) == (Method.FULL, "table t is new", {"insert": 100})
    plan, told = volume.step("ALTER TABLE t RENAME TO renamed").check()
    assert (plan.reason, plan.relation, kinds(told)) == ("table t is gone", None, {"delete": 100})
    plan, told = Step(volume.image(), b"").check("renamed")
    assert kinds(told) == {"delete": 100}
    nowhere, _ = volume.step("PRAGMA user_version = 3").check(feed=plan.plan)
    assert (nowhere.method, nowhere.reason) == (Method.NONE, "there is no table t")
    with pytest.raises(NotFound, match="no table 'nothing'"):
        volume.step().plan("nothing")


def test_a_database_of_another_encoding_is_another_one() -> None:
    old, new = (Volume("CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT)", encoding=e) for e in ("UTF-8", "UTF-16le"))
    for volume in (old, new):
        volume.fill("t", [(1, "one"), (2, "two")])
    plan, told = Step(old.image(), new.image()).check()
    assert plan.reason == "the database's text encoding changed from utf-8 to utf-16-le"
    assert kinds(told) == {"delete": 2, "insert": 2}


def test_what_is_no_table_is_refused_in_words() -> None:
    volume = numbered(3)
    volume.run("CREATE VIEW v AS SELECT a FROM t", "CREATE VIRTUAL TABLE f USING fts5 (a)")
    volume.run('CREATE TABLE named (a, "_Change_Type")')
    for name, words in (
        ("v", "is a view"),
        ("f", "is a virtual"),
        ("sqlite_schema", "SQLite's own"),
        ("named", "own name"),
    ):
        with pytest.raises(BadInput, match=words):
            volume.step().plan(name)
    assert volume.step().plan("named", columns=["a"])[0].method == Method.NONE
    with pytest.raises(BadInput, match="at least 1"):
        volume.step().plan("t", count=0)


def test_values_are_compared_exactly_as_they_are_shown() -> None:
    volume = Volume("CREATE TABLE t (id INTEGER PRIMARY KEY, a)")
    values: list[tuple[Value, Value]] = [
        (None, ""), ("", b""), (0.0, -0.0), (1, 1.0), ("1", 1), ("a", "A"), ("a\0b", "a\0c"), (b"", None),
        (2**53, 2**53 + 1),
    ]  # fmt: skip
    volume.fill("t", [(n, old) for n, (old, _) in enumerate(values)])
    old = volume.image()
    volume.db.executemany("UPDATE t SET a = ? WHERE id = ?", ((new, n) for n, (_, new) in enumerate(values)))
    step = Step(old, volume.image())
    _, told = step.check(options=SHOW_ALL)
    # As words "1" is what 1 is too, and X'' what an empty BLOB is.
    assert kinds(told)["update_preimage"] == len(values) - 1
    numbers = Volume("CREATE TABLE t (id INTEGER PRIMARY KEY, a)")
    numbers.fill("t", [(1, 1), (2, 0.0), (3, 2.5)])
    before = numbers.image()
    numbers.db.executemany("UPDATE t SET a = ? WHERE id = ?", [(1.0, 1), (-0.0, 2), (2.5, 3)])
    _, told = Step(before, numbers.image()).check(options=Options(untyped=Target.DOUBLE))
    assert [change.row for change in told] == [
        (("int", "2"), ("float", "0.0")),
        (("int", "2"), ("float", "-0.0")),
    ]


def test_an_update_of_a_column_that_is_not_read_is_not_told() -> None:
    volume = numbered(100)
    step = volume.step("UPDATE t SET a = a + 1")
    assert step.check(columns=["b", "id"])[1] == []
    assert kinds(step.check(columns=["a"])[1]) == {"update_postimage": 100, "update_preimage": 100}
    assert kinds(volume.step("DELETE FROM t WHERE id = 3").check(columns=["b"])[1]) == {"delete": 1}


def test_without_rowid_is_compared_in_full_by_its_key_and_only_if_its_pages_changed() -> None:
    volume = Volume("CREATE TABLE t (k TEXT COLLATE NOCASE, n INT, v, PRIMARY KEY (k, n)) WITHOUT ROWID")
    volume.run("CREATE INDEX t_v ON t (v)", "CREATE TABLE other (a)")
    volume.fill("t", [(f"key {n}", n, n % 7) for n in range(400)])
    step = volume.step("INSERT INTO other VALUES (1)")
    assert step.check(options=SHOW_ALL)[0].method == Method.NONE
    step = volume.step(
        "UPDATE t SET v = 'x' WHERE n = 5",
        "DELETE FROM t WHERE n = 6",
        "INSERT INTO t VALUES ('new', 1, zeroblob(2000))",
    )
    plan, told = step.check(options=SHOW_ALL)
    assert (plan.method, plan.reason) == (Method.FULL, "it is WITHOUT ROWID, and some of its pages changed")
    assert kinds(told) == {"delete": 1, "insert": 1, "update_postimage": 1, "update_preimage": 1}
    _, told = volume.step("UPDATE t SET k = upper(k) WHERE n = 9").check(options=SHOW_ALL)
    assert kinds(told) == {"delete": 1, "insert": 1}
    _, told = volume.step("UPDATE t SET k = upper(k) WHERE n = 10").check(columns=["v"], options=SHOW_ALL)
    assert told == []


def test_another_kind_of_key_is_all_rows_gone_and_all_come() -> None:
    volume = numbered(20)
    step = volume.step(
        "CREATE TABLE new (id INTEGER PRIMARY KEY, a INT, b TEXT) WITHOUT ROWID",
        "INSERT INTO new SELECT * FROM t",
        "DROP TABLE t",
        "ALTER TABLE new RENAME TO t",
    )
    plan, told = step.check()
    assert (plan.method, plan.reason) == (Method.FULL, "its rows have another key than before")
    assert kinds(told) == {"delete": 20, "insert": 20}
    assert [task.number for task in plan.tasks] == [0, 1]


@pytest.mark.parametrize(("encoding", "generated"), [("UTF-16le", ""), ("UTF-8", ", c INT AS (a + 1) VIRTUAL")])
@MAPPED
def test_what_sqlite_must_read_is_read_by_the_ranges_that_changed(
    encoding: str, generated: str, auto_vacuum: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    volume = Volume(f"CREATE TABLE t (a INT, b TEXT{generated})", encoding=encoding, auto_vacuum=auto_vacuum)
    volume.fill("t(a, b)", [(n, f"row {n}") for n in range(5000)])
    step = volume.step("UPDATE t SET a = -1 WHERE rowid = 70", "DELETE FROM t WHERE rowid = 4000")
    plan, told = step.check(rowid="r")
    assert plan.method == Method.PAGES
    assert kinds(told) == {"delete": 1, "update_postimage": 1, "update_preimage": 1}
    assert pages_read(step, plan) < leaves_of(step.old) / 4
    volume.run("INSERT INTO t (rowid, a, b) VALUES (9000, 1, hex(zeroblob(3000)))")
    # Of the same length, so SQLite writes into the overflow page alone.
    step = volume.step("UPDATE t SET b = substr(b, 1, 5700) || 'x' || substr(b, 5702) WHERE rowid = 9000")
    plan, told = step.check(rowid="r")
    assert plan.method == (Method.PAGES if auto_vacuum else Method.FULL)
    assert ("may be any row's" in plan.reason) == (not auto_vacuum)
    assert kinds(told) == {"update_postimage": 1, "update_preimage": 1}
    assert list(tmp_path.iterdir()) == []


def test_tasks_are_cut_by_bytes_and_each_runs_alone() -> None:
    volume = numbered(5000)
    step = volume.step("UPDATE t SET a = a + 1 WHERE id % 3 = 0", "DELETE FROM t WHERE id % 7 = 0")
    plan, old, new = step.plan(split_bytes=16 * 512)
    assert len(plan.tasks) > 10
    sizes = [task.size_bytes for task in plan.tasks]
    assert max(sizes) <= 20 * 512
    seen: list[int] = []
    for task in reversed(plan.tasks):
        for batch in run_changes(task, old, new):
            rowids = [rowid for rowid in batch.to_pydict()["id"] if isinstance(rowid, int)]
            assert rowids == sorted(rowids)
            assert task.ranges[0][0] <= rowids[0] <= rowids[-1] <= task.ranges[-1][1]
            seen += set(rowids)
    assert sorted(seen) == [n for n in range(5000) if n % 3 == 0 or n % 7 == 0]
    assert len(step.plan(count=4)[0].tasks) == 4
    step.check(split_bytes=512)


def test_long_rows_are_told_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "PORTION_BYTES", 20_000)
    monkeypatch.setattr(rows_module, "PORTION_BYTES", 20_000)
    volume = Volume("CREATE TABLE t (id INTEGER PRIMARY KEY, b BLOB)", page_size=4096)
    volume.fill("t", [(n, bytes([n]) * (9000 if n % 4 else 50_000)) for n in range(40)])
    step = volume.step(
        "UPDATE t SET b = zeroblob(9001) WHERE id % 3 = 0",
        "DELETE FROM t WHERE id % 5 = 1",
        "INSERT INTO t VALUES (100, zeroblob(70000))",
    )
    plan, told = step.check()
    assert sum(kinds(told).values()) > 20
    batches = [batch for task in plan.tasks for batch in run_changes(task, *step.sources())]
    assert len(batches) > 5


def test_rows_too_long_for_one_array_come_as_two_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    volume = numbered(100)
    step = volume.step("UPDATE t SET a = -1 WHERE id % 9 = 0", "DELETE FROM t WHERE id % 9 = 1")
    step = Step(step.old, volume.step("INSERT INTO t VALUES (1000, 5, 'x')").new)
    _, whole = step.check()
    monkeypatch.setattr(told_module, "_MOST_BYTES", 0)
    _, parted = step.feed()
    assert sorted(parted, key=repr) == sorted(whole, key=repr)
    assert [change.kind for change in parted] != [change.kind for change in whole]


def test_a_value_of_before_that_fits_no_more_is_named() -> None:
    volume = Volume("CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT)", "INSERT INTO t VALUES (3, 'word')")
    step = volume.step("DROP TABLE t", "CREATE TABLE t (id INTEGER PRIMARY KEY, a INT)", "INSERT INTO t VALUES (3, 5)")
    with pytest.raises(BadInput, match="table t, column a, rowid 3: TEXT 'word' can't be read as long"):
        step.feed()
    _, told = step.check(options=SHOW_ALL)
    assert kinds(told) == {"update_postimage": 1, "update_preimage": 1}


def test_damage_is_corrupt_and_names_the_page() -> None:
    volume = numbered(300)
    step = volume.step("UPDATE t SET a = 5 WHERE id = 100")
    page = next(n for n in step_pages(step) if step.new[(n - 1) * 512] == Kind.LEAF_TABLE)
    spoiled = bytearray(step.new)
    start = (page - 1) * 512
    first, second = spoiled[start + 8 : start + 10], spoiled[start + 10 : start + 12]
    spoiled[start + 8 : start + 12] = second + first
    with pytest.raises(Corrupt, match=f"page {page}: its rowids don't ascend"):
        Step(step.old, bytes(spoiled)).feed()
    spoiled = bytearray(step.new)
    spoiled[start] = 7
    with pytest.raises(Corrupt, match=f"page {page}"):
        Step(step.old, bytes(spoiled)).feed()


def test_pages_that_only_were_said_to_have_changed_tell_nothing() -> None:
    volume = with_blobs(0)
    rng = random.Random(7)
    step = volume.step("UPDATE other SET b = zeroblob(10) WHERE id = 3")
    for wider in (range(1, len(step.new) // 512 + 1), rng.sample(range(1, len(step.new) // 512), 50)):
        plan, told = Step(step.old, step.new, wider=wider).check()
        assert told == []
        assert "looked at" not in plan.reason
