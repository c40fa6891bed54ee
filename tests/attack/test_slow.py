"""Callers that send or read slowly, or not at all: they end, and nobody waits for them
(server/http/memory_budget.py)."""

from __future__ import annotations

import os
from contextlib import AsyncExitStack

import anyio
import anyio.lowlevel
import httpx
import msgspec
import pytest
from tests.exposed import figure
from tests.served import Raw, client, serving
from tests.waits import LIMIT_SECONDS, until

from budwood.remote.exchange import Timing
from budwood.remote.http import HttpRemote
from budwood.server.http import app, run_node
from budwood.server.http.memory_budget import MemoryBudget, Pace, Reservation
from budwood.server.pagestore.read import WINDOW_BYTES
from budwood.testing.commits import commit_of
from budwood.testing.stores import MemoryStore
from budwood.volume.calls import CREATE, MSGPACK, PARTS, SEGMENT, CreateRequest
from budwood.volume.errors import Unavailable
from budwood.volume.ids import ClientId, VolumeId
from budwood.volume.pageset import encode_pages, span
from budwood.volume.wire import CommitRequest, ReadRequest

pytestmark = pytest.mark.anyio

PAGE = 512
SCANS = app.SCANS_BYTES // WINDOW_BYTES
FOR_EVER = 100_000.0
PATIENT = Pace(head_seconds=FOR_EVER, idle_seconds=FOR_EVER, yield_seconds=FOR_EVER, room_seconds=FOR_EVER)


def large(vid: VolumeId, base: int = 0, size: int = 3 << 20) -> tuple[CommitRequest, bytes]:
    """A commit of so many bytes that don't compress."""
    pages = {index: os.urandom(PAGE) for index in range(1, size // PAGE)}
    return commit_of(vid, base, pages, client=ClientId.new(), page_size=PAGE)


async def written(remote: HttpRemote, vid: VolumeId) -> None:
    """A large write goes through."""
    request, segment = large(vid)
    location = await remote.write_pages(vid, segment)
    assert (await remote.commit(msgspec.structs.replace(request, locations=(location,)))).lsn == 1


async def test_a_head_that_does_not_end_is_given_up() -> None:
    async with serving(MemoryStore(), pace=Pace(head_seconds=0.5)) as address:
        for begun in (b"POST /v1/hello HTTP/1.1\r\nhost: local", b"GET /healthz HTTP/1.1\r\nx-a: b\r\n"):
            async with Raw(address) as raw:
                await raw.send(begun)
                with anyio.fail_after(LIMIT_SECONDS):
                    assert b" 200 " not in await raw.rest()


@pytest.mark.parametrize(("call", "content"), [("list_names", MSGPACK), ("commit", PARTS), ("write_pages", SEGMENT)])
async def test_a_body_that_stops_or_trickles_is_given_up(call: str, content: str) -> None:
    pace = Pace(idle_seconds=0.5, least_bytes=1000)
    async with serving(MemoryStore(), pace=pace) as address:
        for trickles in (False, True):
            answer = b""
            async with Raw(address) as raw, anyio.create_task_group() as tasks:
                await raw.head(call, 10_000_000, content)
                await raw.send(b"x" * 2000)

                async def trickle(raw: Raw = raw) -> None:
                    while True:
                        await raw.send(b"x")
                        await anyio.sleep(0.01)

                if trickles:
                    tasks.start_soon(trickle)
                with anyio.fail_after(LIMIT_SECONDS):
                    answer = await raw.receive()
                tasks.cancel_scope.cancel()
            assert answer.startswith(b"HTTP/1.1 503 ")
            assert b"retry-after: 1\r\n" in answer.lower()
            assert b"too slowly" in answer


async def test_a_node_that_stops_waits_for_no_body_for_ever_and_leaves_no_request_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What the server's threads had still under way met a loop that had ended, and an interpreter that was ending."""
    monkeypatch.setattr(run_node, "STOP_SECONDS", 0.2)
    async with AsyncExitStack() as stack:
        async with serving(MemoryStore(), pace=PATIENT) as address:
            raw = await stack.enter_async_context(Raw(address))
            await raw.send(b"POST /v1/list_names HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\n")
            await raw.send(b"content-type: application/msgpack\r\ncontent-length: 100\r\n\r\n")
            assert b" 100 " in await raw.receive(), "it reads the body"
        with anyio.fail_after(LIMIT_SECONDS):
            assert b" 200 " not in await raw.rest()


async def test_a_body_that_comes_steadily_may_take_longer_than_a_stretch() -> None:
    pace = Pace(idle_seconds=LIMIT_SECONDS, least_bytes=100)
    vid = VolumeId.new()
    async with serving(MemoryStore(), pace=pace) as address, client(address) as remote:
        await remote.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
        _, segment = large(vid, size=4 * PAGE)
        async with Raw(address) as raw:
            await raw.head("write_pages", len(segment), SEGMENT, f"?vid={vid}")
            for at in range(0, len(segment), 100):
                await raw.send(segment[at : at + 100])
            with anyio.fail_after(LIMIT_SECONDS):
                assert (await raw.receive()).startswith(b"HTTP/1.1 200 ")


async def test_uploads_that_trickle_keep_no_large_write_waiting() -> None:
    """Eight held the places of large writes, for two minutes."""
    vid = VolumeId.new()
    async with AsyncExitStack() as stack:
        address = await stack.enter_async_context(serving(MemoryStore(), pace=PATIENT))
        remote = await stack.enter_async_context(client(address))
        await remote.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
        for _ in range(app.WRITES + 4):
            raw = await stack.enter_async_context(Raw(address))
            await raw.head("write_pages", 60_000_000, SEGMENT, f"?vid={vid}")
            await raw.send(b"x")
        with anyio.fail_after(LIMIT_SECONDS):
            await written(remote, vid)


async def test_bodies_that_stop_take_no_more_than_their_room_and_give_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "BODIES_BYTES", 8 << 20)
    most: list[int] = []
    full = anyio.Event()
    take = Reservation.take

    async def noting(self: Reservation, amount_bytes: int) -> None:
        await take(self, amount_bytes)
        most.append(self.budget.held_bytes)
        if most[-1] >= (8 << 20) - 3_000_000:
            full.set()

    monkeypatch.setattr(Reservation, "take", noting)
    pace = Pace(idle_seconds=FOR_EVER, yield_seconds=0.2, room_seconds=FOR_EVER)
    vid = VolumeId.new()
    async with AsyncExitStack() as stack:
        address = await stack.enter_async_context(serving(MemoryStore(), pace=pace))
        remote = await stack.enter_async_context(client(address))
        await remote.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
        tasks = await stack.enter_async_context(anyio.create_task_group())

        async def stall() -> None:
            async with Raw(address) as raw:
                await raw.head("commit", 16_000_000, PARTS)
                await raw.send(bytes(3_000_000))
                await anyio.sleep_forever()

        for _ in range(20):
            tasks.start_soon(stall)
        with anyio.fail_after(LIMIT_SECONDS):
            await full.wait()
            await written(remote, vid)
        tasks.cancel_scope.cancel()
    # The oldest may always go on, so that bodies that have half arrived don't wait for each other.
    assert max(most) <= (8 << 20) + (17 << 20)


async def test_large_bodies_that_stand_still_keep_no_small_ones_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "BODIES_BYTES", 1 << 20)
    pace = Pace(idle_seconds=FOR_EVER, yield_seconds=FOR_EVER, room_seconds=FOR_EVER)
    vid = VolumeId.new()
    async with serving(MemoryStore(), pace=pace) as address, client(address) as remote, Raw(address) as raw:
        await remote.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
        await raw.head("commit", 16_000_000, PARTS)
        await raw.send(bytes(3 << 20))
        async with httpx.AsyncClient(base_url=address, verify=False) as web:

            async def held() -> bool:
                text = (await web.get("/metrics")).text
                return figure(text, "budwood_memory_held_bytes", room="bodies") > 1 << 20

            await until(held)
        with anyio.fail_after(LIMIT_SECONDS):
            made = commit_of(vid, 0, {1: b"a" * PAGE}, client=ClientId.new(), page_size=PAGE)
            assert (await remote.commit(*made)).lsn == 1


@pytest.mark.parametrize(
    ("room_seconds", "caller_seconds"), [(0.5, 5.0), (FOR_EVER, 3.0)], ids=["the node's patience", "the caller's"]
)
async def test_where_there_is_no_room_it_is_said_in_one_line(
    monkeypatch: pytest.MonkeyPatch, room_seconds: float, caller_seconds: float
) -> None:
    monkeypatch.setattr(app, "BODIES_BYTES", 1 << 20)
    pace = Pace(idle_seconds=FOR_EVER, yield_seconds=FOR_EVER, room_seconds=room_seconds)
    vid = VolumeId.new()
    async with AsyncExitStack() as stack:
        address = await stack.enter_async_context(serving(MemoryStore(), pace=pace))
        remote = HttpRemote(address, timing=Timing(read_seconds=caller_seconds))
        stack.push_async_callback(remote.aclose)
        raw = await stack.enter_async_context(Raw(address))
        await remote.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
        await raw.head("commit", 16_000_000, PARTS)
        await raw.send(bytes(3 << 20))
        request, segment = large(vid, size=1 << 20)
        with anyio.fail_after(LIMIT_SECONDS):
            while True:
                try:
                    await remote.commit(request, segment)
                except Unavailable as error:
                    told = error
                    # A machine that is busy elsewhere may keep the client waiting for too long first.
                    if "no answer" not in str(error):
                        break
                await anyio.sleep(0.05)
        assert "others hold all of" in str(told)
        assert "\n" not in str(told)
        assert told.determinate


async def test_readers_who_do_not_read_keep_no_scan_waiting() -> None:
    """Thirty-two of them blocked every scan, and held half a gigabyte."""
    vid, store = VolumeId.new(), MemoryStore()
    pace = Pace(idle_seconds=FOR_EVER, yield_seconds=0.2, room_seconds=FOR_EVER)
    pages = span(1, 60_000)
    async with AsyncExitStack() as stack:
        address = await stack.enter_async_context(serving(store, pace=pace))
        remote = await stack.enter_async_context(client(address))
        await remote.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
        for base in range(3):
            some = {index: os.urandom(PAGE) for index in range(base * 20_000 + 1, base * 20_000 + 20_001)}
            request, segment = commit_of(vid, base, some, client=ClientId.new(), page_size=PAGE, length=60_000 * PAGE)
            location = await remote.write_pages(vid, segment)
            await remote.commit(msgspec.structs.replace(request, locations=(location,)))
        body = msgspec.msgpack.encode(ReadRequest(vid=vid.raw, lsn=3, pages=encode_pages(pages)))
        for _ in range(SCANS + 4):
            raw = await stack.enter_async_context(Raw(address))
            await raw.head("read_pages", len(body))
            await raw.send(body)
        with anyio.fail_after(LIMIT_SECONDS):
            held = 0
            async with remote.read_pages(vid, 3, pages) as answer:
                async for frame in answer.frames():
                    held += len(frame.valid)
        assert held == 60_000


async def test_a_room_is_given_to_those_who_come_first_and_taken_from_who_idles() -> None:
    room = MemoryBudget(100, Pace(yield_seconds=0.05, room_seconds=60))
    ended: list[str] = []
    order: list[str] = []

    async def idle(name: str, started: anyio.Event) -> None:
        async with room.hold(60) as holder:
            started.set()
            try:
                with holder.idling(FOR_EVER, name):
                    await anyio.sleep_forever()
            except Unavailable as error:
                ended.append(str(error))

    async def come(name: str, amount: int) -> None:
        async with room.hold(amount):
            order.append(name)

    with anyio.fail_after(LIMIT_SECONDS):
        async with anyio.create_task_group() as tasks:
            started = anyio.Event()
            tasks.start_soon(idle, "one", started)
            await started.wait()
            tasks.start_soon(come, "large", 90)
            await anyio.lowlevel.checkpoint()
            tasks.start_soon(come, "small", 10)
        assert order == ["large", "small"]
        assert ended == ["one too slowly: try again, over a better line"]
        assert room.held_bytes == 0


async def test_a_reader_below_the_least_pace_is_ended_though_nobody_waits() -> None:
    room = MemoryBudget(100, Pace())
    async with room.hold(10) as holder:
        with anyio.fail_after(LIMIT_SECONDS), pytest.raises(Unavailable), holder.idling(0.01, "it was read"):
            await anyio.sleep_forever()
        with holder.idling(FOR_EVER, "it was read"):
            await anyio.lowlevel.checkpoint()
