"""Segments and commits that are made to cost more than their bytes: refused before anything is unpacked, copied or
kept (volume/segment.py, server/metastore/content.py)."""

from __future__ import annotations

import os
import struct
import tracemalloc
from collections.abc import Callable

import msgspec
import pytest
import zstandard
from tests.served import asked, client, serving

from budwood.server.http.app import SMALL_BYTES
from budwood.server.node import Node
from budwood.testing.commits import commit_of
from budwood.testing.stores import MemoryStore
from budwood.volume.calls import CREATE, PARTS, SEGMENT, CreateRequest
from budwood.volume.envelope import checksum
from budwood.volume.errors import BadInput, PagesNotHere
from budwood.volume.frame import Encoding, FrameInfo
from budwood.volume.ids import ClientId, SegmentId, VolumeId
from budwood.volume.limits import MOST_LOCATIONS, MOST_SEGMENT_BYTES
from budwood.volume.pack import PLAIN_BYTES, Packer
from budwood.volume.pageset import PageSet, span
from budwood.volume.records import Location
from budwood.volume.segment import FOOTER_SIZE, MAGIC, SegmentWriter
from budwood.volume.setsum import item_hash
from budwood.volume.wire import CommitRequest, pack_part

pytestmark = pytest.mark.anyio

PAGE = 4096
FRAME = 64
CLIENT = ClientId.new()


def raw_frame(first: int) -> tuple[FrameInfo, bytes, bytes]:
    pages = [bytes([index % 251 + 1]) * PAGE for index in range(first, first + FRAME)]
    stored = b"".join(pages)
    info = FrameInfo(Encoding.RAW, len(stored), checksum(stored), tuple(range(first, first + FRAME)))
    return info, stored, b"".join(item_hash(index, page) for index, page in enumerate(pages, first))


def sharing(vid: VolumeId, frames: int) -> tuple[bytes, PageSet]:
    """A segment whose frames are all the same bytes of it."""
    writer = SegmentWriter(SegmentId.new())
    stored = bytes(range(256)) * (FRAME * PAGE // 256)
    held = PageSet()
    for number in range(frames):
        pages = range(1 + number * FRAME, 1 + (number + 1) * FRAME)
        info = FrameInfo(Encoding.RAW, len(stored), checksum(stored), tuple(pages))
        hashes = b"".join(item_hash(page, stored[at * PAGE :][:PAGE]) for at, page in enumerate(pages))
        writer.size = 0
        writer.add(vid, PAGE, info, stored, hashes)
        held.update(pages)
    del writer.chunks[1:]
    return writer.finish(), held


def sharing_alone(vid: VolumeId) -> bytes:
    return sharing(vid, 60)[0]


def with_a_gap(vid: VolumeId) -> bytes:
    writer = SegmentWriter(SegmentId.new())
    for number in range(2):
        info, stored, hashes = raw_frame(1 + number * FRAME)
        writer.add(vid, PAGE, info, stored, hashes)
        writer.chunks.append(b"what nobody reads")
        writer.size += len(writer.chunks[-1])
    return writer.finish()


def with_an_end(vid: VolumeId) -> bytes:
    writer = SegmentWriter(SegmentId.new())
    info, stored, hashes = raw_frame(1)
    writer.add(vid, PAGE, info, stored, hashes)
    writer.chunks.append(b"what nobody reads")
    writer.size += len(writer.chunks[-1])
    return writer.finish()


def with_a_beginning(vid: VolumeId) -> bytes:
    writer = SegmentWriter(SegmentId.new())
    writer.chunks.append(b"what nobody reads")
    writer.size += len(writer.chunks[-1])
    info, stored, hashes = raw_frame(1)
    writer.add(vid, PAGE, info, stored, hashes)
    return writer.finish()


def with_a_long_frame(vid: VolumeId) -> bytes:
    """A zstd frame of one page, and rubbish behind it."""
    plain = os.urandom(PAGE)
    stored = zstandard.ZstdCompressor().compress(plain) + os.urandom(500_000)
    writer = SegmentWriter(SegmentId.new())
    info = FrameInfo(Encoding.ZSTD, len(stored), checksum(stored), (1,))
    writer.add(vid, PAGE, info, stored, item_hash(1, plain))
    return writer.finish()


@pytest.mark.parametrize(
    "make", [sharing_alone, with_a_gap, with_a_beginning, with_an_end, with_a_long_frame],
    ids=["shared bytes", "a gap", "a beginning", "an end", "a long frame"],
)  # fmt: skip
async def test_frames_lie_one_after_another_and_share_no_byte(make: Callable[[VolumeId], bytes]) -> None:
    store, vid = MemoryStore(), VolumeId.new()
    async with serving(store) as address, client(address) as remote:
        await remote.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
        segment = make(vid)
        kept = set(store.objects)
        said = await asked(address, f"write_pages?vid={vid}", segment, SEGMENT)
        assert (said.status, said.code) == (400, "BadInput"), said
        assert "frame" in said.message
        request, _ = commit_of(vid, 0, {1: b"\1" * PAGE}, client=CLIENT, page_size=PAGE)
        assert (await asked(address, "commit", pack_part(request, segment), PARTS)).code == "BadInput"
        assert set(store.objects) == kept


async def test_commits_that_go_together_take_no_more_bytes_than_they_brought() -> None:
    """Three such commits, in one entry, were copied frame by frame: 264 KB each, 800 MB together."""
    store = MemoryStore()
    async with serving(store) as address, client(address) as remote:
        sent = 0
        for _ in range(3):
            vid = VolumeId.new()
            await remote.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
            segment, pages = sharing(vid, 20)
            stored = segment[: FRAME * PAGE]
            content = {page: stored[(page - 1) % FRAME * PAGE :][:PAGE] for page in pages}
            request, _ = commit_of(vid, 0, content, client=CLIENT, page_size=PAGE)
            sent += len(segment)
            assert (await asked(address, "commit", pack_part(request, segment), PARTS)).code == "BadInput"
    assert sum(map(len, store.objects.values())) < sent


def bomb(vid: VolumeId, pages: int) -> bytes:
    """A few kilobytes whose index stands for so many pages, in a frame each."""
    header = struct.pack("<16sQQQIIII", SegmentId.new().raw, 0, 0, checksum(b""), 1, pages, pages, 0)
    volume = struct.pack("<16sIIII", vid.raw, PAGE, pages, pages, 0)
    frame = struct.pack("<QQII", 0, checksum(b""), 0, 1 << 8 | Encoding.ZERO)
    plain = b"".join((header, volume, frame * pages, struct.pack("<I", 1) * pages, bytes(8 * pages)))
    index = zstandard.ZstdCompressor(level=19).compress(plain)
    return index + struct.pack("<QQQHHI", 0, len(index), checksum(index), 1, 0, MAGIC)


async def test_an_index_takes_no_more_memory_than_its_pages_may() -> None:
    vid = VolumeId.new()
    segment = bomb(vid, 1_000_000)
    assert len(segment) < 10_000 + FOOTER_SIZE
    async with serving(MemoryStore()) as address, client(address) as remote:
        await remote.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
        tracemalloc.start()
        try:
            said = await asked(address, f"write_pages?vid={vid}", segment, SEGMENT)
            _, peak_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert (said.status, said.code) == (400, "BadInput")
    assert peak_bytes < 8 << 20


async def test_a_segment_has_no_more_pages_than_one_may_and_packers_know() -> None:
    vid, page = VolumeId.new(), bytes(PAGE)
    most_pages = MOST_SEGMENT_BYTES // PAGE
    writer = SegmentWriter(SegmentId.new())
    for first in range(1, most_pages + 2, FRAME):
        info = FrameInfo(Encoding.ZERO, 0, checksum(b""), tuple(range(first, first + FRAME)))
        writer.add(vid, PAGE, info, b"", bytes(32) * FRAME)
    async with Node.open(MemoryStore()) as node:
        await node.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
        with pytest.raises(BadInput, match=f"{most_pages} is the most"):
            await node.write_pages(vid, writer.finish())
        pages = span(1, PLAIN_BYTES // PAGE + 2 * FRAME)
        packed = list(Packer(vid, 1, PAGE, lambda _: page).segments(PageSet([1]), pages - PageSet([1])))
        assert len(packed) == 2
        for segment in packed:
            await node.write_pages(vid, segment.data)


async def test_a_location_is_named_once() -> None:
    vid = VolumeId.new()
    async with serving(MemoryStore()) as address, client(address) as remote:
        await remote.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
        pages = {index: os.urandom(PAGE) for index in range(1, 2 * SMALL_BYTES // PAGE)}
        request, segment = commit_of(vid, 0, pages, client=CLIENT, page_size=PAGE)
        location = await remote.write_pages(vid, segment)
        for copies in (2, MOST_LOCATIONS):
            several = msgspec.structs.replace(request, locations=(location,) * copies)
            with pytest.raises(BadInput, match="twice"):
                await remote.commit(several)
        assert (await remote.commit(msgspec.structs.replace(request, locations=(location,)))).lsn == 1


@pytest.mark.parametrize("name", ["", "..", "../../../root", "x" * 10_000_000, "0" * 22])
async def test_a_location_names_a_segment_and_nothing_else_of_the_store(name: str) -> None:
    vid = VolumeId.new()
    store = MemoryStore()
    async with serving(store) as address, client(address) as remote:
        await remote.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
        request, segment = commit_of(vid, 0, {1: os.urandom(PAGE)}, client=CLIENT, page_size=PAGE)
        location = await remote.write_pages(vid, segment)
        folder, elsewhere = location.object.rpartition("/")[0], str(SegmentId.new())
        store.objects[elsewhere] = store.objects[location.object]
        for key in (f"{folder}/{name}", name, elsewhere):
            wrong: CommitRequest = msgspec.structs.replace(request, locations=(Location(object=key, slot=0),))
            with pytest.raises((BadInput, PagesNotHere)) as caught:
                await remote.commit(wrong)
            assert len(str(caught.value)) < 1000
