"""Mutants of scrub: what is wrong and isn't told, what is told and isn't wrong."""

from __future__ import annotations

from typing import Final

from .mutant import Mutant

SCRUB: Final = "tests/integration/test_scrub.py"
EXACT: Final = (SCRUB, "-k", "lsns_of_a_damaged_page")
LIES: Final = (SCRUB, "-k", "lies_about_its_pages")
LOST: Final = (SCRUB, "-k", "entries and missing")
RESUMED: Final = (SCRUB, "-k", "goes_on_at_a_slot")
DIFFERENCE: Final = ("tests/unit/test_tree_diff.py",)

MUTANTS: Final = (
    Mutant(
        "scrub: a commit's sums are taken at its word",
        "server/upkeep/commit_check.py",
        "    if not checked.bad and (content.digest, setsum.digest) != (commit.content, commit.setsum):\n",
        "    if not checked.bad and setsum.digest != commit.setsum:\n",
        LIES,
    ),
    Mutant(
        "scrub: a commit's token is taken at its word",
        "server/upkeep/commit_check.py",
        "        if token != commit.token:\n",
        "        if not token:\n",
        LIES,
    ),
    Mutant(
        "scrub: what is damaged spoils no fork",
        "server/upkeep/reach.py",
        "                if not first <= lsn <= last:\n",
        "                if lsn >= 0:\n",
        EXACT,
    ),
    Mutant(
        "scrub: what is damaged is spoilt for ever",
        "server/upkeep/reach.py",
        "            last = await loading(partial(_last, still, first, volume.state.head))\n",
        "            last = volume.state.head\n",
        EXACT,
    ),
    Mutant(
        "scrub: the same node made twice is taken for one object",
        "server/upkeep/tree_diff.py",
        "        return self.pointer.number, self.pointer.digest\n",
        "        return 0, self.pointer.digest\n",
        DIFFERENCE,
    ),
    Mutant(
        "scrub: a lost node hides nothing",
        "server/upkeep/tree_diff.py",
        "                if not self.found.hides(old[0]):\n",
        "                if old:\n",
        DIFFERENCE,
    ),
    Mutant(
        "scrub: a rollup's items aren't compared with its log",
        "server/upkeep/rollup_check.py",
        "            if not same:\n",
        "            if told is None:\n",
        (SCRUB, "-k", "says_otherwise"),
    ),
    Mutant(
        "scrub: where a rollup says that its log stands isn't looked at",
        "server/upkeep/rollup_check.py",
        "        if behind.known and stands != behind.chain:\n",
        "        if behind.known and stands.total != behind.chain.total:\n",
        (SCRUB, "-k", "another_slot"),
    ),
    Mutant(
        "scrub: nodes that only damaged ones lead to are passed over",
        "server/upkeep/log_scrub.py",
        "        if self._rollups.blind:\n",
        "        if not self._listed:\n",
        (SCRUB, "-k", "leads_to_another"),
    ),
    Mutant(
        "scrub: an entry that is missing ends its log",
        "server/upkeep/log_scrub.py",
        "                    return parse_entry(entry_key(self.log, slot), data).header.acked >= missing\n",
        "                    return False\n",
        (SCRUB, "-k", "without_a_rollup"),
    ),
    Mutant(
        "scrub: the chain behind a lost entry is told broken",
        "server/upkeep/log_scrub.py",
        "        chain = self._chain if not self._lost else _resumed(self._chain, entry, self._lost)\n",
        "        chain = self._chain\n",
        LOST,
    ),
    Mutant(
        "scrub: a stream behind a lost entry is told broken",
        "server/upkeep/log_scrub.py",
        "        self._known, self.states.adrift = False, True\n",
        "        self._known = False\n",
        LOST,
    ),
    Mutant(
        "scrub: one that goes on forgets what came before its position",
        "server/upkeep/log_scrub.py",
        "            if slot_of_rollup(name) < first:\n",
        "            if slot_of_rollup(name) <= first:\n",
        RESUMED,
    ),
    Mutant(
        "scrub: a revision that is missing from a pin's chain isn't missed",
        "server/upkeep/volume_scrub.py",
        "        for lost in range(self._rev - 1, rev, -1):\n",
        "        for lost in range(self._rev - 1, self._rev - 1, -1):\n",
        (SCRUB, "-k", "pins and missing"),
    ),
    Mutant(
        "scrub: a stream may go on otherwise than it was closed",
        "server/upkeep/moves.py",
        "        elif opened[0] != state:\n",
        "        elif not opened[0]:\n",
        (SCRUB, "-k", "otherwise_than_it_was_closed"),
    ),
)
