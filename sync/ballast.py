"""Ballast: room on the disk that a home keeps for what makes room.

LMDB writes anew whatever it changes, so that on a full disk nothing could be removed, either. So beside the store lies
a file that holds nothing. Where a removal finds no room it goes, and the removal is tried again; it is laid again when
the disk has room to spare.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from .home_permissions import open_private

BALLAST_BYTES: Final = 1 << 20
_TO_SPARE: Final = 4
"""The disk has so many times as much free before it is laid."""
_MOST: Final = 4
"""The store is so many times as long before it is."""


class Ballast:
    """That of the store in this folder. For any thread, and any process of the home."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "ballast"
        self._thread = threading.local()

    def lay(self, store_bytes: int) -> None:
        """Unless it lies there, the store is small, or the disk has no room to spare."""
        if store_bytes < _MOST * BALLAST_BYTES or self.path.exists():
            return
        # What can't be laid now is at the next look.
        with suppress(OSError):
            disk = os.statvfs(self.path.parent)
            if disk.f_bavail * disk.f_frsize >= _TO_SPARE * BALLAST_BYTES:
                self._write()

    def _write(self) -> None:
        """Under its name it is whole: a crash leaves what the next one to lay it takes over."""
        temporary = self.path.with_name(".ballast")
        fd = open_private(temporary, os.O_WRONLY)
        try:
            os.posix_fallocate(fd, 0, BALLAST_BYTES)
            temporary.replace(self.path)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
        finally:
            os.close(fd)

    @contextmanager
    def making_room(self) -> Generator[None]:
        """What this thread changes within makes room in the end, and may use the ballast for that."""
        before, self._thread.makes_room = self._makes_room, True
        try:
            yield
        finally:
            self._thread.makes_room = before

    @property
    def _makes_room(self) -> bool:
        return getattr(self._thread, "makes_room", False)

    def gives_room(self) -> bool:
        """Whether this thread may use it, and has some room now that it had not."""
        return self._makes_room and self.drop()

    def drop(self) -> bool:
        """Whether it lay there."""
        try:
            self.path.unlink()
        except OSError:
            return False
        return True
