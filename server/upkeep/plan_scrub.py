"""Plan scrub: the garbage plans of a log that stand, and their due marks.

A plan that no entry has acknowledged says nothing, and a mark without a plan is what whoever was cut off has left: they
are whole or not, and that is all. What the acknowledged one takes out may be there or not (log_scrub.py).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from ...volume.errors import BadInput, Corrupt, Unsupported
from ...volume.garbage import GarbagePlan, due_key, number_of_plan, parse_due, parse_plan, plan_key
from ...volume.rollup import slot_of_rollup
from ..log.boundary import boundary_key
from .findings import Findings, Wrong, words_of
from .objects import Objects


@dataclass(slots=True)
class Plans:
    """By name."""

    stand: dict[str, GarbagePlan] = field(default_factory=dict[str, GarbagePlan])
    """Those that can be read."""
    damaged: set[str] = field(default_factory=set[str])
    due: set[str] = field(default_factory=set[str])
    """Marks, whether or not they can be read."""


async def read_plans(objects: Objects, log: str, findings: Findings) -> Plans:
    """Raises Unavailable, Unauthorized."""
    found = Plans()
    prefix = f"logs/{log}/gc/"
    async for key in objects.keys(prefix):
        name, _, what = key.removeprefix(prefix).partition("/")
        data = await objects.get(key)
        if data is None:
            # Collected since it was listed.
            continue
        try:
            number_of_plan(name)
            if key == plan_key(log, name):
                plan = parse_plan(log, name, data)
                slot_of_rollup(plan.rollup)
                found.stand[name] = plan
            elif key == due_key(log, name):
                found.due.add(name)
                parse_due(log, name, data)
            else:
                raise BadInput(f"{what!r} is no part of a garbage plan")
        except (BadInput, Corrupt, Unsupported) as error:
            if what == "plan":
                found.damaged.add(name)
            findings.tell(Wrong(key, [words_of(key, error)]))
    return found


def missing_boundary(plan: GarbagePlan, plans: Plans, name: str, boundaries: Collection[int]) -> Wrong | None:
    """Of a plan that is acknowledged: it is due only behind its boundary."""
    if name in plans.due and plan.slot > max(boundaries, default=0):
        problem = f"it is missing, though what lies below slot {plan.slot} may be deleted"
        return Wrong(boundary_key(plan.log, plan.slot), [problem])
    return None
