"""Locate: which objects hold a snapshot's pages, and what fetching them would take, without fetching a page.

Where pages lie is known without a look at the store; what their frames take is known to each object's index. An answer
has at most `MOST_PLACEMENTS`: a page set of any size is answered in pieces, each bounded, and whoever asks goes on with
the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from ...volume.ids import VolumeId
from ...volume.pageset import PageSet, encode_pages
from ...volume.wire import Located, Placement, SnapshotInfo
from .concurrent_map import concurrent_map, each
from .pagestore import Pagestore
from .plan import Plan
from .read import PARALLEL, Source, frames_of

MOST_PLACEMENTS: Final = 1000


class _Place(NamedTuple):
    vid: VolumeId
    source: Source


async def locate(pagestore: Pagestore, snapshot: SnapshotInfo, plan: Plan, *, measure: bool) -> Located:
    """The placements of a plan; `measure` opens indexes. Raises Corrupt, Unavailable."""
    places = [_Place(vid, source) for vid, sources in plan.sources for source in sources]
    placed, left = places[:MOST_PLACEMENTS], places[MOST_PLACEMENTS:]
    rest = PageSet.union(PageSet(), *(place.source.wanted for place in left))
    return Located(
        snapshot=snapshot,
        zeros=encode_pages(plan.zeros),
        placements=tuple(await _measured(pagestore, placed) if measure else map(_placement, placed)),
        rest=encode_pages(rest) if rest else b"",
    )


async def _measured(pagestore: Pagestore, places: Sequence[_Place]) -> list[Placement]:
    """Indexes are opened several at once."""

    async def measured(place: _Place) -> Placement:
        vid, source = place
        opened = await pagestore.indexes.open(source.location)
        volume = opened.volume(vid, source.location)
        lengths = [volume.frames[at].info.length for at in frames_of(opened.key, volume, source.wanted)]
        return _placement(place, size=opened.size, frames=len(lengths), stored_bytes=sum(lengths))

    async with concurrent_map(each(places), measured, limit=PARALLEL) as found:
        return [placement async for placement in found]


def _placement(place: _Place, *, size: int = 0, frames: int = 0, stored_bytes: int = 0) -> Placement:
    location = place.source.location
    return Placement(
        object=location.object,
        size=size or location.size,
        slot=location.slot,
        vid=place.vid.raw,
        lsn=place.source.lsn,
        pages=encode_pages(place.source.wanted),
        frames=frames,
        stored_bytes=stored_bytes,
    )
