"""Local speed against plain SQLite in WAL mode: the same statements, the same apsw, taking turns."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import apsw

import budwood

from .harness import Figure, compare, report, scratch

ROWS = 300_000
PAYLOAD = "x" * 100
"""Rows of about 120 bytes, some thirty to a page: 40 MB."""


def plain(path: Path, *, synchronous: str = "FULL") -> apsw.Connection:
    connection = apsw.Connection(str(path))
    connection.pragma("journal_mode", "wal")
    connection.pragma("synchronous", synchronous)
    return connection


def volume(home: Path, name: str, *, synchronous: str = "FULL") -> apsw.Connection:
    connection = budwood.connect(name, home=home)
    connection.pragma("synchronous", synchronous)
    return connection


def fill(db: apsw.Connection, rows: int = ROWS) -> None:
    with db:
        db.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT, n INT)")
        db.executemany("INSERT INTO t VALUES(?, ?, ?)", ((i, PAYLOAD, i % 97) for i in range(rows)))


def point_reads(db: apsw.Connection, count: int = 20_000) -> Callable[[], None]:
    """Random keys, each read in a transaction of its own, every page in SQLite's cache on both sides."""
    keys = random.Random(7).choices(range(ROWS), k=count)
    found = (PAYLOAD,)

    def run() -> None:
        db.pragma("cache_size", -128 * 1024)
        for key in keys:
            assert db.execute("SELECT v FROM t WHERE id = ?", (key,)).fetchone() == found

    return run


def scan(open_: Callable[[], apsw.Connection]) -> Callable[[], None]:
    def run() -> None:
        db = open_()
        assert db.execute("SELECT count(*), sum(n) > 0 FROM t").fetchall() == [(ROWS, 1)]
        db.close()

    return run


def bulk_insert(make: Callable[[int], apsw.Connection]) -> Callable[[], None]:
    number = 0

    def run() -> None:
        nonlocal number
        number += 1
        db = make(number)
        fill(db)
        db.close()

    return run


def one_row_commits(db: apsw.Connection, synchronous: str, count: int) -> Callable[[], None]:
    keys = random.Random(11)

    def run() -> None:
        db.pragma("synchronous", synchronous)
        for _ in range(count):
            db.execute("UPDATE t SET n = n + 1 WHERE id = ?", (keys.randrange(ROWS),))

    return run


def main() -> None:
    with scratch() as folder:
        home = folder / "home"
        ours, theirs = volume(home, "bench"), plain(folder / "plain.db")
        fill(ours)
        fill(theirs)
        figures: list[Figure] = [
            compare(
                "warm point read",
                point_reads(ours),
                point_reads(theirs),
                1.0,
                note="20,000 transactions; over the bound: the locks' Python",
            ),
            compare(
                "scan, cold SQLite cache",
                scan(lambda: volume(home, "bench")),
                scan(lambda: plain(folder / "plain.db")),
                1.15,
                note=f"{ROWS:,} rows, read by this process before; the first time there is one checksum a page more",
            ),
            compare(
                "bulk insert",
                bulk_insert(lambda n: volume(home, f"fill{n}")),
                bulk_insert(lambda n: plain(folder / f"fill{n}.db")),
                1.0,
                note=f"{ROWS:,} rows in one transaction, fresh file, synchronous=FULL",
            ),
            compare(
                "one-row commit, FULL",
                one_row_commits(ours, "FULL", 200),
                one_row_commits(theirs, "FULL", 200),
                1.0,
                note="200 commits, each durable when it returns, by one flush on either side; over the bound: Python",
            ),
            *(
                compare(
                    f"one-row commit, {mode}",
                    one_row_commits(ours, mode, 1500),
                    one_row_commits(theirs, mode, 1500),
                    5.0,
                    note="1,500 commits; the journal's moves into LMDB and WAL's checkpoints are among them",
                )
                for mode in ("NORMAL", "OFF")
            ),
        ]
        ours.close()
        theirs.close()
    report("local: against plain SQLite (WAL)", figures)


if __name__ == "__main__":
    main()
