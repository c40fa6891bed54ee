"""Dirty pages: those of a transaction before it commits, in memory up to a limit and then in an unlinked local file.

The file is never flushed: it is as short-lived as the transaction. A page written again takes its old place in it.
"""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ..volume.errors import Full, Unavailable
from ..volume.pageset import PageSet, beyond
from .home_permissions import make_private_dir
from .lmdb_errors import NO_ROOM

MEMORY_BYTES = 32 * 1024 * 1024
"""Tests make it small."""


class DirtyPages:
    """Not for two threads at once."""

    def __init__(self, folder: Path, page_size: int) -> None:
        self.pages = PageSet()
        self._folder = folder
        self._page_size = page_size
        self._limit = max(1, MEMORY_BYTES // page_size)
        self._memory: dict[int, bytes] = {}
        self._slots: dict[int, int] = {}
        self._used = 0
        """Places of the file that were given out; one that was given up is not given out again."""
        self._fd = -1

    def get(self, page: int) -> bytes | None:
        data = self._memory.get(page)
        if data is None and self._slots and page in self._slots:
            return self._load(page)
        return data

    def put(self, page: int, data: bytes) -> None:
        if page not in self._memory:
            if len(self._memory) >= self._limit:
                self._spill()
            self.pages.add(page)
        self._memory[page] = data

    def drop(self, page: int) -> None:
        self.pages.discard(page)
        self._memory.pop(page, None)
        self._slots.pop(page, None)

    def cut(self, last: int) -> None:
        """Forget the pages after `last`."""
        for page in beyond(self.pages, last):
            self._memory.pop(page, None)
            self._slots.pop(page, None)
        self.pages -= beyond(self.pages, last)

    def items(self) -> Iterator[tuple[int, bytes]]:
        """Every page, ascending."""
        for page in self.pages:
            data = self._memory.get(page)
            yield page, self._load(page) if data is None else data

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        self._memory.clear()
        self._slots.clear()
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        fd = getattr(self, "_fd", -1)
        if fd >= 0:
            os.close(fd)

    def _spill(self) -> None:
        try:
            if self._fd < 0:
                make_private_dir(self._folder)
                self._fd, path = tempfile.mkstemp(prefix="transaction-", dir=self._folder)
                os.unlink(path)
            for page, data in self._memory.items():
                slot = self._slots.get(page)
                if slot is None:
                    slot = self._slots[page] = self._used
                    self._used += 1
                write_all(self._fd, data, slot * self._page_size)
        except OSError as error:
            if error.errno in NO_ROOM:
                raise Full("no room on the disk for a transaction this large; nothing was changed") from error
            raise Unavailable(f"a large transaction can't be kept in {self._folder}: {error.strerror}") from error
        self._memory.clear()

    def _load(self, page: int) -> bytes:
        data = os.pread(self._fd, self._page_size, self._slots[page] * self._page_size)
        if len(data) != self._page_size:
            raise Unavailable(f"page {page} of a large transaction can't be read back")
        return data


def write_all(fd: int, data: bytes, offset_bytes: int) -> None:
    """Raises OSError."""
    done = os.pwrite(fd, data, offset_bytes)
    while done < len(data):
        more = os.pwrite(fd, memoryview(data)[done:], offset_bytes + done)
        if not more:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        done += more
