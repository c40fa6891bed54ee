"""A point query on an edge that holds nothing, of a database of 100 MB and more: round trips and bytes."""

from __future__ import annotations

import random
import statistics
import time
from pathlib import Path

import apsw

import budwood

from .counting_proxy import node_on, proxy_to
from .harness import Figure, report, scratch

ROWS = 1_200_000


def build(path: Path) -> int:
    """Rows as long as rows are, hard to compress, with a second index; returns the file's bytes."""
    db = apsw.Connection(str(path))
    db.execute("PRAGMA journal_mode = off; PRAGMA synchronous = off")
    noise = random.Random(3)
    with db:
        db.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, name TEXT, v TEXT)")
        rows = ((i, f"name {i * 7919 % ROWS}", noise.randbytes(32).hex()) for i in range(ROWS))
        db.executemany("INSERT INTO t VALUES(?, ?, ?)", rows)
        db.execute("CREATE INDEX by_name ON t(name)")
    db.close()
    return path.stat().st_size


def main(runs: int = 5) -> None:
    requests: list[float] = []
    kilobytes: list[float] = []
    seconds: list[float] = []
    by_name: list[float] = []
    with scratch() as folder, node_on(folder / "store") as (url, store):
        size = build(folder / "source.db")
        first = budwood.open(home=folder / "first", remote=url)
        first.import_(folder / "source.db", "bench")
        first.volume("bench").push()
        first.close()
        store.latency = 0.05
        for number in range(runs):
            with proxy_to(url) as (proxied, counter):
                start = time.perf_counter()
                db = budwood.connect("bench", home=folder / f"cold{number}", remote=proxied)
                db.execute("SELECT v FROM t WHERE id = ?", (number * 200_003 % ROWS,)).fetchall()
                seconds.append(time.perf_counter() - start)
                requests.append(counter.requests)
                kilobytes.append(counter.bytes / 1024)
                counter.reset()
                db.execute("SELECT v FROM t WHERE name = ?", (f"name {number * 100_003 % ROWS}",)).fetchall()
                by_name.append(counter.requests)
                db.close()
    report(
        f"cold: a point query of {size / 1e6:.0f} MB on an empty edge, the store at 50 ms",
        [
            Figure("round trips, opening included", statistics.median(requests), "", 6, requests),
            Figure("bytes on the wire, both ways", statistics.median(kilobytes), " KiB", 1024, kilobytes),
            Figure("time", statistics.median(seconds), " s", None, seconds),
            Figure("round trips of a query by a second index after it", statistics.median(by_name), "", None, by_name),
        ],
    )


if __name__ == "__main__":
    main()
