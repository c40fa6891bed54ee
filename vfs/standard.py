"""Standard: a connection of Python's own sqlite3 that tells errors as sqlite3 does.

apsw's callbacks leave the Python error that was raised in them pending; apsw raises it when SQLite has returned, and
the standard library's sqlite3, which looks for none, ends in a SystemError that has it as its cause, or forgets it.
Here either becomes the error that sqlite3 has for SQLite's number, with our words and ours as its cause.

Tried instead, and rejected: callbacks wrapped by ctypes, which answer SQLite with the number alone. Python looks for
signals when a function begins, before its first `try`, and an error that leaves a ctypes callback makes its answer
whatever lay on the stack: ^C could make SQLite take a page for read that wasn't.
"""

from __future__ import annotations

import atexit
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from typing import Any, TypeVar, cast
from weakref import WeakSet

import apsw

from ..volume.errors import BudwoodError
from .apsw_connection import causes
from .codes import last_error

_open: WeakSet[StandardConnection] = WeakSet()
Method = TypeVar("Method", bound=Callable[..., Any])


def _with_words(method: Method) -> Method:
    @wraps(method)
    def call(*arguments: Any, **named: Any) -> Any:
        before = last_error()
        try:
            return method(*arguments, **named)
        except (SystemError, sqlite3.Error) as error:
            ours = _pending(error)
            if ours is None and last_error() is not before:
                ours = _fitting(error)
            if ours is None:
                raise
            if not isinstance(ours, BudwoodError):
                raise ours from None
            raise _as_standard(ours) from ours

    return cast("Method", call)


def _pending(error: BaseException) -> BaseException | None:
    """What a callback raised, where sqlite3 met it."""
    if not isinstance(error, SystemError):
        return None
    return next((each for each in causes(error) if not isinstance(each, SystemError | sqlite3.Error)), None)


def _fitting(error: SystemError | sqlite3.Error) -> BudwoodError | None:
    """What was told to SQLite during the call, if that is what this speaks of: it may have been overcome."""
    ours, code = last_error(), getattr(error, "sqlite_errorcode", 0) & 0xFF
    if ours is None or code not in {_code(ours) & 0xFF, apsw.SQLITE_CORRUPT if _is_damage(ours) else -1}:
        return None
    return ours


def _as_standard(error: BudwoodError) -> sqlite3.Error:
    kind = sqlite3.DatabaseError if _is_damage(error) else sqlite3.OperationalError
    words = " ".join(str(error).split())
    # Programs look for SQLite's own words before they try again.
    told = kind(f"database is locked: {words}" if _code(error) & 0xFF == apsw.SQLITE_BUSY else words)
    told.sqlite_errorcode = _code(error)
    names = {**apsw.mapping_result_codes, **apsw.mapping_extended_result_codes}
    told.sqlite_errorname = str(names.get(_code(error), ""))
    return told


def _is_damage(error: BudwoodError) -> bool:
    return _code(error) == apsw.SQLITE_IOERR_CORRUPTFS


def _code(error: BudwoodError) -> int:
    return int(getattr(error, "extendedresult", apsw.SQLITE_ERROR))


class StandardCursor(sqlite3.Cursor):
    """Made by a StandardConnection."""

    execute = _with_words(sqlite3.Cursor.execute)
    executemany = _with_words(sqlite3.Cursor.executemany)
    executescript = _with_words(sqlite3.Cursor.executescript)
    fetchone = _with_words(sqlite3.Cursor.fetchone)
    fetchmany = _with_words(sqlite3.Cursor.fetchmany)
    fetchall = _with_words(sqlite3.Cursor.fetchall)
    __next__ = _with_words(sqlite3.Cursor.__next__)


class StandardConnection(sqlite3.Connection):
    """`sqlite3.connect("file:inventory?vfs=budwood", uri=True, factory=StandardConnection)`."""

    @_with_words
    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        _open.add(self)

    execute = _with_words(sqlite3.Connection.execute)
    executemany = _with_words(sqlite3.Connection.executemany)
    executescript = _with_words(sqlite3.Connection.executescript)
    commit = _with_words(sqlite3.Connection.commit)
    rollback = _with_words(sqlite3.Connection.rollback)
    close = _with_words(sqlite3.Connection.close)
    backup = _with_words(sqlite3.Connection.backup)
    __exit__ = _with_words(sqlite3.Connection.__exit__)

    def cursor(self, factory: Callable[[sqlite3.Connection], Any] | None = StandardCursor) -> Any:
        # None is sqlite3's to refuse.
        return super().cursor(cast("Callable[[sqlite3.Connection], Any]", factory))


@atexit.register
def _close_all() -> None:
    """What is left open when Python ends: later, there is not enough left of it to close a home."""
    for connection in list(_open):
        # Another thread's is that one's to close.
        with suppress(sqlite3.Error):
            connection.close()
