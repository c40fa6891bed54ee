"""Compaction: a home's store is copied into a file of just what it holds, which takes the other one's place.

For who has the home to itself. LMDB's own lock says so: each of its users has the first byte of `lock.mdb` shared, and
whoever opens it waits there before it opens the data; here it is had alone, for the time of the copy. So nobody reads
or writes a file that has lost its name, whatever version of Budwood it runs.

The copy goes on counting where the old file was: its meta pages say the same transaction, in the place where LMDB
expects it. So whoever had waited for the lock, and anything that remembers a transaction's number, finds what it knows.

Order: the copy is durable and was walked before it takes the place, by a rename, which is durable before the lock is
let go. A crash leaves the old file or the new one, and at most a copy that the next one to open the home removes.

Crash windows (each a fault point, each cut by tests/fault/test_edge_killed.py):
  compact: copy durable, not in its place · compact: in its place, not told
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import lmdb

from ..volume import faults
from ..volume.errors import Busy, Corrupt
from .folders import flush_folder
from .home_permissions import open_private
from .lmdb_errors import os_error, translated
from .lmdb_tree_check import PAGE_BYTES, check_trees, read_metas
from .store_file import COPY

if TYPE_CHECKING:
    from .environment import Environment

MOST_BYTES: Final = 256 * 1024 * 1024
"""What whoever closes a home copies by the way, at most."""

COPIED = faults.point("compact: copy durable, not in its place")
PLACED = faults.point("compact: in its place, not told")

_NUMBER: Final = struct.Struct("<Q")
_TRANSACTION_AT: Final = 16 + 24 + 2 * 48 + 8
"""In a meta page: behind the page's head, magic to map size, the two trees, and the last page."""


def compact(environment: Environment) -> None:
    """By the last user of the environment in this process, just before it is closed: what it was opened at is gone.
    Raises Busy where another process has it open, Full, Unavailable, Corrupt.
    """
    path = environment.data_path
    copy = path.with_name(COPY)
    lock = os.open(path.with_name("lock.mdb"), os.O_RDWR | os.O_CLOEXEC)
    try:
        _lock_out(environment, lock)
        with translated(path):
            _copy(environment.handle, copy)
        COPIED()
        os.rename(copy, path)
        flush_folder(path.parent)
        PLACED()
    except OSError as error:
        raise os_error(error, f"the local store {path} can't be copied") from error
    finally:
        # What stays there now is removed before the next copy is made.
        with suppress(OSError):
            os.unlink(copy)
        # Lets go of all that this process has locked there: the environment is closed next.
        with suppress(OSError):
            os.close(lock)


def _lock_out(environment: Environment, lock: int) -> None:
    try:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            raise Busy(
                f"another process has the home {environment.home} open: its file is made shorter when nobody else has"
            ) from error
        raise


def _copy(env: lmdb.Environment, copy: Path) -> None:
    """Durable, and found to be sound."""
    with suppress(FileNotFoundError):
        os.unlink(copy)
    fd = open_private(copy, os.O_RDWR | os.O_EXCL)
    try:
        env.copyfd(fd, compact=True)
        number = int(env.info()["last_txnid"])
        metas = os.pread(fd, 2 * PAGE_BYTES, 0)
        newest = 0 if read_metas(metas)[0].transaction > read_metas(metas)[1].transaction else PAGE_BYTES
        body = metas[newest + _NUMBER.size : newest + PAGE_BYTES]
        for page in range(2):
            own = number if number & 1 == page else number - 1
            raw = bytearray(_NUMBER.pack(page) + body)
            _NUMBER.pack_into(raw, _TRANSACTION_AT, own)
            os.pwrite(fd, raw, page * PAGE_BYTES)
        os.fsync(fd)
    finally:
        os.close(fd)
    if check_trees(copy) != number:
        raise Corrupt(str(copy), "it is not what was copied")
