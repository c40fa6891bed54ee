"""Mutants of synchronous commits, of who syncs a home, and of views that were discarded."""

from __future__ import annotations

from typing import Final

from .mutant import Mutant

CONFIRM: Final = "tests/integration/test_synchronous_commit.py"
MACHINE: Final = "tests/property/test_synchronous_commit_machine.py"
AUTOSYNC: Final = "tests/integration/test_autosync.py"
STORMS: Final = "tests/attack/test_autosync_storms.py"
REPLAY: Final = "tests/integration/test_replay.py"

MUTANTS: Final = (
    Mutant(
        "what was taken out of the queue is done once more",
        "sync/autosync.py",
        "                # Somebody else does it, who didn't wait for its turn.\n                return\n"
        "            del self._queued[vid]\n",
        "                pass\n            self._queued.pop(vid, None)\n",
        ("tests/integration/test_autosync.py", "-k", "waits_for_its_turn"),
    ),
    Mutant(
        "pushes give way to no program",
        "sync/autosync_throttle.py",
        "            self._allowed, self._looked = 1 if is_busy else self._most, now\n",
        "            self._looked = now\n",
        ("tests/unit/test_autosync_throttle.py",),
    ),
    Mutant(
        "synchronous commit: the sync point stays behind",
        "sync/confirm.py",
        "sync_remote=self.committed.lsn, sync_local=head.lsn",
        "sync_remote=head.sync_remote, sync_local=head.lsn",
        (MACHINE,),
    ),
    Mutant(
        "synchronous commit: a rollback's sync is sent, too",
        "vfs/file.py",
        "        return not self._length or int.from_bytes(",
        "        return True or int.from_bytes(",
        (CONFIRM, "-k", "rolled_back"),
    ),
    Mutant(
        "synchronous commit: what was refused is sent by the rollback",
        "vfs/file.py",
        "                        self._refused = error\n                    raise",
        "                        pass\n                    raise",
        (CONFIRM, "-k", "refused"),
    ),
    Mutant(
        "synchronous commit: what may have landed is said to be nowhere",
        "sync/confirm.py",
        "        self._may_have_landed = True\n",
        "",
        (CONFIRM, "-k", "fate"),
    ),
    Mutant(
        "autosync: who leads doesn't step down for a mount",
        "sync/autosync.py",
        "            return not self._is_mount and mount_wants(self._edge.home)\n",
        "            return False\n",
        (AUTOSYNC, "-k", "mount_comes_first"),
    ),
    Mutant(
        "autosync: what has just come into use takes another's poll",
        "sync/poll_slots.py",
        "            return now - self._wanted.setdefault(vid, now) >= _PATIENCE_SECONDS\n",
        "            return True\n",
        ("tests/unit/test_poll_slots.py",),
    ),
    Mutant(
        "autosync: each of thousands takes a poll from the one before",
        "sync/poll_slots.py",
        " or self._is_outdone(vid):\n",
        ":\n",
        ("tests/unit/test_poll_slots.py",),
    ),
    Mutant(
        "autosync: each volume has a long poll",
        "sync/poll_slots.py",
        "            if len(self._held) >= self._most:\n",
        "            if False:\n",
        (AUTOSYNC, "-k", "more_volumes_than"),
    ),
    Mutant(
        "autosync: what has no long poll is never asked",
        "sync/autosync.py",
        "            if task is not None and self._may_ask(task):\n",
        "            if False:\n",
        (AUTOSYNC, "-k", "more_volumes_than"),
    ),
    Mutant(
        "mount: of more open files than are watched the others hear of nothing",
        "sync/poll_slots.py",
        "                    if self._may_have_turns(vid, now):\n                        self._turns",
        "                    if self._lately_seconds is None:\n                        self._turns",
        ("tests/unit/test_poll_slots.py",),
    ),
    Mutant(
        "mount: an engine that broke is not begun anew",
        "sync/autosync.py",
        "        self._on_mistake(error, True)\n",
        "        self._on_mistake(error, False)\n",
        ("tests/unit/test_mount_engine.py",),
    ),
    Mutant(
        "autosync: a mistake that is met with one volume ends all",
        "sync/autosync.py",
        "            self._on_mistake(error, False)\n",
        "            self._break(error)\n",
        ("tests/unit/test_mount_engine.py",),
    ),
    Mutant(
        "autosync: a volume that is removed while its answer waits ends it",
        "sync/autosync.py",
        "        if poll is None:\n",
        "        if False:\n",
        (AUTOSYNC, "-k", "answer_waits"),
    ),
    Mutant(
        "mount: what was used once is asked about for ever",
        "sync/poll_slots.py",
        'float("-inf")) < self._lately_seconds',
        'float("-inf")) < self._lately_seconds * 1000',
        ("tests/unit/test_poll_slots.py",),
    ),
    Mutant(
        "autosync: what a person does meets what is under way",
        "sync/autosync.py",
        "            self._ended.wait_for(lambda: vid not in self._busy)\n",
        "",
        (AUTOSYNC, "-k", "waits_for_what_is_under_way"),
    ),
    Mutant(
        "autosync: a volume that changed is not looked at again",
        "sync/autosync.py",
        "                if self._states.get(vid) != state:\n",
        "                if vid not in self._states:\n",
        (AUTOSYNC, "-k", "appears_in_another"),
    ),
    Mutant(
        "autosync: what a way out commits is taken for dealt with",
        "sync/autosync.py",
        "        task.told = label\n",
        "        task.told, task.pace.first = label, None\n",
        ("tests/property/test_autosync_schedules.py", "-k", "replay"),
    ),
    Mutant(
        "autosync: a mount's policy goes past the programs that have the file open",
        "sync/edge.py",
        "self._leases, lambda: self.mover\n",
        "self._leases, lambda: moves_at_once\n",
        ("tests/integration/test_mount_sync.py", "-k", "pull_that_nobody_asked_for"),
    ),
    Mutant(
        "autosync: an answer that comes at once is no failure",
        "sync/autosync.py",
        "time.monotonic() - poll.began < poll.seconds / 2:",
        "False:",
        (STORMS, "-k", "rarely"),
    ),
    Mutant(
        "invalidation: a view of what was pushed is reported",
        "sync/invalidation.py",
        "        return seen.lsn > discarded.after",
        "        return seen.unpushed > 0",
        (REPLAY, "-k", "not_discarded"),
    ),
    Mutant(
        "invalidation: what a connection committed itself isn't told",
        "sync/volume.py",
        "self._local, snapshot, self._take, self._confirm",
        "self._local, snapshot, self._engine.take, self._confirm",
        (REPLAY, "-k", "withdrawal"),
    ),
)
