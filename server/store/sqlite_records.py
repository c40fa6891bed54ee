"""SQLite's records: one file on a local disk, for the processes of one machine (sqlite:///path/of/a/file)."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from typing import Final, TypeVar, cast
from urllib.parse import quote

import apsw

from ...volume.errors import BudwoodError, Corrupt, Full, NotFound, Unauthorized, Unavailable
from .sql_records import SCHEMA, Execute, SqlRecords, Value, check_format

T = TypeVar("T")

_BUSY_MS: Final = 10_000
_THREADS: Final = 8
_DENIED: Final = (apsw.PermissionsError, apsw.ReadOnlyError, apsw.AuthError)


def sqlite_records(path: str, *, create: bool) -> SqlRecords:
    return SqlRecords(SqliteDatabase(path, create=create), threads=_THREADS)


class SqliteDatabase:
    """See sql_records.Database. It is opened by the first transaction."""

    for_share = ""
    """Whoever writes is alone."""

    def __init__(self, path: str, *, create: bool) -> None:
        self.url = f"sqlite://{quote(path)}"
        self._path = path
        self._create = create
        self._lock = threading.Lock()
        self._connection: apsw.Connection | None = None

    def transact(self, work: Callable[[Execute], T]) -> T:
        with self._lock:
            try:
                connection = self._connection = self._connection or self._open()
                return _transaction(connection, work)
            except apsw.Error as error:
                raise _translated(error, self.url) from error

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _open(self) -> apsw.Connection:
        if not self._create and not os.path.exists(self._path):
            raise NotFound(f"there are no records at {self.url}")
        connection = apsw.Connection(self._path)
        try:
            connection.set_busy_timeout(_BUSY_MS)
            connection.execute("PRAGMA journal_mode = WAL")
            # What was committed outlives a power loss.
            connection.execute("PRAGMA synchronous = FULL")
            _transaction(connection, lambda execute: [execute(each.format(bytewise=""), ()) for each in SCHEMA])
            _transaction(connection, lambda execute: check_format(execute, self.url))
        except BaseException:
            connection.close()
            raise
        return connection


def _transaction(connection: apsw.Connection, work: Callable[[Execute], T]) -> T:
    def execute(words: str, values: Sequence[Value]) -> list[tuple[Value, ...]]:
        return cast("list[tuple[Value, ...]]", connection.execute(words, tuple(values)).fetchall())

    connection.execute("BEGIN IMMEDIATE")
    try:
        answer = work(execute)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return answer


def _translated(error: apsw.Error, url: str) -> BudwoodError:
    words = f"{url}: {error}"
    if isinstance(error, apsw.FullError):
        return Full(f"{words}: make room on the disk")
    if isinstance(error, apsw.CorruptError | apsw.NotADBError):
        return Corrupt(url, str(error))
    if isinstance(error, _DENIED):
        return Unauthorized(f"{words}: let this user read and write the file and its folder")
    if isinstance(error, apsw.CantOpenError):
        return NotFound(f"{words}: its folder must be there, and this user may write in it")
    # A commit that failed was rolled back. An error of the disk tells less.
    return Unavailable(words, determinate=not isinstance(error, apsw.IOError))
