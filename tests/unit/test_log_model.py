"""The rules of the log, in every order of events that a small log can see; and each rule, left out, is missed."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from budwood.server.log.chain import Chain, Verdict
from budwood.volume.entry import EntryHeader, entry_key, parse_entry, seal_entry

from ..log_model import FENCE, Broken, Entry, Rules, State, Writer, explore

TWO = State((None,) * 5, (Writer((1, 2)), Writer((3,))))
"""Writers, one of which may crash."""
FULL = State((None,) * 6, (Writer((1, 2)), Writer((3, 4))))
"""Two with as much in flight, which live."""
THREE = State((None,) * 4, (Writer((1, 2)), Writer(()), Writer(())))


@pytest.mark.parametrize(
    ("start", "rules"),
    [(TWO, Rules(1)), (TWO, Rules(2)), (FULL, Rules(2, crashes=0)), (THREE, Rules(2, crashes=0))],
    ids=["one in flight", "two", "full", "three"],
)
def test_what_is_acknowledged_counts_whatever_happens(start: State, rules: Rules) -> None:
    """Rules 1, 2, 3, 5."""
    assert explore(rules, start) > 1000


class OutOfOrder(Rules):
    """An entry is acknowledged as soon as it stands."""

    def may_acknowledge(self, writer: Writer, at: int) -> bool:
        return True


class Unordered(Rules):
    """Whatever stands counts, but for what an older epoch sent."""

    def counts(self, slots: tuple[Entry | None, ...]) -> tuple[Entry, ...]:
        epoch, found = 0, list[Entry]()
        for entry in slots:
            if entry is None:
                break
            if entry.epoch >= epoch:
                epoch = entry.epoch
                found.append(entry)
        return tuple(found)


class Hasty(Rules):
    """What was sent behind a lost entry is taken to stand."""

    def behind_lost(self, writer: Writer, slots: tuple[Entry | None, ...]) -> Writer:
        after = super().behind_lost(writer, slots)
        stands = tuple(flight.entry.commit for flight in writer.flights[1:] if flight.answer == "created")
        left = tuple(commit for commit in after.commits if commit not in stands)
        return replace(after, commits=left, acked=writer.acked + stands)


class Eager(Rules):
    """Whoever comes takes what stands for all there is, and fences behind a gap."""

    def begin(self, writer: Writer, slots: tuple[Entry | None, ...]) -> Writer:
        last = max((at for at, entry in enumerate(slots) if entry is not None), default=-1)
        return replace(writer, phase="fencing", next=last + 1)


@pytest.mark.parametrize("rules", [OutOfOrder, Unordered, Hasty, Eager], ids=lambda rules: rules.__name__)
def test_a_rule_that_is_left_out_is_missed(rules: type[Rules]) -> None:
    with pytest.raises(Broken):
        explore(rules(2, crashes=0), FULL)


def test_the_model_judges_as_the_product_does() -> None:
    """Every row of three slots behind the anchor, of the entries that three epochs may send there."""
    rules, entries = Rules(), [Entry(epoch, n, FENCE) for epoch in (1, 2, 3) for n in (0, 1, 2)]
    for row in ((a, b, c) for a in entries for b in entries for c in entries):
        stands = zip(row, _verdicts(row), strict=True)
        assert rules.counts(row) == tuple(entry for entry, canonical in stands if canonical)


def _verdicts(row: tuple[Entry, ...]) -> list[bool]:
    anchor = EntryHeader(log="main", i=0, epoch=0, writer=b"w", n=0, kind="anchor")
    chain, found = Chain(log="main"), list[bool]()
    for slot, entry in enumerate((None, *row)):
        if entry is None:
            header = anchor
        else:
            header = chain.header(epoch=entry.epoch, writer=bytes([entry.epoch]), kind="data")
            header = msgspec.structs.replace(header, n=entry.n, kind="fence" if entry.n == 0 else "data")
        parsed = parse_entry(entry_key("main", slot), seal_entry(header))
        canonical = chain.judge(parsed) is Verdict.CANONICAL
        chain = chain.past(parsed) if canonical else chain.past_void(parsed)
        if entry is not None:
            found.append(canonical)
    return found
