"""Reading: what a process answers, held against the model (DESIGN §9).

What was promised when the question was asked, and still is when the answer comes, is read exactly. Anything else is
read exactly, or said to be forgotten.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise

from ...server.node import Node
from ...volume.calls import (
    PULL_CHANGES,
    PULL_COMMITS,
    RULES,
    SNAPSHOT,
    RangeRequest,
    Ruled,
    SnapshotRequest,
    VolumeRequest,
)
from ...volume.errors import Forgotten, NotFound
from ...volume.pageset import decode_pages
from ...volume.rules import REPLICATED
from ...volume.wire import Changes, SnapshotInfo
from ..commits import pages_at
from .model import PAGE_SIZE, Snapshot, Violation, Volume
from .process import Process


async def read_at(process: Process, volume: Volume, lsn: int) -> bool:
    """Whether that LSN could be read whole: it was checked then. Raises Violation, Unavailable."""
    before, known = volume.promised(lsn), lsn <= volume.head
    try:
        found = await process.ask(partial(_snapshot, volume=volume, lsn=lsn))
    except Forgotten as error:
        if before and volume.promised(lsn):
            raise Violation(f"{volume}: LSN {lsn} is promised, and {process.name} says: {error}") from error
        return False
    except NotFound as error:
        if known:
            raise Violation(f"{volume}: LSN {lsn} was acknowledged, and {process.name} says: {error}") from error
        return False
    volume.see(lsn, found)
    return True


async def _snapshot(node: Node, *, volume: Volume, lsn: int) -> Snapshot:
    pages = await pages_at(node, volume.vid, lsn)
    info = await node.ask(SNAPSHOT, SnapshotRequest(volume.vid.raw, lsn=lsn))
    return Snapshot(pages, -(-info.length // PAGE_SIZE))


async def newest(process: Process, volume: Volume) -> SnapshotInfo:
    """The head. Raises Violation where it is older than what was acknowledged before it was asked for; Unavailable,
    NotFound of a volume that isn't there."""
    acknowledged = volume.head

    async def ask(node: Node) -> SnapshotInfo:
        return await node.ask(SNAPSHOT, SnapshotRequest(volume.vid.raw, confirm=True))

    try:
        info = await process.ask(ask)
    except (NotFound, Forgotten) as error:
        raise Violation(f"{volume} was made, and {process.name} says: {error}") from error
    if info.lsn < acknowledged:
        raise Violation(f"{volume}: {process.name} says that LSN {info.lsn} is the newest, and {acknowledged} is")
    return info


async def changes_between(process: Process, volume: Volume, after: int, to: int | None) -> Changes | None:
    """What was pulled, checked; None where it could not be. Raises Violation, Unavailable."""
    before, acknowledged = volume.promised(after), volume.head

    async def ask(node: Node) -> Changes:
        return await node.ask(PULL_CHANGES, RangeRequest(volume.vid.raw, after=after, to=to))

    try:
        changes = await process.ask(ask)
    except Forgotten as error:
        ends = to is None or volume.promised(to)
        if before and ends and volume.promised(after):
            raise Violation(f"{volume}: LSN {after} is promised, and {process.name} says: {error}") from error
        return None
    except NotFound as error:
        if max(after, to or 0) <= acknowledged:
            raise Violation(
                f"{volume}: LSN {to or after} was acknowledged, and {process.name} says: {error}"
            ) from error
        return None
    first, last = volume.at(after), volume.at(changes.snapshot.lsn)
    if first is not None and last is not None:
        told = set(decode_pages("what changed", changes.pages))
        pages = first.pages.keys() | last.pages.keys()
        untold = {page for page in pages if first.pages.get(page) != last.pages.get(page)} - told
        if untold:
            what = f"pages {sorted(untold)} changed from LSN {after} to {changes.snapshot.lsn}"
            raise Violation(f"{volume}: {what}, and {process.name} does not say so")
    return changes


async def rules_of(process: Process, volume: Volume) -> Ruled:
    """What it wants of commits, and how far its sources have come. Raises Violation, Unavailable."""
    epoch = volume.epoch
    told = {each.source: volume.bound(each.source) for made in volume.landed.values() for each in made.sources}

    async def ask(node: Node) -> Ruled:
        return await node.ask(RULES, VolumeRequest(volume.vid.raw))

    ruled = await process.ask(ask)
    if (ruled.mode, ruled.writer_epoch >= epoch) != (volume.mode, True):
        words = f"it is {ruled.mode} with writer epoch {ruled.writer_epoch}"
        raise Violation(f"{volume} is {volume.mode}, and {epoch} was given; {process.name} says that {words}")
    come = {each.source: each.offset for each in ruled.sources}
    for source, offset in told.items():
        if come.get(source, -1) < offset:
            what = f"{source} has come to {offset}"
            raise Violation(f"{volume}: {what}, and {process.name} says {come.get(source)}")
    for bound in ruled.sources:
        volume.check_binding(bound)
    return ruled


async def commits_of(process: Process, volume: Volume) -> None:
    """That the commits which can be listed follow one another, and are those that landed. Raises Violation,
    Unavailable."""

    async def ask(node: Node) -> list[tuple[int, bytes]]:
        found = await node.ask(PULL_COMMITS, RangeRequest(volume.vid.raw, after=0))
        return [(commit.lsn, commit.client) for commit in found.commits]

    try:
        found = await process.ask(ask)
    except (Forgotten, NotFound):
        return
    for lsn, client in found:
        landed = volume.landed.get(lsn)
        if landed is not None and landed.request.client != client and volume.mode != REPLICATED:
            raise Violation(f"{volume}: LSN {lsn} is listed as a commit of another client")
    for (lsn, _), (following, _) in pairwise(found):
        if following != lsn + 1:
            raise Violation(f"{volume}: LSN {following} follows LSN {lsn}")
