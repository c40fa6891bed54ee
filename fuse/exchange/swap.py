"""Swap: move an open SQLite database to another snapshot, under SQLite's own locks.

The kernel keeps the locks of a mount's files, so they are taken as any program takes them: the file is opened through
the mount and locked (F_OFD_SETLK, which conflicts with SQLite's locks as they do with one another). Another process
does that, step by step as it is told (locking.py): one that serves a mount can't die while it has a file of it open.
Such an open is known by its thread (`own_threads`): it is no writer.

**Rollback modes.** RESERVED (nobody writes), PENDING (nobody begins to read), then the range of SHARED (nobody reads).
At its next transaction each connection finds another change counter in page 1, and reads anew.

**WAL mode**, where a -shm is there. The locks lie on the -shm: with WRITE, CKPT, RECOVER and every READ held nobody is
within a transaction. SHARED on the database as well, as every connection has it: it keeps the last one that closes from
removing the -wal meanwhile. Then

    the -wal is cut to nothing, through the mount, by when every commit in it is in the volume (Writeback.restart_wal)
    the volume's head moves, the file shows it, the kernel forgets the file's pages
    the -shm is written as SQLite does when a -wal starts over (sqlite/walindex.py)

and each connection finds another index at its next transaction, and reads anew; no frame of the old -wal is asked for.
From the cut on the -shm must be written whatever else fails: what the file shows then is what the -wal held.
The -shm is written through the mount too, and so into the very pages that SQLite has mapped.

Where that process ends halfway, its locks are gone: nothing is moved then, and what was cut is written all the same.

Readers go on until their transactions end, so the locks are tried for, let go and tried again, with pauses in which
writers get on; a program that never ends its transaction keeps the file where it is (Busy).
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import trio

from ...sqlite.walindex import HEADER_SIZE, INFO_SIZE, LOCKS, OPEN_LOCK, WRITE_LOCK, gated, restarted
from ...volume.errors import Busy
from ..files.regular import File
from ..requests.guarded import log
from .locking import Broken, Conversation, Locking

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
_swaps: Final = trio.CapacityLimiter(8)
"""Those that hold locks at once."""


class NotOurs(Busy):
    """This process may not take the file's locks."""


async def swap(
    locking: Locking,
    file: File,
    path: Path,
    change: Callable[[], object] | None = None,
    *,
    patience_seconds: float = PATIENCE_SECONDS,
) -> None:
    """Show the volume's head, after `change` has moved it, if given; `path` leads to the file through the mount.

    Raises what `change` raises; Busy while programs keep the database in use or have written to it what isn't
    committed, NotOurs where it can't be locked; then everything is as it was.
    """
    async with _held(locking, file, path, patience_seconds) as locks:
        if locks.index < 0:
            moved = await file.move_on(change)
        else:
            moved = await _swap_beneath_wal(file, locks, change)
        if not moved:
            raise _in_use(file)


async def _swap_beneath_wal(file: File, locks: _Locks, change: Callable[[], object] | None) -> bool:
    before, cut = file.image.view, file.writeback.wal_in_use
    try:
        if cut:
            await locks.cut()
        return await file.move_on(change)
    finally:
        if cut or file.image.view is not before:
            # Not given up halfway: what was cut must be mended.
            with trio.CancelScope(shield=True):
                await locks.restart(file.length)


@asynccontextmanager
async def _held(locking: Locking, file: File, path: Path, patience_seconds: float) -> AsyncGenerator[_Locks]:
    deadline = trio.current_time() + patience_seconds
    hold, pause = _FIRST_HOLD_SECONDS, _FIRST_PAUSE_SECONDS
    while True:
        async with _swaps, _conversation(locking, path) as conversation:
            locks = _Locks(locking, conversation, path, hold)
            try:
                if await _taken(locks, path, file.ino):
                    yield locks
                    return
            finally:
                with trio.CancelScope(shield=True):
                    await locks.release()
        if trio.current_time() > deadline:
            raise _in_use(file)
        await trio.sleep(pause)
        hold, pause = min(2 * hold, _LONGEST_HOLD_SECONDS), min(2 * pause, _LONGEST_PAUSE_SECONDS)


@asynccontextmanager
async def _conversation(locking: Locking, path: Path) -> AsyncGenerator[Conversation]:
    async with AsyncExitStack() as stack:
        try:
            told = await stack.enter_async_context(locking.conversation())
        except OSError as error:
            raise Busy(f"{path.name!r} can't be locked: {error.strerror}") from error
        yield told


def _in_use(file: File) -> Busy:
    return Busy(
        f"{file.path!r} stays where it is while programs are within transactions on it: end them, then try again"
    )


async def _taken(locks: _Locks, path: Path, ino: int) -> bool:
    """Whether they can all be had now."""
    try:
        with trio.CancelScope(shield=True):
            return await locks.take(ino)
    except FileNotFoundError:
        # Renamed or unlinked a moment ago, or a -shm was.
        return False
    except PermissionError as error:
        raise NotOurs(f"{path.name!r} can't be locked, and so not moved while it is open: {error.strerror}") from error
    except OSError as error:
        if error.errno == errno.EROFS:
            raise NotOurs(f"{path.name!r} can't be locked on a mount that is read-only") from error
        raise Busy(f"{path.name!r} can't be locked: {error.strerror}") from error
    raise AssertionError("a shield ends nothing")


class _Locks:
    """The locks of one database. A call of the conversation that has begun is waited for: shield every method."""

    def __init__(self, locking: Locking, conversation: Conversation, path: Path, hold_seconds: float) -> None:
        self.index = -1
        """A handle of the -shm; -1 in the rollback modes."""
        self._locking = locking
        self._conversation = conversation
        self._path = path
        self._main = -1
        self._hold_seconds = hold_seconds
        self._before = b""
        """The marks, while others stand there to hold readers back."""

    async def take(self, ino: int) -> bool:
        self._main, found = await self._conversation.open(self._path)
        if found != ino:
            return False
        if await self._open_index():
            return await self._take_wal()
        # One that was made meanwhile tells that the mode has changed.
        return await self._take_rollback() and not await self._open_index()

    async def _open_index(self) -> bool:
        try:
            self.index, _ = await self._conversation.open(self._beside("-shm"))
        except FileNotFoundError:
            return False
        return True

    async def _take_rollback(self) -> bool:
        return (
            await self._lock(self._main, fcntl.F_WRLCK, _RESERVED)
            and await self._lock(self._main, fcntl.F_WRLCK, _PENDING)
            and await _soon(lambda: self._lock(self._main, fcntl.F_WRLCK, _SHARED), self._hold_seconds)
        )

    async def _take_wal(self) -> bool:
        main, index = self._main, self.index
        if not await self._lock(main, fcntl.F_RDLCK, _PENDING) or not await self._lock(main, fcntl.F_RDLCK, _SHARED):
            return False
        await self._lock(main, fcntl.F_UNLCK, _PENDING)
        if not await self._lock(index, fcntl.F_RDLCK, range(OPEN_LOCK, OPEN_LOCK + 1)):
            return False
        wanted = list(LOCKS)

        async def more() -> bool:
            # One by one, and kept.
            wanted[:] = [at for at in wanted if not await self._lock(index, fcntl.F_WRLCK, range(at, at + 1))]
            if wanted and not self._before and not {LOCKS[1], LOCKS[-1]} & set(wanted):
                await self._close_gate()
            return not wanted

        writes = await self._lock(index, fcntl.F_WRLCK, range(WRITE_LOCK, WRITE_LOCK + 1))
        return writes and await _soon(more, self._hold_seconds)

    async def _lock(self, handle: int, kind: int, place: range) -> bool:
        return await self._conversation.lock(handle, kind, place)

    async def _close_gate(self) -> None:
        """Who wants to begin reading finds its mark locked, and tries again in a moment."""
        index = await self._conversation.read(self.index, INFO_SIZE, 0)
        marks = gated(index)
        if marks is not None:
            self._before = index[_MARKS : _MARKS + len(marks)]
            await self._conversation.write(self.index, marks, _MARKS)

    async def cut(self) -> None:
        """The -wal becomes empty, as after a checkpoint that truncates it."""
        try:
            with trio.CancelScope(shield=True):
                await self._conversation.cut(self._beside("-wal"))
        except OSError as error:
            raise Busy(f"commits in {self._path.name}-wal can't be taken over now: {error.strerror}") from error

    async def restart(self, length: int) -> None:
        """The -shm says that the -wal starts over beneath a database of so many bytes."""
        try:
            try:
                await self._restart(self._conversation, self.index, length)
            except Broken:
                async with self._locking.conversation() as conversation:
                    index, _ = await conversation.open(self._beside("-shm"))
                    await self._restart(conversation, index, length)
        except OSError as error:
            # Half of it is no index either, which is all that matters.
            log.error("the -shm of %s can't be written: %s", self._path, error)

    async def _restart(self, conversation: Conversation, handle: int, length: int) -> None:
        index = restarted(await conversation.read(handle, INFO_SIZE, 0), length, os.urandom(4))
        if index is None:
            # It holds nothing that SQLite would believe: it makes it anew from the -wal.
            return
        await conversation.write(handle, index.header, HEADER_SIZE)
        await conversation.write(handle, index.header, 0)
        await conversation.write(handle, index.marks, _MARKS)
        await conversation.write(handle, index.begun, INFO_SIZE - 8)
        self._before = b""

    async def release(self) -> None:
        # Where the conversation broke off, nothing is held any more.
        if self._before:
            with suppress(OSError):
                await self._conversation.write(self.index, self._before, _MARKS)
            self._before = b""
        with suppress(OSError):
            await self._conversation.close()
        self.index = self._main = -1

    def _beside(self, suffix: str) -> Path:
        return self._path.with_name(self._path.name + suffix)


async def _soon(more: Callable[[], Awaitable[bool]], seconds: float) -> bool:
    deadline = trio.current_time() + seconds
    while not await more():
        if trio.current_time() > deadline:
            return False
        await trio.sleep(_STEP_SECONDS)
    return True
