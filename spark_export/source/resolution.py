"""Settle: what a DataFrame reads is settled once, when it is loaded: which volume, which LSN, and a lease on it.

Spark asks a source for its schema in one process and for its partitions in others, some time later; what is settled
travels along. So a DataFrame reads one LSN for good, however often it is read, and whatever is committed meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from ...volume.errors import BudwoodError, Forgotten
from ...volume.wire import SnapshotInfo
from .hold import Hold, forgotten, shared
from .options import Request, parse
from .page_reader import reach
from .place import Place, find
from .worker import is_worker, spare_collector

__all__ = ["Settled", "plainly", "settle"]

_QUIET: Final = "SPARK_HIDE_TRACEBACK"


@dataclass(frozen=True, slots=True)
class Settled:
    """It pickles."""

    request: Request
    place: Place
    view: SnapshotInfo
    hold: Hold


def settle(options: Mapping[str, str]) -> Settled:
    """Raises BadInput, NotFound, Forgotten, Unauthorized, Unavailable: each in one line."""
    request = parse(options)
    place = find(
        request.volume,
        remote=request.remote,
        home=request.home,
        token=request.token,
        cache_bytes=request.cache_bytes,
    )
    try:
        view = reach(place).snapshot(lsn=request.version, at_ms=request.time_ms)
    except Forgotten as error:
        if request.version is None:
            raise
        raise forgotten(place, request.version) from error
    return Settled(request, place, view, shared(place, view.lsn, request.lease_seconds))


@contextmanager
def plainly() -> Generator[None]:
    """For all that Spark calls: a user's mistake, or a store's failure, reaches the user as its one line. Spark would
    put the stack of its worker around it, which tells nothing; other errors keep theirs."""
    try:
        yield
    except BudwoodError as error:
        if is_worker():
            # A worker ends with its first error, so this is for that error alone.
            os.environ[_QUIET] = "1"
        raise error.with_traceback(None) from None
    finally:
        spare_collector()
