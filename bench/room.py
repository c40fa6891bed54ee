"""Room: what a home takes of the disk after UPDATEs of every row, by what it holds; what commits of one row cost while
somebody reads what was there before them; and what a limit of half the working set costs whoever reads a volume of a
node, against none: a scan of all of it from nothing, and point queries of a part of it with a scan in between.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from itertools import count
from pathlib import Path

import apsw

import budwood

from .counting_proxy import node_on
from .harness import Figure, compare, report, scratch
from .local import fill, volume

ROWS = 300_000
QUERIES = 3_000
COMMITS = 200


def taken(home: Path) -> int:
    """Bytes on the disk of all that the store has, the journal included."""
    return sum(each.stat().st_blocks * 512 for each in (home / "store").iterdir())


def held(home: Path) -> int:
    with budwood.open(home=home, remote="") as edge:
        return sum(int(edge.volume(row["name"]).status()["held_bytes"]) for row in edge.ls())


def updated(home: Path) -> list[Figure]:
    db = volume(home, "bench")
    fill(db, ROWS)
    for _ in range(3):
        with db:
            db.execute("UPDATE t SET n = n + 1")
    size = held(home)
    opened = taken(home) / size
    db.close()
    length = os.stat(home / "store" / "data.mdb").st_size
    return [
        Figure("store after 3 UPDATEs of all rows, closed", taken(home) / size, "×", 1.3, note=f"{size:,} bytes held"),
        Figure("the same, by the file's length", length / size, "×", 1.3),
        Figure("while it is still open", opened, "×", 1.3, note="what the disk takes to give back a hole decides"),
    ]


def commits(home: Path, *, rewritten: bool) -> tuple[apsw.Connection, Callable[[], None]]:
    """The reader, and what commits of one row take; all rows may have been updated since the reader began."""
    db, reader = volume(home, "bench"), volume(home, "bench")
    fill(db, ROWS)
    reader.execute("BEGIN; SELECT count(*) FROM t").fetchall()
    if rewritten:
        db.execute("UPDATE t SET n = n + 1")
    noise = random.Random(3)

    def run() -> None:
        for _ in range(COMMITS):
            db.execute("UPDATE t SET n = n + 1 WHERE id = ?", (noise.randrange(ROWS),))

    return reader, run


def while_read(folder: Path) -> Figure:
    reader, ours = commits(folder / "rewritten", rewritten=True)
    other, theirs = commits(folder / "as it was", rewritten=False)
    figure = compare("commits of a row while all that was before is read, against little of it", ours, theirs, 1.5)
    reader.close()
    other.close()
    return figure


def reads(folder: Path, url: str, limit_bytes: int, query: Callable[[apsw.Connection], None]) -> Callable[[], None]:
    """Each time in a home of its own."""
    numbers = count()

    def run() -> None:
        home = folder / f"{query.__name__}-{limit_bytes}-{next(numbers)}"
        db = budwood.connect("bench", home=home, remote=url, cache_bytes=limit_bytes)
        db.pragma("cache_size", -512)
        query(db)
        db.close()

    return run


def scan(db: apsw.Connection) -> None:
    assert db.execute("SELECT count(*), sum(n) > 0 FROM t").fetchall() == [(ROWS, 1)]


def hot_and_scan(db: apsw.Connection) -> None:
    """A third of the rows by point queries, a scan of all, and the same queries again."""
    noise = random.Random(5)
    keys = [noise.randrange(ROWS // 3) for _ in range(QUERIES)]
    for run in range(2):
        for key in keys:
            assert db.execute("SELECT 1 FROM t WHERE id = ?", (key,)).fetchone() == (1,)
        if not run:
            scan(db)


def main() -> None:
    with scratch() as folder:
        figures = [*updated(folder / "updated"), while_read(folder)]
        with node_on(folder / "store") as (url, _):
            with budwood.open(home=folder / "maker", remote=url) as edge:
                db = volume(folder / "maker", "bench")
                fill(db, ROWS)
                db.close()
                edge.volume("bench").push()
            half = held(folder / "maker") // 2
            figures += [
                compare(
                    f"{what}, half of it kept, against all",
                    reads(folder, url, half, query),
                    reads(folder, url, 0, query),
                    1.5,
                )
                for what, query in (
                    ("cold scan", scan),
                    ("queries of a third, a scan, the queries again", hot_and_scan),
                )
            ]
    report("room: of a home", figures)


if __name__ == "__main__":
    main()
