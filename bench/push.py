"""A one-row push through a node whose store takes 50 ms a request: requests, creates, and time against the store's."""

from __future__ import annotations

import statistics

import budwood

from .counting_proxy import node_on, proxy_to
from .harness import Figure, report, scratch, timed

LATENCY_SECONDS = 0.05
PUSHES = 25


def main() -> None:
    with (
        scratch() as folder,
        node_on(folder / "store", latency_seconds=LATENCY_SECONDS) as (url, store),
        proxy_to(url) as (proxied, counter),
    ):
        edge = budwood.open(home=folder / "home", remote=proxied)
        db = budwood.connect("bench", home=folder / "home", remote=proxied)
        db.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT)")
        with db:
            db.executemany("INSERT INTO t VALUES(?, 'x')", ((i,) for i in range(1, 10_001)))
        volume = edge.volume("bench")
        volume.push()
        ratios: list[float] = []
        requests: list[float] = []
        creates: list[float] = []
        sent: list[float] = []
        for number in range(PUSHES):
            db.execute("UPDATE t SET v = ? WHERE id = ?", (f"row {number}", 1 + number * 389 % 10_000))
            counter.reset()
            store.forget()
            ratios.append(timed(volume.push) / LATENCY_SECONDS)
            requests.append(counter.requests)
            creates.append(len(store.requests))
            sent.append(counter.bytes / 1024)
        db.close()
        edge.close()
    report(
        "push: one row through a node, the store at 50 ms",
        [
            Figure("time, p50, against one request to the store", statistics.median(ratios), "×", 1.4, ratios),
            Figure("HTTP requests", statistics.mean(requests), "", 1, requests),
            Figure("requests to the store, creates all", statistics.mean(creates), "", 1, creates),
            Figure("bytes on the wire, both ways", statistics.median(sent), " KiB", None, sent),
        ],
    )


if __name__ == "__main__":
    main()
