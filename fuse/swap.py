"""Swap: move an open SQLite database to another snapshot, under SQLite's own locks.

The kernel keeps the locks of a mount's files, so this process takes them as any program does: it opens the file through
its own mount and locks it (F_OFD_SETLK, which conflicts with SQLite's locks as they do with one another). Every system
call on the mount is answered by this process's event loop, so each of them is made in a thread, where the interpreter's
lock is not held while it waits. Such an open is known by its thread (`own_threads`): it is no writer.

**Rollback modes.** RESERVED (nobody writes), PENDING (nobody begins to read), then the range of SHARED (nobody reads).
At its next transaction each connection finds another change counter in page 1, and reads anew.

**WAL mode**, where a -shm is there. The locks lie on the -shm: with WRITE, CKPT, RECOVER and every READ held nobody is
within a transaction. SHARED on the database as well, as every connection has it: it keeps the last one that closes from
removing the -wal meanwhile. Then

    every commit in the -wal is in the volume (File.restart_wal, when the -wal is cut to nothing, through the mount)
    the volume's head moves, the file shows it, the kernel forgets the file's pages
    the -shm is written as SQLite does when a -wal starts over (sqlite/walindex.py)

and each connection finds another index at its next transaction, and reads anew; no frame of the old -wal is asked for.
From the cut on the -shm must be written whatever else fails: what the file shows then is what the -wal held.
The -shm is written through the mount too, and so into the very pages that SQLite has mapped.

Readers go on until their transactions end, so the locks are tried for, let go and tried again, with pauses in which
writers get on; a program that never ends its transaction keeps the file where it is (Busy).
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import threading
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import trio

from ..sqlite.walindex import HEADER_SIZE, INFO_SIZE, LOCKS, OPEN_LOCK, WRITE_LOCK, gated, restarted
from ..volume.errors import Busy
from .file import File
from .guard import log

__all__ = ["PATIENCE_SECONDS", "QUIET_PATIENCE_SECONDS", "NotOurs", "own_threads", "swap"]

PATIENCE_SECONDS: Final = 5.0
"""For what a person asked for."""
QUIET_PATIENCE_SECONDS: Final = 1.5
"""For what goes on underneath, which is tried again anyway: a transaction that never ends must not cost the others."""
_FIRST_HOLD_SECONDS: Final = 0.05
_LONGEST_HOLD_SECONDS: Final = 0.4
"""How long new transactions are kept waiting for those that are under way: longer at each try, else programs that
always overlap would keep the file where it is for ever.
"""
_STEP_SECONDS: Final = 0.002
_FIRST_PAUSE_SECONDS: Final = 0.01
_LONGEST_PAUSE_SECONDS: Final = 0.4

_PENDING: Final = range(0x40000000, 0x40000001)
_RESERVED: Final = range(0x40000001, 0x40000002)
_SHARED: Final = range(0x40000002, 0x40000002 + 510)
_MARKS: Final = 2 * HEADER_SIZE
_SETLK: Final = 37
"""F_OFD_SETLK, which the module fcntl doesn't name."""
_LOCK: Final = struct.Struct("hhqqi4x")

T = TypeVar("T")

own_threads: Final[set[int]] = set()
"""Threads of this process that open a file of the mount right now, as the kernel numbers them."""
_threads: Final = trio.CapacityLimiter(8)
"""Of their own: they wait for the event loop, which may wait for other threads."""


class NotOurs(Busy):
    """This process may not take the file's locks."""


async def swap(
    file: File, path: Path, change: Callable[[], object] | None = None, *, patience_seconds: float = PATIENCE_SECONDS
) -> None:
    """Show the volume's head, after `change` has moved it, if given; `path` leads to the file through the mount.

    Raises what `change` raises; Busy while programs keep the database in use or have written to it what isn't
    committed, NotOurs where it can't be locked; then everything is as it was.
    """
    async with _held(file, path, patience_seconds) as locks:
        if locks.index < 0:
            moved = await file.move_on(change)
        else:
            moved = await _swap_beneath_wal(file, locks, change)
        if not moved:
            raise _in_use(file)


async def _swap_beneath_wal(file: File, locks: _Locks, change: Callable[[], object] | None) -> bool:
    before, cut = file.view, file.wal_in_use
    if cut:
        await _in_thread(locks.cut)
    try:
        return await file.move_on(change)
    finally:
        if cut or file.view is not before:
            length = file.length
            await _in_thread(lambda: locks.restart(length))


async def _in_thread(work: Callable[[], T]) -> T:
    """Not given up halfway: what was locked or cut must be mended."""
    with trio.CancelScope(shield=True):
        return await trio.to_thread.run_sync(work, limiter=_threads)
    raise AssertionError("a shield ends nothing")


@asynccontextmanager
async def _held(file: File, path: Path, patience_seconds: float) -> AsyncGenerator[_Locks]:
    deadline = trio.current_time() + patience_seconds
    hold, pause = _FIRST_HOLD_SECONDS, _FIRST_PAUSE_SECONDS
    while True:
        locks = await _in_thread(partial(_take, path, file.ino, hold))
        if locks is not None:
            break
        if trio.current_time() > deadline:
            raise _in_use(file)
        await trio.sleep(pause)
        hold, pause = min(2 * hold, _LONGEST_HOLD_SECONDS), min(2 * pause, _LONGEST_PAUSE_SECONDS)
    try:
        yield locks
    finally:
        await _in_thread(locks.release)


def _in_use(file: File) -> Busy:
    return Busy(
        f"{file.path!r} stays where it is while programs are within transactions on it: end them, then try again"
    )


def _take(path: Path, ino: int, hold_seconds: float) -> _Locks | None:
    """In a thread. None if they can't all be had now."""
    locks = _Locks(path, hold_seconds)
    try:
        if locks.take(ino):
            return locks
    except FileNotFoundError:
        # Renamed or unlinked a moment ago, or a -shm was.
        pass
    except PermissionError as error:
        locks.release()
        raise NotOurs(f"{path.name!r} can't be locked, and so not moved while it is open: {error.strerror}") from error
    except OSError as error:
        locks.release()
        if error.errno == errno.EROFS:
            raise NotOurs(f"{path.name!r} can't be locked on a mount that is read-only") from error
        raise Busy(f"{path.name!r} can't be locked: {error.strerror}") from error
    locks.release()
    return None


class _Locks:
    """The locks of one database. Every method waits for the event loop, and so belongs to a thread."""

    def __init__(self, path: Path, hold_seconds: float) -> None:
        self.index = -1
        """A descriptor of the -shm; -1 in the rollback modes."""
        self._path = path
        self._main = -1
        self._hold_seconds = hold_seconds
        self._before = b""
        """The marks, while others stand there to hold readers back."""

    def take(self, ino: int) -> bool:
        self._main = _open(self._path)
        if os.fstat(self._main).st_ino != ino:
            return False
        try:
            self.index = _open(self._beside("-shm"))
        except FileNotFoundError:
            return self._take_rollback() and not self._beside("-shm").exists()
        return self._take_wal()

    def _take_rollback(self) -> bool:
        return (
            _lock(self._main, fcntl.F_WRLCK, _RESERVED)
            and _lock(self._main, fcntl.F_WRLCK, _PENDING)
            and _soon(lambda: _lock(self._main, fcntl.F_WRLCK, _SHARED), self._hold_seconds)
        )

    def _take_wal(self) -> bool:
        if not _lock(self._main, fcntl.F_RDLCK, _PENDING) or not _lock(self._main, fcntl.F_RDLCK, _SHARED):
            return False
        _lock(self._main, fcntl.F_UNLCK, _PENDING)
        if not _lock(self.index, fcntl.F_RDLCK, range(OPEN_LOCK, OPEN_LOCK + 1)):
            return False
        wanted = list(LOCKS)

        def more() -> bool:
            # One by one, and kept.
            wanted[:] = [at for at in wanted if not _lock(self.index, fcntl.F_WRLCK, range(at, at + 1))]
            if wanted and not self._before and not {LOCKS[1], LOCKS[-1]} & set(wanted):
                self._close_gate()
            return not wanted

        return _lock(self.index, fcntl.F_WRLCK, range(WRITE_LOCK, WRITE_LOCK + 1)) and _soon(more, self._hold_seconds)

    def _close_gate(self) -> None:
        """Who wants to begin reading finds its mark locked, and tries again in a moment."""
        index = os.pread(self.index, INFO_SIZE, 0)
        marks = gated(index)
        if marks is not None:
            self._before = index[_MARKS : _MARKS + len(marks)]
            os.pwrite(self.index, marks, _MARKS)

    def cut(self) -> None:
        """The -wal becomes empty, as after a checkpoint that truncates it."""
        try:
            os.truncate(self._beside("-wal"), 0)
        except OSError as error:
            raise Busy(f"commits in {self._path.name}-wal can't be taken over now: {error.strerror}") from error

    def restart(self, length: int) -> None:
        """The -shm says that the -wal starts over beneath a database of so many bytes."""
        index = restarted(os.pread(self.index, INFO_SIZE, 0), length, os.urandom(4))
        if index is None:
            # It holds nothing that SQLite would believe: it makes it anew from the -wal.
            return
        try:
            os.pwrite(self.index, index.header, HEADER_SIZE)
            os.pwrite(self.index, index.header, 0)
            os.pwrite(self.index, index.marks, _MARKS)
            os.pwrite(self.index, index.begun, INFO_SIZE - 8)
            self._before = b""
        except OSError as error:
            # Half of it is no index either, which is all that matters.
            log.error("the -shm of %s can't be written: %s", self._path, error)

    def release(self) -> None:
        if self._before:
            with suppress(OSError):
                os.pwrite(self.index, self._before, _MARKS)
            self._before = b""
        for fd in (self.index, self._main):
            if fd >= 0:
                with suppress(OSError):
                    os.close(fd)
        self.index = self._main = -1

    def _beside(self, suffix: str) -> Path:
        return self._path.with_name(self._path.name + suffix)


def _open(path: Path) -> int:
    thread = threading.get_native_id()
    own_threads.add(thread)
    try:
        return os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    finally:
        own_threads.discard(thread)


def _lock(fd: int, kind: int, place: range) -> bool:
    """Whether it could be had at once."""
    try:
        fcntl.fcntl(fd, _SETLK, _LOCK.pack(kind, os.SEEK_SET, place.start, len(place), 0))
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise
    return True


def _soon(more: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not more():
        if time.monotonic() > deadline:
            return False
        time.sleep(_STEP_SECONDS)
    return True
