"""Mutants of the ways from Python: dbapi, Django, an event loop."""

from __future__ import annotations

from typing import Final

from .mutant import Mutant

AIO: Final = "tests/integration/test_aio.py"
DJANGO: Final = "tests/integration/test_django.py"
SYSTEMS: Final = "tests/unit/test_vfs_systems.py"

MUTANTS: Final = (
    Mutant(
        "a cancelled statement goes on until somebody looks",
        "vfs/aio.py",
        "_STEPS: Final = 2_000\n",
        "_STEPS: Final = 200_000\n",
        (AIO, "-k", "cancelled_query"),
    ),
    Mutant(
        "what follows in a transaction that SQLite rolled back is done by itself",
        "vfs/aio.py",
        "if within and not raw.in_transaction:",
        "if within and raw is None:",
        (AIO, "-k", "does_nothing_more"),
    ),
    Mutant(
        "a transaction that SQLite rolled back refuses other tasks' statements, too",
        "vfs/aio.py",
        "within = self._depth > 0 and self._transaction in _TRANSACTIONS.get()",
        "within = self._depth > 0",
        (AIO, "-k", "no_others"),
    ),
    Mutant(
        "what a transaction within another did is taken back though it never began",
        "vfs/aio.py",
        "            if has_begun and raw.in_transaction:\n",
        "            if raw.in_transaction:\n",
        (AIO, "-k", "at_any_step"),
    ),
    Mutant(
        "the rest of a result whose fetch was cut off is given as all of it",
        "vfs/aio.py",
        "                self._cut = True\n",
        "",
        (AIO, "-k", "cancelled_query"),
    ),
    Mutant(
        "transactions of several tasks run into each other",
        "vfs/aio.py",
        "        async with self._turn:\n            self._owner,",
        "        async with anyio.Lock():\n            self._owner,",
        (AIO, "-k", "another_task"),
    ),
    Mutant(
        "work given to the process's loop runs in trio's context",
        "remote/loop.py",
        "        context.run(said.set, None)\n",
        "        pass\n",
        (AIO, "-k", "waited_for_and_pulled"),
    ),
    Mutant(
        "Django's tests run in the real home",
        "vfs/django/creation.py",
        '{**options, "home": f"{home}{_SUFFIX}", "remote": ""}',
        '{**options, "home": str(home)}',
        (DJANGO, "-k", "orm_s_tests"),
    ),
    Mutant(
        "Django's cursor loses Budwood's errors",
        "vfs/django/base.py",
        "return self.connection.cursor(factory=Cursor)",
        "return self.connection.cursor(factory=sqlite.SQLiteCursorWrapper)",
        (DJANGO, "-k", "orm_s_tests"),
    ),
    Mutant(
        "systems: those that nobody uses gather",
        "vfs/systems.py",
        "WeakValueDictionary[_Options, VolumeVFS] = WeakValueDictionary()\n",
        "dict[_Options, VolumeVFS] = {}\n",
        (SYSTEMS, "-k", "gather"),
    ),
)
