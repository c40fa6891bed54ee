"""What others make of a push that they see in its midst: they pull and push after each change that it makes."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress

import msgspec
import pytest

from budwood.volume import faults
from budwood.volume.errors import BudwoodError

from ...namespaces import DIRECTORY, FILE, Side, link, sync

ANSWERED = "names: remote changed, not recorded"


Shown = dict[str, tuple[str, bytes, int]]


def shown(side: Side) -> Shown:
    return {entry.name: (entry.kind, entry.vid, entry.attributes.mode) for entry in side.names.entries()}


@contextmanager
def watched_by(other: Side, seen: list[Shown]) -> Generator[None]:
    def watch() -> None:
        faults.disarm(ANSWERED)
        other.pull()
        other.push()
        seen.append(shown(other))
        faults.arm(ANSWERED, watch)

    faults.arm(ANSWERED, watch)
    try:
        yield
    finally:
        faults.disarm(ANSWERED)


def check(ann: Side, bob: Side, change: Callable[[], object]) -> list[Shown]:
    """What bob saw after each change."""
    sync(ann, bob)
    change()
    expected, seen = shown(ann), list[Shown]()
    with watched_by(bob, seen):
        ann.push()
    sync(ann, bob)
    assert shown(ann) == expected
    assert shown(bob) == expected
    assert set(bob.bound()) == set(expected)
    return seen


def test_a_tree_that_is_removed_stays_so(ann: Side, bob: Side) -> None:
    for name in ("d", "d/e"):
        ann.names.make_directory(name, DIRECTORY)
    names = ("d/a", "d/e/b", "d/f")
    for name in names:
        ann.write(name, b"text")

    def remove() -> None:
        for name in (*names, "d/e", "d"):
            ann.names.remove(name)

    seen = check(ann, bob, remove)
    assert len(seen) == 5
    assert all("d/e" in tree for tree in seen if "d/e/b" in tree), "never without the attributes of what it lies in"


NAMES = ("a", "b", "d", "d/a", "d/b", "d/e", "d/e/a", "e", "e/a")


def test_a_directory_whose_files_were_moved_out_stays_away(ann: Side, bob: Side) -> None:
    ann.names.make_directory("d", DIRECTORY)
    ann.write("d/a", b"text")

    def move_out() -> None:
        ann.names.move("d/a", "a")
        ann.names.remove("d")

    check(ann, bob, move_out)


def test_a_file_in_the_place_of_a_tree_is_pushed_before_the_names_and_named_by_them(ann: Side, bob: Side) -> None:
    ann.names.make_directory("d", DIRECTORY)
    for name in ("d/a", "d/b"):
        ann.write(name, b"text")
    sync(ann, bob)
    for name in ("d/a", "d/b", "d"):
        ann.names.remove(name)
    ann.write("d", b"file")
    expected = shown(ann)
    with watched_by(bob, []):
        ann.edge.volume("d").push()
        assert set(bob.bound()) == {"d", "d/a", "d/b"}
        assert ann.names.push() == []
    sync(ann, bob)
    assert shown(ann) == shown(bob) == expected
    assert set(bob.bound()) == {"d"}
    assert bob.read("d") == b"file"


def test_a_directory_that_goes_while_something_new_is_in_it_stays_as_it_was(ann: Side, bob: Side) -> None:
    ann.names.make_directory("d", DIRECTORY)
    sync(ann, bob)
    ann.names.remove("d")
    ann.push()
    bob.write("d/own", b"text")
    sync(bob, ann)
    assert shown(ann) == shown(bob)
    assert shown(ann)["d"][2] == DIRECTORY.mode


def change_some(side: Side, chance: random.Random) -> None:
    """What programs do below a mount; the namespace refuses what makes no sense."""
    for _ in range(chance.randint(1, 12)):
        name, new = chance.sample(NAMES, 2)
        tree = side.tree()
        above = {each.rpartition("/")[0] for each in (name, new)} - {""}
        if any(tree.get(directory) != "directory" for directory in above):
            continue
        what = chance.choice(["file", "directory", "link", "move", "remove", "remove tree", "attributes"])
        with suppress(BudwoodError):
            if what == "file":
                side.write(name, f"{name} {chance.random()}".encode())
            elif what == "directory":
                side.names.make_directory(name, DIRECTORY)
            elif what == "link":
                side.names.make_link(name, link(new))
            elif what == "move":
                side.names.move(name, new, replace=chance.random() < 0.5)
            elif what == "attributes":
                entry = side.names.entry(name)
                attributes = FILE if entry is None else entry.attributes
                side.names.set_attributes(name, msgspec.structs.replace(attributes, mode=attributes.mode ^ 0o100))
            else:
                below = [each for each in tree if each.startswith(f"{name}/")] if what == "remove tree" else []
                for each in sorted(below, reverse=True):
                    side.names.remove(each)
                side.names.remove(name)


@pytest.mark.parametrize("seed", range(10))
def test_whoever_watches_a_push_changes_nothing_of_it(ann: Side, bob: Side, seed: int) -> None:
    chance = random.Random(seed)
    ann.write("z", b"something")
    for _ in range(6):
        check(ann, bob, lambda: change_some(ann, chance))
