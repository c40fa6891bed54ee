"""Plan: what of a snapshot lies where, across a volume and the ones it was forked from (DESIGN §5, §6).

A fork's pages up to its LSN are its parent's, so a read is planned volume by volume, and each volume's part is read
as its own.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

from ...volume.frame import Frame
from ...volume.ids import VolumeId
from ...volume.pageset import PageSet
from ...volume.wire import SnapshotInfo
from ..metastore.history import History, Landed, Resolved
from ..metastore.open_volume import Volume
from ..metastore.open_volumes import Volumes
from ..store.tree_nodes import loading, loading_in_thread
from .pagestore import Pagestore
from .read import Source

_FEW_PAGES: Final = 500
"""Each may lie in a commit or a location of its own: to look for more is work for a thread."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Where the pages of one read lie."""

    sources: list[tuple[VolumeId, list[Source]]]
    zeros: PageSet


class Reads:
    """An answer to read_pages (volume.protocols.PagesRead)."""

    def __init__(self, snapshot: SnapshotInfo, zeros: PageSet, parts: list[AsyncIterator[Frame]]) -> None:
        self.snapshot = snapshot
        self.zeros = zeros
        self._parts = parts

    async def frames(self) -> AsyncIterator[Frame]:
        for part in self._parts:
            async for frame in part:
                yield frame


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
    pagestore: Pagestore, snapshot: SnapshotInfo, plan: Plan, extra_bytes: int
) -> AsyncGenerator[Reads, None]:
    """The frames of a plan. The extra ones come from the newest volume's part."""
    async with AsyncExitStack() as stack:
        parts: list[AsyncIterator[Frame]] = []
        for vid, sources in plan.sources:
            extra, extra_bytes = extra_bytes, 0
            parts.append(await stack.enter_async_context(pagestore.read(vid, sources, extra_bytes=extra)))
        yield Reads(snapshot, plan.zeros, parts)
