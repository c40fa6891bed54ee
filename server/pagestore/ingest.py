"""Ingest: what a commit brings along, checked, and made durable where it does not travel in the log's entry (DESIGN
§4; S0.18).

A segment above `BATCH_BYTES` goes out as a fragment first, as if its client had sent it with write_pages. A fragment
may only be named while the epoch that it was written under still writes the log (rule 10): else PagesNotHere, and the
client sends the pages again.

A fragment's id has a time in it, by which a collector tells which are too old to be named (upkeep/unnamed.py). So
whoever stores one vouches for that: a client's id is kept if its time is about now, and not before the log's
`fragments_since`; else the segment goes out under an id of this node's. The clock of a client decides nothing.

Crash window (a fault point): node: fragment durable, entry not written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

from anyio.lowlevel import checkpoint

from ...volume import faults
from ...volume.errors import BadInput, NotFound, PagesNotHere
from ...volume.fragments import fragment_key, shard_in
from ...volume.ids import SegmentId, VolumeId
from ...volume.lru_cache import LruCache
from ...volume.pageset import PageSet
from ...volume.records import Location
from ...volume.segment import SegmentIndex, SegmentWriter
from ...volume.wire import CommitRequest
from ..in_thread import in_thread
from ..log.waiting import BATCH_BYTES
from ..metastore.content import Checked, Content, Written, check_content
from ..store.retrying import PATIENT, Patience, get_retried
from .pagestore import Pagestore
from .write_segment import checked_segment

_FEW_PAGES: Final = 2_000
_FEW_PARTS: Final = 500
_KEPT_HASHES_BYTES: Final = 32 << 20
_MOST_KEY_LENGTH: Final = 200

ABOUT_MS: Final = 3_600_000
"""How far the time in a client's id may be from the time by this node's clock."""

_FRAGMENT: Final = faults.point("node: fragment durable, entry not written")


class Target(NamedTuple):
    """A volume, and the log and epoch that its pages are written under."""

    vid: VolumeId
    page_size: int
    log: str
    epoch: int
    fragments_since: int = 0
    """The log's: older ones can't be named there."""
    encrypted: bool = False
    """Whether all its pages must be, or else none may be."""


class Ingest:
    def __init__(
        self, pagestore: Pagestore, patience: Patience = PATIENT, *, now_ms: Callable[[], int] = lambda: 0
    ) -> None:
        self._pagestore = pagestore
        self._now_ms = now_ms
        self._patience = patience
        self._written = LruCache[str, Written](_KEPT_HASHES_BYTES, lambda part: len(part.hashes))
        """Fragments by their keys."""

    async def write(self, target: Target, segment: bytes) -> Location:
        """A fragment, durable when this returns. Raises BadInput on one that is damaged or not this volume's."""
        checked = await checked_segment(target.vid, segment, target.page_size, encrypted=target.encrypted)
        checked = await self._vouched(target, checked)
        location = await self._pagestore.write_fragment(target.log, target.epoch, checked)
        self._written.put(location.object, await in_thread(Written.of, location.object, checked))
        return location

    async def _vouched(self, target: Target, checked: Checked) -> Checked:
        """The segment, under an id whose time is about now."""
        now_ms = self._now_ms()
        least = max(now_ms - ABOUT_MS, target.fragments_since)
        if least <= checked.index.segment.time_ms <= now_ms + ABOUT_MS:
            return checked
        return await in_thread(_anew, checked, SegmentId.new(at_ms=max(now_ms, least)))

    async def content(self, target: Target, request: CommitRequest, pages: PageSet, segment: bytes) -> Content:
        """What the commit brings along: a segment, or fragments that were written before. Raises BadInput,
        PagesNotHere."""
        if segment and request.locations:
            raise BadInput(f"a commit to volume {target.vid} names locations and brings a segment: one of them")
        locations, inline = request.locations, None
        if len(segment) > BATCH_BYTES:
            locations = (await self.write(target, segment),)
            _FRAGMENT()
        elif segment:
            inline = await checked_segment(
                target.vid, segment, target.page_size, encrypted=target.encrypted, pages=True
            )
        if inline is not None:
            locations, parts = (Location(object="", slot=0),), [Written.of("", inline)]
        else:
            parts = await self._parts(target, locations)
        check = partial(check_content, request, pages, locations, parts, target.epoch, inline)
        # Small ones at once; one that names thousands of fragments must not hold the loop.
        return await in_thread(check) if sum(len(part.ordered) for part in parts) > _FEW_PAGES else check()

    async def _parts(self, target: Target, locations: Sequence[Location]) -> list[Written]:
        """What they name, a few at a time, so that others have their turn."""
        parts: list[Written] = []
        for location in locations:
            if len(parts) % _FEW_PARTS == _FEW_PARTS - 1:
                await checkpoint()
            parts.append(await self._part(target, location.object))
        return parts

    async def _part(self, target: Target, key: str) -> Written:
        """What a location names."""
        if len(key) > _MOST_KEY_LENGTH:
            raise BadInput(f"a location of a commit to volume {target.vid} names no object")
        folder = fragment_key(target.log, target.epoch, "", shard_in(target.log, key))
        if not key.startswith(folder):
            raise _not_here(target, key)
        part = self._written.get(key)
        if part is None:
            try:
                SegmentId.parse(key.removeprefix(folder))
                segment = await get_retried(self._pagestore.store, key, patience=self._patience)
            except (BadInput, NotFound):
                raise _not_here(target, key) from None
            checked = await checked_segment(target.vid, segment, target.page_size, encrypted=target.encrypted)
            part = await in_thread(Written.of, key, checked)
            self._written.put(key, part)
        if part.vid != target.vid:
            raise BadInput(f"{key} holds pages of volume {part.vid}, not of {target.vid}")
        return part


def _anew(checked: Checked, segment: SegmentId) -> Checked:
    """The same frames, under that id."""
    writer = SegmentWriter(segment)
    writer.merge(checked.index, checked.data, checked.hashes)
    data = writer.finish()
    return Checked(SegmentIndex.of_segment(str(segment), data), data, checked.hashes)


def _not_here(target: Target, key: str) -> PagesNotHere:
    return PagesNotHere(f"the pages in {key or 'no object'} can't be committed to volume {target.vid} any more")
