"""Locker: the process that opens, locks and writes files of a mount for the one that serves it.

A process that serves a mount must hold no file of it. While it dies the kernel closes what it had open, a FLUSH is sent
for each file, and the only one who could answer it is dying: it never ends, its mount is never given up, and whoever is
on it waits past SIGKILL. So what has to be done to files of the mount (swap.py) is done here, told step by step
(`locking.py`) over a socket for each conversation, in a thread for each.

- It is a fresh interpreter that runs this file: no fork of the process that serves, whose descriptor of /dev/fuse would
  keep the mount alive. Standard library alone, since it is there as long as the mount: some 10 ms, and 6 MB.
- It ends when its caller does. EOF tells; and where the caller is dead but can't let go of its descriptors, since one
  of its threads waits in the kernel for an answer that it should have given itself (telling the kernel what to forget
  may wait so for a lookup or a page), the parent's death signal does. Then it also ends the connection (`abort`): that
  is what frees the thread, and every program on the mount.
- It is of a session of its own and ignores what ends others, so that neither a terminal nor a supervisor takes it
  from a mount that still has work to do.

A message is HEAD (operation, handle, number, length or size, offset) and what belongs to it; the answer an errno, a
number and what was read. The first message of a conversation tells the thread's number, by which the kernel knows it.
"""

from __future__ import annotations

import _thread
import errno
import fcntl
import os
import signal
import socket
import struct
import sys
from contextlib import suppress
from typing import Final

HEAD: Final = struct.Struct("=Biqqq")
ANSWER: Final = struct.Struct("=iq")
LONGEST: Final = 1 << 16

_SETLK: Final = 37
"""F_OFD_SETLK, which the module fcntl doesn't name: the lock is the open file's, and conflicts with those of other
opens of this process too.
"""
_LOCK: Final = struct.Struct("hhqqi4x")
_SET_PDEATHSIG: Final = 1
_MNT_FORCE: Final = 1
_UMOUNT_NOFOLLOW: Final = 8
_DEATH: Final = signal.SIGRTMIN
"""Sent by nobody else, so that it is believed."""


class Op:
    """What a message asks for."""

    OPEN = 1
    """Of a path, to read and write: the handle, and the inode."""
    LOCK = 2
    """Of a handle: kind, start, length; EAGAIN if it can't be had at once."""
    READ = 3
    WRITE = 4
    CUT = 5
    """A path's file becomes empty."""
    CLOSE = 6
    """All of the conversation's handles."""


def abort(directory: str, device: int) -> bool:
    """End the connection of the FUSE mount on `directory`, whose device has this minor number: whoever waits for an
    answer gets an error, and so does everyone from then on. It stays mounted, and is never looked at.

    Whether it could be done: that is up to the mount's user where the kernel's file for it is there, else to root.
    """
    try:
        fd = os.open(f"/sys/fs/fuse/connections/{device}/abort", os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return _is_mounted(device) and _forced(directory)
    try:
        os.write(fd, b"1")
    finally:
        os.close(fd)
    return True


def _is_mounted(device: int) -> bool:
    with open("/proc/self/mountinfo", "rb") as table:
        return any(line.split(b" ", 3)[2] == b"0:%d" % device for line in table)


def _forced(directory: str) -> bool:
    """By the first half of `umount -f`: the connection goes, and then the directory is in use, by this process."""
    import ctypes

    user = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        libc.umount2(os.fsencode(directory), _MNT_FORCE | _UMOUNT_NOFOLLOW)
        return ctypes.get_errno() == errno.EBUSY
    finally:
        os.close(user)


def main(arguments: list[str]) -> None:
    """Serve the process `parent`, until it is gone."""
    fd, parent, directory, device = int(arguments[0]), int(arguments[1]), arguments[2], int(arguments[3])
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGTSTP):
        signal.signal(each, signal.SIG_IGN)

    def end_with_parent(_number: int, _frame: object) -> None:
        abort(directory, device)
        os._exit(0)

    signal.signal(_DEATH, end_with_parent)
    _tell_of_death()
    calls = socket.socket(fileno=fd)
    # Who died before is not told of.
    while os.getppid() == parent:
        _, passed, _, _ = socket.recv_fds(calls, 1, 1)
        if not passed:
            break
        _thread.start_new_thread(_converse, (passed[0],))
    # The threads may be within a call to a mount that is gone: nobody waits for them.
    os._exit(0)


def _tell_of_death() -> None:
    import ctypes

    if ctypes.CDLL(None, use_errno=True).prctl(_SET_PDEATHSIG, int(_DEATH), 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")


def _converse(fd: int) -> None:
    # The handlers are for the first thread, which is never within a call to the mount.
    signal.pthread_sigmask(signal.SIG_BLOCK, {_DEATH})
    opened: list[int] = []
    with socket.socket(fileno=fd) as link:
        with suppress(OSError):
            link.send(ANSWER.pack(0, _thread.get_native_id()))
            while message := link.recv(LONGEST):
                link.send(_answer(message, opened))
        _close(opened)


def _answer(message: bytes, opened: list[int]) -> bytes:
    op: int
    handle: int
    op, handle, first, second, third = HEAD.unpack_from(message)
    rest = message[HEAD.size :]
    number, read = 0, b""
    try:
        if op == Op.OPEN:
            opened.append(os.open(rest, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC))
            number = os.fstat(opened[-1]).st_ino
        elif op == Op.LOCK:
            fcntl.fcntl(opened[handle], _SETLK, _LOCK.pack(first, os.SEEK_SET, second, third, 0))
        elif op == Op.READ:
            read = os.pread(opened[handle], second, third)
        elif op == Op.WRITE:
            number = os.pwrite(opened[handle], rest, third)
        elif op == Op.CUT:
            os.truncate(rest, 0)
        elif op == Op.CLOSE:
            _close(opened)
        else:
            return ANSWER.pack(errno.EINVAL, 0)
    except OSError as error:
        return ANSWER.pack(error.errno or errno.EIO, 0)
    return ANSWER.pack(0, number) + read


def _close(opened: list[int]) -> None:
    while opened:
        with suppress(OSError):
            os.close(opened.pop())


if __name__ == "__main__":
    main(sys.argv[1:])
