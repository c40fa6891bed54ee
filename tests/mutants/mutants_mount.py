"""Mutants of the mount."""

from __future__ import annotations

from typing import Final

from .mutant import Mutant

__all__ = ["MUTANTS"]

MOUNTED: Final = "tests/integration/test_mount_sqlite.py"
MOUNT_PROGRAMS: Final = "tests/integration/test_mount_programs.py"
MOUNT_FILES: Final = "tests/property/test_mount_machine.py"
FILES_KILLED: Final = "tests/fault/test_mount_files_killed.py"
MOUNT_KILLED: Final = "tests/fault/test_mount_killed.py"
MOUNT_SYNC: Final = "tests/integration/test_mount_sync.py"
MOUNT_DEAD: Final = "tests/fault/test_mount_dead.py"
MOUNT_REQUESTS: Final = "tests/integration/test_mount_requests.py"
MOUNT_BYTES: Final = "tests/integration/test_mount_bytes.py"
WAL_DAMAGED: Final = "tests/fault/test_wal_damaged.py"
MOUNT_WAL: Final = "tests/property/test_mount_wal.py"
MOUNT_TRANSITIONS: Final = "tests/unit/test_mount_transitions.py"

MUTANTS: Final = (
    Mutant(
        "who closes it commits what others write",
        "fuse/files/regular.py",
        "            handle.wrote = False\n",
        "            pass\n",
        (MOUNTED, "-k", "who_closes_it_commits_nothing"),
    ),
    Mutant(
        "a journal that goes is still found for a moment",
        "fuse/files/regular.py",
        "if self._hiding is not None:",
        "if False:",
        (MOUNTED, "-k", "just_after_its_last_writer and persist"),
    ),
    Mutant(
        "a journal's end is no commit",
        "fuse/files/transitions.py",
        "(nothing,   commit, ",
        "(nothing,   nothing, ",
        (MOUNTED, "-k", "one_lsn_which_holds and delete-full-normal"),
    ),
    Mutant(
        "a flush is no commit where there is no journal",
        "fuse/files/transitions.py",
        "(commit,    Act.PROMISE, ",
        "(nothing,   Act.PROMISE, ",
        (MOUNTED, "-k", "one_lsn_which_holds and memory-full-normal"),
    ),
    Mutant(
        "a transaction whose program died is committed",
        "fuse/files/transitions.py",
        "(commit,    Act.ROLL_BACK, ",
        "(commit,    commit, ",
        (MOUNT_KILLED, "-k", "program_killed_within_a_transaction and persist-False"),
    ),
    Mutant(
        "what was written beside a -wal reaches the history that a reset has taken",
        "fuse/files/transitions.py",
        "Act.DRAIN,     part,          refuse)",
        "Act.DRAIN,     part,          part)",
        (MOUNT_TRANSITIONS, "-k", "history"),
    ),
    Mutant(
        "who reads on in the history before a reset is shown the new one",
        "fuse/files/transitions.py",
        "(commit,    commit,        Act.REBASE,    part,          nothing)",
        "(commit,    commit,        Act.REBASE,    part,          Act.REBASE)",
        (MOUNT_TRANSITIONS, "-k", "history"),
    ),
    Mutant(
        "what a damaged -wal has lost is said by no status",
        "cli/volumes.py",
        '        if row["lost"]:\n',
        "        if False:\n",
        (WAL_DAMAGED, "-k", "status"),
    ),
    Mutant(
        "what a damaged -wal has lost is said for ever",
        "fuse/mount.py",
        "            forget_loss(self.edge.home, vid)\n",
        "",
        (WAL_DAMAGED, "-k", "status"),
    ),
    Mutant(
        "a zeroed header is no journal's end",
        "fuse/files/transitions.py",
        "return Event.HEADER if data[0] else Event.END",
        "return Event.HEADER",
        (MOUNTED, "-k", "one_lsn_which_holds and persist-full-normal"),
    ),
    Mutant(
        "a rollback is a commit of what was written back",
        "fuse/files/writeback.py",
        "        overlay.drop_unchanged()\n",
        "",
        (MOUNTED, "-k", "one_lsn_which_holds and truncate-full-normal"),
    ),
    Mutant(
        "the cut after a vacuum is a commit of its own",
        "fuse/files/shorten.py",
        "        if _will_be_cut(overlay, length, by_journal=by_journal):\n            overlay.truncate(length)\n",
        "        pass\n",
        (MOUNTED, "-k", "one_lsn_which_holds and delete-full-normal"),
    ),
    Mutant(
        "what lay beyond a cut comes back when the file grows",
        "sync/overlay.py",
        "            self.floor = min(self.floor, length)\n",
        "",
        (MOUNT_FILES,),
    ),
    Mutant(
        "a cut within a page leaves the rest of the page",
        "sync/overlay.py",
        "self._put(last, data[:rest] + zeros(self.page_size)[rest:])",
        "self._put(last, data)",
        (MOUNT_FILES,),
    ),
    Mutant(
        "a write within a page loses what lies after it",
        "sync/overlay.py",
        'tail = self.read(last + 1)[end - last * size :] if end < self.length and end % size else b""',
        'tail = b""',
        (FILES_KILLED, "-k", "within_a_page"),
    ),
    Mutant(
        "a close commits nothing",
        "fuse/operations.py",
        "            await found[0].writeback.act(Event.CLOSE)\n            found[1].wrote = False\n",
        "            found[1].wrote = False\n",
        (FILES_KILLED, "-k", "was_closed"),
    ),
    Mutant(
        "a file that takes another's place is not committed",
        "fuse/names/nameops.py",
        "            await node.writeback.act(Event.CLOSE)\n        async with",
        "            pass\n        async with",
        (FILES_KILLED, "-k", "another_s_place"),
    ),
    Mutant(
        "a file that is opened to be cut keeps its bytes",
        "fuse/operations.py",
        "            if cut:\n",
        "            if False:\n",
        (MOUNT_FILES,),
    ),
    Mutant(
        "a sidecar becomes a volume",
        "fuse/operations.py",
        "if split is None or not isinstance(owner, File) or not await self._is_database(owner):",
        "if split is None or owner is not None:",
        (MOUNTED, "-k", "sidecars"),
    ),
    Mutant(
        "nobody frees the thread that waits for its own dead mount",
        "fuse/host/locker.py",
        "        abort(directory, device)\n        os._exit(0)\n",
        "        os._exit(0)\n",
        (MOUNT_DEAD, "-k", "request_of_its_own"),
    ),
    Mutant(
        "a supervisor's signal ends the locker",
        "fuse/host/locker.py",
        "        signal.signal(each, signal.SIG_IGN)\n",
        "        signal.signal(each, signal.SIG_DFL)\n",
        (MOUNT_DEAD, "-k", "begun_anew"),
    ),
    Mutant(
        "a locker that died is not begun anew",
        "fuse/exchange/locking.py",
        "            if self._process is process and not self._over:\n",
        "            if False:\n",
        (MOUNT_DEAD, "-k", "begun_anew"),
    ),
    Mutant(
        "an index that was to be written stays as it was when the locker dies",
        "fuse/exchange/swap.py",
        "            except Broken:\n                async with",
        "            except Broken:\n                return\n                async with",
        ("tests/unit/test_fuse_locking.py",),
    ),
    Mutant(
        "a process that is dying is taken for one that answers",
        "fuse/host/process_state.py",
        'if fields[0] in "ZXx" or int(fields[6]) & _EXITING:',
        'if fields[0] == "X":',
        ("tests/unit/test_fuse_process_state.py",),
    ),
    Mutant(
        "commands wait for a mount that is stopped",
        "fuse/host/mount_client.py",
        "    if how is ProcessState.STOPPED:\n        raise _StoppedError\n",
        "",
        (MOUNT_DEAD, "-k", "stopped"),
    ),
    Mutant(
        "a mount is looked at for the links in its path",
        "fuse/host/mountinfo.py",
        "        if found in ours:\n",
        "        if False:\n",
        ("tests/unit/test_fuse_mountinfo.py",),
    ),
    Mutant(
        "the device blocks whoever reads what was taken back",
        "fuse/requests/readers.py",
        "os.set_blocking(device, False)",
        "os.set_blocking(device, True)",
        (MOUNT_REQUESTS, "-k", "killed_before"),
    ),
    Mutant(
        "attributes are asked for before each read",
        "fuse/requests/kernel.py",
        " & ~_AUTO_INVAL_DATA",
        "",
        (MOUNT_REQUESTS, "-k", "no_attributes"),
    ),
    Mutant(
        "who mounts limits the files of all programs",
        "fuse/mount.py",
        "(resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE)",
        "(resource.RLIMIT_NOFILE,)",
        ("tests/integration/test_mount_limits.py", "-k", "who_mounted"),
    ),
    Mutant(
        "a program's mistakes fill the log",
        "fuse/host/logfile.py",
        "        return count < _ALIKE\n",
        "        return True\n",
        ("tests/unit/test_fuse_logfile.py", "-k", "alike"),
    ),
    Mutant(
        "the log grows for ever",
        "fuse/host/logfile.py",
        "            self._begin_anew(self._path)\n",
        "            pass\n",
        ("tests/unit/test_fuse_logfile.py", "-k", "large"),
    ),
    Mutant(
        "one volume that can't be pushed keeps back the others",
        "cli/mounting.py",
        "                failed[name] = error\n",
        "                failed[name] = error\n                break\n",
        ("tests/integration/test_mount_command.py", "-k", "says_once"),
    ),
    Mutant(
        "commits of a -wal are made again after a crash",
        "fuse/files/recovery.py",
        "if each.end_bytes <= mark.end_bytes]",
        "if each.end_bytes <= 0]",
        (MOUNT_KILLED, "-k", "wait_in_a_wal"),
    ),
    Mutant(
        "a commit that ends in headers alone is overlooked",
        "fuse/files/wal_tail.py",
        "            self._advance(self._rewritten)\n",
        "",
        (MOUNT_WAL,),
    ),
    Mutant(
        "the header of a commit's frame counts as the commit",
        "fuse/files/wal_tail.py",
        "        if self._awaited and end >= self._awaited:\n",
        "        if self._awaited and self.file.size >= self._awaited:\n",
        (MOUNT_WAL,),
    ),
    Mutant(
        "a -wal that was let go is cut",
        "fuse/files/sidecar.py",
        "        if not self.file.closed:\n",
        "        if self.file is not None:\n",
        (MOUNT_PROGRAMS, "-k", "just_after_its_program_died"),
    ),
    Mutant(
        "a name whose length isn't known can't be listed offline",
        "fuse/operations.py",
        '            log.info("how long %s is can\'t be told: %s", file.path, error)\n',
        "            if not file.length:\n                raise\n",
        (MOUNT_SYNC, "-k", "never_opened_here"),
    ),
    Mutant(
        "a listing waits for each length that can't be had",
        "fuse/operations.py",
        "                self._unasked_until = trio.current_time() + _UNASKED_SECONDS\n",
        "                pass\n",
        ("tests/unit/test_mount_lengths.py",),
    ),
    Mutant(
        "a page count that a program writes cuts the file",
        "fuse/files/shorten.py",
        " and counters[1] == (counters[0] + 1) & 0xFFFFFFFF\n",
        "\n",
        (MOUNT_BYTES, "-k", "page_count_that_a_program_writes"),
    ),
    Mutant(
        "what lies behind a database is cut off at SQLite's commit",
        "fuse/files/shorten.py",
        "    if _header_length(before) != view.length:\n",
        "    if not view:\n",
        (MOUNT_BYTES, "-k", "behind_a_database"),
    ),
    Mutant(
        "room that SQLite reserves is cut off",
        "fuse/files/shorten.py",
        'any(overlay.read(page).strip(b"\\0") for page in behind)',
        "bool(behind)",
        (MOUNT_BYTES, "-k", "whatever_room and 65536-delete"),
    ),
    Mutant(
        "what a program writes beside a -wal counts as a checkpoint",
        "fuse/files/writeback.py",
        "                astray = True\n",
        "",
        (MOUNT_BYTES, "-k", "is_in_use_stays and what_differs-removed"),
    ),
    Mutant(
        "a cut beside a -wal counts as a checkpoint's",
        "fuse/files/wal_tail.py",
        "        return not rest and count in self._counts\n",
        "        return True\n",
        (MOUNT_BYTES, "-k", "cut_beside"),
    ),
    Mutant(
        "a backup beside a -wal leaves what the -wal's frames hide",
        "fuse/files/wal_undo.py",
        "    for page in hidden & span(1, page_count(overlay.length, page_size)):\n",
        "    for page in PageSet():\n",
        (MOUNT_BYTES, "-k", "is_in_use_stays and a_few_bytes-removed"),
    ),
    Mutant(
        "a -wal that is parted from its file is taken over after a crash",
        "fuse/files/recovery.py",
        "mark.parted is not None and mark.salts == salts",
        'mark.parted is not None and mark.salts == b""',
        (MOUNT_BYTES, "-k", "survives_the_mount and what_differs and removed and killed"),
    ),
    Mutant(
        "a -wal stands beside a database that has moved on",
        "fuse/files/regular.py",
        "        if wal.parted == (head.lsn, head.generation):\n",
        "        if head:\n",
        (MOUNT_BYTES, "-k", "set_aside"),
    ),
    Mutant(
        "commits that a damaged -wal has lost are not counted",
        "fuse/files/sidecar.py",
        "            wal.note_flushed(count)\n",
        "            pass\n",
        (WAL_DAMAGED, "-k", "told_once and missing"),
    ),
    Mutant(
        "commits that the store has count as lost with the -wal",
        "fuse/files/recovery.py",
        "        held = held if mark.parted else max(held, mark.commits)\n",
        "        pass\n",
        (WAL_DAMAGED, "-k", "told_once and zeroed"),
    ),
    Mutant(
        "a damaged -wal is removed",
        "fuse/files/recovery.py",
        'it is kept as {set_aside(path)}"',
        'it is kept as {path.unlink()}"',
        (WAL_DAMAGED, "-k", "told_once and first"),
    ),
    Mutant(
        "a mount's command says nothing of what was lost",
        "cli/mounting.py",
        "    for notice in _notices(home):\n",
        "    for notice in ():\n",
        ("tests/integration/test_mount_command.py", "-k", "missing_wal_has_lost"),
    ),
    Mutant(
        "a remote that is collected in its loop's thread waits for itself",
        "remote/portal.py",
        "            session.portal.give_back(session.aclose())\n",
        "            session.portal.call(session.aclose())\n",
        ("tests/integration/test_lite.py", "-k", "nobody_closed"),
    ),
)
