"""Write: one volume's segment becomes a durable object that a later commit may name (S2.22).

What a client sends is checked before it is stored, since nobody looks at it again until someone reads it: its index,
that it is this volume's alone, and every frame, by its checksum and the size that it claims. Pages that travel in the
log's entry are unpacked, too, and compared with their item hashes; those of fragments by whoever packs and unpacks them
(DESIGN §8), since that takes as long again as the rest of a bulk push; encrypted ones by whoever has their key.
Repeating the call is harmless: the key carries the segment's id, and the same bytes under it are success.

Crash windows (each a fault point): pagestore: fragment checked, not stored · pagestore: fragment durable, not answered.
A fragment that no commit ever names is rubbish of its epoch, and collected with it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from ...volume import faults
from ...volume.errors import AlreadyExists, BadInput, Corrupt
from ...volume.fragments import fragment_key, shard_for
from ...volume.frame import check_frame, unpack_frame
from ...volume.ids import VolumeId
from ...volume.limits import MOST_SEGMENT_BYTES
from ...volume.pageset import encode_pages
from ...volume.records import Location
from ...volume.segment import SegmentIndex, parse_footer
from ...volume.setsum import HASH_SIZE, item_hash
from ..in_thread import in_thread
from ..metastore.content import Checked
from ..store.protocol import Store
from ..store.retrying import PATIENT, Patience, create_settled
from .chunk_cache import ChunkCache

_AT_ONCE_BYTES: Final = 1 << 16
"""Checking so much takes less than a millisecond; more is done in a thread."""

_T = TypeVar("_T")

_CHECKED: Final = faults.point("pagestore: fragment checked, not stored")
_DURABLE: Final = faults.point("pagestore: fragment durable, not answered")


async def write_fragment(
    store: Store,
    cache: ChunkCache,
    log: str,
    epoch: int,
    segment: Checked,
    patience: Patience = PATIENT,
    *,
    shards: int = 1,
) -> Location:
    """See Pagestore.write_fragment."""
    name = segment.index.segment
    key = fragment_key(log, epoch, str(name), shard_for(name, shards))
    _CHECKED()
    if await create_settled(store, key, segment.data, patience) is not None:
        raise AlreadyExists(
            f"a segment with the id {segment.index.segment} stands under {key} with other bytes: make a new one"
        )
    _DURABLE()
    await cache.seed(key, segment.data)
    return Location(object=key, size=len(segment.data), slot=0, pages=encode_pages(segment.index.volumes[0].pages))


async def checked_segment(
    vid: VolumeId, segment: bytes, page_size: int, *, encrypted: bool = False, pages: bool = False
) -> Checked:
    """A segment sent for `vid`. Raises BadInput unless it is whole and holds that volume alone; and, if asked, unless
    each of its pages has the item hash that its index keeps. In a thread where that takes long. Of an encrypted volume
    every page must be `encrypted`, and of another none.
    """
    what = f"the segment sent for volume {vid}"
    try:
        checked = await _aside(len(segment), partial(_open, what, vid, segment, page_size, encrypted))
        if pages and not encrypted:
            await _aside(checked.index.page_total * page_size, partial(_check_pages, what, checked))
        else:
            await _aside(len(segment), partial(_check_frames, what, checked))
    except Corrupt as error:
        # What the client sent was damaged on the way or made wrongly; nothing in the store is.
        raise BadInput(f"{error}: send it again") from error
    return checked


async def _aside(size_bytes: int, work: Callable[[], _T]) -> _T:
    return work() if size_bytes <= _AT_ONCE_BYTES else await in_thread(work)


def _open(what: str, vid: VolumeId, segment: bytes, page_size: int, encrypted: bool) -> Checked:
    if parse_footer(what, segment).segment_size != len(segment):
        raise BadInput(f"{what} has bytes that don't belong to it")
    index = SegmentIndex.of_segment(what, segment, most_pages=MOST_SEGMENT_BYTES // page_size)
    if len(index.volumes) != 1 or index.volumes[0].vid != vid:
        raise BadInput(f"{what} must hold that volume and no other")
    if index.volumes[0].page_size != page_size:
        raise BadInput(f"{what} has pages of {index.volumes[0].page_size} bytes; the volume's have {page_size}")
    if index.volumes[0].is_encrypted is not encrypted:
        raise BadInput(
            f"{what} must have encrypted pages alone, since the volume is encrypted: give its key, or upgrade"
            if encrypted
            else f"{what} has encrypted pages, and the volume isn't encrypted"
        )
    if any(any(frame.lsns) for frame in index.volumes[0].frames):
        raise BadInput(f"{what} must leave its pages' LSNs to the commit that names it")
    return Checked(index, segment, index.hashes(what, segment))


def _check_frames(what: str, segment: Checked) -> None:
    (volume,), data = segment.index.volumes, memoryview(segment.data)
    for offset, info, _ in volume.frames:
        check_frame(what, info, data[offset : offset + info.length], volume.page_size)


def _check_pages(what: str, segment: Checked) -> None:
    (volume,), data, at = segment.index.volumes, memoryview(segment.data), 0
    for offset, info, _ in volume.frames:
        pages = unpack_frame(what, info, data[offset : offset + info.length], volume.page_size)
        for page, plain in zip(info.pages, pages, strict=True):
            if item_hash(page, plain) != segment.hashes[at : at + HASH_SIZE]:
                raise Corrupt(what, f"page {page} does not match its item hash")
            at += HASH_SIZE
