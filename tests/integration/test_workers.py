"""Workers of one node in one event loop: whichever of them a call comes to, it is done by the one that it is for. Each
has a port of its own here, so that a test says whom it asks; all say that they are at the same address."""

from __future__ import annotations

import base64
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.abc
import httpx
import pytest
from anyio.lowlevel import checkpoint

from budwood.remote.http import HttpRemote
from budwood.remote.moving import move_volume
from budwood.server.http.run_node import bind, serve
from budwood.server.http.siblings import Doors
from budwood.server.http.workers import Worker
from budwood.server.metastore.log_ownership import assume_gone
from budwood.server.metastore.share import Share
from budwood.server.node import Node
from budwood.testing.commits import commit_of, pages_at
from budwood.testing.stores import MemoryStore
from budwood.volume.calls import (
    CHANGE_NAME,
    CREATE,
    DECOMMISSION,
    FORK,
    HEAT,
    HELLO,
    LIST_NAMES,
    PIN,
    PULL_COMMITS,
    REQUESTS,
    SHARED_LOGS,
    SNAPSHOT,
    STORE_COSTS,
    TAKE_LOG,
    VOLUME_AT_HEADER,
    WAIT,
    WORKER_HEADER,
    CreateRequest,
    DecommissionRequest,
    Done,
    ForkRequest,
    LogName,
    NamesRequest,
    PinRequest,
    RangeRequest,
    SharedLogsRequest,
    SnapshotRequest,
    VolumeRequest,
    WaitRequest,
)
from budwood.volume.entry import EpochRecord
from budwood.volume.errors import BadInput, BudwoodError, Conflict, NotFound, NotOwner, Unavailable
from budwood.volume.ids import ClientId, PinId, VolumeId
from budwood.volume.owner import Liveness
from budwood.volume.pageset import PageSet
from budwood.volume.protocols import Remote
from budwood.volume.wire import NameRequest

from ..exposed import figure
from ..served import serving
from ..waits import LIMIT_SECONDS

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]

PAGE = 512
ANN = ClientId.new()
ADDRESS = "http://127.0.0.1:1"
"""Of all of them. Nobody listens there."""


class Watched:
    """A worker's node, how many wait there or were told what they waited for, and how many commits it has refused since
    another owns the log."""

    def __init__(self, remote: Remote) -> None:
        self.remote = remote
        self.waiting = 0
        self.told = 0
        self.refused = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.remote, name)

    async def ask(self, call: Any, request: Any) -> Any:
        self.waiting += call is WAIT
        try:
            answer = await self.remote.ask(call, request)
            self.told += call is WAIT
            return answer
        finally:
            self.waiting -= call is WAIT

    async def commit(self, *given: Any) -> Any:
        try:
            return await self.remote.commit(*given)
        except NotOwner:
            self.refused += 1
            raise


class Fleet:
    """Workers that serve, and a client of each that goes to it alone."""

    def __init__(self, store: Any, count: int, token: str, tasks: anyio.abc.TaskGroup) -> None:
        self.tasks = tasks
        self.store = store
        self.count = count
        self.token = token
        self.doors = Doors(count)
        self.urls: dict[int, str] = {}
        self.nodes: dict[int, Node] = {}
        self.watched: dict[int, Watched] = {}
        self.stops: dict[int, anyio.Event] = {}
        self.remotes: dict[int, HttpRemote] = {}
        self.ended: dict[int, anyio.Event] = {}
        self.lives: set[str] = set()
        """Nodes that answer; all others are gone."""

    async def probe(self, owner: EpochRecord) -> Liveness:
        return Liveness.ANSWERS if owner.node in self.lives else Liveness.GONE

    async def start(self, number: int, *, again: bool = False) -> None:
        ready, self.stops[number], self.ended[number] = anyio.Event(), anyio.Event(), anyio.Event()
        listener = bind("127.0.0.1", 0)
        self.urls[number] = f"http://127.0.0.1:{listener.getsockname()[1]}"
        worker = Worker(Share("main", number, self.count), self.doors)

        @asynccontextmanager
        async def opened(address: str) -> AsyncGenerator[Any]:
            probe = worker.probe(address, self.probe)
            node = Node.open(
                self.store, name="main", address=address, probe_owner=probe, share=worker.share, yields=again
            )
            async with node as self.nodes[number]:
                self.watched[number] = Watched(worker.whole(self.nodes[number]))
                yield self.watched[number]

        def served(_address: str, _remote: Remote) -> None:
            ready.set()

        async def run() -> None:
            try:
                await serve(
                    opened,
                    advertise=ADDRESS,
                    token=self.token,
                    listener=listener,
                    worker=worker,
                    on_ready=served,
                    stop=self.stops[number],
                )
            finally:
                self.ended[number].set()

        self.tasks.start_soon(run)
        await ready.wait()
        self.remotes[number] = HttpRemote(self.urls[number], token=self.token)

    async def stop(self, number: int) -> None:
        self.stops[number].set()
        await self.ended[number].wait()
        await self.remotes[number].aclose()

    async def wait_at(self, number: int, count: int) -> None:
        """Until so many wait at that worker."""
        while self.watched[number].waiting != count:
            await checkpoint()

    def of(self, worker: int) -> VolumeId:
        """An id that falls to that worker."""
        share, vid = Share("main", 1, self.count), VolumeId.new()
        while share.of_volume(vid) != worker:
            vid = VolumeId.new()
        return vid


@asynccontextmanager
async def fleet(count: int = 2, store: Any = None, token: str = "") -> AsyncGenerator[Fleet]:
    async with anyio.create_task_group() as tasks:
        made = Fleet(MemoryStore() if store is None else store, count, token, tasks)
        for number in range(1, count + 1):
            await made.start(number)
        try:
            yield made
        finally:
            for number in made.stops:
                await made.stop(number)
            made.doors.close()


async def put(remote: HttpRemote, vid: VolumeId, base: int, pages: dict[int, bytes] | None = None) -> int:
    request = commit_of(vid, base, pages or {1: bytes([base + 1]) * PAGE}, client=ANN, page_size=PAGE)
    return (await remote.commit(*request)).lsn


async def written_again(remote: HttpRemote, vid: VolumeId) -> int:
    """Once the log is the worker's again, which tries for it now and then."""
    with anyio.fail_after(LIMIT_SECONDS):
        while True:
            try:
                return await put(remote, vid, 1)
            except NotOwner:
                await anyio.sleep(0.05)


async def test_whichever_is_asked_a_volume_is_made_written_and_read_where_it_belongs() -> None:
    async with fleet(3) as made:
        for worker in (1, 2, 3):
            vid, base = made.of(worker), 0
            for remote in made.remotes.values():
                await remote.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
                base = await put(remote, vid, base)
                assert (await remote.ask(SNAPSHOT, SnapshotRequest(vid.raw))).log == Share("main", worker, 3).log
                assert await pages_at(remote, vid) == {1: bytes([base]) * PAGE}
                with pytest.raises(Conflict):
                    await put(remote, vid, base - 1, {1: b"!" * PAGE})
            assert base == 3


async def test_reads_are_the_workers_that_has_the_volume_open() -> None:
    """The others ask the store for nothing."""
    async with fleet() as made:
        vid = made.of(2)
        await made.remotes[1].ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
        await put(made.remotes[1], vid, 0)
        before = made.nodes[1].counted.all.gets, made.nodes[1].counted.all.lists
        await made.remotes[1].ask(SNAPSHOT, SnapshotRequest(vid.raw))
        await made.remotes[1].ask(PULL_COMMITS, RangeRequest(vid.raw))
        assert await pages_at(made.remotes[1], vid) == {1: b"\1" * PAGE}
        assert (made.nodes[1].counted.all.gets, made.nodes[1].counted.all.lists) == before


async def test_an_answer_says_where_the_connection_leads_and_whose_the_volume_is() -> None:
    async with fleet() as made, httpx.AsyncClient(verify=False) as web:
        for worker in (1, 2):
            vid = made.of(worker)
            for at, url in made.urls.items():
                asked = {"vid": base64.b64encode(vid.raw).decode(), "page_size": PAGE}
                told = await web.post(f"{url}/v1/create", json=asked)
                assert told.status_code == 200
                assert told.headers[WORKER_HEADER] == str(at)
                assert told.headers.get(VOLUME_AT_HEADER) == (None if worker == at else str(worker))


async def test_large_segments_and_long_answers_go_through() -> None:
    async with fleet() as made:
        vid, pages = made.of(2), {page: bytes([page % 251]) * PAGE for page in range(1, 5000)}
        remote = made.remotes[1]
        await remote.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
        assert await put(remote, vid, 0, pages) == 1
        found = 0
        async with remote.read_pages(vid, 1, PageSet(pages), extra_bytes=0) as answer:
            async for frame in answer.frames():
                found += len(frame.valid)
        assert found == len(pages)


async def test_who_waits_at_the_wrong_worker_is_told_and_gone_when_he_goes() -> None:
    async with fleet() as made:
        vid, remote = made.of(2), made.remotes[1]
        await remote.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
        heads: list[int] = []

        async def wait() -> None:
            after = len(heads)
            heads.append((await remote.ask(WAIT, WaitRequest(vid.raw, after=after, timeout_seconds=60))).lsn)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await put(made.remotes[2], vid, 0)
        assert heads == [1]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await made.wait_at(2, 1)
            tasks.cancel_scope.cancel()
        await made.wait_at(2, 0)
        assert made.watched[2].told == 1


async def test_names_have_one_worker_and_any_tells_them() -> None:
    async with fleet() as made:
        vid = made.of(2)
        await made.remotes[2].ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
        await made.remotes[2].ask(CHANGE_NAME, NameRequest(op="bind", name="shop", target=vid.raw, client=ANN.raw))
        assert not made.nodes[2].logs.is_open(str(made.nodes[2].root.names_id))
        for remote in made.remotes.values():
            assert [entry.name for entry in (await remote.ask(LIST_NAMES, NamesRequest())).entries] == ["shop"]


async def test_forks_and_pins_are_the_parents_workers() -> None:
    async with fleet() as made:
        vid, child = made.of(2), made.of(1)
        await made.remotes[1].ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
        await put(made.remotes[1], vid, 0)
        await made.remotes[1].ask(FORK, ForkRequest(vid.raw, child=child.raw, lsn=1))
        for at, remote in made.remotes.items():
            assert (await remote.ask(SNAPSHOT, SnapshotRequest(child.raw))).log == "main-w2"
            assert await put(remote, child, at) == at + 1
        assert (
            await made.remotes[1].ask(PIN, PinRequest(vid.raw, pin=PinId.new().raw, lsn=1, seconds=60))
        ).vid == vid.raw


async def test_a_volume_that_moves_is_found_by_all() -> None:
    async with fleet(3) as made:
        vid = made.of(1)
        await made.remotes[1].ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
        base = 0
        for to in ("main-w2", "private", "main-w3", "main"):
            for remote in made.remotes.values():
                # Everyone knows it where it was.
                base = await put(remote, vid, base)
            assert await move_volume(made.remotes[2], vid, to) in {to, str(vid)}
            for remote in made.remotes.values():
                base = await put(remote, vid, base)
                assert (await remote.ask(SNAPSHOT, SnapshotRequest(vid.raw))).lsn == base


async def test_what_is_about_all_of_them_is_told_by_any() -> None:
    async with fleet() as made, httpx.AsyncClient(verify=False) as web:
        hello = [await remote.ask(HELLO, Done()) for remote in made.remotes.values()]
        assert hello[0] == hello[1]
        assert (hello[0].node, hello[0].log, hello[0].epoch) == ("main", "main", 1)
        assert [log.log for log in hello[0].logs] == ["main", "main-w2"]
        told = await made.remotes[1].ask(REQUESTS, Done())
        each = [node.counted.all.creates for node in made.nodes.values()]
        assert told.figures["creates"] == sum(each)
        assert sum(day.creates for day in told.days) == sum(each)
        logs = [await remote.ask(SHARED_LOGS, SharedLogsRequest()) for remote in made.remotes.values()]
        assert [[(log.log, log.epoch) for log in each.logs] for each in logs] == 2 * [[("main-w2", 1), ("main", 1)]]
        costs = [await remote.ask(STORE_COSTS, Done()) for remote in made.remotes.values()]
        assert costs[0] == costs[1], "one survey for all of them"
        assert costs[0].objects
        text = (await web.get(f"{made.urls[2]}/metrics")).text
        each = [node.counted.all.creates for node in made.nodes.values()]
        assert [figure(text, "budwood_store_creates_total", worker=worker) for worker in "12"] == each
        await made.stop(1)
        text = (await web.get(f"{made.urls[2]}/metrics")).text
        assert [figure(text, "budwood_worker_up", worker=worker) for worker in "12"] == [0, 1]
        assert [log.log for log in (await made.remotes[2].ask(HELLO, Done())).logs] == ["main-w2"]


async def test_what_is_read_at_any_of_them_is_told_together() -> None:
    async with fleet() as made:
        vid = made.of(2)
        await made.remotes[1].ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
        await made.remotes[1].commit(*commit_of(vid, 0, {1: bytes(PAGE)}, client=ANN, page_size=PAGE))
        for node, times in zip(made.nodes.values(), (2, 3), strict=True):
            for _ in range(times):
                async with node.read_pages(vid, 1, PageSet([1])):
                    await checkpoint()
        for remote in made.remotes.values():
            assert (await remote.ask(HEAT, VolumeRequest(vid.raw))).blocks == {0: 5.0}
        with pytest.raises(NotFound):
            await made.remotes[1].ask(HEAT, VolumeRequest(VolumeId.new().raw))


async def test_the_token_is_asked_for_by_whoever_is_called() -> None:
    async with fleet(token="s3cret") as made:
        vid = made.of(2)
        await made.remotes[1].ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
        stranger = HttpRemote(made.urls[1], token="guess")
        with pytest.raises(BudwoodError, match="token"):
            await stranger.ask(SNAPSHOT, SnapshotRequest(vid.raw))
        await stranger.aclose()


async def test_while_a_worker_is_gone_its_volumes_are_read_and_others_made_and_what_it_writes_waits() -> None:
    async with fleet() as made:
        vid, other = made.of(2), made.of(2)
        remote = made.remotes[1]
        await remote.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
        await put(remote, vid, 0)
        await made.stop(2)
        assert (await remote.ask(SNAPSHOT, SnapshotRequest(vid.raw))).lsn == 1
        await remote.ask(CREATE, CreateRequest(other.raw, page_size=PAGE))
        assert await put(remote, other, 0) == 1
        assert (await remote.ask(SNAPSHOT, SnapshotRequest(other.raw))).log == "main"
        async with anyio.create_task_group() as tasks:
            lsns: list[int] = []

            async def write() -> None:
                lsns.append(await put(remote, vid, 1))

            tasks.start_soon(write)
            while not made.watched[1].refused:
                await checkpoint()
            await made.start(2)
            while not lsns:
                await checkpoint()
            assert lsns == [2]
            # What was made meanwhile stays where it is, and is found there.
            assert await put(made.remotes[2], other, 1) == 2
            assert (await made.remotes[2].ask(SNAPSHOT, SnapshotRequest(other.raw))).log == "main"
            await made.stop(2)


async def test_what_is_not_there_is_refused_as_ever() -> None:
    async with fleet() as made:
        for worker in (1, 2):
            with pytest.raises(NotFound, match="there is no volume"):
                await made.remotes[1].ask(SNAPSHOT, SnapshotRequest(made.of(worker).raw))


async def test_another_nodes_log_is_read_by_one_of_them_and_taken_by_the_same() -> None:
    store = MemoryStore()
    async with serving(store, name="two") as two, fleet(3, store) as made:
        there = HttpRemote(two)
        vid = made.of(1)
        await there.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
        await put(there, vid, 0)
        for remote in made.remotes.values():
            assert (await remote.ask(SNAPSHOT, SnapshotRequest(vid.raw))).lsn == 1
            with pytest.raises(NotOwner) as refused:
                await put(remote, vid, 1)
            assert refused.value.owner == two
        taken = await made.remotes[3].ask(TAKE_LOG, LogName(log="two"))
        assert taken.log == "two"
        held = await made.remotes[1].ask(HELLO, Done())
        assert [log.log for log in held.logs] == ["main", "main-w2", "main-w3", "two"]
        for base, remote in enumerate(made.remotes.values(), 1):
            assert await put(remote, vid, base) == base + 1
        await there.aclose()


async def test_who_waits_is_told_when_the_node_stops() -> None:
    async with fleet() as made:
        vid = made.of(2)
        await made.remotes[1].ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
        told: list[str] = []

        async def wait() -> None:
            try:
                await made.remotes[1].ask(WAIT, WaitRequest(vid.raw, after=0, timeout_seconds=60))
            except Unavailable as error:
                told.append(str(error))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await made.wait_at(2, 1)
            for stop in made.stops.values():
                stop.set()
        assert len(told) == 1


async def test_the_logs_of_a_node_that_is_taken_out_fall_to_the_workers_by_their_names() -> None:
    """Whichever is asked; and their volumes are written there as any others."""
    store, volumes = MemoryStore(), dict[str, VolumeId]()
    for name in ("one", "two", "three", "four"):
        async with Node.open(store, name=name, address=f"http://{name}", probe_owner=assume_gone) as node:
            volumes[name] = VolumeId.new()
            await node.ask(CREATE, CreateRequest(volumes[name].raw, page_size=PAGE))
    async with Node.open(store, name="gone", address="http://gone", probe_owner=assume_gone) as node:
        for name in volumes:
            await node.logs.take_over(await node.logs.get(name), stays=True)
    of_worker = {name: Share("main", 1, 2).of_log(name) for name in (*volumes, "gone")}
    assert set(of_worker.values()) == {1, 2}
    async with fleet(store=store) as made:
        with pytest.raises(Unavailable, match="--force"):
            await made.remotes[2].ask(DECOMMISSION, DecommissionRequest(node="gone"))
        done = await made.remotes[2].ask(DECOMMISSION, DecommissionRequest(node="gone", force=True))
        assert (sorted(own.log for own in done.taken), done.left) == (sorted(of_worker), ())
        for number, node in made.nodes.items():
            held = {log for log, _ in node.logs.held()} & set(of_worker)
            assert held == {name for name, worker in of_worker.items() if worker == number}
        for remote in made.remotes.values():
            for vid in volumes.values():
                head = (await remote.ask(SNAPSHOT, SnapshotRequest(vid.raw))).lsn
                assert await put(remote, vid, head) == head + 1
        again = await made.remotes[1].ask(DECOMMISSION, DecommissionRequest(node="gone", force=True))
        assert (again.taken, again.left, again.time) == ((), (), done.time)
        with pytest.raises(BadInput, match="can't have its own logs"):
            await made.remotes[2].ask(DECOMMISSION, DecommissionRequest(node="main"))
        with pytest.raises(NotFound, match="no node named 'nobody'"):
            await made.remotes[2].ask(DECOMMISSION, DecommissionRequest(node="nobody"))


async def test_a_worker_that_is_started_again_leaves_its_log_to_the_node_that_has_it_by_now() -> None:
    """It serves all the same, sends those who write to that node, and has its log again once that one is gone."""
    async with fleet() as made:
        vid = made.of(2)
        await made.remotes[1].ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
        assert await put(made.remotes[1], vid, 0) == 1
        await made.stop(2)
        async with Node.open(made.store, name="two", address="http://two", probe_owner=assume_gone) as two:
            await two.logs.take_over(await two.logs.get("main-w2"), stays=True)
            made.lives.add("two")
            await made.start(2, again=True)
            for remote in made.remotes.values():
                assert await pages_at(remote, vid) == {1: b"\1" * PAGE}
                with pytest.raises(NotOwner) as elsewhere:
                    await put(remote, vid, 1)
                assert elsewhere.value.owner == "http://two"
                await remote.ask(CREATE, CreateRequest(made.of(2).raw, page_size=PAGE))
            hello = await made.remotes[1].ask(HELLO, Done())
            assert [own.log for own in hello.logs] == ["main"]
        made.lives.clear()
        assert await written_again(made.remotes[1], vid) == 2
