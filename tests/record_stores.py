"""Record stores for tests: the same suite runs over SQLite and over PostgreSQL.

async def test_x(place: RecordPlace) -> None:
    async with place.store(MemoryStore()) as store: ...
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from budwood.server.store.postgres_records import PostgresDatabase
from budwood.server.store.protocol import PlainStore
from budwood.server.store.sql_records import Database, SqlRecords, Value
from budwood.server.store.sqlite_records import SqliteDatabase
from budwood.server.store.two_phase_store import TwoPhaseStore

if TYPE_CHECKING:
    from .postgres import PostgresServer

KINDS = ["sqlite", "postgresql"]


@dataclass(frozen=True, slots=True)
class RecordPlace:
    """Of one store; any number of clients may have it open."""

    url: str

    @classmethod
    def new(cls, folder: Path, server: PostgresServer | None) -> RecordPlace:
        return cls(f"sqlite://{folder}/{uuid4().hex}" if server is None else server.url(uuid4().hex))

    def database(self, *, create: bool = True) -> Database:
        scheme, _, path = self.url.partition("://")
        if scheme == "sqlite":
            return SqliteDatabase(path, create=create)
        return PostgresDatabase(self.url, create=create)

    def records(self, *, create: bool = True) -> SqlRecords:
        return SqlRecords(self.database(create=create), threads=8)

    @asynccontextmanager
    async def store(
        self, plain: PlainStore, *, now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    ) -> AsyncGenerator[TwoPhaseStore, None]:
        store = TwoPhaseStore(plain, self.records(), now_ms=now_ms)
        try:
            yield store
        finally:
            await store.aclose()

    def all(self) -> list[tuple[Value, ...]]:
        """Of every record the key, the state, and the hands that are on it."""
        database = self.database()
        words = "SELECT dest, state, hands FROM budwood_records ORDER BY dest"
        try:
            return database.transact(lambda execute: execute(words, ()))
        finally:
            database.close()
