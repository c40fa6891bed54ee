"""Written: what the newest entries of a store's logs cost to write, by volume and day; from the heads alone.

An entry is one create, shared in equal parts by all whose records it carries; a fragment is its volume's. What upkeep
wrote is told by what entries name: a fold is its number and all that stands below it; a rollup itself and its nodes; a
garbage plan four objects. Pins and births are not among it, and reads leave nothing behind.

Entries are read from the newest back, so far as asked for, or until a collection has deleted what was before: rates are
by the time that this covers. How few entries another batch window would have come to is the least number of windows
that hold them all, with at most as many bytes in each as an entry takes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from ...volume.entry import Entry, entry_key, parse_entry, slot_of
from ...volume.records import Commit, Fold
from ...volume.rollup import nodes_folder, slot_of_rollup
from ..log.waiting import BATCH_BYTES
from ..store.tree_nodes import AT_ONCE
from .objects import Objects

DAY_MS: Final = 86_400_000
HOUR_MS: Final = 3_600_000
MOST_ENTRIES: Final = 100_000
"""Of one log."""
_OF_A_PLAN: Final = 4
"""Its number, itself, the boundary, and since when it is due."""


@dataclass(slots=True)
class Creates:
    commits: int = 0
    entries: float = 0.0
    """Of which it has its part."""
    fragments: int = 0
    upkeep: int = 0
    bytes: float = 0.0
    """Of commits: its part of entries, and fragments."""

    def add(self, other: Creates) -> None:
        self.commits += other.commits
        self.entries += other.entries
        self.fragments += other.fragments
        self.upkeep += other.upkeep
        self.bytes += other.bytes

    @property
    def all(self) -> float:
        return self.entries + self.fragments + self.upkeep


@dataclass
class WrittenLog:
    log: str
    covers_ms: int = 0
    """So long before it was looked at, nothing is missing."""
    entries: int = 0
    batches: int = 0
    """How many of these are enough at another window."""
    streams: dict[str, dict[int, Creates]] = field(default_factory=dict[str, dict[int, Creates]])
    """By volume, or "" for the log itself, and by day since 1970."""

    def of(self, stream: str, day: int) -> Creates:
        return self.streams.setdefault(stream, {}).setdefault(day, Creates())

    @property
    def days(self) -> float:
        """At least an hour, so that what was written just now isn't taken for a whole day's."""
        return max(self.covers_ms, HOUR_MS) / DAY_MS


class Written:
    def __init__(self, objects: Objects, *, now_ms: int, days: float, window_ms: int = 0) -> None:
        self._objects = objects
        self._now_ms = now_ms
        self._covers_ms = round(days * DAY_MS)
        self._window_ms = window_ms

    async def survey(self, log: str, *, most: int = MOST_ENTRIES) -> WrittenLog:
        """Raises Corrupt, Unsupported, Unavailable, Unauthorized."""
        found = WrittenLog(log, self._covers_ms)
        batches, rollups = _Batches(self._window_ms), dict[str, int]()
        newest = await self._objects.listed(f"logs/{log}/entries/", limit=1)
        slot, until = slot_of(newest[0]) if newest else -1, self._now_ms
        while slot >= 0 and until > self._now_ms - self._covers_ms:
            keys = [entry_key(log, each) for each in range(slot, max(slot - AT_ONCE, -1), -1)]
            for key, data in zip(keys, await self._objects.heads(keys), strict=True):
                if data is None or found.entries >= most:
                    # The rest is gone, or was not asked for.
                    found.covers_ms = self._now_ms - until
                    slot = 0
                    break
                entry = parse_entry(key, data)
                until = entry.header.time
                if until <= self._now_ms - self._covers_ms:
                    break
                await self._entry(found, entry, rollups)
                batches.add(entry)
            slot -= len(keys)
        for name, day in rollups.items():
            nodes = await self._count(f"{nodes_folder(log)}/{slot_of_rollup(name):016x}/")
            found.of("", day).upkeep += 1 + nodes
        found.batches = found.entries - batches.spared
        return found

    async def _entry(self, found: WrittenLog, entry: Entry, rollups: dict[str, int]) -> None:
        header, day = entry.header, entry.header.time // DAY_MS
        found.entries += 1
        if not header.streams:
            found.of("", day).entries += 1
        for stream, carried in header.streams.items():
            creates = found.of(stream, day)
            creates.entries += 1 / len(header.streams)
            creates.bytes += entry.size / len(header.streams)
            for record in carried.decode(entry.key):
                if isinstance(record, Commit):
                    creates.commits += 1
                    fragments = [location.size for location in record.locations if location.object]
                    creates.fragments += len(fragments)
                    creates.bytes += sum(fragments)
                elif isinstance(record, Fold):
                    creates.upkeep += 1 + await self._count(f"{record.checkpoint}/")
        found.of("", day).upkeep += _OF_A_PLAN * len(header.garbage)
        if header.rollup:
            # The oldest entry that names it comes last.
            rollups[header.rollup] = day

    async def _count(self, prefix: str) -> int:
        count = 0
        async for _ in self._objects.keys(prefix):
            count += 1
        return count


class _Batches:
    """Entries, newest first, put together as far as a window reaches."""

    def __init__(self, window_ms: int) -> None:
        self._window_ms = window_ms
        self._newest_ms = 0
        self._bytes = 0
        self._any = False
        self.spared = 0

    def add(self, entry: Entry) -> None:
        if not self._window_ms or not entry.header.streams:
            return
        near = self._any and self._newest_ms - entry.header.time < self._window_ms
        if near and self._bytes + entry.size <= BATCH_BYTES:
            self.spared += 1
            self._bytes += entry.size
        else:
            self._any, self._newest_ms, self._bytes = True, entry.header.time, entry.size
