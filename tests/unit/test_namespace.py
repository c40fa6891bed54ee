"""The local half of the namespace: names change at once, whole, and open files go on (DESIGN §5, Names)."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

import lmdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from budwood.sync.attributes import Attributes
from budwood.sync.edge import Edge
from budwood.sync.edge import open as open_edge
from budwood.sync.namespace import Namespace
from budwood.sync.volume import Volume
from budwood.volume.errors import AlreadyExists, BadInput, NotFound
from budwood.volume.protocols import Durability

from ..call_counts import calls

PAGE = 4096
FILE = Attributes(mode=stat.S_IFREG | 0o640, uid=7, gid=8, mtime_ns=5)
DIRECTORY = Attributes(mode=stat.S_IFDIR | 0o750, uid=7, gid=8)


def link(to: str) -> Attributes:
    return Attributes(mode=stat.S_IFLNK | 0o777, link=to)


@pytest.fixture
def edge(tmp_path: Path) -> Iterator[Edge]:
    with open_edge(home=tmp_path / "home", remote="") as edge:
        yield edge


@pytest.fixture
def names(edge: Edge) -> Namespace:
    return Namespace(edge)


def listed(names: Namespace) -> dict[str, str]:
    return {entry.name: entry.kind for entry in names.entries()}


def write(volume: Volume, byte: bytes) -> None:
    writer = volume.writer(page_size=PAGE)
    writer.write(1, byte * PAGE)
    made = writer.commit(Durability.ORDERED)
    assert made is not None
    made.close()


def read(volume: Volume) -> bytes:
    snapshot = volume.snapshot()
    try:
        return snapshot.read(1)[:1]
    finally:
        snapshot.close()


def test_files_directories_and_links_are_listed_by_name_with_their_attributes(edge: Edge, names: Namespace) -> None:
    names.make_directory("d", DIRECTORY)
    volume = names.make_file("d/file", FILE)
    names.make_link("d/link", link("../ü"))
    assert [entry.attributes.mtime_ns for entry in names.entries()][1] == 5
    write(volume, b"a")
    found = list(names.entries())
    assert [(entry.name, entry.kind, entry.length, entry.unpushed, entry.here) for entry in found] == [
        ("d", "directory", 0, 0, True),
        ("d/file", "file", PAGE, 1, True),
        ("d/link", "link", 5, 0, True),
    ]
    assert found[1].vid == volume.id.raw
    assert found[1].attributes.mode == stat.S_IFREG | 0o640
    # What was written after its time was set is of the time it was written.
    assert found[1].attributes.mtime_ns > 5
    assert names.entry("d/link") == found[2]
    assert names.entry("d/none") is None
    assert [row["name"] for row in edge.ls()] == ["d/file"]


def test_a_volume_that_the_command_made_reads_as_a_plain_file_of_whoever_looks(edge: Edge, names: Namespace) -> None:
    edge.create("plain")
    entry = names.entry("plain")
    assert entry is not None
    assert entry.attributes.mode == stat.S_IFREG | 0o644
    assert entry.attributes.uid >= 0
    assert entry.attributes.mtime_ns > 0


def test_a_taken_name_is_refused_whatever_has_it(edge: Edge, names: Namespace) -> None:
    names.make_directory("d", DIRECTORY)
    names.make_link("l", link("d"))
    names.make_file("f", FILE)
    for name in ("d", "l", "f"):
        with pytest.raises(AlreadyExists):
            names.make_directory(name, DIRECTORY)
        with pytest.raises(AlreadyExists):
            names.make_file(name, FILE)
        with pytest.raises(AlreadyExists):
            edge.create(name)
    with pytest.raises(BadInput, match="directory"):
        edge.volume("d")


@pytest.mark.parametrize("name", [".budwood", ".budwood/x", "/a", "a//b", "a/..", "a\nb"])
def test_a_reserved_or_impossible_name_is_refused(edge: Edge, names: Namespace, name: str) -> None:
    names.make_file("f", FILE)
    with pytest.raises(BadInput):
        names.make_file(name, FILE)
    with pytest.raises(BadInput):
        names.make_directory(name, DIRECTORY)
    with pytest.raises(BadInput):
        names.move("f", name)
    with pytest.raises(BadInput):
        edge.create(name)
    with pytest.raises(BadInput):
        edge.mv("f", name)


def test_attributes_of_another_kind_are_refused(names: Namespace) -> None:
    names.make_file("f", FILE)
    with pytest.raises(BadInput, match="directory"):
        names.set_attributes("f", DIRECTORY)
    with pytest.raises(BadInput):
        names.make_directory("d", FILE)
    with pytest.raises(NotFound):
        names.set_attributes("g", FILE)


def test_a_file_that_is_renamed_over_goes_on_for_whoever_has_it_open_until_it_is_swept(names: Namespace) -> None:
    old, new = names.make_file("f", FILE), names.make_file("f~", FILE)
    write(old, b"o")
    write(new, b"n")
    old.local.keep_write_lock()
    names.move("f~", "f", replace=True)
    assert listed(names) == {"f": "file"}
    entry = names.entry("f")
    assert entry is not None
    assert entry.vid == new.id.raw
    write(old, b"p")
    assert (read(old), read(names.adopt("f"))) == (b"p", b"n")
    names.sweep()
    assert read(old) == b"p", "it is being written, so its sweep waits"
    old.local.drop_write_lock()
    names.sweep(old.id)
    with pytest.raises(NotFound):
        read(old)
    assert listed(names) == {"f": "file"}


def test_a_volume_that_is_open_for_writing_goes_on_under_its_new_name(edge: Edge, names: Namespace) -> None:
    volume = names.make_file("a", FILE)
    volume.local.keep_write_lock()
    write(volume, b"a")
    names.move("a", "b")
    again = edge.volume("b")
    assert again.local is volume.local
    write(again, b"b")
    assert (volume.name, read(volume)) == ("b", b"b")
    volume.local.drop_write_lock()
    with open_edge(home=edge.home, remote="") as other:
        assert read(other.volume("b")) == b"b"


def test_a_directory_moves_with_all_that_lies_below_it(names: Namespace) -> None:
    names.make_directory("d", DIRECTORY)
    names.make_directory("d/e", DIRECTORY)
    names.make_file("d/e/f", FILE)
    names.make_file("dd", FILE)
    names.make_link("x/y", link("z"))
    names.move("d", "n/d")
    names.move("x", "w")
    assert listed(names) == {"n/d": "directory", "n/d/e": "directory", "n/d/e/f": "file", "dd": "file", "w/y": "link"}
    for old, new, error in [
        ("n/d", "n/d/e/g", BadInput),
        ("n/d", "dd", AlreadyExists),
        ("dd", "n", AlreadyExists),
        ("dd", "n/d", AlreadyExists),
        ("n", "w", AlreadyExists),
        ("none", "some", NotFound),
        (".budwood/gone", "x", NotFound),
    ]:
        with pytest.raises(error):
            names.move(old, new)
        if error is not NotFound:
            with pytest.raises(error):
                names.move(old, new, replace=True)
    names.move("n/d/e/f", "n/d/e/f", replace=True)
    assert len(listed(names)) == 5


def test_an_empty_directory_may_be_replaced_by_a_directory(names: Namespace) -> None:
    names.make_directory("d", DIRECTORY)
    names.make_directory("e", DIRECTORY)
    names.make_file("d/f", FILE)
    with pytest.raises(AlreadyExists, match="not empty"):
        names.move("e", "d", replace=True)
    with pytest.raises(AlreadyExists):
        names.move("d/f", "e", replace=True)
    names.move("d", "e", replace=True)
    assert listed(names) == {"e": "directory", "e/f": "file"}


def test_a_directory_does_not_move_where_a_name_below_it_would_be_too_long(names: Namespace) -> None:
    """The remote would refuse it, and everything behind it would wait."""
    deep = "/".join(["x" * 200] * 4)
    names.make_link("a/short", link("x"))
    names.make_link(f"a/{deep}", link("x"))
    before = listed(names)
    with pytest.raises(BadInput, match="1,024 bytes"):
        names.move("a", "y" * 221)
    assert listed(names) == before
    names.move("a", "y" * 220)
    assert f"{'y' * 220}/{deep}" in listed(names)


def test_only_what_is_empty_is_removed(names: Namespace) -> None:
    names.make_directory("d", DIRECTORY)
    names.make_file("d/f", FILE)
    names.make_link("i/l", link("x"))
    for name in ("d", "i"):
        with pytest.raises(AlreadyExists, match="not empty"):
            names.remove(name)
    for name in ("d/f", "d", "i/l"):
        names.remove(name)
    assert listed(names) == {}
    for name in ("d", "i", "q", ".budwood/gone"):
        with pytest.raises(NotFound):
            names.remove(name)


def test_long_names_are_told_apart_and_found_below_their_directories(names: Namespace) -> None:
    deep = "/".join(["ü" * 100] * 4)
    for name in (deep, f"{deep}/a", f"{deep}/b", f"{deep}b/c"):
        names.make_directory(name, DIRECTORY)
    with pytest.raises(AlreadyExists, match="not empty"):
        names.remove(deep)
    names.move(deep, "short")
    assert sorted(listed(names)) == ["short", "short/a", "short/b", f"{deep}b/c"]


def test_every_change_moves_the_version_by_one_whoever_makes_it(edge: Edge, names: Namespace) -> None:
    seen = [names.version()]

    def moved() -> None:
        seen.append(names.version())
        assert seen[-1] == seen[-2] + 1

    names.make_directory("d", DIRECTORY)
    moved()
    write(names.make_file("f", FILE), b"a")
    moved()
    names.set_attributes("f", FILE)
    moved()
    names.move("f", "d/f")
    moved()
    names.move("d", "e")
    moved()
    names.make_file("g", FILE)
    moved()
    names.move("g", "e/f", replace=True)
    moved()
    names.remove("e/f")
    moved()
    names.sweep()
    with open_edge(home=edge.home, remote="") as other:
        other.create("made")
        moved()
        other.mv("made", "named")
        moved()
        other.rm("named")
        moved()
    assert names.version() == seen[-1]


def test_a_home_from_before_places_opens(tmp_path: Path) -> None:
    with open_edge(home=tmp_path, remote="") as edge:
        edge.create("v")
    with lmdb.open(str(tmp_path / "store"), max_dbs=16) as env, env.begin(write=True) as txn:
        for table in (b"places", b"known"):
            txn.drop(env.open_db(table, txn))
    with open_edge(home=tmp_path, remote="") as edge:
        Namespace(edge).make_directory("d", DIRECTORY)
        assert listed(Namespace(edge)) == {"d": "directory", "v": "file"}


def test_each_of_thousands_of_names_costs_what_each_of_a_hundred_does(names: Namespace) -> None:
    def make(number: int) -> int:
        return calls(lambda: names.make_file(f"d{number % 30:02}/f{number:04}", FILE))

    def listing() -> int:
        return calls(lambda: found.append(len(list(names.entries()))))

    found: list[int] = []
    for number in range(30):
        names.make_directory(f"d{number:02}", DIRECTORY)
    first = [make(number) for number in range(70)]
    few = listing()
    last = [make(number) for number in range(70, 2_970)]
    many = listing()
    assert found == [100, 3_000]
    # Now and then a change gives room back to the disk, too.
    assert max(last) <= 2 * max(first), "making a file must not look at all of them"
    assert many <= 40 * few
    # 99 files lie in it.
    assert calls(lambda: names.move("d00", "moved")) < 100 * max(first), "moving looks at what is moved, and no more"


wire = st.dictionaries(
    st.sampled_from(["mode", "uid", "gid", "mtime_ns", "link", "size", "acl", "x"]),
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text(max_size=3) | st.binary(max_size=3),
)


@given(wire)
def test_attributes_come_back_as_they_came(given: dict[str, object]) -> None:
    attributes = Attributes.from_wire(given)
    back = attributes.to_wire()
    defaults = {"mode": stat.S_IFREG | 0o644, "uid": -1, "gid": -1, "mtime_ns": 0, "link": "", "size": 0}
    lost = {name: value for name, value in given.items() if name not in back}
    assert all(defaults[name] == value and type(value) is type(defaults[name]) for name, value in lost.items())
    assert back == {name: value for name, value in given.items() if name not in lost}
    assert Attributes.from_wire(back) == attributes
