"""Workers: what a second one adds to a node, and what it costs where a call comes to the wrong one.

200 writers with a volume each commit one page at a time over bare connections, to a node with one worker and to one
with two, in turns. Of two, `led` are connections that lead to the worker that the volume is with, as those of Budwood's
own clients come to do, and `handed on` are such as lead to the other. The CPU is that of all of the node's processes.

Those who write run beside the node, in one process: on two cores that is a share of what the second worker would have.
Figures are the medians of rounds in turns; how busy the machine is otherwise shows in what they spread over.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

from budwood.remote.http import HttpRemote
from budwood.server.metastore.share import Share
from budwood.volume.calls import CREATE, PARTS, WORKER_HEADER, CreateRequest
from budwood.volume.wire import pack_part

from .commits import Made, Round, Writer, client_ms, node_ms
from .harness import Figure, report, scratch, take_turns
from .memory import CLI, url_of
from .waiters import cpu_seconds

PAGE = 4096
WRITERS = 200
COMMITS = 4_000
ROUNDS = 5
MOST_TRIES = 200
SIDES = {"1 worker": (1, "led"), "2 workers, led": (2, "led"), "2 workers, handed on": (2, "handed on")}


class Line:
    """A connection, and the worker that it leads to; "" of one worker."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str) -> None:
        self.reader = reader
        self.writer = writer
        self.host = host
        self.worker = ""

    async def ask(self, path: str, content: str, body: bytes) -> None:
        head = (
            f"POST {path} HTTP/1.1\r\nhost: {self.host}\r\naccept: application/msgpack\r\n"
            f"content-type: {content}\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        self.writer.write(head.encode() + body)
        told = (await self.reader.readuntil(b"\r\n\r\n")).decode().lower()
        answer = await self.reader.readexactly(int(told.partition("content-length:")[2].partition("\r\n")[0]))
        assert told.startswith("http/1.1 200"), answer
        self.worker = told.partition(f"{WORKER_HEADER.lower()}:")[2].partition("\r\n")[0].strip()


async def line_to(address: str, leads: Callable[[str], bool]) -> Line:
    """Connected anew until it leads there."""
    place = urlsplit(address)
    for _ in range(MOST_TRIES):
        line = Line(*await asyncio.open_connection(place.hostname, place.port), place.netloc)
        await line.ask("/v1/list_names", "application/json", b"{}")
        if leads(line.worker):
            return line
        line.writer.close()
    raise RuntimeError(f"none of {MOST_TRIES} connections leads there")


async def one_round(address: str, pids: list[int], workers: int, way: str) -> Round:
    writers, share = [Writer() for _ in range(WRITERS)], Share("main", 1, workers)
    remote = HttpRemote(address)
    for writer in writers:
        await remote.ask(CREATE, CreateRequest(writer.vid.raw, page_size=PAGE))
    await remote.aclose()

    def wanted(writer: Writer) -> Callable[[str], bool]:
        at = str(share.of_volume(writer.vid))
        return lambda worker: workers == 1 or (worker == at) == (way == "led")

    lines = [await line_to(address, wanted(writer)) for writer in writers]

    async def write(line: Line, made: Made) -> None:
        for request, segment in made:
            await line.ask("/v1/commit", PARTS, pack_part(request, segment))

    async def write_all(work: list[Made]) -> None:
        await asyncio.gather(*(write(line, made) for line, made in zip(lines, work, strict=True)))

    # The first opens the volume.
    await write_all([writer.make(1) for writer in writers])
    work = [writer.make(COMMITS // WRITERS) for writer in writers]
    node, client, begun = sum(map(cpu_seconds, pids)), time.process_time(), time.perf_counter()
    await write_all(work)
    seconds = time.perf_counter() - begun
    for line in lines:
        line.writer.close()
    return Round(seconds, sum(map(cpu_seconds, pids)) - node, time.process_time() - client, sum(map(len, work)))


def run(address: str, pids: list[int], workers: int, way: str) -> Round:
    """In a process of its own."""
    command = [sys.executable, "-m", "bench.workers", address, json.dumps(pids), str(workers), way]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, cwd=Path(__file__).parent.parent)
    return Round(*json.loads(done.stdout))


class Node:
    """With so many workers."""

    def __init__(self, workers: int, folder: Path) -> None:
        self.workers = workers
        folder.mkdir()
        command = [*CLI, "--home", str(folder / "home"), "serve", "--create", "--store", (folder / "store").as_uri()]
        command += ["--listen", "127.0.0.1:0", "--workers", str(workers)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
        self.address = url_of(self.process)
        pid = self.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        self.pids = [pid, *map(int, children)]
        assert len(self.pids) == (1 if workers == 1 else workers + 1)

    def end(self) -> None:
        self.process.terminate()
        self.process.wait()


def main() -> None:
    found: dict[str, list[Round]] = {name: [] for name in SIDES}
    with scratch() as folder, ExitStack() as stack:
        nodes = {workers: Node(workers, folder / str(workers)) for workers in (1, 2)}
        for node in nodes.values():
            stack.callback(node.end)

        def turn(name: str) -> Callable[[], float]:
            workers, way = SIDES[name]

            def taken() -> float:
                node = nodes[workers]
                found[name].append(run(node.address, node.pids, workers, way))
                return found[name][-1].seconds

            return taken

        take_turns({name: turn(name) for name in SIDES}, ROUNDS)
    # The first was to warm up.
    rounds = {name: each[1:] for name, each in found.items()}
    lines: list[Figure] = []
    one = rounds["1 worker"]
    for name, each in rounds.items():
        rates = [it.rate for it in each]
        note = f"CPU of those who write {statistics.median(map(client_ms, each)):.2f} ms a commit"
        lines.append(Figure(f"{name}: commits a second", statistics.median(rates), "", None, rates, note=note))
        costs = [node_ms(it) for it in each]
        lines.append(Figure(f"{name}: the node's CPU for a commit", statistics.median(costs), " ms", None, costs))
        if each is not one:
            pairs = list(zip(each, one, strict=True))
            faster = [now.rate / then.rate for now, then in pairs]
            dearer = [node_ms(now) / node_ms(then) for now, then in pairs]
            bound = 1.7 if name.endswith("led") else None
            title = f"{name} against 1"
            lines += [
                Figure(f"{title}: commits a second", statistics.median(faster), "×", bound, faster, least=True),
                Figure(f"{title}: the node's CPU for a commit", statistics.median(dearer), "×", None, dearer),
            ]
    report(f"workers: {WRITERS} writers, {os.cpu_count()} cores with those who write", lines)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        at, pids_of, count, how = sys.argv[1:]
        print(json.dumps(asyncio.run(one_round(at, json.loads(pids_of), int(count), how))))
    else:
        main()
