"""Mutants of two-phase creates (docs/design/0092-two-phase-cas.md)."""

from __future__ import annotations

from typing import Final

from .mutant import Mutant

TWO_PHASE: Final = "tests/integration/test_two_phase.py"
ENDS: Final = "tests/integration/test_two_phase_ends.py"
STORE: Final = "server/store/two_phase_store.py"
SQL: Final = "server/store/sql_records.py"

MUTANTS: Final = (
    Mutant(
        "two-phase: records consulted late",
        STORE,
        """        # In this order: see above.
        written = await self.records.written(prefix, start=start, limit=limit)
        found = await _visible(self.plain.list, _same, prefix, start, limit)
""",
        """        found = await _visible(self.plain.list, _same, prefix, start, limit)
        written = await self.records.written(prefix, start=start, limit=limit)
""",
        (TWO_PHASE, "-k", "copied_while_it_looks and asyncio and sqlite"),
    ),
    Mutant(
        "two-phase: a missing key is missing, whatever the records say",
        STORE,
        "                if record is None or record.state is State.DELETED:\n",
        "                if record is None or record.state is not State.COMMITTED:\n",
        (TWO_PHASE, "-k", "missing_key_asks and asyncio and sqlite"),
    ),
    Mutant(
        "two-phase: acknowledged before the record",
        STORE,
        """            except BudwoodError as error:
                if getattr(error, "determinate", True):
""",
        """            except BudwoodError as error:
                if isinstance(error, Unavailable):
                    return source
                if getattr(error, "determinate", True):
""",
        (TWO_PHASE, "-k", "records_are_away and asyncio and sqlite"),
    ),
    Mutant(
        "two-phase: what fails behind the record fails the create",
        STORE,
        """        with suppress(BudwoodError):
            await self._copy(key""",
        """        with suppress(NotFound):
            await self._copy(key""",
        (TWO_PHASE, "-k", "durable_at_the_record and asyncio and sqlite"),
    ),
    Mutant(
        "two-phase: a stale record goes too early",
        SQL,
        '"state = 2 AND touched_ms < (SELECT',
        '"state = 2 AND touched_ms <= (SELECT',
        (ENDS, "-k", "no_hand and asyncio and sqlite"),
    ),
    Mutant(
        "two-phase: a deleted key is free while somebody may still write it",
        SQL,
        "AND state = 2 AND hands = 0",
        "AND state = 2",
        (ENDS, "-k", "no_hand and asyncio and sqlite"),
    ),
    Mutant(
        "two-phase: who slept over it copies all the same",
        STORE,
        "return self._boot() - began >= _LATE_SECONDS",
        "return self._boot() - began >= 10 * _LATE_SECONDS",
        (ENDS, "-k", "slept_over_it and asyncio and sqlite"),
    ),
    Mutant(
        "two-phase: a temporary object as old as the floor goes",
        "server/store/two_phase_upkeep.py",
        "named.time_ms >= before_ms",
        "named.time_ms > before_ms",
        (ENDS, "-k", "strictly_behind and asyncio and sqlite"),
    ),
    Mutant(
        "two-phase: what was collected is recorded all the same",
        SQL,
        "            if time_ms < floor_ms:\n",
        "            if time_ms < 0:\n",
        (ENDS, "-k", "too_slow and asyncio and sqlite"),
    ),
    Mutant(
        "two-phase: switched, and records still taken",
        SQL,
        "        if native:\n",
        "        if native and False:\n",
        (ENDS, "-k", "switched_to_native and asyncio and sqlite"),
    ),
    Mutant(
        "two-phase: PostgreSQL lets a create in beside the switch",
        "server/store/postgres_records.py",
        '    for_share = " FOR SHARE"\n',
        '    for_share = ""\n',
        (ENDS, "-k", "in_one_order and asyncio and postgresql"),
    ),
    Mutant(
        "two-phase: any records will do",
        "server/store/two_phase_upkeep.py",
        "if named is None or named.checksum != checksum_of(data):",
        "if named is not None and named.checksum != checksum_of(data):",
        (ENDS, "-k", "with_them_alone and asyncio and sqlite"),
    ),
    Mutant(
        "two-phase: damaged bytes are copied",
        STORE,
        "len(data) != record.size or checksum_of(data) != named.checksum",
        "len(data) != record.size",
        (TWO_PHASE, "-k", "damaged_bytes and asyncio and sqlite"),
    ),
    Mutant(
        "two-phase: any store is switched",
        "server/store/native.py",
        "        await probe(new, patience)\n",
        "",
        (ENDS, "-k", "honours_create_is_switched and asyncio and sqlite"),
    ),
)
