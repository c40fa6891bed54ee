"""One-page commits into a shared log, in-process, at a store that takes 100 ms a request: how many a second, how long
each takes, and what they cost in creates, CPU and memory. As many volumes as were told commit again as soon as each was
answered; what they commit is made beforehand. Another commit of this repository may be measured beside, in turns.

    python -m bench.appending VOLUMES [COMMIT]        # 1500 unless told; COMMIT as git knows it
"""

from __future__ import annotations

import gc
import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from statistics import median, quantiles
from typing import TypeAlias

import anyio

from budwood.server.node import Node
from budwood.testing.commits import commit_of
from budwood.testing.stores import MemoryStore, RiggedStore, lognormal
from budwood.volume.calls import CREATE, CreateRequest
from budwood.volume.ids import ClientId, VolumeId
from budwood.volume.wire import CommitRequest

from .harness import Figure, report, scratch

LATENCY_SECONDS = 0.1
PAGE = 4096
COMMITS = 16
"""Of each volume."""
YOUNG = 20_000
"""As in a process that serves (server/http/process.py)."""
ROUNDS = 3
HERE = Path(__file__).resolve().parent.parent
BOUNDS = {"p50": 150.0, "p99": 250.0}
UNITS = {"p50": " ms", "p99": " ms", "p99.9": " ms", "longest": " ms", "CPU of a commit": " ms", "memory": " MB"}

Commits: TypeAlias = list[tuple[CommitRequest, bytes]]


async def measured(volumes: int) -> dict[str, float]:
    memory = MemoryStore()
    store = RiggedStore(memory)
    took: list[float] = []
    async with Node.open(store, name="main") as node:
        work = await made(node, volumes, COMMITS)
        store.latency = lognormal(LATENCY_SECONDS, 0.1)

        async def commit(requests: Commits) -> None:
            for request, segment in requests:
                start = time.perf_counter()
                await node.commit(request, segment)
                took.append(time.perf_counter() - start)

        before = entries_in(memory)
        start, cpu = time.perf_counter(), time.process_time()
        async with anyio.create_task_group() as tasks:
            for requests in work:
                tasks.start_soon(commit, requests)
        seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    cut = quantiles(took, n=100)
    return {
        "commits a second": len(took) / seconds,
        "p50": cut[49] * 1e3,
        "p99": cut[98] * 1e3,
        "creates a second": (entries_in(memory) - before) / seconds,
        "CPU of a commit": cpu / len(took) * 1e3,
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


async def made(node: Node, volumes: int, commits: int) -> list[Commits]:
    """Volumes, and what each will commit; that is none of the node's garbage."""
    work: list[Commits] = []
    for _ in range(volumes):
        vid, client = VolumeId.new(), ClientId.new()
        await node.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
        pages = [{1: vid.raw[:16] * (PAGE // 32) + bytes([n]) * (PAGE // 2)} for n in range(commits)]
        work.append([commit_of(vid, base, page, client=client, page_size=PAGE) for base, page in enumerate(pages)])
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG)
    return work


def entries_in(memory: MemoryStore) -> int:
    return sum("/entries/" in key for key in memory.objects)


def run(module: str, tree: Path, load: int) -> dict[str, float]:
    """In a process of its own, by the code of that tree."""
    program = (
        f"import sys, json, anyio; sys.path.insert(0, {str(tree.parent)!r}); sys.path.insert(1, {str(HERE)!r});"
        f"from {module} import measured;"
        f"print(json.dumps(anyio.run(measured, {load})))"
    )
    told = subprocess.run([sys.executable, "-P", "-c", program], check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, float] = json.loads(told.stdout.splitlines()[-1])
    return found


def in_turns(module: str, load: int, commit: str | None) -> dict[str, list[dict[str, float]]]:
    """What the module measures under that load, by this code ("") and, if it is given, by that of the commit."""
    with scratch() as folder:
        trees = {"": folder / "now" / "budwood"}
        (folder / "now").mkdir()
        trees[""].symlink_to(HERE)
        if commit is not None:
            trees["before"] = folder / "before" / "budwood"
            subprocess.run(["git", "clone", "-q", str(HERE), str(trees["before"])], check=True)
            subprocess.run(["git", "-C", str(trees["before"]), "checkout", "-q", commit], check=True)
        rounds: dict[str, list[dict[str, float]]] = {name: [] for name in trees}
        for _ in range(ROUNDS):
            for name, tree in trees.items():
                rounds[name].append(run(module, tree, load))
    return rounds


def figures_of(rounds: dict[str, list[dict[str, float]]]) -> list[Figure]:
    figures: list[Figure] = []
    for name, found in rounds.items():
        for what in found[0]:
            values = [each[what] for each in found]
            bound = None if name else BOUNDS.get(what)
            figures.append(Figure(f"{name} {what}".strip(), median(values), UNITS.get(what, ""), bound, values))
    return figures


def main(arguments: list[str]) -> None:
    volumes, commit = int(arguments[0]) if arguments else 1500, arguments[1] if len(arguments) > 1 else None
    rounds = in_turns("bench.appending", volumes, commit)
    figures = figures_of(rounds)
    if commit is not None:
        ratios = [
            now["commits a second"] / before["commits a second"]
            for now, before in zip(rounds[""], rounds["before"], strict=True)
        ]
        figures.append(Figure("commits a second, against before", median(ratios), "×", 2.5, ratios, least=True))
    report(f"appending: {volumes} volumes, one page a commit, the store at {LATENCY_SECONDS * 1e3:.0f} ms", figures)


if __name__ == "__main__":
    main(sys.argv[1:])
