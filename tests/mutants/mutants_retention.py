"""Mutants of retention policies: what is kept, in which order, and where the policy stands."""

from __future__ import annotations

from typing import Final

from .mutant import Mutant

SCHEDULE: Final = ("tests/property/test_retention_schedule.py",)
KEPT: Final = "tests/integration/test_retention_policies.py"
KILLED: Final = "tests/fault/test_retainer_killed.py"

MUTANTS: Final = (
    Mutant(
        "retention: since moves before the pins stand",
        "server/upkeep/retainer.py",
        """            held += await self._hold(volume, due.holds)
            _HELD()
            since = await self._retention.forget_by_policy(vid, due.since, own)
            _MOVED()
""",
        """            since = await self._retention.forget_by_policy(vid, due.since, own)
            _MOVED()
            held += await self._hold(volume, due.holds)
            _HELD()
""",
        (KILLED, "-k", "pins_made or asked"),
    ),
    Mutant(
        "retention: an LSN is held for the first hour that it stands for, not for the last",
        "server/upkeep/retention_schedule.py",
        "        last = (followed - 1) // period * period\n",
        "        last = at\n",
        SCHEDULE,
    ),
    Mutant(
        "retention: a commit at a full hour isn't the one that stands for it",
        "server/upkeep/retention_schedule.py",
        "        last = (followed - 1) // period * period\n",
        "        last = followed // period * period\n",
        SCHEDULE,
    ),
    Mutant(
        "retention: the newest of an hour is looked for among all LSNs",
        "server/upkeep/retention_schedule.py",
        "    while end <= high and time_of(end) <= ms:\n",
        "    while end <= high and time_of(end) <= ms and low < 0:\n",
        SCHEDULE,
    ),
    Mutant(
        "retention: what is held hangs on when somebody looked",
        "server/upkeep/retention_schedule.py",
        "        yield Hold(lsn, kind, last, kept_until(policy, kind, last))\n",
        "        yield Hold(lsn, kind, last, kept_until(policy, kind, now_ms))\n",
        SCHEDULE,
    ),
    Mutant(
        "retention: a pin that was cut off is never made again",
        "server/metastore/retention.py",
        "            if stands.state is not PinState.EXPIRED:\n",
        "            if stands.state is not PinState.ASKED:\n",
        (KEPT, "-k", "cut_off and asyncio"),
    ),
    Mutant(
        "retention: a policy is enforced that was replaced meanwhile",
        "server/metastore/admission.py",
        "        return forget(state, now_ms) if state.policy == policy else AlreadyStands(state.since)\n",
        "        return forget(state, now_ms)\n",
        (KEPT, "-k", "meanwhile and asyncio"),
    ),
    Mutant(
        "retention: a policy stays behind when the volume moves",
        "server/metastore/admission.py",
        "        make = Open if state.policy is None else partial(OpenRetained, policy=state.policy)\n",
        "        make = Open\n",
        (KEPT, "-k", "moves and asyncio"),
    ),
    Mutant(
        "retention: a rollup leaves the policy out",
        "server/metastore/rollup_builder.py",
        "        policy=state.policy,\n",
        "",
        (KEPT, "-k", "moves and asyncio"),
    ),
    Mutant(
        "retention: a rollup doesn't say that it has one",
        "volume/rollup.py",
        "        (rollup.policies, POLICIES),\n",
        "",
        (KEPT, "-k", "moves and asyncio"),
    ),
    Mutant(
        "retention: the store's default goes before a volume's own policy",
        "server/upkeep/retainer.py",
        "        policy = await (default or self.default)() if own is None else own\n",
        "        policy = await (default or self.default)() or own\n",
        (KEPT, "-k", "store_s and asyncio"),
    ),
    Mutant(
        "retention: a label that stands is given again",
        "server/metastore/retention.py",
        "        if not wanted.is_what(stands) and (stands.holds or not wanted.label):\n",
        "        if not wanted.is_what(stands) and not wanted.label:\n",
        (KEPT, "-k", "label_stands and asyncio"),
    ),
    Mutant(
        "retention: pins end as the policy before said",
        "server/upkeep/retainer.py",
        "        await self._extend(volume, policy)\n",
        "",
        (KEPT, "-k", "sooner_or_later and asyncio"),
    ),
    Mutant(
        "retention: a time behind a fold is found by no pin",
        "server/node.py",
        "            return await self.retention.kept_at(volume, at_ms)\n",
        "            raise\n",
        (KEPT, "-k", "behind_a_fold and asyncio"),
    ),
)
