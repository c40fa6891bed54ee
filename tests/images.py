"""Databases for the tests of what reads pages: an image as a source of pages, and random databases of every kind."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import apsw

from budwood.sqlite.record import Value
from budwood.volume.pageset import PageSet

DECLARED = [
    "INTEGER",
    "INT",
    "UNSIGNED BIG INT",
    "TEXT",
    "VARCHAR(10)",
    "BLOB",
    "",
    "REAL",
    "DOUBLE PRECISION",
    "NUMERIC",
    "DECIMAL(10, 2)",
    "BOOLEAN",
    "DATETIME",
    "ANY",
]
STRICT = ["INTEGER", "INT", "TEXT", "BLOB", "REAL", "ANY"]
DEFAULTS = ["7", "-1.5", "'word'", "x'00ff'", "NULL", "9223372036854775807", "''", "'12'", "(CAST(3 AS TEXT))"]
BAD_TEXT = b"ok \xff\xc3\x28"


class ImagePages:
    """An image's pages; remembers what was asked for, request by request. Answers the protocol `PageSource`."""

    def __init__(self, image: bytes, page_size: int | None = None) -> None:
        self.image = image
        stored = int.from_bytes(image[16:18], "big")
        self.page_size = page_size or (65536 if stored == 1 else stored)
        self.page_count = -(-len(image) // self.page_size)
        self.lsn = 1
        self.asked: list[PageSet] = []

    def read(self, pages: PageSet) -> dict[int, bytes]:
        assert pages
        assert pages.min() >= 1
        assert pages.max() <= self.page_count
        self.asked.append(PageSet(pages))
        size = self.page_size
        return {index: self.image[(index - 1) * size : index * size].ljust(size, b"\0") for index in pages}


@dataclass(frozen=True)
class Recipe:
    """What kind of database `make_database` makes."""

    seed: int
    page_size: int = 4096
    reserve: int = 0
    encoding: str = "UTF-8"
    auto_vacuum: int = 0
    columns: int = 5
    rows: int = 200
    strict: bool = False
    generated: bool = False
    long: int = 0
    vacuum: bool = False


def make_database(path: Path, recipe: Recipe) -> None:
    """Tables `t`, `keyed` (WITHOUT ROWID), `empty`, a view `v`; rows written, deleted, updated, columns added."""
    rng = random.Random(recipe.seed)
    db = apsw.Connection(str(path))
    if recipe.reserve:
        db.reserve_bytes("main", recipe.reserve)
    for pragma in ("page_size", "encoding", "auto_vacuum"):
        db.execute(f"PRAGMA {pragma} = '{getattr(recipe, pragma)}'")
    kinds = [rng.choice(STRICT if recipe.strict else DECLARED) for _ in range(recipe.columns)]
    names = [f"c{number}" for number in range(recipe.columns)]
    columns = [f"{name} {kind}" for name, kind in zip(names, kinds, strict=True)]
    key = rng.choice(
        ["", "INTEGER PRIMARY KEY", "INTEGER PRIMARY KEY DESC", "INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT"]
    )
    if key:
        columns.insert(rng.randrange(len(columns) + 1), f"id {key}")
    if recipe.generated:
        columns.insert(rng.randrange(len(columns) + 1), "later INT AS (length(c0)) VIRTUAL")
        columns.insert(rng.randrange(len(columns) + 1), "kept TEXT AS (typeof(c0)) STORED")
    strict = " STRICT" if recipe.strict else ""
    with db:
        db.execute(f"CREATE TABLE t ({', '.join(columns)}){strict}")
        db.execute(f"CREATE TABLE empty ({', '.join(columns)}){strict}")
        db.execute(
            f"CREATE TABLE keyed ({', '.join(columns_of(names, kinds))}, k, n, PRIMARY KEY (k, n)) WITHOUT ROWID"
        )
        db.execute("CREATE INDEX t_c0 ON t (c0)")
        db.execute(f"CREATE VIEW v AS SELECT rowid AS r, {names[-1]} AS x, {names[0]} || '!' AS y FROM t")
    value = maker_of(rng, recipe.long)
    added: list[str] = []
    for _ in range(3):
        with db:
            rowids = rowids_of(rng, recipe.rows // 3)
            for rowid in rowids:
                insert(db, "t", ["rowid", *names, *added], [rowid, *(value() for _ in (*names, *added))])
                insert(db, "keyed", ["k", "n", *names], [value(), value(), *(value() for _ in names)])
        if recipe.columns < 50:
            name = f"added{len(added)}"
            kind = "ANY" if recipe.strict else rng.choice(DECLARED)
            db.execute(f"ALTER TABLE t ADD COLUMN {name} {kind} DEFAULT {rng.choice(DEFAULTS)}")
            added.append(name)
    with db:
        db.execute("DELETE FROM t WHERE rowid % 5 = 1; DELETE FROM keyed WHERE length(n) % 5 = 1")
        for (chosen,) in db.execute("SELECT rowid FROM t WHERE rowid % 3 = 0").fetchall():
            try:
                db.execute(f"UPDATE t SET {rng.choice(names)} = ? WHERE rowid = ?", (value(), chosen))
            except apsw.ConstraintError:
                continue
    if recipe.vacuum:
        db.execute("VACUUM")
    db.close()


def columns_of(names: Iterable[str], kinds: Iterable[str]) -> list[str]:
    return [f"{name} {kind}" for name, kind in zip(names, kinds, strict=True)]


def insert(db: apsw.Connection, table: str, names: list[str], values: Sequence[Value]) -> None:
    marks = ", ".join("CAST(? AS TEXT)" if value == BAD_TEXT else "?" for value in values)
    with suppress(apsw.ConstraintError):  # STRICT refuses a value of another class
        db.execute(f"INSERT OR IGNORE INTO {table} ({', '.join(names)}) VALUES ({marks})", values)


def rowids_of(rng: random.Random, count: int) -> list[int]:
    ends = [-(1 << 63), (1 << 63) - 1, 0, -1, 1 << 32, 127, 128, 16383, 16384]
    spread = [rng.randrange(-(1 << 62), 1 << 62) for _ in range(count // 4)]
    return [*rng.sample(ends, min(len(ends), count)), *spread, *range(1000, 1000 + count)]


def maker_of(rng: random.Random, long: int) -> Callable[[], Value]:
    """Values of all classes, each end of each size of integer, doubles that are whole, texts that look like numbers."""
    whole = [sign * (1 << bits) - off for bits in (0, 7, 15, 23, 31, 47, 53, 62) for sign in (1, -1) for off in (0, 1)]
    doubles = [0.5, -0.0, 1e300, -1e-300, 2.0**53, 2.0**63, -(2.0**63), float("inf"), float("-inf"), 3.0, 1e15, 0.1]
    texts = ["", "x", "12", "-1.5", "1e3", "é" * 30, "日本", "\U0001f331", "nul\0in it", "2024-02-29", " 7 ", "inf"]

    def value() -> Value:
        match rng.randrange(12):
            case 0:
                return None
            case 1 | 2:
                return rng.choice([*whole, 1, 0, (1 << 63) - 1, -(1 << 63)])
            case 3:
                return rng.randrange(1000)
            case 4:
                return rng.choice(doubles)
            case 5:
                return float(struct.unpack("d", struct.pack("Q", rng.getrandbits(62)))[0])
            case 6 | 7:
                return rng.choice(texts)
            case 8:
                return "".join(rng.choices("abc é日", k=rng.randrange(200)))
            case 9:
                return rng.randbytes(rng.choice([0, 1, 57, 58, 60, 200]))
            case 10:
                return BAD_TEXT if rng.randrange(3) == 0 else None
            case _:
                return rng.randbytes(rng.randrange(long)) if long else "word"

    return value
