"""Remotes: one connection a process to each remote, for all jobs and tasks that come to it.

Spark's workers in Python are forked and then used for one task after another, of any job. A remote opens anew by itself
in a forked child (remote/portal.py); what it opened serves all later tasks, so that they begin with the store's root,
the log and the indexes known.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final

from .worker import is_worker

if TYPE_CHECKING:
    from ...remote.portal import BlockingRemote

_remotes: Final[dict[tuple[str, str], BlockingRemote]] = {}
_lock = threading.Lock()


def _in_child() -> None:
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_in_child)


def connected(url: str, token: str) -> BlockingRemote:
    """The connection to a remote, made at the first call; nothing is asked of it yet."""
    from ...remote.portal import open_remote

    with _lock:
        remote = _remotes.get((url, token))
        if remote is None:
            remote = open_remote(url, token=token, cache_dir=shared_folder(), create=lambda: False)
            _remotes[url, token] = remote
        return remote


def shared_folder() -> Path | None:
    """A folder that this executor's workers share and Spark removes; None outside of Spark's workers.

    Elsewhere the variable may be set too, by whoever set up the cluster, and names what Spark's folders lie in.
    """
    folders = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")
    return Path(folders[0], "budwood") if folders[0] and is_worker() else None


def spill_folder() -> Path | None:
    """Where a task's own files lie, so that they go with the executor if Spark kills the worker; None: as usual."""
    folder = shared_folder()
    if folder is not None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder
