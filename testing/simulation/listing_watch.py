"""Listing watch: what a store that creates in two phases lists, held against what stands in it (DESIGN §3, B7).

An object stands from its record on, until it is buried. Whatever stood all the while that somebody listed is listed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from ...server.store.protocol import Keys, PlainStore, Sizes
from ...server.store.records import Record, Records, Taken
from ...server.store.sql_records import SqlRecords
from ...server.store.sqlite_records import SqliteDatabase
from ...server.store.two_phase_store import TwoPhaseStore
from .model import Violation
from .process import Process


class ListingWatch:
    def __init__(self, fail: Callable[[Violation], None]) -> None:
        self._fail = fail
        self._standing: dict[str, str] = {}
        self.is_over = False
        """Whether anyone deletes without burying: once creates are native."""

    def stands(self, key: str, source: str) -> None:
        self._standing[key] = source

    def is_buried(self, key: str) -> None:
        self._standing.pop(key, None)

    def begin(self, prefix: str, start: str) -> Collection[tuple[str, str]]:
        """What stands there now: keys and their sources."""
        return [each for each in self._standing.items() if each[0].startswith(prefix) and each[0] >= start]

    def end(self, stood: Collection[tuple[str, str]], listed: Sequence[str], limit: int | None) -> None:
        if self.is_over:
            return
        is_whole, found = limit is None or len(listed) < limit, set(listed)
        for key, source in stood:
            if key not in found and self._standing.get(key) == source and (is_whole or key < listed[-1]):
                self._fail(Violation(f"{key} stands, and isn't listed"))


class WatchedRecords(SqlRecords):
    def __init__(self, watch: ListingWatch) -> None:
        super().__init__(SqliteDatabase(":memory:", create=True), threads=1)
        self._watch = watch

    async def insert(self, dest: str, source: str, size: int, time_ms: int) -> Taken:
        taken = await super().insert(dest, source, size, time_ms)
        if taken.record is not None and taken.record.source == source:
            self._watch.stands(dest, source)
        return taken

    async def bury(self, dest: str, now_ms: int) -> Record:
        self._watch.is_buried(dest)
        return await super().bury(dest, now_ms)


class WatchedStore(TwoPhaseStore):
    """As one process has it."""

    def __init__(self, plain: PlainStore, records: Records, watch: ListingWatch, process: Process) -> None:
        super().__init__(plain, records, now_ms=process.now_ms, boot=process.boot)
        self._watch = watch

    async def list(self, prefix: str, *, start: str = "", limit: int | None = None) -> Keys:
        stood = self._watch.begin(prefix, start)
        listed = await super().list(prefix, start=start, limit=limit)
        self._watch.end(stood, listed, limit)
        return listed

    async def sizes(self, prefix: str, *, start: str = "", limit: int | None = None) -> Sizes:
        stood = self._watch.begin(prefix, start)
        listed = await super().sizes(prefix, start=start, limit=limit)
        self._watch.end(stood, [key for key, _ in listed], limit)
        return listed
