"""Lineage: questions about a volume whose answer may lie with the ones it was forked from (DESIGN §5).

A fork's LSNs go on from its parent's, and those up to the one it was forked at are its parent's own. Forks of forks
may lie thousands deep, so parents are walked to, and nothing here calls itself. What of a history lies in a rollup is
loaded.
"""

from __future__ import annotations

from functools import partial

import msgspec

from ...volume.errors import BadInput, NotFound, OutcomeUnknown
from ...volume.ids import is_ephemeral
from ...volume.limits import MOST_ANSWER_BYTES
from ...volume.pageset import PageSet, encode_pages
from ...volume.wire import CommitInfo, Committed, SnapshotInfo
from ..store.tree_nodes import loading
from .admission import twin
from .history import Landed
from .open_volume import Volume
from .open_volumes import Volumes


async def snapshot_at(volumes: Volumes, volume: Volume, lsn: int) -> SnapshotInfo:
    """The snapshot at an LSN, which may be one that the volume shares with its parent. Raises NotFound."""
    if lsn < 0:
        raise BadInput(f"LSN {lsn} can't be: LSNs start at 1, and 0 is the empty volume")
    own = volume
    while lsn < own.history.start:
        own = await volumes.parent_of(own)
    found = await loading(partial(own.snapshot, lsn))
    if own is volume:
        return found
    state, birth = volume.state, volume.birth
    return msgspec.structs.replace(
        found,
        vid=volume.vid.raw,
        since=state.since,
        upper=state.head + 1,
        log=volume.log,
        parent=birth.parent,
        parent_lsn=birth.parent_lsn,
    )


async def commits_between(volumes: Volumes, volume: Volume, after: int, to: int, limit: int) -> list[CommitInfo]:
    """The commits (after, to], oldest first, the shared ones included; at most `limit`, and no more than an answer may
    hold."""
    line = [(volume, to)]
    while after < volume.history.start and volume.parent is not None:
        to, volume = min(to, volume.history.start), await volumes.parent_of(volume)
        line.append((volume, to))
    found: list[CommitInfo] = []
    size = 0
    for own, upto in reversed(line):
        for lsn in range(max(after, own.history.start) + 1, upto + 1):
            if len(found) == limit or size >= MOST_ANSWER_BYTES:
                return found
            found.append(_info(await loading(partial(own.history.at, lsn))))
            size += len(found[-1].pages) + len(found[-1].bindings)
    return found


async def time_of_commit(volumes: Volumes, volume: Volume, lsn: int) -> int:
    """When the commit was made that made this LSN; 0 where the fork's own beginning hides it, and for LSN 0."""
    while 0 < lsn < volume.history.start:
        volume = await volumes.parent_of(volume)
    if lsn <= volume.history.start:
        return 0
    return volume.state.time if lsn == volume.state.head else (await loading(partial(volume.history.at, lsn))).time


async def lsn_at_time(volumes: Volumes, volume: Volume, ms: int) -> int:
    """The last LSN that is not later. Raises NotFound if the volume is younger."""
    name, lsn = volume.id, volume.state.head
    while True:
        if ms >= volume.birth.time:
            return min(lsn, await loading(partial(volume.history.at_time, ms)))
        lsn = min(lsn, volume.history.start)
        if volume.parent is None:
            raise NotFound(f"volume {name} did not exist at that time")
        volume = await volumes.parent_of(volume)


async def changed_between(volumes: Volumes, volume: Volume, after: int, to: int) -> PageSet:
    """Every page that may read differently at `to` than at `after`."""
    pages = PageSet()
    while True:
        start = volume.history.start
        if to > start:
            pages |= await loading(partial(volume.history.changed, max(after, start), to))
        if after >= start or volume.parent is None:
            return pages
        to, volume = min(to, start), await volumes.parent_of(volume)


async def commit_by(volume: Volume, client: bytes, token: bytes, *, base: int | None) -> Committed | None:
    """What the volume's own commit with that token was answered: the client's newest, or one that isn't folded and was
    made on `base`; without a base, any. Raises OutcomeUnknown where an ephemeral client's may have been folded."""
    newest = await loading(partial(twin, volume, volume.state, client, token))
    if newest is not None:
        return newest
    history = volume.history
    lsns = range(history.head, history.folded_to, -1) if base is None else [base + 1]
    for lsn in lsns:
        if history.folded_to < lsn <= history.head:
            landed = await loading(partial(history.at, lsn))
            if (landed.client, landed.token) == (client, token):
                return Committed(lsn=lsn, time=landed.time)
    oldest = history.start if base is None else base
    if is_ephemeral(client) and history.start <= oldest < history.folded_to:
        words = f"what became of a commit to volume {volume.id} that was made on LSN {oldest} is forgotten"
        raise OutcomeUnknown(f"{words}: look whether it is there")
    return None


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
