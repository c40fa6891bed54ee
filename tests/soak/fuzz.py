"""The fuzz: every endpoint of a node is sent what nobody should send, for minutes.

    python -m tests.soak.fuzz --minutes 5 [--seed 7]

What must hold, each a violation otherwise: no 5xx but those that a caller may be told (501 Unsupported, 503 with its
error and `Retry-After`, 507 Full); every refusal is the protocol's own, with a code; nothing is logged as an error, so
no exception of ours got as far as that; the node's memory stops growing; it answers at the end, and ends cleanly.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import anyio
import httpx

from budwood.remote.http import HttpRemote
from budwood.testing.commits import commit_of
from budwood.volume.calls import CREATE, HELLO, JSON, CreateRequest, Done
from budwood.volume.ids import ClientId, VolumeId

from .command import run
from .drawn_requests import Drawer
from .world import World

TASKS: Final = 8
PAGE: Final = 512
ASKED_FOR: Final = frozenset({501, 503, 507})
GROWTH_MB: Final = 48.0
"""Between a quarter of the time and the end: what is kept open falls out of memory by then (--memory)."""
CALL_SECONDS: Final = 150.0
"""More than anybody may wait for a commit."""
SERVE: Final = [sys.executable, "-P", "-c", "from budwood.cli.launch import main; main()", "serve"]


@contextmanager
def node(folder: Path, *options: str) -> Generator[tuple[subprocess.Popen[str], str, Path]]:
    """A process that serves; its address, and where its log lies. Ended with the context, killed if need be."""
    log = folder / "node.log"
    arguments = ["--store", f"file://{folder / 'store'}", "--create", "--listen", "127.0.0.1:0", "--memory", "4"]
    with (
        log.open("w") as errors,
        subprocess.Popen(
            [*SERVE, *arguments, "--log-format", "json", *options], stdout=subprocess.PIPE, stderr=errors, text=True
        ) as process,
    ):
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline().split()[-1], log
        finally:
            process.kill()


def memory_mb(pid: int) -> float:
    """What it has in memory now."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


class Fuzz:
    def __init__(self, world: World, address: str, pid: int) -> None:
        self.world = world
        self.address = address
        self.pid = pid
        self.early_mb = 0.0

    async def run(self, seconds: float, most: int = sys.maxsize) -> None:
        """For so long, or so many requests."""
        vids = await self._volumes()
        self._left, self._end = most, time.monotonic() + seconds
        began = time.monotonic()
        async with anyio.create_task_group() as tasks:
            for number in range(TASKS):
                tasks.start_soon(self._send, Drawer(self.world.dice(f"fuzz {number}"), vids))
            while not self._is_over():
                await anyio.sleep(min(0.5, seconds / 10))
                if not self.early_mb and time.monotonic() - began > seconds / 4:
                    self.early_mb = memory_mb(self.pid)
        remote = HttpRemote(self.address)
        self.world.report.check("it answers at the end", int((await remote.ask(HELLO, Done())).node == "main"))
        await remote.aclose()

    async def _volumes(self) -> list[bytes]:
        remote, vids = HttpRemote(self.address), [VolumeId.new() for _ in range(6)]
        for vid in vids[:4]:
            await remote.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
            await remote.commit(*commit_of(vid, 0, {1: b"a" * PAGE}, client=ClientId.new(), page_size=PAGE))
        await remote.aclose()
        return [vid.raw for vid in vids]

    def _is_over(self) -> bool:
        return self.world.over.is_set() or time.monotonic() >= self._end or self._left <= 0

    async def _send(self, drawer: Drawer) -> None:
        async with httpx.AsyncClient(base_url=self.address, timeout=CALL_SECONDS, verify=False) as web:
            while not self._is_over():
                self._left -= 1
                drawn = drawer.request()
                headers = [("accept", JSON), *drawn.headers]
                try:
                    told = await web.request(drawn.method, drawn.path, headers=headers, content=drawn.body)
                except httpx.TimeoutException:
                    self.world.report.violation(f"{drawn.method} {drawn.path} had no answer: {drawn.body[:200]!r}")
                except httpx.HTTPError as error:
                    # A connection that the node ends since it can't make a request of what it got.
                    self.world.report.error(type(error).__name__)
                else:
                    self._judge(f"{drawn.method} {drawn.path} {drawn.headers} {drawn.body[:200]!r}", told)

    def _judge(self, what: str, told: httpx.Response) -> None:
        report, status = self.world.report, told.status_code
        report.check(str(status))
        if status < 400:
            return
        if status >= 500 and status not in ASKED_FOR:
            report.violation(f"{status}: {what}: {told.text[:300]}")
        elif not told.text:
            # HEAD has no body, and what the server itself can't read as HTTP has none either.
            report.error(f"{status} without a word")
        elif not json.loads(told.text).get("code") and "reasons" not in told.text:
            report.violation(f"{status} without a code: {what}: {told.text[:300]}")


def fuzz(world: World, seconds: float, most: int = sys.maxsize) -> None:
    with node(world.folder) as (process, address, log):
        found = Fuzz(world, address, process.pid)
        anyio.run(found.run, seconds, most)
        late_mb = memory_mb(process.pid)
        print(f"memory: {found.early_mb:.0f} MB after a quarter, {late_mb:.0f} MB at the end", flush=True)
        if found.early_mb and late_mb - found.early_mb > GROWTH_MB:
            world.report.violation(f"the node's memory grew from {found.early_mb:.0f} MB to {late_mb:.0f} MB")
        process.terminate()
        if process.wait(CALL_SECONDS):
            world.report.violation(f"the node ended with status {process.returncode}")
    for line in log.read_text().splitlines():
        if json.loads(line)["level"] in {"error", "critical"}:
            world.report.violation(f"the node logged {line[:2000]}")


if __name__ == "__main__":
    sys.exit(run("tests.soak.fuzz", "Noise for every endpoint of a node; see this file.", fuzz, sys.argv[1:]))
