"""Resolution: what a DataFrame reads is resolved once, when it is loaded: which volume, which LSN, and a lease on it.

Spark asks a source for its schema in one process and for its partitions in others, some time later; what is resolved
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
from .lease import Lease, forgotten, shared_lease
from .options import Request, parse
from .page_reader import open_volume
from .volume_ref import VolumeRef, find_volume_ref
from .worker import is_worker, spare_collector

_QUIET: Final = "SPARK_HIDE_TRACEBACK"


@dataclass(frozen=True, slots=True)
class Resolved:
    """It pickles."""

    request: Request
    ref: VolumeRef
    view: SnapshotInfo
    lease: Lease


def resolve(options: Mapping[str, str]) -> Resolved:
    """Raises BadInput, NotFound, Forgotten, Unauthorized, Unavailable: each in one line."""
    request = parse(options)
    ref = find_volume_ref(
        request.volume,
        remote=request.remote,
        home=request.home,
        token=request.token,
        cache_bytes=request.cache_bytes,
    )
    volume, version = open_volume(ref), request.version
    if isinstance(version, str):
        view = volume.snapshot(label=version)
    else:
        try:
            view = volume.snapshot(lsn=version, at_ms=request.time_ms)
        except Forgotten as error:
            if version is None:
                raise
            raise forgotten(ref, version) from error
    return Resolved(request, ref, view, shared_lease(ref, view.lsn, request.lease_seconds))


@contextmanager
def plain_errors() -> Generator[None]:
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
