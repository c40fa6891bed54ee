"""Mutants of modes and bindings: who may commit, and what comes once."""

from __future__ import annotations

from typing import Final

from .mutant import Mutant

MODES: Final = "tests/integration/test_modes.py"
CLIENTS: Final = "tests/integration/test_modes_clients.py"

MUTANTS: Final = (
    Mutant(
        "modes: an older writer epoch commits",
        "server/metastore/state.py",
        "    if rules.mode == EXCLUSIVE and record.writer_epoch != rules.writer_epoch:\n",
        "    if rules.mode == EXCLUSIVE and record.writer_epoch > rules.writer_epoch:\n",
        (MODES, "-k", "older_writer and asyncio"),
    ),
    Mutant(
        "modes: a source goes back",
        "server/metastore/state.py",
        "    refused = _backwards(state, offsets)\n",
        "    refused = _backwards(state, ())\n",
        (MODES, "-k", "never_goes_back and asyncio"),
    ),
    Mutant(
        "modes: replicas conflict",
        "server/metastore/admission.py",
        "    if state.ruled.mode != REPLICATED or not history.folded_to < lsn <= history.head:\n",
        "    if state.ruled.mode != REPLICATED or not history.folded_to < lsn < history.head:\n",
        (MODES, "-k", "replicas_at_once and asyncio"),
    ),
    Mutant(
        "modes: a replica's floor and length don't matter",
        "server/metastore/admission.py",
        "    if (stands.floor, stands.length, stands.content) != (request.floor, request.length, request.content):\n",
        "    if stands.content != request.content:\n",
        (MODES, "-k", "told_of_it and asyncio"),
    ),
    Mutant(
        "modes: the same offset again is a conflict",
        "server/metastore/admission.py",
        "        stands = same_content(volume, state, request) or bound_before(volume, state, request.sources)\n",
        "        stands = same_content(volume, state, request)\n",
        (MODES, "-k", "changes_nothing and asyncio"),
    ),
    Mutant(
        "modes: rules stay behind when the volume moves",
        "server/metastore/admission.py",
        "    if state.rules is not None:\n",
        "    if state.rules is not None and state.policy is None:\n",
        (MODES, "-k", "rollups_and and asyncio"),
    ),
    Mutant(
        "modes: a rollup leaves the rules out",
        "server/metastore/rollup_builder.py",
        "        rules=state.rules,\n",
        "",
        (MODES, "-k", "behind_a_rollup and asyncio"),
    ),
    Mutant(
        "modes: a rollup doesn't say that it has rules",
        "volume/rollup.py",
        "        (rollup.rules, RULES),\n",
        "",
        (MODES, "-k", "rollups_and and asyncio"),
    ),
    Mutant(
        "modes: a lite client takes what another brought for its own",
        "lite/transaction.py",
        "            if committed.repeated:\n",
        "            if committed.repeated and committed.lsn > self._over.view.lsn:\n",
        (CLIENTS, "-k", "binds_what_it_brings"),
    ),
    Mutant(
        "modes: a push doesn't say its writer epoch",
        "sync/push.py",
        "            writer_epoch=record.writer_epoch,\n",
        "",
        (CLIENTS, "-k", "last_writes_it"),
    ),
)
