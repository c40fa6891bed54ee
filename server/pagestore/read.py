"""Read: from a plan of locations to frames as stored (DESIGN §6; S2.20).

A plan says which location holds which pages of a snapshot. Its frames come in the order of the plan and, within a
location, in the order they lie in the object, so that a B-tree's skeleton comes first. Nothing is unpacked or packed
again: a frame's checksum is compared with its bytes, and a damaged one raises Corrupt instead of being sent.

Frames that lie in one object with no more than `GAP_BYTES` between them become one range of at most `RANGE_BYTES`.
Ranges are fetched ahead of the reader, `PARALLEL` at once and `WINDOW_BYTES` in all, so a slow reader holds that much
and no more.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing, asynccontextmanager
from functools import partial
from typing import Final, NamedTuple

from ...volume.errors import Corrupt
from ...volume.frame import Frame, verify_frame
from ...volume.ids import VolumeId
from ...volume.pageset import PageSet
from ...volume.records import Location
from ...volume.segment import FrameAt, VolumeIndex
from ..store.tree_nodes import NotLoaded, loading
from .chunk_cache import ChunkCache
from .concurrent_map import concurrent_map, each
from .index import IndexCache, OpenSegment

GAP_BYTES: Final = 64 * 1024
RANGE_BYTES: Final = 4 * 1024 * 1024
WINDOW_BYTES: Final = 16 * 1024 * 1024
PARALLEL: Final = 8


class Source(NamedTuple):
    """Some of the pages wanted, and where they lie."""

    location: Location
    """`object` is a key; `size` may be 0 (unknown), which costs a request the first time."""
    wanted: PageSet
    """Pages that this location holds and that are the snapshot's."""
    valid: Callable[[PageSet], PageSet]
    """Which of these pages, all held by this location, are the snapshot's: not overwritten since, and not cut off.
    Raises NotLoaded where what says so isn't in memory."""
    lsn: int = 0
    """Of the commit that wrote them."""


class _Range(NamedTuple):
    """Frames to be fetched together; offsets count from the object's first byte."""

    opened: OpenSegment
    start: int
    end: int
    frames: list[FrameAt]
    valid: Callable[[PageSet], PageSet]


class _Fetched(NamedTuple):
    range: _Range
    data: bytes | memoryview


class _Budget:
    """What is left of a read's extra bytes."""

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left


@asynccontextmanager
async def read_frames(
    cache: ChunkCache, indexes: IndexCache, vid: VolumeId, sources: Sequence[Source], *, extra_bytes: int = 0
) -> AsyncGenerator[AsyncIterator[Frame], None]:
    """See Pagestore.read."""

    async def fetch(wanted: _Range) -> _Fetched:
        return _Fetched(wanted, await cache.read(wanted.opened.key, wanted.opened.size, wanted.start, wanted.end))

    single = _single(indexes, vid, sources, extra_bytes)
    if single is not None:
        async with aclosing(_each_fetched(fetch, single)) as fetched, aclosing(_frames(fetched)) as frames:
            yield frames
        return

    async def open_source(source: Source) -> tuple[Source, OpenSegment]:
        return source, await indexes.open(source.location)

    async with concurrent_map(each(sources), open_source, limit=PARALLEL) as opened:
        ranges = _ranges_of(vid, opened, _Budget(extra_bytes))
        fetching = concurrent_map(ranges, fetch, limit=PARALLEL, window=WINDOW_BYTES, weigh=_weight)
        async with fetching as ahead, aclosing(_frames(ahead)) as frames:
            yield frames


def _single(indexes: IndexCache, vid: VolumeId, sources: Sequence[Source], extra_bytes: int) -> list[_Range] | None:
    """The ranges of a read that needs no work ahead: one range at most, and its index at hand. A point query, then; the
    tasks that it saves take longer than all the rest of it."""
    if not sources:
        return []
    opened = indexes.held(sources[0].location) if len(sources) == 1 else None
    if opened is None:
        return None
    ranges = list(_ranges(vid, sources[0], opened, _Budget(extra_bytes)))
    return ranges if len(ranges) <= 1 else None


async def _each_fetched(
    fetch: Callable[[_Range], Awaitable[_Fetched]], ranges: Iterable[_Range]
) -> AsyncGenerator[_Fetched, None]:
    for wanted in ranges:
        yield await fetch(wanted)


def _weight(wanted: _Range) -> int:
    return wanted.end - wanted.start


async def _ranges_of(
    vid: VolumeId, opened: AsyncIterable[tuple[Source, OpenSegment]], budget: _Budget
) -> AsyncGenerator[_Range, None]:
    async for source, segment in opened:
        for wanted in _ranges(vid, source, segment, budget):
            yield wanted


def _ranges(vid: VolumeId, source: Source, segment: OpenSegment, budget: _Budget) -> Iterable[_Range]:
    volume = segment.volume(vid, source.location)
    frames = frames_of(segment.key, volume, source.wanted)
    frames += _extra(volume, frames[-1], source, budget) if budget.left > 0 and frames else []
    return _coalesced(segment, [volume.frames[ordinal] for ordinal in frames], source)


def frames_of(key: str, volume: VolumeIndex, wanted: PageSet) -> list[int]:
    """The ordinals of the frames that hold `wanted`, ascending."""
    if wanted >= volume.pages:
        return list(range(len(volume.frames)))
    if not wanted <= volume.pages:
        missing = (wanted - volume.pages).min()
        raise Corrupt(key, f"it does not hold page {missing} of volume {volume.vid}, which a commit says it does")
    return sorted({ordinal for page in wanted if (ordinal := volume.frame_of(page)) is not None})


def _extra(volume: VolumeIndex, last: int, source: Source, budget: _Budget) -> list[int]:
    """Frames after the last one asked for, as long as the budget lasts and while they are known to hold something of
    the snapshot."""
    extra: list[int] = []
    for ordinal in range(last + 1, len(volume.frames)):
        info = volume.frames[ordinal].info
        # Page numbers travel too: without their share a run of zero frames would be free.
        cost = info.length + 4 * len(info.pages)
        if cost > budget.left:
            break
        try:
            wanted = source.valid(PageSet(info.pages))
        except NotLoaded:
            # It isn't worth a look at the store.
            break
        if wanted:
            budget.left -= cost
            extra.append(ordinal)
    return extra


def _coalesced(segment: OpenSegment, frames: Sequence[FrameAt], source: Source) -> Iterable[_Range]:
    """Ranges over the frames, which come in the order of their offsets."""
    base = segment.start
    current = _Range(segment, 0, 0, [], source.valid)
    for frame in frames:
        start, end = base + frame.offset, base + frame.offset + frame.info.length
        near = current.end <= start <= current.end + GAP_BYTES
        if current.frames and near and end - current.start <= RANGE_BYTES:
            current.frames.append(frame)
            current = current._replace(end=end)
        else:
            if current.frames:
                yield current
            current = _Range(segment, start, end, [frame], source.valid)
    if current.frames:
        yield current


async def _frames(fetched: AsyncIterable[_Fetched]) -> AsyncGenerator[Frame, None]:
    async for wanted, data in fetched:
        view = memoryview(data)
        for frame in wanted.frames:
            at = wanted.opened.start + frame.offset - wanted.start
            stored = bytes(view[at : at + frame.info.length])
            verify_frame(wanted.opened.key, frame.info, stored)
            valid = await loading(partial(wanted.valid, PageSet(frame.info.pages)))
            yield Frame(frame.info, valid, stored)
