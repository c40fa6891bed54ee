"""Names of two edges over one store: what one changes offline the other sees, and nobody's work is lost (DESIGN §5)."""

from __future__ import annotations

import stat
import threading
from pathlib import Path

import pytest

from budwood.sync.attributes import Attributes
from budwood.sync.namespace import Namespace
from budwood.volume import faults
from budwood.volume.calls import CHANGE_NAME, LOOKUP, LookupRequest
from budwood.volume.errors import BadInput, Busy, NotFound, Unavailable, WrongStore
from budwood.volume.ids import VolumeId
from budwood.volume.wire import NameRequest

from ...call_counts import bytecodes, calls
from ...namespaces import DIRECTORY, FILE, PAGE, Side, link, sync
from ...waits import LIMIT_SECONDS


def test_files_directories_and_links_arrive_with_their_attributes_and_without_their_pages(ann: Side, bob: Side) -> None:
    ann.names.make_directory("d", DIRECTORY)
    ann.names.make_directory("d/empty", DIRECTORY)
    ann.names.make_link("d/link", link("file"))
    ann.write("d/file", b"text")
    assert ann.push() == []
    assert bob.pull() == {"d", "d/empty", "d/link", "d/file"}
    assert bob.tree() == ann.tree()
    for entry in ann.names.entries():
        other = bob.entry(entry.name)
        assert other.attributes.mode == entry.attributes.mode
        assert (other.vid, other.length, other.attributes.uid) == (entry.vid, entry.length, entry.attributes.uid)
    assert not bob.entry("d/file").here
    assert bob.read("d/file") == b"text"
    assert bob.entry("d/file").here
    assert bob.entry("d/file").attributes.mtime_ns == 5
    assert bob.pull() == set()
    assert bob.push() == []


def test_an_empty_file_arrives_and_can_be_written_by_either(ann: Side, bob: Side) -> None:
    ann.names.make_file("f", FILE)
    ann.push()
    bob.pull()
    assert bob.entry("f").length == 0
    bob.write("f", b"bob")
    bob.push()
    assert ann.edge.volume("f").pull() == "1"
    assert ann.read("f") == b"bob"


def test_attributes_sync_when_nothing_else_changes(ann: Side, bob: Side) -> None:
    ann.names.make_directory("d", DIRECTORY)
    ann.write("f", b"f")
    sync(ann, bob)
    for name, kind in (("d", stat.S_IFDIR), ("f", stat.S_IFREG)):
        ann.names.set_attributes(name, Attributes(mode=kind | 0o700, uid=1, gid=2, mtime_ns=9))
    revision = ann.names.head()
    ann.push()
    assert ann.names.head() == revision + 2
    assert bob.pull() == {"d", "f"}
    for name in ("d", "f"):
        attributes = bob.entry(name).attributes
        assert (attributes.mode & 0o777, attributes.uid, attributes.mtime_ns) == (0o700, 1, 9)
    ann.names.set_attributes("f", Attributes(mode=stat.S_IFREG | 0o700, uid=1, gid=2, mtime_ns=9, atime_ns=77))
    revision = ann.names.head()
    ann.push()
    assert ann.names.head() in {revision, revision + 1}, "at most the size: when it was read is not worth a change"


def test_what_was_removed_or_renamed_over_before_its_first_push_never_reaches_the_remote(ann: Side) -> None:
    ann.write("a", b"a")
    ann.write("b", b"b")
    ann.write("temporary", b"t")
    ann.names.make_directory("d", DIRECTORY)
    ann.names.move("a", "b", replace=True)
    ann.names.remove("temporary")
    ann.names.move("d", "e")
    gone = ann.edge.connection
    assert ann.push() == []
    assert sorted(ann.bound()) == ["b", "e"]
    assert ann.names.head() == 2, "two changes of names, and no more"
    assert gone().remote.ask(LOOKUP, LookupRequest("temporary")).entry is None


def test_a_volume_that_was_removed_is_not_pushed_any_more(ann: Side) -> None:
    volume = ann.write("a", b"a")
    ann.names.make_directory("d", DIRECTORY)
    ann.names.remove("a")
    with pytest.raises(NotFound, match="removed"):
        volume.push()
    ann.push()
    assert sorted(ann.bound()) == ["d"]


def test_a_rename_over_a_file_of_the_remote_by_one_that_is_not_leads_to_the_new_one(ann: Side, bob: Side) -> None:
    """An editor's atomic save."""
    old = ann.write("doc", b"old")
    sync(ann, bob)
    new = ann.write("doc~", b"new")
    ann.names.move("doc~", "doc", replace=True)
    seen: list[bytes] = []
    point = "push: committed, its name not bound"
    faults.arm(point, lambda: seen.append(ann.bound()["doc"]))
    ann.push()
    assert seen == [old.id.raw], "until the new content is there, the name leads to the old one"
    assert ann.bound() == {"doc": new.id.raw}
    assert bob.pull() == {"doc"}
    assert bob.read("doc") == b"new"
    assert bob.tree() == {"doc": "file"}


def test_a_rename_over_a_file_by_another_that_the_remote_knows_is_one_change(ann: Side, bob: Side) -> None:
    ann.write("a", b"a")
    ann.write("b", b"b")
    sync(ann, bob)
    ann.names.move("a", "b", replace=True)
    head = ann.names.head()
    ann.push()
    assert ann.names.head() == head + 1
    bob.pull()
    assert bob.tree() == {"b": "file"}
    assert bob.read("b") == b"a"


def test_a_directory_that_is_renamed_is_one_change_whatever_it_holds(ann: Side, bob: Side) -> None:
    ann.names.make_directory("d", DIRECTORY)
    for number in range(30):
        ann.names.make_directory(f"d/{number}", DIRECTORY)
    ann.write("d/1/file", b"f")
    sync(ann, bob)
    ann.names.move("d", "up/e")
    ann.names.move("up/e/2", "two")
    head = ann.names.head()
    ann.push()
    assert ann.names.head() == head + 2
    bob.pull()
    assert bob.tree() == ann.tree()
    assert bob.read("up/e/1/file") == b"f"


def test_what_vanishes_on_the_remote_is_gone_here_unless_it_was_written_here(ann: Side, bob: Side) -> None:
    ann.names.make_directory("d", DIRECTORY)
    for name in ("d/clean", "d/written", "d/open", "d/renamed", "unseen"):
        ann.write(name, name.encode())
    sync(ann, bob)
    for name in ("d/clean", "d/open", "d/renamed"):
        bob.read(name)
    bob.write("d/written", b"bob's")
    bob.names.adopt("d/open").local.keep_write_lock()
    bob.names.move("d/renamed", "d/kept")
    for name in ("d/clean", "d/written", "d/open", "d/renamed", "unseen", "d"):
        ann.names.remove(name)
    ann.push()
    assert bob.pull() == {"d/clean", "unseen"}
    assert bob.tree() == {"d": "directory", "d/written": "file", "d/open": "file", "d/kept": "file"}
    bob.names.adopt("d/open").local.drop_write_lock()
    bob.names.sweep()
    sync(bob, ann)
    assert ann.tree() == bob.tree()
    assert ann.read("d/written") == b"bob's"
    assert ann.read("d/kept") == b"d/renamed"


def test_files_that_are_not_here_are_renamed_changed_and_removed_offline(ann: Side, bob: Side) -> None:
    for name in ("d/a", "d/b", "c"):
        ann.write(name, name.encode())
    sync(ann, bob)
    bob.names.move("d", "e")
    bob.names.set_attributes("e/a", Attributes(mode=stat.S_IFREG | 0o600))
    bob.names.remove("c")
    assert not any(entry.here for entry in bob.names.entries())
    bob.push()
    assert ann.pull() == {"c", "d/a", "d/b", "e/a", "e/b"}
    assert ann.tree() == {"e/a": "file", "e/b": "file"}
    assert ann.entry("e/a").attributes.mode & 0o777 == 0o600
    assert bob.read("e/b") == b"d/b"


def test_a_clone_under_another_name_leaves_the_remotes_name_alone(ann: Side, bob: Side) -> None:
    ann.write("shop", b"s")
    ann.push()
    bob.edge.clone("shop", "mine")
    sync(bob, ann)
    assert bob.tree() == {"mine": "file"}
    bob.names.move("mine", "ours")
    sync(bob, ann)
    assert ann.tree() == {"shop": "file"}
    bob.names.remove("ours")
    sync(bob, ann)
    assert ann.tree() == bob.tree() == {"shop": "file"}


def test_a_local_copy_that_is_dropped_leaves_the_name(ann: Side, bob: Side) -> None:
    ann.write("f", b"f")
    sync(ann, bob)
    bob.read("f")
    bob.edge.rm("f")
    entry = bob.entry("f")
    assert (entry.here, entry.length) == (False, PAGE)
    sync(bob, ann)
    assert bob.read("f") == b"f"
    bob.edge.rm("f", remote=True)
    sync(bob, ann)
    assert ann.tree() == bob.tree() == {}


def test_the_command_renames_what_the_names_know(ann: Side, bob: Side) -> None:
    ann.write("f", b"f")
    sync(ann, bob)
    ann.edge.mv("f", "g")
    assert sorted(ann.bound()) == ["g"]
    sync(ann, bob)
    assert ann.tree() == bob.tree() == {"g": "file"}


def test_names_of_the_command_and_names_of_the_mount_are_the_same(ann: Side, bob: Side) -> None:
    ann.edge.create("cli", page_size=PAGE)
    ann.write("cli", b"c")
    ann.edge.volume("cli").push()
    bob.pull()
    assert bob.entry("cli").attributes.mode == stat.S_IFREG | 0o644
    bob.names.make_directory("d", DIRECTORY)
    bob.push()
    with pytest.raises(BadInput, match="directory"):
        ann.edge.volume("d")


def test_a_change_whose_answer_was_lost_is_recognised_by_the_next_pull(ann: Side, bob: Side) -> None:
    def cut() -> None:
        raise faults.Cut

    ann.write("f", b"f")
    ann.push()
    ann.names.make_directory("d", DIRECTORY)
    ann.names.move("f", "g")
    for _ in range(2):
        faults.arm("names: remote changed, not recorded", cut)
        with pytest.raises(faults.Cut):
            ann.names.push()
        faults.disarm()
        assert ann.pull() == set()
    head = ann.names.head()
    assert ann.names.push() == []
    assert ann.names.head() == head
    ann.names.move("d", "e")
    ann.names.move("g", "e/g")
    ann.push()
    bob.pull()
    assert bob.tree() == ann.tree() == {"e": "directory", "e/g": "file"}
    assert sorted(ann.bound()) == ["e", "e/g"]


def test_whoever_waits_hears_of_a_change(ann: Side, bob: Side) -> None:
    ann.names.make_directory("d", DIRECTORY)
    ann.push()
    bob.pull()
    heads: list[int] = []
    waiting = threading.Thread(target=lambda: heads.append(bob.names.wait(bob.names.head(), LIMIT_SECONDS)))
    waiting.start()
    ann.names.make_directory("e", DIRECTORY)
    ann.push()
    waiting.join(LIMIT_SECONDS)
    assert heads == [2]
    assert bob.pull() == {"e"}
    assert bob.names.wait(2, 0.01) == 2


def test_names_of_another_store_are_refused(ann: Side, tmp_path: Path) -> None:
    ann.names.make_directory("d", DIRECTORY)
    ann.push()
    ann.edge.close()
    (tmp_path / "other").mkdir()
    other = Side(tmp_path / "bob", f"file://{tmp_path}/other")
    other.names.make_directory("x", DIRECTORY)
    other.push()
    other.edge.close()
    moved = Side(tmp_path / "ann", f"file://{tmp_path}/other")
    with pytest.raises(WrongStore):
        moved.names.pull()
    moved.names.make_directory("e", DIRECTORY)
    with pytest.raises(WrongStore):
        moved.names.push()
    moved.edge.close()


def test_a_store_that_vanished_is_no_empty_one(ann: Side, bob: Side, tmp_path: Path) -> None:
    ann.names.make_directory("d", DIRECTORY)
    ann.push()
    assert bob.pull() == {"d"}
    bob.edge.close()
    (tmp_path / "store").rename(tmp_path / "away")
    bob = Side(tmp_path / "bob", bob.edge.remote)
    with pytest.raises(Unavailable):
        bob.pull()
    assert bob.tree() == {"d": "directory"}
    bob.edge.close()


def test_two_processes_do_not_sync_the_names_of_one_home_at_once(ann: Side) -> None:
    ann.names.make_directory("d", DIRECTORY)

    def another() -> None:
        other = Namespace(ann.edge)
        with pytest.raises(Busy):
            other.pull()

    faults.arm("names: gathered, not merged", another)
    ann.push()
    assert sorted(ann.bound()) == ["d"]


def test_a_delta_that_is_older_than_our_own_change_leaves_that(ann: Side, bob: Side) -> None:
    ann.write("a", b"a")
    sync(ann, bob)
    bob.names.make_directory("d", DIRECTORY)
    bob.push()
    new = ann.write("n", b"n")
    pushed: list[str] = []

    def push_meanwhile() -> None:
        faults.disarm("names: gathered, not merged")
        pushed.append(new.push())

    faults.arm("names: gathered, not merged", push_meanwhile)
    assert ann.pull() == {"d"}
    assert pushed == ["1"]
    assert ann.tree() == {"a": "file", "d": "directory", "n": "file"}
    assert ann.names.push() == []
    assert sorted(ann.bound()) == ["a", "d", "n"]


def test_thousands_of_names_cost_no_more_each_than_a_few_and_go_with_their_directory_in_one_change(
    ann: Side, bob: Side
) -> None:
    ann.names.make_directory("d", DIRECTORY)
    ann.push()
    arrived: list[set[str]] = []
    costs: list[int] = []
    for start, end in ((0, 200), (200, 2_000)):
        for number in range(start, end):
            ann.names.make_directory(f"d/{number}", DIRECTORY)
        ann.names.push()
        costs.append(calls(lambda: arrived.append(bob.pull())))
    assert [len(names) for names in arrived] == [201, 1_800]
    assert bob.names.head() == 2_001
    assert costs[1] < 12 * costs[0]
    bob.names.move("d", "e")
    bob.names.push()
    assert bob.names.head() == 2_002


def test_a_directory_whose_names_all_lead_to_one_target_moves_in_work_that_grows_with_their_number(
    ann: Side, bob: Side
) -> None:
    """Hard links of a kind, which any client may make."""
    target = VolumeId.new().raw
    ann.names.make_directory("first", DIRECTORY)
    ann.push()
    remote = ann.edge.connection().remote
    costs: list[int] = []
    for number, count in enumerate((50, 400)):
        attributes = FILE.to_wire()
        for name in range(count):
            remote.ask(
                CHANGE_NAME, NameRequest(op="bind", name=f"{number}/{name}", target=target, attributes=attributes)
            )
        bob.pull()
        remote.ask(CHANGE_NAME, NameRequest(op="move", name=f"{number}", new=f"moved{number}"))
        costs.append(bytecodes(lambda: bob.pull()))
        remote.ask(CHANGE_NAME, NameRequest(op="move", name=f"moved{number}", new=f"apart{number}"))
        for name in range(count):
            entry = remote.ask(LOOKUP, LookupRequest(f"apart{number}/{name}")).entry
            assert entry is not None
            remote.ask(CHANGE_NAME, NameRequest(op="unbind", name=entry.name, revision=entry.revision))
        bob.pull()
    assert set(bob.tree()) == {"first"}
    assert costs[1] < 10 * costs[0], "8 times as many"
