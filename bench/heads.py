"""What it takes to open a log of many one-page entries, their pages such as don't compress: bytes fetched, against what
the entries hold, and time. Before entries had heads, all of it was fetched."""

from __future__ import annotations

import os
import time

import anyio

from budwood.server.node import Node
from budwood.testing.commits import commit_of
from budwood.testing.stores import MemoryStore, RiggedStore
from budwood.volume.calls import CREATE, SNAPSHOT, CreateRequest, SnapshotRequest
from budwood.volume.ids import ClientId, VolumeId

from .harness import Figure, report

ENTRIES = 50_000
PAGES = 1000
PAGE = 4096


async def filled(inner: MemoryStore) -> VolumeId:
    vid, client = VolumeId.new(), ClientId.new()
    async with Node.open(inner) as node:
        await node.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
        for base in range(ENTRIES):
            page = {1 + base % PAGES: os.urandom(PAGE)}
            whole = PAGES * PAGE
            floor = whole if base else 0
            await node.commit(*commit_of(vid, base, page, client=client, page_size=PAGE, length=whole, floor=floor))
    return vid


async def measured() -> list[Figure]:
    inner = MemoryStore()
    vid = await filled(inner)
    whole = sum(len(data) for key, data in inner.objects.items() if key.startswith(f"logs/{vid}/entries/"))
    store = RiggedStore(inner)
    async with Node.open(store) as node:
        store.forget()
        start = time.perf_counter()
        assert (await node.ask(SNAPSHOT, SnapshotRequest(vid.raw))).lsn == ENTRIES
        seconds = time.perf_counter() - start
    fetched = store.received_bytes("get", f"logs/{vid}/*")
    return [
        Figure("bytes of the entries, all of which were fetched before", whole / 1e6, " MB"),
        Figure("bytes fetched", fetched / 1e6, " MB"),
        Figure("fetched of what was fetched before", fetched / whole, "×", 0.2),
        Figure("requests an entry", store.count("*", f"logs/{vid}/*") / ENTRIES, "", 1.01),
        Figure("time, the store in memory", seconds, " s"),
    ]


def main() -> None:
    report(f"opening a log of {ENTRIES:,} one-page entries", anyio.run(measured))


if __name__ == "__main__":
    main()
