"""Plan parts: a garbage plan cut into plans, each of which takes out a part of it.

What the verifier asks of an entry, a fold or a rejected transaction it asks of each by itself (garbage_check.py). So a
plan is right if all of its parts are, whoever verifies them and in what order; and none is written but the whole.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from ...volume.garbage import GarbagePlan

ENTRIES: Final = 8192
FOLDS: Final = 64
REJECTED: Final = 256
"""That a part has at most: so much is worth a task of its own."""


def parts_of(
    plan: GarbagePlan, *, entries: int = ENTRIES, folds: int = FOLDS, rejected: int = REJECTED
) -> list[GarbagePlan]:
    """At least one, since what a plan says of its rollup is verified with each."""
    bare = replace(plan, first=1, slot=0, folds=(), rejected=(), settled=())
    parts = [
        replace(bare, first=first, slot=min(first + entries, plan.slot))
        for first in range(plan.first, plan.slot, entries)
    ]
    parts += [replace(bare, folds=plan.folds[at : at + folds]) for at in range(0, len(plan.folds), folds)]
    parts += [
        replace(bare, rejected=plan.rejected[at : at + rejected]) for at in range(0, len(plan.rejected), rejected)
    ]
    return parts if len(parts) > 1 else [plan]
