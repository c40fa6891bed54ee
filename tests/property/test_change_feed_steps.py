"""A feed over random workloads: applied to the old rows it gives the new ones, and tells old rows as they were.

Every commit is an image of the database file. Steps go from one to the next and over several at once; the pages said to
have changed are those that differ, and sometimes more, in a volume's pages of another size than the database's.
"""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import apsw
from hypothesis import event, given, settings
from hypothesis import strategies as st
from tests.feed_steps import SHOW_ALL, Step, Value

from budwood.tables.scan_plan import Mismatch, Options
from budwood.volume.errors import BadInput, Corrupt, NotFound, Unsupported

SHAPES = [
    "(id INTEGER PRIMARY KEY, a, b TEXT, c REAL)",
    "(a, b, c)",
    "(a TEXT, b BLOB, c INT, d AS (length(b)) VIRTUAL, e AS (typeof(a)) STORED)",
    "(a, b, c, PRIMARY KEY (a, b)) WITHOUT ROWID",
    "(a TEXT COLLATE NOCASE PRIMARY KEY DESC, b, c REAL, d AS (a || 'x')) WITHOUT ROWID",
]
TABLES = ["t", "u"]


@dataclass(frozen=True)
class Database:
    page_size: int
    auto_vacuum: int
    encoding: str
    reserve: int
    shape: int
    volume_page_size: int
    seed: int


class Workload:
    """Statements at random, as the seed says. What SQLite refuses is no change."""

    def __init__(self, path: Path, kind: Database) -> None:
        self.rng = random.Random(kind.seed)
        self.path = path
        self.db = apsw.Connection(str(path))
        if kind.reserve:
            self.db.reserve_bytes("main", kind.reserve)
        for pragma in ("page_size", "encoding", "auto_vacuum"):
            self.db.execute(f"PRAGMA {pragma} = '{getattr(kind, pragma)}'")
        self.db.execute("PRAGMA journal_mode = MEMORY; PRAGMA synchronous = OFF")
        self.page_size = kind.page_size
        self.added = 0
        self.db.execute(f"CREATE TABLE t {SHAPES[kind.shape]}; CREATE TABLE u (a, b, c)")
        self.insert("t", 30)
        self.insert("u", 10)

    def image(self) -> bytes:
        return self.path.read_bytes()

    def value(self) -> Value:
        rng = self.rng
        match rng.randrange(12):
            case 0:
                return None
            case 1 | 2:
                return rng.randrange(-5, 5)
            case 3:
                return rng.choice([0.0, -0.0, 1.0, 1.5, float("inf"), -(2**63), 2**63 - 1, 2**53 + 1])
            case 4 | 5:
                return rng.choice(["", "a", "A", "b", "1", "é"])
            case 6:
                return rng.choice([b"", b"a", bytes(7)])
            case 7:
                return rng.choice("xyz") * rng.randrange(20, 400)
            case 8:
                return rng.randbytes(1) * rng.choice([self.page_size, 3 * self.page_size, 700])
            case _:
                return rng.randrange(1 << 40)

    def columns(self, table: str) -> list[str]:
        return [str(row[1]) for row in self.db.execute(f"PRAGMA table_xinfo({table})") if not row[6]]

    def insert(self, table: str, count: int) -> None:
        columns = self.columns(table)
        if not columns:
            return
        rowid = self.rng.random() < 0.5
        for _ in range(count):
            names, values = list(columns), [self.value() for _ in columns]
            if "id" in names:
                values[names.index("id")] = self.rng.choice([None, self.rng.randrange(-50, 500)])
            elif rowid and self.rng.random() < 0.3:
                names, values = ["rowid", *names], [self.rng.randrange(-50, 500), *values]
            self.run(
                f"INSERT OR {self.rng.choice(['REPLACE', 'IGNORE'])} INTO {table} ({', '.join(names)})"
                f" VALUES ({', '.join('?' * len(names))})",
                values,
            )

    def run(self, sql: str, values: list[Value] | None = None) -> None:
        with suppress(apsw.Error):
            self.db.execute(sql, values)

    def some(self, table: str) -> str:
        return self.rng.choice(
            ["rowid % 7 = 3", "rowid BETWEEN 10 AND 30", "a = 1", "length(b) > 300", "abs(random()) % 5 = 0"]
        )

    def do(self, what: str, table: str) -> None:
        rng = self.rng
        columns = self.columns(table)
        column = rng.choice(columns) if columns else "a"
        match what:
            case "insert":
                self.insert(table, rng.choice([1, 3, 40]))
            case "update":
                self.run(f"UPDATE {table} SET {column} = ? WHERE {self.some(table)}", [self.value()])
            case "overwrite":
                # The same length, so SQLite writes in place: some chains change and their leaves don't.
                self.run(
                    f"UPDATE {table} SET {column} = substr({column}, 1, length({column}) - 3) || ?"
                    f" WHERE typeof({column}) = 'text' AND length({column}) > 100 AND rowid % 2 = ?",
                    [rng.choice(["abc", "xyz"]), rng.randrange(2)],
                )
                self.blob(table, column)
            case "delete":
                self.run(f"DELETE FROM {table} WHERE {self.some(table)}")
            case "empty":
                self.run(f"DELETE FROM {table}")
            case "key":
                self.run(f"UPDATE {table} SET rowid = rowid + ? WHERE {self.some(table)}", [rng.choice([1, 1000])])
            case "drop":
                self.run(f"DROP TABLE IF EXISTS {table}")
                self.run(f"DROP VIEW IF EXISTS {table}")
                if rng.random() < 0.8:
                    self.run(f"CREATE TABLE {table} {rng.choice(SHAPES)}")
                    self.insert(table, rng.choice([0, 20]))
                elif rng.random() < 0.5:
                    self.run(f"CREATE VIEW {table} AS SELECT 1 AS a")
            case "column":
                self.added += 1
                default = rng.choice(["", " DEFAULT 5", " TEXT DEFAULT 'x'", " AS (a) VIRTUAL"])
                self.run(
                    rng.choice(
                        [
                            f"ALTER TABLE {table} ADD COLUMN n{self.added}{default}",
                            f"ALTER TABLE {table} DROP COLUMN {column}",
                            f"ALTER TABLE {table} RENAME COLUMN {column} TO r{self.added}",
                        ]
                    )
                )
            case "index":
                self.run(f"CREATE INDEX i{self.added} ON {table} ({column})")
                self.added += 1
            case "rename":
                self.run(f"ALTER TABLE {table} RENAME TO w")
                self.run(f"CREATE TABLE {table} AS SELECT * FROM w")
                self.run("DROP TABLE w")
            case "swap":
                self.run("ALTER TABLE t RENAME TO w")
                self.run("ALTER TABLE u RENAME TO t")
                self.run("ALTER TABLE w RENAME TO u")
            case "vacuum":
                size = rng.choice([512, 1024, 4096])
                mode = rng.randrange(3)
                self.run(rng.choice([f"PRAGMA page_size = {size}", f"PRAGMA auto_vacuum = {mode}", "SELECT 1"]))
                self.run("VACUUM")
            case _:
                self.run(f"PRAGMA incremental_vacuum({rng.choice([1, 5, 1000])})")

    def blob(self, table: str, column: str) -> None:
        """A byte in the midst of a long value, as sqlite3_blob_write does it."""
        with suppress(apsw.Error):
            rows = self.db.execute(
                f"SELECT rowid, length(CAST({column} AS BLOB)) FROM {table}"
                f" WHERE typeof({column}) IN ('text', 'blob') AND length({column}) > 300"
            ).fetchall()
            if rows:
                rowid, length = self.rng.choice(rows)
                assert isinstance(rowid, int)
                assert isinstance(length, int)
                with self.db.blob_open("main", table, column, rowid, True) as blob:
                    blob.seek(self.rng.randrange(length))
                    blob.write(b"w")

    def commit(self, what: list[tuple[str, str]]) -> None:
        alone = any(name in ("vacuum", "incremental") for name, _ in what)
        if not alone:
            self.db.execute("BEGIN")
        for name, table in what:
            self.do(name, table)
        if not alone:
            self.db.execute("COMMIT")


DATABASES = st.builds(
    Database,
    page_size=st.sampled_from([512, 512, 1024, 4096]),
    auto_vacuum=st.integers(0, 2),
    encoding=st.sampled_from(["UTF-8", "UTF-8", "UTF-8", "UTF-16le"]),
    reserve=st.sampled_from([0, 0, 8]),
    shape=st.sampled_from([0, 0, 1, 2, 3, 4]),
    volume_page_size=st.sampled_from([0, 0, 512, 4096]),
    seed=st.integers(0, 1 << 32),
)
WHAT = [
    *("insert", "insert", "update", "update", "overwrite", "overwrite", "delete", "delete", "empty", "key", "drop"),
    *("column", "column", "index", "rename", "swap", "vacuum", "incremental"),
]
COMMITS = st.lists(
    st.lists(
        st.tuples(
            st.sampled_from(WHAT),
            st.sampled_from(TABLES),
        ),
        min_size=1,
        max_size=3,
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=min(settings().max_examples // 2, 1500))
@given(DATABASES, COMMITS, st.data())
def test_a_feed_turns_the_old_rows_into_the_new_ones(
    kind: Database, commits: list[list[tuple[str, str]]], data: st.DataObject
) -> None:
    with TemporaryDirectory() as folder:
        work = Workload(Path(folder) / "db", kind)
        images = [b"", work.image()]
        for commit in commits:
            work.commit(commit)
            images.append(work.image())
        work.db.close()
    steps = [(number - 1, number) for number in range(1, len(images))]
    steps.append((data.draw(st.integers(0, len(images) - 2)), len(images) - 1))
    rng = random.Random(kind.seed)
    for one, other in steps:
        check(Step(images[one], images[other], kind.volume_page_size or None), rng)


def check(step: Step, rng: random.Random) -> None:
    old, new = step.sources()
    count = max(source.page_count for source in (old, new) if source)
    wider = rng.choice([[], [], rng.sample(range(1, count + 1), min(3, count)), range(1, count + 1)])
    step = Step(step.old, step.new, step.page_size, wider)
    for table in TABLES:
        options = rng.choice([SHOW_ALL, Options(mismatch=Mismatch.NULL)])
        try:
            plan, _ = step.check(table, options=options, count=rng.choice([None, 1, 3]))
            event(f"{plan.method}{': looked at' * ('looked at' in plan.reason)}")
            if plan.relation is not None and not plan.relation.without_rowid:
                step.check(table, options=options, rowid="the rowid", split_bytes=rng.choice([None, 4096]))
        except NotFound:
            event("no such table")
        except BadInput as error:
            event("a view")
            if "is a view" not in str(error):
                raise


@settings(max_examples=settings().max_examples)
@given(st.data())
def test_a_damaged_page_of_either_side_is_an_error_in_words_and_never_another(data: st.DataObject) -> None:
    images = list(sound_images(data.draw(st.sampled_from([0, 1]))))
    for _ in range(data.draw(st.integers(1, 4))):
        side = data.draw(st.integers(0, 1))
        page = data.draw(st.integers(2, len(images[side]) // 512))
        at = 512 * (page - 1) + data.draw(st.one_of(st.integers(0, 11), st.integers(0, 511)))
        spoiled = bytearray(images[side])
        spoiled[at] ^= data.draw(st.integers(1, 255))
        images[side] = bytes(spoiled)
    for table in ("t", "k", "g"):
        with suppress(Corrupt, Unsupported):
            Step(images[0], images[1]).feed(table, options=SHOW_ALL)


@cache
def sound_images(auto_vacuum: int) -> tuple[bytes, bytes]:
    db = apsw.Connection(":memory:")
    db.execute(f"PRAGMA page_size = 512; PRAGMA auto_vacuum = {auto_vacuum}")
    db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, a, b); CREATE TABLE k (a PRIMARY KEY, b) WITHOUT ROWID")
    db.execute("CREATE TABLE g (id INTEGER PRIMARY KEY, a, b AS (a || 'x'))")
    rows = [(n, f"row {n}", bytes([n]) * (3085 if n % 10 == 0 else 20)) for n in range(60)]
    db.executemany("INSERT INTO t VALUES (?, ?, ?)", rows)
    db.executemany("INSERT INTO k VALUES (?, ?)", [(n, long) for n, _, long in rows])
    db.executemany("INSERT INTO g VALUES (?, ?)", [(n, long) for n, _, long in rows])
    old = db.serialize("main")
    for table, column in (("t", "b"), ("g", "a")):
        db.execute(f"UPDATE {table} SET {column} = zeroblob(3085) WHERE id = 30")
        db.execute(f"UPDATE {table} SET {column} = 'x' WHERE id = 31; DELETE FROM {table} WHERE id > 50")
    with db.blob_open("main", "t", "b", 20, True) as blob:
        blob.seek(2000)
        blob.write(b"in place")
    db.execute("DELETE FROM k WHERE a % 7 = 1")
    return old, db.serialize("main")
