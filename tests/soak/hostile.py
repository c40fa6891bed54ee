"""Hostile callers among others: how much those who behave notice of it.

    python -m tests.soak.hostile --minutes 5 [--seed 7]

180 callers of one node, each from an address of its own (loopback has many), for half of the time; then 20 more come,
who are hostile: heads and bodies that trickle, answers that nobody reads, floods of noise, bodies that are too large,
connections that are opened and left. The others commit, read, list and wait all the while.

What must hold, each a violation otherwise: the others see no error; their p99 is at most twice what it was without, or
than `CALM_MS`, below which the two halves differ by chance; the node's memory stays below `MOST_MB`.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from statistics import quantiles
from typing import Final
from urllib.parse import urlsplit

import msgspec

from budwood.testing.commits import commit_of
from budwood.volume.calls import MSGPACK, PARTS, CreateRequest, ErrorBody, NamesRequest, WaitRequest
from budwood.volume.ids import ClientId, VolumeId
from budwood.volume.pageset import PageSet, encode_pages
from budwood.volume.wire import ReadRequest, pack_part

from .command import run
from .fuzz import memory_mb, node
from .world import World

CLIENTS: Final = 200
HOSTILE: Final = 20
PAGE: Final = 4096
PAUSE_SECONDS: Final = 2.0
"""Between two calls of one who behaves, on average."""
CALM_MS: Final = 50.0
MOST_MB: Final = 700.0
LIMITS: Final = ("--caller-rate", "20", "--caller-calls", "16", "--caller-mib", "4")


@dataclass
class Caller:
    """One who behaves: a connection from an address of its own, and what its calls took, in seconds."""

    place: tuple[str, int]
    host: str
    dice: random.Random
    vid: VolumeId = field(default_factory=VolumeId.new)
    client: ClientId = field(default_factory=ClientId.new)
    head: int = 0
    took: list[float] = field(default_factory=list[float])
    errors: list[str] = field(default_factory=list[str])

    async def live(self, ends: float) -> None:
        reader, writer = await asyncio.open_connection(*self.place, local_addr=(self.host, 0))
        try:
            if not self.head:
                made = CreateRequest(self.vid.raw, page_size=PAGE)
                await self._call(reader, writer, "create", msgspec.msgpack.encode(made))
                await self._commit(reader, writer)
            while time.monotonic() < ends:
                await asyncio.sleep(self.dice.expovariate(1 / PAUSE_SECONDS))
                began = time.perf_counter()
                match self.dice.randrange(5):
                    case 0 | 1:
                        await self._commit(reader, writer)
                    case 2:
                        pages = encode_pages(PageSet([1]))
                        wanted = ReadRequest(vid=self.vid.raw, lsn=self.head, pages=pages)
                        await self._call(reader, writer, "read_pages", msgspec.msgpack.encode(wanted))
                    case 3:
                        await self._call(reader, writer, "list_names", msgspec.msgpack.encode(NamesRequest()))
                    case _:
                        waits = WaitRequest(self.vid.raw, after=self.head, timeout_seconds=0.2)
                        await self._call(reader, writer, "wait", msgspec.msgpack.encode(waits))
                        began += 0.2
                self.took.append(time.perf_counter() - began)
        except (OSError, EOFError) as error:
            self.errors.append(f"{type(error).__name__}: {error}")
        finally:
            writer.close()

    async def _commit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        content = os.urandom(PAGE // 4).ljust(PAGE, b".")
        request, segment = commit_of(self.vid, self.head, {1: content}, client=self.client, page_size=PAGE)
        if await self._call(reader, writer, "commit", pack_part(request, segment), PARTS):
            self.head += 1

    async def _call(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, call: str, body: bytes, content: str = MSGPACK
    ) -> bool:
        writer.write(head_of(call, len(body), content) + body)
        told = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        answer = await reader.readexactly(int(told.partition("content-length:")[2].partition("\r\n")[0]))
        if told.startswith("http/1.1 200"):
            return True
        self.errors.append(f"{call}: {msgspec.msgpack.decode(answer, type=ErrorBody)}")
        return False


def head_of(call: str, length: int, content: str = MSGPACK) -> bytes:
    lines = (f"POST /v1/{call} HTTP/1.1", "host: 127.0.0.1", f"accept: {MSGPACK}", f"content-type: {content}")
    return "\r\n".join((*lines, f"content-length: {length}", "", "")).encode()


class Attacker:
    """One who doesn't. Whatever the node does to it, it comes again."""

    def __init__(self, place: tuple[str, int], host: str, dice: random.Random, vid: bytes) -> None:
        self.place = place
        self.host = host
        self.dice = dice
        self.vid = vid
        self.ways = (
            self._trickled_head,
            self._trickled_body,
            self._unread,
            self._flood,
            self._oversized,
            self._left_open,
        )

    async def live(self) -> None:
        while True:
            try:
                async with asyncio.timeout(30):
                    reader, writer = await asyncio.open_connection(*self.place, local_addr=(self.host, 0))
                    try:
                        await self.dice.choice(self.ways)(reader, writer)
                    finally:
                        writer.transport.abort()
            except (OSError, EOFError, TimeoutError):
                # That is what it is for.
                await asyncio.sleep(0.05)

    async def _trickled_head(self, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"POST /v1/hello HTTP/1.1\r\n")
        for _ in range(1000):
            writer.write(b"x-a: b\r\n")
            await writer.drain()
            await asyncio.sleep(0.2)

    async def _trickled_body(self, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(head_of("commit", 32 << 20, PARTS))
        for _ in range(1000):
            writer.write(os.urandom(64))
            await writer.drain()
            await asyncio.sleep(0.1)

    async def _unread(self, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        body = msgspec.msgpack.encode(ReadRequest(vid=self.vid, lsn=1, pages=encode_pages(PageSet(range(1, 4000)))))
        for _ in range(20):
            writer.write(head_of("read_pages", len(body)) + body)
        await writer.drain()
        await asyncio.sleep(20)

    async def _flood(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """As fast as it is answered. What it takes itself of the machine is no more than that."""
        while True:
            for _ in range(16):
                body = self.dice.randbytes(self.dice.choice((0, 10, 2000)))
                writer.write(head_of(self.dice.choice(("snapshot", "hello", "commit", "fork")), len(body)) + body)
            await writer.drain()
            for _ in range(16):
                told = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                await reader.readexactly(int(told.partition("content-length:")[2].partition("\r\n")[0]))

    async def _oversized(self, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(head_of("commit", 60 << 20, PARTS))
        for _ in range(60):
            writer.write(bytes(1 << 20))
            await writer.drain()

    async def _left_open(self, _reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        opened = [await asyncio.open_connection(*self.place, local_addr=(self.host, 0)) for _ in range(20)]
        await asyncio.sleep(self.dice.random())
        for _, writer in opened:
            writer.transport.abort()


async def attack(address: str, count: int, vid: bytes, seed: int) -> None:
    place = place_of(address)
    dice = [random.Random(f"{seed} attacker {number}") for number in range(count)]
    attackers = [Attacker(place, f"127.0.2.{number + 1}", each, vid) for number, each in enumerate(dice)]
    await asyncio.gather(*(attacker.live() for attacker in attackers))


def place_of(address: str) -> tuple[str, int]:
    place = urlsplit(address)
    assert place.hostname is not None
    assert place.port is not None
    return place.hostname, place.port


async def live(callers: list[Caller], seconds: float) -> tuple[list[float], list[str]]:
    """What their calls took, and the errors that they saw."""
    ends = time.monotonic() + seconds
    await asyncio.gather(*(caller.live(ends) for caller in callers))
    took = [seconds for caller in callers for seconds in caller.took]
    errors = [error for caller in callers for error in caller.errors]
    for caller in callers:
        caller.took, caller.errors = [], []
    return took, errors


def hostile(world: World, seconds: float, clients: int = CLIENTS, attackers: int = HOSTILE) -> None:
    with node(world.folder, *LIMITS) as (process, address, _):
        place = place_of(address)
        callers = [
            Caller(place, f"127.0.1.{number + 1}", world.dice(f"caller {number}"))
            for number in range(clients - attackers)
        ]
        calm, errors = asyncio.run(live(callers, seconds / 2))
        before_mb = memory_mb(process.pid)
        seed = world.dice("attackers").randrange(1 << 32)
        attacking = [sys.executable, "-m", "tests.soak.hostile", "--attack", address, str(attackers)]
        with subprocess.Popen([*attacking, callers[0].vid.raw.hex(), str(seed)]) as attack_process:
            try:
                pressed, more = asyncio.run(live(callers, seconds / 2))
            finally:
                attack_process.send_signal(signal.SIGTERM)
        peak = peak_mb(process.pid)
        judge(world, calm, pressed, errors + more)
        print(f"memory: {before_mb:.0f} MB before, {peak:.0f} MB at most", flush=True)
        if peak > MOST_MB:
            world.report.violation(f"the node had {peak:.0f} MB in memory, of {MOST_MB:.0f} at most")
        process.terminate()
        if process.wait(60):
            world.report.violation(f"the node ended with status {process.returncode}")


def judge(world: World, calm: list[float], pressed: list[float], errors: list[str]) -> None:
    for error in errors:
        world.report.violation(f"one who behaves was told {error}")
    p99 = [quantiles(took, n=100)[98] * 1e3 for took in (calm, pressed)]
    p50 = [quantiles(took, n=100)[49] * 1e3 for took in (calm, pressed)]
    for name, took, median, late in zip(("without", "among hostile"), (calm, pressed), p50, p99, strict=True):
        print(f"{name}: {len(took):,} calls, p50 {median:.1f} ms, p99 {late:.1f} ms", flush=True)
    world.report.check("calls of those who behave", len(calm) + len(pressed))
    if p99[1] > 2 * max(p99[0], CALM_MS / 2):
        world.report.violation(f"their p99 went from {p99[0]:.1f} ms to {p99[1]:.1f} ms")


def peak_mb(pid: int) -> float:
    with open(f"/proc/{pid}/status") as status:
        return int(status.read().partition("VmHWM:")[2].split()[0]) / 1024


if __name__ == "__main__":
    if sys.argv[1:2] == ["--attack"]:
        address, count, vid, seed = sys.argv[2:]
        asyncio.run(attack(address, int(count), bytes.fromhex(vid), int(seed)))
    sys.exit(run("tests.soak.hostile", "Hostile callers among others; see this file.", hostile, sys.argv[1:]))
