"""DB-API: volumes by PEP 249, through Python's own sqlite3; `from budwood import dbapi`.

    db = dbapi.connect("inventory", remote="https://db.example")
    cursor = db.cursor()
    cursor.execute("SELECT n FROM item WHERE name = ?", ("bolt",))
    db.commit()                         # local, at once
    db.push()                           # everyone else can see it now

A connection is a `sqlite3.Connection`, with all that it has: transactions as PEP 249 says (or `isolation_level=None`),
row factories, adapters. What a volume has to say comes as the class that PEP 249 has for it, in one line, with
Budwood's own error as its cause: OperationalError where it is offline, busy, diverged or not there, DatabaseError where
something is damaged. Read-only views take `lsn` or `at`.

It needs a Python whose sqlite3 can be given a VFS, as nearly all have; `budwood.connect` needs none.
"""

from __future__ import annotations

import json
import os
import sqlite3
from datetime import datetime
from itertools import count
from sqlite3 import (
    PARSE_COLNAMES,
    PARSE_DECLTYPES,
    Binary,
    DatabaseError,
    DataError,
    Date,
    DateFromTicks,
    Error,
    IntegrityError,
    InterfaceError,
    InternalError,
    NotSupportedError,
    OperationalError,
    ProgrammingError,
    Row,
    Time,
    TimeFromTicks,
    TimestampFromTicks,
    Warning,  # noqa: A004 - PEP 249's
    adapt,
    register_adapter,
    register_converter,
    sqlite_version,
    sqlite_version_info,
)
from threading import Lock
from typing import Any, Final, cast
from urllib.parse import quote, urlencode

from .standard import StandardConnection, StandardCursor
from .stdlib import register_stdlib

__all__ = [
    "PARSE_COLNAMES",
    "PARSE_DECLTYPES",
    "Binary",
    "Connection",
    "Cursor",
    "DataError",
    "DatabaseError",
    "Date",
    "DateFromTicks",
    "Error",
    "IntegrityError",
    "InterfaceError",
    "InternalError",
    "NotSupportedError",
    "OperationalError",
    "ProgrammingError",
    "Row",
    "Time",
    "TimeFromTicks",
    "Timestamp",
    "TimestampFromTicks",
    "Warning",
    "adapt",
    "apilevel",
    "connect",
    "paramstyle",
    "register_adapter",
    "register_converter",
    "sqlite_version",
    "sqlite_version_info",
    "threadsafety",
]

Timestamp = datetime
apilevel: Final = "2.0"
paramstyle: Final = "qmark"
threadsafety: Final = 1
"""Threads may share the module, and not a connection: what a volume hands out is one thread's at a time."""

Cursor = StandardCursor

_places: Final[dict[tuple[str | None, str | None, str | None], str]] = {}
_numbers = count(1)
_lock: Final = Lock()


class Connection(StandardConnection):
    """Made by `connect`. Each of the three below answers with what it led to, as `budwood status` would say it."""

    def push(self) -> dict[str, Any]:
        """Send what was committed here to the remote. Raises OperationalError: diverged, offline, in a transaction."""
        return self._ask("push")

    def pull(self) -> dict[str, Any]:
        """Move to the remote's newest commit."""
        return self._ask("pull")

    def status(self) -> dict[str, Any]:
        """How the volume stands here."""
        return self._ask("status")

    def _ask(self, verb: str) -> dict[str, Any]:
        (told,) = self.execute(f"PRAGMA budwood_{verb}").fetchone()
        return cast("dict[str, Any]", json.loads(told)[0])


def connect(
    name: str,
    *,
    home: str | os.PathLike[str] | None = None,
    remote: str | None = None,
    token: str | None = None,
    lsn: int | None = None,
    at: int | str | datetime | None = None,
    mode: str = "rwc",
    synchronous_commit: bool = False,
    timeout: float = 5.0,
    **options: Any,
) -> Connection:
    """A volume; the arguments are `budwood.connect`'s, and the `options` `sqlite3.connect`'s. Raises OperationalError
    where it can't be opened."""
    arguments = sqlite3_arguments(
        name,
        home=home,
        remote=remote,
        token=token,
        lsn=lsn,
        at=at,
        mode=mode,
        synchronous_commit=synchronous_commit,
        timeout=timeout,
        **options,
    )
    return cast("Connection", sqlite3.connect(**arguments))


def sqlite3_arguments(
    name: str,
    *,
    home: str | os.PathLike[str] | None = None,
    remote: str | None = None,
    token: str | None = None,
    lsn: int | None = None,
    at: int | str | datetime | None = None,
    mode: str = "rwc",
    synchronous_commit: bool = False,
    **options: Any,
) -> dict[str, Any]:
    """`sqlite3.connect`'s arguments for what `connect` was asked, for libraries that call that themselves."""
    parameters = {"vfs": _vfs(None if home is None else os.fspath(home), remote, token), "mode": mode}
    if lsn is not None:
        parameters["lsn"] = str(lsn)
    if at is not None:
        parameters["at"] = at.isoformat() if isinstance(at, datetime) else str(at)
    if synchronous_commit:
        parameters["synchronous_commit"] = "on"
    uri = f"file:{quote(name)}?{urlencode(parameters, quote_via=quote)}"
    return {"factory": Connection, **options, "database": uri, "uri": True}


def _vfs(home: str | None, remote: str | None, token: str | None) -> str:
    """The name under which both libraries know the place. One for each, for as long as the process lives."""
    from .connect import register

    with _lock:
        found = _places.get((home, remote, token))
        if found is None:
            found = f"budwood-dbapi-{next(_numbers)}"
            register(home=home, remote=remote, token=token, name=found)
            register_stdlib(found)
            _places[home, remote, token] = found
        return found
