"""WAL commit count: how many commits a -wal held when it was flushed last, told to whoever finds it damaged or missing.

One small file a volume, in <home>/mount/tallies/, written over at each flush of a -wal that a program asked for (with
synchronous=FULL at each COMMIT), before that program is told. It is never flushed itself, which would cost another
flush a commit: it outlives the process, and a power cut as far as the system had it on the disk by then. It is no
promise, and nothing is taken from it; it only counts.

    0   8   the xxh3-64 of the rest
    8   8   the salts of the -wal's header
    16  4   the header's sequence
    20  8   commits, since the header was written
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Final, NamedTuple

from xxhash import xxh3_64_digest

_FORMAT: Final = struct.Struct(">8sIQ")
_SUM_BYTES: Final = 8


class CommitCount(NamedTuple):
    salts: bytes
    sequence: int
    commits: int


def counts_beside(sidecars: Path) -> Path:
    """The folder of the tallies of the -wal files in that one. Each has the name of its volume."""
    return sidecars.parent / "tallies"


def write_count(path: Path, count: CommitCount) -> None:
    """Raises OSError."""
    packed = _FORMAT.pack(*count)
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.pwrite(fd, xxh3_64_digest(packed) + packed, 0)
    finally:
        os.close(fd)


def read_count(path: Path) -> CommitCount | None:
    """None where there is none that holds."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    packed = data[_SUM_BYTES:]
    if len(packed) != _FORMAT.size or xxh3_64_digest(packed) != data[:_SUM_BYTES]:
        return None
    return CommitCount(*_FORMAT.unpack(packed))
