"""Names: a change lands whole or not at all, at the revisions its caller saw; against a dict."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from budwood.server.metastore.entry_draft import AlreadyStands, Drafted
from budwood.server.metastore.name_map import Gone, NameMap
from budwood.server.metastore.namespace_state import (
    Bound,
    Namespace,
    NamesState,
    apply_change,
    check_names,
    judge_change,
)
from budwood.server.metastore.sorted_map import SortedMap
from budwood.server.metastore.state import Refusal
from budwood.server.metastore.streams import Placed
from budwood.volume.errors import AlreadyExists, BadInput, Conflict, Corrupt, NotFound
from budwood.volume.ids import ClientId, VolumeId
from budwood.volume.records import NameChange, Tombstone
from budwood.volume.wire import NameList, NameRequest

VID = VolumeId.new(at_ms=1, noise=bytes(9))
ONE, TWO = (VolumeId.new(at_ms=2, noise=bytes([n] * 9)).raw for n in (1, 2))
ANN, BOB = (ClientId.new(at_ms=2, noise=bytes([n] * 9)).raw for n in (1, 2))


def bind(name: str, target: bytes = ONE, revision: int = 0, client: bytes = ANN, **more: Any) -> NameRequest:
    return NameRequest(op="bind", name=name, target=target, revision=revision, client=client, **more)


def move(name: str, new: str, revision: int = 0, new_revision: int = 0, client: bytes = ANN) -> NameRequest:
    return NameRequest(op="move", name=name, new=new, revision=revision, new_revision=new_revision, client=client)


def unbind(name: str, revision: int, client: bytes = ANN) -> NameRequest:
    return NameRequest(op="unbind", name=name, revision=revision, client=client)


def change(state: NamesState, request: NameRequest) -> NamesState | Refusal | AlreadyStands:
    check_names(request)
    judged = judge_change(state, request, 0)
    return apply_change(state, judged.record) if isinstance(judged, Drafted) else judged


def done(*requests: NameRequest) -> NamesState:
    state = NamesState(VID.raw)
    for request in requests:
        after = change(state, request)
        assert isinstance(after, NamesState), after
        state = after
    return state


def names(state: NamesState) -> dict[str, tuple[bytes, int]]:
    return {name: (bound.target, bound.revision) for name, bound in state.names.items()}


def refusal(state: NamesState, request: NameRequest) -> Exception:
    answer = change(state, request)
    assert isinstance(answer, Refusal), answer
    return answer.error


def test_a_name_is_bound_once_and_its_revision_is_the_changes_lsn() -> None:
    state = done(bind("a"), bind("b", TWO))
    assert names(state) == {"a": (ONE, 1), "b": (TWO, 2)}
    taken = refusal(state, bind("a", TWO))
    assert isinstance(taken, Conflict)
    assert taken.head == 1


def test_attributes_alone_are_changed_by_a_bind_over_the_same_target() -> None:
    state = done(bind("a", attributes={"mode": 1}), bind("a", revision=1, attributes={"mode": 2}))
    entry = state.lookup("a")
    assert entry is not None
    assert (entry.target, entry.revision, entry.attributes) == (ONE, 2, {"mode": 2})
    again = done(bind("a", attributes={"mode": 1}), bind("a", revision=1, attributes={"mode": 2}), move("a", "b", 2))
    entry = again.lookup("b")
    assert entry is not None
    assert entry.attributes == {"mode": 2}


def test_a_change_at_an_old_revision_conflicts() -> None:
    state = done(bind("a"), bind("a", TWO, revision=1))
    assert names(state) == {"a": (TWO, 2)}
    for request in (bind("a", revision=1), unbind("a", 1), move("a", "b", revision=1), bind("x", revision=3)):
        assert isinstance(refusal(state, request), Conflict)


def test_a_move_carries_everything_below_it_along() -> None:
    state = done(bind("d"), bind("d/x", TWO), bind("d/y/z"), bind("dd"), move("d", "e/f", revision=1))
    assert names(state) == {"e/f": (ONE, 5), "e/f/x": (TWO, 5), "e/f/y/z": (ONE, 5), "dd": (ONE, 4)}


def test_a_prefix_that_is_no_name_itself_moves_too() -> None:
    assert set(names(done(bind("d/x"), bind("d/y"), move("d", "e")))) == {"e/x", "e/y"}


def test_a_move_replaces_a_name_only_at_the_revision_that_was_seen() -> None:
    state = done(bind("a"), bind("b", TWO))
    assert isinstance(refusal(state, move("a", "b", revision=1)), Conflict)
    assert isinstance(refusal(state, move("a", "b", revision=1, new_revision=1)), Conflict)
    assert names(done(bind("a"), bind("b", TWO), move("a", "b", revision=1, new_revision=2))) == {"b": (ONE, 3)}


def test_a_move_is_refused_where_something_stands_below_its_end_or_nothing_at_its_beginning() -> None:
    state = done(bind("a"), bind("b/x"))
    assert isinstance(refusal(state, move("a", "b", revision=1)), AlreadyExists)
    assert isinstance(refusal(state, move("q", "r")), NotFound)
    assert isinstance(refusal(state, move("a", "a/b", revision=1)), BadInput)
    assert isinstance(refusal(state, move("a", "a", revision=1)), BadInput)
    assert set(names(done(bind("a/b"), bind("a/b/c"), move("a/b", "a", revision=1)))) == {"a", "a/c"}


@pytest.mark.parametrize(
    ("earlier", "request_"),
    [
        ([], bind("a")),
        ([bind("a")], bind("a", TWO, revision=1)),
        ([bind("a")], move("a", "b", revision=1)),
        ([bind("a/x")], move("a", "b")),
        ([bind("a")], unbind("a", 1)),
    ],
)
def test_a_repetition_is_told_what_it_did(earlier: list[NameRequest], request_: NameRequest) -> None:
    state = done(*earlier, request_)
    assert change(state, request_) == AlreadyStands(state.head)


def test_a_change_that_was_undone_meanwhile_is_no_repetition() -> None:
    """B3 for names: the same request by the same client, after another client took its result away, is a new change."""
    state = done(bind("a"), unbind("a", 1, client=BOB))
    assert isinstance(change(state, bind("a")), NamesState)
    state = done(bind("a/x"), move("a", "b"), move("b", "a", client=BOB))
    assert isinstance(change(state, move("a", "b")), NamesState)


def test_another_clients_or_another_targets_bind_is_no_repetition() -> None:
    state = done(bind("a"))
    assert isinstance(refusal(state, bind("a", client=BOB)), Conflict)
    assert isinstance(refusal(state, bind("a", attributes={"x": 1})), Conflict)


def test_unbinding_what_is_not_there_is_not_found() -> None:
    assert isinstance(refusal(done(), unbind("a", 0)), NotFound)


@pytest.mark.parametrize(
    "request_",
    [
        bind("a", b"short"),
        bind("/a"),
        bind("a", client=b"nobody"),
        bind("a", revision=-1),
        NameRequest(op="link", name="a"),
        move("a", ""),
    ],
)
def test_a_request_that_could_never_land_is_refused_at_once(request_: NameRequest) -> None:
    with pytest.raises(BadInput):
        check_names(request_)


def take(space: Namespace, record: NameChange | Tombstone) -> bool:
    return space.take(Placed(record, "entry", 1, 1))


def listed(space: Namespace, prefix: str, after: str, limit: int) -> NameList:
    """So few that nothing else runs meanwhile."""
    with pytest.raises(StopIteration) as answer:
        space.listed(prefix, after, limit).send(None)
    return cast("NameList", answer.value.value)


def test_names_are_listed_in_order_by_prefix_and_in_parts() -> None:
    space = Namespace(VID)
    for at, name in enumerate(["b", "a/1", "a/2", "a", "a0", "c"]):
        judged = judge_change(space.state, bind(name), at)
        assert isinstance(judged, Drafted)
        assert isinstance(judged.record, NameChange)
        assert take(space, judged.record)
    assert [entry.name for entry in listed(space, "", "", 100).entries] == ["a", "a/1", "a/2", "a0", "b", "c"]
    assert [entry.name for entry in listed(space, "a/", "", 100).entries] == ["a/1", "a/2"]
    first = listed(space, "a", "", 2)
    assert ([entry.name for entry in first.entries], first.next) == (["a", "a/1"], "a/1")
    rest = listed(space, "a", first.next, 2)
    assert ([entry.name for entry in rest.entries], rest.next) == (["a/2", "a0"], "")
    assert listed(space, "zz", "", 5).entries == ()


def test_a_record_that_cannot_be_is_damage() -> None:
    with pytest.raises(Corrupt):
        take(Namespace(VID), NameChange(vid=VID.raw, lsn=2, op="bind", touched=()))
    with pytest.raises(Corrupt):
        take(Namespace(VID), Tombstone(vid=VID.raw))


words = st.sampled_from(["a", "b", "a/b", "a/b/c", "b/c", "d"])


@given(st.lists(st.tuples(st.sampled_from(["bind", "move", "unbind"]), words, words, st.integers(0, 2)), max_size=40))
def test_names_behave_like_a_dict_of_paths(script: list[tuple[str, str, str, int]]) -> None:
    state, model = NamesState(VID.raw), dict[str, int]()
    revisions = dict[str, int]()
    for at, (op, name, new, stale) in enumerate(script):
        revision = max(revisions.get(name, 0) - (stale == 2), 0)
        request = NameRequest(
            op=op, name=name, revision=revision, new=new if op == "move" else "", client=ANN,
            new_revision=revisions.get(new, 0) if op == "move" else 0, target=ONE if op == "bind" else b"",
            attributes={"at": at} if op == "bind" else {},
        )  # fmt: skip
        before = names(state)
        after = change(state, request)
        if not isinstance(after, NamesState):
            assert names(state) == before
            continue
        state = after
        assert revision == revisions.get(name, 0), "a stale revision was accepted"
        if op == "bind":
            model[name] = at
        elif op == "unbind":
            del model[name]
        else:
            moved = {n: model.pop(n) for n in list(model) if n == name or n.startswith(name + "/")}
            assert moved
            model.pop(new, None)
            model.update({new + n[len(name) :]: value for n, value in moved.items()})
        revisions = {n: bound.revision for n, bound in state.names.items()}
        assert {n: bound.attributes["at"] for n, bound in state.names.items()} == model


def nodes(node: Any) -> set[int]:
    return {id(node)}.union(*(nodes(child) for child in getattr(node, "children", ())))


def test_a_rename_among_many_names_leaves_the_others_where_they_are() -> None:
    """DESIGN §5: renaming one name is O(log n), moving n is O(n)."""
    state = NamesState(VID.raw)
    standing = Bound(target=ONE, revision=1, attributes={}, time=1, token=b"")
    state = replace(state, names=NameMap(changes=SortedMap((f"in/{n:06}", standing) for n in range(50_000))))
    renamed = change(state, move("in/025000", "out", 1))
    assert isinstance(renamed, NamesState)
    assert len(nodes(renamed.names.changes.root) - nodes(state.names.changes.root)) <= 10
    moved = change(renamed, move("in", "there"))
    assert isinstance(moved, NamesState)
    assert len(moved.names) == 50_000
    assert moved.names.get("there/049999") is not None
    assert next(moved.below("in"), None) is None
    assert len(nodes(moved.names.changes.root)) < 2500


def test_a_change_is_worked_out_once_by_whoever_judged_it() -> None:
    space = Namespace(VID)
    judged = judge_change(space.state, bind("a"), 0)
    assert isinstance(judged, Drafted)
    after = space.apply(space.state, judged.record)
    space.take(Placed(judged.record, "key", 1, 1))
    assert space.state is after
    other = judge_change(space.state, bind("b"), 0)
    assert isinstance(other, Drafted)
    space.apply(NamesState(VID.raw, head=1, time=1), other.record)
    space.take(Placed(other.record, "key", 1, 2))
    assert list(space.state.names) == ["a", "b"], "what was judged on another state is no one's"


def test_a_move_makes_no_name_that_is_too_long() -> None:
    """Else a name grew without end, a move at a time, past what any edge takes."""
    deep = "/".join(["x" * 200] * 4)
    state = done(bind(f"a/{deep}"), bind("b"))
    assert "more than 1,024 bytes" in str(refusal(state, move("a", "y" * 221)))
    assert isinstance(change(state, move("a", "y" * 220)), NamesState)
    assert isinstance(change(state, move("b", "z" * 255, 2)), NamesState)


class Rolled:
    """As a rollup has names."""

    def __init__(self, names: dict[str, int]) -> None:
        self.names = names

    def get(self, name: str, /) -> int | None:
        return self.names.get(name)

    def between(self, start: str, end: str, /) -> Iterator[tuple[str, int]]:
        return ((name, at) for name, at in sorted(self.names.items()) if start <= name and (not end or name < end))


def test_a_name_that_was_taken_away_before_the_first_rollup_does_not_come_back_with_it() -> None:
    """It covers the bind, and not what came after."""
    names = NameMap[int]().put("a", 1).put("b", 2).put("d/e", 3).without("a", 4).spliced("d/", "d0", [], 5)
    after = names.over(Rolled({"a": 1, "b": 2, "d/e": 3}), lambda change: isinstance(change, Gone))
    assert list(after) == ["b"]
    assert (len(after), after.get("a"), after.get("d/e")) == (1, None, None)
