"""Mutants of folds: what a checkpoint keeps, what it says of it, and which one is granted."""

from __future__ import annotations

from typing import Final

from .mutant import Mutant

FOLDS: Final = "tests/integration/test_folds.py"
MACHINE: Final = ("tests/property/test_fold_machine.py",)

MUTANTS: Final = (
    Mutant(
        "folds: one that began with another checkpoint is granted",
        "server/metastore/state.py",
        'if record.base != (stands.checkpoint if stands else ""):',
        'if record.base == "never":',
        (FOLDS, "-k", "at_once and asyncio"),
    ),
    Mutant(
        "folds: what a pin or a fork holds is left out",
        "server/upkeep/checkpoint_builder.py",
        "for end in sorted({at for at in held if self._can_end_at(at) and at <= lsn} "
        "| ({lsn} if keeps_end else set())):",
        "for end in [lsn]:",
        MACHINE,
    ),
    Mutant(
        "folds: pages that were cut off come back",
        "server/upkeep/checkpoint_builder.py",
        "                gone = (parts[segment] & pages) | beyond(parts[segment], floor)",
        "                gone = parts[segment] & pages",
        MACHINE,
    ),
    Mutant(
        "folds: two regions have one number",
        "server/upkeep/checkpoint_builder.py",
        "            self._free_number += 1",
        "            self._free_number += 0",
        MACHINE,
    ),
    Mutant(
        "folds: a commit isn't compared with its sum",
        "server/upkeep/checkpoint_builder.py",
        "        if adds.digest != landed.setsum:",
        "        if not adds.digest:",
        (FOLDS, "-k", "not_its_sum and asyncio"),
    ),
    Mutant(
        "folds: segments that nobody reads are kept",
        "server/upkeep/checkpoint_builder.py",
        "            if dead <= MOST_DEAD * pages:",
        "            if dead <= pages:",
        (FOLDS, "-k", "little_is_kept and asyncio"),
    ),
    Mutant(
        "folds: small segments are never put together",
        "server/upkeep/checkpoint_builder.py",
        "            if len(own) > MOST_IN_A_TIER:",
        "            if len(own) > 1000:",
        (FOLDS, "-k", "small_segments and asyncio"),
    ),
    Mutant(
        "folds: a fork is read beyond the floor of a region",
        "server/metastore/folded.py",
        "            zeros.update(cut)\n            wanted.difference_update(cut)",
        "            zeros.update(cut)",
        MACHINE,
    ),
    Mutant(
        "folds: a deadlist names what the checkpoint has pages in",
        "server/upkeep/checkpoint_builder.py",
        "        unused = self._fragments - live",
        "        unused = set(self._fragments)",
        MACHINE,
    ),
    Mutant(
        "folds: a rollup keeps the commits that were folded",
        "server/metastore/rollup_builder.py",
        "        if _folded_to(state) > self._folded_before:",
        "        if _folded_to(state) < 0:",
        MACHINE,
    ),
    Mutant(
        "folds: a rollup doesn't say that it has them",
        "volume/rollup.py",
        "        (rollup.folds, FOLDS),\n",
        "",
        MACHINE,
    ),
)
