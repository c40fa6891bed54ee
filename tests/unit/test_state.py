"""The state of a stream: pure, deterministic, and a refusal changes nothing."""

from __future__ import annotations

import copy
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from budwood.server.metastore.state import Refusal, StreamState, apply, born
from budwood.volume.errors import AlreadyExists, BadInput, Conflict, Forgotten, NotFound, NotOwner
from budwood.volume.ids import VolumeId
from budwood.volume.records import (
    Birth,
    Close,
    Collect,
    Collected,
    Commit,
    Fold,
    FoldRelocating,
    Fork,
    NameChange,
    Open,
    Record,
    Since,
    Tombstone,
    settled_by,
)

VID = VolumeId.new(at_ms=1, noise=bytes(9)).raw
CHILD = VolumeId.new(at_ms=2, noise=bytes(9)).raw


def commit(
    base: int, *, time: int, client: bytes = b"c", token: bytes = b"t", length: int = 0, **changes: Any
) -> Commit:
    values: dict[str, Any] = {
        "vid": VID, "lsn": base + 1, "base": base, "length": length, "floor": 0, "pages": b"", "client": client,
        "token": token, "nonce": b"", "content": b"", "setsum": b"", "time": time,
    }  # fmt: skip
    return Commit(**{**values, **changes})


def start(**changes: Any) -> StreamState:
    return born(msgspec.structs.replace(Birth(vid=VID, page_size=4096, log="main", time=5), **changes))


def done(state: StreamState, *records: Record) -> StreamState:
    for record in records:
        after = apply(state, record)
        assert isinstance(after, StreamState), after
        state = after
    return state


def refused(state: StreamState, record: Record) -> Refusal:
    answer = apply(state, record)
    assert isinstance(answer, Refusal)
    return answer


def test_a_commit_on_the_head_makes_the_next_lsn() -> None:
    state = done(start(), commit(0, time=6, length=4096), commit(1, time=7, length=8192, floor=4096))
    assert (state.head, state.length, state.time) == (2, 8192, 7)


@pytest.mark.parametrize(("base", "final"), [(0, True), (1, True), (3, False), (9, False)])
def test_a_commit_on_any_other_base_conflicts_and_says_where_the_head_is(base: int, final: bool) -> None:
    """S2.6, S3.13. A base below the head is too old for ever; one above it may only be unknown here yet."""
    state = done(start(), commit(0, time=6), commit(1, time=7))
    answer = refused(state, commit(base, time=8))
    assert isinstance(answer.error, Conflict)
    assert answer.error.head == 2
    assert answer.final is final


@pytest.mark.parametrize(
    "changes", [{"lsn": 3}, {"time": 6}, {"floor": 1}, {"floor": -1}, {"time": 0}, {"length": 10, "floor": 5}]
)
def test_a_commit_that_cannot_be_is_refused(changes: dict[str, int]) -> None:
    state = done(start(), commit(0, time=6))
    answer = refused(state, msgspec.structs.replace(commit(1, time=7), **changes))
    assert isinstance(answer.error, BadInput)


def test_a_token_is_known_only_with_its_client_and_a_client_only_with_its_token() -> None:
    """B3: a client's other commit is not its last one again."""
    state = done(start(), commit(0, time=6, client=b"a", token=b"1"), commit(1, time=7, client=b"b", token=b"2"))
    first = state.twin(b"a", b"1")
    assert first is not None
    assert (first.lsn, first.time) == (1, 6)
    assert state.twin(b"a", b"2") is None
    assert state.twin(b"b", b"1") is None
    assert state.twin(b"c", b"1") is None


def test_a_closed_stream_takes_nothing_but_the_open_that_continues_it() -> None:
    state = done(start(), commit(0, time=6, length=100), Close(vid=VID, to="other", head=1, length=100))
    for record in (commit(1, time=7), Fork(vid=VID, child=CHILD, lsn=1), Close(vid=VID, to="x", head=1, length=100)):
        error = refused(state, record).error
        assert isinstance(error, NotOwner)
        assert error.log == "other"
    assert isinstance(refused(state, Open(vid=VID, log="main", slot=1, head=2, length=100)).error, Conflict)
    state = done(state, Open(vid=VID, log="main", slot=1, head=1, length=100), commit(1, time=7))
    assert isinstance(refused(state, Open(vid=VID, log="main", slot=1, head=2, length=0)).error, AlreadyExists)


def test_a_close_must_know_the_head() -> None:
    state = done(start(), commit(0, time=6))
    assert isinstance(refused(state, Close(vid=VID, to="other", head=0, length=0)).error, Conflict)


def test_a_finished_volume_takes_nothing() -> None:
    state = done(start(), Tombstone(vid=VID))
    for record in (commit(0, time=6), Tombstone(vid=VID), Open(vid=VID, log="main", slot=1, head=0, length=0)):
        answer = refused(state, record)
        assert isinstance(answer.error, NotFound)
        assert answer.final


def test_a_fork_names_an_lsn_that_stands_and_keeps_it() -> None:
    state = done(start(), commit(0, time=6), Fork(vid=VID, child=CHILD, lsn=1), Fork(vid=VID, child=CHILD, lsn=1))
    assert state.forks.get(CHILD) == 1
    assert isinstance(refused(state, Fork(vid=VID, child=VID, lsn=2)).error, NotFound)
    assert isinstance(refused(state, Fork(vid=VID, child=CHILD, lsn=0)).error, AlreadyExists)


def test_a_forks_numbers_go_on_from_its_parents() -> None:
    state = start(parent=CHILD, parent_lsn=7, parent_length=300)
    assert (state.head, state.length) == (7, 300)
    assert done(state, commit(7, time=6, floor=300, length=400)).head == 8


def since(to: int) -> Since:
    return Since(vid=VID, since=to)


def collect(to: int) -> Collect:
    return Collect(vid=VID, since=to)


def collected(to: int) -> Collected:
    return Collected(vid=VID, since=to)


FOUR = tuple(commit(base, time=6 + base) for base in range(4))
PAST = [
    ((), since(1), BadInput), ((), since(5), NotFound), ((since(3),), since(2), BadInput),
    ((since(3),), since(3), BadInput), ((), collect(2), NotFound), ((since(3),), collect(4), NotFound),
    ((since(3), collect(3)), collect(3), BadInput), ((since(3), collect(2)), collected(3), NotFound),
    ((since(3), collect(3), collected(3)), collected(2), BadInput), ((since(3),), collected(1), NotFound),
]  # fmt: skip


@pytest.mark.parametrize(("before", "record", "error"), PAST)
def test_since_collect_and_collected_only_grow_each_up_to_the_one_before(
    before: tuple[Record, ...], record: Record, error: type[Exception]
) -> None:
    """S3.15: collected <= collect <= since <= head."""
    assert isinstance(refused(done(start(), *FOUR, *before), record).error, error)


def test_since_collect_and_collected_are_kept() -> None:
    state = done(start(), *FOUR, since(2), since(4), collect(4), collected(3), collected(4), commit(4, time=30))
    assert (state.since, state.collect, state.collected, state.head) == (4, 4, 4, 5)


def test_a_finished_volume_may_forget_even_its_head_and_no_other_may() -> None:
    """Then since and upper come together."""
    state = done(start(), *FOUR)
    assert isinstance(refused(state, since(5)).error, NotFound)
    state = done(state, Tombstone(vid=VID), since(5), collect(5), collected(5))
    assert (state.since, state.head + 1) == (5, 5)
    assert isinstance(refused(state, since(6)).error, NotFound)


def test_a_fork_of_what_may_be_collected_is_refused_unless_something_held_it() -> None:
    """B11: what the log says first counts."""
    state = done(start(), *FOUR, Fork(vid=VID, child=CHILD, lsn=1), since(4), collect(3))
    other = VolumeId.new().raw
    answer = refused(state, Fork(vid=VID, child=other, lsn=2))
    assert isinstance(answer.error, Forgotten)
    assert answer.final
    for fork in (Fork(vid=VID, child=other, lsn=1), Fork(vid=VID, child=other, lsn=2, pin=b"p"),
                 Fork(vid=VID, child=other, lsn=3)):  # fmt: skip
        assert done(state, fork).forks.get(other) == fork.lsn


def test_what_was_forgotten_moves_with_the_stream() -> None:
    state = done(start(), *FOUR, since(3), collect(2), Close(vid=VID, to="other", head=4, length=0))
    assert isinstance(refused(state, since(4)).error, NotOwner)
    moved = Open(vid=VID, log="main", slot=1, head=4, length=0, since=3, collect=2)
    for changes in ({"since": 2}, {"collect": 0}, {"collected": 1}):
        assert isinstance(refused(state, msgspec.structs.replace(moved, **changes)).error, BadInput)
    assert done(state, moved, since(4)).collect == 2


def test_records_of_another_kind_or_volume_are_refused() -> None:
    names = NameChange(vid=VID, lsn=1, op="bind", touched=())
    assert isinstance(refused(start(), names).error, BadInput)
    assert isinstance(refused(start(), commit(0, time=6, vid=CHILD)).error, BadInput)


few = st.integers(0, 6)


@st.composite
def commits(draw: st.DrawFn) -> Commit:
    base, client = draw(few), draw(st.sampled_from([b"a", b"b"]))
    length, floor = draw(st.integers(0, 3)), draw(st.integers(0, 3))
    return commit(base, time=draw(st.integers(0, 40)), client=client, token=b"%d" % base, length=length, floor=floor)


records: st.SearchStrategy[Record] = st.one_of(
    commits(),
    st.builds(Close, vid=st.just(VID), to=st.just("other"), head=few, length=st.just(0)),
    st.builds(Open, vid=st.just(VID), log=st.just("main"), slot=st.just(3), head=few, length=st.just(0)),
    st.builds(Fork, vid=st.just(VID), child=st.just(CHILD), lsn=few),
    *(st.builds(kind, vid=st.just(VID), since=few) for kind in (Since, Collect, Collected)),
)


@given(st.lists(records, max_size=40))
def test_applying_is_deterministic_and_a_refusal_changes_nothing(script: list[Record]) -> None:
    """S3.24: each transition is a function; the accepted records alone lead to the same state; LSNs have no gaps."""
    state, accepted = start(), list[Record]()
    for record in script:
        before = copy.deepcopy(state)
        after = apply(state, record)
        assert repr(apply(state, record)) == repr(after)
        assert state == before
        if isinstance(after, StreamState):
            accepted.append(record)
            state = after
    assert done(start(), *accepted) == state
    commits = [record for record in accepted if isinstance(record, Commit)]
    assert [record.lsn for record in commits] == list(range(1, state.head + 1))
    assert all(a.time < b.time for a, b in pairwise(commits))
    assert state.collected <= state.collect <= state.since <= max(state.head, 1)


def fold(base: int, lsn: int, relocated: int = 0) -> Fold:
    """The one after the fold of that number."""
    values: dict[str, Any] = {"vid": VID, "checkpoint": str(base + 1), "base": str(base) if base else "", "lsn": lsn}
    return FoldRelocating(relocated=relocated, **values) if relocated else Fold(**values)


def test_what_has_left_its_entries_never_comes_back() -> None:
    """Else a commit would be looked for where a collector has been."""
    state = done(start(), *(commit(base, time=base + 6) for base in range(6)), fold(0, 0, relocated=4))
    assert settled_by(state.fold) == 4
    for record in (fold(1, 0), fold(1, 0, relocated=3), fold(1, 0, relocated=7)):
        assert "can't relocate" in str(refused(state, record).error)
    assert settled_by(done(state, fold(1, 0, relocated=6)).fold) == 6
    state = done(state, Since(vid=VID, since=5), Collect(vid=VID, since=5))
    assert settled_by(done(state, fold(1, 5)).fold) == 5
    assert "can't relocate" in str(refused(state, fold(1, 3)).error)


def test_a_fold_begins_with_the_checkpoint_that_stands() -> None:
    """However far it goes: what the newer checkpoint has would be left out."""
    state = done(start(), *(commit(base, time=base + 6) for base in range(6)))
    state = done(state, Since(vid=VID, since=5), Collect(vid=VID, since=5), fold(0, 3), fold(1, 4))
    for begun in (0, 1, 3):
        told = refused(state, fold(begun, 5))
        assert isinstance(told.error, Conflict)
        assert told.final
        assert "was folded by another meanwhile" in str(told.error)
    assert done(state, fold(2, 5)).fold == fold(2, 5)
