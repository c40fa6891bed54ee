"""Codes: which of SQLite's errors each of ours is.

An error that is raised in a callback comes out of the SQL call as the very object that was raised. So that both
kinds of caller can catch it, it is raised as a twin that is both: `budwood.NotFound` and `apsw.CantOpenError`, with
our line as its text and SQLite's number in `extendedresult`, which is what SQLite itself goes by. Two numbers
matter beyond their name:

- SQLITE_BUSY is retried by the busy handler as long as the transaction has read nothing; SQLITE_BUSY_SNAPSHOT is
  turned into SQLITE_BUSY by SQLite in that case, and otherwise fails at once, since waiting could not help a
  transaction whose view is no longer the head.
- SQLITE_IOERR and SQLITE_FULL make the pager throw its cache away. A commit that failed must answer one of them
  (`at_commit`): it fails after SQLite gave up its journal, when the cache holds pages that nobody has committed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

import apsw

from ..volume.errors import (
    BadInput,
    BudwoodError,
    Busy,
    Conflict,
    Corrupt,
    Diverged,
    Forgotten,
    Full,
    Locked,
    NotFound,
    ReadOnly,
    StoreError,
    Unauthorized,
    Unsupported,
    UsageError,
    WrongStore,
    restored,
)
from ..volume.tracebacks import strip_traceback

_KIN: Final[dict[type[BudwoodError], tuple[type[apsw.Error], int]]] = {
    Busy: (apsw.BusyError, apsw.SQLITE_BUSY),
    Conflict: (apsw.BusyError, apsw.SQLITE_BUSY_SNAPSHOT),
    Diverged: (apsw.BusyError, apsw.SQLITE_BUSY_SNAPSHOT),
    ReadOnly: (apsw.ReadOnlyError, apsw.SQLITE_READONLY),
    Full: (apsw.FullError, apsw.SQLITE_FULL),
    NotFound: (apsw.CantOpenError, apsw.SQLITE_CANTOPEN),
    Forgotten: (apsw.CantOpenError, apsw.SQLITE_CANTOPEN),
    WrongStore: (apsw.CantOpenError, apsw.SQLITE_CANTOPEN),
    Unsupported: (apsw.CantOpenError, apsw.SQLITE_CANTOPEN),
    Locked: (apsw.AuthError, apsw.SQLITE_AUTH),
    Unauthorized: (apsw.AuthError, apsw.SQLITE_AUTH),
    BadInput: (apsw.SQLError, apsw.SQLITE_ERROR),
    UsageError: (apsw.SQLError, apsw.SQLITE_ERROR),
    Corrupt: (apsw.IOError, apsw.SQLITE_IOERR_CORRUPTFS),
    StoreError: (apsw.IOError, apsw.SQLITE_IOERR),
    BudwoodError: (apsw.SQLError, apsw.SQLITE_ERROR),
}

_twins: Final[dict[type[BudwoodError], tuple[type[BudwoodError], int]]] = {}


def as_sqlite(error: BudwoodError, *, at_commit: bool = False) -> BudwoodError:
    """The error's twin: the same class, text and fields, and SQLite's besides. A twin is returned as it is."""
    if isinstance(error, apsw.Error):
        return error
    known = _twins.get(type(error))
    if known is None:
        known = _twins[type(error)] = _twin_of(type(error))
    kind, code = known
    if at_commit and code != apsw.SQLITE_FULL:
        code = apsw.SQLITE_IOERR_WRITE
    told = strip_traceback(error)
    fields: dict[str, object] = {**vars(error), "result": code & 0xFF, "extendedresult": code}
    # Not the one that is raised: its traceback holds its callers' locals, connections with their locks among them.
    _last.error = restored(kind, error.args, fields)
    return restored(kind, error.args, fields).with_traceback(told.__traceback__)


def last_error() -> BudwoodError | None:
    """What was last told to SQLite in this thread: for callers of SQLite who are given its number alone."""
    return getattr(_last, "error", None)


_last = threading.local()


def _twin_of(kind: type[BudwoodError]) -> tuple[type[BudwoodError], int]:
    nearest = next(base for base in kind.__mro__ if base in _KIN)
    sqlite, code = _KIN[nearest]

    def reduce(twin: BudwoodError) -> tuple[Callable[..., BudwoodError], tuple[object, ...]]:
        # No other process would find the twin's class by its name.
        return _restored, (kind, twin.args, vars(twin))

    members = {"__module__": kind.__module__, "__doc__": kind.__doc__, "__reduce__": reduce}
    return type(kind.__name__, (kind, sqlite), members), code


def _restored(kind: type[BudwoodError], args: tuple[object, ...], fields: dict[str, object]) -> BudwoodError:
    twin = as_sqlite(restored(kind, args, fields))
    vars(twin).update(fields)
    return twin
