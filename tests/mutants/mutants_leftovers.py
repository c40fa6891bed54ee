"""Mutants of leftovers: fragments that nobody named, and what pins have been (docs/design/0088-leftovers.md)."""

from __future__ import annotations

from typing import Final

from .mutant import Mutant

LEFTOVERS: Final = "tests/integration/test_leftovers.py"
SLEEPERS: Final = "tests/property/test_spent_pins_machine.py"

MUTANTS: Final = (
    Mutant(
        "leftovers: a young fragment that nobody named is taken out",
        "server/upkeep/unnamed.py",
        "taken, looked_at = _Taken(max(now_ms - OLD_MS, said)), 0",
        "taken, looked_at = _Taken(max(now_ms, said)), 0",
        (LEFTOVERS, "-k", "young_fragment"),
    ),
    Mutant(
        "leftovers: the verifier lets a young fragment go",
        "server/upkeep/left_check.py",
        "if plan.fragments_since and not said < plan.fragments_since <= plan.time - OLD_MS:",
        "if plan.fragments_since and not said < plan.fragments_since:",
        (LEFTOVERS, "-k", "refused and young"),
    ),
    Mutant(
        "leftovers: a fragment that was named is taken out",
        "server/upkeep/unnamed.py",
        "        keys.difference_update([location.object for location in landed.locations])\n",
        "        del landed\n",
        (LEFTOVERS, "-k", "cut_off_goes_and_what_was_named"),
    ),
    Mutant(
        "leftovers: the verifier lets a fragment go that was named",
        "server/upkeep/garbage_check.py",
        "        if named := await self._named(plan):\n",
        "        if False and (named := await self._named(plan)):\n",
        (LEFTOVERS, "-k", "refused and named"),
    ),
    Mutant(
        "leftovers: a fragment is taken out that an entry named before the plan was acknowledged",
        "server/upkeep/collector.py",
        "            plan = await check.without_named(plan)\n",
        "",
        (LEFTOVERS, "-k", "keeps_it"),
    ),
    Mutant(
        "leftovers: what is on a deadlist is taken out before its time",
        "server/upkeep/left_check.py",
        "            for key in deadlist.objects:\n                yield key\n",
        "",
        (LEFTOVERS, "-k", "keeps_it"),
    ),
    Mutant(
        "leftovers: what is on a deadlist is taken for what nobody named",
        "server/upkeep/unnamed.py",
        "            keys.difference_update(deadlist.objects)\n",
        "",
        (LEFTOVERS, "-k", "left_to_its_deadlist"),
    ),
    Mutant(
        "leftovers: a commit names what a plan takes out",
        "server/metastore/admission.py",
        "        if oldest is not None and oldest < fragments_since():\n",
        "        if False:\n",
        (LEFTOVERS, "-k", "who_slept_and_names_it"),
    ),
    Mutant(
        "leftovers: a rollup forgets what its log says of fragments",
        "server/log/chain.py",
        "            fragments_since=rollup.fragments_since,\n",
        "",
        (LEFTOVERS, "-k", "known_behind_its_rollup"),
    ),
    Mutant(
        "leftovers: the clock of a client decides",
        "server/pagestore/ingest.py",
        "        checked = await self._vouched(target, checked)\n",
        "",
        (LEFTOVERS, "-k", "clock_of_a_client"),
    ),
    Mutant(
        "leftovers: a live pin's newest revision is taken out",
        "server/upkeep/spent_pins.py",
        "            found.append(PlannedPin(vid=vid.raw, pin=chain.pin.raw, upto=chain.newest - 1))\n",
        "            found.append(PlannedPin(vid=vid.raw, pin=chain.pin.raw, upto=chain.newest))\n",
        (LEFTOVERS, "-k", "leaves_two_revisions"),
    ),
    Mutant(
        "leftovers: the verifier lets a live pin's newest revision go",
        "server/upkeep/left_check.py",
        "            elif not planned.ended and (newest <= planned.upto or not begins):\n",
        "            elif not planned.ended and not begins:\n",
        (LEFTOVERS, "-k", "how_a_pin_stands and newest"),
    ),
    Mutant(
        "leftovers: the newest pin of a label is taken out",
        "server/upkeep/left_check.py",
        "        if stands.label and not await self._is_followed(vid, pin, stands.label):\n",
        "        if False:\n",
        (LEFTOVERS, "-k", "how_a_pin_stands and label"),
    ),
    Mutant(
        "leftovers: a label that has moved is taken from its beginning",
        "volume/pins.py",
        "    return itertools.islice(ids_of_label(vid, label), newest, None)\n",
        "    return ids_of_label(vid, label)\n",
        (LEFTOVERS, "-k", "label_that_moves"),
    ),
    Mutant(
        "leftovers: what somebody asked for anew who had slept is confirmed",
        "server/metastore/retention.py",
        "        if await self.pins.ended(own.vid, stands.pin_id) is not None:\n",
        "        if False:\n",
        (LEFTOVERS, "-k", "died_is_not_confirmed"),
    ),
    Mutant(
        "leftovers: a pin counts that was made anew by somebody who slept",
        "server/metastore/pin_store.py",
        "        return [tip for chain, tip in tips.items() if chain in begun]\n",
        "        return list(tips.values())\n",
        (SLEEPERS,),
    ),
    Mutant(
        "leftovers: who slept believes in a revision that was made anew",
        "server/metastore/pin_store.py",
        "        if seen is None or seen.rev != pin.rev - 1 or self._is_old(seen.at):\n",
        "        if False:\n",
        (SLEEPERS,),
    ),
    Mutant(
        "leftovers: how a pin has ended is not kept",
        "server/upkeep/collector.py",
        "        await create_settled(self.logs.store, ended_key(vid, pin), seal_pin(stands), self.logs.patience)\n",
        "",
        (SLEEPERS,),
    ),
)
