"""Reading: what of a snapshot lies where, across a volume and the ones it was forked from (DESIGN §5, §6).

A fork's pages up to its LSN are its parent's, so a read is planned volume by volume, and each volume's part is read
as its own.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial

import msgspec

from ..volume.errors import BadInput, NotFound
from ..volume.ids import VolumeId
from ..volume.pageset import PageSet, encode_pages
from ..volume.wire import CommitInfo, SnapshotInfo
from .metastore.history import History, Landed
from .metastore.volume import Volume
from .metastore.volumes import Volumes
from .pagestore.pagestore import Pagestore
from .pagestore.read import Frame, Source

__all__ = ["Plan", "Reads", "commits_between", "lsn_at_time", "open_reads", "plan_reads", "snapshot_at"]


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
        at = min(lsn, volume.history.head)
        if at >= volume.history.start:
            resolved = volume.history.resolve(at, pages)
            zeros |= resolved.zeros
            pages = resolved.below
            own = [source for landed, held in resolved.found for source in _sources(volume, landed, held, at, above)]
            if own:
                sources.append((volume.vid, own))
            above += ((volume.history, at),)
        if not pages or volume.parent is None:
            return Plan(sources, zeros | pages)
        lsn = min(lsn, volume.history.start)
        volume = await volumes.get(volume.parent)


def _sources(
    volume: Volume, landed: Landed, held: PageSet, lsn: int, above: tuple[tuple[History, int], ...]
) -> list[Source]:
    return [
        Source(location, held & placed, partial(_valid, volume, landed, placed, lsn, above))
        for location, placed in landed.locations
        if held.intersect(placed)
    ]


def _valid(
    volume: Volume, landed: Landed, placed: PageSet, lsn: int, above: tuple[tuple[History, int], ...], pages: PageSet
) -> PageSet:
    """Which pages of a frame are the snapshot's: neither this volume nor a fork `above` it wrote or cut them since."""
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


async def snapshot_at(volumes: Volumes, volume: Volume, lsn: int) -> SnapshotInfo:
    """The snapshot at an LSN, which may be one that the volume shares with its parent. Raises NotFound."""
    if lsn < 0:
        raise BadInput(f"LSN {lsn} can't be: LSNs start at 1, and 0 is the empty volume")
    own = volume
    while lsn < own.history.start:
        assert own.parent is not None
        own = await volumes.get(own.parent)
    found = own.snapshot(lsn)
    if own is volume:
        return found
    return msgspec.structs.replace(found, vid=volume.vid.raw, upper=volume.state.head + 1, log=volume.log)


async def commits_between(volumes: Volumes, volume: Volume, after: int, to: int, limit: int) -> list[CommitInfo]:
    """The commits (after, to], oldest first, the shared ones included; at most `limit`."""
    history = volume.history
    found: list[CommitInfo] = []
    if after < history.start and volume.parent is not None:
        parent = await volumes.get(volume.parent)
        found = await commits_between(volumes, parent, after, min(to, history.start), limit)
    first = max(after, history.start) + 1
    last = min(to, first + limit - len(found) - 1)
    found.extend(_info(history.at(lsn)) for lsn in range(first, last + 1))
    return found


async def lsn_at_time(volumes: Volumes, volume: Volume, ms: int) -> int:
    """The last LSN that is not later. Raises NotFound if the volume is younger."""
    if ms < volume.birth.time and volume.parent is None:
        raise NotFound(f"volume {volume.id} did not exist at that time")
    lsn = volume.history.at_time(ms)
    if ms < volume.birth.time and volume.parent is not None:
        parent = await volumes.get(volume.parent)
        lsn = min(lsn, await lsn_at_time(volumes, parent, ms))
    return lsn


def _info(landed: Landed) -> CommitInfo:
    return CommitInfo(
        lsn=landed.lsn,
        base=landed.lsn - 1,
        length=landed.length,
        floor=landed.floor,
        pages=encode_pages(landed.pages),
        client=landed.client,
        time=landed.time,
        content=landed.content,
        bindings=landed.bindings,
    )
