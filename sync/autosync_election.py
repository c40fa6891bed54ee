"""Autosync's election: of all processes of a home one syncs it, and whoever waits notices when that one is gone.

The leader holds the file lock `locks/autosync`, which goes with its process however that ends; so nobody has to judge
by a clock whether it still lives. A mount comes first, since it alone can pull under programs that have files open: it
holds `locks/autosync.mount` for as long as it lives, and whoever leads meanwhile steps down when he sees that.

`locks/autosync.leader` says who leads, and what went wrong last, for people: a word that outlives its process counts
for nothing, since the lock is free then.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Final

import msgspec

from ..volume.decoded_kinds import decodable
from ..volume.errors import Busy
from .file_locks import FileLock, is_held
from .home_permissions import open_private

_LOCK: Final = "autosync"
_MOUNT: Final = "autosync.mount"
_LEADER: Final = "autosync.leader"


class Leader(msgspec.Struct, frozen=True):
    """Who syncs a home. Times are milliseconds since 1970, by its clock."""

    pid: int
    since_ms: int
    error: str = ""
    """The last one; "" if there was none."""
    error_ms: int = 0
    is_over: bool = False
    """Whether what it kept from syncing is synced since."""
    is_mount: bool = False


class Leadership(AbstractContextManager["Leadership"]):
    """Held until it is released. For any thread."""

    def __init__(self, home: Path, lock: FileLock, *, is_mount: bool) -> None:
        self._home = home
        self._lock = lock
        self._writing = threading.Lock()
        self._word = Leader(os.getpid(), _now_ms(), is_mount=is_mount)
        self._write(self._word)

    def failed(self, error: str) -> None:
        with self._writing:
            self._write(msgspec.structs.replace(self._word, error=error, error_ms=_now_ms(), is_over=False))

    def worked(self) -> None:
        """Nothing is kept from syncing any more."""
        with self._writing:
            if self._word.error and not self._word.is_over:
                self._write(msgspec.structs.replace(self._word, is_over=True))

    def release(self) -> None:
        self._lock.release()

    def __exit__(self, *error: object) -> None:
        self.release()

    def _write(self, word: Leader) -> None:
        """At once: a reader finds the one before, or this one."""
        self._word = word
        path = self._home / "locks" / _LEADER
        beside = path.with_suffix(".new")
        try:
            fd = open_private(beside, os.O_WRONLY | os.O_TRUNC)
            try:
                os.write(fd, msgspec.json.encode(word))
            finally:
                os.close(fd)
            beside.replace(path)
        except OSError:
            # It leads all the same: the word is for people.
            with suppress(OSError):
                path.unlink()


def stand(home: Path) -> Leadership:
    """Lead from now until it is released. Raises Busy while another does, or a mount is to; Full, ReadOnly,
    Unavailable.
    """
    if mount_wants(home):
        raise Busy("this home is mounted, and its mount syncs it")
    return _lead(home, is_mount=False)


def claim(home: Path) -> FileLock:
    """A mount's, for as long as it lives: it is the next to lead. Raises as `stand`; Busy passes at once, unless the
    home has another mount."""
    return FileLock(f"{home}/locks/{_MOUNT}", "this home is synced by another mount")


def lead_for_mount(home: Path) -> Leadership:
    """Lead, with the claim in hand. Raises Busy until the leader before has ended what was under way."""
    return _lead(home, is_mount=True)


def mount_wants(home: Path) -> bool:
    return is_held(f"{home}/locks/{_MOUNT}")


def leader(home: Path) -> Leader | None:
    """Who syncs the home now; None if nobody does. Of a leader that left no word the process is 0."""
    if not is_held(f"{home}/locks/{_LOCK}"):
        return None
    try:
        return msgspec.json.decode((home / "locks" / _LEADER).read_bytes(), type=decodable(Leader))
    except (OSError, msgspec.MsgspecError):
        return Leader(0, 0)


def _lead(home: Path, *, is_mount: bool) -> Leadership:
    lock = FileLock(f"{home}/locks/{_LOCK}", "this home is synced by another process")
    return Leadership(home, lock, is_mount=is_mount)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
