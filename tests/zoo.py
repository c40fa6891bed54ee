"""A zoo of SQLite databases as volumes, for what reads tables: and stock sqlite3's own answers to compare with."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal, localcontext
from itertools import cycle, islice
from pathlib import Path
from typing import Any
from urllib.parse import quote

import apsw
from tests.images import DECLARED as ANY_DECLARED

from budwood.sqlite.record import Value
from budwood.sync.edge import Edge
from budwood.volume.protocols import Durability

INTEGERS: list[Value] = [
    *(sign * (1 << bits) + off for bits in (0, 7, 15, 23, 31, 47, 62) for sign in (1, -1) for off in (-1, 0, 1)),
    (1 << 63) - 1,
    -(1 << 63),
    -(1 << 63) + 1,
    2**53 + 1,
    None,
]
REALS: list[Value] = [
    0.0,
    -0.0,
    0.1,
    3.0,
    -7.0,
    1e15,
    2.0**53,
    1e300,
    5e-324,
    math.inf,
    -math.inf,
    2.0**63,
    math.nan,
    None,
]
TEXTS: list[Value] = [
    "",
    None,
    "x",
    "12",
    " 7 ",
    "é",
    "日本",
    "\U0001f331",
    "nul\0in it",
    "\0",
    "a\nb",
    "'\"`",
    "Nan",
    "ZZ",
    "zz ",
]
BLOBS: list[Value] = [b"", None, b"\0", b"\xff\xfe", bytes(range(256)), b"text"]
ANYTHING: list[Value] = [*INTEGERS, *REALS, *TEXTS, *BLOBS]
BAD_TEXT = b"ok \xff\xc3\x28"
DECLARED = [declared for declared in ANY_DECLARED if declared != "INTEGER"]


class Stored(bytes):
    """A TEXT's bytes."""


@dataclass(frozen=True)
class Exhibit:
    """A table, view or virtual table that is read. `both`: by either engine; else only by the general one."""

    table: str
    both: bool = True
    rowid: bool = True
    policies: tuple[str, ...] = ("fail",)
    options: dict[str, str] = field(default_factory=dict[str, str])


def unkeyed(table: str, policies: tuple[str, ...] = ("fail",), options: dict[str, str] | None = None) -> Exhibit:
    """Without rowids: a view, a virtual table, a table WITHOUT ROWID."""
    return Exhibit(table, both=False, rowid=False, policies=policies, options=options or {})


@dataclass(frozen=True)
class Animal:
    name: str
    page_size: int
    volume_page_size: int
    make: Callable[[apsw.Connection], None]
    exhibits: tuple[Exhibit, ...]
    encoding: str = "UTF-8"
    auto_vacuum: int = 0
    reserve: int = 0
    journal: str = "delete"

    def build(self, path: Path) -> None:
        with closing(apsw.Connection(str(path))) as db:
            if self.reserve:
                db.reserve_bytes("main", self.reserve)
            db.execute(f"PRAGMA page_size = {self.page_size}")
            db.execute(f"PRAGMA encoding = '{self.encoding}'")
            db.execute(f"PRAGMA auto_vacuum = {self.auto_vacuum}")
            db.execute(f"PRAGMA journal_mode = {self.journal}")
            with db:
                self.make(db)
        image = path.read_bytes()
        assert int.from_bytes(image[16:18], "big") in (self.page_size, 1)


def fill(db: apsw.Connection, table: str, rows: int, *pools: Sequence[Value]) -> None:
    """Each column turns through its pool, and begins one further than the column before it."""
    columns: list[Iterator[Value]] = [islice(cycle(pool), number, None) for number, pool in enumerate(pools)]
    marks = ", ".join("?" * len(pools))
    for _ in range(rows):
        db.execute(f"INSERT INTO {table} VALUES ({marks})", [next(column) for column in columns])


def long_values(length: int) -> list[Value]:
    return ["long ü " * (length // 7), "short", None, bytes(range(256)) * (length // 256), 7, "x" * length, b"", ""]


def of_all_kinds(db: apsw.Connection) -> None:
    """Every affinity with every class; long rows; rows that were written before their columns were added."""
    columns = ", ".join(f"c{number} {declared}" for number, declared in enumerate(DECLARED))
    db.execute(f"CREATE TABLE mixed ({columns})")
    fill(db, "mixed", 200, *[ANYTHING] * len(DECLARED))
    db.execute("INSERT INTO mixed (c2, c5) VALUES (CAST(? AS TEXT), CAST(? AS TEXT))", (BAD_TEXT, BAD_TEXT))
    db.execute("CREATE TABLE long (a INTEGER PRIMARY KEY DESC, b TEXT, c BLOB, d INT)")
    fill(db, "long", 60, range(-30, 30), ["y" * 5000, "é" * 700, "", None], [b"\0" * 9000, b"z" * 60, None], INTEGERS)
    db.execute("CREATE TABLE grown (a INT, b TEXT)")
    fill(db, "grown", 30, INTEGERS, TEXTS)
    defaults = [
        "7",
        "-1.5",
        "'word'",
        "x'00ff'",
        "NULL",
        "9223372036854775807",
        "'12'",
        "(CAST(3 AS TEXT))",
        '"quoted"',
        "TRUE",
    ]
    for number, (declared, default) in enumerate(
        zip(cycle(["INT", "REAL", "TEXT", "BLOB", ""]), defaults, strict=False)
    ):
        db.execute(f"ALTER TABLE grown ADD COLUMN added{number} {declared} DEFAULT {default}")
        db.execute(f"INSERT INTO grown (a) VALUES ({number})")
    db.execute("ALTER TABLE grown RENAME COLUMN added0 TO renamed; ALTER TABLE grown DROP COLUMN b")
    db.execute("DELETE FROM long WHERE d IS NULL; UPDATE grown SET added3 = NULL WHERE rowid % 3 = 0")


def of_edges(db: apsw.Connection) -> None:
    """Values that are their columns', each at its ends."""
    db.execute("CREATE TABLE edges (i INTEGER, r REAL, s TEXT, b BLOB, n NUMERIC)")
    exact: list[Value] = [0, -1, 2**53, -(2**63), 0.5, -0.0, 1e300, math.inf, None, "12.5", "3"]
    fill(db, "edges", 180, INTEGERS, REALS, TEXTS, BLOBS, exact)
    db.execute("CREATE TABLE keys (id INTEGER PRIMARY KEY AUTOINCREMENT, s TEXT)")
    ids = [-(1 << 63), -(1 << 40), -1, 0, 1, 127, 128, 16384, 1 << 32, (1 << 63) - 1]
    db.executemany("INSERT INTO keys VALUES (?, ?)", [(number, f"row {number}") for number in ids])
    db.execute("CREATE TABLE empty (id INTEGER PRIMARY KEY, a TEXT NOT NULL DEFAULT 'x', b REAL)")
    db.execute("CREATE TABLE one (a, b)")
    db.execute("INSERT INTO one VALUES (x'00', NULL)")
    db.execute("CREATE VIEW seen AS SELECT s AS t, i, i IS NULL AS is_null, rowid AS r FROM edges WHERE i <> 0")


def of_keys(db: apsw.Connection) -> None:
    """WITHOUT ROWID, collations, indexes that leave rows out or hold expressions, views of views."""
    db.execute(
        "CREATE TABLE keyed (a TEXT COLLATE NOCASE, n INT, b BLOB, r REAL, PRIMARY KEY (n DESC, a)) WITHOUT ROWID"
    )
    db.executemany(
        "INSERT INTO keyed VALUES (?, ?, ?, ?)",
        [(f"{'Aa'[number % 2]}{number}", number % 50, bytes(number * 40), number / 7) for number in range(150)],
    )
    db.execute("CREATE TABLE collated (a TEXT COLLATE NOCASE UNIQUE, b TEXT COLLATE RTRIM PRIMARY KEY, c INT)")
    db.executemany(
        "INSERT INTO collated VALUES (?, ?, ?)", [(f"Key É {n}", f"{n}" + " " * (n % 4), n) for n in range(300)]
    )
    db.execute("CREATE INDEX some ON collated (c) WHERE c > 100")
    db.execute("CREATE INDEX lowered ON collated (lower(a), c DESC)")
    db.execute("CREATE INDEX whole ON collated (a COLLATE BINARY, b, c)")
    db.execute("DELETE FROM collated WHERE c % 7 = 0; UPDATE collated SET c = -c WHERE c % 5 = 0")
    db.execute("CREATE VIEW joined AS SELECT k.a, c.b, k.r, c.c FROM keyed AS k JOIN collated AS c ON c.c = k.n")
    db.execute("CREATE VIEW counted AS SELECT CAST(count(*) AS INT) AS n, max(b) AS m FROM joined")


def of_odd_names(db: apsw.Connection) -> None:
    db.execute("""CREATE TABLE "sel""ect `from` [x] 日.本" ("a b" INT, "c""d" TEXT, "group" REAL, [e.f] INT,
        `g``h` TEXT, "日本" INT, "'" TEXT, "😀" BLOB, "a,b" INT, "semi;colon" INT, "UPPER" INT, "new
line" INT)""")
    fill(
        db,
        '"sel""ect `from` [x] 日.本"',
        40,
        *[INTEGERS, TEXTS, REALS, INTEGERS, TEXTS, INTEGERS, TEXTS, BLOBS],
        *[INTEGERS] * 4,
    )
    db.execute("CREATE TABLE hidden (rowid TEXT, _rowid_ INT, oid REAL)")
    fill(db, "hidden", 20, TEXTS, INTEGERS, REALS)
    db.execute("CREATE TABLE [order] (id INTEGER PRIMARY KEY, [table] INT)")
    fill(db, "[order]", 20, range(20), INTEGERS)


def of_rules(db: apsw.Connection) -> None:
    """STRICT, generated columns, and declared types that are believed where it is asked for."""
    db.execute("CREATE TABLE strict (id INTEGER PRIMARY KEY, i INT, r REAL, s TEXT, b BLOB, x ANY) STRICT")
    for number, (i, r, s, b, x) in enumerate(
        islice(zip(cycle(INTEGERS), cycle(REALS), cycle(TEXTS), cycle(BLOBS), cycle(BLOBS), strict=False), 150)
    ):
        db.execute("INSERT INTO strict VALUES (?, ?, ?, ?, ?, ?)", (number, i, r, s, b, x))
    db.execute(
        "CREATE TABLE made (a INT, twice INT AS (a * 2) VIRTUAL, b TEXT, kept TEXT AS (b || '!') STORED, "
        "n INT AS (length(b)), c REAL)"
    )
    db.executemany("INSERT INTO made (a, b, c) VALUES (?, ?, ?)", [(n, f"b{n}" * n, n / 3) for n in range(80)])
    db.execute("CREATE TABLE declared (d DECIMAL(12, 3), o BOOLEAN, t DATE, w TIMESTAMP, m NUMERIC(38, 0))")
    fill(
        db,
        "declared",
        60,
        [0, -1.5, 999999999.999, 12.345, None, 7],
        [1, 0, None],
        ["0001-01-01", "1582-10-10", "1969-12-31", "2024-02-29", "9999-12-31", None],
        ["1970-01-01", "2024-02-29 12:30:00.000001", "2024-02-29T23:59+05:30", "1899-12-31 00:00:00Z", None],
        [(1 << 63) - 1, -(1 << 63), 0, None],
    )


def of_width(db: apsw.Connection) -> None:
    db.execute(f"CREATE TABLE wide ({', '.join(f'c{n} {DECLARED[n % 3 * 2]}' for n in range(200))})")
    fill(db, "wide", 60, *[(INTEGERS, TEXTS, BLOBS)[n % 3] for n in range(200)])


def of_length(db: apsw.Connection) -> None:
    db.execute("CREATE TABLE long (a INT, b TEXT, c BLOB)")
    fill(db, "long", 24, INTEGERS, ["t" * 150_000, "", "short", "ß" * 70_000], [bytes(300_000), b"1", None])


def of_modules(db: apsw.Connection) -> None:
    db.execute("CREATE VIRTUAL TABLE words USING fts5 (title, body)")
    db.executemany("INSERT INTO words VALUES (?, ?)", [(f"title {n}", "the quick brown fox " * n) for n in range(40)])
    db.execute("CREATE VIRTUAL TABLE boxes USING rtree (id, x0, x1)")
    db.executemany("INSERT INTO boxes VALUES (?, ?, ?)", [(n, n / 2, n / 2 + 1) for n in range(60)])
    db.execute("CREATE VIEW found AS SELECT title FROM words WHERE words MATCH 'fox' AND rowid < 9")
    db.execute("CREATE TABLE plain (a INT)")
    db.execute("INSERT INTO plain SELECT value FROM json_each('[1, 2, 3]')")


_ALL = ("null", "string")
_TYPES = {"decimals": "true", "booleans": "true", "dates": "true", "timestamps": "true"}
_ANY_CLASS = {"untypedAs": "text"}

ANIMALS: tuple[Animal, ...] = (
    Animal(
        "kinds",
        512,
        4096,
        of_all_kinds,
        (Exhibit("mixed", policies=_ALL), Exhibit("long"), Exhibit("grown", policies=("null",), options=_ANY_CLASS)),
        auto_vacuum=1,
    ),
    Animal(
        "edges",
        1024,
        1024,
        of_edges,
        (
            Exhibit("edges"),
            Exhibit("keys"),
            Exhibit("empty"),
            Exhibit("one"),
            unkeyed("seen", options=_ANY_CLASS),
        ),
        auto_vacuum=2,
        reserve=32,
    ),
    Animal(
        "edges in UTF-16le",
        2048,
        512,
        of_edges,
        (Exhibit("edges", both=False), Exhibit("keys", both=False)),
        encoding="UTF-16le",
    ),
    Animal(
        "kinds in UTF-16be",
        8192,
        8192,
        of_all_kinds,
        (Exhibit("mixed", both=False, policies=("string",)), Exhibit("long", both=False)),
        encoding="UTF-16be",
        journal="wal",
    ),
    Animal(
        "keys",
        16384,
        65536,
        of_keys,
        (
            unkeyed("keyed"),
            Exhibit("collated"),
            unkeyed("joined"),
            unkeyed("counted", options=_ANY_CLASS),
        ),
        journal="wal",
    ),
    Animal(
        "odd 'names' \"and\" ünïcode",
        4096,
        4096,
        of_odd_names,
        (Exhibit('sel"ect `from` [x] 日.本'), Exhibit("hidden", rowid=False), Exhibit("order")),
    ),
    Animal(
        "rules",
        4096,
        512,
        of_rules,
        (
            Exhibit("strict", policies=("fail", "string")),
            Exhibit("made", both=False),
            Exhibit("declared", options=_TYPES),
        ),
    ),
    Animal("width", 32768, 4096, of_width, (Exhibit("wide", policies=("fail",)),)),
    Animal("length", 65536, 4096, of_length, (Exhibit("long"),), auto_vacuum=1),
    Animal(
        "modules",
        1024,
        4096,
        of_modules,
        (
            unkeyed("words", options=_ANY_CLASS),
            unkeyed("boxes", options=_ANY_CLASS, policies=("string",)),
            Exhibit("words_content", policies=("string",)),
            unkeyed("found", options={"type.title": "string"}),
            Exhibit("plain"),
        ),
    ),
)


def put(edge: Edge, name: str, image: bytes, page_size: int) -> None:
    """One commit: the volume holds this image and nothing else."""
    volume = edge.volume(name)
    writer = volume.writer(page_size=page_size)
    try:
        writer.truncate(len(image))
        for start in range(0, len(image), page_size):
            writer.write(start // page_size + 1, image[start : start + page_size].ljust(page_size, b"\0"))
        view = writer.commit(Durability.ORDERED)
        assert view
        view.release()
    finally:
        writer.rollback()
    volume.push()


def rows_of(path: Path, table: str, *, rowid: bool = False) -> list[tuple[Any, ...]]:
    """Stock sqlite3's answer, TEXT as Stored."""
    with opened(path) as db:
        db.text_factory = Stored
        return db.execute(f"SELECT {'rowid, ' if rowid else ''}* FROM {quoted(table)}").fetchall()


def types_of(path: Path, exhibit: Exhibit, policy: str) -> list[tuple[str, str]]:
    """The columns' names and types as they are promised, worked out anew; `text` is a string that takes any class."""
    options = exhibit.options
    # The types of a view's columns are another matter for each version of SQLite: this is the one that plans.
    with closing(
        apsw.Connection(f"file:{quote(str(path))}?immutable=1", apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
    ) as db:
        columns = db.execute("SELECT name, type, pk, hidden FROM pragma_table_xinfo(?)", (exhibit.table,)).fetchall()
        held = {str(name): _held(db, exhibit.table, str(name)) for name, _, _, hidden in columns if str(hidden) != "1"}
        sql = str(db.execute("SELECT sql FROM sqlite_schema WHERE name = ?", (exhibit.table,)).fetchall()[0][0])
    strict = sql.endswith("STRICT")
    found: list[tuple[str, str]] = []
    for name, declared, key, hidden in (map(str, row) for row in columns):
        enforced = (strict and declared != "ANY") or (key != "0" and declared == "INTEGER" and "DESC" not in sql)
        if hidden == "1":
            continue
        named = options.get(f"type.{name}", "")
        if policy == "string" and not enforced and named in ("", "string"):
            found.append((name, "text"))
        else:
            found.append((name, named or _type_of(declared, options, held[name], strict=strict)))
    return found


def _held(db: apsw.Connection, table: str, column: str) -> dict[str, int]:
    """How many values of each class, by SQLite's words for them; `beyond`: integers that no double equals."""
    counts = db.execute(f"SELECT typeof({quoted(column)}), count(*) FROM {quoted(table)} GROUP BY 1").fetchall()
    beyond = f"typeof({quoted(column)}) = 'integer' AND CAST(CAST({quoted(column)} AS REAL) AS INT) <> {quoted(column)}"
    ((far,),) = db.execute(f"SELECT count(*) FROM {quoted(table)} WHERE {beyond}").fetchall()
    return {str(kind): int(str(count)) for kind, count in [*counts, ("beyond", far)]}


def _most(declared: str, held: dict[str, int]) -> str:
    """What a column is read as whose declaration doesn't tell: as what most of it is."""
    numbers, texts, blobs = (held.get("integer", 0) + held.get("real", 0), held.get("text", 0), held.get("blob", 0))
    if not numbers + texts + blobs:
        return {"": "string", "BLOB": "binary", "DATE": "string", "TIMESTAMP": "string"}.get(declared, "double")
    if numbers < max(texts, blobs):
        return "string" if texts >= blobs else "binary"
    fraction = declared.startswith(("DECIMAL", "NUMERIC")) and not held["beyond"]
    return "double" if "real" in held or fraction else "bigint"


def _type_of(declared: str, options: dict[str, str], held: dict[str, int], *, strict: bool) -> str:
    flags = {
        "DECIMAL(12, 3)": ("decimals", "decimal(12,3)"),
        "NUMERIC(38, 0)": ("decimals", "decimal(38,0)"),
        "BOOLEAN": ("booleans", "boolean"),
        "DATE": ("dates", "date"),
        "TIMESTAMP": ("timestamps", "timestamp"),
    }
    flag, type_ = flags.get(declared, ("", ""))
    if flag in options:
        return type_
    if declared == "" or (strict and declared == "ANY"):
        return options.get("untypedAs") or _most(declared, held)
    for part, type_ in [
        ("INT", "bigint"),
        ("CHAR", "string"),
        ("TEXT", "string"),
        ("REAL", "double"),
        ("DOUB", "double"),
    ]:
        if part in declared:
            return type_
    return "binary" if strict else _most(declared, held)


class Misfit(Exception):
    """A value that its column's type does not take."""


def expected(value: Any, type_: str, policy: str) -> Any:
    """What a stored value is to be read as. Raises Misfit."""
    if value is None:
        return None
    try:
        return _taken(value, type_, policy)
    except (Misfit, ValueError, ArithmeticError) as error:
        if policy == "null":
            return None
        raise Misfit(repr(value)) from error


def _taken(value: Any, type_: str, policy: str) -> Any:
    match type_, value:
        case (("text" | "string"), Stored()):
            return value.decode(errors="replace" if policy == "string" else "strict")
        case "text", float():
            return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value) or repr(value)
        case "text", int():
            return str(value)
        case "text", bytes():
            return f"X'{value.hex().upper()}'"
        case "bigint", int():
            return value
        case "double", float():
            return value
        case "double", int() if int(float(value)) == value:
            return float(value)
        case "binary", bytes() if not isinstance(value, Stored):
            return value
        case "boolean", int():
            return {0: False, 1: True}[value]
        case "date", Stored():
            return date.fromisoformat(value.decode())
        case "timestamp", Stored():
            at = datetime.fromisoformat(value.decode())
            return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
        case _, int() | float() if type_.startswith("decimal"):
            scale = int(type_[:-1].split(",")[1])
            with localcontext(prec=60):
                return Decimal(repr(value)).quantize(Decimal(1).scaleb(-scale))
        case _:
            raise Misfit(repr(value))


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@contextmanager
def opened(path: Path) -> Generator[sqlite3.Connection]:
    with closing(sqlite3.connect(f"file:{quote(str(path))}?immutable=1", uri=True)) as db:
        yield db
