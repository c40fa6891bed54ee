"""A node that serves very many volumes, each with a name: what it takes in memory when every one was asked for, and
what the first call to a cold one costs. The store is a directory, and the node a process of its own.
BUDWOOD_BENCH_VOLUMES says how many."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from contextlib import aclosing
from pathlib import Path
from statistics import median

import anyio

from budwood.server.node import Node
from budwood.server.store.open_store import open_store
from budwood.testing.commits import commit_of
from budwood.testing.stores import RiggedStore
from budwood.volume.calls import CHANGE_NAME, CREATE, LOOKUP, SNAPSHOT, CreateRequest, LookupRequest, SnapshotRequest
from budwood.volume.ids import ClientId, VolumeId
from budwood.volume.wire import NameRequest

from .harness import Figure, report, scratch

VOLUMES = int(os.environ.get("BUDWOOD_BENCH_VOLUMES", "100000"))
PAGE = 512
AT_ONCE = 1_000
BOUND_MB = 300.0
BOUND_REQUESTS = 5


def name_of(at: int) -> str:
    return f"folder {at // 1000}/volume {at}"


async def fill(folder: Path, vids: list[VolumeId]) -> None:
    """Each has a commit of one page, and a name."""
    client = ClientId.new()

    async def make(node: Node, at: int) -> None:
        vid = vids[at]
        await node.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
        await node.commit(*commit_of(vid, 0, {1: b"x" * PAGE}, client=client, page_size=PAGE))
        await node.ask(CHANGE_NAME, NameRequest(op="bind", name=name_of(at), target=vid.raw, client=client.raw))

    async with aclosing(await open_store(folder.as_uri(), create=True)) as store, Node.open(store, name="main") as node:
        for first in range(0, len(vids), AT_ONCE):
            async with anyio.create_task_group() as tasks:
                for at in range(first, min(first + AT_ONCE, len(vids))):
                    tasks.start_soon(make, node, at)


async def serve(folder: Path, vids: list[VolumeId]) -> dict[str, float]:
    """Ask for each volume once, and for every hundredth name. In another order than they were made."""
    async with aclosing(await open_store(folder.as_uri())) as inner:
        store = RiggedStore(inner)
        async with Node.open(store, name="main", takeover=True) as node:
            begun, requests = time.perf_counter(), list[int]()
            order = random.Random(1).sample(range(len(vids)), len(vids))
            for count, at in enumerate(order):
                store.forget()
                assert (await node.ask(SNAPSHOT, SnapshotRequest(vids[at].raw))).lsn == 1
                requests.append(len(store.requests))
                if count % 100 == 0:
                    found = (await node.ask(LOOKUP, LookupRequest(name_of(at)))).entry
                    assert found is not None
                    assert found.target == vids[at].raw
            seconds = time.perf_counter() - begun
            return {
                "rss": memory_mb("VmRSS"),
                "peak": memory_mb("VmHWM"),
                # The first opens the log.
                "p50": median(requests[1:] or [0]),
                "most": max(requests[1:], default=0),
                "seconds": seconds,
            }


def memory_mb(what: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(f"{what}:")).split()[1]) / 1024


def in_a_process(what: str, folder: Path, vids: Path) -> dict[str, float]:
    command = [sys.executable, "-m", "bench.many_volumes", what, str(folder), str(vids)]
    found: dict[str, float] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    return found


def child(what: str, folder: str, vids: str) -> None:
    own = [VolumeId(bytes.fromhex(line)) for line in Path(vids).read_text().split()]
    if what == "fill":
        begun = time.perf_counter()
        anyio.run(fill, Path(folder), own)
        print(json.dumps({"seconds": time.perf_counter() - begun}))
    else:
        print(json.dumps(anyio.run(serve, Path(folder), own)))


def main() -> None:
    with scratch() as folder:
        many, none = folder / "vids", folder / "no vids"
        many.write_text("\n".join(VolumeId.new().raw.hex() for _ in range(VOLUMES)))
        none.write_text("")
        in_a_process("fill", folder / "empty", none)
        made = in_a_process("fill", folder / "store", many)
        idle = in_a_process("serve", folder / "empty", none)
        served = in_a_process("serve", folder / "store", many)
    figures = [
        Figure("memory, every volume asked for", served["rss"], " MB", BOUND_MB),
        Figure("more than with an empty store", served["rss"] - idle["rss"], " MB"),
        Figure("peak", served["peak"], " MB"),
        Figure("requests of the first call to a cold volume, p50", served["p50"], "", BOUND_REQUESTS),
        Figure("most", served["most"], "", BOUND_REQUESTS),
        Figure("time to ask for each", served["seconds"], " s", note=f"{made['seconds']:.0f} s to make them"),
    ]
    report(f"{VOLUMES:,} volumes with names on one node", figures)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        child(*sys.argv[1:])
    else:
        main()
