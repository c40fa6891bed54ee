"""Write: one volume's segment becomes a durable object that a later commit may name (S2.22).

What a client sends is checked whole before it is stored, since nobody looks at it again until someone reads it: its
index, that it is this volume's alone, every frame's checksum and size, its item hashes' checksum. Repeating the call
is harmless: the key carries the segment's id, and the same bytes under it are success.

Crash windows (each a fault point): pagestore: fragment checked, not stored · pagestore: fragment durable, not answered.
A fragment that no commit ever names is rubbish of its epoch, and collected with it.
"""

from __future__ import annotations

from typing import Final

import zstandard
from anyio import to_thread

from ...volume import faults
from ...volume.envelope import checksum
from ...volume.errors import AlreadyExists, BadInput, Corrupt
from ...volume.frame import Encoding, FrameInfo, verify_frame
from ...volume.ids import VolumeId
from ...volume.limits import MOST_SEGMENT_PAGES
from ...volume.pageset import encode_pages
from ...volume.records import Location
from ...volume.segment import HASH_SIZE, SegmentIndex, parse_footer
from ..store.protocol import Store
from ..store.settle import PATIENT, Patience, create_settled
from .cache import ChunkCache

__all__ = ["check_segment", "checked_segment", "fragment_key", "write_fragment"]

_INLINE_BYTES: Final = 1 << 20
"""Checking this much takes about a millisecond."""

_CHECKED: Final = faults.point("pagestore: fragment checked, not stored")
_DURABLE: Final = faults.point("pagestore: fragment durable, not answered")


def fragment_key(log: str, epoch: int, segment: str) -> str:
    return f"logs/{log}/t/{epoch:016x}/{segment}"


async def write_fragment(
    store: Store,
    cache: ChunkCache,
    log: str,
    epoch: int,
    vid: VolumeId,
    segment: bytes,
    *,
    page_size: int | None = None,
    patience: Patience = PATIENT,
) -> Location:
    """See Pagestore.write_fragment."""
    index = await checked_segment(vid, segment, page_size)
    key = fragment_key(log, epoch, str(index.segment))
    _CHECKED()
    if await create_settled(store, key, segment, patience) is not None:
        raise AlreadyExists(
            f"a segment with the id {index.segment} stands under {key} with other bytes: make a new one"
        )
    _DURABLE()
    await cache.seed(key, segment)
    return Location(object=key, size=len(segment), slot=0, pages=encode_pages(index.volumes[0].pages))


async def checked_segment(vid: VolumeId, segment: bytes, page_size: int | None = None) -> SegmentIndex:
    """As `check_segment`, in a thread where it takes long."""
    if len(segment) > _INLINE_BYTES:
        return await to_thread.run_sync(check_segment, vid, segment, page_size)
    return check_segment(vid, segment, page_size)


def check_segment(vid: VolumeId, segment: bytes, page_size: int | None = None) -> SegmentIndex:
    """The index of a segment sent for `vid`; raises BadInput unless it is whole and holds that volume alone."""
    what = f"the segment sent for volume {vid}"
    try:
        if parse_footer(what, segment).segment_size != len(segment):
            raise BadInput(f"{what} has bytes that don't belong to it")
        index = SegmentIndex.of_segment(what, segment, most_pages=MOST_SEGMENT_PAGES)
        _check_volume(what, vid, index, page_size)
        _check_bytes(what, index, memoryview(segment))
    except Corrupt as error:
        # What the client sent was damaged on the way or made wrongly; nothing in the store is.
        raise BadInput(f"{error}: send it again") from error
    return index


def _check_volume(what: str, vid: VolumeId, index: SegmentIndex, page_size: int | None) -> None:
    if len(index.volumes) != 1 or index.volumes[0].vid != vid:
        raise BadInput(f"{what} must hold that volume and no other")
    if page_size is not None and index.volumes[0].page_size != page_size:
        raise BadInput(f"{what} has pages of {index.volumes[0].page_size} bytes; the volume's have {page_size}")
    if any(any(frame.lsns) for frame in index.volumes[0].frames):
        raise BadInput(f"{what} must leave its pages' LSNs to the commit that names it")


def _check_bytes(what: str, index: SegmentIndex, data: memoryview) -> None:
    hashes = data[index.hashes_offset : index.hashes_offset + HASH_SIZE * index.page_total]
    if checksum(hashes) != index.hashes_checksum:
        raise Corrupt(what, "its item hashes do not match their checksum")
    volume = index.volumes[0]
    for frame in volume.frames:
        stored = data[frame.offset : frame.offset + frame.info.length]
        verify_frame(what, frame.info, stored)
        expected = len(frame.info.pages) * volume.page_size
        if _plain_size(what, frame.info, stored, expected) != expected:
            raise Corrupt(what, f"the frame of page {frame.info.pages[0]} has another size than its pages")


def _plain_size(what: str, info: FrameInfo, stored: memoryview, expected: int) -> int:
    match info.encoding:
        case Encoding.RAW:
            return len(stored)
        case Encoding.ZERO:
            return expected if not stored else len(stored)
        case Encoding.ZSTD:
            try:
                return zstandard.frame_content_size(stored)
            except zstandard.ZstdError as error:
                raise Corrupt(what, f"a frame is not zstd: {error}") from error
        case _:
            raise Corrupt(what, f"a frame has the unknown encoding {info.encoding}")
