"""Names that this home binds while it pulls those of others: neither waits for the other, and nothing is lost."""

from __future__ import annotations

import random
import threading
from typing import Any

import pytest

from budwood.sync import names_delta, names_pull
from budwood.sync.connection import Connection
from budwood.sync.name_table import NameTable, followed
from budwood.sync.tables import NamespaceRecord
from budwood.volume import faults
from budwood.volume.errors import AlreadyExists, Busy

from ...namespaces import DIRECTORY, Side, sync
from ...waits import LIMIT_SECONDS

GATHERED = "names: gathered, not merged"
ANSWERED = "names: remote changed, not recorded"


def record(side: Side) -> NamespaceRecord:
    with side.edge.environment.view() as txn:
        found = NameTable(side.edge.environment, txn).namespace()
    assert found is not None
    return found


def known(side: Side) -> dict[str, bytes]:
    with side.edge.environment.view() as txn:
        return {row.name: row.target for row in NameTable(side.edge.environment, txn).known()}


def pull_while(side: Side, meanwhile: list[tuple[str, bytes]]) -> set[str]:
    """What changed; between the remote's answer and the merge, new volumes are pushed."""

    def push() -> None:
        for name, text in meanwhile:
            side.write(name, text).push()

    faults.arm(GATHERED, push)
    return side.pull()


def test_a_volume_that_is_pushed_while_names_are_pulled_keeps_its_name_and_others_arrive(ann: Side, bob: Side) -> None:
    ann.write("here", b"here").push()
    sync(ann, bob)
    bob.write("theirs", b"theirs").push()
    changed = pull_while(ann, [("new", b"new"), ("another", b"another")])
    assert "theirs" in changed
    assert ann.bound() == known(ann)
    assert set(ann.tree()) == {"here", "theirs", "new", "another"}
    head = record(ann)
    assert (head.head, head.seen, head.ahead) == (4, 4, ()), "all is known: nothing is asked again"
    assert ann.pull() == set()
    assert ann.push() == []
    sync(ann, bob)
    assert ann.tree() == bob.tree()


def test_a_name_that_others_gave_up_before_is_kept_by_who_took_it_meanwhile(ann: Side, bob: Side) -> None:
    bob.write("d/f", b"bob")
    sync(ann, bob)
    bob.names.remove("d/f")
    bob.push()
    ann.names.remove("d/f")
    assert pull_while(ann, [("d/f", b"ann")]) <= {"d/f"}
    assert ann.read("d/f") == b"ann"
    assert ann.bound() == known(ann) == {"d/f": ann.edge.volume("d/f").id.raw}
    sync(ann, bob)
    assert bob.read("d/f") == b"ann"


def test_where_the_remote_tells_all_names_those_that_are_newer_stay(
    ann: Side, bob: Side, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann.names.make_directory("before", DIRECTORY)
    sync(ann, bob)
    for number in range(4):
        bob.names.make_directory(f"d{number}", DIRECTORY)
    bob.push()
    monkeypatch.setattr("budwood.server.metastore.recent_changes.MOST_REMEMBERED", 1)
    begun, begin = list[names_delta.Delta](), names_delta.Delta.begin_anew

    def begin_anew(delta: names_delta.Delta) -> None:
        begun.append(delta)
        begin(delta)

    monkeypatch.setattr(names_delta.Delta, "begin_anew", begin_anew)
    pull_while(ann, [("new", b"new")])
    assert begun, "all of them were told"
    assert ann.bound() == known(ann)
    assert set(ann.tree()) == {"before", "d0", "d1", "d2", "d3", "new"}


@pytest.mark.parametrize("seed", range(25))
def test_whatever_is_bound_meanwhile_all_agree_in_the_end(ann: Side, bob: Side, seed: int) -> None:
    chance = random.Random(seed)
    names = ["a", "b", "d/a", "d/b", "d"]
    for step in range(12):
        side, other = chance.sample((ann, bob), 2)
        match chance.choice(["write", "remove", "move", "directory", "pull"]):
            case "write":
                if side.tree().get(name := chance.choice(names), "file") == "file" and f"{name}/a" not in side.tree():
                    side.write(name, f"{step}".encode())
            case "remove":
                files = [name for name, kind in side.tree().items() if kind == "file"]
                if files:
                    side.names.remove(chance.choice(files))
            case "move":
                files = [name for name, kind in side.tree().items() if kind == "file"]
                if files:
                    side.names.move(chance.choice(files), f"moved {step}")
            case "directory":
                if (name := f"made {step}") not in side.tree():
                    side.names.make_directory(name, DIRECTORY)
            case _:
                other.push()
                pull_while(side, [(f"new {step} {number}", b"new") for number in range(chance.randrange(3))])
                faults.disarm()
    sync(ann, bob)
    sync(ann, bob)
    assert ann.tree() == bob.tree()
    for side in (ann, bob):
        assert known(side) == side.bound()
        assert set(side.tree()) == set(side.bound())
        assert record(side).head == record(side).seen


def test_a_new_file_of_a_home_that_follows_the_names_asks_for_no_name(
    ann: Side, bob: Side, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann.names.make_directory("before", DIRECTORY)
    sync(ann, bob)
    remote = ann.edge.connection().remote
    ask, asked = remote.ask, list[str]()

    def noted(call: Any, request: Any) -> Any:
        asked.append(call.name)
        return ask(call, request)

    monkeypatch.setattr(remote, "ask", noted)
    ann.write("new", b"new").push()
    assert asked == ["create", "change_name"]
    # Where that isn't so any more, it is found out when the name is bound.
    bob.write("taken", b"bob").push()
    with pytest.raises(AlreadyExists, match="another volume by the name 'taken'"):
        ann.write("taken", b"ann").push()
    sync(ann, bob)
    assert ann.tree() == bob.tree()
    (own,) = [name for name in ann.tree() if name.startswith("taken (conflict")]
    assert [side.read(own) for side in (ann, bob)] == [b"ann", b"ann"]
    assert [side.read("taken") for side in (ann, bob)] == [b"bob", b"bob"]


def test_changes_without_a_gap_are_followed_and_few_behind_one_are_kept() -> None:
    assert followed(3, (4, 5, 6)) == (6, ())
    assert followed(3, (2, 6, 5)) == (3, (5, 6))
    assert followed(3, (6, 4, 5, 8)) == (6, (8,))
    head, left = followed(0, range(2, 1000))
    assert (head, left[0], len(left) < 100) == (0, 2, True)


@pytest.mark.parametrize("known_before", [True, False])
@pytest.mark.parametrize("then", ["saved again", "pushed again", "removed", "moved"])
def test_what_becomes_of_a_file_while_its_name_is_bound_and_pulled_stays(
    ann: Side, bob: Side, monkeypatch: pytest.MonkeyPatch, then: str, known_before: bool
) -> None:
    """A pull has begun when a push has the name bound, and hears of that before it is recorded here."""
    ann.write("z", b"z").push()
    if known_before:
        ann.write("f", b"first").push()
    sync(ann, bob)
    answered, merged = threading.Event(), threading.Event()

    def save(text: bytes) -> None:
        ann.write("saving", text)
        ann.names.move("saving", "f", replace=True)

    def bound() -> None:
        faults.disarm(ANSWERED)
        if then.endswith("again"):
            save(b"newest")
        elif then == "removed":
            ann.names.remove("f")
        else:
            ann.names.move("f", "g")
        answered.set()
        assert merged.wait(LIMIT_SECONDS)

    save(b"second")
    pushing = threading.Thread(target=ann.edge.volume("f").push)

    def gather(connection: Connection, before: NamespaceRecord | None) -> names_delta.Delta | None:
        faults.arm(ANSWERED, bound)
        pushing.start()
        assert answered.wait(LIMIT_SECONDS)
        return names_delta.gather(connection, before)

    with monkeypatch.context() as patched:
        patched.setattr(names_pull, "gather", gather)
        ann.pull()
    if then == "pushed again":
        ann.edge.volume("f").push()
    own = {"removed": set[str](), "moved": {"g"}}.get(then, {"f"})
    assert ann.tree().keys() == own | {"z"}
    merged.set()
    pushing.join()
    assert known(ann) == ann.bound()
    for _ in range(2):
        sync(ann, bob)
        assert ann.tree().keys() == bob.tree().keys() == set(ann.bound()) == own | {"z"}
    for name in own:
        assert ann.read(name) == bob.read(name) == (b"newest" if then.endswith("again") else b"second")


def test_a_file_in_the_place_of_one_that_was_renamed_waits_for_the_names_without_trouble(ann: Side, bob: Side) -> None:
    ann.write("f", b"first").push()
    sync(ann, bob)
    ann.names.move("f", "g")
    volume = ann.write("f", b"second")
    with pytest.raises(Busy, match="was renamed here"):
        volume.push()
    ann.names.push()
    volume.push()
    sync(ann, bob)
    assert {name: bob.read(name) for name in bob.tree()} == {"f": b"second", "g": b"first"}
