"""`data.mdb` as one process has it open: what it was when LMDB mapped it, whether it may be read, and the word that is
left when it is closed (clean_shutdown.py).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import lmdb

from ..volume.errors import Unavailable
from . import clean_shutdown
from .clean_shutdown import NOTHING, Stamp
from .lmdb_create import MAKING
from .lmdb_file import check_data_file
from .lmdb_tree_check import check_trees

COPY: Final = ".data.mdb"
"""What compaction.py writes beside it."""


class StoreFile:
    """Looked at by `check`, mapped by LMDB, told so by `opened`; `closed` once LMDB has let it go."""

    def __init__(self, data: Path) -> None:
        self.path = data
        self._found = NOTHING
        """What it was when it was opened."""
        self._transaction = 0
        """LMDB's newest then."""

    def check(self, *, read_only: bool, is_new: bool) -> tuple[bool, bool]:
        """What LMDB is about to take on trust is looked at. Whether it was not cleanly closed, and whether no other
        process has it open. Raises Corrupt.
        """
        self._found = NOTHING
        check_data_file(self.path)
        if not self.path.exists() or not os.path.getsize(self.path):
            # LMDB makes it; if it was made before, its tables are missed then.
            return False, True
        if clean_shutdown.is_in_use(self.path):
            return False, False
        if not read_only:
            self._remove_leftovers()
        if is_new or clean_shutdown.was_left_clean(self.path, clean_shutdown.stamp_of(self.path)):
            return False, True
        check_trees(self.path)
        return True, True

    def opened(self, env: lmdb.Environment) -> None:
        self._transaction, self._found = env.info()["last_txnid"], self._now()

    def refuse_in_use(self) -> None:
        """For who can't write it. Raises Unavailable where what is read might be written over meanwhile."""
        if clean_shutdown.is_in_use(self.path):
            raise Unavailable(
                f"the home {self._home} can't be written by this process, and another one has it open: "
                "it can be read when that one has closed it"
            )
        if self._found.inode not in (0, os.stat(self.path).st_ino):
            raise Unavailable(f"the home {self._home} was compacted by another process: open it again")

    @contextmanager
    def own_change(self) -> Generator[None]:
        """It is changed within, and nothing committed."""
        is_known = self._now() == self._found
        yield
        if is_known:
            self._found = self._now()

    def replaced(self) -> None:
        """Another file is in its place, which is sound."""
        self._transaction, self._found = -1, NOTHING

    def closed(self, last_transaction: int) -> None:
        """Leave word that it is sound, unless others use it still, who will. What changed while nothing was committed
        was none of LMDB's doing.
        """
        try:
            now = self._now()
        except FileNotFoundError:  # The home was removed under its users.
            return
        committed = last_transaction != self._transaction
        if (committed or now == self._found) and not clean_shutdown.is_in_use(self.path):
            clean_shutdown.write_stamp(self.path, now)

    @property
    def _home(self) -> Path:
        return self.path.parent.parent

    def _now(self) -> Stamp:
        return clean_shutdown.stamp_of(self.path)

    def _remove_leftovers(self) -> None:
        """Of who died over a copy, or over what was to become the store itself."""
        with suppress(OSError):
            os.unlink(self.path.with_name(COPY))
        for left in self.path.parent.glob(f"{MAKING}*"):
            shutil.rmtree(left, ignore_errors=True)
