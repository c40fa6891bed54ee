"""One-page commits into a shared log, in-process, at a store that takes 100 ms a request, offered at a steady rate: how
long each takes from the moment at which it was due, and what it costs. Each of 1,500 volumes commits in even intervals,
which begin at random, until the log has been rolled up twice. Another commit of this repository may be measured beside,
in turns.

    python -m bench.steady [RATE [COMMIT]]        # 2000 a second unless told; COMMIT as git knows it
"""

from __future__ import annotations

import random
import sys
import time
from statistics import quantiles

import anyio

from budwood.server.node import Node
from budwood.testing.stores import MemoryStore, RiggedStore, lognormal

from .appending import LATENCY_SECONDS, Commits, entries_in, figures_of, in_turns, made
from .harness import report

VOLUMES = 1500
SECONDS = 18.0


async def measured(rate: int) -> dict[str, float]:
    memory, noise = MemoryStore(), random.Random(7)
    store = RiggedStore(memory)
    took: list[float] = []
    every = VOLUMES / rate
    async with Node.open(store, name="main") as node:
        work = await made(node, VOLUMES, round(SECONDS / every))
        store.latency = lognormal(LATENCY_SECONDS, 0.1)

        async def commit(requests: Commits, due: float) -> None:
            for request, segment in requests:
                await anyio.sleep(max(due - time.perf_counter(), 0))
                await node.commit(request, segment)
                took.append(time.perf_counter() - due)
                due += every

        before = entries_in(memory)
        start, cpu = time.perf_counter(), time.process_time()
        async with anyio.create_task_group() as tasks:
            for requests in work:
                tasks.start_soon(commit, requests, start + noise.random() * every)
        seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    cut = quantiles(took, n=1000)
    return {
        "commits a second": len(took) / seconds,
        "p50": cut[499] * 1e3,
        "p99": cut[989] * 1e3,
        "p99.9": cut[998] * 1e3,
        "longest": max(took) * 1e3,
        "creates a second": (entries_in(memory) - before) / seconds,
        "CPU of a commit": cpu / len(took) * 1e3,
    }


def main(arguments: list[str]) -> None:
    rate, commit = int(arguments[0]) if arguments else 2000, arguments[1] if len(arguments) > 1 else None
    figures = figures_of(in_turns("bench.steady", rate, commit))
    title = f"{rate} one-page commits a second to {VOLUMES} volumes, the store at {LATENCY_SECONDS * 1e3:.0f} ms"
    report(f"steady: {title}", figures)


if __name__ == "__main__":
    main(sys.argv[1:])
