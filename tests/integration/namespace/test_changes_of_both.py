"""What two homes do to the same names at once: swaps, moves, saves and removals, of which nothing gets lost.

docs/design/0130.
"""

from __future__ import annotations

import stat

import msgspec
import pytest

from budwood.volume import faults

from ...namespaces import DIRECTORY, FILE, PAGE, Side, sync


def test_names_that_were_swapped_arrive_swapped(ann: Side, bob: Side) -> None:
    for name in ("a", "b", "c"):
        ann.write(name, name.encode())
    sync(ann, bob)
    ann.names.move("a", "x")
    ann.names.move("b", "a")
    ann.names.move("c", "b")
    ann.names.move("x", "c")
    ann.push()
    bob.pull()
    assert {name: bob.read(name) for name in bob.tree()} == {"a": b"b", "b": b"c", "c": b"a"}
    assert sorted(ann.bound()) == ["a", "b", "c"]


def test_names_that_both_swapped_with_others_lead_to_one_file_each(ann: Side, bob: Side) -> None:
    for name in ("a", "b", "c"):
        ann.write(name, name.encode())
    sync(ann, bob)
    for side, other in ((ann, "c"), (bob, "b")):
        side.names.move("a", "swapping")
        side.names.move(other, "a")
        side.names.move("swapping", other)
    sync(ann, bob)
    sync(ann, bob)
    files = {name: ann.read(name) for name in ann.tree()}
    assert sorted(files.values()) == [b"a", b"b", b"c"]
    assert files == {name: bob.read(name) for name in bob.tree()}
    assert sorted(ann.bound()) == sorted(files)


def test_a_directory_that_both_renamed_while_something_stays_in_it_has_one_name(ann: Side, bob: Side) -> None:
    ann.names.make_directory("d", DIRECTORY)
    ann.write("d/x", b"x")
    sync(ann, bob)
    ann.names.move("d", "f")
    ann.names.move("f/x", "d/x")

    def meanwhile() -> None:
        faults.disarm()
        bob.names.move("d/x", "x")
        bob.names.move("d", "g")
        bob.push()

    faults.arm("names: remote changed, not recorded", meanwhile)
    ann.push()
    for _ in range(2):
        sync(ann, bob)
    assert ann.tree() == bob.tree()
    assert sorted(ann.tree().values()) == ["directory", "file"]
    assert ann.bound().keys() == ann.tree().keys()


def test_two_files_of_one_name_are_both_kept(ann: Side, bob: Side) -> None:
    ann.write("f", b"ann")
    bob.write("f", b"bob")
    bob.names.make_directory("g", DIRECTORY)
    ann.write("g", b"file")
    ann.push()
    said = bob.push()
    assert len(said) == 2 or said == [], said
    ann.pull()
    files = {name: ann.read(name) for name, kind in ann.tree().items() if kind == "file"}
    assert sorted(files.values()) == [b"ann", b"bob", b"file"]
    assert files["f"] == b"ann"
    assert {name.split(" (conflict ")[0] for name in ann.tree()} == {"f", "g"}
    assert ann.tree() == bob.tree()


def test_two_directories_of_one_name_are_one(ann: Side, bob: Side) -> None:
    for side in (ann, bob):
        side.names.make_directory("d", DIRECTORY)
    ann.write("d/ann", b"a")
    bob.write("d/bob", b"b")
    sync(ann, bob)
    assert ann.tree() == bob.tree() == {"d": "directory", "d/ann": "file", "d/bob": "file"}
    assert ann.entry("d").vid == bob.entry("d").vid


def test_a_refused_move_becomes_a_move_to_a_conflict_name(ann: Side, bob: Side) -> None:
    ann.write("f", b"f")
    sync(ann, bob)
    ann.write("g", b"g")
    ann.push()
    bob.names.move("f", "g")
    said = bob.push()
    assert len(said) == 1
    assert "'g (conflict " in said[0]
    ann.pull()
    files = {name: ann.read(name) for name in ann.tree()}
    assert (len(files), files["g"], sorted(files.values())) == (2, b"g", [b"f", b"g"])
    assert sorted(ann.bound()) == sorted(files)


def test_a_file_that_was_removed_here_and_renamed_there_is_here_again(ann: Side, bob: Side) -> None:
    ann.write("f", b"f")
    sync(ann, bob)
    assert bob.read("f") == b"f"
    bob.names.remove("f")
    ann.names.move("f", "g")
    ann.push()
    sync(bob, ann)
    assert bob.tree() == ann.tree() == {"g": "file"}
    assert bob.read("g") == b"f"


@pytest.mark.parametrize("content", [b"", b"old"], ids=["empty", "not empty"])
@pytest.mark.parametrize("removed_first", [True, False])
@pytest.mark.parametrize("moved", [True, False])
def test_a_file_that_was_written_there_is_here_again_though_it_was_removed_here(
    ann: Side, bob: Side, content: bytes, removed_first: bool, moved: bool
) -> None:
    ann.names.make_directory("d", DIRECTORY)
    if content:
        ann.write("d/log", content)
    else:
        ann.names.make_file("d/log", FILE)
    sync(ann, bob)
    if moved:
        ann.names.move("d", "e")
    ann.names.remove("e/log" if moved else "d/log")
    if removed_first:
        ann.push()
    bob.write("d/log", b"new")
    if content:
        # As a mount does it. Where its size is another that is told in any case.
        bob.names.set_attributes("d/log", msgspec.structs.replace(FILE, mtime_ns=6))
    bob.push()
    sync(ann, bob)
    sync(ann, bob)
    assert ann.tree() == bob.tree()
    assert ann.read("d/log") == bob.read("d/log") == b"new"


def test_a_file_that_was_empty_here_makes_way_for_none_once_it_has_content_there(ann: Side, bob: Side) -> None:
    ann.names.make_file("log", FILE)
    sync(ann, bob)
    bob.names.adopt("log")
    ann.write("log", b"text")
    ann.names.make_file("taken", FILE)
    ann.push()
    bob.names.move("log", "taken")
    for _ in range(3):
        sync(bob, ann)
    assert ann.tree() == bob.tree()
    assert b"text" in {side.read(name) for side in (ann, bob) for name in side.tree()}


def test_the_mode_that_one_gives_and_the_size_that_the_other_writes_both_stay(ann: Side, bob: Side) -> None:
    """The size was taken back with the mode: who had only the name took the file for empty."""
    ann.names.make_file("f", FILE)
    sync(ann, bob)
    ann.write("f", b"text")
    before = bob.entry("f").attributes
    bob.names.set_attributes("f", msgspec.structs.replace(before, mode=stat.S_IFREG | 0o600))
    sync(ann, bob)
    for side in (ann, bob):
        attributes = side.entry("f").attributes
        assert (attributes.size, attributes.mode & 0o777) == (PAGE, 0o600)


@pytest.mark.parametrize("kind", ["file", "directory"])
def test_what_is_swapped_has_a_name_all_the_while(ann: Side, bob: Side, kind: str) -> None:
    for name in ("a", "b"):
        if kind == "file":
            ann.write(name, name.encode())
        else:
            ann.names.make_directory(name, DIRECTORY)
            ann.write(f"{name}/{name}", name.encode())
    sync(ann, bob)
    files = {entry.vid for entry in ann.names.entries()}
    for old, new in (("a", "swapping"), ("b", "a"), ("swapping", "b")):
        ann.names.move(old, new)
    looked: list[set[str]] = []

    def look() -> None:
        bob.pull()
        assert {entry.vid for entry in bob.names.entries()} == files
        assert len(bob.tree()) == len(files)
        looked.append(set(bob.tree()))

    faults.arm("names: remote changed, not recorded", look)
    assert ann.push() == []
    faults.disarm()
    bob.pull()
    assert bob.tree() == ann.tree()
    assert [len(names & set(ann.tree())) for names in looked] == ([1, 1, 2] if kind == "file" else [1, 2, 4])


def test_what_came_into_a_directory_that_is_renamed_elsewhere_keeps_its_name(ann: Side, bob: Side) -> None:
    """It went along with the directory; its name was bound to what was thought to be in there, and it had none."""
    ann.names.make_directory("d", DIRECTORY)
    for name in ("a", "d/a"):
        ann.write(name, name.encode())
    sync(ann, bob)
    for old, new in (("a", "swapping"), ("d/a", "a"), ("swapping", "d/a")):
        bob.names.move(old, new)
    bob.push()
    ann.names.set_attributes("d/a", msgspec.structs.replace(FILE, mtime_ns=6))
    ann.names.move("d", "e")
    sync(ann, bob)
    assert ann.tree() == bob.tree() == {"a": "file", "e": "directory", "e/a": "file"}
    for side in (ann, bob):
        assert [side.read(name) for name in ("a", "e/a")] == [b"d/a", b"a"]


def test_what_waits_for_the_name_of_one_that_is_not_pushed_ends(ann: Side, bob: Side) -> None:
    for name in "abc":
        ann.write(name, name.encode())
    sync(ann, bob)
    ann.edge.volume("c").set_mode("pull")
    for old, new in (("c", "d"), ("b", "c"), ("a", "b")):
        ann.names.move(old, new)
    for _ in range(2):
        sync(ann, bob)
    ann.edge.volume("d").set_mode("both")
    for _ in range(2):
        sync(ann, bob)
    assert ann.tree() == bob.tree()
    assert [bob.read(name) for name in "bcd"] == [b"a", b"b", b"c"]


@pytest.mark.parametrize("before", [b"", b"long before"])
def test_what_was_written_to_a_file_that_is_replaced_elsewhere_stays(ann: Side, bob: Side, before: bytes) -> None:
    """Its content was there first; whoever replaced it bound its own over it, without having seen that."""
    ann.names.make_file("f", FILE)
    if before:
        ann.write("f", before)
    sync(ann, bob)
    bob.write("saving", b"bob")
    bob.names.move("saving", "f", replace=True)
    ann.write("f", b"ann")
    ann.names.set_attributes("f", msgspec.structs.replace(FILE, mtime_ns=6))
    for _ in range(2):
        sync(ann, bob)
    assert ann.tree() == bob.tree()
    assert len(ann.tree()) == 2
    contents = [{side.read(name)[:3] for name in side.tree()} for side in (ann, bob)]
    assert contents == [{b"ann", b"bob"}] * 2


def test_a_file_that_its_own_writer_replaces_leaves_nothing_with_others_who_have_read_it(ann: Side, bob: Side) -> None:
    """It was empty when it was named, and its size isn't told yet when a program saves another over it."""
    ann.names.make_file("f", FILE)
    sync(ann, bob)
    ann.write("f", b"first").push()
    bob.edge.volume("f").pull()
    assert bob.read("f") == b"first"
    ann.write("saving", b"second")
    ann.names.move("saving", "f", replace=True)
    for _ in range(2):
        sync(ann, bob)
    assert ann.tree().keys() == bob.tree().keys() == {"f"}
    assert ann.read("f") == bob.read("f") == b"second"


def test_a_directory_that_became_part_of_another_has_no_name_of_its_own_any_more(ann: Side, bob: Side) -> None:
    """Here it took the other's name; it was here again by its old one, of which nothing was pushed ever after."""
    for name in ("a", "d", "d/a", "f", "f/a"):
        ann.names.make_directory(name, DIRECTORY)
    sync(ann, bob)
    for old, new in (("d/a", "swapping"), ("f/a", "d/a"), ("swapping", "f/a")):
        ann.names.move(old, new)
    ann.push()
    bob.names.remove("d/a")
    bob.names.move("a", "d/a")
    for _ in range(3):
        sync(bob, ann)
    assert ann.tree() == bob.tree()
    assert set(ann.tree()) == {"d", "d/a", "f", "f/a"} == set(ann.bound())
    bob.names.move("d/a", "b")
    sync(bob, ann)
    assert set(ann.tree()) == {"b", "d", "f", "f/a"}
