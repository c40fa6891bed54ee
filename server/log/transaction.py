"""Transaction: the states of a fold's, and what leads from one to the next (DESIGN §5; S1.8).

    open                  it has a number, and is granted if it asks while nothing below has come
    committed             an entry has its record, which says where the volume lies from there on
    reject-pending        another of its volume was granted since it began, or the volume is gone: it never will be
    reject-acknowledged   the log has that in writing, by a garbage plan of a higher number that an entry acknowledges.
                          Its holder may not know it yet, and what it still writes goes with the next plan
    garbage-collected     nothing is left to be deleted for it

Nothing keeps a transaction's state. It is what the things that stand make of `OPEN`: the volume's newest fold, the
newest garbage plan that the log has acknowledged, and what lies below the transaction's prefix. So nobody's word is
needed for it, its holder's least of all.
"""

from __future__ import annotations

from enum import Enum
from typing import Final


class State(Enum):
    OPEN = "open"
    COMMITTED = "committed"
    REJECT_PENDING = "reject-pending"
    REJECT_ACKNOWLEDGED = "reject-acknowledged"
    GARBAGE_COLLECTED = "garbage-collected"


class Event(Enum):
    GRANT = "its record stands"
    OVERTAKE = "another of its volume was granted, which it didn't begin with; or the volume is gone"
    ACKNOWLEDGE = "the log has acknowledged a garbage plan of a higher number"
    WRITE = "its holder writes below its prefix"
    CARRY_OUT = "what was to be deleted for it is gone"


TRANSITIONS: Final[dict[tuple[State, Event], State]] = {
    (State.OPEN, Event.GRANT): State.COMMITTED,
    (State.OPEN, Event.OVERTAKE): State.REJECT_PENDING,
    (State.OPEN, Event.ACKNOWLEDGE): State.REJECT_ACKNOWLEDGED,
    (State.OPEN, Event.WRITE): State.OPEN,
    # A holder that was told nothing asks again.
    (State.COMMITTED, Event.GRANT): State.COMMITTED,
    (State.COMMITTED, Event.OVERTAKE): State.COMMITTED,
    (State.COMMITTED, Event.ACKNOWLEDGE): State.COMMITTED,
    (State.COMMITTED, Event.CARRY_OUT): State.GARBAGE_COLLECTED,
    (State.REJECT_PENDING, Event.OVERTAKE): State.REJECT_PENDING,
    (State.REJECT_PENDING, Event.ACKNOWLEDGE): State.REJECT_ACKNOWLEDGED,
    (State.REJECT_PENDING, Event.WRITE): State.REJECT_PENDING,
    (State.REJECT_ACKNOWLEDGED, Event.OVERTAKE): State.REJECT_ACKNOWLEDGED,
    (State.REJECT_ACKNOWLEDGED, Event.ACKNOWLEDGE): State.REJECT_ACKNOWLEDGED,
    (State.REJECT_ACKNOWLEDGED, Event.WRITE): State.REJECT_ACKNOWLEDGED,
    (State.REJECT_ACKNOWLEDGED, Event.CARRY_OUT): State.GARBAGE_COLLECTED,
    (State.GARBAGE_COLLECTED, Event.OVERTAKE): State.GARBAGE_COLLECTED,
    (State.GARBAGE_COLLECTED, Event.ACKNOWLEDGE): State.GARBAGE_COLLECTED,
    # Its holder slept, and doesn't know yet.
    (State.GARBAGE_COLLECTED, Event.WRITE): State.REJECT_ACKNOWLEDGED,
}


def after(*events: Event) -> State:
    """What these make of a transaction that was begun."""
    state = State.OPEN
    for event in events:
        state = TRANSITIONS[state, event]
    return state


def is_grantable(state: State) -> bool:
    return (state, Event.GRANT) in TRANSITIONS
