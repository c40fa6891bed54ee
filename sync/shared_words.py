"""Shared words: what the processes of a home tell one another of its journal, in one page that all of them map
(`store/shared`).

Each word is 8 bytes, aligned, and read and written whole. None of it is needed after the last process has gone: whoever
opens a home that nobody else has open makes the words anew, from the journal and the local store. If that one didn't
close it, the words tell how much must be there still. They change within LMDB's write lock; `PUBLISHED` is read without
it.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import Final

import xxhash

from .clean_shutdown import stamp_of
from .dirty_pages import write_all
from .home_permissions import open_private

IDENTITY: Final = 0
"""Of the store's file and of the machine's boot: else these words are of another home, or of a time before."""
GENERATION: Final = 1
"""Of the journal's header that is in force; 0: there is no journal yet."""
PUBLISHED: Final = 2
"""The position up to which the journal's records are commits."""
FLUSHED: Final = 3
"""The position up to which they are known to survive a power loss."""
DURABLE: Final = 4
"""The last transaction of LMDB that is known to survive a power loss."""
ANEW: Final = 5
"""Not 0: nothing may be appended until all that is published is in LMDB and the journal has begun anew."""

_WORDS: Final = 8
_BYTES: Final = 4096


def private_words() -> memoryview:
    """For a process that can't share any."""
    return memoryview(bytearray(8 * _WORDS)).cast("Q")


def shared_words(data: Path) -> memoryview:
    """Those of the home whose store is `data`. Raises OSError."""
    fd = open_private(data.with_name("shared"), os.O_RDWR)
    try:
        if os.fstat(fd).st_size < _BYTES:
            # With room on the disk for it: a hole in a mapped file ends the process where the disk is full.
            write_all(fd, bytes(_BYTES), 0)
        return memoryview(mmap.mmap(fd, _BYTES)).cast("Q")
    finally:
        os.close(fd)


def published_before(data: Path) -> int:
    """How far the journal was published by processes that have died since the machine was booted; 0 where no word says
    so.
    """
    try:
        with data.with_name("shared").open("rb") as file:
            words = memoryview(file.read(8 * _WORDS)).cast("Q")
    except (OSError, TypeError):
        return 0
    return words[PUBLISHED] if len(words) == _WORDS and words[IDENTITY] == identity_of(data) else 0


def identity_of(data: Path) -> int:
    found = stamp_of(data)
    return xxhash.xxh3_64_intdigest(f"{found.boot} {os.stat(data).st_dev} {found.inode}".encode())
