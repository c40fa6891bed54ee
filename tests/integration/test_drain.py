"""A node that is told to stop loses nothing of anybody's: it says that it isn't ready, lets those go who wait, answers
what is under way, and ends. Whoever was at it asks again, and finds the one that was started in its place."""

from __future__ import annotations

import base64
import signal
from pathlib import Path

import anyio
import httpx
import pytest

from budwood.remote.exchange import Timing
from budwood.remote.http import HttpRemote
from budwood.testing.commits import commit_of
from budwood.volume.calls import (
    CREATE,
    PULL_COMMITS,
    SNAPSHOT,
    WAIT,
    CreateRequest,
    RangeRequest,
    SnapshotRequest,
    WaitRequest,
)
from budwood.volume.errors import Unavailable
from budwood.volume.ids import ClientId, VolumeId
from budwood.volume.wire import CommitRequest

from ..exposed import figure
from ..waits import LIMIT_SECONDS, until
from .cli import started_node as node

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]

PAGE = 512
WRITERS = 12
WAITERS = 6


class Writer:
    """One volume, whose commits follow one another. What it was told of each is kept."""

    def __init__(self) -> None:
        self.vid = VolumeId.new()
        self.client = ClientId.new()
        self.acknowledged: list[int] = []
        self.ended = anyio.Event()

    async def write(self, remote: HttpRemote, ended: anyio.Event) -> None:
        await remote.ask(CREATE, CreateRequest(self.vid.raw, page_size=PAGE))
        while not ended.is_set():
            base = len(self.acknowledged)
            request, segment = commit_of(self.vid, base, {1: b"%0512d" % base}, client=self.client, page_size=PAGE)
            self.acknowledged.append(await self._again(remote, request, segment))
        self.ended.set()

    async def _again(self, remote: HttpRemote, request: CommitRequest, segment: bytes) -> int:
        while True:
            try:
                return (await remote.commit(request, segment)).lsn
            except Unavailable:
                # The same token is one commit, however often it is sent.
                await anyio.sleep(0.02)


async def waiting(remote: HttpRemote, vid: VolumeId, ended: anyio.Event) -> None:
    """Somebody who waits for more than ever comes, over and over."""
    while not ended.is_set():
        try:
            await remote.ask(WAIT, WaitRequest(vid.raw, after=1 << 40, timeout_seconds=0.5))
        except Unavailable:
            await anyio.sleep(0.02)


@pytest.mark.parametrize("options", [(), ("--workers", "2")])
async def test_a_drain_under_load_loses_nothing(tmp_path: Path, options: tuple[str, ...]) -> None:
    writers, ended = [Writer() for _ in range(WRITERS)], anyio.Event()
    with node(tmp_path / "store", "127.0.0.1:0", "--drain", "300ms", *options) as (first, address):
        remotes = [HttpRemote(address) for _ in range(WRITERS + WAITERS)]
        try:
            async with anyio.create_task_group() as tasks:
                for writer, remote in zip(writers, remotes, strict=False):
                    tasks.start_soon(writer.write, remote, ended)
                await more_than(writers, [3] * WRITERS)
                for remote in remotes[WRITERS:]:
                    tasks.start_soon(waiting, remote, writers[0].vid, ended)
                first.send_signal(signal.SIGTERM)
                assert await anyio.to_thread.run_sync(first.wait, LIMIT_SECONDS) == 0
                before = [len(writer.acknowledged) for writer in writers]
                with node(tmp_path / "store", address.removeprefix("http://"), *options):
                    await more_than(writers, [count + 3 for count in before])
                    ended.set()
                    for writer in writers:
                        await writer.ended.wait()
                    await check(remotes[0], writers)
        finally:
            for remote in remotes:
                await remote.aclose()


async def more_than(writers: list[Writer], counts: list[int]) -> None:
    async def holds() -> bool:
        return all(len(writer.acknowledged) >= count for writer, count in zip(writers, counts, strict=True))

    await until(holds)


async def check(remote: HttpRemote, writers: list[Writer]) -> None:
    """Each commit that was acknowledged stands, once, at the LSN that its writer was told."""
    for writer in writers:
        snapshot = await remote.ask(SNAPSHOT, SnapshotRequest(writer.vid.raw))
        told = writer.acknowledged
        assert told == list(range(1, len(told) + 1))
        assert snapshot.lsn == len(told)
        commits = (await remote.ask(PULL_COMMITS, RangeRequest(writer.vid.raw, to=snapshot.lsn))).commits
        assert len(commits) == snapshot.lsn


async def test_a_node_that_drains_isn_t_ready_and_answers(tmp_path: Path) -> None:
    with node(tmp_path / "store", "127.0.0.1:0", "--drain", "1h") as (process, address):
        remote, vid = HttpRemote(address), VolumeId.new()
        async with (
            httpx.AsyncClient(base_url=address, timeout=LIMIT_SECONDS) as web,
            anyio.create_task_group() as tasks,
        ):
            ready = await web.get("/readyz")
            assert (ready.status_code, ready.json()) == (200, {"ready": True, "reasons": []})
            assert "connection" not in ready.headers
            await remote.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
            let_go = anyio.Event()

            async def waits() -> None:
                wanted = {"vid": base64.b64encode(vid.raw).decode(), "after": 9, "timeout_seconds": 25}
                told = await web.post("/v1/wait", json=wanted)
                assert told.status_code == 503
                assert told.headers["retry-after"] == "1"
                assert "stopping" in told.json()["message"]
                let_go.set()

            tasks.start_soon(waits)

            async def somebody_waits() -> bool:
                return figure((await web.get("/metrics")).text, "budwood_polls") == 1

            await until(somebody_waits)
            process.send_signal(signal.SIGTERM)
            await let_go.wait()
            ready = await web.get("/readyz")
            assert (ready.status_code, ready.json()) == (503, {"ready": False, "reasons": ["draining"]})
            assert ready.headers["connection"] == "close"
            assert (
                await remote.commit(*commit_of(vid, 0, {1: b"x" * PAGE}, client=ClientId.new(), page_size=PAGE))
            ).lsn == 1
            assert (await web.get("/healthz")).status_code == 200
            hasty = HttpRemote(address, timing=Timing(retry_seconds=0))
            with pytest.raises(Unavailable, match=r"stopping.* \(request [0-9a-f]+-[0-9a-f]+\)$"):
                await hasty.ask(WAIT, WaitRequest(vid.raw, after=9, timeout_seconds=2.0))
            await hasty.aclose()
            # Told again it doesn't wait.
            process.send_signal(signal.SIGTERM)
            assert await anyio.to_thread.run_sync(process.wait, LIMIT_SECONDS) == 0
            with pytest.raises(httpx.ConnectError):
                await web.get("/readyz")
        await remote.aclose()
