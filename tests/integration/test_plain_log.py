"""The log by itself: what is fetched, who may append, what is refused, and what is told of damage."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import anyio
import pytest

import budwood
from budwood.server.log.waiting import Batching
from budwood.server.node import Node
from budwood.server.plain.log import Log, Reader, opened_log, opened_reader
from budwood.testing.commits import commit_of
from budwood.testing.stores import MemoryStore, RiggedStore, Rule
from budwood.volume.calls import CREATE, CreateRequest
from budwood.volume.entry import entry_key, epoch_key, parse_entry, seal_entry
from budwood.volume.envelope import encode, head_length
from budwood.volume.errors import BadInput, Corrupt, NotFound, NotOwner, Unavailable, Unsupported
from budwood.volume.ids import ClientId, VolumeId
from budwood.volume.records import StreamRecords

from ..waits import LIMIT_SECONDS

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]

READ = """
import anyio, sys, budwood

async def main():
    async with budwood.log.open_reader(sys.argv[1], "events") as reader:
        async for record in reader.read("a"):
            print(record.position, record.data.decode())

anyio.run(main)
"""


async def data_of(reader: Reader, stream: str, **limits: int) -> list[bytes]:
    return [record.data async for record in reader.read(stream, **limits)]


async def filled(store: MemoryStore, appends: list[Mapping[str, list[bytes]]]) -> None:
    async with opened_log(store, "events") as log:
        for records in appends:
            await log.append(records)


async def test_of_a_stream_heads_and_its_own_records_are_fetched_and_nothing_of_others() -> None:
    """S4.2, S4.28."""
    inner = MemoryStore()
    others, own = {"busy": [b"x" * 50_000]}, {"quiet": [b"one", b"two"], "busy": [b"y" * 50_000]}
    await filled(inner, [own if at % 20 == 7 else others for at in range(60)])
    store = RiggedStore(inner)
    reader = await opened_reader(store, "events")
    heads = sum(head_length(data) for key, data in inner.objects.items() if "/entries/" in key)
    assert store.received_bytes("get", "logs/events/entries/*") < 2 * heads
    await reader.streams()
    store.forget()
    assert await data_of(reader, "quiet") == [b"one", b"two"] * 3
    received = [request.received_bytes for request in store.matching("get") if request.received_bytes]
    assert sorted(received) == [6, 6, 6, 32], "the tip's first bytes, and the records"
    store.forget()
    assert await data_of(reader, "quiet", after=8, most=2) == [b"two", b"one"]
    assert sum(request.received_bytes for request in store.matching("get")) == 32 + 3 + 3
    assert await data_of(reader, "no such stream") == []


async def test_whoever_opens_a_log_deposes_whoever_had_it_open() -> None:
    """S4.4."""
    store = MemoryStore()
    async with opened_log(store, "events") as first:
        assert await first.append({"a": [b"1"]}) == 1
        async with opened_log(store, "events") as second:
            for _ in range(2):
                with pytest.raises(NotOwner, match="log events was opened for appending by another since") as refused:
                    await first.append({"a": [b"lost"]})
                assert refused.value.log == "events"
            assert await second.append({"a": [b"2"]}) == 2
            assert await data_of(first, "a") == [b"1", b"2"], "the deposed one reads what counts"
        with pytest.raises(Unavailable, match="was closed here"):
            await second.append({"a": [b"3"]})


async def test_many_appends_share_an_entry_and_each_is_told_its_position() -> None:
    store, told = MemoryStore(), dict[int, int]()
    async with opened_log(store, "events", batching=Batching(alpha=2, window_seconds=0.0)) as log:

        async def one(at: int) -> None:
            told[at] = await log.append({"a": [b"%d" % at], "b": [b"%d" % at]})

        async with anyio.create_task_group() as tasks:
            for at in range(200):
                tasks.start_soon(one, at)
        read = {record.position: record.data async for record in log.read("b")}
    assert {told[at]: b"%d" % at for at in told} == read
    assert len(read) == 200
    assert sum("/entries/" in key for key in store.objects) < 20


async def test_positions_go_on_behind_an_entry_that_is_in_flight() -> None:
    inner, told = MemoryStore(), dict[str, int]()
    store, gate = RiggedStore(inner), anyio.Event()
    async with opened_log(store, "events", batching=Batching(alpha=2, window_seconds=0.0)) as log:
        held = store.add(Rule(op="create", key=entry_key("events", 2), gate=gate))

        async def one(name: str) -> None:
            told[name] = await log.append({name: [b"1", b"2"]})

        with anyio.fail_after(LIMIT_SECONDS):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(one, "a")
                await held.reached.wait()
                tasks.start_soon(one, "b")
                await anyio.wait_all_tasks_blocked()
                assert (entry_key("events", 3) in inner.objects, told) == (True, {})
                gate.set()
        assert told == {"a": 2, "b": 4}
        assert [record.position async for record in log.read("b")] == [3, 4]


async def test_an_append_whose_answer_is_lost_is_indeterminate_and_stands_once() -> None:
    inner = MemoryStore()
    store = RiggedStore(inner)
    async with opened_log(store, "events") as log:
        await log.append({"a": [b"1"]})
        store.add(Rule(op="create", key="*/entries/*", after=Unavailable("no answer", determinate=False)))
        await log.append({"a": [b"2"]})
        await log.append({"a": [b"3"]})
    assert await data_of(await opened_reader(inner, "events"), "a") == [b"1", b"2", b"3"]


@pytest.mark.parametrize("size", [1, 100_000])
async def test_a_damaged_record_is_told_and_no_other_is_the_worse(size: int) -> None:
    store = MemoryStore()
    await filled(store, [{"a": [b"1" * size], "b": [b"2" * size]}, {"a": [b"3"]}])
    key = entry_key("events", 2)
    data = store.objects[key]
    where = data.index(b"1" * size, head_length(data))
    store.objects[key] = data[:where] + b"x" + data[where + 1 :]
    reader = await opened_reader(store, "events")
    assert await data_of(reader, "b") == [b"2" * size]
    assert await data_of(reader, "a", after=1) == [b"3"]
    with pytest.raises(Corrupt, match="the record at position 1 is not the one that was appended") as told:
        await data_of(reader, "a")
    assert told.value.key == key
    del store.objects[key]
    with pytest.raises(Corrupt, match="put it back"):
        await data_of(reader, "b")


async def test_what_is_not_known_stops_its_stream_and_whoever_would_append() -> None:
    store = MemoryStore()
    await filled(store, [{"a": [b"1"], "b": [b"2"]}])
    key = entry_key("events", 2)
    entry = parse_entry(key, store.objects[key])
    body = store.objects[key][head_length(store.objects[key]) :]
    later = StreamRecords(records=(*entry.header.streams["a"].records, encode({"k": "plain-later"})))
    entry.header.streams["a"] = later
    store.objects[key] = seal_entry(entry.header, body)
    reader = await opened_reader(store, "events")
    assert await data_of(reader, "b") == [b"2"]
    assert await data_of(reader, "a", most=1) == [b"1"], "what came before"
    with pytest.raises(Unsupported, match="unknown kind 'plain-later': upgrade"):
        await data_of(reader, "a")
    with pytest.raises(Unsupported, match="plain-later"):
        async with opened_log(store, "events"):
            pass


async def test_a_log_of_volumes_is_refused() -> None:
    store, vid = MemoryStore(), VolumeId.new()
    async with Node.open(store, name="main") as node:
        await refused(store, "log main is a node's")
        await node.ask(CREATE, CreateRequest(vid.raw, page_size=512))
        await node.commit(*commit_of(vid, 0, {1: bytes(512)}, client=ClientId.new(), page_size=512))
        await refused(store, "log main holds volumes")
    del store.objects[epoch_key("main", 1)]
    await refused(store, "log main holds volumes")


async def refused(store: MemoryStore, words: str) -> None:
    """Whoever reads, and whoever would append; and nothing is written."""
    before = dict(store.objects)
    with pytest.raises(BadInput, match=words):
        await opened_reader(store, "main")
    with pytest.raises(BadInput, match=words):
        async with opened_log(store, "main"):
            pass
    assert store.objects == before


BAD: dict[str, tuple[Callable[[Log], object], str]] = {
    "nothing": (lambda log: log.append({}), "at least one record"),
    "a stream without any": (lambda log: log.append({"a": []}), "at least one record"),
    "text": (lambda log: log.append({"a": ["text"]}), "a record is bytes, and not str"),  # type: ignore[list-item]
    "a record too large": (lambda log: log.append({"a": [bytes((8 << 20) + 1)]}), "several calls"),
    "too many": (lambda log: log.append({"a": [b""] * 4097}), "at most 4,096 records"),
    "a stream's name": (lambda log: log.append({"": [b""]}), "can't name a stream"),
    "a control character": (lambda log: log.open_stream("a\n"), "can't name a stream"),
    "a long name": (lambda log: log.close_stream("ä" * 128), "can't name a stream"),
    "metadata": (lambda log: log.describe("a", bytes((64 << 10) + 1)), "at most 65,536 bytes"),
    "a position": (lambda log: data_of(log, "a", after=-1), "0 or more"),
}


@pytest.mark.parametrize("what", BAD)
async def test_bad_input_is_told_and_nothing_is_written(what: str) -> None:
    call, words = BAD[what]
    store = MemoryStore()
    async with opened_log(store, "events") as log:
        before = dict(store.objects)
        with pytest.raises(BadInput, match=words):
            await call(log)  # type: ignore[misc]
        assert store.objects == before


async def test_what_is_not_there_is_not_made_by_whoever_only_looks(tmp_path: Path) -> None:
    url = tmp_path.as_uri()
    with pytest.raises(NotFound, match="no Budwood store"):
        async with budwood.log.open_reader(url, "events"):
            pass
    async with budwood.log.open_log(url, "events") as log:
        await log.append({"a": [b"1"]})
    for opened in (budwood.log.open_reader(url, "other"), budwood.log.open_log(url, "other", create=False)):
        with pytest.raises(NotFound, match="there is no log 'other'"):
            async with opened:
                pass
    assert not (tmp_path / "logs/other").exists()
    with pytest.raises(BadInput, match="100 entries in flight"):
        async with budwood.log.open_log(url, "events", batching=budwood.log.Batching(alpha=100)):
            pass


async def test_another_process_reads_what_was_acknowledged_while_its_writer_goes_on(tmp_path: Path) -> None:
    """S4.3."""
    url = tmp_path.as_uri()
    async with budwood.log.open_log(url, "events") as log:
        for at in range(1, 4):
            assert await log.append({"a": [b"%d" % at]}) == at
            command = [sys.executable, "-P", "-c", READ, url]
            with anyio.fail_after(LIMIT_SECONDS):
                done = await anyio.run_process(command, stderr=subprocess.PIPE)
            assert done.stdout.decode().split("\n")[:-1] == [f"{each} {each}" for each in range(1, at + 1)]


async def test_an_error_of_the_callers_own_comes_out_as_it_is() -> None:
    with pytest.raises(ZeroDivisionError):
        async with opened_log(MemoryStore(), "events"):
            raise ZeroDivisionError
