"""Small pushes that come at a given rate, each of one volume, over HTTP to a node on a bucket: what they cost.

    python -m bench.offered [RATE] [SECONDS]        # 1,000 a second for 20 s unless told

The bucket is the tests' S3 server, of which each request takes 50 ms; it, the node and those who push have a process
each. What counts are objects, which are what a bucket charges for, beside how long a push takes.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from statistics import quantiles
from urllib.parse import urlsplit
from urllib.request import urlopen

from budwood.remote.http import HttpRemote
from budwood.volume.calls import CREATE, CreateRequest
from budwood.volume.wire import pack_part

from .commits import PAGE, Writer, post
from .harness import Figure, report, scratch
from .memory import peak_of, serve_at
from .waiters import cpu_seconds

LATENCY_SECONDS = 0.05
RATE, SECONDS = 1_000, 20
CREATES_A_SECOND = 60.0
COMMITS_AN_OBJECT = 15.0


@contextmanager
def bucket() -> Generator[dict[str, str]]:
    """The environment by which a node finds it."""
    command = [sys.executable, "-m", "tests.soak.bucket", "127.0.0.1", "0", str(LATENCY_SECONDS)]
    root = Path(__file__).parent.parent
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        yield {
            "AWS_ENDPOINT": server.stdout.readline().strip(),
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": "us-east-1",
        }
        server.stdin.close()


async def volumes(address: str, count: int) -> list[Writer]:
    """That many, open."""
    writers = [Writer() for _ in range(count)]
    remote = HttpRemote(address)
    for writer in writers:
        await remote.ask(CREATE, CreateRequest(writer.vid.raw, page_size=PAGE))
        await remote.commit(*writer.make(1)[0])
    await remote.aclose()
    return writers


async def offer(address: str, writers: list[Writer], seconds: int) -> tuple[list[float], float]:
    """How long each push took, and for how long all of them were under way; none waits for another to be sent."""
    rate = len(writers)
    made = [writer.make(seconds) for writer in writers]
    place, took = urlsplit(address), list[float]()
    begun = time.perf_counter() + 1.0

    async def push(at: int) -> None:
        reader, writer = await asyncio.open_connection(place.hostname, place.port)
        for second, (request, segment) in enumerate(made[at]):
            due = begun + second + at / rate
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            await post(reader, writer, place.netloc, pack_part(request, segment))
            took.append(time.perf_counter() - due)
        writer.close()

    await asyncio.gather(*map(push, range(rate)))
    return took, time.perf_counter() - begun


def creates(address: str) -> int:
    with urlopen(f"{address}/metrics") as answer:
        found = re.search(r"^budwood_store_creates_total (\d+)", answer.read().decode(), re.MULTILINE)
    assert found is not None
    return int(found.group(1))


def main(rate: int = RATE, seconds: int = SECONDS) -> None:
    with scratch() as folder, bucket() as environment:
        node, address = serve_at("s3://bucket/offered", folder / "home", environment=os.environ | environment)
        writers = asyncio.run(volumes(address, rate))
        before, cpu = creates(address), cpu_seconds(node.pid)
        took, lasted = asyncio.run(offer(address, writers, seconds))
        made, cpu = creates(address) - before, cpu_seconds(node.pid) - cpu
        cut = quantiles(took, n=100)
        figures = [
            Figure("pushes a second", len(took) / lasted, "", note=f"{rate:,} were offered"),
            Figure("creates a second", made / lasted, "", CREATES_A_SECOND),
            Figure("pushes an object", len(took) / made, "", COMMITS_AN_OBJECT, least=True),
            Figure("p50", cut[49] * 1e3, " ms"),
            Figure("p99", cut[98] * 1e3, " ms"),
            Figure("the node's CPU for a push", cpu / len(took) * 1e3, " ms"),
            Figure("the node's memory, at most", peak_of(node.pid), " MB"),
        ]
        node.terminate()
        node.wait()
    report(f"offered: {rate:,} one-page pushes a second over HTTP, a bucket at {LATENCY_SECONDS * 1e3:.0f} ms", figures)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
