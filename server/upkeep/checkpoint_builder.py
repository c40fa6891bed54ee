"""Checkpoint builder: a volume's next checkpoint, from the one that stands and the commits since it (DESIGN §5).

    regions     one up to each LSN that is held, and one up to the LSN that is folded to; those that stood are put
                together where nobody holds what lay between, and the commits since into the newest
    pages       those in log entries, or relocated from there, are copied into segments of the volume's own, and so are
                those of segments that have too little left that anybody could read; fragments stay where they are
    sums        every commit that is folded is what it said that it adds; and all of these together are what the
                checkpoint keeps and what it leaves out

Nothing that stands is changed, and nothing is written here but new segments: what the tree comes to is told.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

import msgspec

from ...volume.checkpoint import (
    NO_FLOOR,
    RANGE_BITS,
    EndingCommit,
    FoldedSegment,
    PageRange,
    Region,
    pages_of,
    ranges_of,
)
from ...volume.entry import is_entry
from ...volume.envelope import encode
from ...volume.errors import Corrupt
from ...volume.ids import SegmentId
from ...volume.pageset import PageSet, beyond, encode_pages, page_count
from ...volume.records import Location
from ...volume.setsum import Setsum
from ..metastore.folded import Folded, range_key, region_key, segment_key
from ..metastore.history import History, Landed, Run
from ..store.tree_change import Splice, put, without
from ..store.tree_nodes import loading
from .page_copies import Held, PageCopies

MOST_DEAD: Final = 0.2
"""Of the pages that a volume's segments hold: where more of them are read by nobody, the worst are copied."""
TIER: Final = 4
MOST_IN_A_TIER: Final = 8
"""Segments below half the size of one that is full, whose pages number alike within that factor: where there are more,
they are put together."""


@dataclass(slots=True)
class _Region:
    lsn: int
    number: int
    after: int
    length: int
    floor: int = NO_FLOOR
    reach: int = 0
    setsum: Setsum = field(default_factory=Setsum)
    before: int = 0
    commit: EndingCommit | None = None

    @classmethod
    def of(cls, lsn: int, region: Region) -> _Region:
        return cls(
            lsn,
            region.number,
            region.after,
            region.length,
            region.floor,
            region.reach,
            Setsum.of_sums([region.setsum]),
            region.before,
            region.commit,
        )

    def item(self) -> tuple[bytes, bytes]:
        assert self.commit is not None
        region = Region(
            number=self.number,
            after=self.after,
            length=self.length,
            floor=self.floor,
            reach=self.reach,
            setsum=self.setsum.digest,
            before=self.before,
            commit=self.commit,
        )
        return region_key(self.lsn), encode(region)


class _Moving(NamedTuple):
    """Pages that are to be copied into a region's own segments."""

    region: _Region
    held: list[Held]


class Next(NamedTuple):
    """What the next checkpoint's tree has otherwise than the one that stands."""

    splices: list[Splice]
    superseded: Setsum
    """Of the log items that are in it no more, or never were, though the one that stands or a commit since has them."""
    unused: list[str]
    """Objects that it has no page in any more."""
    copied_pages: int


class CheckpointBuilder:
    """Builds one checkpoint of `history`'s volume. `save` makes a new segment durable."""

    def __init__(
        self,
        history: History,
        base: Folded | None,
        copies: PageCopies,
        save: Callable[[SegmentId, bytes], Awaitable[Location]],
    ) -> None:
        self._history = history
        self._base = base
        self._copies = copies
        self._save = save
        self._regions: dict[int, _Region] = {}
        """Those that stood, by LSN."""
        self._ranges: dict[tuple[int, int], dict[int, PageSet]] = {}
        """As they are now, by region and range; those that nobody asked for aren't here."""
        self._segments: dict[int, FoldedSegment] = {}
        self._changed: set[int] = set()
        """Segments."""
        self._free_number = 0
        """Of a region."""
        self._superseded = Setsum()
        self._relocated: set[str] = set()
        """Segments that have pages of commits one by one. They are no fragments: what is folded of them is copied, and
        relocation.py lets go of them."""
        self._fragments: set[str] = set()
        """Named by the commits that were folded."""
        self._copied_pages = 0

    async def build(self, lsn: int, held: Iterable[int], *, keeps_end: bool = True) -> Next:
        """Fold up to that LSN, and keep what reads as it does at those in `held`, and at `lsn` with `keeps_end`. Raises
        Corrupt, Unavailable."""
        if self._base is not None:
            lsns, regions = await loading(self._base.regions)
            self._regions = {at: _Region.of(at, region) for at, region in zip(lsns, regions, strict=True)}
            self._free_number = 1 + max((region.number for region in regions), default=-1)
            self._segments = await loading(self._base.segments)
            self._relocated = {relocated.object for _, relocated in await loading(self._base.relocations)}
        before, after = set(self._regions), self._history.start
        now: dict[int, _Region] = {}
        for end in sorted({at for at in held if self._can_end_at(at) and at <= lsn} | ({lsn} if keeps_end else set())):
            now[end] = await self._region(after, end)
            after = end
        await self._leave_out(after, lsn)
        await self._clean(list(now.values()))
        return await self._next(before, now)

    def _can_end_at(self, lsn: int) -> bool:
        """Whether all of that LSN is still there: it may be held by a pin that was merely asked for."""
        return lsn in self._regions or lsn > (self._base.lsn if self._base else self._history.start)

    async def _region(self, after: int, end: int) -> _Region:
        stood = [self._regions[at] for at in sorted(self._regions) if after < at <= end]
        base = self._base.lsn if self._base else self._history.start
        first = max(after, base)
        if not stood:
            region = _Region(end, self._free_number, after, 0)
            self._free_number += 1
        else:
            region = stood[0]
            for upper in stood[1:]:
                await self._put_together(region, upper)
        region.lsn = end
        if end > first:
            await self._add_commits(region, first, end)
        return region

    async def _leave_out(self, after: int, end: int) -> None:
        """All of (after, end], which nobody reads any more."""
        for at in sorted(self._regions):
            if after < at <= end:
                await self._take_out(self._regions[at], PageSet(), 0)
        for lsn in range(max(after, self._base.lsn if self._base else self._history.start) + 1, end + 1):
            await self._check(await loading(partial(self._history.at, lsn)))

    async def _put_together(self, lower: _Region, upper: _Region) -> None:
        """All of `upper` into `lower`."""
        places = await self._places(upper.number)
        moved = PageSet()
        for place in places:
            moved |= PageSet.union(PageSet(), *(await self._range(upper.number, place)).values())
        await self._take_out(lower, moved, upper.floor)
        for place in places:
            parts, into = self._ranges[upper.number, place], await self._range(lower.number, place)
            for segment, pages in parts.items():
                into[segment] = into.get(segment, PageSet()) | pages
            self._ranges[upper.number, place] = {}
        lower.setsum += upper.setsum
        lower.floor, lower.reach = min(lower.floor, upper.floor), max(lower.reach, upper.reach)
        lower.length, lower.before, lower.commit = upper.length, upper.before, upper.commit

    async def _add_commits(self, region: _Region, after: int, end: int) -> None:
        """The commits (after, end], which come after all that the region has."""
        taken, floor, reach = PageSet(), NO_FLOOR, 0
        kept: list[tuple[Landed, PageSet]] = []
        for lsn in range(end, after, -1):
            landed = await loading(partial(self._history.at, lsn))
            await self._check(landed)
            own = landed.pages - taken - beyond(landed.pages, floor)
            if own:
                kept.append((landed, own))
            taken |= landed.pages
            run = Run.of(landed, self._history.page_size)
            floor, reach = min(floor, run.floor), max(reach, run.reach)
        newest = await loading(partial(self._history.at, end))
        pages = PageSet.union(PageSet(), *(own for _, own in kept))
        if pages and pages.max() > page_count(newest.length, self._history.page_size):
            raise Corrupt(newest.locations[0].object, f"a commit up to LSN {end} has pages beyond the volume's length")
        await self._take_out(region, pages, floor)
        region.floor, region.reach = min(region.floor, floor), max(region.reach, reach)
        region.length, region.before, region.commit = newest.length, newest.before, _ending(newest)
        inline: list[Held] = []
        for landed, own in kept:
            for location, placed in landed.placed():
                part = own & placed
                if not part:
                    continue
                held = Held(location, landed.lsn, part)
                if self._is_copied(location):
                    inline.append(held)
                else:
                    segment = self._add_segment(location, landed.lsn, len(placed))
                    await self._put_into(region, segment, part, await self._copies.setsum([held]))
        await self._copy(region, inline)

    async def _check(self, landed: Landed) -> None:
        """That the commit's pages are what it said that it adds."""
        held = [Held(location, landed.lsn, placed) for location, placed in landed.placed()]
        adds = await self._copies.setsum(held)
        if adds.digest != landed.setsum:
            where = landed.locations[0].object if landed.locations else f"LSN {landed.lsn}"
            raise Corrupt(where, f"its pages don't add up to the sum of the commit that made LSN {landed.lsn}")
        self._superseded += adds
        self._fragments.update(each.object for each in landed.locations if not self._is_copied(each))

    def _is_copied(self, location: Location) -> bool:
        """Whether what is folded of it doesn't stay there."""
        return is_entry(location.object) or location.object in self._relocated

    async def _copy(self, region: _Region, held: list[Held]) -> None:
        async with aclosing(self._copies.copies(held)) as copies:
            async for copied in copies:
                location = await self._save(copied.id, copied.data)
                segment = self._add_segment(location, 0, len(copied.pages))
                await self._put_into(region, segment, copied.pages, copied.setsum)
                self._copied_pages += len(copied.pages)

    def _add_segment(self, location: Location, lsn: int, pages: int) -> int:
        segment = max(self._segments, default=-1) + 1
        self._segments[segment] = FoldedSegment(
            object=location.object, size=location.size, slot=location.slot, lsn=lsn, pages=pages, live=0
        )
        return segment

    async def _put_into(self, region: _Region, segment: int, pages: PageSet, setsum: Setsum) -> None:
        """These pages, none of which the region has any more, are in that segment."""
        for place in ranges_of(pages):
            parts = await self._range(region.number, place)
            parts[segment] = parts.get(segment, PageSet()) | (pages & pages_of(place))
        region.setsum += setsum
        self._superseded -= setsum
        self._count(segment, len(pages))

    async def _take_out(self, region: _Region, pages: PageSet, floor: int) -> None:
        """These pages, and all beyond the floor, are not the region's any more."""
        out: dict[int, PageSet] = defaultdict(PageSet)
        places = set(ranges_of(pages))
        if floor < NO_FLOOR:
            places.update(place for place in await self._places(region.number) if (place + 1) << RANGE_BITS > floor)
        for place in sorted(places):
            parts = await self._range(region.number, place)
            for segment in list(parts):
                gone = (parts[segment] & pages) | beyond(parts[segment], floor)
                if gone:
                    out[segment] |= gone
                    parts[segment] = parts[segment] - gone
                    if not parts[segment]:
                        del parts[segment]
        held = [Held(self._segments[at].location, self._segments[at].lsn, gone) for at, gone in out.items()]
        setsum = await self._copies.setsum(held)
        region.setsum -= setsum
        self._superseded += setsum
        for segment, gone in out.items():
            self._count(segment, -len(gone))

    async def _clean(self, regions: list[_Region]) -> None:
        """Copy what is left in segments that have too little of it."""
        victims = self._victims()
        if not victims:
            return
        moving = [_Moving(region, []) for region in regions]
        for region, held in moving:
            for place in await self._places(region.number):
                parts = await self._range(region.number, place)
                for segment in victims & parts.keys():
                    own = parts.pop(segment)
                    held.append(Held(self._segments[segment].location, self._segments[segment].lsn, own))
                    self._count(segment, -len(own))
        for region, held in moving:
            if held:
                setsum = await self._copies.setsum(held)
                region.setsum -= setsum
                self._superseded += setsum
                await self._copy(region, held)

    def _victims(self) -> set[int]:
        alive = {at: segment for at, segment in self._segments.items() if segment.live}
        victims: set[int] = set()
        tiers: dict[int, list[int]] = defaultdict(list)
        for at, segment in alive.items():
            if 2 * segment.pages < self._copies.most_pages:
                tiers[_tier_of(segment.live)].append(at)
        for own in tiers.values():
            if len(own) > MOST_IN_A_TIER:
                victims.update(own)
        pages = sum(segment.pages for at, segment in alive.items() if at not in victims)
        dead = pages - sum(segment.live for at, segment in alive.items() if at not in victims)
        for at in sorted(alive.keys() - victims, key=lambda at: alive[at].live / alive[at].pages):
            if dead <= MOST_DEAD * pages:
                break
            victims.add(at)
            pages -= alive[at].pages
            dead -= alive[at].pages - alive[at].live
        return victims

    async def _next(self, before: set[int], now: dict[int, _Region]) -> Next:
        splices = [put(*region.item()) for region in now.values()]
        splices += [without(region_key(lsn)) for lsn in before - now.keys()]
        for (number, place), parts in self._ranges.items():
            stored = PageRange(tuple((at, encode_pages(pages)) for at, pages in sorted(parts.items()) if pages))
            key = range_key(number, place)
            splices.append(put(key, encode(stored)) if stored.parts else without(key))
        live = {segment.object for segment in self._segments.values() if segment.live}
        unused = self._fragments - live
        for at in sorted(self._changed):
            segment = self._segments[at]
            if segment.live:
                splices.append(put(segment_key(at), encode(segment)))
            else:
                splices.append(without(segment_key(at)))
                if segment.object not in live:
                    unused.add(segment.object)
        return Next(sorted(splices), self._superseded, sorted(unused), self._copied_pages)

    async def _range(self, number: int, place: int) -> dict[int, PageSet]:
        """Its parts, to be changed here."""
        parts = self._ranges.get((number, place))
        if parts is None:
            parts = {}
            if self._base is not None:
                parts = await loading(partial(self._base.range_at, number, place))
            self._ranges[number, place] = parts
        return parts

    async def _places(self, number: int) -> list[int]:
        """The ranges of a region that have pages, or had."""
        here = {place for own, place in self._ranges if own == number}
        if self._base is not None:
            here.update(await loading(partial(self._base.places, number)))
        return sorted(here)

    def _count(self, segment: int, more: int) -> None:
        stands = self._segments[segment]
        self._segments[segment] = msgspec.structs.replace(stands, live=stands.live + more)
        self._changed.add(segment)


def _ending(landed: Landed) -> EndingCommit:
    return EndingCommit(
        floor=landed.floor,
        pages=encode_pages(landed.pages),
        client=landed.client,
        token=landed.token,
        content=landed.content,
        setsum=landed.setsum,
        time=landed.time,
        bindings=landed.bindings,
    )


def _tier_of(pages: int) -> int:
    tier = 0
    while pages >= TIER:
        pages //= TIER
        tier += 1
    return tier
