"""PostgreSQL's records: a database, or a schema of one, for any number of machines (postgresql://host/database).

- It is reached as psql reaches it: PGUSER, PGPASSWORD, ~/.pgpass, PGSSLMODE and so on count, and so do libpq's own
  parameters behind '?' in the URL. A password stands in no URL, since URLs are printed and kept.
- A transaction runs under READ COMMITTED: each statement sees what was committed before it.
- A connection that was idle may be dead, since the server was started anew: then another is taken. Whatever fails
  before COMMIT is sent did not happen; what fails in it may have, and is never repeated here.
- A server that loses what it has acknowledged (`fsync` off) is refused; a session that need not wait for the disk
  (`synchronous_commit` off) waits all the same.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl, urlsplit

import psycopg
from psycopg import errors

from ...volume.errors import BadInput, BudwoodError, Full, NotFound, Unauthorized, Unavailable, Unsupported
from .sql_records import SCHEMA, Execute, SqlRecords, Value, check_format

T = TypeVar("T")

_CONNECTIONS: Final = 8
_CONNECT_SECONDS: Final = 10
_SECRETS: Final = frozenset({"password", "sslpassword"})
_LOCK: Final = 0x62756477
"""Of those that make the tables."""
_WAIT_FOR_THE_DISK: Final = (
    "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
)
_DENIED: Final = (errors.InsufficientPrivilege, errors.InvalidAuthorizationSpecification, errors.InvalidPassword)
_REFUSED: Final = ("authentication failed", "no password supplied", "role ", "no pg_hba.conf entry")


def postgres_records(url: str, *, create: bool) -> SqlRecords:
    """Raises BadInput on a URL that can't be used; nothing is asked yet."""
    return SqlRecords(PostgresDatabase(url, create=create), threads=_CONNECTIONS)


class PostgresDatabase:
    """See sql_records.Database. It is connected to by the first transaction."""

    for_share = " FOR SHARE"

    def __init__(self, url: str, *, create: bool) -> None:
        parts = urlsplit(url)
        if parts.password is not None or _SECRETS & {name for name, _ in parse_qsl(parts.query)}:
            # It is not to be shown.
            raise BadInput("a URL of records has no password: give it in PGPASSWORD or ~/.pgpass")
        self.url = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
        self._given = url
        self._create = create
        self._lock = threading.Lock()
        self._idle: list[psycopg.Connection[Any]] = []
        self._closed = False
        self._ready = False

    def transact(self, work: Callable[[Execute], T]) -> T:
        while True:
            connection, fresh = self._take()
            try:
                answer = self._worked(connection, work, fresh)
            except _Broken as broken:
                if fresh:
                    raise self._unavailable(broken.error, determinate=True) from broken.error
                continue
            try:
                connection.commit()
            except psycopg.Error as error:
                connection.close()
                raise self._unavailable(error, determinate=False) from error
            self._give_back(connection)
            return answer

    def close(self) -> None:
        with self._lock:
            idle, self._idle, self._closed = self._idle, [], True
        for connection in idle:
            connection.close()

    def _worked(self, connection: psycopg.Connection[Any], work: Callable[[Execute], T], fresh: bool) -> T:
        """In a transaction that is left open. Raises _Broken where nothing was committed and the connection is dead."""
        execute = _execute(connection)
        try:
            if fresh:
                execute(_WAIT_FOR_THE_DISK, ())
                if not self._ready:
                    self._prepare(execute)
                connection.commit()
                self._ready = True
            return work(execute)
        except BudwoodError:
            connection.rollback()
            self._give_back(connection)
            raise
        except (psycopg.OperationalError, psycopg.InterfaceError) as error:
            connection.close()
            if isinstance(error, errors.DiskFull):
                raise Full(f"{self.url}: {_words(error)}: make room on its disk") from error
            raise _Broken(error) from error
        except psycopg.Error as error:
            connection.close()
            raise self._translated(error) from error
        except BaseException:
            connection.close()
            raise

    def _take(self) -> tuple[psycopg.Connection[Any], bool]:
        with self._lock:
            if self._idle:
                return self._idle.pop(), False
        try:
            connection = psycopg.connect(
                self._given, connect_timeout=_CONNECT_SECONDS, application_name="budwood", prepare_threshold=None
            )
        except psycopg.Error as error:
            raise self._translated(error) from error
        return connection, True

    def _give_back(self, connection: psycopg.Connection[Any]) -> None:
        with self._lock:
            if not self._closed and not connection.broken:
                self._idle.append(connection)
                return
        connection.close()

    def _prepare(self, execute: Execute) -> None:
        if execute("SELECT current_setting('fsync')", ())[0][0] != "on":
            raise Unsupported(f"{self.url} runs with fsync off, and would lose what it has acknowledged: switch it on")
        if not execute("SELECT 1 WHERE to_regclass('budwood_state') IS NOT NULL", ()):
            if not self._create:
                raise NotFound(f"there are no records at {self.url}")
            execute("SELECT 1 FROM (SELECT pg_advisory_xact_lock(?)) AS locked", (_LOCK,))
            for each in SCHEMA:
                execute(each.format(bytewise='COLLATE "C"'), ())
        check_format(execute, self.url)

    def _translated(self, error: psycopg.Error) -> BudwoodError:
        words = _words(error)
        if isinstance(error, _DENIED) or (error.sqlstate is None and any(each in words for each in _REFUSED)):
            return Unauthorized(f"{self.url}: {words}")
        return self._unavailable(error, determinate=True)

    def _unavailable(self, error: psycopg.Error, *, determinate: bool) -> Unavailable:
        # A server that has never answered is a mistake in the URL, mostly.
        return Unavailable(f"{self.url}: {_words(error)}", determinate=determinate, hopeless=not self._ready)


class _Broken(Exception):
    """The connection is dead, and the transaction with it."""

    def __init__(self, error: psycopg.Error) -> None:
        super().__init__(str(error))
        self.error = error


def _execute(connection: psycopg.Connection[Any]) -> Execute:
    def execute(words: str, values: Sequence[Value]) -> list[tuple[Value, ...]]:
        cursor = connection.execute(words.replace("?", "%s").encode(), [*map(_plain, values)])
        return cursor.fetchall() if cursor.description else []

    return execute


def _plain(value: Value) -> Value:
    """An enum's number, not its name."""
    return value if isinstance(value, str) else int(value)


def _words(error: psycopg.Error) -> str:
    return " ".join(str(error).split())
