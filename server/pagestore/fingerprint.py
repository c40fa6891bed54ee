"""Fingerprints: what a snapshot's content comes to, so that two replicas are compared by one word each (DESIGN §8).

The content's sum is that of the item hashes of all pages within the length that aren't zeros, whoever wrote them and
however often: a fork, an import, a fold change nothing. Segments keep the hashes, so that no page is read, but for the
last one where the volume ends within it: what lies behind the end is no part of the volume.

Of an encrypted volume the item hashes are keyed, and each takes in its page's LSN: equal fingerprints still mean equal
content, and different ones only that it was not written by the same commits.

The newest sum of each volume is remembered, and the next goes on from it by the pages that may have changed since.

Memory: the plan and the hashes of 65,536 pages at a time; 200 bytes for each of 10,000 volumes.
"""

from __future__ import annotations

from functools import partial
from typing import Final, NamedTuple

from ...volume.errors import Corrupt, Forgotten
from ...volume.frame import Encoding, unpack_frame
from ...volume.ids import VolumeId
from ...volume.lru_cache import LruCache
from ...volume.pageset import PageSet, page_count, span
from ...volume.segment import VolumeIndex
from ...volume.setsum import HASH_SIZE, Setsum, item_hash
from ...volume.wire import SnapshotInfo
from ..in_thread import in_thread
from ..metastore.lineage import changed_between
from ..metastore.open_volume import Volume
from ..metastore.open_volumes import Volumes
from ..store.tree_nodes import several_at_once
from .item_hashes import read_hashes
from .pagestore import Pagestore
from .plan import Plan, open_reads, plan_reads
from .read import Source

SLICE: Final = 1 << 16
_REMEMBERED: Final = 10_000


class _Known(NamedTuple):
    snapshot: SnapshotInfo
    content: Setsum


class Fingerprints:
    def __init__(self, volumes: Volumes, pagestore: Pagestore) -> None:
        self._volumes = volumes
        self._pagestore = pagestore
        self._known = LruCache[VolumeId, _Known](_REMEMBERED)

    async def content(self, volume: Volume, snapshot: SnapshotInfo) -> Setsum:
        """Raises Corrupt, Unavailable."""
        known = self._known.get(volume.vid)
        if known is not None and known.snapshot.lsn == snapshot.lsn:
            return known.content
        content = None
        if known is not None and volume.history.folded_to <= known.snapshot.lsn < snapshot.lsn:
            try:
                content = await self._onwards(volume, known, snapshot)
            except Forgotten:
                # It was folded meanwhile.
                content = None
        if content is None:
            content = await self._of(volume, snapshot, None)
        newest = self._known.get(volume.vid)
        if newest is None or newest.snapshot.lsn < snapshot.lsn:
            self._known.put(volume.vid, _Known(snapshot, content))
        return content

    async def _onwards(self, volume: Volume, known: _Known, snapshot: SnapshotInfo) -> Setsum:
        pages = await changed_between(self._volumes, volume, known.snapshot.lsn, snapshot.lsn)
        pages |= _cut_page(known.snapshot) | _cut_page(snapshot)
        gone = await self._of(volume, known.snapshot, pages)
        return known.content - gone + await self._of(volume, snapshot, pages)

    async def _of(self, volume: Volume, snapshot: SnapshotInfo, pages: PageSet | None) -> Setsum:
        """Of these pages, or of all."""
        total, last = Setsum(), page_count(snapshot.length, snapshot.page_size)
        cut = _cut_page(snapshot)
        for first in range(1, last + 1, SLICE):
            wanted = span(first, min(first + SLICE - 1, last))
            if pages is not None:
                wanted &= pages
            if not wanted:
                continue
            plan, sums = await plan_reads(self._volumes, volume, snapshot.lsn, wanted), list[Setsum]()
            each = partial(self._add, sums, snapshot, cut)
            sources = [(vid, source) for vid, own in plan.sources for source in own]
            await several_at_once([partial(each, vid, source) for vid, source in sources])
            total += sum(sums, Setsum())
            if cut & wanted:
                total += await self._of_cut_page(snapshot, await plan_reads(self._volumes, volume, snapshot.lsn, cut))
        return total

    async def _add(
        self, sums: list[Setsum], snapshot: SnapshotInfo, cut: PageSet, vid: VolumeId, source: Source
    ) -> None:
        wanted = source.wanted - cut
        if not wanted:
            return
        opened, volume, hashes = await read_hashes(self._pagestore, vid, source.location)
        picked = partial(sum_of, opened.key, volume, hashes, wanted, snapshot.page_size)
        sums.append(await in_thread(picked))

    async def _of_cut_page(self, snapshot: SnapshotInfo, plan: Plan) -> Setsum:
        """The page that the volume ends within, as if zeros followed."""
        (page,), total = _cut_page(snapshot), Setsum()

        async def again(left: PageSet) -> Plan:
            volume = await self._volumes.get(VolumeId(snapshot.vid), confirm=True)
            return await plan_reads(self._volumes, volume, snapshot.lsn, left)

        async with open_reads(self._pagestore, snapshot, plan, 0, again) as reads:
            async for frame in reads.frames():
                if page in frame.valid:
                    plain = unpack_frame("a frame", frame.info, frame.stored, snapshot.page_size)
                    data = bytes(plain[frame.info.pages.index(page)])[: snapshot.length % snapshot.page_size]
                    whole = data.ljust(snapshot.page_size, b"\0")
                    total = Setsum.of(item_hash(page, whole)) if any(data) else Setsum()
        return total


def _cut_page(snapshot: SnapshotInfo) -> PageSet:
    """The page that the volume ends within, if it does, and a node can read it."""
    whole = snapshot.length % snapshot.page_size == 0 or bool(snapshot.encryption)
    return PageSet() if whole else PageSet([page_count(snapshot.length, snapshot.page_size)])


def sum_of(key: str, volume: VolumeIndex, hashes: bytes, wanted: PageSet, page_size: int) -> Setsum:
    """Of those of these pages that aren't zeros."""
    picked, at, found, zeros = list[bytes](), 0, 0, bytes(page_size)
    for frame in volume.frames:
        for page in frame.info.pages:
            if page in wanted:
                found += 1
                own = hashes[at : at + HASH_SIZE]
                if frame.info.encoding != Encoding.ZERO and own != item_hash(page, zeros):
                    picked.append(own)
            at += HASH_SIZE
    if found != len(wanted):
        raise Corrupt(key, f"it holds {found} of the {len(wanted)} pages that it should have")
    return Setsum.of(b"".join(picked))
