"""The offsets of a stream: what batches read between them, whatever crashes, restarts, and is forgotten meanwhile."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from budwood.spark_export.source.offsets import (
    AvailableLsns,
    Offset,
    check_batch,
    following,
    opening,
    parse_offset,
    steps,
)
from budwood.volume.errors import BadInput, Forgotten

START = Offset("v", "t")
AT_7 = Offset("v", "t", 7, 5)


def through_json(offset: Offset) -> Offset:
    """As a checkpoint keeps it."""
    text = json.dumps(offset.json())
    again = parse_offset(json.loads(text))
    assert json.dumps(again.json()) == text
    return again


@dataclass
class Query:
    """Spark's side, as its micro-batches run: the log of offsets outlives a crash, and a planned batch runs again."""

    first: int | None
    limit: int | None
    loses: bool = False
    log: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    done: int = 0
    given: dict[int, Any] = field(default_factory=dict[int, Any])

    def at(self, batch: int) -> Offset:
        return parse_offset(self.log[batch]) if batch >= 0 else START

    def plan(self, known: AvailableLsns, held: bool = False) -> bool:
        """Whether there was something new."""
        start = self.at(len(self.log) - 1)
        if start.lsn is None:
            end = opening(start, known, self.first, limit=self.limit, held=held, loses=self.loses)
        else:
            found = following(start, known, limit=self.limit, held=held, loses=self.loses)
            if found is None:
                return False
            end = found
        check_batch(start, end)
        self.log.append(through_json(end).json())
        return True

    def run(self, known: AvailableLsns, *, crashes: bool, held: bool = False) -> None:
        """The batch that is planned and not done; its rows may be written and the crash come before that is noted."""
        batch = self.done
        start, end = self.at(batch - 1), self.at(batch)
        check_batch(start, end)
        rows = end.lsn if end.after is None else steps(end, known, held=held, loses=self.loses)
        assert self.given.setdefault(batch, rows) == rows, "a batch that runs again has other rows"
        if not crashes:
            self.done += 1


def follow(start: Offset, known: AvailableLsns, *, limit: int | None = None, held: bool = False) -> Offset:
    """The end of a batch that there is, where losing is accepted."""
    end = following(start, known, limit=limit, held=held, loses=True)
    assert end is not None
    return end


schedules = st.lists(st.sampled_from(["commit", "commit", "batch", "batch", "crash planned", "crash written"]))


@given(schedules, st.none() | st.integers(1, 4), st.none() | st.integers(1, 3), st.integers(0, 4))
def test_killed_and_restarted_anywhere_each_lsn_is_given_once(
    schedule: list[str], first: int | None, limit: int | None, head: int
) -> None:
    if first is not None and first > head + 1:
        first = head + 1
    query = Query(first, limit)
    for event in [*schedule, *(["batch"] * 40)]:
        if event == "commit":
            head += 1
            continue
        known = AvailableLsns(1, head)
        if query.done == len(query.log) and not query.plan(known):
            continue
        if event != "crash planned":
            query.run(known, crashes=event == "crash written")
    assert query.done == len(query.log)
    whole, *later = [query.given[batch] for batch in sorted(query.given)]
    if first is None:
        begun = whole
    else:
        begun, later = first - 1, [whole, *later]
    found = [step for some in later for step in some]
    assert found == list(pairwise(range(begun, head + 1)))
    if limit is not None:
        assert all(len(some) <= limit for some in later)


@given(st.lists(st.integers(0, 3)), st.integers(1, 3))
def test_the_lsn_never_falls_and_nothing_new_is_no_batch(growth: list[int], limit: int) -> None:
    head, query = 2, Query(None, limit)
    for more in growth:
        head += more
        query.plan(AvailableLsns(1, head))
    lsns = [query.at(batch).lsn or 0 for batch in range(len(query.log))]
    assert all(one < other for one, other in pairwise(lsns))
    # A head that a deposed node answers with lies behind.
    assert following(AT_7, AvailableLsns(1, 6), limit=None, held=False, loses=False) is None
    assert following(AT_7, AvailableLsns(1, 7), limit=None, held=False, loses=False) is None


def test_latest_is_written_down_at_once() -> None:
    """Else a query that is stopped before the first commit would begin behind it when it is started again."""
    query = Query(first=6, limit=None)
    assert query.plan(AvailableLsns(1, 5))
    query.run(AvailableLsns(1, 5), crashes=False)
    assert query.given == {0: []}
    assert query.plan(AvailableLsns(1, 7))
    query.run(AvailableLsns(1, 7), crashes=False)
    assert query.given[1] == [(5, 6), (6, 7)]


def test_a_start_that_is_not_there_yet_is_refused() -> None:
    with pytest.raises(BadInput, match="startingVersion is 7, and the newest LSN is 5"):
        opening(START, AvailableLsns(1, 5), 7, limit=None, held=False, loses=False)


def test_a_start_that_is_forgotten_is_refused_and_says_the_first_that_can_be() -> None:
    with pytest.raises(Forgotten, match=r"LSN 4 is forgotten.*since, is 5: start with 6 or later"):
        opening(START, AvailableLsns(5, 9), 5, limit=None, held=False, loses=False)
    assert opening(START, AvailableLsns(5, 9), 6, limit=2, held=False, loses=False) == Offset("v", "t", 7, 5)
    assert opening(START, AvailableLsns(5, 9), 3, limit=2, held=False, loses=True) == Offset("v", "t", 7, 5)
    assert opening(START, AvailableLsns(1, 9), 1, limit=2, held=False, loses=False) == Offset("v", "t", 2, 0)
    with pytest.raises(Forgotten, match="LSN 1 is forgotten"):
        opening(START, AvailableLsns(2, 9), 1, limit=2, held=False, loses=False)
    # Somebody holds the LSN before it.
    assert opening(START, AvailableLsns(5, 9), 5, limit=2, held=True, loses=False) == Offset("v", "t", 6, 4)
    with pytest.raises(Forgotten, match=r"LSN 4 changed can't be told: LSN 4 is forgotten"):
        opening(START, AvailableLsns(5, 9), 4, limit=2, held=True, loses=False)
    assert opening(START, AvailableLsns(5, 9), 4, limit=2, held=True, loses=True) == Offset("v", "t", 5, 3, net=True)
    assert opening(START, AvailableLsns(5, 9), 1, limit=2, held=False, loses=True) == Offset("v", "t", 5, 0, net=True)
    # Nothing is to be told yet.
    assert opening(START, AvailableLsns(10, 9), 10, limit=None, held=False, loses=False) == Offset("v", "t", 9, 9)


def test_what_was_forgotten_stops_the_stream_and_says_the_way_out() -> None:
    with pytest.raises(Forgotten, match=r"come to LSN 7.*since, is 9.*without them.*new checkpoint"):
        following(AT_7, AvailableLsns(9, 12), limit=None, held=False, loses=False)
    with pytest.raises(Forgotten, match=r"still holds LSN 7.*failOnDataLoss=false"):
        following(AT_7, AvailableLsns(9, 12), limit=None, held=True, loses=False)


def test_where_losing_is_accepted_the_loss_is_on_record() -> None:
    end = follow(AT_7, AvailableLsns(9, 12), limit=2)
    assert end == Offset("v", "t", 11, 9)
    check_batch(AT_7, end)
    assert steps(end, AvailableLsns(9, 12), held=False, loses=True) == [(9, 10), (10, 11)]
    only = follow(AT_7, AvailableLsns(9, 9))
    assert only == Offset("v", "t", 9, 9)
    assert steps(only, AvailableLsns(9, 9), held=False, loses=True) == []


def test_with_the_old_lsn_held_nothing_is_lost_but_the_steps_between() -> None:
    end = follow(AT_7, AvailableLsns(9, 12), held=True)
    assert end == Offset("v", "t", 9, 7, net=True)
    assert steps(through_json(end), AvailableLsns(9, 12), held=True, loses=True) == [(7, 9)]
    assert follow(end, AvailableLsns(9, 12), held=True) == Offset("v", "t", 12, 9)


def test_where_the_next_step_can_be_read_nothing_is_lost() -> None:
    """The LSN itself may lie below the oldest that can be read, if it is held."""
    end = following(AT_7, AvailableLsns(8, 9), limit=None, held=True, loses=False)
    assert end is not None
    assert end == Offset("v", "t", 9, 7)
    assert steps(end, AvailableLsns(8, 9), held=True, loses=False) == [(7, 8), (8, 9)]
    with pytest.raises(Forgotten):
        following(AT_7, AvailableLsns(8, 9), limit=None, held=False, loses=False)
    # A planned step has both of its ends, whatever was forgotten since.
    assert steps(Offset("v", "t", 8, 7), AvailableLsns(20, 30), held=True, loses=False) == [(7, 8)]


def test_a_volume_of_which_nothing_can_be_read_gives_nothing() -> None:
    assert following(AT_7, AvailableLsns(9, 8), limit=None, held=True, loses=True) is None


def test_a_planned_batch_that_was_forgotten_in_part() -> None:
    planned = Offset("v", "t", 9, 5)
    assert steps(planned, AvailableLsns(5, 12), held=False, loses=False) == [(5, 6), (6, 7), (7, 8), (8, 9)]
    with pytest.raises(Forgotten):
        steps(planned, AvailableLsns(7, 12), held=True, loses=False)
    assert steps(planned, AvailableLsns(8, 12), held=True, loses=True) == [(5, 9)]
    assert steps(planned, AvailableLsns(8, 12), held=False, loses=True) == [(8, 9)]
    assert steps(planned, AvailableLsns(10, 12), held=False, loses=True) == []


def test_lsn_0_is_empty_and_can_always_be_read() -> None:
    first = Offset("v", "t", 2, 0)
    assert steps(first, AvailableLsns(1, 2), held=False, loses=False) == [(0, 1), (1, 2)]
    with pytest.raises(Forgotten):
        steps(first, AvailableLsns(2, 2), held=False, loses=False)


def test_another_volumes_or_tables_checkpoint_is_refused() -> None:
    for other in (Offset("w", "t", 7, 5), Offset("v", "u", 7, 5)):
        with pytest.raises(BadInput, match="the checkpoint is of table"):
            check_batch(START, other)
    with pytest.raises(BadInput, match="can't end"):
        check_batch(AT_7, Offset("v", "t", 9, 6))
    with pytest.raises(BadInput, match="can't end"):
        check_batch(AT_7, Offset("v", "t", 9))
    with pytest.raises(BadInput, match="damaged"):
        check_batch(AT_7, START)


@pytest.mark.parametrize(
    "raw",
    [
        {},
        {"partition-1": 3},
        {"volume": "v"},
        {"volume": "v", "table": 3},
        {"volume": "v", "table": "t", "lsn": 3},
        {"volume": "v", "table": "t", "after": 3},
        {"volume": "v", "table": "t", "lsn": "3", "after": 1},
        {"volume": "v", "table": "t", "lsn": True, "after": 1},
        {"volume": "v", "table": "t", "lsn": 3, "after": 4},
        {"volume": "v", "table": "t", "lsn": 3, "after": -1},
        {"volume": "v", "table": "t", "lsn": 3, "after": 2, "snapshot": True},
        {"volume": "v", "table": "t", "lsn": 3, "snapshot": True, "net": True},
        {"volume": "v", "table": "t", "lsn": 3, "snapshot": 1},
        {"volume": "v", "table": "t", "snapshot": True},
        {"volume": "v", "table": "t", "lsn": 3, "after": 2, "pin": 7},
        {"volume": "v", "table": "t", "lsn": 3, "after": 2, "further": 1},
    ],
)
def test_what_no_stream_wrote_is_refused(raw: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match="the checkpoint's offset is"):
        parse_offset(raw)


@pytest.mark.parametrize(
    "offset",
    [START, AT_7, Offset("v", "t", 7), Offset("v", "t", 9, 7, net=True, pin="p", before="q"), Offset("v", "t", 0)],
)
def test_an_offset_comes_back_from_the_checkpoint_as_it_was(offset: Offset) -> None:
    assert through_json(offset) == offset
