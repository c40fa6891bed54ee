"""Parsed segment indexes, kept in memory up to a number of pages (S2.19, S2.20).

An index costs one request: the object's last 64 KiB (a small object whole), and a second one only where the index is
larger than that. The segment ends its object, whether it stands alone or is the body of a log entry, so the footer
tells where it starts.
"""

from __future__ import annotations

from functools import partial
from typing import Final, NamedTuple

from ...volume.errors import BadInput, Corrupt, NotFound
from ...volume.ids import VolumeId
from ...volume.lru_cache import LruCache
from ...volume.records import Location
from ...volume.segment import SegmentIndex, VolumeIndex, parse_footer
from ..store.protocol import Store
from ..store.retrying import retried
from .chunk_cache import ChunkCache

TAIL_BYTES: Final = 64 * 1024
WHOLE_BYTES: Final = 256 * 1024
"""An object up to this size is read whole: its frames would be the next request."""


class OpenSegment(NamedTuple):
    """A segment in its object: `start` is where it begins, `size` the object's whole length."""

    key: str
    size: int
    start: int
    parsed: SegmentIndex

    def volume(self, vid: VolumeId, location: Location) -> VolumeIndex:
        """The volume's part of it. Raises BadInput if the location speaks of another's."""
        volumes = self.parsed.volumes
        if not 0 <= location.slot < len(volumes) or volumes[location.slot].vid != vid:
            raise BadInput(f"slot {location.slot} of {self.key} does not hold volume {vid}")
        return volumes[location.slot]


class IndexCache:
    """The least recently used indexes go when those held name more than `limit_pages` pages together."""

    def __init__(self, store: Store, cache: ChunkCache, *, limit_pages: int) -> None:
        self.store = store
        self.cache = cache
        self._open = LruCache[tuple[str, int], OpenSegment](limit_pages, lambda opened: opened.parsed.page_total)

    def held(self, location: Location) -> OpenSegment | None:
        """The index if it is in memory."""
        return self._open.get((location.object, location.size))

    async def open(self, location: Location) -> OpenSegment:
        """Raises Corrupt (the object is missing, too, since a commit names it), Unavailable, Unsupported, BadInput."""
        if location.size < 0:
            raise BadInput(f"{location.object} can't have a size of {location.size} bytes")
        opened = self.held(location)
        if opened is None:
            opened = await self._read(location.object, location.size)
            self._open.put((location.object, location.size), opened)
        return opened

    async def _read(self, key: str, size: int) -> OpenSegment:
        tail: bytes | memoryview
        if size:
            tail_start = 0 if size <= WHOLE_BYTES else size - TAIL_BYTES
            tail = await self.cache.read(key, size, tail_start, size)
        else:
            tail, size = await self._unknown(key)
            tail_start = size - len(tail)
        footer = parse_footer(key, tail)
        start = size - footer.segment_size
        if start < 0:
            raise Corrupt(key, "its footer points before its beginning")
        at = start + footer.index_offset
        end = at + footer.index_size
        if at >= tail_start:
            stored = tail[at - tail_start : end - tail_start]
        else:
            stored = await self.cache.read(key, size, at, end)
        return OpenSegment(key, size, start, SegmentIndex.parse(key, footer, stored))

    async def _unknown(self, key: str) -> tuple[bytes, int]:
        """Tail and size of an object whose size nobody noted."""
        try:
            ask = partial(self.store.get_tail, key, TAIL_BYTES)
            tail, size = await retried(f"get the end of {key}", ask, self.cache.patience)
        except NotFound as error:
            raise Corrupt(key, "the object is missing") from error
        if len(tail) == size:
            await self.cache.seed(key, tail)
        return tail, size
