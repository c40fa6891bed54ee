"""File locks of a home: one for the writer of each volume, one for whoever syncs it.

`flock` belongs to the open file, so it excludes threads as well as processes, and goes with the process that dies. A
child made by `os.fork` shares the open file: it closes its copy and never unlocks, since that would unlock the
parent's, who does so itself. Whoever removes a volume removes its lock files, while it holds them (`remove`); else two
holders could lock two files of one name. So a lock counts if its file still has its name once it is locked.
"""

from __future__ import annotations

import errno
import fcntl
import os
import threading
from abc import abstractmethod
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Final

from ..volume.errors import Busy, Full, ReadOnly, Unavailable
from .afterfork import forgets
from .home_permissions import make_private_dir, open_private

SYNC: Final = ".sync"
"""What the names of sync locks end with."""


class Lock(AbstractContextManager["Lock"]):
    """A lock that is held from its making until `release`, which is harmless when it is released already."""

    @abstractmethod
    def release(self) -> None: ...

    def remove(self) -> None:
        """Release it, for what is no more. Its file goes, too, if nobody else of this process has it."""
        self.release()

    def __exit__(self, *error: object) -> None:
        self.release()

    def __del__(self) -> None:
        self.release()


class IdleFiles:
    """Open files of one lock that nobody of this process holds: at most a few, so that it is taken without opening."""

    def __init__(self) -> None:
        self.fds: list[int] = []
        forgets(self)

    def forget(self) -> None:
        """In a child after fork: its copies are closed, and what the parent locks by them later isn't the child's."""
        while self.fds:
            os.close(self.fds.pop())

    def __del__(self) -> None:
        for fd in getattr(self, "fds", ()):  # It may have been interrupted before it had any.
            os.close(fd)


class FileLock(Lock):
    """Raises Busy, with `held` as its words, when someone else has it. Its file may come from `idle`, and go there."""

    _fd = -1  # Also of one whose making was interrupted before it began.

    def __init__(self, path: str, held: str, idle: IdleFiles | None = None) -> None:
        self._fd = -1
        self._path = path
        self._idle = idle
        try:
            fd = _taken(idle) if idle is not None else -1
            while True:
                self._fd = _open(path) if fd < 0 else fd
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(self._fd).st_nlink:
                    break
                # It was removed before it was locked: others lock another file.
                gone, self._fd, fd = self._fd, -1, -1
                os.close(gone)
        except OSError as error:
            self.release()
            if error.errno == errno.EWOULDBLOCK:
                raise Busy(held) from None
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise Full(f"no room on the disk for the lock {path}") from error
            if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
                raise ReadOnly(f"the lock {path} can't be taken: the home can be read, and not written") from error
            raise Unavailable(f"the lock {path} can't be taken: {error.strerror}") from error
        forgets(self)

    def release(self) -> None:
        fd, self._fd = self._fd, -1
        if fd < 0:
            return
        if self._idle is not None and not self._idle.fds:
            fcntl.flock(fd, fcntl.LOCK_UN)
            self._idle.fds.append(fd)
        else:
            os.close(fd)

    def remove(self) -> None:
        if self._fd >= 0:
            # A file that stays is in nobody's way, and `compact` removes it.
            with suppress(OSError):
                os.unlink(self._path)
        self._idle = None
        self.release()

    def forget(self) -> None:
        """In a child after fork: the open file is the parent's, and is unlocked when that one says so."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def is_held(path: str) -> bool:
    """Whether somebody has the lock now. In a home that can't be written, too. Raises Unavailable."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise Unavailable(f"the lock {path} can't be looked at: {error.strerror}") from error
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def _taken(idle: IdleFiles) -> int:
    """-1 where there is none."""
    try:
        return idle.fds.pop()
    except IndexError:
        return -1


class ProcessWriteLock:
    """A volume's write lock, held by this process for many transactions; each takes the lock within (`inner`).

    A mount has it for as long as a program has the file open for writing: what that program has read stays the head
    until it writes.
    """

    def __init__(self, lock: FileLock, busy: str) -> None:
        self._lock = lock
        self._busy = busy
        self._free = threading.Lock()

    def inner(self) -> Lock:
        """Raises Busy while another thread has it."""
        if not self._free.acquire(blocking=False):
            raise Busy(self._busy)
        return _Inner(self._free)

    def release(self) -> None:
        self._lock.release()


class _Inner(Lock):
    def __init__(self, free: threading.Lock) -> None:
        self._free: threading.Lock | None = free

    def release(self) -> None:
        free, self._free = self._free, None
        if free is not None:
            free.release()


def _open(path: str) -> int:
    try:
        return open_private(path, os.O_RDWR)
    except FileNotFoundError:
        make_private_dir(Path(path).parent)
        return open_private(path, os.O_RDWR)


def write_lock(home: Path, volume: str, name: str, idle: IdleFiles | None = None) -> FileLock:
    """Held while a volume's content changes here."""
    held = f"volume {name!r} is being written by another connection: try again when it is done"
    return FileLock(f"{home}/locks/{volume}", held, idle)


def sync_lock(home: Path, volume: str, name: str) -> FileLock:
    """Held while a volume is pushed, pulled or reset: one at a time, so that a pending push has one owner."""
    held = f"volume {name!r} is being pushed or pulled by someone else: try again when they are done"
    return FileLock(f"{home}/locks/{volume}{SYNC}", held)


def has_sync_lock(home: Path, volume: str) -> bool:
    """Whether somebody has ever held it, since the volume came here."""
    return os.path.exists(f"{home}/locks/{volume}{SYNC}")


def lock_files(home: Path) -> list[Path]:
    return list((home / "locks").iterdir()) if (home / "locks").is_dir() else []


def names_lock(home: Path) -> FileLock:
    """Held while the names of a home are pushed or pulled."""
    return FileLock(f"{home}/locks/names.sync", "the names of this home are being synced by another process: try again")
