"""Mutants of the edge: commits, push, pull, fork, the VFS."""

from __future__ import annotations

from typing import Final

from .mutant import Mutant

EDGES: Final = "tests/property/test_edge_machine.py"
KILLED: Final = "tests/fault/test_edge_killed.py"
RACES: Final = "tests/integration/test_races.py"

MUTANTS: Final = (
    Mutant(
        "success mapped to the local head",
        "sync/push.py",
        "sync_local=pending.end, floor=floor, unpushed=len(later)",
        "sync_local=head.lsn, floor=floor, unpushed=0",
        (EDGES,),
    ),
    Mutant(
        "success drops the commits made meanwhile",
        "sync/push.py",
        "local.drop_commits(txn, pending.start, pending.end)",
        "local.drop_commits(txn, pending.start, head.lsn)",
        (EDGES,),
    ),
    Mutant(
        "no pending record",
        "sync/push.py",
        "        local.put_push(txn, pending)\n        return pending",
        "        return pending",
        (KILLED, "-k", "push_that_was_cut_lands_once"),
    ),
    Mutant(
        "no token in the pending record",
        "sync/push.py",
        "        local.put_push(txn, known)\n",
        "",
        (KILLED, "-k", "push_that_was_cut_lands_once"),
    ),
    Mutant(
        "a pending push is given up unasked",
        "sync/push.py",
        "    if not pending.token:\n        # No commit was sent under it.",
        "    if pending:",
        (KILLED, "-k", "push_that_was_cut_lands_once"),
    ),
    Mutant(
        "a lost answer is taken for a failure",
        "sync/push.py",
        "            if not error.determinate:\n                head = _ask(local, connection, pending)",
        "            if error.determinate and delay is None:\n                head = _ask(local, connection, pending)",
        (EDGES,),
    ),
    Mutant(
        "pages captured by a push are pruned",
        "sync/local_volume.py",
        "return None if push is None else Keep(push.start, push.end)",
        "return None",
        (EDGES,),
    ),
    Mutant(
        "pull skips a cached page's marker",
        "sync/pull.py",
        "late = editor.known(changed - staged)",
        "late = PageSet()",
        (EDGES,),
    ),
    Mutant(
        "pull skips the marker of a page cached while it runs",
        "sync/pull.py",
        "late = editor.known(changed - staged)",
        "late = already - staged",
        (EDGES,),
    ),
    Mutant(
        "pull loses a commit made while it runs",
        "sync/pull.py",
        "            if now.unpushed:\n                raise diverged",
        "            if now.unpushed and head.unpushed:\n                raise diverged",
        (RACES,),
    ),
    Mutant(
        "page cached at the wrong LSN",
        "sync/local_volume.py",
        "            if head.sync_remote != sync_remote:\n                return False\n",
        "",
        (EDGES,),
    ),
    Mutant(
        "page cached over an unpushed one",
        "sync/local_volume.py",
        "if page > last or (version is not None and version.state != PENDING):",
        "if page > last:",
        (EDGES,),
    ),
    Mutant(
        "reset drops unpushed work",
        "sync/volume.py",
        "def reset(self, *, keep_as: str | None = None, discard: bool = False, move: Move = at_once) -> str:",
        "def reset(self, *, keep_as: str | None = None, discard: bool = True, move: Move = at_once) -> str:",
        (EDGES,),
    ),
    Mutant(
        "reset forgets what the discarded commits wrote",
        "sync/reset.py",
        "changed = decode_pages(connection.url, changes.pages) | _touched(snapshot)",
        "changed = decode_pages(connection.url, changes.pages)",
        (EDGES,),
    ),
    Mutant(
        "a writer begins on a view that has passed",
        "sync/writer.py",
        "if (now.lsn, now.generation) != (head.lsn, head.generation):",
        "if now.generation != head.generation:",
        ("tests/unit/test_local_store.py",),
    ),
    Mutant(
        "the write lock is shared",
        "sync/file_locks.py",
        "fcntl.LOCK_EX | fcntl.LOCK_NB",
        "fcntl.LOCK_SH | fcntl.LOCK_NB",
        ("tests/unit/test_local_store.py",),
    ),
    Mutant(
        "a view is renewed though its volume has moved on",
        "sync/snapshot.py",
        "        if (head.lsn, head.generation) != (self.head.lsn, self.head.generation):\n            return False\n",
        "",
        ("tests/unit/test_local_store.py",),
    ),
    Mutant(
        "the local floor is ignored",
        "sync/snapshot.py",
        "if head.sync_remote == 0 or page > page_count(head.floor, head.page_size):",
        "if head.sync_remote == 0:",
        (EDGES,),
    ),
    Mutant(
        "an unpushed page that is lost reads as the remote's",
        "sync/snapshot.py",
        "        if self._written is not None:\n            with translated(self._path):\n",
        "        if self._written is not None and not head.sync_remote:\n            with translated(self._path):\n",
        ("tests/unit/test_local_store_losses.py",),
    ),
    Mutant(
        "checksum unchecked in the local store",
        "sync/snapshot.py",
        "if _digest(data, seed=rows.seed ^ int.from_bytes(found[PREFIX:]) ^ page << 24) == value[1:9]:",
        "if data:",
        ("tests/unit/test_local_store.py", "-k", "damaged_byte"),
    ),
    Mutant(
        "a large change that was cut is left half done",
        "sync/stage.py",
        "    happened = head.lsn >= stage.lsn",
        "    happened = True",
        (KILLED, "-k", "too_large_for_one_batch"),
    ),
    Mutant(
        "another store is taken for the volume's",
        "sync/connection.py",
        "        if store != record.store:",
        "        if not store:",
        ("tests/integration/test_edge_sync.py", "-k", "another_store"),
    ),
)
