"""Record store: creates in two phases, on a simulated network (server/store/two_phase_store.py).

The records are the product's own SQL, in SQLite's memory. On each process's way to them transactions are refused, lost
and unanswered, and one whose caller has given up may be committed later. None is done twice: a database sees to that.

A run may begin so, and switch to native creates in the middle.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from ...server.node import Node
from ...server.store.native import to_native
from ...server.store.protocol import Store
from ...server.store.records import Record, State, Taken
from ...server.store.sql_records import SqlRecords
from ...server.store.temporaries import FOLDER
from ...server.store.two_phase_store import TwoPhaseStore, two_phase
from ...server.store.two_phase_upkeep import tidy
from .listing_watch import ListingWatch, WatchedRecords, WatchedStore
from .model import Violation
from .network import Connection, Network, Way
from .process import Process

T = TypeVar("T")

_ALL: Final = 1 << 20


class Creates:
    """How a store creates."""

    def __init__(self, network: Network, fail: Callable[[Violation], None], *, two_phase: bool) -> None:
        self._network = network
        self._watch = ListingWatch(fail)
        self._records = WatchedRecords(self._watch) if two_phase else None
        self.native = not two_phase
        self.switching = False
        """Whether somebody has begun to switch to native creates; then some are refused."""
        network.honours_create = self.native

    @property
    def two_phase(self) -> bool:
        """Whether it still does so, or has ever done."""
        return self._records is not None

    def way_of(self, process: Process) -> Store:
        """The store as a process has it that starts now."""
        plain = Connection(self._network, process)
        if self._records is None or self.native:
            return plain
        records = RecordsConnection(self._records, self._network, process)
        return WatchedStore(plain, records, self._watch, process)

    def bare(self) -> Store:
        """The same, with no network between."""
        if self._records is None or self.native:
            return self._network.store
        return TwoPhaseStore(self._network.store, self._records)

    async def switch(self, process: Process) -> None:
        """To native, by whoever works where that process runs. Raises what that meets."""
        self.switching = self._network.honours_create = True

        async def switch(node: Node) -> None:
            opened = two_phase(node.store)
            if opened is not None:
                await to_native(opened, Connection(self._network, process), process.patience)

        def heard(_: None) -> None:
            self.native = self._watch.is_over = True

        await process.ask(switch, heard)

    async def check(self) -> None:
        """That nothing is left half done, after all was tidied up in peace. Raises Violation."""
        objects = self._network.store.objects
        if self._records is not None and self.native:
            # What was put by those who had not heard of the switch goes with the next.
            await to_native(TwoPhaseStore(self._network.store, self._records), self._network.store)
        temporary = [key for key in objects if key.startswith(FOLDER)]
        if temporary:
            raise Violation(f"{len(temporary)} temporary objects are left, {temporary[0]} among them")
        if self._records is None or self.native:
            return
        if left := await self._records.written():
            raise Violation(f"{left[0].dest} was recorded, and never copied")
        if stale := await self._records.stale(limit=_ALL):
            raise Violation(f"{stale[0].dest} was deleted, and its record stays")

    async def recorded(self) -> dict[str, bytes]:
        """The objects that count: what was put again after it was deleted has no record."""
        objects, records = self._network.store.objects, self._records
        if records is None or self.native:
            return objects
        found: dict[str, bytes] = {}
        for key, data in objects.items():
            record = await records.find(key)
            if record is not None and record.state is State.COMMITTED:
                found[key] = data
        return found

    async def aclose(self) -> None:
        if self._records is not None:
            await self._records.aclose()


async def tidied(node: Node) -> int:
    return await tidy(node.store)


class RecordsConnection(Way):
    """The records as one process has them: see server.store.records.Records."""

    def __init__(self, records: SqlRecords, network: Network, process: Process) -> None:
        super().__init__(network, process)
        self._records = records

    @property
    def url(self) -> str:
        return self._records.url

    async def insert(self, dest: str, source: str, size: int, time_ms: int) -> Taken:
        return await self._changed("insert", dest, lambda: self._records.insert(dest, source, size, time_ms))

    async def find(self, dest: str) -> Record | None:
        return await self._asked("find", dest, lambda: self._records.find(dest))

    async def written(self, prefix: str = "", *, start: str = "", limit: int | None = None) -> list[Record]:
        return await self._asked("written", prefix, lambda: self._records.written(prefix, start=start, limit=limit))

    async def begin(self, dest: str, source: str, now_ms: int) -> bool:
        return await self._changed("begin", dest, lambda: self._records.begin(dest, source, now_ms))

    async def commit(self, dest: str, source: str) -> State | None:
        return await self._changed("commit", dest, lambda: self._records.commit(dest, source))

    async def bury(self, dest: str, now_ms: int) -> Record:
        return await self._changed("bury", dest, lambda: self._records.bury(dest, now_ms))

    async def leave(self, dest: str, source: str) -> None:
        await self._changed("leave", dest, lambda: self._records.leave(dest, source))

    async def raise_floor(self, to_ms: int) -> int:
        return await self._changed("raise", "the floor", lambda: self._records.raise_floor(to_ms))

    async def stale(self, *, limit: int) -> list[Record]:
        return await self._asked("stale", "records", lambda: self._records.stale(limit=limit))

    async def forget(self, dest: str, source: str) -> None:
        await self._changed("forget", dest, lambda: self._records.forget(dest, source))

    async def go_native(self) -> None:
        await self._changed("switch", "records", self._records.go_native)

    async def aclose(self) -> None:
        """They are everybody's."""

    async def _asked(self, op: str, key: str, call: Callable[[], Awaitable[T]]) -> T:
        lost = await self.send(op, key)
        answer = await call()
        await self.answer(op, key, lost)
        return answer

    async def _changed(self, op: str, key: str, call: Callable[[], Awaitable[T]]) -> T:
        async def again() -> None:
            await call()

        lost = await self.send(op, key, again, twice=False)
        answer = await call()
        await self.answer(op, key, lost)
        return answer
