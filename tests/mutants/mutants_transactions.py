"""Mutants of folds' transactions, of reads beside folds and collections, and of waiting for an LSN."""

from __future__ import annotations

from typing import Final

from .mutant import Mutant

TRANSACTIONS: Final = "tests/integration/test_transactions.py"
COLLECTION: Final = "tests/integration/test_collection.py"

MUTANTS: Final = (
    Mutant(
        "transactions: one that the log has rejected is granted",
        "server/metastore/admission.py",
        "    if number is None or (plan and number <= number_of_plan(plan)):",
        "    if number is None or (plan and number < 0):",
        (TRANSACTIONS, "-k", "rejected_by_force and asyncio"),
    ),
    Mutant(
        "transactions: what was rejected may be granted",
        "server/log/transaction.py",
        "    # A holder that was told nothing asks again.\n",
        "    (State.REJECT_PENDING, Event.GRANT): State.COMMITTED,\n",
        ("tests/unit/test_transaction.py",),
    ),
    Mutant(
        "transactions: force waits until there is something to collect",
        "server/upkeep/garbage_plan.py",
        "not (forced or slot or survey.folds or left or oldest != survey.rollup)",
        "not (slot or survey.folds or left or oldest != survey.rollup)",
        (TRANSACTIONS, "-k", "(rejected_by_force or gives_way or what_may_still) and asyncio"),
    ),
    Mutant(
        "transactions: entries of a plan that gave way stay",
        "server/upkeep/garbage_plan.py",
        "            first, slot = instead_of.first, max(slot, instead_of.slot)",
        "            slot = max(slot, instead_of.slot)",
        (TRANSACTIONS, "-k", "gives_way and asyncio"),
    ),
    Mutant(
        "transactions: a plan that comes instead settles what may still write",
        "server/upkeep/garbage_plan.py",
        "instead_of is None and await self._is_gone(log, n)",
        "await self._is_gone(log, n)",
        (TRANSACTIONS, "-k", "what_may_still and asyncio"),
    ),
    Mutant(
        "transactions: a fold that misses something calls it damaged",
        "server/upkeep/fold.py",
        "            if refusal is not None:",
        "            if refusal is not None and volume.state.fold is refusal:",
        (TRANSACTIONS, "-k", "learns_its_fate and asyncio"),
    ),
    Mutant(
        "transactions: a number that was another's is taken again",
        "server/upkeep/fold.py",
        "            if not logs.is_old(at):",
        "            if at is not None:",
        (TRANSACTIONS, "-k", "number_that_was_settled and asyncio"),
    ),
    Mutant(
        "transactions: a number that another collector settled is called damaged",
        "server/log/term.py",
        "    except NotFound:\n        return None\n",
        '    except NotFound as error:\n        raise Corrupt(key, "it is missing") from error\n',
        (TRANSACTIONS, "-k", "settled_meanwhile and asyncio"),
    ),
    Mutant(
        "reads: what was deleted under a reader is called damaged",
        "server/pagestore/plan.py",
        "plan.leads_to(missed.key)",
        "missed.key",
        (COLLECTION, "-k", "finds_elsewhere and asyncio"),
    ),
    Mutant(
        "reads: pages that were folded meanwhile are left out",
        "server/pagestore/plan.py",
        "(missed is None and not left)",
        "missed is None",
        (COLLECTION, "-k", "beside_a_fold and asyncio"),
    ),
    Mutant(
        "scrub: a boundary that gave way ends it",
        "server/upkeep/log_outline.py",
        "            except NotFound:\n                # Collected",
        "            except ZeroDivisionError:\n                # Collected",
        ("tests/integration/test_scrub_beside.py", "-k", "boundary"),
    ),
    Mutant(
        "awaited: an LSN that comes is not waited for",
        "remote/awaited.py",
        "            if (await remote.ask(WAIT, request)).lsn >= lsn:",
        "            if await remote.ask(WAIT, request):",
        ("tests/integration/test_listening.py", "-k", "longer_than_a_poll and asyncio"),
    ),
)
