"""Plan parts: a garbage plan cut into plans, each of which takes out a part of it.

What the verifier asks of an entry, a fold or a rejected transaction it asks of each by itself (garbage_check.py). So a
plan is right if all of its parts are, whoever verifies them and in what order; and none is written but the whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from ...volume.garbage import GarbagePlan

S = TypeVar("S", range, tuple[Any, ...])

ENTRIES: Final = 8192
FOLDS: Final = 64
REJECTED: Final = 256
"""That a part has at most: so much is worth a task of its own."""


def parts_of(
    plan: GarbagePlan, *, entries: int = ENTRIES, folds: int = FOLDS, rejected: int = REJECTED
) -> list[GarbagePlan]:
    """At least one: what a plan says of its rollup is verified with each. A plan that is small is its only one."""
    slots = range(plan.first, plan.slot)
    if len(slots) <= entries and len(plan.folds) <= folds and len(plan.rejected) <= rejected:
        return [plan]
    bare = replace(plan, first=1, slot=0, folds=(), rejected=(), settled=(), fragments=(), pins=())
    parts = [replace(bare, first=some.start, slot=some.stop) for some in _cut(slots, entries)]
    parts += [replace(bare, folds=some) for some in _cut(plan.folds, folds)]
    parts += [replace(bare, rejected=some) for some in _cut(plan.rejected, rejected)]
    # Leftovers are bounded by themselves.
    return parts + [replace(bare, fragments=plan.fragments, pins=plan.pins)] * bool(plan.fragments or plan.pins)


def _cut(whole: S, size: int) -> Iterator[S]:
    for first in range(0, len(whole), size):
        yield whole[first : first + size]
