"""A store in one SQLite file, for benches with millions of small objects: as quick as one in memory, and takes none."""

from __future__ import annotations

from pathlib import Path

import apsw
from anyio.lowlevel import checkpoint

from budwood.server.store.protocol import Data, Keys, Sizes, buffers, check_key, check_prefix, check_range
from budwood.volume.errors import AlreadyExists, BadInput, NotFound


class SqliteStore:
    """See server.store.protocol.Store. All of it is one transaction, which `aclose` ends."""

    def __init__(self, path: Path) -> None:
        self.url = "test://"
        self._db = apsw.Connection(str(path))
        self._db.execute("PRAGMA journal_mode = off; PRAGMA synchronous = off; PRAGMA cache_size = -8000")
        self._db.execute("CREATE TABLE IF NOT EXISTS objects(key TEXT PRIMARY KEY, data BLOB) WITHOUT ROWID")
        self._db.execute("BEGIN")

    async def get(self, key: str, *, start: int = 0, end: int | None = None) -> bytes:
        check_range(start, end)
        return (await self._whole(key))[start:end]

    async def get_tail(self, key: str, size: int) -> tuple[bytes, int]:
        if size <= 0:
            raise BadInput("a tail has at least one byte")
        data = await self._whole(key)
        return data[-size:], len(data)

    async def create(self, key: str, data: Data) -> None:
        check_key(key)
        await checkpoint()
        self._db.execute("INSERT OR IGNORE INTO objects VALUES(?, ?)", (key, b"".join(buffers(data))))
        if not self._db.changes():
            raise AlreadyExists(f"the object {key} exists")

    async def delete(self, key: str) -> None:
        check_key(key)
        await checkpoint()
        self._db.execute("DELETE FROM objects WHERE key = ?", (key,))

    async def list(self, prefix: str, *, start: str = "", limit: int | None = None) -> Keys:
        return [key for key, _ in await self.sizes(prefix, start=start, limit=limit)]

    async def sizes(self, prefix: str, *, start: str = "", limit: int | None = None) -> Sizes:
        possible = check_prefix(prefix, limit)
        await checkpoint()
        if not possible:
            return []
        found = self._db.execute(
            "SELECT key, length(data) FROM objects WHERE key >= ? AND key < ? ORDER BY key LIMIT ?",
            (max(prefix, start), prefix + "\x7f", -1 if limit is None else limit),
        )
        return [(str(key), int(str(size))) for key, size in found]

    async def aclose(self) -> None:
        await checkpoint()
        if self._db.in_transaction:
            self._db.execute("COMMIT")
        self._db.close()

    def count(self, prefix: str = "") -> int:
        """Of the objects whose keys begin so."""
        query = "SELECT count(*) FROM objects WHERE key >= ? AND key < ?"
        return int(str(self._db.execute(query, (prefix, prefix + "\x7f")).fetchall()[0][0]))

    async def _whole(self, key: str) -> bytes:
        check_key(key)
        await checkpoint()
        for (data,) in self._db.execute("SELECT data FROM objects WHERE key = ?", (key,)):
            assert isinstance(data, bytes)
            return data
        raise NotFound(f"no object {key}")
