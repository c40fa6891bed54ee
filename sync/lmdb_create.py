"""LMDB create: the store of a new home appears whole, and to stay.

Its tables and its first record are one transaction of a file with another name, which gets its own once it is on the
disk. So a power loss leaves no store or a sound one, whatever it tears, and of several processes that make a home the
first one's is everybody's. `home.json` is written after it: that marker never stands for a store that isn't there.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

import lmdb

from ..volume.errors import StoreError
from .folders import flush_above, flush_folder
from .lmdb_errors import os_error, translated
from .tables import Table, Txn

Fill = Callable[[Txn, dict[str, Table]], None]

MAKING: Final = ".making-"
"""How the name of a folder begins in which one is made."""
_MAP_BYTES: Final = 1 << 22
"""While it is made; whoever opens it says what its map is."""
_NO_LINKS: Final = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)


def create_store(data: Path, tables: tuple[str, ...], fill: Fill) -> None:
    """A file with these tables, and what `fill` puts there; if another process was first, that one's stays. Raises
    Full, Unavailable.
    """
    # In a folder, as where it will lie: LMDB notes in the file whether it is in one.
    beside = data.with_name(f"{MAKING}{os.urandom(8).hex()}")
    try:
        beside.mkdir(mode=0o700)
        with translated(data):
            env = lmdb.open(str(beside), _MAP_BYTES, lock=False, max_dbs=len(tables), mode=0o600)
            try:
                with env.begin(write=True) as txn:
                    fill(txn, {name: env.open_db(name.encode(), txn=txn) for name in tables})
                env.sync(True)
            finally:
                env.close()
        _place(beside / data.name, data)
    except (OSError, StoreError) as error:
        # Who was first and has the home to itself takes away what others were making.
        if not data.exists():
            raise _unmade(data, error) from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    try:
        flush_folder(data.parent)
        flush_above(data.parent)
        flush_above(data.parent.parent)
    except OSError as error:
        raise _unmade(data, error) from error


def _unmade(data: Path, error: OSError | StoreError) -> StoreError:
    return error if isinstance(error, StoreError) else os_error(error, f"the local store {data} can't be made")


def _place(made: Path, data: Path) -> None:
    """Unless something is there."""
    try:
        os.link(made, data)
    except FileExistsError:
        pass
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        folder = os.open(data.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            if not data.exists():
                os.rename(made, data)
        finally:
            os.close(folder)
