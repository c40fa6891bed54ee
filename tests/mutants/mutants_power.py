"""Mutants of what a disk does: power losses, and writes that it refuses."""

from __future__ import annotations

from typing import Final

from .mutant import Mutant

HOME: Final = "tests/fault/test_power_loss.py"
MOUNT: Final = "tests/fault/test_mount_power_loss.py"
SYNC: Final = "tests/fault/test_sync_power_loss.py"
FAILING: Final = "tests/fault/test_failing_disk.py"

MUTANTS: Final = (
    Mutant(
        "a new file of a mount is flushed though nobody asked",
        "sync/namespace.py",
        "durability=Durability.ORDERED)",
        "durability=Durability.DURABLE)",
        (MOUNT, "-k", "two_flushes"),
    ),
    Mutant(
        "what is swept without a name is flushed",
        "sync/volume_lifecycle.py",
        "durable=not is_gone(local.name))",
        "durable=True)",
        (MOUNT, "-k", "two_flushes"),
    ),
    Mutant(
        "an environment that LMDB has given up stays",
        "sync/environment.py",
        "            if self._env is env and isinstance(error, lmdb.PanicError):",
        "            if False:",
        (FAILING, "-k", "last_page"),
    ),
    Mutant(
        "views of an environment that was given up are lost with it",
        "sync/environment.py",
        "                self.growths += 1\n                self._env = self._tables = None\n",
        "                self._env = self._tables = None\n",
        (FAILING, "-k", "last_page"),
    ),
    Mutant(
        "a store is made where it lies, and may be torn before it was one",
        "sync/environment.py",
        "is_new = not self.read_only and create_if_new(self.home)",
        "is_new = False",
        (HOME, "-k", "while_it_is_made"),
    ),
    Mutant(
        "the folder of a new home may vanish with what was committed to it",
        "sync/lmdb_create.py",
        "        flush_above(data.parent)\n",
        "",
        (HOME, "-k", "while_it_is_made"),
    ),
    Mutant(
        "the name of a new store may vanish with what was committed to it",
        "sync/lmdb_create.py",
        "        flush_folder(data.parent)\n",
        "",
        (HOME, "-k", "while_it_is_made"),
    ),
    Mutant(
        "what a push sent is forgotten in a power loss",
        "sync/push.py",
        "    local.environment.update(record, durable=True)\n    return known\n",
        "    local.environment.update(record)\n    return known\n",
        (SYNC,),
    ),
    Mutant(
        "a commit that was under way when the power failed counts as one that was told",
        "fuse/files/recovery.py",
        "            behind -= 1\n",
        "            pass\n",
        ("tests/fault/test_wal_damaged.py", "-k", "power_loss_has_torn"),
    ),
    Mutant(
        "the mark of a -wal may come back when that one has gone",
        "fuse/files/watermark.py",
        "db=local.environment.tables.meta), durable=True)",
        "db=local.environment.tables.meta))",
        (MOUNT, "-k", "taken_for_those"),
    ),
    Mutant(
        "the folder of a first -wal may vanish with it",
        "fuse/mount.py",
        "    flush_above(folder_of_all)\n",
        "",
        (MOUNT, "-k", "a_mount_has_made"),
    ),
    Mutant(
        "the name of a new file that was flushed is left to chance",
        "fuse/names/nameops.py",
        "            file.writeback.made()\n",
        "",
        (MOUNT, "-k", "new_file"),
    ),
    Mutant(
        "an fsync of a directory flushes nothing",
        "fuse/names/nameops.py",
        "                await in_thread(self.edge.environment.flush)\n",
        "                pass\n",
        (MOUNT, "-k", "names_are_on"),
    ),
)
