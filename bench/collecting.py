"""Collecting very many objects: how long it takes, and by how much the memory of a node grows meanwhile. A tenth of
them are entries of commits that were folded, each of which the verifier reads; the others were left by a fold that was
cut off. Plan and deletion are each measured in a process of its own, as are those of a tenth as many.

    python -m bench.collecting 1000000 100000      # objects, entries; 100000 10000 unless told
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import aclosing
from pathlib import Path

import anyio

from budwood.server.log.term import take_transaction
from budwood.server.node import Node
from budwood.server.store.root import GC_INTERVAL_SECONDS
from budwood.server.upkeep.collector import Stage
from budwood.testing.commits import commit_of
from budwood.volume.calls import ADVANCE, CREATE, CreateRequest, SinceRequest
from budwood.volume.checkpoint import transaction_prefix
from budwood.volume.ids import ClientId, SegmentId, VolumeId

from .harness import Figure, report, scratch
from .many_volumes import memory_mb
from .sqlite_store import SqliteStore

OBJECTS = 100_000
ENTRIES = 10_000
PAGE = 512
PAGES = 1000
FOLD_EVERY = 4096
BOUND_MB = 50.0
NOW_MS = 1_700_000_000_000


async def fill(path: Path, vid: VolumeId, objects: int, entries: int) -> dict[str, float]:
    client, whole, began = ClientId.new(), PAGES * PAGE, time.perf_counter()
    async with (
        aclosing(SqliteStore(path)) as store,
        Node.open(store, name="main", now_ms=lambda: NOW_MS) as node,
    ):
        await node.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
        for base in range(entries):
            page = {1 + base % PAGES: os.urandom(PAGE)}
            floor = whole if base else 0
            await node.commit(*commit_of(vid, base, page, client=client, page_size=PAGE, length=whole, floor=floor))
            if (base + 1) % FOLD_EVERY == 0 or base + 1 == entries:
                await node.ask(ADVANCE, SinceRequest(vid.raw, since=base + 1))
                await node.folder.fold(vid)
        number = await take_transaction(store, "main", above=0, writer=client.raw, now_ms=NOW_MS, stream=vid.raw)
        for _ in range(objects - entries):
            await store.create(f"{transaction_prefix('main', number)}/{SegmentId.new()}", b"left")
        return {"objects": store.count(), "seconds": time.perf_counter() - began}


async def collect(path: Path, step: int) -> dict[str, float]:
    """Step 1 plans, step 2 deletes."""
    now_ms = NOW_MS + step * 1000 * (GC_INTERVAL_SECONDS + 60)
    async with (
        aclosing(SqliteStore(path)) as store,
        Node.open(store, name="main", takeover=True, now_ms=lambda: now_ms) as node,
    ):
        before, began = memory_mb("VmRSS"), time.perf_counter()
        progress = await node.collector.collect("main")
        assert progress.stage is (Stage.WAITING if step == 1 else Stage.DONE), progress
        seconds, grown = time.perf_counter() - began, memory_mb("VmHWM") - before
        return {"grown": grown, "seconds": seconds, "deleted": progress.deleted, "left": store.count()}


def in_a_process(*arguments: object) -> dict[str, float]:
    command = [sys.executable, "-m", "bench.collecting", *map(str, arguments)]
    found: dict[str, float] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    return found


def child(path: str, vid: str, step: str, *counts: str) -> None:
    if step == "fill":
        objects, entries = map(int, counts)
        made = anyio.run(fill, Path(path), VolumeId.parse(vid), objects, entries)
    else:
        made = anyio.run(collect, Path(path), int(step))
    print(json.dumps(made))


def measured(objects: int, entries: int) -> list[Figure]:
    with scratch() as folder:
        store, vid = folder / "store", VolumeId.new()
        made = in_a_process(store, vid, "fill", objects, entries)
        planned, deleted = (in_a_process(store, vid, step) for step in (1, 2))
    words = f"{made['objects']:,} stood, made in {made['seconds']:.0f} s; {deleted['left']} are left"
    return [
        Figure(
            f"to plan and verify {objects:,}: memory grows by",
            planned["grown"],
            " MB",
            BOUND_MB,
            note=f"{planned['seconds']:.1f} s, of which most goes to {entries:,} entries that the verifier reads",
        ),
        Figure(
            f"to delete {deleted['deleted']:,}: memory grows by",
            deleted["grown"],
            " MB",
            BOUND_MB,
            note=f"{deleted['seconds']:.1f} s; {words}",
        ),
    ]


def main(objects: int = OBJECTS, entries: int = ENTRIES) -> None:
    found = [*measured(objects // 10, entries // 10), *measured(objects, entries)]
    report(f"collecting: {objects:,} objects", found)


if __name__ == "__main__":
    if len(sys.argv) > 3:
        child(*sys.argv[1:])
    else:
        main(*map(int, sys.argv[1:]))
