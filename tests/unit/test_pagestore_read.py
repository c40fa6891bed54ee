"""Segments through the pagestore: what is stored, what is fetched for it and in how many requests (S2.18-S2.22)."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path

import anyio
import pytest

from budwood.server.pagestore.pagestore import Pagestore
from budwood.server.pagestore.read import Source
from budwood.server.pagestore.write_segment import checked_segment
from budwood.server.store.retrying import Patience
from budwood.testing.clock import ManualClock
from budwood.testing.stores import MemoryStore, RiggedStore, Rule
from budwood.volume.entry import EntryHeader, seal_entry
from budwood.volume.errors import BadInput, Corrupt, Unavailable
from budwood.volume.frame import Frame, unpack_frame
from budwood.volume.ids import SegmentId, VolumeId
from budwood.volume.pack import Packer
from budwood.volume.pageset import PageSet, span
from budwood.volume.records import Location
from budwood.volume.segment import SegmentIndex, SegmentWriter

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]

VID = VolumeId.new()
PAGE = 512


def page(index: int) -> bytes:
    """Bytes that don't compress, so that frames have their full size; every seventh frame is zeros."""
    return bytes(PAGE) if index // 64 % 7 == 6 else random.Random(index).randbytes(PAGE)


def segment_of(pages: PageSet, first: PageSet | None = None, vid: VolumeId = VID) -> bytes:
    (packed,) = Packer(vid, 1, PAGE, page).segments(
        first or PageSet(), pages - (first or PageSet()), limit_bytes=1 << 26
    )
    return packed.data


def every(pages: PageSet) -> PageSet:
    return pages


def some_overwritten(pages: PageSet) -> PageSet:
    return pages & span(5, 9)


def all_but_one_overwritten(pages: PageSet) -> PageSet:
    return pages & PageSet([1])


async def rigged() -> RiggedStore:
    return RiggedStore(MemoryStore())


async def read(
    pagestore: Pagestore, sources: Sequence[Source], *, extra_bytes: int = 0, vid: VolumeId = VID
) -> list[Frame]:
    async with pagestore.read(vid, sources, extra_bytes=extra_bytes) as frames:
        return [frame async for frame in frames]


async def pages_of(pagestore: Pagestore, vid: VolumeId, location: Location) -> PageSet:
    """Every page that the location holds, by the index of its object."""
    return (await pagestore.indexes.open(location)).volume(vid, location).pages


def pages_in(frames: list[Frame]) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    for frame in frames:
        pages = unpack_frame("answer", frame.info, frame.stored, PAGE)
        found |= {i: p for i, p in zip(frame.info.pages, pages, strict=True) if i in frame.valid}
    return found


async def written(store: RiggedStore, pages: PageSet, first: PageSet | None = None) -> Location:
    checked = await checked_segment(VID, segment_of(pages, first), PAGE)
    location = await Pagestore(store).write_fragment("main", 3, checked)
    store.forget()
    return location


async def test_what_was_written_is_read_without_a_request_and_lies_under_its_epoch(tmp_path: Path) -> None:
    store = await rigged()
    pagestore = Pagestore(store, cache_dir=tmp_path)
    segment = await checked_segment(VID, segment_of(span(1, 1000)), PAGE)
    location = await pagestore.write_fragment("main", 0x2F, segment)
    assert location.object.startswith("logs/main/t/000000000000002f/")
    assert await pages_of(pagestore, VID, location) == span(1, 1000)
    frames = await read(pagestore, [Source(location, span(1, 1000), every)])
    assert pages_in(frames) == {index: page(index) for index in range(1, 1001)}
    assert [request.op for request in store.requests] == ["create"]


async def test_writing_the_same_segment_again_is_success() -> None:
    store = await rigged()
    pagestore = Pagestore(store)
    segment = await checked_segment(VID, segment_of(span(1, 70)), PAGE)
    assert await pagestore.write_fragment("main", 1, segment) == await pagestore.write_fragment("main", 1, segment)


@pytest.mark.parametrize("known", [True, False])
async def test_a_cold_small_segment_is_one_request(known: bool) -> None:
    store = await rigged()
    location = await written(store, span(1, 64))
    if not known:
        location = Location(object=location.object, slot=0)
    frames = await read(Pagestore(store), [Source(location, PageSet([7]), every)])
    assert pages_in(frames) == {index: page(index) for index in range(1, 65)}, "neighbours come along"
    assert store.count() == 1


async def test_a_page_of_a_large_segment_costs_its_index_and_its_chunk() -> None:
    """S2.1: what travels is of the order of a frame, not of the volume."""
    store = await rigged()
    location = await written(store, span(1, 20_000))
    cold = Pagestore(store)
    frames = await read(cold, [Source(location, PageSet([9_000]), every)])
    assert pages_in(frames)[9_000] == page(9_000)
    assert store.count() <= 3, "the tail, perhaps the rest of the index, and the frame"
    assert store.received_bytes() < location.size / 5
    store.forget()
    assert pages_in(await read(cold, [Source(location, PageSet([8_999]), every)]))[8_999] == page(8_999)
    assert store.count() == 0, "index and chunk are cached"


async def test_near_frames_are_one_range_and_far_ones_are_fetched_alone() -> None:
    store = await rigged()
    location = await written(store, span(1, 30_000))
    pagestore = Pagestore(store)
    await pages_of(pagestore, VID, location)
    store.forget()
    wanted = PageSet([1, 70, 150, 29_000])
    assert set(wanted) <= set(pages_in(await read(pagestore, [Source(location, wanted, every)])))
    assert store.count("get") == 2
    assert store.received_bytes() < 1 << 20


async def test_a_scan_reads_everything_once_in_large_ranges_and_in_order() -> None:
    store = await rigged()
    location = await written(store, span(1, 30_000))
    frames = await read(Pagestore(store), [Source(location, span(1, 30_000), every)])
    assert [frame.info.pages[0] for frame in frames] == list(range(1, 30_001, 64))
    assert pages_in(frames) == {index: page(index) for index in range(1, 30_001)}
    assert store.received_bytes() <= location.size * 1.02
    assert store.count("get") <= 8


async def test_sources_come_in_the_order_of_the_plan() -> None:
    store = await rigged()
    locations = [await written(store, span(start, start + 63)) for start in (129, 1, 65)]
    sources = [Source(at, PageSet([start]), every) for at, start in zip(locations, (129, 1, 65), strict=True)]
    frames = await read(Pagestore(store), sources)
    assert [frame.info.pages[0] for frame in frames] == [129, 1, 65]


async def test_neighbours_that_were_overwritten_are_marked() -> None:
    store = await rigged()
    location = await written(store, span(1, 64))
    (frame,) = await read(Pagestore(store), [Source(location, PageSet([7]), some_overwritten)])
    assert frame.valid == span(5, 9)


async def test_extra_bytes_bring_what_follows_as_far_as_they_go() -> None:
    """The skeleton lies first, so the first page brings it along in the same request."""
    store = await rigged()
    skeleton = PageSet([1, *range(500, 20_000, 100)])
    location = await written(store, span(1, 20_000), skeleton)
    assert len(await read(Pagestore(store), [Source(location, PageSet([1]), every)])) == 1
    store.forget()
    cold = Pagestore(store)
    frames = await read(cold, [Source(location, PageSet([1]), every)], extra_bytes=130_000)
    assert set(skeleton) <= set(pages_in(frames))
    assert sum(len(frame.stored) for frame in frames[1:]) <= 130_000
    assert store.count() <= 3
    stale = await read(cold, [Source(location, PageSet([1]), all_but_one_overwritten)], extra_bytes=130_000)
    assert len(stale) == 1, "a frame that holds nothing of the snapshot is no use to anyone"


async def test_a_segment_in_the_body_of_a_log_entry_is_read_alike() -> None:
    store = await rigged()
    other = VolumeId.new()
    writer = SegmentWriter(SegmentId.new())
    for vid, pages in ((VID, span(1, 40)), (other, span(30, 90))):
        data = segment_of(pages, vid=vid)
        writer.merge(SegmentIndex.of_segment("one", data), data)
    body = writer.finish()
    header = EntryHeader(log="main", i=5, epoch=1, writer=bytes(16), n=4)
    entry = seal_entry(header, body)
    await store.create("logs/main/entries/5", entry)
    pagestore = Pagestore(store)
    for vid, wanted in ((VID, PageSet([33])), (other, PageSet([89]))):
        for size in (0, len(entry)):
            location = Location(object="logs/main/entries/5", size=size, slot=writer.slots[vid])
            assert pages_in(await read(pagestore, [Source(location, wanted, every)], vid=vid)).keys() >= set(wanted)
    with pytest.raises(BadInput, match="does not hold volume"):
        await pages_of(pagestore, other, Location(object="logs/main/entries/5", slot=writer.slots[VID]))


async def test_one_flipped_byte_anywhere_is_never_passed_on() -> None:
    """DESIGN §9.5: a typed error that names the object, or the right pages; never wrong ones."""
    store = await rigged()
    location = await written(store, span(1, 200))
    whole = store.inner.objects[location.object] if isinstance(store.inner, MemoryStore) else b""
    named: list[str] = []
    for at in range(0, len(whole), 997):
        flipped = bytearray(whole)
        flipped[at] ^= 0x20
        damaged = MemoryStore()
        await damaged.create(location.object, bytes(flipped))
        try:
            frames = await read(Pagestore(damaged), [Source(location, span(1, 200), every)])
        except Corrupt as error:
            named.append(error.key)
        else:
            assert pages_in(frames) == {index: page(index) for index in range(1, 201)}
    assert len(named) > 90
    assert set(named) == {location.object}


async def test_an_object_that_is_gone_or_lacks_a_page_is_damage_in_words() -> None:
    store = await rigged()
    location = await written(store, span(1, 64))
    with pytest.raises(Corrupt, match="does not hold page 65"):
        await read(Pagestore(store), [Source(location, span(60, 70), every)])
    await store.delete(location.object)
    for size in (0, location.size):
        gone = Location(object=location.object, size=size, slot=0)
        with pytest.raises(Corrupt, match="missing"):
            await read(Pagestore(store), [Source(gone, span(1, 2), every)])


async def test_a_failure_comes_after_what_was_before_it_and_alone() -> None:
    store = await rigged()
    locations = [await written(store, span(start, start + 63)) for start in (1, 65, 129)]
    store.add(Rule(op="get", key=locations[1].object, before=Unavailable("no answer")))
    sources = [Source(at, PageSet([start]), every) for at, start in zip(locations, (1, 65, 129), strict=True)]
    seen: list[int] = []

    async def read_all() -> None:
        async with Pagestore(store, patience=Patience(deadline_seconds=0)).read(VID, sources) as frames:
            async for frame in frames:
                seen.append(frame.info.pages[0])

    with pytest.raises(Unavailable, match="no answer"):
        await read_all()
    assert seen == [1]


async def test_what_fails_in_passing_is_asked_for_again() -> None:
    store = await rigged()
    location = await written(store, span(1, 64))
    store.add(Rule(op="get", before=Unavailable("no answer"), times=3))
    clock = ManualClock(jumps=True)
    pagestore = Pagestore(store, patience=Patience(now=clock.now, sleep=clock.sleep))
    assert pages_in(await read(pagestore, [Source(location, PageSet([7]), every)]))[7] == page(7)
    assert store.count("get") == 4


async def test_a_readers_own_exception_passes_unwrapped_and_ends_the_fetching() -> None:
    store = await rigged()
    location = await written(store, span(1, 30_000))

    async def fail_in_the_middle() -> None:
        async with Pagestore(store).read(VID, [Source(location, span(1, 30_000), every)]) as frames:
            async for _ in frames:
                raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await fail_in_the_middle()


async def test_a_reader_may_leave_at_any_frame() -> None:
    store = await rigged()
    location = await written(store, span(1, 1000))
    pagestore = Pagestore(store)
    for wanted in (span(1, 1000), span(1, 200), PageSet()):
        for taken in range(3):
            async with pagestore.read(VID, [Source(location, wanted, every)]) as frames:
                for _ in range(taken):
                    await anext(frames, None)


async def test_a_slow_reader_bounds_what_is_fetched_ahead() -> None:
    store = await rigged()
    sources = [Source(await written(store, span(at, at + 15_999)), span(at, at + 15_999), every) for at in
               range(1, 80_000, 16_000)]  # fmt: skip
    store.forget()
    async with Pagestore(store).read(VID, sources) as frames:
        async for _ in frames:
            await anyio.wait_all_tasks_blocked()
            break
        assert store.received_bytes("get") < 25 << 20
    assert sum(source.location.size for source in sources) > 33 << 20


def _two_volumes(good: bytes) -> bytes:
    writer = SegmentWriter(SegmentId.new())
    for data in (good, segment_of(span(1, 3), vid=VolumeId.new())):
        writer.merge(SegmentIndex.of_segment("one", data), data)
    return writer.finish()


def _nothing(_: bytes) -> bytes:
    return b""


def _cut_short(good: bytes) -> bytes:
    return good[:-1]


def _with_more(good: bytes) -> bytes:
    return b"x" + good


def _damaged_frame(good: bytes) -> bytes:
    return good[:9] + bytes([good[9] ^ 1]) + good[10:]


def _damaged_index(good: bytes) -> bytes:
    return good[:-40] + bytes([good[-40] ^ 1]) + good[-39:]


def _damaged_hashes(good: bytes) -> bytes:
    at = SegmentIndex.of_segment("one", good).hashes_offset
    return good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :]


def _with_other_hashes(good: bytes) -> bytes:
    """Of which every checksum holds."""
    index, writer = SegmentIndex.of_segment("one", good), SegmentWriter(SegmentId.new())
    for offset, info, _ in index.volumes[0].frames:
        writer.add(VID, PAGE, info, good[offset : offset + info.length], bytes(32) * len(info.pages))
    return writer.finish()


def _another_volumes(_: bytes) -> bytes:
    return segment_of(span(1, 70), vid=VolumeId.new())


def _with_lsns(good: bytes) -> bytes:
    index = SegmentIndex.of_segment("one", good)
    writer = SegmentWriter(SegmentId.new())
    for offset, info, _ in index.volumes[0].frames:
        stored = good[offset : offset + info.length]
        writer.add(VID, PAGE, info, stored, bytes(32) * len(info.pages), [9] * len(info.pages))
    return writer.finish()


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (_nothing, "too few"),
        (_cut_short, "does not end like a segment"),
        (_with_more, "bytes that don't belong"),
        (_damaged_frame, "frame of page 1 does not match"),
        (_damaged_index, "index does not match"),
        (_damaged_hashes, "item hashes do not match"),
        (_with_other_hashes, "page 1 does not match its item hash"),
        (_two_volumes, "that volume and no other"),
        (_another_volumes, "that volume and no other"),
        (_with_lsns, "LSNs to the commit"),
    ],
)
async def test_a_bad_segment_is_refused(make: Callable[[bytes], bytes], what: str) -> None:
    with pytest.raises(BadInput, match=what):
        await checked_segment(VID, make(segment_of(span(1, 70))), PAGE, pages=True)


async def test_another_page_size_than_the_volumes_is_refused() -> None:
    with pytest.raises(BadInput, match=r"pages of 512 bytes; the volume's have 4096"):
        await checked_segment(VID, segment_of(span(1, 3)), 4096)
    checked = await checked_segment(VID, segment_of(span(1, 3)), PAGE)
    assert checked.index.volumes[0].pages == span(1, 3)
