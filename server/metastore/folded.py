"""Folded: what a volume's checkpoint has of it (volume/checkpoint.py; DESIGN §5).

All of it raises NotLoaded (store/tree_nodes.py) where a node isn't in memory, and Corrupt where one is damaged. Threads
may ask.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Final

from ...volume.checkpoint import (
    NO_FLOOR,
    PAGES,
    REGION,
    RELOCATED,
    SEGMENT,
    FoldedSegment,
    PageRange,
    Region,
    Relocated,
    nodes_folder,
    number,
    ranges_of,
)
from ...volume.entry import is_entry
from ...volume.envelope import decode
from ...volume.errors import BadInput, Corrupt, Forgotten
from ...volume.ids import VolumeId
from ...volume.pageset import PageSet, beyond, decode_pages, page_count
from ...volume.records import Fold, settled_by
from ...volume.setsum import Setsum
from ..store.tree import Tree
from ..store.tree_nodes import Nodes
from .history import Landed, Resolved, Run

_NOTHING: Final = Setsum()
_IN_A_CHECKPOINT: Final = "a region of a checkpoint"


def weigh(key: bytes, value: bytes) -> Setsum:
    """What an item of a checkpoint's tree adds to its sum. Raises Corrupt."""
    if not key.startswith(REGION):
        return _NOTHING
    try:
        return Setsum.of_sums([decode(_IN_A_CHECKPOINT, value, Region).setsum])
    except BadInput as error:
        raise Corrupt(_IN_A_CHECKPOINT, str(error)) from error


def region_key(lsn: int) -> bytes:
    return REGION + number(lsn)


def range_key(region: int, place: int) -> bytes:
    return PAGES + number(region) + number(place)


def segment_key(segment: int) -> bytes:
    return SEGMENT + number(segment)


def relocated_key(lsn: int) -> bytes:
    return RELOCATED + number(lsn)


class Folded:
    """Behind `lsn` the volume's commits go on as its log has them; `start` is where the volume begins."""

    def __init__(self, nodes: Nodes, fold: Fold, page_size: int, start: int) -> None:
        self.fold = fold
        self.lsn = max(fold.lsn, start)
        self.settled_to = max(settled_by(fold), start)
        self.page_size = page_size
        self.tree = Tree(nodes, nodes_folder(fold.checkpoint), fold.tree, weigh)
        self._regions: tuple[tuple[int, ...], tuple[Region, ...]] | None = None
        self._nearest: tuple[int, Relocated] | None = None

    def relocations(self) -> list[tuple[int, Relocated]]:
        """All of them, and the LSN of the last commit that each has pages of, ascending."""
        found = self.tree.entries(RELOCATED, _behind(RELOCATED))
        return [(int.from_bytes(key[1:], "big"), decode(self.name, value, Relocated)) for key, value in found]

    def settled(self, landed: Landed) -> Landed:
        """The same commit, with the pages that it brought in its entry where they are now. It is not behind
        `settled_to`."""
        if not landed.is_inline:
            return landed
        _, relocated = self._relocated(landed.lsn)
        slot = relocated.slot_of(landed.lsn)
        if slot is None:
            raise Corrupt(self.name, f"its tree lacks the pages of LSN {landed.lsn}, which it said that it has")
        location = relocated.location_of(slot)
        return landed.moved(tuple(location if is_entry(each.object) else each for each in landed.locations))

    def _relocated(self, lsn: int) -> tuple[int, Relocated]:
        """The first that ends at that LSN or behind it."""
        nearest = self._nearest
        if nearest is None or not nearest[1].after < lsn <= nearest[0]:
            found = next(self.tree.entries(relocated_key(lsn), _behind(RELOCATED)), None)
            if found is None:
                raise Corrupt(self.name, f"its tree lacks the pages of LSN {lsn}, which it said that it has")
            key, value = found
            self._nearest = nearest = int.from_bytes(key[1:], "big"), decode(self.name, value, Relocated)
        return nearest

    def regions(self) -> tuple[tuple[int, ...], tuple[Region, ...]]:
        """Their LSNs, ascending, and the regions."""
        if self._regions is None:
            found = list(self.tree.entries(REGION, _behind(REGION)))
            lsns = tuple(int.from_bytes(key[1:], "big") for key, _ in found)
            self._regions = lsns, tuple(decode(self.name, value, Region) for _, value in found)
        return self._regions

    def at(self, lsn: int) -> Landed:
        """The commit that made this LSN, without what it wrote. Raises Forgotten, unless a region ends with it."""
        region = self._region(lsn)
        commit = region.commit
        return Landed(
            lsn,
            region.before,
            region.length,
            commit.floor,
            commit.time,
            decode_pages(self.name, commit.pages),
            (),
            commit.client,
            commit.token,
            commit.content,
            commit.bindings,
            commit.setsum,
        )

    def length_at(self, lsn: int) -> int:
        return self._region(lsn).length

    def resolve(self, lsn: int, pages: PageSet) -> Resolved:
        """As History.resolve, of these pages, none of which lies beyond the length there."""
        self._region(lsn)
        wanted, zeros, found = PageSet(pages), PageSet(), list[tuple[Landed, PageSet]]()
        for at, region in self._down_from(lsn):
            if not wanted:
                break
            for segment, held in self._parts(region, wanted):
                own = held & wanted
                if own:
                    found.append((self._landed(at, region, segment, held), own))
            for _, own in found:
                wanted.difference_update(own)
            cut = beyond(wanted, region.floor)
            zeros.update(cut)
            wanted.difference_update(cut)
        return Resolved(found, zeros, wanted)

    def newest_in(self, region_lsn: int, lsn: int, pages: PageSet) -> PageSet:
        """Those of `pages`, all of them in the region up to `region_lsn`, that at `lsn` still read as it has them."""
        wanted = pages - beyond(pages, page_count(self.length_at(lsn), self.page_size))
        for at, region in self._down_from(lsn):
            if at <= region_lsn or not wanted:
                break
            for _, held in self._parts(region, wanted):
                wanted.difference_update(held)
            wanted.difference_update(beyond(wanted, region.floor))
        return wanted

    def changed(self, after: int, to: int) -> Run:
        """The regions of (after, to] taken together; each of these is the LSN of one, or where the volume begins."""
        lsns, regions = self.regions()
        self._region(to)
        if after not in lsns and after != regions[0].after:
            self._region(after)
        pages, floor, reach = PageSet(), NO_FLOOR, 0
        for at, region in self._down_from(to):
            if at <= after:
                break
            for _, held in self._parts(region, None):
                pages.update(held)
            floor, reach = min(floor, region.floor), max(reach, region.reach)
        return Run(pages, floor, reach)

    def places(self, region: int) -> list[int]:
        """The ranges that the region of that number has pages in."""
        start = PAGES + number(region)
        return [int.from_bytes(key[len(start) :], "big") for key, _ in self.tree.entries(start, _behind(start))]

    def range_at(self, region: int, place: int) -> dict[int, PageSet]:
        """What each segment has of a range."""
        value = self.tree.get(range_key(region, place))
        return {} if value is None else dict(self._decoded(value))

    def segment(self, segment: int) -> FoldedSegment:
        value = self.tree.get(segment_key(segment))
        if value is None:
            raise Corrupt(self.name, f"its tree lacks segment {segment}, which it said that it has")
        return decode(self.name, value, FoldedSegment)

    def segments(self) -> dict[int, FoldedSegment]:
        found = self.tree.entries(SEGMENT, _behind(SEGMENT))
        return {int.from_bytes(key[1:], "big"): decode(self.name, value, FoldedSegment) for key, value in found}

    @property
    def name(self) -> str:
        return self.fold.checkpoint

    def _region(self, lsn: int) -> Region:
        """The one that ends with that LSN. Raises Forgotten."""
        lsns, regions = self.regions()
        at = bisect_left(lsns, lsn)
        if at == len(lsns) or lsns[at] != lsn:
            name = VolumeId(self.fold.vid)
            raise Forgotten(f"LSN {lsn} of volume {name} was forgotten: read one from {self.lsn} on", oldest=self.lsn)
        return regions[at]

    def _down_from(self, lsn: int) -> Iterator[tuple[int, Region]]:
        lsns, regions = self.regions()
        for at in range(bisect_left(lsns, lsn + 1) - 1, -1, -1):
            yield lsns[at], regions[at]

    def _parts(self, region: Region, wanted: PageSet | None) -> Iterator[tuple[int, PageSet]]:
        """What each segment has of the region, in the ranges that `wanted` touches, or in all."""
        if wanted is None:
            start = PAGES + number(region.number)
            for _, value in self.tree.entries(start, _behind(start)):
                yield from self._decoded(value)
            return
        for place in ranges_of(wanted):
            found = self.tree.get(range_key(region.number, place))
            if found is not None:
                yield from self._decoded(found)

    def _decoded(self, value: bytes) -> Iterator[tuple[int, PageSet]]:
        for segment, pages in decode(self.name, value, PageRange).parts:
            yield segment, decode_pages(self.name, pages)

    def _landed(self, lsn: int, region: Region, segment: int, pages: PageSet) -> Landed:
        """What a segment has of a region, as if it were a commit."""
        return Landed(
            lsn=lsn,
            before=region.before,
            length=region.length,
            floor=region.length,
            time=0,
            pages=pages,
            locations=(self.segment(segment).location,),
            client=b"",
            token=b"",
            content=b"",
            bindings=b"",
        )


def _behind(start: bytes) -> bytes:
    """Of all keys that begin so."""
    return (int.from_bytes(start, "big") + 1).to_bytes(len(start), "big")
