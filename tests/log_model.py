"""The rules of a shared log as an explicit-state model (DESIGN §4, rules 1, 2, 3, 5 and 7): writers that fence each
other, with several entries in flight over a store that delays, loses and repeats. `explore` visits every state that any
order of events leads to, and raises Broken, with the events that led there, where one of them breaks what is promised:

- what was acknowledged counts, and goes on counting
- no commit counts twice
- what counts never goes back

The rules are methods of `Rules`, so that a test may leave one out and see it missed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

FENCE = 0
"""The commit of an entry that has none."""


class Broken(AssertionError):
    pass


class Entry(NamedTuple):
    epoch: int
    n: int
    commit: int


class Flight(NamedTuple):
    slot: int
    entry: Entry
    answer: str
    """sent: none yet. created, lost: another stands there. unknown: given up, and it may still arrive."""


@dataclass(frozen=True)
class Writer:
    commits: tuple[int, ...]
    """Not sent yet."""
    epoch: int = 0
    phase: str = "new"
    """new, fencing, open, halted, crashed."""
    next: int = 0
    """The first slot that it doesn't know to be read."""
    flights: tuple[Flight, ...] = ()
    alone: bool = False
    acked: tuple[int, ...] = ()


@dataclass(frozen=True)
class State:
    slots: tuple[Entry | None, ...]
    writers: tuple[Writer, ...]
    late: frozenset[tuple[int, Entry]] = frozenset()
    """Creates whose sender waits no more."""
    epochs: int = 0
    crashes: int = 0


@dataclass(frozen=True)
class Rules:
    alpha: int = 2
    crashes: int = 1
    """How many writers may crash."""

    def counts(self, slots: tuple[Entry | None, ...]) -> tuple[Entry, ...]:
        """Rule 1. Slot 0 is the anchor, and left out here."""
        epoch, n, found = 0, 0, list[Entry]()
        for entry in slots:
            if entry is None:
                break
            if entry.epoch < epoch:
                continue
            if entry.epoch > epoch:
                epoch, n = entry.epoch, -1
            if entry.n == n + 1:
                n = entry.n
                found.append(entry)
        return tuple(found)

    def next_n(self, writer: Writer, slots: tuple[Entry | None, ...]) -> int:
        own = [entry.n for entry in self.counts(slots[: writer.next]) if entry.epoch == writer.epoch]
        return max(own, default=-1) + 1

    def is_deposed(self, writer: Writer, slots: tuple[Entry | None, ...]) -> bool:
        return any(entry is not None and entry.epoch > writer.epoch for entry in slots[: writer.next])

    def may_acknowledge(self, writer: Writer, at: int) -> bool:
        """Only the oldest in flight."""
        return at == 0

    def begin(self, writer: Writer, slots: tuple[Entry | None, ...]) -> Writer:
        """Read up to the first slot that is missing, and fence there (rule 2)."""
        first = next((at for at, entry in enumerate(slots) if entry is None), len(slots))
        return replace(writer, phase="fencing", next=first)

    def behind_lost(self, writer: Writer, slots: tuple[Entry | None, ...]) -> Writer:
        """The oldest in flight has lost its slot to an older epoch: rule 3."""
        known = 0
        for flight in writer.flights:
            if flight.answer == "unknown":
                break
            known += 1
        again = tuple(flight.entry.commit for flight in writer.flights if flight.entry.commit != FENCE)
        return replace(
            writer, next=writer.next + known, commits=again + writer.commits, flights=(), alone=writer.phase == "open"
        )


def explore(rules: Rules, state: State, most_states: int = 2_000_000) -> int:
    """How many states there are."""
    seen: dict[State, tuple[State, str] | None] = {state: None}
    queue = deque([state])
    while queue:
        before = queue.popleft()
        for event, after in _events(rules, before):
            if after not in seen:
                seen[after] = before, event
                problem = _problem(rules, before, after)
                if problem:
                    raise Broken(f"{problem}: {' · '.join(_path(seen, after))}")
                assert len(seen) <= most_states, "more states than were allowed for"
                queue.append(after)
    return len(seen)


def _path(seen: dict[State, tuple[State, str] | None], state: State) -> list[str]:
    events: list[str] = []
    while (came := seen[state]) is not None:
        state, event = came
        events.append(event)
    return events[::-1]


def _problem(rules: Rules, before: State, after: State) -> str:
    was, now = rules.counts(before.slots), rules.counts(after.slots)
    commits = [entry.commit for entry in now if entry.commit != FENCE]
    if now[: len(was)] != was:
        return "what counted counts no more"
    if len(set(commits)) < len(commits):
        return "a commit counts twice"
    if any(commit not in commits for writer in after.writers for commit in writer.acked):
        return "what was acknowledged doesn't count"
    return ""


def _events(rules: Rules, state: State) -> Iterator[tuple[str, State]]:
    for slot, entry in state.late:
        slots = _created(state.slots, slot, entry)
        yield f"{entry} arrives late", replace(state, slots=slots, late=state.late - {(slot, entry)})
    for at, writer in enumerate(state.writers):
        for event, after in _steps(rules, state, writer):
            writers = (*state.writers[:at], after[0], *state.writers[at + 1 :])
            yield f"writer {at} {event}", replace(after[1], writers=writers)


def _steps(rules: Rules, state: State, writer: Writer) -> Iterator[tuple[str, tuple[Writer, State]]]:
    if writer.phase == "new":
        epoch = state.epochs + 1
        yield "begins", (rules.begin(replace(writer, epoch=epoch), state.slots), replace(state, epochs=epoch))
    if writer.phase not in {"fencing", "open"}:
        return
    if state.crashes < rules.crashes:
        sent = {(flight.slot, flight.entry) for flight in writer.flights if flight.answer == "sent"}
        crashed = replace(writer, phase="crashed", flights=())
        yield "crashes", (crashed, replace(state, late=state.late | sent, crashes=state.crashes + 1))
    for at, flight in enumerate(writer.flights):
        if flight.answer == "sent":
            slots = _created(state.slots, flight.slot, flight.entry)
            answer = "created" if slots[flight.slot] == flight.entry else "lost"
            yield f"lands {flight.entry}", (_answered(writer, at, answer), replace(state, slots=slots))
            late = state.late | {(flight.slot, flight.entry)}
            if not state.late:
                yield f"gives {flight.entry} up", (_answered(writer, at, "unknown"), replace(state, late=late))
        elif flight.answer == "created" and rules.may_acknowledge(writer, at):
            yield f"acknowledges {flight.entry}", (_acknowledged(writer, at), state)
    if writer.flights:
        yield from _oldest(rules, state, writer)
    yield from _sends(rules, state, writer)


def _oldest(rules: Rules, state: State, writer: Writer) -> Iterator[tuple[str, tuple[Writer, State]]]:
    oldest = writer.flights[0]
    if oldest.answer == "unknown":
        # The same bytes to the same slot (rule 5).
        yield f"sends {oldest.entry} again", (_answered(writer, 0, "sent"), state)
    if oldest.answer == "lost" and all(flight.answer != "sent" for flight in writer.flights):
        lost = rules.behind_lost(writer, state.slots)
        if rules.is_deposed(lost, state.slots):
            lost = replace(lost, phase="halted")
        yield f"has lost slot {oldest.slot}", (lost, state)


def _sends(rules: Rules, state: State, writer: Writer) -> Iterator[tuple[str, tuple[Writer, State]]]:
    slot = writer.next + len(writer.flights)
    settled = all(flight.answer != "unknown" for flight in writer.flights)
    room = len(writer.flights) < (1 if writer.alone or writer.phase == "fencing" else rules.alpha)
    if slot >= len(state.slots) or not room or not settled:
        return
    n = rules.next_n(writer, state.slots) + len(writer.flights)
    if writer.phase == "fencing":
        entry, commits = Entry(writer.epoch, n, FENCE), writer.commits
    elif writer.commits:
        entry, commits = Entry(writer.epoch, n, writer.commits[0]), writer.commits[1:]
    else:
        return
    flights = (*writer.flights, Flight(slot, entry, "sent"))
    yield f"sends {entry} to slot {slot}", (replace(writer, commits=commits, flights=flights), state)


def _created(slots: tuple[Entry | None, ...], slot: int, entry: Entry) -> tuple[Entry | None, ...]:
    return slots if slots[slot] is not None else (*slots[:slot], entry, *slots[slot + 1 :])


def _answered(writer: Writer, at: int, answer: str) -> Writer:
    flights = list(writer.flights)
    flights[at] = flights[at]._replace(answer=answer)
    return replace(writer, flights=tuple(flights))


def _acknowledged(writer: Writer, at: int) -> Writer:
    entry = writer.flights[at].entry
    flights = (*writer.flights[:at], *writer.flights[at + 1 :])
    acked = writer.acked if entry.commit == FENCE else (*writer.acked, entry.commit)
    after = replace(writer, flights=flights, acked=acked, phase="open")
    return replace(after, next=writer.next + 1, alone=False) if at == 0 else after
