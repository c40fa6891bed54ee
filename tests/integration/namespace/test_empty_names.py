"""A name that has content is shown with it or not yet, and an untouched empty file never keeps it from its name.

Two homes over one store. A file with content gets its name once the remote has the content; an empty one, made and let
go, gets it as it is, and gives it up to whoever has content. Nothing that was written is lost by that.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from budwood.sync.volume import Volume
from budwood.volume import faults
from budwood.volume.errors import AlreadyExists
from budwood.volume.protocols import Durability

from ...namespaces import FILE, PAGE, Side, sync


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    faults.disarm()


def contents(side: Side) -> dict[str, bytes]:
    return {name: side.read(name) for name, kind in side.tree().items() if kind == "file"}


PUSH_POINTS = [
    "push: volume made on the remote, name not bound",
    "push: end captured, nothing sent",
    "push: token durable, commit not sent",
]


@pytest.mark.parametrize("point", PUSH_POINTS)
@pytest.mark.parametrize("names_too", [False, True])
def test_a_name_appears_when_its_content_is_there(ann: Side, bob: Side, point: str, names_too: bool) -> None:
    """Also where the names are pushed at that very moment."""
    volume = ann.write("f", b"ann")
    seen: list[set[str]] = []

    def look() -> None:
        faults.disarm(point)
        if names_too:
            ann.names.push()
        bob.names.pull()
        seen.append(set(bob.tree()))

    faults.arm(point, look)
    volume.push()
    assert seen == [set()]
    bob.names.pull()
    assert contents(bob) == {"f": b"ann"}


def test_a_crash_before_the_name_is_mended_by_the_next_push(ann: Side, bob: Side) -> None:
    volume = ann.write("f", b"ann")

    def cut() -> None:
        raise faults.Cut

    faults.arm("push: committed, its name not bound", cut)
    with pytest.raises(faults.Cut):
        volume.push()
    faults.disarm()
    assert ann.bound() == {}
    assert volume.push() == "1"
    assert ann.bound() == {"f": volume.id.raw}
    bob.pull()
    assert contents(bob) == {"f": b"ann"}


def test_a_name_that_is_taken_is_told_before_anything_is_sent(ann: Side, bob: Side) -> None:
    ann.write("f", b"ann").push()
    sent: list[str] = []
    faults.arm("push: end captured, nothing sent", lambda: sent.append("commit"))
    faults.arm("push: volume made on the remote, name not bound", lambda: sent.append("volume"))
    with pytest.raises(AlreadyExists, match="--as NEW"):
        bob.write("f", b"bob").push()
    assert sent == []


def test_an_empty_file_made_before_the_names_were_known_yields(ann: Side, bob: Side) -> None:
    bob.names.make_file("f", FILE)
    ann.write("f", b"ann")
    ann.push()
    assert bob.push() == []
    sync(ann, bob)
    assert contents(ann) == contents(bob) == {"f": b"ann"}
    assert list(ann.bound()) == ["f"]


@pytest.mark.parametrize("pulled", [False, True])
def test_content_takes_the_name_of_an_empty_file_that_came_first(ann: Side, bob: Side, pulled: bool) -> None:
    bob.names.make_file("f", FILE)
    bob.push()
    assert list(ann.bound()) == ["f"]
    volume = ann.write("f", b"ann") if not pulled else None
    if pulled:
        ann.pull()
        # It is the same file then, and no two.
        volume = ann.write("f", b"ann")
    assert ann.push() == []
    assert volume is not None
    assert ann.bound() == {"f": volume.id.raw}
    bob.pull()
    if pulled:
        bob.edge.volume("f").pull()
    assert contents(bob) == {"f": b"ann"}
    sync(ann, bob)
    assert contents(ann) == contents(bob) == {"f": b"ann"}


def test_a_push_without_the_names_takes_it_too(ann: Side, bob: Side) -> None:
    """As the command and the VFS push."""
    bob.names.make_file("f", FILE)
    bob.push()
    volume = ann.write("f", b"ann")
    assert volume.push() == "1"
    assert ann.bound() == {"f": volume.id.raw}


def test_two_empty_files_of_one_name_are_one(ann: Side, bob: Side) -> None:
    for side in (ann, bob):
        side.names.make_file("f", FILE)
    sync(ann, bob)
    assert ann.tree() == bob.tree() == {"f": "file"}
    assert ann.entry("f").vid == bob.entry("f").vid
    bob.write("f", b"bob")
    sync(bob, ann)
    ann.edge.volume("f").pull()
    assert contents(ann) == {"f": b"bob"}


@pytest.mark.parametrize("pushed", [False, True])
def test_what_was_written_while_another_took_the_name_is_kept(ann: Side, bob: Side, pushed: bool) -> None:
    bob.names.make_file("f", FILE)
    bob.push()
    ann.write("f", b"ann")

    def meanwhile() -> None:
        faults.disarm("push: committed, its name not bound")
        written = bob.write("f", b"bob")
        if pushed:
            written.push()

    # When it has been seen that bob's is empty, and before his name is taken.
    faults.arm("push: committed, its name not bound", meanwhile)
    ann.push()
    sync(bob, ann)
    sync(bob, ann)
    assert sorted(contents(ann).values()) == sorted(contents(bob).values()) == [b"ann", b"bob"]
    assert sorted(ann.bound()) == sorted(contents(ann))


def test_of_two_first_pushes_at_once_both_are_kept(ann: Side, bob: Side) -> None:
    """The later one is refused the name when its content is there already."""
    ann.write("f", b"ann")
    bob.write("f", b"bob")

    def meanwhile() -> None:
        faults.disarm("push: committed, its name not bound")
        ann.push()

    faults.arm("push: committed, its name not bound", meanwhile)
    with pytest.raises(AlreadyExists, match="--as NEW"):
        bob.edge.volume("f").push()
    sync(bob, ann)
    sync(bob, ann)
    assert sorted(contents(ann).values()) == sorted(contents(bob).values()) == [b"ann", b"bob"]
    assert ann.read("f") == b"ann"
    assert sorted(ann.bound()) == sorted(contents(ann))


def test_an_empty_file_that_is_open_for_writing_steps_aside_and_leaves_nothing(ann: Side, bob: Side) -> None:
    bob.names.make_file("f", FILE)
    opened = bob.edge.volume("f")
    opened.local.keep_write_lock()
    ann.write("f", b"ann")
    ann.push()
    bob.pull()
    assert bob.read("f") == b"ann"
    assert len(bob.tree()) == 2, "a program may be about to write into the other"
    bob.push()
    assert list(ann.bound()) == ["f"]
    opened.local.drop_write_lock()
    sync(bob, ann)
    assert contents(bob) == contents(ann) == {"f": b"ann"}


def test_what_is_written_into_one_that_stepped_aside_is_kept(ann: Side, bob: Side) -> None:
    bob.names.make_file("f", FILE)
    opened = bob.edge.volume("f")
    opened.local.keep_write_lock()
    ann.write("f", b"ann")
    ann.push()
    bob.pull()
    (aside,) = set(bob.tree()) - {"f"}
    opened.local.drop_write_lock()
    bob.write(aside, b"bob")
    sync(bob, ann)
    assert contents(bob) == contents(ann) == {"f": b"ann", aside: b"bob"}


def test_a_volume_cut_to_nothing_is_not_untouched(ann: Side, bob: Side) -> None:
    """It has a history."""
    volume = bob.write("f", b"bob")
    writer = volume.writer()
    writer.truncate(0)
    made = writer.commit(Durability.ORDERED)
    assert made is not None
    made.close()
    bob.push()
    ann.write("f", b"ann")
    ann.push()
    sync(bob, ann)
    assert len(bob.tree()) == 2
    assert bob.bound() == ann.bound()
    assert bob.bound()["f"] == volume.id.raw


@pytest.mark.parametrize("removed", [False, True])
def test_what_a_program_writes_into_a_file_that_has_just_lost_its_name_is_kept(
    ann: Side, bob: Side, removed: bool
) -> None:
    """It had opened the file before the names were pulled."""
    if removed:
        ann.write("f", b"before")
        sync(ann, bob)
        bob.read("f")
        ann.names.remove("f")
    else:
        bob.names.make_file("f", FILE)
        ann.write("f", b"ann")
    opened = bob.edge.volume("f")
    ann.push()
    bob.pull()
    write(opened, b"bob")
    bob.names.sweep()
    sync(bob, ann)
    expected = [b"bob"] if removed else [b"ann", b"bob"]
    assert sorted(contents(ann).values()) == sorted(contents(bob).values()) == expected


def test_what_a_program_writes_into_a_file_that_it_has_removed_goes_with_it(bob: Side) -> None:
    bob.names.make_file("f", FILE)
    opened = bob.edge.volume("f")
    bob.names.remove("f")
    write(opened, b"bob")
    bob.names.sweep()
    assert bob.tree() == {}


def write(volume: Volume, text: bytes) -> None:
    writer = volume.writer(page_size=PAGE)
    writer.write(1, text.ljust(PAGE, b"."))
    made = writer.commit(Durability.ORDERED)
    assert made is not None
    made.close()
