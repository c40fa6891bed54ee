"""What is fetched of a log to open and follow it: heads, and no pages."""

from __future__ import annotations

import os

import pytest

from budwood.server.log.chain import Chain
from budwood.server.log.reader import FIRST_HEAD_BYTES, LogReader
from budwood.server.node import Node
from budwood.testing.commits import commit_of, pages_at
from budwood.testing.stores import MemoryStore, RiggedStore
from budwood.volume.calls import CREATE, SNAPSHOT, CreateRequest, SnapshotRequest
from budwood.volume.entry import entry_key, parse_entry, seal_entry
from budwood.volume.envelope import head_length
from budwood.volume.ids import ClientId, VolumeId
from budwood.volume.records import StreamRecords

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]

PAGE = 4096


async def test_a_log_is_opened_and_followed_without_its_pages() -> None:
    inner = MemoryStore()
    store, vid, client = RiggedStore(inner), VolumeId.new(), ClientId.new()
    async with Node.open(inner) as writer, Node.open(store) as reader:

        async def put(base: int) -> None:
            page = {1: os.urandom(PAGE)}
            await writer.commit(*commit_of(vid, base, page, client=client, page_size=PAGE))

        await writer.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
        for base in range(100):
            await put(base)
        store.forget()
        assert (await reader.ask(SNAPSHOT, SnapshotRequest(vid.raw))).lsn == 100
        heads = [head_length(data) for key, data in inner.objects.items() if key.startswith(f"logs/{vid}/entries/")]
        assert len(heads) == 101
        assert store.received_bytes("get", f"logs/{vid}/*") < 1.3 * sum(heads)
        gets = store.count("get", f"logs/{vid}/*")
        assert gets < 101 + 16 + 2, "one for each entry, and a look behind the last"
        for base in range(100, 110):
            await put(base)
            store.forget()
            assert (await reader.ask(SNAPSHOT, SnapshotRequest(vid.raw))).lsn == base + 1
            assert store.received_bytes() < PAGE
        assert len(await pages_at(reader, vid)) == 1


async def test_a_head_longer_than_those_before_costs_a_second_request_and_those_behind_it_do_not() -> None:
    inner, chain = MemoryStore(), Chain(log="main")
    store = RiggedStore(inner)
    reader = LogReader(store, "main", lambda _: None)
    for slot, size in enumerate((0, 0, 9000, 9000, 0, 200_000, 0)):
        kind = "anchor" if slot == 0 else "data"
        streams = {"a volume": StreamRecords(records=(bytes(size),))} if size else {}
        data = seal_entry(chain.header(epoch=0, writer=b"w", kind=kind, streams=streams), os.urandom(50_000))
        entry = parse_entry(entry_key("main", slot), data)
        chain = chain.past(entry)
        assert entry.size == len(data)
        await inner.create(entry.key, data)
        if slot == 1:
            await reader.open()
            assert {request.received_bytes for request in store.matching("get") if request.received_bytes} == {
                FIRST_HEAD_BYTES
            }
        elif slot > 1:
            store.forget()
            await reader.refresh(glance=True)
            gets = [request.received_bytes for request in store.matching("get", entry.key)]
            assert len(gets) == (2 if slot in {2, 5} else 1)
            assert sum(gets) >= head_length(data)
            assert len(gets) == 1 or sum(gets) == head_length(data)
    assert reader.chain == chain
