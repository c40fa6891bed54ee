"""Fold scrub: the checkpoint that a volume is read by, to its last page, and its deadlists.

What counts is the volume's newest fold: those before it, and what only they lead to, are garbage (garbage_plan.py). Its
tree is read whole; of what that says every segment is read, each page hashed anew, and each region's sum made of that;
and all regions together are, with what the fold left out, what was folded. Relocated segments: relocation_check.py.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from ...volume.checkpoint import (
    PAGES,
    REGION,
    RELOCATED,
    SEGMENT,
    Deadlist,
    FoldedSegment,
    PageRange,
    Region,
    Relocated,
    deadlist_key,
    open_deadlist,
    pages_of,
    parse_deadlist,
)
from ...volume.envelope import decode
from ...volume.errors import BudwoodError, Corrupt, Unsupported
from ...volume.ids import VolumeId
from ...volume.pageset import PageSet, decode_pages
from ...volume.records import Fold, settled_by
from ...volume.setsum import EMPTY_SUM, Setsum, log_sum
from ...volume.tree_node import node_key
from ..metastore.folded import Folded, weigh
from ..metastore.open_volume import Volume
from ..store.tree_nodes import Nodes, loading
from .findings import Findings, Span, Wrong, words_of
from .objects import Objects
from .reach import Reach
from .relocation_check import check_relocated
from .segment_check import CheckedPart, read_segment
from .tree_diff import Hidden, difference

_NODE_BYTES: Final = 4 << 20


@dataclass(slots=True)
class _Checkpoint:
    """What its tree says."""

    regions: dict[int, tuple[int, Region]] = field(default_factory=dict[int, tuple[int, Region]])
    """By number: the LSN that each ends with, too."""
    held: dict[int, dict[int, PageSet]] = field(default_factory=lambda: defaultdict[int, dict[int, PageSet]](dict))
    """By segment and region."""
    segments: dict[int, FoldedSegment] = field(default_factory=dict[int, FoldedSegment])
    relocated: list[tuple[int, Relocated]] = field(default_factory=list[tuple[int, Relocated]])
    """With the LSN of the last commit of each."""
    problems: list[str] = field(default_factory=list[str])


class FoldScrub:
    def __init__(self, objects: Objects, reach: Reach, findings: Findings) -> None:
        self._objects = objects
        self._reach = reach
        self._findings = findings

    async def run(self, vid: VolumeId) -> None:
        """Raises Unavailable, Unauthorized."""
        volume = await self._reach.volume(str(vid))
        if volume is None or not isinstance(volume.history.folding, Folded):
            return
        await self._deadlists(volume.history.folding.fold)
        await self._checkpoint(volume, volume.history.folding)

    async def _deadlists(self, fold: Fold) -> None:
        """The newest fold's, and those that stand before it."""
        deadlist = await check_deadlist(self._objects, fold, self._findings)
        while deadlist is not None and deadlist.base:
            deadlist = await self._deadlist(fold.vid, deadlist.base)

    async def _deadlist(self, vid: bytes, checkpoint: str) -> Deadlist | None:
        key = deadlist_key(checkpoint)
        data = await self._objects.get(key)
        if data is None:
            return None
        try:
            deadlist = open_deadlist(key, data)
            if (deadlist.vid, deadlist.checkpoint) != (vid, checkpoint):
                raise Corrupt(key, f"it says that it is that of {deadlist.checkpoint}")
        except (Corrupt, Unsupported) as error:
            self._findings.tell(Wrong(key, [words_of(key, error)]))
            return None
        return deadlist

    async def _checkpoint(self, volume: Volume, folded: Folded) -> None:
        root = folded.tree.root
        nodes = Nodes(self._objects.store, limit_bytes=_NODE_BYTES, patience=self._objects.patience)
        found = await difference(nodes, folded.tree.folder, None, root, weigh)
        for hidden in found.hidden:
            spans = await self._hidden(volume, folded, hidden)
            self._findings.tell(Wrong(hidden.key, [hidden.problem], spans))
        says = _Checkpoint()
        for key, value in found.items.items():
            try:
                _take(says, folded.name, key, value or b"")
            except (Corrupt, Unsupported) as error:
                says.problems.append(words_of(folded.name, error))
        whole = not found.hidden and not says.problems
        if whole:
            says.problems += _problems(says, volume, folded.fold)
            says.problems += await self._sum_problems(volume, folded.fold)
        if root is not None and says.problems:
            # Each node is whole, and together they say what can't be.
            spans = await self._reach.of_all(volume.id, volume.history.start + 1)
            self._findings.tell(Wrong(node_key(folded.tree.folder, root), says.problems, spans))
        sums: dict[int, Setsum] = defaultdict(Setsum)
        lost = set[int]()
        for number, segment in sorted(says.segments.items()):
            await self._segment(volume, says, number, segment, sums, lost)
        for number, (lsn, region) in says.regions.items():
            if whole and number not in lost and sums[number].digest != region.setsum and root is not None:
                problem = f"the pages of its region up to LSN {lsn} add up to another sum than it says"
                spans = await self._reach.of_all(volume.id, lsn)
                self._findings.tell(Wrong(node_key(folded.tree.folder, root), [problem], spans))
        for _, relocated in says.relocated:
            await check_relocated(self._objects, self._reach, self._findings, volume, relocated)

    async def _segment(
        self,
        volume: Volume,
        says: _Checkpoint,
        number: int,
        segment: FoldedSegment,
        sums: dict[int, Setsum],
        lost: set[int],
    ) -> None:
        wrong = Wrong(segment.object)
        checked = await read_segment(self._objects, self._reach, segment.size, wrong, "a checkpoint leads to it")
        part = checked.part(segment.slot, volume.vid.raw)
        if checked.parts and (part is None or part.page_size != volume.page_size):
            wrong.add(f"it has no pages of volume {volume.id} where its checkpoint says")
            part = None
        for region, pages in says.held.get(number, {}).items():
            if region not in says.regions:
                continue
            whole = pages & PageSet(part.hashes) if part is not None else PageSet()
            bad = pages - whole
            if bad:
                lost.add(region)
                wrong.add("it lacks pages that its checkpoint has there")
                wrong.spoils += await self._reach.of_region(volume, says.regions[region][0], bad)
            if part is not None:
                sums[region] += _sum_of(volume.vid.raw, segment, part, whole)
        self._findings.tell(wrong)

    async def _hidden(self, volume: Volume, folded: Folded, hidden: Hidden) -> list[Span]:
        """What can't be read without that node."""
        first, end = hidden.pointer.first, hidden.end
        start = volume.history.start + 1
        if first[:1] != PAGES or end is None or end[:1] != PAGES:
            return await self._reach.of_all(volume.id, start)
        try:
            lsns, regions = await loading(folded.regions)
        except BudwoodError:
            return await self._reach.of_all(volume.id, start)
        spans: list[Span] = []
        for lsn, region in zip(lsns, regions, strict=True):
            low, high = max(_place(first, region.number), 0), _place(end, region.number)
            pages = PageSet().union(*(pages_of(place) for place in range(low, min(high, low + _FEW) + 1)))
            if low <= high and high - low < _FEW:
                spans += await self._reach.of_region(volume, lsn, pages)
            elif low <= high:
                spans += await self._reach.of_all(volume.id, lsn)
        return spans

    async def _sum_problems(self, volume: Volume, fold: Fold) -> list[str]:
        """Where all logs that the volume was in have rolled up that fold: what it keeps and leaves out is what was
        folded."""
        folded = Setsum()
        for name in {volume.birth.log, volume.log, *(place.log for place in volume.closes)}:
            state = await self._reach.rolled_state(name, volume.id)
            if state is None or state.stays[-1].fold != fold:
                return []
            folded += Setsum.of_sums([state.folded])
        kept = fold.tree.setsum if fold.tree else EMPTY_SUM
        if Setsum.of_sums([kept, fold.superseded]).digest != folded.digest:
            return ["what it keeps and what it leaves out is not what was folded"]
        return []


_FEW: Final = 16
"""Ranges of pages that are looked at one by one."""


async def check_deadlist(objects: Objects, fold: Fold, findings: Findings) -> Deadlist | None:
    """That of a fold whose deadlist must stand; None, and told, if it doesn't."""
    key = deadlist_key(fold.checkpoint)
    data = await objects.get(key)
    try:
        if data is None:
            raise Corrupt(key, "it is missing, and nothing of it was collected")
        return parse_deadlist(fold, data)
    except (Corrupt, Unsupported) as error:
        findings.tell(Wrong(key, [words_of(key, error)]))
        return None


def _take(says: _Checkpoint, name: str, key: bytes, value: bytes) -> None:
    letter, rest = key[:1], key[1:]
    if letter == REGION:
        region = decode(name, value, Region)
        if region.number in says.regions:
            raise Corrupt(name, f"two regions of it have the number {region.number}")
        says.regions[region.number] = int.from_bytes(rest, "big"), region
    elif letter == SEGMENT:
        says.segments[int.from_bytes(rest, "big")] = decode(name, value, FoldedSegment)
    elif letter == RELOCATED:
        says.relocated.append((int.from_bytes(rest, "big"), decode(name, value, Relocated)))
    elif letter == PAGES:
        region_number, place = int.from_bytes(rest[:8], "big"), int.from_bytes(rest[8:], "big")
        taken = PageSet()
        for segment, stored in decode(name, value, PageRange).parts:
            pages = decode_pages(name, stored)
            if pages & taken or pages - pages_of(place):
                raise Corrupt(name, f"range {place} of region {region_number} has pages that don't belong there")
            taken |= pages
            held = says.held[segment]
            held[region_number] = held.get(region_number, PageSet()) | pages


def _problems(says: _Checkpoint, volume: Volume, fold: Fold) -> list[str]:
    problems: list[str] = []
    regions = sorted(says.regions.values(), key=lambda each: each[0])
    end = regions[-1][0] if regions else volume.history.start
    is_all = end == max(fold.lsn, volume.history.start) or (volume.state.is_forgotten and end < fold.lsn)
    if not is_all or (regions and regions[0][1].after != volume.history.start):
        problems.append("its regions are not what was folded")
    if any(after.after != lsn for (lsn, _), (_, after) in pairwise(regions)):
        problems.append("its regions do not follow one another")
    if any(region not in says.regions for held in says.held.values() for region in held):
        problems.append("it has pages of no region")
    live = {number: sum(map(len, held.values())) for number, held in says.held.items()}
    if live != {number: segment.live for number, segment in says.segments.items()}:
        problems.append("its segments have other pages than it counts")
    before = 0
    for last, relocated in says.relocated:
        lsns = relocated.lsns
        if relocated.after < before or not lsns or lsns[-1] != last or last > settled_by(fold):
            problems.append("its relocated segments don't follow one another")
        before = last
    return problems


def _sum_of(vid: bytes, segment: FoldedSegment, part: CheckedPart, pages: PageSet) -> Setsum:
    """Of the log items of these pages."""
    by_lsn: dict[int, list[int]] = defaultdict(list)
    for page in pages:
        by_lsn[segment.lsn or part.lsns[page]].append(page)
    total = Setsum()
    for lsn, own in by_lsn.items():
        total += log_sum(vid, lsn, own, b"".join(part.hashes[page] for page in own))
    return total


def _place(key: bytes, region: int) -> int:
    """Where a key of page ranges lies, seen from that region: -1 before it, the highest behind it."""
    number = int.from_bytes(key[1:9], "big")
    if number == region:
        return int.from_bytes(key[9:17], "big")
    return -1 if number < region else 1 << 20
