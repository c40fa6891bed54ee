"""Nothing holds a node's event loop: under every call at its limits, no step of the loop takes more than 50 ms.

What a step takes is told by the clock of the loop's thread alone, which stands still while other processes, or other
threads of this one, have the processor. So it says the same on a machine that is busy. On one that is slow a piece of
Python whose length is known tells how slow, beside the step itself. The calls go through the node's own HTTP
application, without a network; only what they answer is not read here.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable
from contextlib import contextmanager
from functools import partial
from typing import Any

import msgspec
import pytest
from anyio.to_thread import run_sync

from budwood.server.http.app import make_app
from budwood.server.metastore.content import Written
from budwood.server.metastore.entry_draft import MOST_RECORDS
from budwood.server.metastore.namespace_state import Namespace
from budwood.server.metastore.streams import Placed
from budwood.server.node import Node
from budwood.testing.commits import commit_of
from budwood.testing.stores import MemoryStore
from budwood.volume.calls import (
    CHANGE_NAME,
    COMMIT,
    CREATE,
    LIST_NAMES,
    MSGPACK,
    PARTS,
    PIN,
    READ_PAGES,
    SEGMENT,
    WRITE_PAGES,
    CreateRequest,
    NamesRequest,
    PinRequest,
)
from budwood.volume.entry import entry_key, parse_entry, seal_entry
from budwood.volume.fragments import fragment_key
from budwood.volume.ids import ClientId, PinId, SegmentId, VolumeId
from budwood.volume.limits import MOST_LOCATIONS
from budwood.volume.pageset import PageSet, encode_pages, span
from budwood.volume.records import Commit, Location, NameChange, Touched, encode_records
from budwood.volume.setsum import item_hash
from budwood.volume.wire import NameRequest, pack_part

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]

MOST_SECONDS = 0.05
MOVE_SECONDS = 0.3
"""On a machine that makes `MADE` small objects within `MAKING_SECONDS`."""
MADE, MAKING_SECONDS = 20_000, 0.004
TRIES = 5
NAMES = 50_000
COMMITS, LONG = 2_000, 30_000
PAGES = 100_000
PAGE = 512
ANN = ClientId.new()
ATTRIBUTES: dict[str, Any] = {"mode": 0o100644, "uid": 1000, "gid": 1000, "mtime_ns": 1 << 60, "size": 4096}

Step = tuple[float, str]
"""Seconds, and what ran."""


@contextmanager
def longest_step() -> Generator[list[Step]]:
    """The one step that took the longest, of those that the loop has run meanwhile."""
    longest: list[Step] = [(0.0, "")]
    run: Callable[[Any], None] = asyncio.Handle._run  # pyright: ignore

    def timed(handle: Any) -> None:
        begun = time.thread_time()
        try:
            run(handle)
        finally:
            took = time.thread_time() - begun
            if took > longest[0][0]:
                longest[0] = (took, repr(handle))

    patch = pytest.MonkeyPatch()
    patch.setattr(asyncio.Handle, "_run", timed)
    try:
        yield longest
    finally:
        patch.undo()


class Served:
    """A node behind its HTTP application, in this loop."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self._app = make_app(node)

    async def ask(self, call: str, body: bytes, content: str = MSGPACK, query: str = "") -> int:
        """The status. The answer goes nowhere."""
        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": "POST",
            "path": f"/v1/{call}",
            "raw_path": f"/v1/{call}".encode(),
            "query_string": query.encode(),
            "root_path": "",
            "scheme": "http",
            "server": ("127.0.0.1", 1),
            "client": ("127.0.0.1", 2),
            "headers": [
                (b"content-type", content.encode()),
                (b"content-length", str(len(body)).encode()),
                (b"host", b"127.0.0.1"),
            ],
        }
        status = 0

        async def receive() -> dict[str, Any]:
            await asyncio.sleep(0)
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Any) -> None:
            nonlocal status
            status = message.get("status", status)
            await asyncio.sleep(0)

        await self._app(scope, receive, send)
        return status

    async def names(self) -> Namespace:
        return await self.node._naming.get()  # pyright: ignore[reportPrivateUsage]


def set_aside() -> None:
    """A full collection of garbage looks at the whole heap: here at what a node made, not at what is a test's."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _nothing_of_other_tests() -> Generator[None]:
    set_aside()
    yield
    gc.unfreeze()


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    async with Node.open(MemoryStore(), name="main") as node:
        yield Served(node)


def slowness() -> float:
    """How many times as long as it should anything takes just now; 1 on a machine that is quick."""
    begun = time.thread_time()
    made = {number: (number, str(number)) for number in range(MADE)}
    took = time.thread_time() - begun
    assert len(made) == MADE
    return max(1.0, took / MAKING_SECONDS)


async def held(call: Callable[[int], Awaitable[int]], status: int = 200) -> None:
    """Asks up to `TRIES` times, each told its number: beside busy neighbours the same work takes more of a processor's
    time, since its caches are theirs, but hardly each time."""
    taken: list[Step] = []
    while not taken or (min(taken)[0] > MOST_SECONDS and len(taken) < TRIES):
        gc.collect()  # A node of the try before, say.
        before = slowness()
        with longest_step() as longest:
            assert await call(len(taken)) == status
        seconds, what = longest[0]
        taken.append((seconds / max(before, slowness()), what))
    took, what = min(taken)
    assert took <= MOST_SECONDS, f"{took * 1000:.0f} ms: {what}"


def encoded(**message: Any) -> bytes:
    return msgspec.msgpack.encode(message)


def bindings(names: str, bound: Iterable[str], attributes: dict[str, Any]) -> Iterable[NameChange]:
    for lsn, name in enumerate(bound, 1):
        yield NameChange(
            vid=VolumeId.parse(names).raw,
            lsn=lsn,
            op="bind",
            touched=(Touched(name=name, revision=0),),
            target=VolumeId.new().raw,
            attributes=attributes,
            token=bytes(32),
            time=(1 << 42) + lsn,
        )


def bind_all(names: Namespace, bound: Iterable[str], attributes: dict[str, Any]) -> None:
    """As if their log had been read."""
    for record in bindings(names.id, bound, attributes):
        names.take(Placed(record, "", 0, 0))


async def test_names_at_their_limits_hold_nothing(served: Served) -> None:
    bound = (f"d/{at % 100}/file-{at}" for at in range(1, NAMES + 1))
    # Whoever has them keeps them open: no log has what they were told here.
    names = await served.names()
    await run_sync(bind_all, names, bound, ATTRIBUTES)
    await held(lambda _: served.ask("list_names", encoded(limit=10_000)))
    await held(lambda _: served.ask("pull_names", encoded()))
    places, took = ["d", "another directory", "d", "a third", "d", "a fourth"], list[float]()

    async def move(number: int) -> int:
        before, begun = slowness(), time.process_time()
        body = encoded(op="move", name=places[number], new=places[number + 1])
        status = await served.ask("change_name", body)
        seconds = time.process_time() - begun
        took.append(seconds / max(before, slowness()))
        return status

    await held(move)
    while min(took) > MOVE_SECONDS and len(took) < TRIES:
        assert await move(len(took)) == 200
    assert min(took) <= MOVE_SECONDS
    assert len(names.state.names) == NAMES
    assert await served.names() is names
    await held(lambda _: served.ask("pull_names", encoded(since=NAMES)))
    values = {str(number): "x" * 50 for number in range(255)}
    binds = [encoded(op="bind", name=f"n{at}", target=VolumeId.new().raw, attributes=values) for at in range(TRIES)]
    await held(lambda number: served.ask("change_name", binds[number]))


async def test_opening_the_log_of_many_names_holds_nothing() -> None:
    """Of entries with a name each, as most are, and of one with as many as an entry may have."""
    store = MemoryStore()
    async with Node.open(store, name="main") as node:
        names = (await node._naming.get()).id  # pyright: ignore[reportPrivateUsage]
        log = await node.logs.get(names)
        if not log.reader.chain.next:
            await node.ask(CHANGE_NAME, NameRequest(op="bind", name="first", target=VolumeId.new().raw))
        chain = log.reader.chain
    records = list(bindings(names, (f"d/{at % 100}/file-{at}" for at in range(NAMES)), ATTRIBUTES))[1:]
    parts = [records[:MOST_RECORDS], *([record] for record in records[MOST_RECORDS:])]

    def build() -> None:
        nonlocal chain
        for part in parts:
            header = chain.header(epoch=0, writer=b"w" * 16, kind="data", streams={names: encode_records(part)})
            key, data = entry_key(names, header.i), seal_entry(header)
            chain = chain.past(parse_entry(key, data))
            store.objects[key] = data

    await run_sync(build)
    set_aside()

    async def open_anew(_: int) -> int:
        async with Node.open(store) as node:
            return len((await node.ask(LIST_NAMES, NamesRequest(limit=10))).entries)

    await held(open_anew, 10)


async def test_large_attributes_hold_nothing(served: Served) -> None:
    attributes = {str(number): "x" * 60 for number in range(250)}
    bind_all(await served.names(), (f"file-{at}" for at in range(1, 600)), attributes)
    await held(lambda _: served.ask("list_names", encoded(limit=10_000)))


async def test_pins_and_commits_by_the_thousand_hold_nothing(served: Served) -> None:
    vid = VolumeId.new()
    await served.node.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
    for lsn in range(1, 1_001):
        request, segment = commit_of(vid, lsn - 1, {1: bytes([lsn % 256]) * PAGE}, client=ANN, page_size=PAGE)
        await served.node.commit(request, segment)
    for lsn in range(1, 1_001):
        await served.node.ask(PIN, PinRequest(vid.raw, pin=PinId.new().raw, lsn=lsn, seconds=60))
    await held(lambda _: served.ask("pins", encoded(vid=vid.raw)))
    await held(lambda _: served.ask("pull_commits", encoded(vid=vid.raw)))
    await held(lambda _: served.ask("pull_changes", encoded(vid=vid.raw)))


async def test_a_commit_of_most_locations_holds_nothing(served: Served) -> None:
    """None of them is there, which is found out once it was read."""
    vid = VolumeId.new()
    await served.node.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
    locations = tuple(
        Location(object=f"logs/main/t/{1:016x}/{number:022}", size=4096, slot=0, order=number)
        for number in range(MOST_LOCATIONS)
    )
    request, _ = commit_of(vid, 0, {1: bytes(PAGE)}, client=ANN, page_size=PAGE, locations=locations)
    body = msgspec.msgpack.encode(request)
    await held(lambda _: served.ask(COMMIT.name, body), 409)


async def test_a_commit_of_most_locations_that_are_there_holds_nothing(served: Served) -> None:
    """Each a fragment of one page."""
    vid, bodies = VolumeId.new(), list[bytes]()
    await served.node.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
    content = dict.fromkeys(range(1, MOST_LOCATIONS + 1), bytes(PAGE))
    ingest = served.node._ingest  # pyright: ignore[reportPrivateUsage]
    locations = list[Location]()
    for page in content:
        key, hashed = fragment_key("main", 1, str(SegmentId.new())), item_hash(page, bytes(PAGE))
        part = Written(key, vid, 4096, bytes(32), PageSet((page,)), (page,), hashed)
        ingest._written.put(part.key, part)  # pyright: ignore[reportPrivateUsage]
        locations.append(Location(object=key, size=4096, slot=0, pages=encode_pages(part.pages)))
    for base in range(TRIES):
        request, _ = commit_of(vid, base, content, client=ANN, page_size=PAGE, locations=tuple(locations))
        bodies.append(msgspec.msgpack.encode(request))
    await held(lambda number: served.ask(COMMIT.name, bodies[number]))


async def test_pages_by_the_hundred_thousand_hold_nothing(served: Served) -> None:
    """In one segment, in a commit, read and looked for."""
    vid = VolumeId.new()
    await served.node.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
    content = dict.fromkeys(range(1, PAGES + 1), b"x" * PAGE)
    request, segment = await run_sync(partial(commit_of, vid, 0, content, client=ANN, page_size=PAGE))
    await held(lambda _: served.ask(WRITE_PAGES.name, segment, SEGMENT, f"vid={vid}"))
    body = pack_part(request, segment)
    await held(lambda _: served.ask(COMMIT.name, body, PARTS))
    await read(served, vid, PAGES)


async def test_pages_of_many_commits_hold_nothing(served: Served) -> None:
    """Each of them in a commit of its own."""
    vid = VolumeId.new()
    await served.node.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
    volume = await served.node.volumes.get(vid)
    request, _ = commit_of(vid, 0, {1: bytes(PAGE)}, client=ANN, page_size=PAGE)
    for page in range(1, LONG + 1):
        record = Commit(
            vid=vid.raw, lsn=page, base=page - 1, length=page * PAGE, floor=(page - 1) * PAGE, client=ANN.raw,
            pages=encode_pages(PageSet((page,))), locations=(Location(object="", slot=0),), token=bytes(32),
            nonce=b"", content=request.content, setsum=request.setsum, time=(1 << 42) + page,
        )  # fmt: skip
        volume.take(Placed(record, "an entry", 1000, page))
    wanted = encode_pages(span(1, LONG))
    await held(lambda _: served.ask("locate", encoded(vid=vid.raw, lsn=0, pages=wanted)))


async def test_pages_of_some_commits_are_read_and_measured_and_hold_nothing(served: Served) -> None:
    vid = VolumeId.new()
    await served.node.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
    for page in range(1, COMMITS + 1):
        request, segment = commit_of(
            vid, page - 1, {page: b"x" * PAGE}, client=ANN, page_size=PAGE, floor=(page - 1) * PAGE
        )
        await served.node.commit(request, segment)
    await read(served, vid, COMMITS)


async def read(served: Served, vid: VolumeId, count: int) -> None:
    """All pages, and where they lie."""
    wanted = encode_pages(span(1, count))
    await held(lambda _: served.ask(READ_PAGES.name, encoded(vid=vid.raw, lsn=0, pages=wanted)))
    await held(lambda _: served.ask("locate", encoded(vid=vid.raw, lsn=0, pages=wanted)))
    await held(lambda _: served.ask("locate", encoded(vid=vid.raw, lsn=0, pages=wanted, measure=True)))
