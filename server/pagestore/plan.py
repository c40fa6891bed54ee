"""Plan: what of a snapshot lies where, across a volume and the ones it was forked from (DESIGN §5, §6).

A fork's pages up to its LSN are its parent's, so a read is planned volume by volume, and each volume's part is read
as its own.

A plan says where pages lay when it was made. A reader without a pin that is slow, or sleeps, may find that they lie
elsewhere by now, since they were folded and what they lay in was collected. So where an object can't be had, or what
was found is the snapshot's no more, the log is read again, and the rest looked for anew; only what still leads there is
damaged (S0.36).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Final, TypeAlias

from ...volume.errors import Corrupt, Unavailable
from ...volume.frame import Frame
from ...volume.ids import VolumeId
from ...volume.pageset import PageSet
from ...volume.wire import ALONE, SnapshotInfo
from ..metastore.history import History, Landed, Resolved
from ..metastore.open_volume import Volume
from ..metastore.open_volumes import Volumes
from ..store.tree_nodes import loading, loading_in_thread
from .pagestore import Pagestore
from .read import RANGE_BYTES, Source
from .slices import sliced

_FEW_PAGES: Final = 500
"""Each may lie in a commit or a location of its own: to look for more is work for a thread."""

_MOST_TURNS: Final = 4
"""Of looking for what isn't where it was: in each a collection must have come between."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Where the pages of one read lie."""

    sources: list[tuple[VolumeId, list[Source]]]
    zeros: PageSet

    @property
    def wanted(self) -> PageSet:
        return PageSet().union(*(source.wanted for _, sources in self.sources for source in sources))

    def leads_to(self, key: str) -> bool:
        return any(source.location.object == key for _, sources in self.sources for source in sources)


Again: TypeAlias = Callable[[PageSet], Awaitable[Plan]]
"""Where these pages of the snapshot lie by now."""


class Reads:
    """An answer to read_pages (volume.protocols.PagesRead)."""

    def __init__(
        self,
        pagestore: Pagestore,
        snapshot: SnapshotInfo,
        plan: Plan,
        parts: list[AsyncIterator[Frame]],
        again: Again | None,
    ) -> None:
        self.snapshot = snapshot
        self.zeros = plan.zeros
        self._pagestore = pagestore
        self._plan = plan
        self._parts = parts
        self._again = again

    async def frames(self) -> AsyncGenerator[Frame, None]:
        got, frames = PageSet(), self._planned()
        for turn in range(_MOST_TURNS):
            missed: Corrupt | None = None
            try:
                async with aclosing(frames):
                    async for frame in frames:
                        valid = frame.valid - got if turn else frame.valid
                        got |= valid
                        if valid or not turn:
                            yield Frame(frame.info, valid, frame.stored) if turn else frame
            except Corrupt as error:
                if self._again is None:
                    raise
                missed = error
            left = self._plan.wanted - got
            if self._again is None or (missed is None and not left):
                return
            # Gone, or by now some other frame has what is the snapshot's.
            plan = await self._again(left)
            if missed is not None and (plan.zeros or plan.leads_to(missed.key)):
                raise missed
            frames = self._elsewhere(plan)
        vid = VolumeId(self.snapshot.vid)
        raise Unavailable(f"volume {vid} is folded again and again while it is read: try again")

    async def _planned(self) -> AsyncGenerator[Frame, None]:
        for part in self._parts:
            async for frame in part:
                yield frame

    async def _elsewhere(self, plan: Plan) -> AsyncGenerator[Frame, None]:
        """Some at a time: what reads ahead must not outlive a turn."""
        most = max(1, RANGE_BYTES // self.snapshot.page_size)
        for vid, sources in plan.sources:
            for source in sources:
                wanted = iter(source.wanted)
                while some := PageSet(islice(wanted, most)):
                    async with self._pagestore.read(vid, [source._replace(wanted=some)]) as part:
                        frames = [frame async for frame in part]
                    for frame in frames:
                        yield frame


class SlicedReads(Reads):
    """Of the pages asked for, and nothing else."""

    async def frames(self) -> AsyncGenerator[Frame, None]:
        wanted = self._plan.wanted
        async with aclosing(super().frames()) as frames:
            async for frame in frames:
                yield sliced(frame, wanted, self.snapshot.page_size)


async def plan_reads(volumes: Volumes, volume: Volume, lsn: int, pages: PageSet) -> Plan:
    """Where `pages` lie at `lsn`, newest commits first."""
    sources: list[tuple[VolumeId, list[Source]]] = []
    zeros = PageSet()
    above: tuple[tuple[History, int], ...] = ()
    while True:
        if lsn >= volume.history.start:
            find = partial(_find, volume, lsn, pages, above)
            resolved, own = await (loading_in_thread(find) if len(pages) > _FEW_PAGES else loading(find))
            zeros |= resolved.zeros
            pages = resolved.below
            if own:
                sources.append((volume.vid, own))
            above += ((volume.history, lsn),)
        if not pages or volume.parent is None:
            return Plan(sources, zeros | pages)
        lsn = min(lsn, volume.history.start)
        volume = await volumes.parent_of(volume)


def _find(
    volume: Volume, lsn: int, pages: PageSet, above: tuple[tuple[History, int], ...]
) -> tuple[Resolved, list[Source]]:
    """Those pages that this volume's own commits have, and where."""
    resolved = volume.history.resolve(lsn, pages)
    return resolved, [
        Source(location, held & placed, partial(_valid, volume, landed, placed, lsn, above), landed.lsn)
        for landed, held in resolved.found
        for location, placed in landed.placed()
        if held.intersect(placed)
    ]


def _valid(
    volume: Volume, landed: Landed, placed: PageSet, lsn: int, above: tuple[tuple[History, int], ...], pages: PageSet
) -> PageSet:
    """Which pages of a frame are the snapshot's: neither this volume nor a fork `above` it wrote or cut them since.
    Raises NotLoaded."""
    valid = volume.history.newest_in(landed.lsn, lsn, pages & placed)
    for history, at in above:
        valid = history.resolve(at, valid).below
    return valid


@asynccontextmanager
async def open_reads(
    pagestore: Pagestore, snapshot: SnapshotInfo, plan: Plan, extra_bytes: int, again: Again | None = None
) -> AsyncGenerator[Reads, None]:
    """The frames of a plan, or of those that `again` makes. The extra ones come from the newest volume's part; ALONE:
    what nobody asked for is cut out of them."""
    kind = SlicedReads if extra_bytes == ALONE else Reads
    async with AsyncExitStack() as stack:
        parts: list[AsyncIterator[Frame]] = []
        for vid, sources in plan.sources:
            extra, extra_bytes = max(0, extra_bytes), 0
            parts.append(await stack.enter_async_context(pagestore.read(vid, sources, extra_bytes=extra)))
        yield kind(pagestore, snapshot, plan, parts, again)
