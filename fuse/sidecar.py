"""Sidecars: the files that SQLite keeps beside a database. They are local, and never become volumes.

    -journal         an unlinked file of this process                  see journal.py
    -wal             a file in <home>/mount/sidecars/, which a crash leaves for the next mount   see wal.py
    -shm             an unlinked file: what its memory mapping holds is worth nothing once nobody has it open
    -mjXXXXXXXXX     an unlinked file: names the journals of a transaction over several databases

A file of such a name is a sidecar only if the file that it is named after stands beside it and is a SQLite database, or
empty: a user's file that happens to be called so is a file like any other.
"""

from __future__ import annotations

import errno
import os
import re
import tempfile
from enum import Enum
from pathlib import Path
from typing import Final

__all__ = ["Kind", "LocalFile", "split_name"]


class Kind(Enum):
    JOURNAL = "-journal"
    WAL = "-wal"
    SHM = "-shm"
    SUPER = "-mj"


_SUPER: Final = re.compile(r"(.+)-mj[0-9A-F]{9}")


def split_name(name: str) -> tuple[str, Kind] | None:
    """The name of the file that a sidecar of this name belongs to; None if it is no sidecar's name."""
    for kind in (Kind.JOURNAL, Kind.WAL, Kind.SHM):
        if name.endswith(kind.value) and len(name) > len(kind.value):
            return name[: -len(kind.value)], kind
    found = _SUPER.fullmatch(name)
    return (found[1], Kind.SUPER) if found else None


class LocalFile:
    """The bytes of a sidecar. Raises OSError, which becomes the program's own."""

    __slots__ = ("fd", "path")

    def __init__(self, folder: Path, name: str = "") -> None:
        """Named, it survives this process; else nothing of it does."""
        self.path = folder / name if name else None
        if self.path is not None:
            self.fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        else:
            self.fd = _unlinked(folder)

    @property
    def size(self) -> int:
        return os.fstat(self.fd).st_size

    def read(self, offset: int, size: int) -> bytes:
        return os.pread(self.fd, size, offset)

    def write(self, offset: int, data: bytes) -> None:
        done = os.pwrite(self.fd, data, offset)
        while done < len(data):
            more = os.pwrite(self.fd, memoryview(data)[done:], offset + done)
            if not more:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            done += more

    def truncate(self, size: int) -> None:
        os.ftruncate(self.fd, size)

    def sync(self) -> None:
        os.fdatasync(self.fd)

    def remove(self) -> None:
        """Its name goes; what is open stays readable until `close`."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)

    def close(self) -> None:
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)


def _unlinked(folder: Path) -> int:
    try:
        return os.open(folder, os.O_RDWR | os.O_TMPFILE | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT):
            raise
        fd, path = tempfile.mkstemp(dir=folder)
        os.unlink(path)
        return fd
