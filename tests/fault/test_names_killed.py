"""A sync of names killed at every fault point that it passes: the next one finishes what was begun.

Each way of syncing (a first push of a whole tree; a push of renames, removals, an atomic save and new attributes; a
pull of all that) is cut at its points, then done again by a fresh process. Afterwards the home and a second one show
exactly what a run without a kill would have led to, contents included, and nothing under any other name.
"""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from budwood.sync.attributes import Attributes

from ..namespaces import DIRECTORY, Side, link
from .crash_harness import WORK, Place, cut, finish

FIRST_PUSH = (
    "names: gathered, not merged",
    "names: remote changed, not recorded",
    "names: remote changed, not recorded#2",
    "names: remote changed, not recorded#3",
    "push: volume made on the remote, name not bound",
    "push: volume made on the remote, name not bound#2",
    "push: committed, answer not recorded",
    "push: success recorded, caller not told",
    "push: committed, its name not bound",
    "push: committed, its name not bound#2",
)

PUSH_OF_CHANGES = (
    *(f"names: remote changed, not recorded#{number}" for number in range(1, 5)),
    "log: entry durable, not acknowledged",
    "push: volume made on the remote, name not bound",
    "push: committed, answer not recorded",
    "push: committed, its name not bound",
)

PULL = ("names: gathered, not merged", "names: merged, caller not told")

CUTS = (FIRST_PUSH, PUSH_OF_CHANGES, PULL)

Tree = dict[str, tuple[str, int, str]]
"""By name: kind, permissions, and a file's text or a link's."""

FIRST: Tree = {
    "d": ("directory", 0o750, ""),
    "d/e": ("directory", 0o750, ""),
    "d/e/file": ("file", 0o640, "file"),
    "d/link": ("link", 0o777, "e/file"),
    "doc": ("file", 0o640, "old"),
    "stays": ("file", 0o640, "stays"),
}

CHANGED: Tree = {
    "doc": ("file", 0o640, "new"),
    "moved": ("directory", 0o750, ""),
    "moved/e": ("directory", 0o700, ""),
    "moved/e/file": ("file", 0o640, "file"),
    "moved/fresh": ("directory", 0o750, ""),
    "stays": ("file", 0o640, "stays"),
}


def make(side: Side) -> None:
    for name in ("d", "d/e"):
        side.names.make_directory(name, DIRECTORY)
    side.names.make_link("d/link", link("e/file"))
    for name, text in (("d/e/file", b"file"), ("doc", b"old"), ("stays", b"stays")):
        side.write(name, text)


def change(side: Side) -> None:
    """A rename of a directory, a removal, an atomic save, a mode, a new directory."""
    side.names.remove("d/link")
    side.names.move("d", "moved")
    side.names.set_attributes("moved/e", Attributes(mode=stat.S_IFDIR | 0o700, uid=7, gid=8))
    side.write("doc~", b"new")
    side.names.move("doc~", "doc", replace=True)
    side.names.make_directory("moved/fresh", DIRECTORY)


def shown(side: Side) -> Tree:
    tree: Tree = {}
    for entry in list(side.names.entries()):
        text = side.read(entry.name).decode() if entry.kind == "file" else entry.attributes.link
        tree[entry.name] = (entry.kind, entry.attributes.mode & 0o7777, text)
    return tree


def check(place: Place, expected: Tree) -> None:
    """The home syncs again, and a new one sees the same."""
    finish(WORK, "names", place.home(), place.store, "both")
    for home in ("home", "second"):
        side = Side(place.home(home), place.store)
        try:
            side.pull()
            assert shown(side) == expected, home
            assert side.names.push() == []
            assert sorted(side.bound()) == sorted(expected), "the remote has no other names"
            side.names.sweep()
        finally:
            side.edge.close()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A home with names that the remote never heard of; the store has one name, which is removed."""
    place = Place(tmp_path_factory.mktemp("made"))
    (place.folder / "store").mkdir()
    side = Side(place.home(), place.store)
    make(side)
    side.edge.close()
    other = Side(place.home("other"), place.store)
    other.names.make_directory("x", DIRECTORY)
    other.push()
    other.names.remove("x")
    other.push()
    other.edge.close()
    return place


@pytest.fixture(scope="module")
def changed(made: Place, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """The first push is done, the changes since are not pushed."""
    place = made.copy(tmp_path_factory.mktemp("changed") / "place")
    finish(WORK, "names", place.home(), place.store, "both")
    side = Side(place.home(), place.store)
    assert shown(side) == FIRST
    change(side)
    assert shown(side) == CHANGED
    side.edge.close()
    return place


@pytest.mark.parametrize("point", FIRST_PUSH)
def test_a_first_push_of_names_killed_is_finished_by_the_next(made: Place, tmp_path: Path, point: str) -> None:
    place = made.copy(tmp_path / "place")
    cut(point, WORK, "names", place.home(), place.store, "push")
    check(place, FIRST)


@pytest.mark.parametrize("point", PUSH_OF_CHANGES)
def test_a_push_of_changed_names_killed_is_finished_by_the_next(changed: Place, tmp_path: Path, point: str) -> None:
    place = changed.copy(tmp_path / "place")
    cut(point, WORK, "names", place.home(), place.store, "push")
    check(place, CHANGED)


@pytest.mark.parametrize("point", PULL)
def test_a_pull_of_names_killed_took_all_or_nothing(changed: Place, tmp_path: Path, point: str) -> None:
    place = changed.copy(tmp_path / "place")
    second = Side(place.home("second"), place.store)
    second.pull()
    assert shown(second) == FIRST
    second.edge.close()
    finish(WORK, "names", place.home(), place.store, "both")
    cut(point, WORK, "names", place.home("second"), place.store, "pull")
    side = Side(place.home("second"), "")
    found = {entry.name for entry in side.names.entries()}
    side.edge.close()
    assert found == set(CHANGED if point == "names: merged, caller not told" else FIRST)
    check(place, CHANGED)
