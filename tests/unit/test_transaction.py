"""Every event in every state of a fold's transaction (S1.8)."""

from __future__ import annotations

import itertools

import pytest

from budwood.server.log.transaction import TRANSITIONS, Event, State, after, is_grantable

REJECTED = {State.REJECT_PENDING, State.REJECT_ACKNOWLEDGED}

IMPOSSIBLE = {
    # What was deleted for it was never asked about before: a plan of a higher number says that it may be.
    (State.OPEN, Event.CARRY_OUT),
    (State.REJECT_PENDING, Event.CARRY_OUT),
    # Who was rejected stays so.
    (State.REJECT_PENDING, Event.GRANT),
    (State.REJECT_ACKNOWLEDGED, Event.GRANT),
    (State.GARBAGE_COLLECTED, Event.GRANT),
    # All that a transaction writes stands before it asks.
    (State.COMMITTED, Event.WRITE),
    # It is listed no more: there is nothing left to be deleted.
    (State.GARBAGE_COLLECTED, Event.CARRY_OUT),
}


@pytest.mark.parametrize(("state", "event"), [*itertools.product(State, Event)])
def test_every_event_in_every_state(state: State, event: Event) -> None:
    """S1.8: what can't be is in no table, and the rest is."""
    assert ((state, event) in TRANSITIONS) == ((state, event) not in IMPOSSIBLE)


@pytest.mark.parametrize(("state", "event"), [*TRANSITIONS])
def test_nothing_leads_back_from_a_verdict(state: State, event: Event) -> None:
    """S1.5, S1.7, S1.8: what was granted stays so, and so does what was rejected, though its holder writes on."""
    to = TRANSITIONS[state, event]
    if state is State.COMMITTED:
        assert to in {State.COMMITTED, State.GARBAGE_COLLECTED}
    if state in REJECTED:
        assert to in {*REJECTED, State.GARBAGE_COLLECTED}
    if state is State.REJECT_ACKNOWLEDGED:
        assert to is not State.REJECT_PENDING
    assert (to is State.COMMITTED) <= (event is Event.GRANT or state is State.COMMITTED)
    assert to is not State.OPEN or state is State.OPEN


def test_only_what_is_open_or_was_granted_can_be_granted() -> None:
    assert {state for state in State if is_grantable(state)} == {State.OPEN, State.COMMITTED}


@pytest.mark.parametrize("events", [*itertools.permutations([Event.OVERTAKE, Event.ACKNOWLEDGE])])
def test_in_whatever_order_it_is_rejected_it_is_acknowledged_in_the_end(events: tuple[Event, ...]) -> None:
    assert after(*events) is State.REJECT_ACKNOWLEDGED
    assert after(*events, Event.CARRY_OUT, Event.WRITE) is State.REJECT_ACKNOWLEDGED
    assert after(Event.GRANT, *events) is State.COMMITTED
