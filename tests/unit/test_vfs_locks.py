"""The lock table: every pair of a level and an event."""

from __future__ import annotations

from itertools import product

import pytest

from budwood.vfs.locks import LEVELS, LOCKS, TRANSITIONS, UNLOCKS, Act, Event, Lock

_LEVEL = {
    Event.LOCK_SHARED: Lock.SHARED,
    Event.LOCK_RESERVED: Lock.RESERVED,
    Event.LOCK_EXCLUSIVE: Lock.EXCLUSIVE,
    Event.UNLOCK_SHARED: Lock.SHARED,
    Event.UNLOCK_NONE: Lock.NONE,
}
_LOCKING = {Event.LOCK_SHARED, Event.LOCK_RESERVED, Event.LOCK_EXCLUSIVE}


def _expected(held: Lock, event: Event) -> tuple[Lock, Act] | None:
    """The rules in words: levels only rise by locks and fall by unlocks; a writer needs a view; what is asked for
    though it is held was to be given back by an unlock that was never made."""
    level = _LEVEL[event]
    if event in _LOCKING:
        if held is Lock.NONE and level is not Lock.SHARED:
            return None
        if level is Lock.SHARED:
            return level, Act.TAKE_VIEW if held is Lock.NONE else Act.TAKE_VIEW_ANEW
        if level is Lock.RESERVED:
            return level, Act.TAKE_WRITER
        return level, Act.TAKE_WRITER if held is Lock.SHARED else Act.NOTHING
    if level >= held:
        return held, Act.NOTHING
    return level, Act.DROP_ALL if level is Lock.NONE else Act.DROP_WRITER


@pytest.mark.parametrize(("held", "event"), list(product(Lock, Event)), ids=str)
def test_every_pair_does_what_the_rules_say(held: Lock, event: Event) -> None:
    expected = _expected(held, event)
    assert TRANSITIONS.get((held, event)) == expected
    by_level = (LOCKS if event in _LOCKING else UNLOCKS).get(held * LEVELS + _LEVEL[event])
    assert by_level == expected, "the table that the file looks into is the same table"


def test_no_path_reaches_a_writer_without_a_view() -> None:
    views: dict[Lock, bool] = {Lock.NONE: False}
    frontier = [Lock.NONE]
    while frontier:
        held = frontier.pop()
        for (at, _), (to, act) in TRANSITIONS.items():
            if at is not held:
                continue
            assert act is not Act.TAKE_WRITER or views[held]
            view = act in {Act.TAKE_VIEW, Act.TAKE_VIEW_ANEW} or (views[held] and act is not Act.DROP_ALL)
            if to not in views:
                views[to] = view
                frontier.append(to)
            assert views[to] == view
    assert set(views) == set(Lock)
