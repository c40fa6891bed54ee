"""Page copies: pages of one volume out of the objects that hold them, checked, and into new segments (DESIGN §8).

What is copied is unpacked and compared with its item hash; what is only counted goes by the hashes that its segment
keeps. Encrypted pages are copied as they are: only whoever has their key can compare them.

Memory: the pages of one new segment.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Final, NamedTuple, TypeVar

from anyio.lowlevel import checkpoint as let_others

from ...sqlite.btree import is_skeleton
from ...volume.encryption import is_encrypted_skeleton
from ...volume.errors import Corrupt
from ...volume.frame import Encoding, join_frame, pages_per_frame, split_frame
from ...volume.ids import SegmentId, VolumeId
from ...volume.pack import SEGMENT_BYTES
from ...volume.pageset import PageSet
from ...volume.records import Location
from ...volume.segment import FrameAt, SegmentWriter, VolumeIndex
from ...volume.setsum import HASH_SIZE, Setsum, item_hash, log_sum
from ..in_thread import in_thread
from ..pagestore.index import OpenSegment
from ..pagestore.item_hashes import read_hashes
from ..pagestore.pagestore import Pagestore
from ..store.tree_nodes import several_at_once

T = TypeVar("T")

_FEW: Final = 4
"""Pages: with so many a commit's entry has less to do for its sum, or a frame to be unpacked, than a thread costs."""


class Held(NamedTuple):
    """Some of a volume's pages, in one object."""

    location: Location
    lsn: int
    """Of the commit that wrote all of them; 0 where the object's index has each page's."""
    pages: PageSet


class _Item(NamedTuple):
    """A page, its LSN, its item hash, itself."""

    page: int
    lsn: int
    hash: bytes
    data: bytes
    encrypted: bool

    @property
    def is_skeleton(self) -> bool:
        return is_encrypted_skeleton(self.data) if self.encrypted else is_skeleton(self.data, self.page)


class Copied(NamedTuple):
    """A new segment."""

    id: SegmentId
    data: bytes
    pages: PageSet
    setsum: Setsum
    """Of their log items."""


class PageCopies:
    def __init__(self, pagestore: Pagestore, vid: VolumeId, page_size: int) -> None:
        self._pagestore = pagestore
        self._vid = vid
        self._page_size = page_size
        self.most_pages = max(1, SEGMENT_BYTES // page_size)
        """Of one new segment."""

    async def setsum(self, held: Sequence[Held]) -> Setsum:
        """Of the log items of these pages, by their segments' item hashes. Raises Corrupt, Unavailable."""
        sums: list[Setsum] = []

        async def add(each: Held) -> None:
            opened, volume, hashes = await self._opened(each)
            sums.append(await _worked(partial(self._sum, each, opened.key, volume, hashes), len(volume.pages)))

        await several_at_once([partial(add, each) for each in held])
        return sum(sums, Setsum())

    async def copies(self, held: Sequence[Held]) -> AsyncGenerator[Copied, None]:
        """New segments of these pages, none of which is in two of them: by page, and in each a B-tree's skeleton
        first. Raises Corrupt, Unavailable."""
        left = iter(PageSet.union(PageSet(), *(each.pages for each in held)))
        while batch := PageSet(islice(left, self.most_pages)):
            items: list[_Item] = []

            async def read(each: Held, own: PageSet, items: list[_Item] = items) -> None:
                items.extend(await self._read(each._replace(pages=own)))

            wanted = [(each, each.pages & batch) for each in held]
            await several_at_once([partial(read, each, own) for each, own in wanted if own])
            yield await in_thread(partial(self._packed, batch, items))

    async def _opened(self, held: Held) -> tuple[OpenSegment, VolumeIndex, bytes]:
        return await read_hashes(self._pagestore, self._vid, held.location)

    def _sum(self, held: Held, key: str, volume: VolumeIndex, hashes: bytes) -> Setsum:
        total, at, found = Setsum(), 0, 0
        for frame in volume.frames:
            by_lsn: dict[int, tuple[list[int], list[bytes]]] = {}
            for page, lsn in zip(frame.info.pages, frame.lsns, strict=True):
                if page in held.pages:
                    pages, own = by_lsn.setdefault(held.lsn or lsn, ([], []))
                    pages.append(page)
                    own.append(hashes[at : at + HASH_SIZE])
                    found += 1
                at += HASH_SIZE
            for lsn, (pages, own) in by_lsn.items():
                total += log_sum(self._vid.raw, lsn, pages, b"".join(own))
        if found != len(held.pages):
            raise Corrupt(key, f"it holds {found} of the {len(held.pages)} pages that it should have")
        return total

    async def _read(self, held: Held) -> list[_Item]:
        opened, volume, hashes = await self._opened(held)
        items: list[_Item] = []
        for at, frame in _frames_with(volume, held.pages):
            start = opened.start + frame.offset
            stored = await self._pagestore.cache.read(opened.key, opened.size, start, start + frame.info.length)
            own = hashes[at : at + HASH_SIZE * len(frame.info.pages)]
            work = partial(self._items, held, opened.key, frame, bytes(stored), own)
            items += await _worked(work, len(frame.info.pages))
        if len(items) != len(held.pages):
            raise Corrupt(opened.key, f"it holds {len(items)} of the {len(held.pages)} pages that it should have")
        return items

    def _items(self, held: Held, key: str, frame: FrameAt, stored: bytes, hashes: bytes) -> list[_Item]:
        items: list[_Item] = []
        encrypted = frame.info.encoding == Encoding.ENCRYPTED
        split = split_frame(key, frame.info, stored, self._page_size)
        for at, (page, lsn, data) in enumerate(zip(frame.info.pages, frame.lsns, split, strict=True)):
            if page in held.pages:
                own = hashes[at * HASH_SIZE : (at + 1) * HASH_SIZE]
                if not encrypted and item_hash(page, data) != own:
                    raise Corrupt(key, f"page {page} does not match its item hash")
                items.append(_Item(page, held.lsn or lsn, own, data, encrypted))
        return items

    def _packed(self, batch: PageSet, items: list[_Item]) -> Copied:
        items.sort(key=lambda item: (not item.is_skeleton, item.page))
        writer, total = SegmentWriter(SegmentId.new()), Setsum()
        for skeleton in (True, False):
            own = (item for item in items if item.is_skeleton is skeleton)
            while frame := list(islice(own, pages_per_frame(self._page_size))):
                pages = [item.page for item in frame]
                info, stored = join_frame(pages, [item.data for item in frame], encrypted=frame[0].encrypted)
                hashes, lsns = b"".join(item.hash for item in frame), [item.lsn for item in frame]
                writer.add(self._vid, self._page_size, info, stored, hashes, lsns)
        for item in items:
            total += log_sum(self._vid.raw, item.lsn, [item.page], item.hash)
        return Copied(writer.segment, writer.finish(), batch, total)


async def _worked(work: Callable[[], T], pages: int) -> T:
    """In a thread, unless it is less than going there and back."""
    if pages > _FEW:
        return await in_thread(work)
    await let_others()
    return work()


def _frames_with(volume: VolumeIndex, pages: PageSet) -> Iterator[tuple[int, FrameAt]]:
    """The frames that have any of them, and where their item hashes begin."""
    at = 0
    for frame in volume.frames:
        if any(page in pages for page in frame.info.pages):
            yield at, frame
        at += HASH_SIZE * len(frame.info.pages)
