"""Past names: a namespace as it stood at a time, made of what stands now by taking back what was changed since.

Of each of the newest changes it is remembered what stood before under the names that it states (recent_changes.py); a
move takes what lies below along, all of it, so that it is moved back. Names as they stood before the oldest change that
is remembered are told for all times before that.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple, Protocol

from ...volume.rollup import RolledChange, RolledName
from ..store.tree_nodes import loading_in_thread
from .name_map import NameMap
from .recent_changes import range_below

_AT_ONCE: Final = 500
"""Changes: what was taken back stays so when a node is missing for the next ones."""


class PastNames(NamedTuple):
    names: NameMap[RolledName]
    head: int
    """Their revision. What a later move took along has that one's revision and time."""
    at: int
    """The time that was asked for, or the earliest one for which it is remembered how the names stood; 0: now."""


class Standing(Protocol):
    @property
    def head(self) -> int: ...
    @property
    def time(self) -> int: ...
    @property
    def names(self) -> NameMap[RolledName]: ...


async def names_at(now: Standing, changes: Sequence[RolledChange], at: int) -> PastNames:
    """`changes`: those up to now that are remembered, oldest first. Raises Corrupt, Unavailable."""
    later, told = _later(now, changes, at)
    names = now.names
    for start in range(0, len(later), _AT_ONCE):
        names = await loading_in_thread(partial(_taken_back, names, later[start : start + _AT_ONCE]))
    return PastNames(names, later[-1].lsn - 1 if later else now.head, told)


def _later(now: Standing, changes: Sequence[RolledChange], at: int) -> tuple[list[RolledChange], int]:
    """What was changed after that time, newest first; and the time of the names without it."""
    later: list[RolledChange] = []
    for change in reversed(changes):
        if not change.time or change.time <= at:
            break
        later.append(change)
    earliest = later[-1] if later else None
    if earliest is None:
        # All that is known of the newest change, which may have been later, is how the names stand since.
        return later, max(at, now.time)
    reached = earliest.lsn == 1 or (len(later) < len(changes) and changes[-len(later) - 1].time)
    return later, at if reached else earliest.time - 1


def _taken_back(names: NameMap[RolledName], changes: Sequence[RolledChange]) -> NameMap[RolledName]:
    for change in changes:
        if change.below:
            old, new = change.names
            below = [(old + name[len(new) :], bound) for name, bound in names.between(*range_below(new))]
            names = names.spliced(*range_below(new), (), change.lsn)
            names = names.spliced(*range_below(old), below, change.lsn)
        for name, bound in zip(change.names, change.was, strict=True):
            names = names.without(name, change.lsn) if bound is None else names.put(name, bound)
    return names
