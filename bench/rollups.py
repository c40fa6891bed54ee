"""Opening logs of very different lengths: requests and time; and where pages lie at an old LSN and at the newest. The
store is one file, without the time that a disk or a network takes. Entries take about a millisecond each to make.

    python -m bench.rollups ENTRIES         # of the long one: 100000 unless told, or unless BUDWOOD_BENCH_ENTRIES says
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from statistics import median

import anyio

from budwood.server.metastore.rollups import FEWEST
from budwood.server.node import Node
from budwood.testing.commits import commit_of
from budwood.testing.stores import RiggedStore
from budwood.volume.calls import CREATE, LOCATE, SNAPSHOT, CreateRequest, LocateRequest, SnapshotRequest
from budwood.volume.ids import ClientId, VolumeId
from budwood.volume.pageset import PageSet, encode_pages

from .harness import Figure, report, scratch
from .sqlite_store import SqliteStore

SHORT = 1_000
LONG = int(os.environ.get("BUDWOOD_BENCH_ENTRIES", "100000"))
PAGES = 1000
PAGE = 512
ROUNDS = 15


class Log:
    """One volume's, of one-page commits. It ends so many entries behind its newest rollup."""

    def __init__(self, path: Path, entries: int) -> None:
        self.entries = entries
        self.inner = SqliteStore(path)
        self.vid = VolumeId.new()
        self.requests: list[int] = []
        self.seconds: list[float] = []
        self.located: dict[int, list[float]] = {}

    async def fill(self, behind: int = FEWEST // 2) -> None:
        client, whole, base = ClientId.new(), PAGES * PAGE, 0
        async with Node.open(self.inner) as node:
            await node.ask(CREATE, CreateRequest(self.vid.raw, page_size=PAGE))
            log = await node.logs.get(str(self.vid))
            while base < self.entries or log.reader.chain.next - 1 - log.rolled.slot != behind:
                page, floor = {1 + base % PAGES: bytes([base % 256]) * PAGE}, whole if base else 0
                commit = commit_of(self.vid, base, page, client=client, page_size=PAGE, length=whole, floor=floor)
                base = (await node.commit(*commit)).lsn
                await anyio.lowlevel.checkpoint()
        self.entries = base

    async def open(self) -> None:
        store = RiggedStore(self.inner)
        async with Node.open(store) as node:
            store.forget()
            start = time.perf_counter()
            assert (await node.ask(SNAPSHOT, SnapshotRequest(self.vid.raw))).lsn == self.entries
            self.seconds.append(time.perf_counter() - start)
            self.requests.append(len(store.requests))
            for lsn in (PAGES, self.entries // 2, self.entries):
                await self._locate(node, lsn, self.located.setdefault(lsn, []))

    async def _locate(self, node: Node, lsn: int, seconds: list[float]) -> None:
        """Warm: what it takes of the rollup was loaded."""
        request = LocateRequest(self.vid.raw, lsn=lsn, pages=encode_pages(PageSet(range(1, 101))))
        assert len((await node.ask(LOCATE, request)).placements) == 100
        start = time.perf_counter()
        await node.ask(LOCATE, request)
        seconds.append(time.perf_counter() - start)


async def measured(folder: Path, entries: int) -> list[Figure]:
    short, long = Log(folder / "short", SHORT), Log(folder / "long", entries)
    await short.fill()
    began = time.perf_counter()
    await long.fill()
    filled = time.perf_counter() - began
    for _ in range(ROUNDS):
        await short.open()
        await long.open()
    middle = {lsn: median(seconds) for lsn, seconds in long.located.items()}
    return [
        Figure(f"requests to open {short.entries:,} entries", median(short.requests), ""),
        Figure(f"requests to open {long.entries:,} entries", median(long.requests), "", median(short.requests) + 2),
        Figure(f"time to open {short.entries:,} entries", 1000 * median(short.seconds), " ms"),
        Figure(
            f"time to open {long.entries:,} entries",
            1000 * median(long.seconds),
            " ms",
            note=f"made in {filled:.0f} s",
        ),
        Figure("time, the long one of the short one", median(long.seconds) / median(short.seconds), "×", 2.0),
        *(Figure(f"where 100 pages lie at LSN {lsn:,}", 1000 * each, " ms") for lsn, each in middle.items()),
        Figure("slowest of quickest LSN", max(middle.values()) / min(middle.values()), "×", 1.1),
    ]


def main(entries: int = LONG) -> None:
    with scratch() as folder:
        report(f"opening logs of {SHORT:,} and {entries:,} entries", anyio.run(measured, folder, entries))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
