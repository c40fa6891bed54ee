"""Lock: one export at a time writes a table.

On a local file system it is the kernel's: one file for the whole folder exported to, of which each table locks the byte
that its path comes to. So thousands of tables take one descriptor, and locks end with the process however that ends.
(They belong to the open file, not to the process, so that two exports of one process exclude each other as well.)

Object stores have none: there, whoever runs exports sees to it that no two write the same table at once. Delta and
Iceberg refuse the later of two commits; of Parquet, files of both may be left, which the next run finds and says.
"""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

import xxhash

from ...volume.errors import Busy
from .files import file_errors, local_path
from .target import METADATA_FOLDER

_FLOCK: Final = struct.Struct("hhqqi4x")
_BYTES: Final = (1 << 62) - 1


class Locks:
    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor

    def take(self, url: str) -> None:
        """A table's, held until all are given back. Raises Busy if another export has it."""
        if self._descriptor is None:
            return
        # One folder may have several names.
        path = local_path(url)
        at = xxhash.xxh3_64_intdigest(os.fsencode(path.resolve() if path else url)) & _BYTES
        request = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, at, 1, 0)
        try:
            fcntl.fcntl(self._descriptor, fcntl.F_OFD_SETLK, request)
        except BlockingIOError:
            raise Busy(f"another export writes to {url}: wait until it has ended, then run this one again") from None


@contextmanager
def locks(folder: str) -> Generator[Locks]:
    """For the tables below a folder, which is made."""
    path = local_path(folder)
    if path is None:
        yield Locks(None)
        return
    own = path / METADATA_FOLDER
    with file_errors(folder):
        own.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(own / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        yield Locks(descriptor)
    finally:
        os.close(descriptor)
