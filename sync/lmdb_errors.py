"""LMDB errors: what LMDB and the system say of the local store, as errors of ours that name it."""

from __future__ import annotations

import errno
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import lmdb

from ..volume.errors import Busy, Corrupt, Full, ReadOnly, StoreError, Unavailable
from .tables import HERE

NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

_DAMAGE: Final = (
    lmdb.BadDbiError,
    lmdb.BadTxnError,
    lmdb.BadValsizeError,
    lmdb.CorruptedError,
    lmdb.CursorFullError,
    lmdb.IncompatibleError,
    lmdb.InvalidError,
    lmdb.PageFullError,
    lmdb.PageNotFoundError,
    lmdb.VersionMismatchError,
)


@contextmanager
def translated(path: Path) -> Generator[None]:
    """LMDB's errors become ours, and damage found in records names the store at `path`."""
    try:
        yield
    except lmdb.Error as error:
        raise translate(error, path) from error
    except Corrupt as error:
        if error.key != HERE:
            raise
        raise located(error, path) from error


@contextmanager
def named(path: Path) -> Generator[None]:
    """Damage found in records names the store at `path`; LMDB's errors stay as they are."""
    try:
        yield
    except Corrupt as error:
        if error.key != HERE:
            raise
        raise located(error, path) from error


def located(error: Corrupt, path: Path) -> Corrupt:
    """Damage of which only `HERE` is told, as that of the store at `path`."""
    return Corrupt(f"{HERE} {path}", error.what)


def translate(error: lmdb.Error, path: Path) -> StoreError | Busy | ReadOnly:
    """LMDB's error as one of ours."""
    code = getattr(error, "code", 0)
    if isinstance(error, lmdb.MapFullError) or code in NO_ROOM:
        return Full("no room on the disk for the local store: free some, then try again; nothing was changed")
    if isinstance(error, lmdb.ReadersFullError):
        return Busy("the local store has no room for another reader: close some")
    if isinstance(error, lmdb.PanicError):
        return Unavailable(f"the local store {path} could not be written to the last time: try again")
    if isinstance(error, lmdb.ReadonlyError):
        return ReadOnly(f"the local store {path} can be read here, and not written")
    if code == errno.EIO:
        # What LMDB calls a write that came to a stop halfway, as it does when the disk fills up; it reads through its
        # map, where a failing disk gives no error code.
        return Full("the local store can't be written, as on a full disk: free some room; nothing was changed")
    if isinstance(error, _DAMAGE):
        return Corrupt(f"{HERE} {path}", str(error))
    return Unavailable(f"the local store {path} can't be used: {error}")


@contextmanager
def system_errors(what: str) -> Generator[None]:
    """The system's errors become ours; `what` says what can't be done."""
    try:
        yield
    except OSError as error:
        raise os_error(error, what) from error


def os_error(error: OSError, what: str) -> StoreError:
    if error.errno in NO_ROOM:
        return Full(f"{what}: no room on the disk")
    return Unavailable(f"{what}: {error.strerror}")
