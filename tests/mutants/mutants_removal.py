"""Mutants of removal: what becomes of a volume that is removed for everybody."""

from __future__ import annotations

from typing import Final

from .mutant import Mutant

ORPHANS: Final = "tests/integration/test_orphans.py"
REMOVAL: Final = "tests/integration/test_removal.py"

MUTANTS: Final = (
    Mutant(
        "orphans: what was committed to lately is one",
        "server/upkeep/orphans.py",
        "if state.finished or state.time > time_ms:",
        "if state.finished:",
        (ORPHANS,),
    ),
    Mutant(
        "orphans: what somebody holds is one",
        "server/upkeep/orphans.py",
        "pin.state is PinState.LIVE and pin.kind in KINDS",
        "False",
        (ORPHANS, "-k", "somebody_holds"),
    ),
    Mutant(
        "orphans: names of organisations are none",
        "server/upkeep/orphans.py",
        'for org in ("", *await self.organisations.all()) if left else ():',
        'for org in ("",) if left else ():',
        (ORPHANS, "-k", "organisations"),
    ),
    Mutant(
        "orphans: the first names are all",
        "server/upkeep/orphans.py",
        "                if not part.next:\n                    break\n",
        "                break\n",
        (ORPHANS, "-k", "no_others"),
    ),
    Mutant(
        "orphans: the first volumes are all",
        "server/upkeep/orphans.py",
        "                found = []\n",
        "                return\n",
        (ORPHANS, "-k", "no_others"),
    ),
    Mutant(
        "removal: a stream waits for a removed volume",
        "spark_export/source/stream.py",
        "if newest.is_removed and not of_removed:",
        "if False:",
        ("tests/integration/test_spark_stream_reader.py", "-k", "volume_that_is_removed"),
    ),
    Mutant(
        "removal: a finished volume is read on",
        "server/metastore/retention.py",
        "await self.appender.submit(vid, judge_since((await self.volumes.get(vid)).state.head + 1))",
        "await self.appender.submit(vid, judge_since((await self.volumes.get(vid)).state.head))",
        (REMOVAL, "-k", "reads_or_changes and asyncio"),
    ),
    Mutant(
        "removal: pins for ever hold a removed volume",
        "server/metastore/retention.py",
        "(not pin.expiry and pin.kind != FORK and pin.lsn > shared)",
        "False",
        (REMOVAL, "-k", "all_of_it_goes and asyncio"),
    ),
    Mutant(
        "removal: leases are cut short",
        "server/metastore/retention.py",
        "(not pin.expiry and pin.kind != FORK and pin.lsn > shared)",
        "pin.lsn > shared",
        (REMOVAL, "-k", "holds_a_lease and asyncio"),
    ),
    Mutant(
        "removal: what a fork shares with the parent of its parent goes",
        "server/metastore/retention.py",
        "if pin.kind in OF_POLICIES or (",
        "if pin.kind in (*OF_POLICIES, FORK) or (",
        (REMOVAL, "-k", "s_fork_lives_on and asyncio"),
    ),
    Mutant(
        "removal: what a fork held stays",
        "server/upkeep/fold.py",
        "            ended=tuple(sorted(task.ended)),\n",
        "",
        (REMOVAL, "-k", "a_fork_held_goes and asyncio"),
    ),
    Mutant(
        "removal: what a pin held for a fork stays",
        "server/upkeep/fold.py",
        "if pinned := await self.forks.pinned_for(volume):",
        "if pinned := list[bytes]():",
        (REMOVAL, "-k", "a_fork_held_goes and asyncio"),
    ),
    Mutant(
        "removal: a fork has ended whose birth is only missing",
        "server/upkeep/ended_forks.py",
        "                if await was_removed(self.logs, log, fork):\n",
        "                if True:\n",
        (REMOVAL, "-k", "only_missing and asyncio"),
    ),
    Mutant(
        "removal: a fork that lives has ended",
        "server/upkeep/ended_forks.py",
        "            await read_birth(self.logs.store, fork, self.logs.patience)\n",
        "            return True\n",
        (REMOVAL, "-k", "(forks_live_on or s_fork_lives) and asyncio"),
    ),
    Mutant(
        "removal: a volume goes whose forks live on",
        "server/upkeep/removed.py",
        " and next(stream.between(FORK), None) is None",
        "",
        (REMOVAL, "-k", "s_fork_lives and asyncio"),
    ),
    Mutant(
        "removal: nobody looks whether the forks of a removed volume have ended",
        "server/upkeep/upkeep.py",
        "        return bool(lsns) or await loading(lambda: next(volume.state.forks.items(), None)) is not None\n",
        "        return bool(lsns)\n",
        (REMOVAL, "-k", "a_fork_held_goes and asyncio"),
    ),
    Mutant(
        "removal: a fork that ended elsewhere is held when its parent comes back",
        "server/metastore/state.py",
        "        if child not in stand:\n",
        "        if False:\n",
        (REMOVAL, "-k", "ended_elsewhere and asyncio"),
    ),
    Mutant(
        "removal: the verifier believes that a fork has ended",
        "server/upkeep/garbage_check.py",
        "            if not await ended.has_ended(fork, volume):\n",
        "            if False:\n",
        (REMOVAL, "-k", "is_not_believed and asyncio"),
    ),
    Mutant(
        "removal: what is gone is looked after",
        "server/upkeep/upkeep.py",
        "        return not await loading(partial(nothing_left, stream, stay.fold))\n",
        "        return True\n",
        (REMOVAL, "-k", "nothing_to_look_after and asyncio"),
    ),
    Mutant(
        "removal: what was pinned for a fork goes",
        "server/metastore/retention.py",
        "        shared = max(forks, default=0)\n",
        "        shared = 0\n",
        (REMOVAL, "-k", "pinned_for_ever and asyncio"),
    ),
    Mutant(
        "removal: a fork that nothing holds its beginning for is found by nobody",
        "server/upkeep/volume_scrub.py",
        "await self._hold_problems(birth, volume) if 0 < birth.parent_lsn <= stands.parent_lsn else []",
        "list[str]()",
        (REMOVAL, "-k", "nothing_holds and asyncio"),
    ),
    Mutant(
        "removal: one that was cut off is not ended",
        "server/upkeep/retainer.py",
        "        if volume.state.finished:\n",
        "        if False:\n",
        ("tests/fault/test_removal_killed.py",),
    ),
    Mutant(
        "removal: a fold keeps the head of a removed volume",
        "server/upkeep/fold.py",
        "upto, keeps_end = min(collecting.since, head), not volume.state.is_forgotten",
        "upto, keeps_end = min(collecting.since, head), True",
        (REMOVAL, "-k", "all_of_it_goes and asyncio"),
    ),
    Mutant(
        "removal: a birth that is missing counts as a removal",
        "server/upkeep/removed.py",
        "        if not await was_removed(volumes.logs, log, vid):\n",
        "        if False:\n",
        (REMOVAL, "-k", "birth and asyncio"),
    ),
    Mutant(
        "removal: what a removed volume has left in shared entries is never deleted",
        "server/upkeep/removed.py",
        "        if not await was_removed(volumes.logs, log, vid):\n",
        "        if True:\n",
        (REMOVAL, "-k", "hold_back and asyncio"),
    ),
    Mutant(
        "removal: for everybody means here",
        "sync/edge.py",
        "            connection.remove(local.vid)\n",
        "",
        ("tests/integration/test_cli.py", "-k", "rm_on_remote"),
    ),
    Mutant(
        "removal: a fork that holds what is here hides it",
        "sync/pull.py",
        "        connection.check_there(record, changes.snapshot)\n",
        "        pass\n",
        ("tests/integration/test_cli.py", "-k", "told_so"),
    ),
    Mutant(
        "removal: what was made here makes way for a name that leads nowhere",
        "sync/edge.py",
        "            _newest(connection, VolumeId(entry.target), volume.name)\n",
        "",
        ("tests/integration/test_cli.py", "-k", "leads_nowhere"),
    ),
)
