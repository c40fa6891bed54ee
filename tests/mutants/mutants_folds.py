"""Mutants of folds: what a checkpoint keeps, what it says of it, and which one is granted."""

from __future__ import annotations

from typing import Final

from .mutant import Mutant

FOLDS: Final = "tests/integration/test_folds.py"
RELOCATIONS: Final = "tests/integration/test_relocations.py"
MACHINE: Final = ("tests/property/test_fold_machine.py",)

MUTANTS: Final = (
    Mutant(
        "folds: what became of a commit is known until it is folded",
        "server/metastore/lineage.py",
        "    if newest is not None:\n        return newest\n",
        "",
        ("tests/integration/test_folds.py", "-k", "told_so and asyncio"),
    ),
    Mutant(
        "folds: one that began with another checkpoint is granted",
        "server/metastore/state.py",
        'if record.base != (stands.checkpoint if stands else ""):',
        'if record.base == "never":',
        ("tests/unit/test_state.py", "-k", "checkpoint_that_stands"),
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
    Mutant(
        "relocations: pages are taken for another commit's",
        "volume/checkpoint.py",
        "        return commits.rank(place) - 1 if place in commits else None\n",
        "        return 0 if place in commits else None\n",
        MACHINE,
    ),
    Mutant(
        "relocations: a log is held back all the same",
        "server/upkeep/garbage_plan.py",
        "            return settled_by(stay.fold)\n",
        "            return stay.fold.lsn if stay.fold else 0\n",
        (RELOCATIONS, "-k", "entries_go and asyncio"),
    ),
    Mutant(
        "relocations: pages are looked for in entries that are gone",
        "server/metastore/history.py",
        "    return landed if folding is None or landed.lsn > folding.settled_to else folding.settled(landed)\n",
        "    return landed\n",
        (RELOCATIONS, "-k", "entries_go and asyncio"),
    ),
    Mutant(
        "relocations: what is of use yet goes with what was forgotten",
        "server/upkeep/relocation.py",
        "            if last > folded_to:\n",
        "            if relocated.after >= folded_to:\n",
        (RELOCATIONS, "-k", "forgotten_of_it and asyncio"),
    ),
    Mutant(
        "relocations: the next fold forgets them",
        "server/metastore/state.py",
        "    if not settled_by(stands) <= settled_by(record) <= state.head:\n",
        "    if not settled_by(record) <= state.head:\n",
        ("tests/unit/test_state.py",),
    ),
    Mutant(
        "relocations: another log's `open` leaves them out",
        "server/metastore/admission.py",
        "    if isinstance(state.fold, FoldRelocating):\n",
        "    if not state.fold:\n",
        (RELOCATIONS, "-k", "another_log and asyncio"),
    ),
    Mutant(
        "relocations: a commit isn't compared with its sum",
        "server/upkeep/relocation.py",
        "if row.setsum is not None and sum(total, Setsum()).digest != row.setsum:",
        "if row.setsum is None:",
        (RELOCATIONS, "-k", "admitted and asyncio"),
    ),
    Mutant(
        "relocations: a page isn't compared with its item hash",
        "server/upkeep/relocation.py",
        "            if item_hash(page, page_bytes) != hashes[HASH_SIZE * at : HASH_SIZE * (at + 1)]:\n",
        "            if not item_hash(page, page_bytes):\n",
        (RELOCATIONS, "-k", "its_hash and asyncio"),
    ),
    Mutant(
        "relocations: small segments are never put together",
        "server/upkeep/relocation.py",
        "    return count <= len(rows) and 2 * count <= MOST_ROWS and 2 * before.size <= SEGMENT_BYTES\n",
        "    return count < 0\n",
        (RELOCATIONS, "-k", "binary_digits and asyncio"),
    ),
    Mutant(
        "folds: one transaction copies whatever there is",
        "server/upkeep/fold.py",
        "                if size > self._left and",
        "                if size < 0 and",
        (RELOCATIONS, "-k", "so_much and asyncio"),
    ),
    Mutant(
        "upkeep: who holds a log back is left alone",
        "server/upkeep/upkeep.py",
        "        known.changed.update(self._laggards(log, progress.holds))\n",
        "",
        ("tests/integration/test_upkeep.py", "-k", "forgets_nothing_holds"),
    ),
    Mutant(
        "a volume that has ended takes the place of the one that is opened for it",
        "server/metastore/open_volumes.py",
        "        if volume.ended:\n            # Meanwhile",
        "        if volume.ended and volume.attached:\n            # Meanwhile",
        ("tests/integration/test_streams_stop.py", "-k", "nobody_s_place and asyncio"),
    ),
)
