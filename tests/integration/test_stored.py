"""A store and a home that were written when their formats were settled read as they did then, by Budwood and by the
second reader (tests/stored/), and can be written."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from budwood.server.node import Node
from budwood.server.store.directory_store import FileStore
from budwood.sync.edge import open as open_edge
from budwood.sync.volume import Volume
from budwood.testing.commits import pages_at
from budwood.volume.calls import LIST_NAMES, SNAPSHOT, NamesRequest, SnapshotRequest
from budwood.volume.errors import Forgotten, NotFound
from budwood.volume.ids import VolumeId
from budwood.volume.pageset import page_count
from budwood.volume.protocols import Durability

from ..second_reader import Damaged, Home, Store, TooNew, base58, directory
from ..second_reader.home import TABLES
from ..stored import Held, digest_of, unpack


@pytest.fixture
def held(tmp_path: Path) -> Held:
    return unpack(tmp_path)


def test_the_second_reader_reads_them(tmp_path: Path, held: Held) -> None:
    store = Store(directory(tmp_path / "store"))
    store.check()
    for vid, digests in held.volumes.items():
        volume = store.volume(VolumeId.parse(vid).raw)
        assert [digest_of(volume.pages_at(lsn)) for lsn in range(1, volume.head + 1)] == digests[1:]
    assert {name: base58(bound.target) for name, bound in store.names().items()} == held.names
    home = Home(tmp_path / "home")
    home.check()
    named = home.volumes()
    assert {name: digest_of(home.volume(named[name]).pages(store)) for name in held.home} == held.home


def test_a_bit_of_a_home_s_row_that_is_another_is_told_or_says_the_same(tmp_path: Path, held: Held) -> None:
    """By the second reader; that an edge tells it: tests/fault/test_damaged_home.py."""
    store, home, drawn = Store(directory(tmp_path / "store")), Home(tmp_path / "home"), random.Random(7)
    rows, told = [(table, key) for table in TABLES for key in home.raw(table)], 0
    for table, key in rows:
        good = home.raw(table)[key]
        bad = bytearray(good)
        bad[drawn.randrange(len(bad))] ^= 1 << drawn.randrange(8)
        home.raw(table)[key] = bytes(bad)
        try:
            home.check()
            named = home.volumes()
            assert {name: digest_of(home.volume(named[name]).pages(store)) for name in held.home} == held.home
        except (Damaged, TooNew):
            told += 1
        home.raw(table)[key] = good
    assert told > len(rows) * 2 // 3


@pytest.mark.anyio
async def test_a_node_reads_them(tmp_path: Path, held: Held) -> None:
    store, read = await FileStore.open(str(tmp_path / "store"), create=False), 0
    try:
        async with Node.open(store, create=False) as node:
            for vid, digests in held.volumes.items():
                for lsn, digest in enumerate(digests):
                    try:
                        await node.ask(SNAPSHOT, SnapshotRequest(VolumeId.parse(vid).raw, lsn=lsn or None))
                    except Forgotten:
                        continue
                    if lsn:
                        assert digest_of(await pages_at(node, VolumeId.parse(vid), lsn)) == digest
                        read += 1
            listed = (await node.ask(LIST_NAMES, NamesRequest(limit=100))).entries
            assert {entry.name: str(VolumeId(entry.target)) for entry in listed} == held.names
    finally:
        await store.aclose()
    assert read > len(held.volumes)


def content(volume: Volume) -> str:
    snapshot = volume.snapshot()
    try:
        pages = range(1, page_count(snapshot.length, snapshot.page_size) + 1)
        return digest_of({page: bytes(snapshot.read(page)) for page in pages})
    finally:
        snapshot.close()


def test_an_edge_reads_them_writes_and_pushes(tmp_path: Path, held: Held) -> None:
    with open_edge(home=tmp_path / "home", remote=(tmp_path / "store").as_uri()) as edge:
        assert {name: content(edge.volume(name)) for name in held.home} == held.home
        # In a log of its own, which needs no node.
        volume = edge.volume("kind")
        writer = volume.writer()
        writer.write(1, b"new".ljust(512))
        made = writer.commit(Durability.ORDERED)
        assert made is not None
        made.close()
        volume.push()
        new = content(volume)
        with pytest.raises(NotFound):
            edge.volume("gone").snapshot()
    with open_edge(home=tmp_path / "another", remote=(tmp_path / "store").as_uri()) as edge:
        assert content(edge.volume("kind")) == new
