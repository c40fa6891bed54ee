"""Mutants of scrub: what is wrong and isn't told, what is told and isn't wrong."""

from __future__ import annotations

from typing import Final

from .mutant import Mutant

SCRUB: Final = "tests/integration/test_scrub.py"
EXACT: Final = (SCRUB, "-k", "lsns_of_a_damaged_page")
LIES: Final = (SCRUB, "-k", "lies_about_its_pages")
LOST: Final = (SCRUB, "-k", "entries and hides_nothing")
RESUMED: Final = (SCRUB, "-k", "goes_on_at_a_slot")
ACCESS: Final = "tests/integration/test_scrub_access.py"
COLLECTED: Final = "tests/integration/test_scrub_collected.py"
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
        "                if lsn < first:\n",
        "                if lsn >= 0:\n",
        EXACT,
    ),
    Mutant(
        "scrub: what is damaged is spoilt for ever",
        "server/upkeep/reach.py",
        "            last = await loading(partial(_last, still, await _readable(volume, first)))\n",
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
        "server/upkeep/scrub.py",
        "        if part.outline is None and blind:\n",
        "        if part.outline is not None and blind:\n",
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
        "scrub: a damaged rollup stops whoever goes on by it",
        "server/upkeep/stream_states.py",
        "            # A node of the rollup can't be read, which whoever looks at that says.\n",
        "            raise\n",
        (SCRUB, "-k", "goes_on_by"),
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
        "            if boundary - 1 <= slot_of_rollup(name) < limit:\n"
        "                try:\n"
        "                    rollup = await self._rollups.read(name)\n"
        "                except (Corrupt, Unsupported):\n"
        "                    continue\n"
        "                if slot_of_rollup(name) < first:\n",
        "            if boundary - 1 <= slot_of_rollup(name) <= limit:\n"
        "                try:\n"
        "                    rollup = await self._rollups.read(name)\n"
        "                except (Corrupt, Unsupported):\n"
        "                    continue\n"
        "                if slot_of_rollup(name) <= first:\n",
        RESUMED,
    ),
    Mutant(
        "scrub: what a later fork shares of a damaged commit isn't told",
        "server/upkeep/reach.py",
        "                if lsn < first:\n",
        "                if not first <= lsn <= last:\n",
        LOST,
    ),
    Mutant(
        "scrub: forks that can't be read hold nothing",
        "server/upkeep/rollup_check.py",
        "            wrong.spoils += await self._reach.below_since(stream)\n",
        "            pass\n",
        (SCRUB, "-k", "nodes and hides_nothing"),
    ),
    Mutant(
        "scrub: the damage of a node is told of the rollup, too",
        "server/upkeep/rollup_check.py",
        "if not isinstance(error, Corrupt) or error.key not in told_of_nodes:",
        "if True:",
        (SCRUB, "-k", "nodes and hides_nothing"),
    ),
    Mutant(
        "scrub: a birth of which the rollup alone tells isn't missed",
        "server/upkeep/covered_scrub.py",
        "                    await self._birth(str(vid))\n",
        "",
        (COLLECTED, "-k", "birth_that_is_lost"),
    ),
    Mutant(
        "scrub: the birth of a volume that was removed is missed",
        "server/upkeep/covered_scrub.py",
        "if state is not None and not state.finished and state.stays[-1].closed is None:",
        "if state is not None and state.stays[-1].closed is None:",
        ("tests/integration/test_removal.py",),
    ),
    Mutant(
        "scrub: a pin's revision 0 isn't missed",
        "server/upkeep/volume_scrub.py",
        "        if chain is None or chain.begins or not chain.holds:\n",
        "        if True:\n",
        (SCRUB, "-k", "revision_of_a_pin"),
    ),
    Mutant(
        "scrub: a stream may go on otherwise than it was closed",
        "server/upkeep/moves.py",
        "        elif opened[0] != state:\n",
        "        elif not opened[0]:\n",
        (SCRUB, "-k", "otherwise_than_it_was_closed"),
    ),
    Mutant(
        "scrub: pages that a checkpoint has lost spoil nothing",
        "server/upkeep/fold_scrub.py",
        "            if bad:\n",
        "            if not pages:\n",
        (COLLECTED, "-k", "one_damaged and segments and done"),
    ),
    Mutant(
        "scrub: a deadlist isn't missed",
        "server/upkeep/fold_scrub.py",
        '            raise Corrupt(key, "it is missing, and nothing of it was collected")\n',
        "            return None\n",
        (COLLECTED, "-k", "one_damaged and deadlists and missing"),
    ),
    Mutant(
        "scrub: a node of a checkpoint spoils nothing",
        "server/upkeep/fold_scrub.py",
        "            self._findings.tell(Wrong(hidden.key, [hidden.problem], spans))\n",
        "            self._findings.tell(Wrong(hidden.key, [hidden.problem]))\n",
        (COLLECTED, "-k", "one_damaged and checkpoint"),
    ),
    Mutant(
        "scrub: entries that the oldest rollup covers aren't looked at",
        "server/upkeep/covered_scrub.py",
        "        for start in range(slots.start, slots.stop, AT_ONCE):\n",
        "        for start in range(slots.stop, slots.start, AT_ONCE):\n",
        (COLLECTED, "-k", "one_damaged and entries and (waiting or half)"),
    ),
    Mutant(
        "scrub: fragments whose entries are gone aren't looked at",
        "server/upkeep/covered_scrub.py",
        "            if rolled.slot < boundary and not is_moved:\n",
        "            if rolled.slot < 0:\n",
        (COLLECTED, "-k", "whose_entry_is_gone"),
    ),
    Mutant(
        "scrub: a rollup that a plan took out is missed",
        "server/upkeep/log_outline.py",
        "        if self._collected:\n            await self._find_oldest()\n",
        "        if self._collected:\n",
        (COLLECTED, "-k", "whole"),
    ),
    Mutant(
        "scrub: a boundary isn't missed",
        "server/upkeep/log_outline.py",
        "            if not self._boundary and lowest > first + 1:\n",
        "            if self._boundary and lowest > first + 1:\n",
        (COLLECTED, "-k", "one_damaged and boundary and missing"),
    ),
    Mutant(
        "scrub: a plan that can't be read is passed over",
        "server/upkeep/plan_scrub.py",
        "            findings.tell(Wrong(key, [words_of(key, error)]))\n",
        "            continue\n",
        (COLLECTED, "-k", "one_damaged and plans"),
    ),
    Mutant(
        "scrub: an organisation that is lost isn't missed",
        "server/upkeep/access_check.py",
        "    for key in sorted(named - stand):\n",
        "    for key in sorted(stand - stand):\n",
        (ACCESS, "-k", "that_is_lost"),
    ),
    Mutant(
        "scrub: damage of keys and organisations isn't told",
        "server/upkeep/access_check.py",
        "        if isinstance(found, Corrupt | Unsupported):\n            prefix",
        "        if isinstance(found, Unsupported):\n            prefix",
        (ACCESS, "-k", "is_damaged"),
    ),
)
