"""Mapped memory: keeps the pages of the mapped store from counting as this process's memory for ever.

LMDB reads through a shared mapping, so every page read stays in the process's resident set until the kernel takes it
back: a scan of 2 GB would show as 2 GB, and in a container with a memory limit it would be counted as such. So every
thousand reads the process's resident set is looked at, and when it is large, and much of it is file-backed, the mapping
is let go (MADV_DONTNEED). That is harmless: the mapping is shared, read-only and file-backed, so that the next access
faults the page in from the page cache; LMDB's own dirty pages lie in ordinary memory.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Final

CHECK_EVERY: Final = 1024
"""Page reads between two looks. The kernel maps 64 KiB around each fault, so at most 64 MiB come in meanwhile."""

LIMIT_BYTES: Final = 288 * 1024 * 1024
"""Of the whole resident set. A store that fits beneath it is never let go: refaulting costs as much as reading (3 µs a
page, measured).
"""

FILE_BYTES: Final = 48 * 1024 * 1024
"""Below this much file-backed memory there is nothing to gain: the rest is the program's own."""

STREAM_BYTES: Final = 64 * 1024 * 1024
"""As much as whoever goes through the store once, and has buffers of its own, leaves mapped."""

WALK_EVERY: Final = 8192
"""Keys walked between two looks: a walk over keys alone maps the pages that lie between their leaves too."""

_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_DONTNEED: Final = 4
_libc: Final = ctypes.CDLL(None, use_errno=True)
_libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


def trim_scanned(path: Path) -> bool:
    """`trim` for whoever won't come back to what it has read: pushes, walks, batches of a large change."""
    return trim(path, 0, STREAM_BYTES)


def trim(path: Path, limit_bytes: int = LIMIT_BYTES, file_bytes: int | None = None) -> bool:
    """Let go of the mapping of `path` if the resident set, and the file-backed part of it, are above their limits;
    whether they were.
    """
    file_bytes = FILE_BYTES if file_bytes is None else file_bytes
    try:
        with open("/proc/self/statm", "rb") as file:
            fields = file.read().split()
        if int(fields[1]) * _PAGE_BYTES <= limit_bytes or int(fields[2]) * _PAGE_BYTES <= file_bytes:
            return False
        for start, end in _mappings(path):
            _libc.madvise(start, end - start, _DONTNEED)
    except (OSError, ValueError, IndexError):
        # No /proc here: then there is no such accounting to keep down either.
        return False
    return True


def _mappings(path: Path) -> list[tuple[int, int]]:
    wanted = os.fsencode(path)
    found: list[tuple[int, int]] = []
    with open("/proc/self/maps", "rb") as file:
        for line in file:
            if line.rstrip().endswith(wanted):
                start, _, end = line.split(None, 1)[0].partition(b"-")
                found.append((int(start, 16), int(end, 16)))
    return found
