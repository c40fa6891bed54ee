"""Decoding: rows per second and core of the page engine, against other ways from SQLite to Arrow, taking turns.

All read a file that the system has in its cache. What counts is the processor's time, of one core.
"""

from __future__ import annotations

import mmap
import random
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import datetime, timedelta
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa

from budwood.tables.general_engine import GeneralEngine
from budwood.tables.page_engine import PageEngine
from budwood.tables.page_source import database
from budwood.tables.scan_plan import Engine, Options, Predicate, Target, make_plan
from budwood.tables.schema import Schema, read_relation, read_schema
from budwood.tables.splits import splits
from budwood.volume.pageset import PageSet

from .harness import Figure, report, scratch, take_turns

ROWS = 300_000
COLUMNS = ("id", "a", "b", "x", "y", "s", "u", "n")


class FilePages:
    """A database file as a source of pages."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.page_size = int.from_bytes(self._map[16:18], "big") or 65536
        self.page_count = len(self._map) // self.page_size
        self.lsn = 1

    def read(self, pages: PageSet) -> dict[int, bytes]:
        size = self.page_size
        return {index: self._map[(index - 1) * size : index * size] for index in pages}


def fill(path: Path, rows: int = ROWS) -> None:
    rng = random.Random(1)
    with closing(sqlite3.connect(path)) as db, db:
        # BIGINT, since JDBC makes 32 bits of INT, silently.
        db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, a INT, b BIGINT, x REAL, y REAL, s TEXT, u TEXT, n INT)")
        db.executemany(
            "INSERT INTO t VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                (
                    number,
                    rng.randrange(100),
                    rng.randrange(1 << 40),
                    rng.random() * 100,
                    rng.random(),
                    f"name {rng.randrange(10**6)}",
                    rng.choice(["alpha", "beta", "gamma"]) * rng.randrange(1, 4),
                    None if number % 7 == 0 else number % 1000,
                )
                for number in range(rows)
            ),
        )
        db.execute("CREATE TABLE d (day DATE, at TIMESTAMP, price DECIMAL(10, 2))")
        first = datetime(2001, 2, 3)
        times = (first + timedelta(minutes=11 * number) for number in range(rows))
        db.executemany(
            "INSERT INTO d VALUES (?, ?, ?)",
            ((f"{at:%Y-%m-%d}", f"{at:%Y-%m-%d %H:%M:%S}", rng.randrange(10**6) / 100) for at in times),
        )


class Ways:
    """Each way reads the columns named and counts the rows, so that none is left unread."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.source, self.header = database(FilePages(path))
        self.schema: Schema = read_schema(self.source, self.header)
        self.relation = read_relation(self.source, self.schema, "t")
        self.leaves = splits(self.source, self.relation.root, self.header, count=1)[0].leaves
        self.declared = read_relation(self.source, self.schema, "d")

    def believed(self, *, told: bool) -> int:
        """A day, an instant and a price, as what they are declared as; else as they lie there."""
        text = {"day": Target.STRING, "at": Target.STRING, "price": Target.DOUBLE}
        options = Options(dates=True, timestamps=True, decimals=True) if told else Options(types=text)
        plan = make_plan(self.schema, self.declared, options=options)
        leaves = splits(self.source, self.declared.root, self.header, count=1)[0].leaves
        return sum(batch.num_rows for batch in PageEngine(self.source, self.header, plan).batches(leaves))

    def pages(self, columns: Sequence[str], predicate: Predicate | None = None) -> int:
        plan = make_plan(self.schema, self.relation, columns=columns)
        engine = PageEngine(self.source, self.header, plan, predicate)
        return sum(batch.num_rows for batch in engine.batches(self.leaves))

    def selective(self, columns: Sequence[str]) -> int:
        """One row of a hundred."""
        first = make_plan(self.schema, self.relation, columns=["a"])

        def keep(batch: pa.RecordBatch) -> pa.BooleanArray:
            return pa.array(batch.column(0).to_numpy() == 42, pa.bool_())

        return self.pages(columns, Predicate(first, keep))

    def general(self, columns: Sequence[str]) -> int:
        plan = make_plan(self.schema, self.relation, columns=columns, engine=Engine.GENERAL)
        return sum(batch.num_rows for batch in GeneralEngine(self.source, self.schema, plan).batches())

    def stdlib(self, columns: Sequence[str], where: str = "") -> int:
        count = 0
        types = {"s": pa.string(), "u": pa.string(), "x": pa.float64(), "y": pa.float64()}
        with closing(sqlite3.connect(self.path)) as db:
            cursor = db.execute(f"SELECT {', '.join(columns)} FROM t{where}")
            while rows := cursor.fetchmany(10_000):
                made: list[pa.Array[Any]] = [
                    pa.array(values, types.get(name, pa.int64()))
                    for name, values in zip(columns, zip(*rows, strict=True), strict=True)
                ]
                count += len(made[0])
        return count

    def adbc(self, columns: Sequence[str]) -> int:
        dbapi: Any = import_module("adbc_driver_sqlite.dbapi")
        count = 0
        with closing(dbapi.connect(f"file:{self.path}?mode=ro")) as db, closing(db.cursor()) as cursor:
            cursor.adbc_statement.set_options(**{"adbc.sqlite.query.batch_rows": "10000"})
            cursor.execute(f"SELECT {', '.join(columns)} FROM t")
            for batch in cursor.fetch_record_batch():
                count += batch.num_rows
        return count


def cpu_seconds(action: Callable[[], object]) -> float:
    start = time.process_time()
    action()
    return time.process_time() - start


def faster(name: str, ours: Callable[[], int], theirs: Callable[[], int], bound: float | None, rows: int) -> Figure:
    """How many times as fast as theirs; the note has both sides' rows per second."""
    seconds = take_turns({"theirs": lambda: cpu_seconds(theirs), "ours": lambda: cpu_seconds(ours)})
    ratios = [other / mine for mine, other in zip(seconds["ours"], seconds["theirs"], strict=True)]
    speeds = [rows / sorted(seconds[side])[len(ratios) // 2] / 1e6 for side in ("ours", "theirs")]
    note = f"{speeds[0]:.2f} M rows/s against {speeds[1]:.2f}"
    return Figure(name, sorted(ratios)[len(ratios) // 2], "×", bound, ratios, note, least=True)


def main() -> None:
    # One core: Arrow's own threads would flatter the one side.
    pa.set_cpu_count(1)
    with scratch() as folder:
        path = folder / "db"
        fill(path)
        ways = Ways(path)
        two = ("a", "x")
        every = ways.pages(COLUMNS)
        assert every == ways.general(COLUMNS) == ways.stdlib(COLUMNS) == ROWS
        assert ways.believed(told=True) == ways.believed(told=False) == ROWS
        assert ways.selective(COLUMNS) == ways.stdlib(COLUMNS, " WHERE a = 42")
        figures = [
            faster(
                "8 columns, against sqlite3 → pyarrow",
                lambda: ways.pages(COLUMNS),
                lambda: ways.stdlib(COLUMNS),
                4,
                ROWS,
            ),
            faster("2 columns, against sqlite3 → pyarrow", lambda: ways.pages(two), lambda: ways.stdlib(two), 4, ROWS),
            faster(
                "8 columns of 1 row in 100, against all rows",
                lambda: ways.selective(COLUMNS),
                lambda: ways.pages(COLUMNS),
                2,
                ROWS,
            ),
            faster(
                "a date, a timestamp and a decimal, against the same as text and double",
                lambda: ways.believed(told=True),
                lambda: ways.believed(told=False),
                0.2,
                ROWS,
            ),
            faster(
                "general engine, 8 columns, against sqlite3 → pyarrow",
                lambda: ways.general(COLUMNS),
                lambda: ways.stdlib(COLUMNS),
                None,
                ROWS,
            ),
        ]
        if find_spec("adbc_driver_sqlite"):
            assert ways.adbc(COLUMNS) == ROWS
            figures += [
                faster("8 columns, against ADBC", lambda: ways.pages(COLUMNS), lambda: ways.adbc(COLUMNS), 2, ROWS),
                faster("2 columns, against ADBC", lambda: ways.pages(two), lambda: ways.adbc(two), 2, ROWS),
            ]
        else:
            print("ADBC is not compared: adbc-driver-sqlite isn't installed")
        report("decode: pages to Arrow, one core", figures)


if __name__ == "__main__":
    main()
