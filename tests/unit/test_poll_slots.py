"""Who of a home's volumes is waited for by a long poll, where not all may be: against a list (S2.30)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from budwood.sync.poll_slots import PollSlots

VIDS = [bytes([number]) for number in range(8)]
MOST = 3

steps = st.lists(
    st.tuples(st.sampled_from(["use", "open", "close", "take", "give_back", "forget"]), st.sampled_from(VIDS)),
    max_size=60,
)


@given(steps)
def test_never_more_than_may_be_and_those_that_were_used_last_have_them(found: list[tuple[str, bytes]]) -> None:
    slots = PollSlots(MOST, 1.0)
    used: dict[bytes, float] = {}
    opened, held = set[bytes](), set[bytes]()

    def rank(vid: bytes) -> tuple[bool, float]:
        return vid in opened, used.get(vid, float("-inf"))

    for number, (step, vid) in enumerate(found):
        now = float(number)
        if step == "use":
            slots.use(vid, now)
            used[vid] = now
        elif step == "open":
            slots.open(vid, now)
            used[vid] = now
            opened.add(vid)
        elif step == "close":
            slots.close(vid)
            opened.discard(vid)
        elif step == "give_back":
            slots.give_back(vid)
            held.discard(vid)
        elif step == "forget":
            slots.forget(vid)
            held.discard(vid)
            opened.discard(vid)
            used.pop(vid, None)
        else:
            taken, given_up = slots.take(vid, now)
            if vid in held or len(held) < MOST:
                assert (taken, given_up) == (True, None)
            elif taken:
                assert given_up in held
                assert rank(given_up) == min(map(rank, held))
                assert rank(given_up) < rank(vid)
                held.discard(given_up)
            else:
                before = [each for each in VIDS if rank(each) > rank(vid)]
                assert all(rank(each) >= rank(vid) for each in held) or len(before) >= MOST
            if taken:
                held.add(vid)
        assert len(slots) == len(held) <= MOST
        assert {each for each in VIDS if each in slots} == held


def test_the_others_have_their_turns_so_many_a_second_the_longest_waiting_first() -> None:
    slots = PollSlots(1, 2.0)
    assert [slots.take(vid, 0.0)[0] for vid in VIDS[:4]] == [True, False, False, False]
    seen: list[tuple[float, bytes]] = []
    for tenths in range(100, 130):
        now = tenths / 10
        while (vid := slots.turn(now)) is not None:
            seen.append((now, vid))
            assert not slots.take(vid, now)[0]
    order = [vid for _, vid in seen]
    assert order == (VIDS[1:4] * 4)[: len(order)]
    burst = [vid for now, vid in seen if now == 10.0]
    assert len(burst) <= 3, "what was not asked meanwhile isn't made up for"
    assert len(order) - len(burst) == 5, "two a second, for less than three seconds"


def test_a_program_that_reads_thousands_takes_few_from_those_that_had_one() -> None:
    slots, asked, waiting, now = PollSlots(MOST, 1.0, 5.0), list[bytes](), list[bytes](), 0.0
    volumes = [number.to_bytes(2, "big") for number in range(2000)]
    for number, vid in enumerate(volumes):
        now = number / 100
        slots.open(vid, now)
        slots.close(vid)
        waiting.append(vid)
        due = [each for each in waiting if slots.may_take(each, now)]
        waiting = [each for each in waiting if each not in due]
        asked += [each for each in due if slots.take(each, now)[0]]
    now += 1.0
    asked += [each for each in waiting if slots.may_take(each, now) and slots.take(each, now)[0]]
    assert asked == [*volumes[:MOST], *volumes[-MOST:]]


def test_one_that_is_open_takes_anothers_after_a_moment() -> None:
    slots = PollSlots(1)
    for number in (0, 1):
        slots.open(VIDS[number], float(number))
    assert slots.may_take(VIDS[0], 1.0)
    assert slots.take(VIDS[0], 1.0)[0]
    assert not slots.may_take(VIDS[1], 1.5)
    slots.use(VIDS[1], 2.4)
    assert slots.may_take(VIDS[1], 2.5)
    assert slots.take(VIDS[1], 2.5) == (True, VIDS[0])


def test_where_only_what_was_used_lately_has_turns_nothing_else_is_waited_for() -> None:
    slots = PollSlots(MOST, 1.0, 60.0)
    assert slots.take(VIDS[0], 0.0) == (False, None)
    slots.use(VIDS[0], 1.0)
    assert slots.take(VIDS[0], 1.0) == (True, None)
    assert slots.turn(100.0) is None


def test_what_is_open_has_turns_and_what_was_used_has_them_for_a_while() -> None:
    slots = PollSlots(1, 1.0, 60.0)

    def take(vid: bytes, now: float) -> None:
        _, given_up = slots.take(vid, now)
        if given_up is not None:
            slots.take(given_up, now)

    def heard_of(began: float, seconds: int = 30) -> set[bytes]:
        """Of those that have no slot."""
        found = set[bytes]()
        for second in range(seconds):
            now = began + second
            while (vid := slots.turn(now)) is not None:
                found.add(vid)
                take(vid, now)
        return found

    for number, vid in enumerate(VIDS):
        slots.open(vid, float(number))
        take(vid, float(number))
    assert heard_of(10.0) == {vid for vid in VIDS if vid not in slots}
    for vid in VIDS[2:]:
        slots.close(vid)
    assert heard_of(100.0) == set(VIDS[:2])
    assert VIDS[1] in slots, "what is open comes first"
    slots.use(VIDS[5], 130.0)
    take(VIDS[5], 130.0)
    assert heard_of(131.0) == {VIDS[0], VIDS[5]}
    assert heard_of(200.0) == {VIDS[0]}
