"""Mutants of upkeep in parts, on Spark or elsewhere: a part that nobody has, an answer that is taken amiss."""

from __future__ import annotations

from typing import Final

from .mutant import Mutant

SPREAD: Final = "tests/integration/test_spread_scrub.py"
SPARK: Final = "tests/integration/test_spark_upkeep.py"

MUTANTS: Final = (
    Mutant(
        "spread: volumes behind the first few are in no part",
        "server/upkeep/scrub.py",
        "    for first in range(0, len(vids), VOLUMES):\n",
        "    for first in range(0, min(len(vids), VOLUMES), VOLUMES):\n",
        (SPREAD, "-k", "store_that_is_whole"),
    ),
    Mutant(
        "spread: the last slots of a log are in no part",
        "server/upkeep/scrub.py",
        "        ends = [*(slot_of_rollup(name) + 1 for name in names), None]\n",
        "        ends: list[int | None] = [slot_of_rollup(name) + 1 for name in names] or [None]\n",
        (SPREAD, "-k", "every_slot"),
    ),
    Mutant(
        "spread: a slot between two parts is in neither",
        "server/upkeep/log_scrub.py",
        "        slot, last = self._chain.next, self._outline.newest if end is None else end - 1\n",
        "        slot, last = self._chain.next, self._outline.newest if end is None else end - 2\n",
        (SPREAD, "-k", "store_that_is_whole"),
    ),
    Mutant(
        "spread: entries that a rollup covers are in no part",
        "server/upkeep/scrub.py",
        "        for piece in pieces[1:]:\n",
        "        for piece in pieces[2:]:\n",
        (SPREAD, "-k", "every_covered_entry"),
    ),
    Mutant(
        "spread: nodes that nothing leads to are in no part",
        "server/upkeep/spread_scrub.py",
        "        if ended is not None and ended.outline is not None and blind:\n",
        "        if ended is not None and ended.outline is None and blind:\n",
        (SPREAD, "-k", "leads_to_another"),
    ),
    Mutant(
        "spread: a part behind a wrong rollup is believed",
        "server/upkeep/spread_scrub.py",
        "        if part.behind == self._base and not isinstance(answer, Corrupt | Unsupported):\n",
        "        if not isinstance(answer, Corrupt | Unsupported):\n",
        (SPREAD, "-k", "says_otherwise"),
    ),
    Mutant(
        "spread: a guess at what counts is believed",
        "server/upkeep/spread_scrub.py",
        "        if walked.link != self._link and not (walked.whole and self._link is None):\n",
        "        if walked.link is None:\n",
        (SPREAD, "-k", "guess"),
    ),
    Mutant(
        "spread: the findings of the last wave are lost",
        "server/upkeep/spread_scrub.py",
        "        await self._do(wave)\n        await self._end_log(None)\n",
        "        await self._end_log(None)\n",
        (SPREAD, "-k", "behind_rollups"),
    ),
    Mutant(
        "spread: an object is told once for each part that met it",
        "server/upkeep/findings.py",
        "        if finding.key not in self._keys:\n",
        "        if finding:\n",
        (SPREAD, "-k", "one_damaged_object and epochs"),
    ),
    Mutant(
        "spread: moves whose sides two parts met are never compared",
        "server/upkeep/moves.py",
        "            elif before != state:\n",
        "            elif not before:\n",
        (SPREAD, "-k", "closed_otherwise"),
    ),
    Mutant(
        "spread: a part that failed counts as done",
        "server/upkeep/spread_scrub.py",
        "    if isinstance(answer, BudwoodError):\n        raise answer\n    return answer\n",
        "    return Outcome(()) if isinstance(answer, BudwoodError) else answer\n",
        (SPREAD, "-k", "no_answer"),
    ),
    Mutant(
        "spread: a part of a plan is verified by nobody",
        "server/upkeep/plan_parts.py",
        "    for first in range(0, len(whole), size):\n",
        "    for first in range(0, len(whole) - size + 1, size):\n",
        (SPARK, "-k", "all_of_it"),
    ),
    Mutant(
        "spread: one word against a part of a plan is not heard",
        "spark_export/upkeep/garbage.py",
        "            if answer is not None:\n                raise answer\n",
        "            if answer is None:\n                return\n",
        (SPARK, "-k", "one_word"),
    ),
    Mutant(
        "spread: a large plan is acknowledged unverified",
        "spark_export/upkeep/tasks.py",
        "            raise LargePlan(log)\n",
        "            return\n",
        (SPARK, "-k", "waits_its_interval"),
    ),
)
