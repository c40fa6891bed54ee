"""Mutants of what guards a home: damage, a home not cleanly closed, who may read and write it, a head that was lost."""

from __future__ import annotations

from typing import Final

from .mutant import Mutant

LOSSES: Final = "tests/unit/test_local_store_losses.py"
READ_ONLY: Final = "tests/integration/test_read_only_home.py"
PERMISSIONS: Final = "tests/unit/test_home_permissions.py"
SHUTDOWN: Final = "tests/unit/test_local_store_clean_shutdown.py"
HEAD_LOST: Final = "tests/integration/test_head_lost.py"
SCAN: Final = "tests/property/test_scan.py"

MUTANTS: Final = (
    Mutant(
        "who opens a volume that another process has just made is told that it is there already",
        "sync/edge.py",
        "        return self._unless_made(name, lambda: self._adopt(name, name, pages=pages))\n",
        "        return self._adopt(name, name, pages=pages)\n",
        ("tests/integration/test_vfs_edge.py", "-k", "another_makes"),
    ),
    Mutant(
        "damage: a push takes whatever version it finds",
        "sync/rollup.py",
        "        if tails.set_key(wanted):\n            value = tails.value()\n",
        "        if tails.set_range(wanted[:20]) and tails.key()[:20] == wanted[:20]:\n"
        "            wanted, value = tails.item()\n",
        (LOSSES, "-k", "older_version"),
    ),
    Mutant(
        "damage: a read takes whatever version it finds",
        "sync/snapshot.py",
        "                    if self._written is not None:\n                        self._check_written(",
        "                    if self._written is None:\n                        self._check_written(",
        (LOSSES, "-k", "older_version"),
    ),
    Mutant(
        "damage: a scan takes whatever version it finds",
        "sync/readahead.py",
        "            if written is not None and (written",
        "            if written is None and (written",
        (LOSSES, "-k", "older_version"),
    ),
    Mutant(
        "scan: what was found whole once counts whatever is written later",
        "sync/environment.py",
        "        if seen != number:\n            found = dict",
        "        if not seen:\n            found = dict",
        (SCAN, "-k", "checked_twice"),
    ),
    Mutant(
        "scan: pages that the journal has newer are read ahead from LMDB",
        "sync/snapshot.py",
        "                                    scan.hide(fresh, self.head.lsn)\n",
        "                                    pass\n",
        (SCAN, "-k", "journal_has_newer"),
    ),
    Mutant(
        "damage: a commit's record that is gone is passed over",
        "sync/local_volume.py",
        '                raise Corrupt(HERE, f"the record of commit {lsn} of volume {self.vid} is gone")\n',
        "                continue\n",
        (LOSSES, "-k", "record_of_an_unpushed"),
    ),
    Mutant(
        "damage: rows that were put are not looked for",
        "sync/stage.py",
        "    editor.check(pages, lsn)\n",
        "",
        (LOSSES, "-k", "not_found_again"),
    ),
    Mutant(
        "damage: a head that fell back is committed on",
        "sync/commit.py",
        "    local.check_newest(txn, now)\n",
        "",
        (LOSSES, "-k", "fell_behind"),
    ),
    Mutant(
        "clean shutdown: a home that may be damaged is not walked",
        "sync/store_file.py",
        "        check_trees(self.path)\n        return True, True\n",
        "        return True, True\n",
        (SHUTDOWN, "-k", "killed"),
    ),
    Mutant(
        "clean shutdown: a process that dies leaves a home that seems sound",
        "sync/environment.py",
        "                    clean_shutdown.remove_stamp(self.data_path)\n",
        "                    pass\n",
        (SHUTDOWN, "-k", "killed"),
    ),
    Mutant(
        "clean shutdown: one of several users vouches for what the others do",
        "sync/store_file.py",
        "(committed or now == self._found) and not clean_shutdown.is_in_use(self.path):\n",
        "(committed or now == self._found):\n",
        (SHUTDOWN, "-k", "another_process"),
    ),
    Mutant(
        "clean shutdown: what else wrote to the file is vouched for",
        "sync/store_file.py",
        "(committed or now == self._found) and",
        "(committed or now != NOTHING) and",
        (SHUTDOWN, "-k", "something_else"),
    ),
    Mutant(
        "clean shutdown: pages in use twice",
        "sync/lmdb_tree_check.py",
        "        if self._seen[number]:\n",
        "        if self._seen[number] > 1:\n",
        (SHUTDOWN, "-k", "free_and_in_use"),
    ),
    Mutant(
        "clean shutdown: keys in any order",
        "sync/lmdb_tree_check.py",
        "        first = keys[0]\n        if (self._last",
        "        return\n        first = keys[0]\n        if (self._last",
        (SHUTDOWN, "-k", "others_place"),
    ),
    Mutant(
        "clean shutdown: names that lead nowhere",
        "sync/record_check.py",
        "            if txn.get(name_key(record.name), db=tables.names) != record.id:\n",
        "            if not record.name:\n",
        (SHUTDOWN, "-k", "fit_one_another"),
    ),
    Mutant(
        "read only: what can't be kept can't be read",
        "sync/snapshot.py",
        "        with suppress(NotFound, Full, ReadOnly):\n",
        "        with suppress(NotFound):\n",
        (READ_ONLY, "-k", "grow or full_disk"),
    ),
    Mutant(
        "read only: a home that can't be written isn't opened",
        "sync/lmdb_open.py",
        "            if not read_only and code in _UNWRITABLE and",
        "            if read_only and code in _UNWRITABLE and",
        (READ_ONLY, "-k", "file_system_is_read"),
    ),
    Mutant(
        "read only: without a place in the table of readers while others write",
        "sync/environment.py",
        "        if self.read_only:\n            self.file.refuse_in_use()\n        env =",
        "        env =",
        (READ_ONLY, "-k", "being_written"),
    ),
    Mutant(
        "permissions: a link that somebody else made is followed",
        "sync/home_permissions.py",
        "            if not ours or found.st_uid not in (me, _ROOT):\n",
        "            if not ours and found.st_uid == me:\n",
        (PERMISSIONS, "-k", "somebody_else_made"),
    ),
    Mutant(
        "permissions: a lock that is a link is followed",
        "sync/home_permissions.py",
        "flags | os.O_CREAT | os.O_NOFOLLOW |",
        "flags | os.O_CREAT |",
        (PERMISSIONS, "-k", "lock_that_is_a_link"),
    ),
    Mutant(
        "permissions: a home that is wider stays so",
        "sync/home_permissions.py",
        "            _tighten(path, found.st_mode & 0o700)\n",
        "            pass\n",
        (PERMISSIONS, "-k", "tightened"),
    ),
    Mutant(
        "permissions: every user reads what LMDB writes",
        "sync/lmdb_open.py",
        "                mode=0o600,\n",
        "                mode=0o644,\n",
        (PERMISSIONS, "-k", "owner_alone"),
    ),
    Mutant(
        "permissions: every user reads a store",
        "server/store/directory_tree.py",
        "if os.fstat(self._root.fd).st_mode & stat.S_IWGRP else 0o700\n",
        "if os.fstat(self._root.fd).st_mode & stat.S_IWGRP else 0o755\n",
        (PERMISSIONS, "-k", "owner_alone"),
    ),
    Mutant(
        "permissions: an exported file is everybody's",
        "sync/transfer.py",
        "os.O_NOFOLLOW | os.O_CLOEXEC, 0o666), name\n",
        "os.O_NOFOLLOW | os.O_CLOEXEC, 0o600), name\n",
        (PERMISSIONS, "-k", "exported"),
    ),
    Mutant(
        "a push looks at the local store again and again",
        "sync/push.py",
        "    head, record, under_way = state\n    if not head.unpushed:\n",
        "    head, record, under_way = local.sync_state()\n    if not head.unpushed:\n",
        ("tests/integration/test_edge_sync.py", "-k", "looks_at_the_local_store"),
    ),
    Mutant(
        "a stopped node is waited for",
        "remote/exchange.py",
        "            if silent:\n                tasks.cancel_scope.cancel()\n",
        "",
        ("tests/integration/test_remote_stopped.py", "-k", "told_of and commit"),
    ),
    Mutant(
        "a slow node is given up",
        "remote/exchange.py",
        "            silent = self._is_silent = not await self._is_alive()\n",
        "            silent = self._is_silent = not await self._is_alive() or True\n",
        ("tests/integration/test_remote_stopped.py", "-k", "slow and commit"),
    ),
    Mutant(
        "lost head: an edge takes it for a lagging remote",
        "sync/connection.py",
        "            self.check_seen(record, seen)\n        except",
        "        except",
        (HEAD_LOST,),
    ),
    Mutant(
        "lost head: an LSN that was made again is pulled on from",
        "sync/connection.py",
        "        if record.synced_ms and time_ms and time_ms != record.synced_ms:\n",
        "        if record.synced_ms and time_ms and time_ms < record.synced_ms:\n",
        (HEAD_LOST, "-k", "made_again_is_not"),
    ),
    Mutant(
        "lost head: a commit on an LSN that was made again",
        "server/metastore/admission.py",
        "        own = request.base > volume.history.start\n",
        "        own = False\n",
        (HEAD_LOST, "-k", "nothing_is_pushed"),
    ),
    Mutant(
        "lost head: a push onto an LSN that is gone diverges",
        "sync/push.py",
        "            if error.head <= pending.base:\n                _check_seen(local, connection, pending)\n",
        "",
        (HEAD_LOST, "-k", "push_onto"),
    ),
    Mutant(
        "lost head: a lite client's commit is only late",
        "lite/transaction.py",
        "                if error.head < self._over.view.lsn:\n",
        "                if error.head < 0:\n",
        (HEAD_LOST, "-k", "lite"),
    ),
    Mutant(
        "the snapshot pragma tells of the newest",
        "vfs/file.py",
        "            view = self._view if self._lock or self._fixed else None\n",
        "            view = None\n",
        ("tests/integration/test_vfs_edge.py", "-k", "snapshot_pragma"),
    ),
    Mutant(
        "lost head: a pull that settles a push compares with the record of before",
        "sync/pull.py",
        "record = state.record if state.pending is None else local.record()",
        "record = state.record",
        (HEAD_LOST, "-k", "answer_was_lost"),
    ),
)
