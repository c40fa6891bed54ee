"""Local files: the bytes of sidecars, on the disk of this machine."""

from __future__ import annotations

import errno
import os
import tempfile
import time
from pathlib import Path
from typing import Final

from ...sync.dirty_pages import write_all
from ...sync.folders import flush_folder
from ...sync.lmdb_errors import NO_ROOM

_ROOM_BYTES: Final = 1 << 20
_MOST_SPARES: Final = 8
_spares: Final[list[int]] = []
"""Unlinked files that are used again: SQLite makes and unlinks a journal for every transaction."""


class LocalFile:
    """The bytes of a sidecar. Raises OSError, which becomes the program's own.

    A named one survives this process. It is longer on the disk than it says: room is zeroed ahead of what is written,
    so that a flush has no new length or place to record besides the bytes. Zeros are no frames, so whoever reads a
    -wal after a crash stops there.
    """

    __slots__ = ("_is_kept", "_is_named", "_room", "fd", "path", "size")

    def __init__(self, folder: Path, name: str = "") -> None:
        self.path = folder / name if name else None
        if self.path is not None:
            self.fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        else:
            self.fd = _spares.pop() if _spares else _unlinked(folder)
        self.size = self._room = os.fstat(self.fd).st_size
        """`size` is the file's length in bytes as programs see it."""
        self._is_named = False
        """Whether its name survives a power loss, too."""
        self._is_kept = False

    @property
    def closed(self) -> bool:
        return self.fd < 0

    def read(self, offset: int, size: int) -> bytes:
        return os.pread(self.fd, min(size, self.size - offset), offset) if offset < self.size else b""

    def write(self, offset: int, data: bytes) -> None:
        end = offset + len(data)
        if self.path is not None and end > self._room:
            self._make_room(end)
        write_all(self.fd, data, offset)
        self.size = max(self.size, end)
        # Where no room could be made, none is later made over what was written.
        self._room = max(self._room, end)

    def truncate(self, size: int) -> None:
        os.ftruncate(self.fd, size)
        self.size = self._room = size

    def sync(self) -> None:
        os.fdatasync(self.fd)
        if self.path is not None and not self._is_named:
            flush_folder(self.path.parent)
            self._is_named = True

    def remove(self) -> None:
        """Its name goes; what is open stays readable until `close`."""
        path, self.path = self.path, None
        if path is not None:
            path.unlink(missing_ok=True)

    def keep(self) -> None:
        """Its bytes are under another name now, and nobody's here to remove or to use again."""
        self.path, self._is_kept = None, True

    def close(self) -> None:
        fd, self.fd = self.fd, -1
        if fd < 0:
            return
        if self.path is None and not self._is_kept and len(_spares) < _MOST_SPARES:
            os.ftruncate(fd, 0)
            _spares.append(fd)
        else:
            os.close(fd)

    def _make_room(self, end: int) -> None:
        upto = -(-end // _ROOM_BYTES) * _ROOM_BYTES
        try:
            write_all(self.fd, bytes(upto - self._room), self._room)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            # There may be room for what is to be written all the same.
            return
        self._room = upto


def set_aside(wal: Path) -> Path:
    """Move it from among the sidecars to <home>/mount/kept/, where nothing is removed; its new path. No database may
    have its bytes any more, and they may be wanted all the same.
    """
    kept = wal.parent.parent / "kept"
    kept.mkdir(mode=0o700, exist_ok=True)
    stem = f"{wal.name}-{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}"
    target, number = kept / stem, 1
    while target.exists():
        number += 1
        target = kept / f"{stem}-{number}"
    wal.rename(target)
    for folder in (kept, wal.parent, kept.parent):
        flush_folder(folder)
    return target


def _unlinked(folder: Path) -> int:
    try:
        return os.open(folder, os.O_RDWR | os.O_TMPFILE | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT):
            raise
        fd, path = tempfile.mkstemp(dir=folder)
        os.unlink(path)
        return fd
