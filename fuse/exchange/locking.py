"""Locking: how the process that serves a mount has files of it opened, locked and written: by another one (locker.py).

That process is started with the mount, and anew when it has died; at the end of the mount it ends, and is waited for.
A conversation has files of its own, which are closed with it. One that broke off (`Broken`) has lost its locks.

The kernel, and so the mount's handlers, know the locker's threads by their numbers (`own_threads`): what they open is
opened for its locks alone.
"""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import trio

from ..host import locker
from ..host.locker import ANSWER, HEAD, LONGEST, Op
from ..host.mountinfo import table
from ..requests.guarded import log

_PAUSE_SECONDS: Final = 1.0
"""Between a locker's end and the next look, so that one that can't live costs little."""
_BEGIN_SECONDS: Final = 30.0
_END_SECONDS: Final = 10.0

own_threads: Final[set[int]] = set()
"""Threads of the locker that have a conversation, as the kernel numbers them."""


class Broken(ConnectionError):
    """The locker ended within a conversation."""


class Conversation:
    """With one thread of the locker. Its calls raise the OSError that the locker met, or Broken.

    A call that has begun must be waited for: shield it.
    """

    def __init__(self, link: trio.socket.SocketType) -> None:
        self._link = link
        self._opened = 0

    async def open(self, path: Path) -> tuple[int, int]:
        """To read and write; no link is followed. A handle, and the inode."""
        ino, _ = await self._ask(Op.OPEN, os.fsencode(path))
        self._opened += 1
        return self._opened - 1, ino

    async def lock(self, handle: int, kind: int, place: range) -> bool:
        """F_RDLCK, F_WRLCK or F_UNLCK; whether it could be had at once."""
        try:
            await self._ask(Op.LOCK, b"", handle, kind, place.start, len(place))
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EACCES):
                return False
            raise
        return True

    async def read(self, handle: int, size: int, offset: int) -> bytes:
        _, data = await self._ask(Op.READ, b"", handle, 0, size, offset)
        return data

    async def write(self, handle: int, data: bytes, offset: int) -> None:
        written, _ = await self._ask(Op.WRITE, data, handle, 0, 0, offset)
        if written != len(data):
            raise OSError(errno.EIO, "a short write")

    async def cut(self, path: Path) -> None:
        await self._ask(Op.CUT, os.fsencode(path))

    async def close(self) -> None:
        """Every file: its locks are gone when this returns."""
        await self._ask(Op.CLOSE, b"")
        self._opened = 0

    async def begin(self) -> int:
        """The thread's number."""
        number, _ = await self._answer()
        return number

    async def _ask(
        self, op: int, rest: bytes, handle: int = 0, first: int = 0, second: int = 0, third: int = 0
    ) -> tuple[int, bytes]:
        try:
            await self._link.send(HEAD.pack(op, handle, first, second, third) + rest)
        except OSError as error:
            raise Broken(error.errno, "the process that locks files for the mount has ended") from error
        return await self._answer()

    async def _answer(self) -> tuple[int, bytes]:
        try:
            message = await self._link.recv(LONGEST)
        except OSError:
            message = b""
        if not message:
            raise Broken(errno.ECONNRESET, "the process that locks files for the mount has ended")
        error, number = ANSWER.unpack_from(message)
        if error:
            raise OSError(error, os.strerror(error))
        return number, message[ANSWER.size :]


class Locking:
    """For the mount's event loop."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._device = -1
        self._process: subprocess.Popen[bytes] | None = None
        self._calls: socket.socket | None = None
        self._over = False

    @property
    def pid(self) -> int | None:
        """The locker, if one runs."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def start(self) -> None:
        """Once the directory is mounted. By a thread that stays to the end: its death is what the locker hears of."""
        # Of the kernel's table alone: a look at the directory itself is answered by this very process.
        self._device = next((each.device for each in reversed(table()) if each.directory == self._directory), -1)
        self._start()

    def _start(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # What could be read of this process's environment is none of its business.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("BUDWOOD_")}
        program = str(Path(locker.__file__))
        told = [str(theirs.fileno()), str(os.getpid()), str(self._directory), str(self._device)]
        with theirs:
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-S", program, *told],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    env=environment,
                    cwd="/",
                    start_new_session=True,
                )
            except BaseException:
                ours.close()
                raise
        self._calls = ours

    @asynccontextmanager
    async def conversation(self) -> AsyncGenerator[Conversation]:
        """Raises OSError where there is no locker to be had."""
        link = trio.socket.from_stdlib_socket(self._called())
        conversation, number = Conversation(link), 0
        try:
            with trio.move_on_after(_BEGIN_SECONDS, shield=True):
                number = await conversation.begin()
            if not number:
                self._end(kill=True)
                raise Broken(errno.ETIMEDOUT, "the process that locks files for the mount does not answer")
            own_threads.add(number)
            yield conversation
        finally:
            own_threads.discard(number)
            link.close()

    def _called(self) -> socket.socket:
        """Our end of a new conversation."""
        if self._over:
            raise Broken(errno.ENOTCONN, "the mount has ended")
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                if self.pid is None or not self._passed(theirs):
                    self._renew()
                    self._passed(theirs)
            except BaseException:
                ours.close()
                raise
        ours.setblocking(False)
        return ours

    def _passed(self, theirs: socket.socket) -> bool:
        assert self._calls is not None
        try:
            socket.send_fds(self._calls, [b"."], [theirs.fileno()])
        except OSError:
            return False
        return True

    async def run(self) -> None:
        """For as long as the mount lives: a locker that has died is begun anew, since it ends a dead mount, too."""
        while not self._over:
            process = self._process
            if process is not None:
                await _ended(process.pid)
            if self._process is process and not self._over:
                self._renew()
            await trio.sleep(_PAUSE_SECONDS)

    def _renew(self) -> None:
        log.warning("the process that locks files for the mount had ended, and is begun anew")
        self._end(kill=True)
        self._start()

    def close(self) -> None:
        """The mount has gone. Waits for the locker's end."""
        self._over = True
        self._end()

    def _end(self, *, kill: bool = False) -> None:
        calls, self._calls = self._calls, None
        process, self._process = self._process, None
        if calls is not None:
            calls.close()
        if process is None:
            return
        try:
            if kill:
                process.kill()
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


async def _ended(pid: int) -> None:
    fd = os.pidfd_open(pid)
    try:
        await trio.lowlevel.wait_readable(fd)
    finally:
        os.close(fd)
