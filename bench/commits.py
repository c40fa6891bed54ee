"""What a small commit costs over HTTP: the node's CPU and the client's, apart, and what one client carries for many.

The node is a process of its own on a directory. Commits are of one page, each on a volume of its own writer, and made
before the clock starts. `sockets` are bare connections that cost next to nothing here, so that the node's figures are
its own; `clients` are an HttpRemote for each task, and `one client` is a single one that all of them share.

Where BUDWOOD_BENCH_BEFORE names another tree, after `make setup` there, its node takes turns with this one's,
and so does its client.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from budwood.remote.http import HttpRemote
from budwood.testing.commits import commit_of
from budwood.volume.calls import CREATE, PARTS, CreateRequest
from budwood.volume.ids import ClientId, VolumeId
from budwood.volume.wire import CommitRequest, pack_part

from .harness import Figure, report, scratch, take_turns
from .memory import serve
from .waiters import cpu_seconds

PAGE = 4096
COMMITS = 4_000
"""Of a round, whoever makes them; one writer makes fewer."""
ROUNDS = 5
BEFORE = os.environ.get("BUDWOOD_BENCH_BEFORE", "")
WRITERS = (1, 50, 200, 800)

Made = list[tuple[CommitRequest, bytes]]


class Round(NamedTuple):
    """What it took."""

    seconds: float
    node: float
    """CPU, in seconds."""
    client: float
    commits: int

    @property
    def rate(self) -> float:
        return self.commits / self.seconds


class Writer:
    """One volume, and the commits that follow one another in it."""

    def __init__(self) -> None:
        self.vid = VolumeId.new()
        self.client = ClientId.new()
        self.head = 0

    def make(self, count: int) -> Made:
        return [self._next() for _ in range(count)]

    def _next(self) -> tuple[CommitRequest, bytes]:
        # Compresses to a quarter, as pages of rows do.
        made = commit_of(self.vid, self.head, {1: os.urandom(PAGE // 4).ljust(PAGE, b".")}, client=self.client)
        self.head += 1
        return made


async def post(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, body: bytes) -> None:
    """A commit over a bare connection, answered."""
    head = (
        f"POST /v1/commit HTTP/1.1\r\nhost: {host}\r\naccept: application/msgpack\r\n"
        f"content-type: {PARTS}\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    writer.write(head.encode() + body)
    told = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    answer = await reader.readexactly(int(told.partition("content-length:")[2].partition("\r\n")[0]))
    assert told.startswith("http/1.1 200"), answer


async def over_sockets(address: str, work: list[Made]) -> None:
    place = urlsplit(address)

    async def write(made: Made) -> None:
        reader, writer = await asyncio.open_connection(place.hostname, place.port)
        for request, segment in made:
            await post(reader, writer, place.netloc, pack_part(request, segment))
        writer.close()

    await asyncio.gather(*map(write, work))


async def over_clients(address: str, work: list[Made]) -> None:
    remotes = [HttpRemote(address) for _ in work]
    await asyncio.gather(*(commit_all(remote, made) for remote, made in zip(remotes, work, strict=True)))
    for remote in remotes:
        await remote.aclose()


async def over_one_client(address: str, work: list[Made]) -> None:
    remote = HttpRemote(address)
    await asyncio.gather(*(commit_all(remote, made) for made in work))
    await remote.aclose()


async def commit_all(remote: HttpRemote, made: Made) -> None:
    for request, segment in made:
        await remote.commit(request, segment)


WAYS: dict[str, Callable[[str, list[Made]], Awaitable[None]]] = {
    "sockets": over_sockets,
    "clients": over_clients,
    "one client": over_one_client,
}


async def one_round(address: str, pid: int, way: str, count: int, commits: int) -> Round:
    writers = [Writer() for _ in range(count)]
    remote = HttpRemote(address)
    for writer in writers:
        await remote.ask(CREATE, CreateRequest(writer.vid.raw, page_size=PAGE))
    await remote.aclose()
    # The first opens the volume.
    await over_sockets(address, [writer.make(1) for writer in writers])
    work = [writer.make(max(1, commits // count)) for writer in writers]
    node, client, begun = cpu_seconds(pid), time.process_time(), time.perf_counter()
    await WAYS[way](address, work)
    seconds = time.perf_counter() - begun
    return Round(seconds, cpu_seconds(pid) - node, time.process_time() - client, sum(map(len, work)))


def run(python: str, address: str, pid: int, way: str, count: int, commits: int) -> Round:
    """In a process of its own, of the given Python: so that what one way leaves behind is no other's."""
    command = [python, "-m", "bench.commits", address, str(pid), way, str(count), str(commits)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, cwd=Path(__file__).parent.parent)
    return Round(*json.loads(done.stdout))


def median(rounds: list[Round], of: Callable[[Round], float]) -> tuple[float, list[float]]:
    values = [of(found) for found in rounds]
    return statistics.median(values), values


def node_ms(found: Round) -> float:
    return found.node / found.commits * 1000


def client_ms(found: Round) -> float:
    return found.client / found.commits * 1000


class Side:
    """A node and its clients, of one checkout."""

    def __init__(self, name: str, python: str, folder: Path) -> None:
        self.name = name
        self.python = python
        folder.mkdir()
        self.node, self.address = serve(folder / "store", folder / "home", python)

    def run(self, way: str, count: int) -> Round:
        return run(self.python, self.address, self.node.pid, way, count, min(COMMITS, count * 1_000))

    def end(self) -> None:
        self.node.terminate()
        self.node.wait()


def compared(sides: list[Side]) -> dict[tuple[str, str], list[Round]]:
    """The rounds of each side in each way with 200 writers, which take turns."""
    found: dict[tuple[str, str], list[Round]] = {(side.name, way): [] for side in sides for way in WAYS}

    def turn(side: Side, way: str) -> Callable[[], float]:
        def run() -> float:
            found[side.name, way].append(side.run(way, 200))
            return found[side.name, way][-1].seconds

        return run

    take_turns({f"{side.name} {way}": turn(side, way) for side in sides for way in WAYS}, ROUNDS)
    # The first was to warm up.
    return {key: rounds[1:] for key, rounds in found.items()}


def figures(side: Side, found: dict[tuple[str, str], list[Round]], *, bound: bool) -> list[Figure]:
    name = side.name
    sockets, clients, one = (found[name, way] for way in WAYS)
    shares = [a.rate / b.rate for a, b in zip(one, clients, strict=True)]
    rate, _ = median(sockets, lambda it: it.rate)
    lines = [
        Figure(
            f"{name}: the node's CPU for a commit, of 200 writers",
            *_of(sockets, node_ms, " ms", 0.3 if bound else None),
            note=f"{rate:.0f} commits a second over bare sockets",
        )
    ]
    for way, rounds in (("200 clients", clients), ("one client under 200 tasks", one)):
        rate, _ = median(rounds, lambda it: it.rate)
        node, _ = median(rounds, node_ms)
        note = f"{rate:.0f} commits a second; the node's {node:.2f} ms"
        lines.append(Figure(f"{name}: CPU of {way} for a commit", *_of(rounds, client_ms, " ms"), note=note))
    value = statistics.median(shares) * 100
    lines.append(
        Figure(
            f"{name}: one client against 200",
            value,
            " %",
            80.0 if bound else None,
            [share * 100 for share in shares],
            least=True,
        )
    )
    return lines


def _of(
    rounds: list[Round], of: Callable[[Round], float], unit: str, bound: float | None = None
) -> tuple[float, str, float | None, list[float]]:
    value, values = median(rounds, of)
    return value, unit, bound, values


def main() -> None:
    with scratch() as folder, ExitStack() as stack:
        sides = [Side("now", sys.executable, folder / "now")]
        if BEFORE:
            sides.append(Side("before", str(Path(BEFORE) / ".venv/bin/python"), folder / "before"))
        for side in sides:
            stack.callback(side.end)
        found = compared(sides)
        lines = [line for side in sides for line in figures(side, found, bound=side.name == "now")]
        if BEFORE:
            for way, what, of in (
                ("sockets", "the node's CPU", node_ms),
                ("clients", "200 clients' CPU", client_ms),
                ("one client", "one client's CPU", client_ms),
            ):
                pairs = zip(found["now", way], found["before", way], strict=True)
                ratios = [of(now) / of(then) for now, then in pairs]
                lines.append(Figure(f"{what}, now against before", statistics.median(ratios), "×", None, ratios))
        for count in WRITERS:
            rounds = [sides[0].run("sockets", count) for _ in range(3)]
            rate, rates = median(rounds, lambda it: it.rate)
            cpu, _ = median(rounds, node_ms)
            lines.append(Figure(f"{count} writers", rate, "/s", None, rates, note=f"the node's {cpu:.2f} ms each"))
    report("commits: small ones over HTTP", lines)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        address, pid, way, count, commits = sys.argv[1:]
        print(json.dumps(asyncio.run(one_round(address, int(pid), way, int(count), int(commits)))))
    else:
        main()
