"""Mutants of a home's room: what is given back to the disk, and what goes from the cache."""

from __future__ import annotations

from typing import Final

from .mutant import Mutant

ROOM: Final = "tests/integration/test_room.py"
KILLED: Final = "tests/fault/test_edge_killed.py"

MUTANTS: Final = (
    Mutant(
        "room: what a view reads is given back",
        "sync/free_room.py",
        "            oldest = min([meta.transaction, *_readers(environment.handle.readers())])\n",
        "            oldest = meta.transaction\n",
        (ROOM, "-k", "view_reads"),
    ),
    Mutant(
        "room: a file that others have open is replaced",
        "sync/compaction.py",
        "        _lock_out(environment, lock)\n",
        "",
        (ROOM, "-k", "is_not_replaced"),
    ),
    Mutant(
        "room: the copy that a kill left stays",
        "sync/environment.py",
        "            remove_leftover(data)\n",
        "            pass\n",
        (KILLED, "-k", "compaction"),
    ),
    Mutant(
        "cache: what is not pushed goes",
        "sync/eviction.py",
        "        self._upto, self._page_size = head.sync_local, head.page_size\n",
        "        self._upto, self._page_size = head.lsn, head.page_size\n",
        (ROOM, "-k", "not_pushed"),
    ),
    Mutant(
        "cache: a scan drives out what is read again",
        "sync/eviction.py",
        "                if mark or (page",
        "                if (page",
        (ROOM, "-k", "drives_out"),
    ),
)
