"""Databases in memory: SQLite over volumes in memory, with neither disk nor remote.

    with MemoryDatabases() as databases:
        db = databases.connect("inventory")          # an apsw.Connection
        past = databases.connect("inventory", lsn=1)
        databases.volumes["inventory"].head

Several connections to one name share its volume, as processes share a home. Closing unregisters the VFS; close the
connections before.
"""

from __future__ import annotations

from itertools import count
from typing import Self

import apsw

from ..vfs.system import Opened, Request, VolumeVFS
from ..volume.errors import NotFound
from .memory_pages import MemoryVolume

_numbers = count(1)


class MemoryDatabases:
    def __init__(self, *, warm_bytes: int = 64 * 1024) -> None:
        self._warm_bytes = warm_bytes
        self.volumes: dict[str, MemoryVolume] = {}
        """By name; put one here to open it."""
        self.vfs = VolumeVFS(f"budwood-memory-{next(_numbers)}", self._open)

    def connect(
        self, name: str = "memory", *, lsn: int | None = None, mode: str = "rwc", timeout: float = 0.0
    ) -> apsw.Connection:
        return self.vfs.connect(Request(name, mode, lsn), timeout_seconds=timeout)

    def _open(self, request: Request) -> Opened:
        volume = self.volumes.get(request.name)
        if volume is None:
            if request.mode != "rwc" or request.lsn is not None:
                raise NotFound(f"there is no volume {request.name!r}")
            volume = self.volumes[request.name] = MemoryVolume(request.name)
        pages = volume.pages(lsn=request.lsn, read_only=request.mode == "ro")
        return Opened(pages, pages.close, self._warm_bytes)

    def close(self) -> None:
        self.vfs.unregister()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
