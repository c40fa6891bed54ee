"""Relocation: pages that commits brought in their entries move into segments of the volume's own, commit by commit, so
that a log can be cut off though every LSN of the volume stays readable (volume/checkpoint.py; DESIGN §4, rule 8).

What a page reads as at an LSN is looked for among the commits, as before; only where a commit's pages lie is another
place. A segment has a row of its volume table for each commit, whose frames are copied as they are stored. Segments
that are small are put together with what comes next, as far as that is at least as much: so there are as many of them
as the number of commits has binary digits, and a page is copied as often (S3.29).

Every page that moves is unpacked and compared with its item hash, and every commit with its sum (DESIGN §8). Memory:
one new segment.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

from ...volume.checkpoint import Relocated
from ...volume.entry import is_entry
from ...volume.envelope import encode
from ...volume.errors import Corrupt
from ...volume.frame import Encoding, check_frame, unpack_frame
from ...volume.ids import SegmentId, VolumeId
from ...volume.pack import SEGMENT_BYTES
from ...volume.pageset import PageSet, encode_pages
from ...volume.records import Location
from ...volume.segment import FrameAt, SegmentWriter
from ...volume.setsum import HASH_SIZE, Setsum, item_hash, log_sum
from ..in_thread import in_thread
from ..metastore.folded import Folded, relocated_key
from ..metastore.history import History, Landed
from ..pagestore.item_hashes import read_hashes
from ..pagestore.pagestore import Pagestore
from ..store.tree_change import Splice, put, without
from ..store.tree_nodes import AT_ONCE, loading, several_at_once

MOST_ROWS: Final = 1024
"""Of one segment: its index is read whole by whoever reads one of them."""


class _Row(NamedTuple):
    """A commit whose pages are to be moved."""

    lsn: int
    location: Location
    size: int
    """In bytes, about."""
    setsum: bytes | None = None
    """What its pages add up to; None where that was looked at when they were moved before."""


class _Stored(NamedTuple):
    frames: list[tuple[FrameAt, bytes]]
    hashes: bytes


class Moves(NamedTuple):
    """What a checkpoint's tree has otherwise, once pages were relocated."""

    items: dict[bytes, bytes | None]
    """By key; None: which it has no more."""
    unused: list[str]
    """Segments that it has no row in any more."""

    @property
    def splices(self) -> list[Splice]:
        return [without(key) if value is None else put(key, value) for key, value in sorted(self.items.items())]

    def drop(self, last: int, relocated: Relocated) -> None:
        self.items[relocated_key(last)] = None
        self.unused.append(relocated.object)


class Relocation:
    """Of one volume. `save` makes a new segment durable."""

    def __init__(
        self,
        pagestore: Pagestore,
        vid: VolumeId,
        page_size: int,
        history: History,
        base: Folded | None,
        save: Callable[[SegmentId, bytes], Awaitable[Location]],
    ) -> None:
        self._pagestore = pagestore
        self._vid = vid
        self._page_size = page_size
        self._history = history
        self._base = base
        self._save = save

    async def run(self, folded_to: int, to: int) -> Moves:
        """Relocate what lies in entries, up to that LSN; and let go of what was relocated of commits up to `folded_to`.
        Raises Corrupt, Unavailable."""
        stands = await loading(self._base.relocations) if self._base is not None else []
        moves = Moves({}, [])
        kept = list[tuple[int, Relocated]]()
        for last, relocated in stands:
            if last > folded_to:
                kept.append((last, relocated))
            else:
                moves.drop(last, relocated)
        rows = await self._rows(max(self._history.settled_to, folded_to), to)
        while rows and kept and _fits(kept[-1][1], rows):
            last, relocated = kept.pop()
            rows = [*self._rows_of(relocated), *rows]
            moves.drop(last, relocated)
        while rows:
            count, size = 0, 0
            while count < min(len(rows), MOST_ROWS) and (not count or size + rows[count].size <= SEGMENT_BYTES):
                size += rows[count].size
                count += 1
            relocated = await self._segment(rows[:count])
            moves.items[relocated_key(rows[count - 1].lsn)] = encode(relocated)
            rows = rows[count:]
        return moves

    async def _rows(self, after: int, to: int) -> list[_Row]:
        """Of the commits behind that LSN that brought pages in their entries."""
        found: list[_Row] = []
        for first in range(after + 1, to + 1, AT_ONCE):
            found += await loading(partial(self._inline, range(first, min(first + AT_ONCE, to + 1))))
        return found

    def _inline(self, lsns: range) -> list[_Row]:
        return [row for lsn in lsns for row in self._rows_in(self._history.at(lsn))]

    def _rows_in(self, landed: Landed) -> list[_Row]:
        return [
            _Row(landed.lsn, location, len(pages) * self._page_size, landed.setsum)
            for location, pages in landed.placed()
            if is_entry(location.object)
        ]

    def _rows_of(self, relocated: Relocated) -> list[_Row]:
        size = relocated.size // relocated.count
        return [_Row(lsn, relocated.location_of(slot), size) for slot, lsn in enumerate(relocated.lsns)]

    async def _segment(self, rows: Sequence[_Row]) -> Relocated:
        stored: dict[int, _Stored] = {}

        async def read(row: _Row) -> None:
            stored[row.lsn] = await self._read(row)

        for first in range(0, len(rows), AT_ONCE):
            await several_at_once([partial(read, row) for row in rows[first : first + AT_ONCE]])
        segment, data, pages = await in_thread(partial(self._packed, rows, stored))
        location = await self._save(segment, data)
        after = rows[0].lsn - 1
        commits = encode_pages(PageSet(row.lsn - after for row in rows))
        return Relocated(object=location.object, size=location.size, after=after, commits=commits, pages=pages)

    async def _read(self, row: _Row) -> _Stored:
        opened, volume, hashes = await read_hashes(self._pagestore, self._vid, row.location)
        frames: list[tuple[FrameAt, bytes]] = []
        for frame in volume.frames:
            start = opened.start + frame.offset
            data = await self._pagestore.cache.read(opened.key, opened.size, start, start + frame.info.length)
            frames.append((frame, bytes(data)))
        return _Stored(frames, hashes)

    def _packed(self, rows: Sequence[_Row], stored: dict[int, _Stored]) -> tuple[SegmentId, bytes, int]:
        """The segment's id, its bytes, and how many pages it has."""
        writer, pages = SegmentWriter(SegmentId.new()), 0
        for number, row in enumerate(rows):
            at, total = 0, list[Setsum]()
            for frame, data in stored[row.lsn].frames:
                held = frame.info.pages
                hashes = stored[row.lsn].hashes[at : at + HASH_SIZE * len(held)]
                self._check(row.location.object, frame, data, hashes)
                lsns = (row.lsn,) * len(held)
                writer.add(self._vid, self._page_size, frame.info, data, hashes, lsns, row=number)
                if row.setsum is not None:
                    total.append(log_sum(self._vid.raw, row.lsn, held, hashes))
                at += len(hashes)
                pages += len(held)
            if row.setsum is not None and sum(total, Setsum()).digest != row.setsum:
                what = f"its pages don't add up to the sum of the commit that made LSN {row.lsn}"
                raise Corrupt(row.location.object, what)
        return writer.segment, writer.finish(), pages

    def _check(self, key: str, frame: FrameAt, data: bytes, hashes: bytes) -> None:
        if frame.info.encoding == Encoding.ENCRYPTED:
            check_frame(key, frame.info, data, self._page_size)
            return
        plain = unpack_frame(key, frame.info, data, self._page_size)
        for at, (page, page_bytes) in enumerate(zip(frame.info.pages, plain, strict=True)):
            if item_hash(page, page_bytes) != hashes[HASH_SIZE * at : HASH_SIZE * (at + 1)]:
                raise Corrupt(key, f"page {page} does not match its item hash")


def _fits(before: Relocated, rows: Sequence[_Row]) -> bool:
    """Whether what stands is put together with these: it is small, and no more than they are."""
    count = before.count
    return count <= len(rows) and 2 * count <= MOST_ROWS and 2 * before.size <= SEGMENT_BYTES
