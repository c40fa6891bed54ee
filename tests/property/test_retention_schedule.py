"""What a retention policy forgets and holds, against a plain reading of what it promises (server/upkeep/
retention_schedule.py)."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from budwood.server.upkeep.retention_schedule import (
    DAY_MS,
    HOUR_MS,
    MOST_HOLDS,
    STEPS,
    Hold,
    Schedule,
    schedule,
)
from budwood.volume.errors import BadInput
from budwood.volume.pins import DAILY, HOURLY
from budwood.volume.retention_policy import EVERYTHING, MOST_MS, RetentionPolicy, check_policy

PERIODS = ((HOURLY, HOUR_MS), (DAILY, DAY_MS))
START = 1_700_000_000_000

pauses = st.one_of(
    st.integers(1, 10),
    st.integers(1, 2 * HOUR_MS),
    st.integers(1, 3 * DAY_MS),
    st.sampled_from([HOUR_MS, DAY_MS, HOUR_MS // 2]),
)


@st.composite
def policies(draw: st.DrawFn) -> RetentionPolicy:
    terms = sorted(draw(st.lists(st.integers(1, 40 * DAY_MS), min_size=1, max_size=3, unique=True)))
    terms += [0, 0]
    longer = draw(st.sampled_from([(terms[1], terms[2]), (0, terms[1])]))
    return RetentionPolicy(all_ms=terms[0], hourly_ms=longer[0], daily_ms=longer[1])


@st.composite
def times(draw: st.DrawFn) -> list[int]:
    """Of the LSNs from 1 on; some of them at full hours, or at midnight."""
    moments = accumulate(draw(st.lists(pauses, min_size=1, max_size=60)), initial=START)
    wholes = st.sampled_from([1, 1, HOUR_MS, DAY_MS])
    return sorted({-(-moment // whole) * whole for moment in moments for whole in [draw(wholes)]})


class Clocked:
    """The times of LSNs, and how many were asked for."""

    def __init__(self, times: list[int]) -> None:
        self.times = times
        self.asked = 0

    def __call__(self, lsn: int) -> int:
        assert 1 <= lsn <= len(self.times), "it knows of no other"
        self.asked += 1
        return self.times[lsn - 1]

    def newest_at(self, ms: int) -> int:
        return bisect_right(self.times, ms)


def lasting(policy: RetentionPolicy, kind: str) -> int:
    return policy.hourly_ms if kind == HOURLY else policy.daily_ms


def expected(policy: RetentionPolicy, clock: Clocked, oldest: int, now: int) -> Schedule | None:
    """Hour by hour."""
    step = max(1, policy.all_ms // STEPS)
    since = clock.newest_at((now - policy.all_ms) // step * step)
    if not policy.all_ms or since <= oldest:
        return None
    holds = dict[tuple[int, str], Hold]()
    for kind, period in PERIODS:
        first = max(now - lasting(policy, kind) + 1, clock.times[oldest - 1])
        for at in range(-(-first // period) * period, now + 1, period):
            lsn = clock.newest_at(at)
            if oldest <= lsn < since:
                holds[lsn, kind] = Hold(lsn, kind, at, at + lasting(policy, kind))
    return Schedule(since, tuple(sorted(holds.values())), whole=True)


@given(policies(), times(), st.integers(0, 60 * DAY_MS), st.integers(0, 60))
def test_it_is_what_a_look_at_every_hour_comes_to(
    policy: RetentionPolicy, moments: list[int], age: int, oldest: int
) -> None:
    clock, oldest = Clocked(moments), 1 + oldest % len(moments)
    now = moments[-1] + age
    assert schedule(policy, clock, oldest, len(moments), now) == expected(policy, clock, oldest, now)


@given(policies(), times(), st.lists(pauses, min_size=1, max_size=20))
@settings(max_examples=200)
def test_whenever_it_is_asked_what_was_promised_can_be_read(
    policy: RetentionPolicy, moments: list[int], naps: list[int]
) -> None:
    """However seldom, and however often: what is held at a moment doesn't hang on when anybody looked before."""
    clock, since, held = Clocked(moments), 1, dict[tuple[int, str], Hold]()
    for now in accumulate(naps, initial=moments[0]):
        head = clock.newest_at(now)
        due = schedule(policy, clock, since, head, now)
        if due is not None:
            assert due.since > since, "else there is nothing to do"
            since = due.since
            for hold in due.holds:
                assert (hold.lsn, hold.kind) not in held, "each is held once"
                held[hold.lsn, hold.kind] = hold
        readable = {hold.lsn for hold in held.values() if hold.until_ms > now} | {*range(since, head + 1)}
        assert head in readable
        for moment in {now - policy.all_ms, *(at for at in moments if now - policy.all_ms <= at <= now), now}:
            assert clock.newest_at(moment) in readable | {0}
        for kind, period in PERIODS:
            oldest = max(now - lasting(policy, kind) + 1, moments[0])
            for at in range(-(-oldest // period) * period, now + 1, period):
                assert clock.newest_at(at) in readable


@given(times(), st.integers(0, 60 * DAY_MS))
def test_it_costs_what_is_forgotten_and_not_what_stands(moments: list[int], age: int) -> None:
    policy = RetentionPolicy(all_ms=DAY_MS, hourly_ms=10 * DAY_MS, daily_ms=30 * DAY_MS)
    many = moments + [moments[-1] + 1 + lsn for lsn in range(10_000)]
    clock, now = Clocked(many), moments[-1] + min(age, DAY_MS)
    due = schedule(policy, clock, 1, len(many), now)
    gone, holds = (due.since, len(due.holds)) if due else (1, 0)
    assert clock.asked <= (holds + 3) * 2 * (gone.bit_length() + 2)


def test_much_is_done_in_parts_and_comes_to_the_same() -> None:
    moments = [START + lsn * HOUR_MS for lsn in range(3 * MOST_HOLDS)]
    policy = RetentionPolicy(all_ms=1, hourly_ms=MOST_MS - 1, daily_ms=MOST_MS)
    clock, since, held, parts = Clocked(moments), 1, list[Hold](), 0
    while (due := schedule(policy, clock, since, len(moments), moments[-1] + 1)) is not None:
        assert len([hold for hold in due.holds if hold.kind == HOURLY]) <= MOST_HOLDS
        assert all(since <= hold.lsn < due.since for hold in due.holds)
        assert due.whole == (due.since == len(moments))
        since, parts = due.since, parts + 1
        held += due.holds
    whole = expected(policy, clock, 1, moments[-1] + 1)
    assert whole is not None
    assert (since, sorted(held)) == (whole.since, list(whole.holds))
    assert parts == 3


def test_what_is_committed_at_a_full_hour_stands_for_it() -> None:
    midnight = START - START % DAY_MS
    clock = Clocked([midnight + round(hours * HOUR_MS) for hours in (10.3, 11, 11.6, 14, 15.2)])
    due = schedule(
        RetentionPolicy(all_ms=1, hourly_ms=DAY_MS, daily_ms=2 * DAY_MS), clock, 1, 5, midnight + 16 * HOUR_MS
    )
    assert due is not None
    assert [(hold.lsn, hold.at_ms - midnight) for hold in due.holds] == [
        (2, 11 * HOUR_MS),
        (3, 13 * HOUR_MS),
        (4, 15 * HOUR_MS),
    ]


def test_without_a_term_for_all_of_them_everything_stays() -> None:
    clock = Clocked([START, START + 1])
    assert schedule(EVERYTHING, clock, 1, 2, START + MOST_MS) is None
    assert not clock.asked


@pytest.mark.parametrize(
    ("terms", "words"),
    [
        ((0, 5, 0), "hourly alone says too little"),
        ((0, 0, 5), "daily alone says too little"),
        ((5, 5, 0), "hourly would keep nothing that all doesn't"),
        ((5, 0, 4), "daily would keep nothing that all doesn't"),
        ((5, 7, 6), "daily would keep nothing that hourly doesn't"),
        ((MOST_MS + 1, 0, 0), "100 years"),
    ],
)
def test_what_can_not_be_meant_is_refused_in_words(terms: tuple[int, int, int], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        check_policy(RetentionPolicy(all_ms=terms[0], hourly_ms=terms[1], daily_ms=terms[2]))


@given(policies())
def test_all_others_are_accepted(policy: RetentionPolicy) -> None:
    check_policy(policy)
    check_policy(EVERYTHING)
