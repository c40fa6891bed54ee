"""10,000 who wait for one node, which serves over HTTP as a process of its own: what it holds for each of them, what it
costs while nothing happens, and how long it takes until all are told of one commit. With a number, so many.

Half wait for one volume, and the others for one of a thousand each. Every waiter is a connection of its own, in this
process: what is told includes what reading the answers takes here.
"""

from __future__ import annotations

import asyncio
import os
import resource
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from budwood.remote.http import HttpRemote
from budwood.remote.listening import WAIT_SECONDS
from budwood.testing.commits import commit_of
from budwood.volume.calls import CREATE, WAIT, CreateRequest, Head, WaitRequest
from budwood.volume.ids import ClientId, VolumeId

from .harness import Figure, report, scratch
from .memory import serve

WAITERS = 10_000
VOLUMES = 1_000
AT_ONCE = 200
IDLE_SECONDS = 20.0
PAGE = 4096
_TICKS = os.sysconf("SC_CLK_TCK")


class Waiter:
    """One connection, which has asked for what follows LSN 0."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, vid: VolumeId, host: str) -> None:
        self.reader = reader
        self.writer = writer
        self.vid = vid
        body = msgspec.msgpack.encode(WaitRequest(vid.raw, after=0, timeout_seconds=60.0, commits=256))
        head = f"POST /v1/{WAIT.name} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/msgpack\r\n"
        writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)

    async def told(self) -> Head:
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode().lower()
        size = int(head.partition("content-length:")[2].partition("\r\n")[0])
        body = await self.reader.readexactly(size)
        assert head.startswith("http/1.1 200"), body
        return msgspec.msgpack.decode(body, type=Head)


async def waiting(address: str, vids: list[VolumeId], count: int) -> list[Waiter]:
    place, some = urlsplit(address), asyncio.Semaphore(AT_ONCE)

    async def connect(number: int) -> Waiter:
        async with some:
            reader, writer = await asyncio.open_connection(place.hostname, place.port, limit=1 << 14)
            vid = vids[0] if number % 2 else vids[1 + number // 2 % (len(vids) - 1)]
            made = Waiter(reader, writer, vid, place.netloc)
            await writer.drain()
            return made

    return list(await asyncio.gather(*(connect(number) for number in range(count))))


def resident_mb(process: int) -> float:
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * resource.getpagesize() / 2**20


def threads(process: int) -> int:
    return len(os.listdir(f"/proc/{process}/task"))


def cpu_seconds(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


async def settled(process: int) -> None:
    """Until the node does next to nothing for a second."""
    while True:
        before = cpu_seconds(process)
        await asyncio.sleep(1.0)
        if cpu_seconds(process) - before < 0.1:
            return


async def measured(process: int, address: str, count: int) -> list[Figure]:
    remote = HttpRemote(address)
    vids, client = [VolumeId.new() for _ in range(VOLUMES + 1)], ClientId.new()
    for vid in vids:
        await remote.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
        await remote.ask(WAIT, WaitRequest(vid.raw, after=0, timeout_seconds=0.0))
    await settled(process)
    before_mb, before_threads, before = resident_mb(process), threads(process), cpu_seconds(process)
    begun = time.perf_counter()
    waiters = await waiting(address, vids, count)
    connected = time.perf_counter() - begun
    await settled(process)
    asking = (cpu_seconds(process) - before) / WAIT_SECONDS
    held_kb = (resident_mb(process) - before_mb) * 1024 / count
    more_threads = threads(process) - before_threads
    before = cpu_seconds(process)
    await asyncio.sleep(IDLE_SECONDS)
    idle = (cpu_seconds(process) - before) / IDLE_SECONDS
    crowd = [waiter for waiter in waiters if waiter.vid == vids[0]]
    told = asyncio.gather(*(waiter.told() for waiter in crowd))
    begun, before = time.perf_counter(), cpu_seconds(process)
    await remote.commit(*commit_of(vids[0], 0, {1: b"x" * PAGE}, client=client, page_size=PAGE))
    acknowledged = time.perf_counter() - begun
    heads = await told
    all_told, spent = time.perf_counter() - begun, cpu_seconds(process) - before
    assert {tuple(commit.lsn for commit in head.commits) for head in heads} == {(1,)}
    begun = time.perf_counter()
    await remote.commit(*commit_of(vids[0], 1, {1: b"y" * PAGE}, client=client, page_size=PAGE))
    beside = time.perf_counter() - begun
    for waiter in waiters:
        waiter.writer.close()
    await remote.aclose()
    return [
        Figure("memory of a waiter", held_kb, " KB", 64.0, note=f"{count} of them, connected within {connected:.1f} s"),
        Figure("threads that they hold", float(more_threads), "", 0.0),
        Figure("CPU while nothing happens", idle * 100, " %", 5.0, note=f"of one core, over {IDLE_SECONDS:.0f} s"),
        Figure("CPU of asking again", asking * 100, " %", note=f"of one core, each every {WAIT_SECONDS:.0f} s"),
        Figure(
            f"until {len(crowd)} are told of one commit",
            all_told,
            " s",
            5.0,
            note=f"the writer after {acknowledged * 1000:.0f} ms; {spent:.1f} s of the node's CPU",
        ),
        Figure("another commit beside the rest", beside * 1000, " ms"),
    ]


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else WAITERS
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with scratch() as folder:
        node, address = serve(folder / "store", folder / "home")
        try:
            figures = asyncio.run(measured(node.pid, address, count))
        finally:
            node.terminate()
            node.wait()
    report("waiters: who waits for a node", figures)


if __name__ == "__main__":
    main()
