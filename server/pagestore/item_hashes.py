"""Item hashes (volume/setsum.py): those that a segment keeps of its pages, read without a page."""

from __future__ import annotations

from ...volume.ids import VolumeId
from ...volume.records import Location
from ...volume.segment import VolumeIndex
from ...volume.setsum import HASH_SIZE
from .index import OpenSegment
from .pagestore import Pagestore


async def read_hashes(
    pagestore: Pagestore, vid: VolumeId, location: Location
) -> tuple[OpenSegment, VolumeIndex, bytes]:
    """The segment, and the item hashes of the volume's pages in it, in the order of its index. Raises Corrupt,
    Unavailable."""
    opened = await pagestore.indexes.open(location)
    volume, parsed = opened.volume(vid, location), opened.parsed
    before = sum(len(other.pages) for other in parsed.volumes[: location.slot])
    start = opened.start + parsed.hashes_offset
    first = HASH_SIZE * before
    stored = await pagestore.cache.read(opened.key, opened.size, start, start + HASH_SIZE * parsed.page_total)
    parsed.check_hashes(opened.key, stored)
    return opened, volume, bytes(stored[first : first + HASH_SIZE * len(volume.pages)])
