"""file://: the order of what reaches the disk, what a crash leaves, and what a full or foreign disk says."""

from __future__ import annotations

import errno
import gc
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from budwood.server.store.directory_tree import Tree
from budwood.volume import faults
from budwood.volume.errors import AlreadyExists, BadInput, Full, NotFound, Unauthorized, Unavailable, Unsupported


class Trace:
    """What Tree asks of the operating system, in order; a directory's fsync is told by its path."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, top: Path) -> None:
        self.calls: list[str] = []
        self.top = top
        for name in ("writev", "fsync", "fdatasync", "link", "unlink", "mkdir", "sync"):
            monkeypatch.setattr(os, name, self._recording(name, getattr(os, name)))

    def _recording(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            if name == "fsync":
                assert stat.S_ISDIR(os.fstat(args[0]).st_mode)
                where = os.path.relpath(os.readlink(f"/proc/self/fd/{args[0]}"), self.top)
                self.calls.append(f"fsync {where}")
            else:
                self.calls.append(name)
            return real(*args, **options)

        return call

    def take(self) -> list[str]:
        calls, self.calls = self.calls, []
        return calls


def failing(number: int) -> Callable[..., Any]:
    def fail(*_args: Any, **_options: Any) -> None:
        raise OSError(number, os.strerror(number))

    return fail


def read(tree: Tree, key: str) -> bytes:
    found = tree.read(key, 0, None)
    assert found is not None
    return found[0]


def test_a_create_is_durable_before_it_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = Tree(str(tmp_path))
    trace = Trace(monkeypatch, tmp_path)
    tree.place("a/b/1", b"x")
    # Every new directory is made durable in its parent; the bytes before they have a name, the name before success.
    assert trace.take() == (
        [
            "mkdir",
            "fsync .",
            "writev",
            "fdatasync",
            "mkdir",
            "fsync .",
            "mkdir",
            "fsync a",
            "link",
            "fsync a/b",
            "unlink",
        ]
    )
    tree.place("a/b/2", b"y")
    assert trace.take() == ["writev", "fdatasync", "link", "fsync a/b", "unlink"]


def test_a_directory_that_another_process_made_is_synced_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = Tree(str(tmp_path))
    (tmp_path / "a" / "b").mkdir(parents=True)
    trace = Trace(monkeypatch, tmp_path)
    tree.place("a/b/1", b"x")
    assert {"fsync .", "fsync a", "fsync a/b"} < set(trace.take())


def test_the_root_directory_is_made_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = Trace(monkeypatch, tmp_path)
    Tree(str(tmp_path / "store"))
    assert trace.take() == ["mkdir", "fsync ."]


def test_what_the_root_directory_is_to_lie_in_is_not_made(tmp_path: Path) -> None:
    """Its path may be mistyped."""
    with pytest.raises(NotFound, match="there is no directory"):
        Tree(str(tmp_path / "new" / "store"))
    assert not (tmp_path / "new").exists()


def test_what_was_read_is_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between link and fsync the name shows, but may be lost: whoever reads it syncs it first."""
    writer, reader = Tree(str(tmp_path)), Tree(str(tmp_path))
    seen: list[list[str]] = []

    def look() -> None:
        trace = Trace(monkeypatch, tmp_path)
        assert reader.read("a/1", 0, None, at_once=100) is None, "an inline read does not wait for the disk"
        assert read(reader, "a/1") == b"x"
        seen.append(trace.take())
        assert read(reader, "a/1") == b"x"
        seen.append(trace.take())

    faults.arm("store: linked, directory not synced", look)
    writer.place("a/1", b"x")
    assert seen[0][-1] == "fsync a"
    assert seen[1] == []


def test_a_failed_sync_is_indeterminate_and_leaves_the_mark_for_readers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = Tree(str(tmp_path))
    tree.place("a/0", b"")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing(errno.EIO))
        with pytest.raises(Unavailable) as caught:
            tree.place("a/1", b"x")
    assert not caught.value.determinate
    assert (tmp_path / "a/1").stat().st_nlink == 2
    assert tree.list("", "", None) == ["a/0", "a/1"]


@pytest.mark.parametrize("call", ["writev", "fdatasync", "link"])
def test_a_full_disk_is_told_and_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    tree = Tree(str(tmp_path))
    with monkeypatch.context() as patch:
        patch.setattr(os, call, failing(errno.ENOSPC))
        with pytest.raises(Full, match="make room") as caught:
            tree.place("a/1", b"x" * 5000)
    assert caught.value.determinate
    assert list((tmp_path / ".tmp").iterdir()) == []
    tree.place("a/1", b"y")
    assert read(tree, "a/1") == b"y"


def test_short_writes_are_carried_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.writev

    def short(fd: int, views: list[memoryview]) -> int:
        return real(fd, [b"".join(views)[:7]])

    monkeypatch.setattr(os, "writev", short)
    tree = Tree(str(tmp_path))
    pieces = [b"abc", b"", b"defghijklmnop", b"q" * 30]
    tree.place("a", pieces)
    assert read(tree, "a") == b"".join(pieces)


def test_a_file_system_without_links_is_refused_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = Tree(str(tmp_path))
    monkeypatch.setattr(os, "link", failing(errno.EPERM))
    with pytest.raises(Unsupported, match="hard links"):
        tree.place("a", b"x")


def test_a_denied_directory_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = Tree(str(tmp_path))
    monkeypatch.setattr(os, "mkdir", failing(errno.EACCES))
    with pytest.raises(Unauthorized, match="can't write a/b"):
        tree.place("a/b", b"x")


def test_an_object_is_no_directory_and_a_directory_no_object(tmp_path: Path) -> None:
    tree = Tree(str(tmp_path))
    tree.place("a", b"x")
    tree.place("b/c", b"x")
    for key in ("a/b", "b"):
        with pytest.raises(BadInput):
            tree.place(key, b"y")
    with pytest.raises(NotFound):
        tree.read("b", 0, None)
    tree.remove("b")
    assert tree.list("", "", None) == ["a", "b/c"]


def test_empty_directories_go_and_come_back(tmp_path: Path) -> None:
    one, two = Tree(str(tmp_path)), Tree(str(tmp_path))
    for round_number in range(3):
        one.place("a/b/c/1", b"%d" % round_number)
        two.remove("a/b/c/1")
        assert not (tmp_path / "a").exists()
    one.place("a/b/c/1", b"last")
    one.place("a/d", b"")
    two.remove("a/b/c/1")
    assert two.list("", "", None) == ["a/d"]


def test_a_link_into_a_pruned_directory_is_never_lost(tmp_path: Path) -> None:
    """The directory goes between writing and linking, as another process prunes it."""
    tree, other = Tree(str(tmp_path)), Tree(str(tmp_path))
    tree.place("a/b/1", b"")

    def prune() -> None:
        other.remove("a/b/1")
        (tmp_path / "a/b").mkdir(parents=True)

    faults.arm("store: temp written, not linked", prune)
    tree.place("a/b/2", b"x")
    faults.disarm()
    assert Tree(str(tmp_path)).list("", "", None) == ["a/b/2"]
    assert read(other, "a/b/2") == b"x"


def test_left_temporary_files_are_swept_when_old_or_linked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = Tree(str(tmp_path))
    tree.place("a/1", b"x")
    temp = tmp_path / ".tmp"
    (temp / "young").write_bytes(b"half")
    (temp / "old").write_bytes(b"half")
    os.utime(temp / "old", (1, 1))
    os.link(tmp_path / "a/1", temp / "linked")
    now = (temp / "young").stat().st_mtime
    trace = Trace(monkeypatch, tmp_path)
    Tree(str(tmp_path), now=lambda: now + 3599)
    assert {path.name for path in temp.iterdir()} == {"young"}
    assert trace.take() == ["sync", "unlink", "unlink"], "what is linked is made durable before its mark goes"
    Tree(str(tmp_path), now=lambda: now + 3601)
    assert list(temp.iterdir()) == []
    assert tree.list("", "", None) == ["a/1"]


def test_a_swept_temporary_file_makes_the_create_fail_cleanly(tmp_path: Path) -> None:
    tree = Tree(str(tmp_path))

    def sweep() -> None:
        for path in (tmp_path / ".tmp").iterdir():
            path.unlink()

    faults.arm("store: temp written, not linked", sweep)
    with pytest.raises(Unavailable) as caught:
        tree.place("a/1", b"x")
    assert caught.value.determinate
    assert tree.list("", "", None) == []


def test_foreign_files_are_no_keys(tmp_path: Path) -> None:
    tree = Tree(str(tmp_path))
    tree.place("a/1", b"x")
    for name in (".hidden", "with space", "lost+found"):
        (tmp_path / "a" / name).write_bytes(b"")
    (tmp_path / "a" / "link").symlink_to(tmp_path)
    assert tree.list("", "", None) == ["a/1"]


def test_a_missing_store_is_not_found_unless_it_may_be_made(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no store"):
        Tree(str(tmp_path / "none"), create=False)
    assert not (tmp_path / "none").exists()
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(BadInput):
        Tree(str(tmp_path / "file"))


def test_opening_to_read_writes_nothing(tmp_path: Path) -> None:
    Tree(str(tmp_path), create=False).list("", "", None)
    assert list(tmp_path.iterdir()) == []


def test_a_closed_store_says_so(tmp_path: Path) -> None:
    tree = Tree(str(tmp_path))
    tree.place("a", b"x")
    tree.close()
    tree.close()
    with pytest.raises(Unavailable, match="closed"):
        tree.read("a", 0, None)
    with pytest.raises(Unavailable, match="closed"):
        tree.place("b", b"x")


def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    gc.collect()  # What earlier tests' tracebacks hold on to.
    before = set(os.listdir("/proc/self/fd"))
    tree = Tree(str(tmp_path))
    for number in range(300):
        tree.place(f"d{number}/x", b"")
        with pytest.raises(AlreadyExists):
            tree.place(f"d{number}/x", b"")
        tree.read(f"d{number}/x", 0, None)
    tree.close()
    gc.collect()
    assert set(os.listdir("/proc/self/fd")) == before
