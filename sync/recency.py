"""Recency: which pages were read again, as the processes of a home tell one another in one file that all of them map
(`store/touched`): a byte for each page, so that a read writes nothing but memory.

    0    not since it came: fetched ahead, or read by a scan, which comes by once
    1    it was asked for by itself
    2    it was found here, out of order

A page's byte is found by its number, from where its volume's id says, so neighbours lie side by side; several pages may
share one. Then one of them stays longer than it should, no more. The file grows with the limit of the cache, and never
shrinks while it may be mapped. Its bytes are written before it is mapped: a hole in it would end the process where the
disk is full.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import Final

import xxhash

from .dirty_pages import write_all
from .home_permissions import open_private

ASKED: Final = 1
AGAIN: Final = 2

_LEAST: Final = 4096
_MOST: Final = 4 * 1024 * 1024
_PAGE_BYTES: Final = 4096


class Recency:
    """One process's hold on it. `marks` and `mask` together are what it knows: bytes, a power of two of them."""

    def __init__(self, marks: memoryview) -> None:
        self.marks = marks
        self.mask = len(marks) - 1

    def base(self, vid: bytes) -> int:
        """Of a volume: page n has the byte at `base + n & mask`."""
        return xxhash.xxh3_64_intdigest(vid) & self.mask

    def close(self) -> None:
        """Let go of the file: as long as it is mapped, the home's file system is in use."""
        self.marks = memoryview(bytearray(len(self.marks)))


def open_recency(data: Path, limit_bytes: int) -> Recency:
    """That of the home whose store is `data`, with at least a byte for each page of the cache, up to a limit. Raises
    OSError.
    """
    wanted = _LEAST
    while wanted < _MOST and wanted < 2 * limit_bytes // _PAGE_BYTES:
        wanted *= 2
    fd = open_private(data.with_name("touched"), os.O_RDWR)
    try:
        size = os.fstat(fd).st_size
        if size < wanted:
            write_all(fd, bytes(wanted - size), size)
        # Others may have made it longer; where two did at once, both wrote zeros.
        return Recency(memoryview(mmap.mmap(fd, wanted)))
    finally:
        os.close(fd)
