"""Kernel: how this process comes to serve a directory: mounted by fusermount3, agreed upon with the kernel.

libfuse could do both, but asks for AUTO_INVAL_DATA, and pyfuse3 has no say in it. With that the kernel asks for a
file's attributes before each read that follows a write, only to see whether its time has moved: a third of all requests
under SQLite. Nobody changes a file of a mount but the mount itself, which tells the kernel what to forget. So the
first request, in which the kernel says what it can do, goes to libfuse over a socket; its answer comes back there, what
isn't wanted is taken out of it, and from then on the socket's descriptor is the device:

    fusermount3 mounts, and passes the device (its protocol: _FUSE_COMMFD, a descriptor in a message)
    INIT is read from the device, handed to libfuse at /dev/fd/N, answered by it, and told to the kernel
    N becomes the device

So libfuse knows no directory of its own, and `leave` is what takes the mount away.
"""

from __future__ import annotations

import os
import select
import shutil
import socket
import struct
import subprocess
import sys
from pathlib import Path
from typing import Final

import pyfuse3
import trio

from ...volume.errors import Unavailable
from .guarded import log
from .readers import readers

_COMMFD: Final = "_FUSE_COMMFD"
_PROGRAM: Final = "fusermount3"
_REQUEST_BYTES: Final = 1 << 16
_AUTO_INVAL_DATA: Final = 1 << 12
_HEADER: Final = struct.Struct("=IiQ")
"""Of an answer: its length, an errno, the request's number."""
_FLAGS: Final = slice(_HEADER.size + 12, _HEADER.size + 16)
"""In the answer to INIT: after the version, twice 32 bits, and how far to read ahead."""
_SECONDS: Final = 30.0


def enter(directory: Path, options: list[str]) -> int:
    """Mount; the device, which blocks. Raises Unavailable: what fusermount3 has against it stands on standard error."""
    program = shutil.which(_PROGRAM)
    if program is None:
        raise Unavailable(f"{directory} can't be mounted: there is no {_PROGRAM}")
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            # It begins what it says with its name: a path there, and nobody would know it for its own words.
            process = subprocess.Popen(
                [_PROGRAM, "-o", ",".join(options), "--", str(directory)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                executable=program,
                pass_fds=[theirs.fileno()],
                env={**os.environ, _COMMFD: str(theirs.fileno())},
            )
        ours.settimeout(_SECONDS)
        try:
            _, passed, _, _ = socket.recv_fds(ours, 1, 1)
        except TimeoutError:
            process.kill()
            passed = []
        status = process.wait()
    if not passed:
        raise Unavailable(f"{directory} can't be mounted: {_PROGRAM} ended with status {status}")
    return passed[0]


async def agree(nursery: trio.Nursery, operations: pyfuse3.Operations, device: int) -> int:
    """Answer the kernel's first request; the device as pyfuse3 knows it, which the other one has become."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours:
        known = theirs.detach()
        try:
            pyfuse3.init(operations, f"/dev/fd/{known}", set())
        except RuntimeError as error:
            os.close(known)
            raise Unavailable(f"libfuse can't serve a device that is open already: {error}") from error
        ours.send(os.read(device, _REQUEST_BYTES))
        await readers.take_one(nursery)
        answer = bytearray(ours.recv(_REQUEST_BYTES, socket.MSG_DONTWAIT))
    _, error_number, _ = _HEADER.unpack_from(answer)
    if error_number:
        pyfuse3.close(unmount=False)
        raise Unavailable(f"libfuse and the kernel don't agree: {os.strerror(-error_number)}")
    flags = int.from_bytes(answer[_FLAGS], sys.byteorder) & ~_AUTO_INVAL_DATA
    answer[_FLAGS] = flags.to_bytes(4, sys.byteorder)
    os.write(device, answer)
    os.dup2(device, known, inheritable=False)
    os.close(device)
    return known


def leave(directory: Path, device: int) -> None:
    """Close the device, and take the mount away unless someone else did. By then nobody gets an answer any more."""
    poll = select.poll()
    poll.register(device, 0)
    gone = any(event & select.POLLERR for _, event in poll.poll(0))
    # First: the kernel has nothing to ask of whom it takes the mount from.
    pyfuse3.close(unmount=False)
    if not gone:
        drop(directory)


def drop(directory: Path) -> None:
    """Take away a mount that nobody serves, even from under those who use it."""
    program = shutil.which(_PROGRAM)
    if program is None:
        log.error("%s stays mounted: there is no %s any more", directory, _PROGRAM)
        return
    try:
        subprocess.run(
            [program, "-u", "-q", "-z", "--", str(directory)],
            stdin=subprocess.DEVNULL,
            check=False,
            timeout=_SECONDS,
        )
    except subprocess.TimeoutExpired:
        log.error("%s stays mounted: %s did not end", directory, _PROGRAM)
