"""Mutants of listening: what is told of a volume's commits, to whom, and how many may wait for them."""

from __future__ import annotations

from typing import Final

from .mutant import Mutant

HEARD: Final = "tests/integration/test_listening.py"
WAITERS: Final = "tests/integration/test_waiters.py"
MACHINE: Final = "tests/property/test_listening_machine.py"

MUTANTS: Final = (
    Mutant(
        "listening: an answer that was lost is taken for one that came",
        "remote/listening.py",
        "                await anyio.sleep(self._pause(error))\n",
        "                await anyio.sleep(self._pause(error))\n                self.after += 1\n",
        (HEARD, "-k", "silence and asyncio"),
    ),
    Mutant(
        "listening: what follows may be any commit",
        "remote/listening.py",
        "if (commit.lsn, commit.base) != (lsn + 1, lsn) or commit.time <= time:",
        "if commit.lsn <= 0:",
        (HEARD, "-k", "does_not_follow and asyncio"),
    ),
    Mutant(
        "listening: a commit that can't be read is passed over",
        "remote/listening.py",
        "self._waiting[-1])\n        self._waiting.pop()\n        return Commit(",
        "self._waiting.pop())\n        return Commit(",
        (HEARD, "-k", "does_not_follow and asyncio"),
    ),
    Mutant(
        "listening: another commit under the LSN that was told last is none",
        "remote/listening.py",
        "if self._time and head.after_time and head.after_time != self._time:",
        "if False:",
        (HEARD, "-k", "another_commit and asyncio"),
    ),
    Mutant(
        "listening: a part of a large read takes one page too many from the next",
        "remote/listening.py",
        "PageSet(islice(ordered, most))",
        "PageSet(page for page, _ in zip(ordered, range(most)))",
        (HEARD, "-k", "in_parts and asyncio"),
    ),
    Mutant(
        "wait: commits that are forgotten are told",
        "server/node.py",
        "        await self.retention.check_all(volume, after + 1, to)\n        commits = ",
        "        commits = ",
        (MACHINE,),
    ),
    Mutant(
        "wait: a fork's first time is that of its birth",
        "server/metastore/lineage.py",
        "    if lsn <= volume.history.start:\n        return 0\n",
        "    if lsn <= volume.history.start:\n        return volume.birth.time\n",
        (HEARD, "-k", "fork and asyncio"),
    ),
    Mutant(
        "wait: a commit's floor is not told",
        "server/metastore/lineage.py",
        "floor=landed.floor,",
        "floor=landed.length,",
        (MACHINE,),
    ),
    Mutant(
        "wait: everybody looks at the log",
        "server/metastore/polling.py",
        "        if watch is None:\n",
        "        if True:\n",
        (WAITERS, "-k", "one_looks"),
    ),
    Mutant(
        "wait: the last who waited leaves the looking on",
        "server/metastore/polling.py",
        "                    del self._watches[log]\n",
        "                    pass\n",
        (WAITERS, "-k", "hold_no_thread"),
    ),
    Mutant(
        "wait: any number may",
        "server/http/app.py",
        "if self.polls >= self.most_polls:",
        "if False:",
        (WAITERS, "-k", "beyond_its_limit"),
    ),
    Mutant(
        "wait: connections take all the files there are",
        "server/http/run_node.py",
        "return max(16, min(CONNECTIONS, (soft - OTHER_FILES) // files_of_a_call))",
        "return CONNECTIONS",
        (WAITERS, "-k", "leave_files"),
    ),
)
