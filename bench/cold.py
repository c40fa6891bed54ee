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
LINK = 12.5e6
"""Bytes a second."""


def build(path: Path, rows: int = ROWS) -> int:
    """Rows as long as rows are, hard to compress, with a second index; returns the file's bytes."""
    db = apsw.Connection(str(path))
    db.execute("PRAGMA journal_mode = off; PRAGMA synchronous = off")
    noise = random.Random(3)
    with db:
        db.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, name TEXT, v TEXT)")
        rows_of = ((i, f"name {i * 7919 % rows}", noise.randbytes(32).hex()) for i in range(rows))
        db.executemany("INSERT INTO t VALUES(?, ?, ?)", rows_of)
        db.execute("CREATE INDEX by_name ON t(name)")
    db.close()
    return path.stat().st_size


def main(runs: int = 5) -> None:
    requests: list[float] = []
    kilobytes: list[float] = []
    seconds: list[float] = []
    by_name: list[float] = []
    planned: list[float] = []
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
                counter.reset()
                with budwood.open(home=folder / f"planned{number}", remote=proxied) as edge:
                    edge.volume("bench").fetch_query(f"SELECT v FROM t WHERE name = 'name {number * 100_003 % ROWS}'")
                    planned.append(counter.requests)
    report(
        f"cold: a point query of {size / 1e6:.0f} MB on an empty edge, the store at 50 ms",
        [
            Figure("round trips, opening included", statistics.median(requests), "", 3, requests),
            Figure("bytes on the wire, both ways", statistics.median(kilobytes), " KiB", 512, kilobytes),
            Figure("time", statistics.median(seconds), " s", None, seconds),
            Figure("round trips of a query by a second index after it", statistics.median(by_name), "", None, by_name),
            Figure(
                "round trips of open and fetch --sql",
                statistics.median(planned),
                "",
                3,
                planned,
            ),
        ],
    )


def lookups() -> None:
    """1,000 rows at random, one after the other, and then all of it, each on an edge that holds nothing."""
    trips: list[float] = []
    numbers = random.Random(5)
    with scratch() as folder, node_on(folder / "store") as (url, store):
        size = build(folder / "source.db")
        first = budwood.open(home=folder / "first", remote=url)
        first.import_(folder / "source.db", "bench")
        first.volume("bench").push()
        first.close()
        store.latency = 0.025
        with proxy_to(url) as (proxied, counter):
            db = budwood.connect("bench", home=folder / "random", remote=proxied)
            db.execute("SELECT count(*) FROM sqlite_schema").fetchall()
            fetched = counter.bytes
            counter.reset()
            asked: list[int] = []
            for _ in range(1000):
                asked.append(numbers.randrange(ROWS))
                db.execute("SELECT v FROM t WHERE id = ?", (asked[-1],)).fetchall()
                trips.append(counter.requests)
                fetched += counter.bytes
                counter.reset()
            db.close()
            every = f"SELECT v FROM t WHERE id IN ({','.join(map(str, asked))})"
            with budwood.open(home=folder / "planned", remote=url) as other:
                touched = other.volume("bench").fetch_query(every)
            db = budwood.connect("bench", home=folder / "scan", remote=proxied)
            counter.reset()
            start = time.perf_counter()
            db.execute("SELECT sum(length(v)) FROM t").fetchall()
            scan, scan_bytes, scan_trips = time.perf_counter() - start, counter.bytes, counter.requests
            db.close()
    later = trips[10:]
    ratio = fetched / (touched * 4096)
    report(
        f"cold: {size / 1e6:.0f} MB, the store at 25 ms",
        [
            Figure(
                "1,000 random lookups: round trips of each after the first ten", statistics.median(later), "", 2, later
            ),
            Figure(
                "1,000 random lookups: bytes on the wire, against the pages touched",
                ratio,
                "×",
                4,
                [ratio],
                f"{fetched / 1e6:.1f} MB for {touched:,} pages; {sum(trips):.0f} round trips",
            ),
            Figure("a full scan", scan, " s", None, [scan], f"{scan_bytes / 1e6:.0f} MB, {scan_trips} round trips"),
        ],
    )


def full_scan(runs: int = 3) -> None:
    """All of a table on edges and nodes that hold nothing, by a link of 100 Mbit/s between the node and its store: that
    long the link takes for the bytes at least."""
    ratios: list[float] = []
    with scratch() as folder:
        size = build(folder / "source.db")
        with node_on(folder / "store") as (url, _), budwood.open(home=folder / "first", remote=url) as first:
            first.import_(folder / "source.db", "bench")
            first.volume("bench").push()
        for number in range(runs):
            with (
                node_on(folder / "store", latency_seconds=0.025, link_bytes_per_second=LINK) as (url, _),
                proxy_to(url) as (proxied, counter),
            ):
                start = time.perf_counter()
                db = budwood.connect("bench", home=folder / f"scan{number}", remote=proxied)
                db.execute("SELECT sum(length(v)) FROM t").fetchall()
                ratios.append((time.perf_counter() - start) / (counter.bytes / LINK))
                db.close()
    note = f"of a database of {size / 1e6:.0f} MB, the store at 25 ms and 100 Mbit/s"
    report(
        "cold: a full scan",
        [Figure("a full scan, against the link's time", statistics.median(ratios), "×", 1.3, ratios, note)],
    )


def scattered(rows: int = 100_000) -> None:
    """All rows of a table whose keys came in no order, so that what follows in it lies anywhere; and of a log that was
    written beside it."""
    figures: list[Figure] = []
    numbers = random.Random(3)
    with scratch() as folder, node_on(folder / "store") as (url, store):
        db = apsw.Connection(str(folder / "source.db"))
        db.execute("PRAGMA journal_mode = off; PRAGMA synchronous = off")
        with db:
            db.execute("CREATE TABLE t(k TEXT PRIMARY KEY, v TEXT) WITHOUT ROWID; CREATE TABLE log(id INTEGER, v TEXT)")
            for number in range(rows):
                row = numbers.randbytes(16).hex(), numbers.randbytes(50).hex()
                db.execute("INSERT INTO t VALUES(?, ?)", row)
                if number % 2:
                    db.execute("INSERT INTO log VALUES(?, ?)", (number, row[1] * 2))
        db.close()
        pages = (folder / "source.db").stat().st_size // 4096
        with budwood.open(home=folder / "first", remote=url) as first:
            first.import_(folder / "source.db", "bench")
            first.volume("bench").push()
        store.latency = 0.025
        for table, name in (("t", "a table with keys at random"), ("log", "a log beside it")):
            with proxy_to(url) as (proxied, counter):
                db = budwood.connect("bench", home=folder / table, remote=proxied)
                start = time.perf_counter()
                db.execute(f"SELECT sum(length(v)) FROM {table}").fetchall()
                seconds, note = time.perf_counter() - start, f"{counter.bytes / 1e6:.0f} MB, {counter.requests} trips"
                figures.append(Figure(f"all of {name}", seconds, " s", None, [seconds], note))
                db.close()
    report(f"cold: a database of {pages:,} pages whose order is not that of its keys, the store at 25 ms", figures)


if __name__ == "__main__":
    main()
    lookups()
    full_scan()
    scattered()
