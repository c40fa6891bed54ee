"""Guarded: around every handler, so that no error ends the mount.

pyfuse3 passes FUSEError on to the program; any other exception would end the whole mount. What a handler raises
becomes the errno of that one call. Errors that say something about the store are logged; a defect of ours is logged
with its traceback.
"""

from __future__ import annotations

import errno
import functools
import logging
from collections import Counter
from collections.abc import Callable, Coroutine
from types import CoroutineType
from typing import Any, Final, ParamSpec, TypeVar

import pyfuse3

from ...volume import faults
from ...volume.errors import (
    AlreadyExists,
    BadInput,
    BudwoodError,
    Busy,
    Full,
    Locked,
    NotFound,
    ReadOnly,
    StoreError,
    Unauthorized,
    Unsupported,
)
from .readers import driven

log: Final = logging.getLogger("budwood.fuse")

P = ParamSpec("P")
R = TypeVar("R", bound=Callable[..., object])
T = TypeVar("T")

_ERRNOS: Final[dict[type[BudwoodError], int]] = {
    BadInput: errno.EINVAL,
    NotFound: errno.ENOENT,
    AlreadyExists: errno.EEXIST,
    Busy: errno.EBUSY,
    ReadOnly: errno.EROFS,
    Locked: errno.EACCES,
    Unauthorized: errno.EACCES,
    Unsupported: errno.EOPNOTSUPP,
    Full: errno.ENOSPC,
    # All others: nothing that the program might try again would help it.
    BudwoodError: errno.EIO,
}

BEGUN = faults.point("mount: a request that changes something is about to be answered")
DONE = faults.point("mount: a request changed something, the program not told")


class Counters:
    """What the mount has done, for `metrics`."""

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        """What programs were told, by errno."""
        self.commits = 0


counters: Final = Counters()
"""A process has one mount."""


def named(run: R, handler: Callable[..., object]) -> R:
    """A wrapper that says whose it is, and keeps its own type."""
    functools.update_wrapper(run, handler)
    return run


def guarded(handler: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, CoroutineType[Any, Any, T]]:
    async def run(*args: P.args, **kwargs: P.kwargs) -> T:
        counters.requests[handler.__name__] += 1
        try:
            return await driven(handler(*args, **kwargs))
        except pyfuse3.FUSEError as error:
            _count(error.errno)
            raise
        except BudwoodError as error:
            if isinstance(error, StoreError):
                log.warning("%s: %s", handler.__name__, error)
            else:
                log.info("%s: %s", handler.__name__, error)
            raise _fuse_error(_errno_of(error)) from None
        except OSError as error:
            log.warning("%s: %s", handler.__name__, error)
            raise _fuse_error(error.errno or errno.EIO) from None
        except Exception:
            log.exception("%s: a defect, answered with EIO", handler.__name__)
            raise _fuse_error(errno.EIO) from None

    return named(run, handler)  # type: ignore[return-value]


def _errno_of(error: BudwoodError) -> int:
    """The number of the nearest class that has one."""
    return next(_ERRNOS[kind] for kind in type(error).__mro__ if kind in _ERRNOS)


def _fuse_error(number: int) -> pyfuse3.FUSEError:
    _count(number)
    return pyfuse3.FUSEError(number)


def _count(number: int) -> None:
    counters.errors[errno.errorcode.get(number, str(number))] += 1


def changing(handler: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, CoroutineType[Any, Any, T]]:
    """As `guarded`, for requests that change something: a crash may come before each, and before its answer."""
    run = guarded(handler)

    async def change(*args: P.args, **kwargs: P.kwargs) -> T:
        BEGUN()
        result = await run(*args, **kwargs)
        DONE()
        return result

    return named(change, handler)  # type: ignore[return-value]
