"""Changes of names whose answer was lost, or not recorded: what programs do to the entry before that is known happens
to it everywhere (docs/design/0129)."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from budwood.sync.name_table import NameTable
from budwood.sync.namespace import Namespace
from budwood.sync.tables import AskedChange, Txn
from budwood.volume import faults
from budwood.volume.calls import CHANGE_NAME, A, Call, Q
from budwood.volume.errors import AlreadyExists, BudwoodError, Forbidden, Unauthorized, Unavailable

from ...namespaces import DIRECTORY, FILE, Side, link, sync


@pytest.mark.parametrize("noted", [True, False])
def test_a_change_whose_answer_was_lost_may_be_sent_again_behind_others(ann: Side, noted: bool) -> None:
    """It was answered with its own revision, and was taken for one that the remote had lost."""
    ann.names.make_directory("a", DIRECTORY)
    ann.push()

    ann.names.make_link("link", link("a"))
    lose_the_answer(ann)
    if not noted:
        forget_what_was_asked(ann)
    ann.write("b", b"b").push()
    assert ann.names.push() == []
    assert ann.bound().keys() == {"a", "b", "link"}


MAKING: dict[str, Callable[[Namespace], object]] = {
    "a directory": lambda names: names.make_directory("d", DIRECTORY),
    "a link": lambda names: names.make_link("d", link("to")),
    "an empty file": lambda names: names.make_file("d", FILE),
}
THEN: dict[str, Callable[[Namespace], object]] = {
    "renamed": lambda names: names.move("d", "e"),
    "renamed into another": lambda names: names.move("d", "z/d"),
    "removed": lambda names: names.remove("d"),
    "replaced": lambda names: replace(names),
    "renamed back": lambda names: names.move("d", "c") if names.entry("d") else None,
}


def replace(names: Namespace) -> None:
    names.move("d", "e")
    names.make_file("d", FILE)


@pytest.mark.parametrize("answered", ["lost", "not recorded"])
@pytest.mark.parametrize("then", THEN)
@pytest.mark.parametrize("made", MAKING)
@pytest.mark.parametrize("change", ["made", "renamed", "removed"])
@pytest.mark.parametrize("pulled", [False, True])
def test_what_happens_to_an_entry_whose_change_was_not_answered_happens_to_it_everywhere(
    ann: Side, bob: Side, made: str, change: str, then: str, answered: str, pulled: bool
) -> None:
    """It was there by both of its names from then on, or was there again."""
    ann.names.make_directory("z", DIRECTORY)
    if change != "made":
        MAKING[made](ann.names)
    if change == "renamed":
        ann.names.move("d", "c")
    sync(ann, bob)
    if change == "made":
        MAKING[made](ann.names)
    elif change == "renamed":
        ann.names.move("c", "d")
    else:
        ann.names.remove("d")
    lose_the_answer(ann) if answered == "lost" else crash_before_it_is_recorded(ann)
    if change == "removed":
        MAKING[made](ann.names)
    THEN[then](ann.names)
    tree = ann.tree()
    if pulled:
        ann.pull()
        assert ann.tree() == tree
    sync(ann, bob)
    assert ann.tree() == bob.tree() == tree
    assert ann.bound().keys() == tree.keys()


@pytest.mark.parametrize("by", ["names", "volume"])
def test_a_file_that_was_renamed_before_its_name_was_answered_has_one_name(ann: Side, bob: Side, by: str) -> None:
    volume = ann.write("f", b"f")
    with losing_answers(ann), pytest.raises(Unavailable):
        volume.push()
    ann.names.move("f", "g")
    ann.names.push() if by == "names" else ann.edge.volume("g").push()
    assert ann.bound().keys() == {"g" if by == "names" else "f"}, "a volume's push moves no name, and adds none"
    sync(ann, bob)
    assert ann.bound().keys() == ann.tree().keys() == bob.tree().keys() == {"g"}


def test_what_another_home_made_of_an_unanswered_change_meanwhile_stays(ann: Side, bob: Side) -> None:
    ann.names.make_directory("d", DIRECTORY)
    lose_the_answer(ann)
    bob.pull()
    bob.names.move("d", "e")
    bob.push()
    sync(ann, bob)
    assert ann.tree() == bob.tree() == {"e": "directory"}


def test_a_change_that_never_arrived_is_made_and_what_became_of_it(ann: Side, bob: Side) -> None:
    ann.write("f", b"f")
    sync(ann, bob)
    ann.names.move("f", "g")
    with losing_answers(ann, arrives=False), pytest.raises(Unavailable):
        ann.push()
    ann.names.move("g", "h")
    assert ann.bound().keys() == {"f"}
    sync(ann, bob)
    assert ann.tree() == bob.tree() == {"h": "file"}


def test_of_a_change_that_was_refused_nothing_is_asked_again(ann: Side, bob: Side) -> None:
    ann.names.make_directory("z", DIRECTORY)
    sync(ann, bob)
    ann.names.make_link("d", link("ann"))
    bob.names.make_link("d", link("bob"))
    bob.push()
    ann.push()
    assert asked_of(ann) == ()


def test_of_a_name_that_was_taken_meanwhile_nothing_is_asked_again(ann: Side, bob: Side) -> None:
    """Ann knows the store's names, and so asks for one without looking."""
    ann.names.make_directory("z", DIRECTORY)
    sync(ann, bob)
    bob.write("f", b"bob").push()
    with pytest.raises(AlreadyExists):
        ann.write("f", b"ann").push()
    assert asked_of(ann) == ()


def asked_of(side: Side) -> tuple[AskedChange, ...]:
    with side.edge.environment.view() as txn:
        return NameTable(side.edge.environment, txn).asked()


def test_a_store_that_vanished_before_it_could_be_asked_again_is_no_empty_one(ann: Side, tmp_path: Path) -> None:
    ann.names.make_directory("d", DIRECTORY)
    ann.push()
    ann.names.make_directory("d/e", DIRECTORY)
    crash_before_it_is_recorded(ann)
    ann.edge.close()

    (tmp_path / "store").rename(tmp_path / "away")
    ann = Side(tmp_path / "ann", ann.edge.remote)
    for sync_names in (ann.push, ann.pull):
        with pytest.raises(Unavailable, match="bring it back"):
            sync_names()
    assert ann.tree() == {"d": "directory", "d/e": "directory"}
    ann.edge.close()

    (tmp_path / "away").rename(tmp_path / "store")
    ann = Side(tmp_path / "ann", ann.edge.remote)
    assert ann.push() == []
    assert ann.bound().keys() == {"d", "d/e"}
    ann.edge.close()


def test_a_name_that_was_settled_by_another_meanwhile_is_not_recorded_again(ann: Side, bob: Side) -> None:
    """As by a process that syncs the names while another waits for the answer of its push."""
    sync(ann, bob)

    def meanwhile() -> None:
        faults.disarm()
        ann.names.move("f", "g")
        assert ann.names.push() == []
        assert ann.bound().keys() == {"g"}

    faults.arm("names: remote changed, not recorded", meanwhile)
    ann.write("f", b"f").push()
    with ann.edge.environment.view() as txn:
        volume = NameTable(ann.edge.environment, txn).volume("g")
    assert volume is not None
    assert volume.bound == "g"
    sync(ann, bob)
    assert ann.bound().keys() == ann.tree().keys() == bob.tree().keys() == {"g"}


@pytest.mark.parametrize("error", [Unavailable("no route"), Unauthorized("expired"), Forbidden("revoked")])
def test_an_unanswered_change_is_not_forgotten_while_the_remote_is_out_of_reach(
    ann: Side, bob: Side, error: BudwoodError
) -> None:
    ann.names.make_directory("z", DIRECTORY)
    sync(ann, bob)
    ann.names.make_directory("d", DIRECTORY)
    lose_the_answer(ann)
    ann.names.move("d", "e")
    with failing_changes(ann, error):
        for each in (ann.names.push, ann.names.pull):
            with suppress(BudwoodError):
                each()
    sync(ann, bob)
    assert ann.bound().keys() == ann.tree().keys() == bob.tree().keys() == {"e", "z"}


def test_what_was_removed_while_the_remote_is_out_of_reach_stays_removed(ann: Side, bob: Side) -> None:
    ann.names.make_directory("z", DIRECTORY)
    sync(ann, bob)
    ann.names.make_directory("d", DIRECTORY)
    lose_the_answer(ann)
    ann.names.remove("d")
    for each in (ann.names.push, ann.names.pull):
        with failing_changes(ann, Unavailable("no route")), pytest.raises(Unavailable):
            each()
    sync(ann, bob)
    assert ann.bound().keys() == ann.tree().keys() == bob.tree().keys() == {"z"}


def test_whoever_may_not_change_names_any_more_still_hears_of_others(ann: Side, bob: Side) -> None:
    ann.names.make_directory("d", DIRECTORY)
    lose_the_answer(ann)
    bob.names.make_directory("b", DIRECTORY)
    bob.push()
    with failing_changes(ann, Forbidden("revoked")):
        assert ann.pull() == {"b"}


def test_of_several_unanswered_changes_each_is_found_out(ann: Side, bob: Side) -> None:
    """As of files that are pushed at once."""
    ann.names.make_directory("z", DIRECTORY)
    sync(ann, bob)
    for name in ("f", "g"):
        with losing_answers(ann), pytest.raises(Unavailable):
            ann.write(name, name.encode()).push()
        ann.names.remove(name)
    ann.pull()
    sync(ann, bob)
    assert ann.bound().keys() == ann.tree().keys() == bob.tree().keys() == {"z"}


def test_what_others_undid_before_it_could_be_asked_again_stays_undone(ann: Side, bob: Side) -> None:
    ann.names.make_directory("d", DIRECTORY)
    lose_the_answer(ann)
    with failing_changes(ann, Forbidden("revoked")):
        ann.pull()
    bob.pull()
    bob.names.remove("d")
    bob.push()
    assert ann.bound() == {}
    ann.pull()
    sync(ann, bob)
    assert not ann.bound()
    assert ann.tree() == bob.tree() == {}


def test_what_was_forbidden_in_the_first_place_is_not_asked_again(ann: Side) -> None:
    ann.names.make_directory("d", DIRECTORY)
    with failing_changes(ann, Forbidden("read only")), pytest.raises(Forbidden):
        ann.names.push()
    with ann.edge.environment.view() as txn:
        assert NameTable(ann.edge.environment, txn).asked() == ()


def test_an_unanswered_alias_is_no_rename(ann: Side) -> None:
    volume = ann.write("f", b"f")
    with losing_answers(ann), pytest.raises(Unavailable):
        volume.push(as_name="g")
    ann.push()
    ann.pull()
    assert ann.bound().keys() == {"g"}
    assert "f" in ann.tree()


@pytest.mark.parametrize("then", ["swapped back", "removed", "left so"])
def test_what_was_moved_aside_without_an_answer_has_its_own_name_again(ann: Side, bob: Side, then: str) -> None:
    """Whether or not it was found out that it was."""
    for name in ("a", "b"):
        ann.write(name, name.encode())
    sync(ann, bob)
    swap(ann, "a", "b")
    lose_the_answer(ann)
    forget_what_was_asked(ann)
    bob.pull()
    assert any("(moving" in name for name in bob.tree())
    if then == "swapped back":
        swap(ann, "a", "b")
    elif then == "removed":
        for name in ("a", "b"):
            ann.names.remove(name)
    tree = ann.tree()
    ann.pull()
    for _ in range(2):
        sync(ann, bob)
    assert ann.tree() == bob.tree() == tree
    assert ann.bound().keys() == tree.keys()
    assert {name: bob.read(name) for name in tree} == {name: ann.read(name) for name in tree}


def swap(side: Side, one: str, other: str) -> None:
    side.names.move(one, "swapping")
    side.names.move(other, one)
    side.names.move("swapping", other)


@contextmanager
def losing_answers(side: Side, *, arrives: bool = True) -> Generator[None]:
    """Of changes of names."""
    remote = side.edge.connection().remote
    ask = remote.ask

    def deaf(call: Call[Q, A], request: Q) -> A:
        if call.name != CHANGE_NAME.name:
            return ask(call, request)
        if arrives:
            ask(call, request)
        raise Unavailable("the answer is lost", determinate=False)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(remote, "ask", deaf)
        yield


@contextmanager
def failing_changes(side: Side, error: BudwoodError) -> Generator[None]:
    remote = side.edge.connection().remote
    ask = remote.ask

    def fail(call: Call[Q, A], request: Q) -> A:
        if call.name == CHANGE_NAME.name:
            raise error
        return ask(call, request)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(remote, "ask", fail)
        yield


def lose_the_answer(side: Side) -> None:
    with losing_answers(side), pytest.raises(Unavailable):
        side.push()


def forget_what_was_asked(side: Side) -> None:
    """As a version that noted nothing."""
    environment = side.edge.environment

    def forget(txn: Txn) -> None:
        names = NameTable(environment, txn)
        for asked in names.asked():
            names.forget_asked(asked)

    environment.update(forget)


def crash_before_it_is_recorded(side: Side) -> None:
    def cut() -> None:
        raise faults.Cut

    faults.arm("names: remote changed, not recorded", cut)
    with pytest.raises(faults.Cut):
        side.push()
    faults.disarm()
