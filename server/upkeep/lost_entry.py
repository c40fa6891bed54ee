"""Lost entry: what an entry carried that is missing, or whose head can't be read, told by what stands around it.

A rollup that covers it has its commits, and where their pages lie: so readers don't miss its head, and what is lost is
what its body had. Where none does, the streams that go on behind it show a gap; its body, if it can be read, tells
whose pages lie there; and in a private log it is the volume's own.
"""

from __future__ import annotations

from typing import Final

from ...volume.entry import entry_key, parse_entry
from ...volume.errors import BadInput, Corrupt, Unsupported
from ...volume.ids import VolumeId
from ...volume.records import Close, Commit, NameChange, Record
from ...volume.rollup import slot_of_rollup
from ..metastore.streams import Part
from ..store.tree_nodes import AT_ONCE
from .entry_scrub import EntryScrub
from .findings import Span
from .objects import Objects
from .reach import Reach
from .rollup_check import RollupCheck
from .stream_states import StreamStates

NOBODY_KNOWS: Final = "it carried commits, of which volume nothing tells"


class LostEntry:
    """Of one log."""

    def __init__(
        self,
        objects: Objects,
        log: str,
        *,
        names: str,
        reach: Reach,
        rollups: RollupCheck,
        entries: EntryScrub,
        states: StreamStates,
    ) -> None:
        self._objects = objects
        self._log = log
        self._names = names
        self._reach = reach
        self._rollups = rollups
        self._entries = entries
        self._states = states

    async def spoils(
        self, slot: int, data: bytes | None, *, newest: int, standing: list[str], total: bytes
    ) -> tuple[list[Span], str]:
        """What is spoilt, and what else there is to say. `standing` are the rollups that may cover it, `total` is the
        sum of the log before it."""
        key = entry_key(self._log, slot)
        for name in standing:
            if slot_of_rollup(name) >= slot:
                try:
                    return await self._as_rolled_up(slot, key, data, name), ""
                except (Corrupt, Unsupported):
                    continue
        follows = _WhatFollows(self, slot)
        await follows.read(newest)
        spans = follows.spans
        for stream in self._carried_by(key, data) - follows.told:
            spans += await self._from(stream, max(await self._states.head_of(stream), 0) + 1)
        lost_commits = follows.total_before is not None and follows.total_before != total
        return spans, "" if spans or not lost_commits else NOBODY_KNOWS

    async def _as_rolled_up(self, slot: int, key: str, data: bytes | None, name: str) -> list[Span]:
        lost = await self._rollups.lost(slot, await self._rollups.read(name))
        spans = await self._entries.spoilt_of(lost.commits, key, data)
        for stream, carried in lost.parts:
            lsns = [record.lsn for record in carried.decode(key) if isinstance(record, NameChange | Commit)]
            spans.append(Span(stream, min(lsns, default=1), None, stream == self._names))
        return spans

    def _carried_by(self, key: str, data: bytes | None) -> set[str]:
        try:
            own = {str(VolumeId.parse(self._log))}
        except BadInput:
            own = set[str]()
        return own | self._entries.volumes_in(key, data or b"")

    async def _from(self, stream: str, first: int) -> list[Span]:
        if stream == self._names:
            return [Span(stream, first, None, names=True)]
        return await self._reach.of_all(stream, first)

    async def heads(self, first: int, newest: int) -> list[tuple[str, bytes | None]]:
        keys = [entry_key(self._log, each) for each in range(first, min(first + AT_ONCE, newest + 1))]
        return list(zip(keys, await self._objects.heads(keys), strict=True))

    async def missing_before(self, stream: str, record: Record) -> list[Span] | None:
        """Of a stream that goes on with that record; None if the record doesn't tell what came before."""
        match record:
            case NameChange() | Commit():
                base = record.lsn - 1
            case Close():
                base = record.head
            case _:
                return None
        head = await self._states.head_of(stream)
        if head < 0 and not isinstance(record, NameChange):
            # It came to this log by what is lost: how many of its LSNs came along isn't known.
            head = base
        elif base <= max(head, 0):
            return []
        return await self._from(stream, max(head, 0) + 1)


class _WhatFollows:
    """The LSNs that are missing between what came before and what comes behind, stream by stream."""

    def __init__(self, lost: LostEntry, slot: int) -> None:
        self._lost = lost
        self._slot = slot
        self.spans: list[Span] = []
        self.told: set[str] = set()
        """Streams of which that is known."""
        self.total_before: bytes | None = None
        """The sum of the log with the lost entry, if an entry tells."""

    async def read(self, newest: int) -> None:
        for first in range(self._slot + 1, newest + 1, AT_ONCE):
            for key, data in await self._lost.heads(first, newest):
                try:
                    header = parse_entry(key, data).header if data is not None else None
                except (Corrupt, Unsupported):
                    continue
                if header is None:
                    continue
                if header.previous == self._slot:
                    self.total_before = header.prev_sum
                for stream, carried in header.streams.items():
                    if stream not in self.told:
                        await self._take(stream, Part(key, 0, header.i, carried, None))

    async def _take(self, stream: str, part: Part) -> None:
        try:
            records = part.read()
        except (Corrupt, Unsupported):
            return
        for record in records:
            found = await self._lost.missing_before(stream, record)
            if found is not None:
                self.spans += found
                self.told.add(stream)
                return
