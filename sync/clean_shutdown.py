"""Clean shutdown: whether the local store still is what its last user left.

The last process to close a home leaves a stamp beside `data.mdb`: what the file was then, by inode, size, time of
change, and which boot of the machine. Who opens it takes the stamp away. A store that matches its stamp is opened at
once; so is one that another process has open, since that one has looked. Any other is walked first
(lmdb_tree_check.py), which takes 0.3 to 0.5 seconds a gigabyte: after a process that ended without closing, a power
loss, a reboot, a copy or restored backup, a write by anything but LMDB.

So the process that dies of a damaged store is the last: the next one is told. What a disk does to a file by itself is
found so, or when the machine was booted anew, or by the checksums.
"""

from __future__ import annotations

import fcntl
import os
import struct
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from ..volume.decoded_kinds import decodable
from .home_permissions import open_private

_STAMP: Final = "sound"
_LOCK: Final = struct.Struct("hhqqi4x")
"""struct flock: type, whence, start, length, pid."""


class Stamp(msgspec.Struct, frozen=True, kw_only=True):
    inode: int
    size: int
    changed_ns: int
    boot: str


NOTHING: Final = Stamp(inode=0, size=0, changed_ns=0, boot="")


def stamp_of(data: Path) -> Stamp:
    status = os.stat(data)
    return Stamp(inode=status.st_ino, size=status.st_size, changed_ns=status.st_ctime_ns, boot=_boot())


def was_left_clean(data: Path, found: Stamp) -> bool:
    """It is what its last user left."""
    try:
        return msgspec.json.decode(data.with_name(_STAMP).read_bytes(), type=decodable(Stamp)) == found
    except (OSError, msgspec.MsgspecError):
        return False


def remove_stamp(data: Path) -> None:
    """Until someone leaves a stamp again, the store counts as not cleanly closed."""
    with suppress(OSError):
        os.unlink(data.with_name(_STAMP))


def write_stamp(data: Path, found: Stamp) -> None:
    """Leave word that `found` is sound. What can't be written is doubted, no more."""
    temporary = data.with_name(f".{_STAMP}.{os.getpid()}")
    with suppress(OSError):
        try:
            with open(open_private(temporary, os.O_WRONLY | os.O_TRUNC), "wb") as file:
                file.write(msgspec.json.encode(found))
            os.replace(temporary, data.with_name(_STAMP))
        except OSError:
            temporary.unlink(missing_ok=True)


def is_in_use(data: Path) -> bool:
    """Another process has it open: LMDB's users each hold a shared lock on the first byte of its lock file.

    Not for a process that has it open itself, which would lose its own lock by this.
    """
    try:
        fd = os.open(data.with_name("lock.mdb"), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        asked = _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
        kind: int = _LOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, asked))[0]
        return kind != fcntl.F_UNLCK
    finally:
        os.close(fd)


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
