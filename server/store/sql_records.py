"""SqlRecords: records in a SQL database; what SQLite and PostgreSQL word differently is theirs (`Database`).

    budwood_records    a row for each object that was created, and for each that is being deleted
      dest             the object's key
      source           of its temporary object; '' where one was deleted that had no record
      size             of the object, in bytes
      state            0 written, 1 committed, 2 deleted
      hands            how many are at work on it, or were when they were cut off
      touched_ms       when the last of them began
    budwood_state      one row
      format           1. Another is a newer program's, and is refused
      floor_ms         no source with an earlier time gets a record
      native           1 once the store honours creates itself

Whoever inserts or buries holds the row of budwood_state against changes until it is done, so that what follows a
change of the floor, or of `native`, sees all that was let in before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol, TypeAlias, TypeVar

import anyio

from ...volume.errors import Unavailable, Unsupported
from ..in_thread import in_thread
from .protocol import check_prefix
from .records import Record, State, Taken

T = TypeVar("T")
Value: TypeAlias = "int | str"
Execute: TypeAlias = Callable[[str, Sequence[Value]], list[tuple[Value, ...]]]
"""One statement, with '?' for each value, in the transaction that is under way."""

FORMAT: Final = 1
_TRIES: Final = 16
_HIGHEST: Final = "~"
"""Above every character of a key."""
_ALL: Final = 1 << 62

SCHEMA: Final = (
    "CREATE TABLE IF NOT EXISTS budwood_records (dest TEXT {bytewise} PRIMARY KEY, source TEXT NOT NULL, "
    "size BIGINT NOT NULL, state INTEGER NOT NULL, hands INTEGER NOT NULL, touched_ms BIGINT NOT NULL)",
    "CREATE INDEX IF NOT EXISTS budwood_written ON budwood_records (dest) WHERE state = 0",
    "CREATE INDEX IF NOT EXISTS budwood_deleted ON budwood_records (dest) WHERE state = 2",
    "CREATE TABLE IF NOT EXISTS budwood_state (one INTEGER PRIMARY KEY CHECK (one = 1), format INTEGER NOT NULL, "
    "floor_ms BIGINT NOT NULL, native INTEGER NOT NULL)",
    "INSERT INTO budwood_state VALUES (1, 1, 0, 0) ON CONFLICT DO NOTHING",
)
"""`{bytewise}` is how the database is told to sort by bytes."""
_RECORD: Final = "SELECT dest, source, size, state, hands, touched_ms FROM budwood_records"
_INSERT: Final = "INSERT INTO budwood_records VALUES (?, ?, ?, ?, 1, ?) ON CONFLICT DO NOTHING RETURNING dest"
_TOUCHED: Final = "touched_ms = CASE WHEN touched_ms < ? THEN ? ELSE touched_ms END"
_STALE: Final = "state = 2 AND touched_ms < (SELECT floor_ms FROM budwood_state)"


class Database(Protocol):
    """Blocking calls. Thread-safe."""

    @property
    def url(self) -> str:
        """As it was given, without secrets."""
        ...

    @property
    def for_share(self) -> str:
        """What keeps a row that was read from being changed until the transaction ends."""
        ...

    def transact(self, work: Callable[[Execute], T]) -> T:
        """One transaction, durable when this returns; one that raises is undone. It makes the tables, where it may.

        Raises what `work` does, NotFound, Unauthorized, and Unavailable: not `determinate` if it may have been
        committed.
        """
        ...

    def close(self) -> None: ...


class SqlRecords:
    """See records.Records."""

    def __init__(self, database: Database, *, threads: int) -> None:
        self.url = database.url
        self._database = database
        self._limiter = anyio.CapacityLimiter(threads)

    async def insert(self, dest: str, source: str, size: int, time_ms: int) -> Taken:
        def work(execute: Execute) -> Taken:
            floor_ms = self._hold_state(execute)
            if time_ms < floor_ms:
                return Taken(_one(execute, dest), floor_ms)
            for _ in range(_TRIES):
                execute(_INSERT, (dest, source, size, State.WRITTEN, time_ms))
                found = _one(execute, dest)
                if found is not None:
                    return Taken(found, floor_ms)
            raise Unavailable(f"the record of {dest} comes and goes: try again")

        return await self._transact(work)

    async def find(self, dest: str) -> Record | None:
        return await self._transact(lambda execute: _one(execute, dest))

    async def written(self, prefix: str = "", *, start: str = "", limit: int | None = None) -> list[Record]:
        if not check_prefix(prefix, limit) or limit == 0:
            return []
        # No key has a NUL, and PostgreSQL takes none: what lies behind one begins behind what stands before it.
        first, nul, _ = max(prefix, start).partition("\0")
        most = _ALL if limit is None else limit + bool(nul)
        words = f"{_RECORD} WHERE state = 0 AND dest >= ? AND dest < ? ORDER BY dest LIMIT ?"
        rows = await self._transact(lambda execute: execute(words, (first, prefix + _HIGHEST, most)))
        return [record for record in map(_record, rows) if record.dest >= start][:limit]

    async def begin(self, dest: str, source: str, now_ms: int) -> bool:
        words = f"UPDATE budwood_records SET hands = hands + 1, {_TOUCHED} WHERE dest = ? AND source = ? AND state = 0 "
        words += "RETURNING dest"
        rows = await self._transact(lambda execute: execute(words, (now_ms, now_ms, dest, source)))
        return bool(rows)

    async def commit(self, dest: str, source: str) -> State | None:
        words = "UPDATE budwood_records SET state = 1, hands = hands - 1 WHERE dest = ? AND source = ? AND state < 2"

        def work(execute: Execute) -> State | None:
            execute(words, (dest, source))
            found = _one(execute, dest)
            return None if found is None or found.source != source else found.state

        return await self._transact(work)

    async def bury(self, dest: str, now_ms: int) -> Record:
        # First the hand, which keeps the row as it was for this transaction.
        lay = f"UPDATE budwood_records SET hands = hands + 1, {_TOUCHED} WHERE dest = ? "
        lay += "RETURNING dest, source, size, state, hands, touched_ms"

        def work(execute: Execute) -> Record:
            self._hold_state(execute)
            for _ in range(_TRIES):
                if execute(_INSERT, (dest, "", 0, State.DELETED, now_ms)):
                    return Record(dest, "", 0, State.DELETED, 1, now_ms)
                rows = execute(lay, (now_ms, now_ms, dest))
                if rows:
                    execute("UPDATE budwood_records SET state = 2 WHERE dest = ?", (dest,))
                    return _record(rows[0])
            raise Unavailable(f"the record of {dest} comes and goes: try again")

        return await self._transact(work)

    async def leave(self, dest: str, source: str) -> None:
        def work(execute: Execute) -> None:
            execute("UPDATE budwood_records SET hands = hands - 1 WHERE dest = ? AND source = ?", (dest, source))
            words = "DELETE FROM budwood_records WHERE dest = ? AND source = ? AND state = 2 AND hands = 0"
            execute(words, (dest, source))

        await self._transact(work)

    async def raise_floor(self, to_ms: int) -> int:
        def work(execute: Execute) -> int:
            execute("UPDATE budwood_state SET floor_ms = ? WHERE floor_ms < ?", (to_ms, to_ms))
            self._hold_state(execute)
            return int(execute("SELECT floor_ms FROM budwood_state", ())[0][0])

        return await self._transact(work)

    async def stale(self, *, limit: int) -> list[Record]:
        words = f"{_RECORD} WHERE {_STALE} ORDER BY dest LIMIT ?"
        return [_record(row) for row in await self._transact(lambda execute: execute(words, (limit,)))]

    async def forget(self, dest: str, source: str) -> None:
        words = f"DELETE FROM budwood_records WHERE dest = ? AND source = ? AND {_STALE}"
        await self._transact(lambda execute: execute(words, (dest, source)))

    async def go_native(self) -> None:
        await self._transact(lambda execute: execute("UPDATE budwood_state SET native = 1", ()))

    async def aclose(self) -> None:
        await in_thread(self._database.close)

    def _hold_state(self, execute: Execute) -> int:
        """The floor, which stays where it is until the transaction ends."""
        rows = execute(f"SELECT native, floor_ms FROM budwood_state{self._database.for_share}", ())
        native, floor_ms = rows[0]
        if native:
            raise Unsupported(
                f"the store of {self.url} was switched to native create: leave out ?records=; where it can't be opened "
                "so, let budwood to-native come to its end"
            )
        return int(floor_ms)

    async def _transact(self, work: Callable[[Execute], T]) -> T:
        # A transaction whose caller was cancelled goes on in its thread.
        transact = partial(self._database.transact, work)
        return await in_thread(transact, abandon_on_cancel=True, limiter=self._limiter)


def check_format(execute: Execute, url: str) -> None:
    """Raises Unsupported on a newer program's."""
    found = execute("SELECT format FROM budwood_state", ())[0][0]
    if found != FORMAT:
        raise Unsupported(f"the records at {url} have format {found}, a newer Budwood's: upgrade")


def _one(execute: Execute, dest: str) -> Record | None:
    rows = execute(f"{_RECORD} WHERE dest = ?", (dest,))
    return _record(rows[0]) if rows else None


def _record(row: Sequence[Value]) -> Record:
    dest, source, size, state, hands, touched_ms = row
    return Record(str(dest), str(source), int(size), State(int(state)), int(hands), int(touched_ms))
