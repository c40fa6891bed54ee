"""Errnos: what a program is told, for each error of ours."""

from __future__ import annotations

import errno
from typing import Final

from ..volume.errors import (
    AlreadyExists,
    BadInput,
    BudwoodError,
    Busy,
    Conflict,
    Diverged,
    Forgotten,
    Full,
    NotFound,
    ReadOnly,
    StoreError,
    Unauthorized,
    Unsupported,
    UsageError,
)

__all__ = ["errno_of"]

ERRNOS: Final[dict[type[BudwoodError], int]] = {
    BadInput: errno.EINVAL,
    NotFound: errno.ENOENT,
    AlreadyExists: errno.EEXIST,
    Busy: errno.EBUSY,
    ReadOnly: errno.EROFS,
    Unauthorized: errno.EACCES,
    Unsupported: errno.EOPNOTSUPP,
    Full: errno.ENOSPC,
    # The file is not what the program believes it to be: nothing that it might try again would help it.
    Conflict: errno.EIO,
    Diverged: errno.EIO,
    Forgotten: errno.EIO,
    UsageError: errno.EIO,
    StoreError: errno.EIO,
    BudwoodError: errno.EIO,
}


def errno_of(error: BudwoodError) -> int:
    """The number of the nearest class that has one."""
    return next(ERRNOS[kind] for kind in type(error).__mro__ if kind in ERRNOS)
