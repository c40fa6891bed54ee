"""Mutants of a home's room: what is given back to the disk, and what goes from the cache."""

from __future__ import annotations

from typing import Final

from .mutant import Mutant

ROOM: Final = "tests/integration/test_room.py"
WATCH: Final = "tests/unit/test_room_watch.py"
MOUNT_ROOM: Final = "tests/integration/test_mount_room.py"
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
        "sync/store_file.py",
        "            self._remove_leftovers()\n",
        "            pass\n",
        (KILLED, "-k", "compaction"),
    ),
    Mutant(
        "room: a look doesn't wait until it is time for one",
        "sync/room_watch.py",
        "        if began >= self._rests_until:\n",
        "        if True:\n",
        (WATCH, "-k", "share_of_the_time"),
    ),
    Mutant(
        "room: what a view of whoever changed much held waits",
        "sync/room_watch.py",
        "        self._rests_until = 0.0\n\n    def _look",
        "        self.catch_up()\n\n    def _look",
        (WATCH, "-k", "view_is_gone"),
    ),
    Mutant(
        "room: a mount leaves what was put off",
        "fuse/mount.py",
        "            await in_thread(environment.room.catch_up)\n",
        "",
        (MOUNT_ROOM, "-k", "put_off"),
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
