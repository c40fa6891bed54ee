"""A reader that was written from docs/formats.md alone reads what stands in a store and a home, to the byte."""

from __future__ import annotations

import random
from collections.abc import Mapping
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
import xxhash

from budwood.server.node import Node
from budwood.server.store.directory_store import FileStore
from budwood.testing.commits import pages_at
from budwood.testing.stores import MemoryStore
from budwood.volume.calls import LIST_NAMES, SNAPSHOT, NamesRequest, SnapshotRequest
from budwood.volume.envelope import seal
from budwood.volume.errors import BudwoodError, Forgotten
from budwood.volume.ids import VolumeId

from ..estate import Estate, build_home, build_store
from ..reread import check_home, copy_of, reread
from ..second_reader import Damaged, Store, TooNew, directory
from ..second_reader.envelopes import unseal

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def objects() -> dict[str, bytes]:
    memory = MemoryStore()
    anyio.run(build_store, memory)
    return memory.objects


async def test_every_volume_reads_the_same_at_every_lsn() -> None:
    store = MemoryStore()
    estate = await build_store(store)
    second = await reread(store.objects)
    assert set(second.volumes) == {vid.raw for vid in estate.history}
    for vid, history in estate.history.items():
        for lsn, pages in enumerate(history):
            if lsn:
                expected = {page: data for page, data in pages.items() if any(data)}
                assert second.volume(vid.raw).pages_at(lsn) == expected
    assert {name: bound.target for name, bound in second.names().items()} == {
        name: vid.raw for name, vid in estate.names.items()
    }


def test_a_home_reads_as_its_programs_saw_it(tmp_path: Path) -> None:
    async def build() -> Estate:
        store = await FileStore.open(str(tmp_path / "store"))
        try:
            return await build_store(store)
        finally:
            await store.aclose()

    estate = anyio.run(build)
    seen = build_home(tmp_path / "home", f"file://{tmp_path}/store", estate)
    home = check_home(tmp_path / "home", Store(directory(tmp_path / "store")), seen)
    assert set(home.names()) >= {"empty", "empty/link", *seen}


def dumped(store: Store) -> object:
    """All that a store says."""
    store.check()
    volumes = [store.volume(vid) for vid in store.volumes]
    pages = {volume.vid: {lsn: volume.pages_at(lsn) for lsn in store.readable(volume.vid)} for volume in volumes}
    return pages, store.names(), [store.pins(volume.vid) for volume in volumes]


async def told(objects: Mapping[str, bytes], volumes: list[bytes]) -> object:
    """The same by a node, but for the pins, of which it asks what it needs."""
    async with Node.open(await copy_of(objects), create=False, now_ms=lambda: 0) as node:
        pages: dict[bytes, dict[int, dict[int, bytes]]] = {}
        for vid in volumes:
            newest = await node.ask(SNAPSHOT, SnapshotRequest(vid))
            pages[vid] = {}
            for lsn in range(newest.parent_lsn + 1, newest.upper):
                with suppress(Forgotten):
                    pages[vid][lsn] = await pages_at(node, VolumeId(vid), lsn)
        return pages, (await node.ask(LIST_NAMES, NamesRequest(limit=10_000))).entries


async def test_a_byte_that_is_another_is_refused_or_says_the_same() -> None:
    memory = MemoryStore()
    await build_store(memory)
    volumes = Store(memory.objects).volumes
    expected, ours = dumped(Store(memory.objects)), await told(memory.objects, volumes)
    drawn, refused = random.Random(9), 0
    for key in sorted(memory.objects):
        data = bytearray(memory.objects[key])
        data[drawn.randrange(len(data))] ^= 1 << drawn.randrange(8)
        damaged = {**memory.objects, key: bytes(data)}
        try:
            assert dumped(Store(damaged)) == expected, key
        except (Damaged, TooNew):
            refused += 1
        with suppress(BudwoodError):
            assert await told(damaged, volumes) == ours, key
    assert refused > len(memory.objects) * 2 // 3


def resealed(objects: Mapping[str, bytes], key: str, *, version: int = 2, features: int = 0, **fields: Any) -> bytes:
    """The object with other fields, and a checksum that fits."""
    data = objects[key]
    head = 32 + int.from_bytes(data[16:20], "little")
    header = msgspec.msgpack.encode(msgspec.msgpack.decode(data[32:head]) | fields)
    sealed = seal(data[:4], header, data[head:], features=features)
    if version != 2:
        sealed = sealed[:4] + version.to_bytes(2, "little") + sealed[6:]
        checksum = xxhash.xxh3_64_intdigest(sealed[:24] + sealed[32 : len(sealed) - len(data[head:])])
        sealed = sealed[:24] + checksum.to_bytes(8, "little") + sealed[32:]
    return sealed


REFUSED: dict[str, tuple[str, dict[str, Any], type[Exception]]] = {
    "a format of before": ("logs/main/entries/*f0", {"version": 1}, TooNew),
    "a newer format": ("logs/main/entries/*f0", {"version": 3}, TooNew),
    "an unknown feature": ("volumes/*/birth", {"features": 4}, TooNew),
    "creates that go through something else": ("root", {"cas": "two-phase"}, TooNew),
    "an unknown kind of entry": ("logs/main/entries/*f0", {"kind": "rollup"}, TooNew),
    "a fence where none belongs": ("logs/main/entries/*f0", {"kind": "fence"}, Damaged),
    "a field without its bit": ("logs/main/entries/*f0", {"garbage": ["gc/1"]}, Damaged),
    "an entry of another slot": ("logs/main/entries/*f0", {"i": 99}, Damaged),
    "an entry that follows another": ("logs/main/entries/*f0", {"previous_digest": bytes(32)}, Damaged),
    "a sum that is none": ("logs/main/entries/*f0", {"total": b"\xff" * 32}, Damaged),
    "a page size that is none": ("volumes/*/birth", {"page_size": 1000}, Damaged),
    "the birth of another volume": ("volumes/*/birth", {"vid": bytes(16)}, Damaged),
    "another revision of a pin": ("volumes/*/pins/*", {"rev": 7}, Damaged),
    "a state that no pin has": ("volumes/*/pins/*", {"state": "lost"}, Damaged),
    "another's epoch": ("logs/main/epochs/*1", {"writer": bytes(16)}, Damaged),
}


@pytest.mark.parametrize("what", sorted(REFUSED))
def test_what_the_document_says_is_refused_is_refused(what: str, objects: dict[str, bytes]) -> None:
    pattern, changes, error = REFUSED[what]
    key = next(key for key in sorted(objects) if fnmatchcase(key, pattern))
    with pytest.raises(error):
        dumped(Store({**objects, key: resealed(objects, key, **changes)}))


async def test_an_entry_that_is_missing_is_a_gap_only_if_nobody_had_acknowledged_it() -> None:
    memory = MemoryStore()
    estate = await build_store(memory)
    keys = sorted(key for key in memory.objects if key.startswith("logs/main/entries/"))
    with pytest.raises(Damaged, match="acknowledged"):
        dumped(Store({key: data for key, data in memory.objects.items() if key != keys[1]}))
    short = Store({key: data for key, data in memory.objects.items() if key != keys[0]})
    short.check()
    (large,) = [vid for vid, history in estate.history.items() if any(90 in pages for pages in history)]
    assert short.volume(large.raw).head == len(estate.history[large]) - 2


async def test_a_record_of_an_unknown_kind_stops_its_own_volume() -> None:
    memory = MemoryStore()
    estate = await build_store(memory)
    last, *_ = sorted(key for key in memory.objects if key.startswith("logs/main/entries/"))
    (large,) = [vid for vid, history in estate.history.items() if any(90 in pages for pages in history)]
    streams = {str(large): {"records": [msgspec.msgpack.encode({"k": "later", "vid": large.raw})]}}
    before = unseal(last, b"BWLE", memory.objects[last]).fields
    entry = resealed(memory.objects, last, streams=streams, total=before.data("prev_sum"), body_digest=b"")
    end = 32 + int.from_bytes(entry[16:20], "little")
    header = entry[32:end]
    second = Store({**memory.objects, last: seal(b"BWLE", header)})
    for vid in second.volumes:
        if vid == large.raw:
            with pytest.raises(TooNew, match="later"):
                second.volume(vid)
        else:
            assert second.volume(vid).head == len(estate.history[VolumeId(vid)]) - 1
