"""Times: what a mount shows of when a file or a directory was changed at another one."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from ..mounts import MODULE_SECONDS, mounted, needs_fuse
from ..waits import wait_until
from .cli import serving

pytestmark = needs_fuse

PAST = 1_000_000_000 * 10**9
"""A time that a program gives, in nanoseconds."""


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    folder = tmp_path_factory.mktemp("times")
    with (
        serving(folder / "store") as node,
        mounted(folder, remote=node, home="home-a", directory="a", limit_seconds=MODULE_SECONDS) as one,
        mounted(folder, remote=node, home="home-b", directory="b", limit_seconds=MODULE_SECONDS) as two,
    ):
        yield one.directory, two.directory


def modified(path: Path) -> int:
    return path.stat().st_mtime_ns


def is_of(path: Path, time_ns: int) -> bool:
    return modified(path) == time_ns


def is_later(path: Path, time_ns: int) -> bool:
    return modified(path) > time_ns


def stands_at(path: Path) -> int:
    """The remote LSN that a file at the root of its mount stands on."""
    rows = json.loads((path.parent / ".budwood" / "status").read_text())
    return next(int(row["remote_lsn"]) for row in rows if row["name"] == path.name)


def seen(path: Path, content: str) -> bool:
    return path.exists() and path.read_text() == content


def test_a_file_was_written_when_its_writer_says(trees: tuple[Path, Path]) -> None:
    here, there = (tree / "written" for tree in trees)
    here.write_text("one")
    wait_until(lambda: there.exists() and modified(there) == modified(here))
    assert there.read_text() == "one"
    assert modified(there) == modified(here)
    first = stands_at(there)
    here.write_text("one, and two")
    # Who reads it before that may have the old content by the new time: such a reader is told one of its own.
    wait_until(lambda: stands_at(there) > first)
    wait_until(lambda: modified(there) == modified(here))
    assert there.read_text() == "one, and two"
    assert modified(there) == modified(here)


def test_new_content_never_comes_with_a_time_that_old_content_was_read_with(trees: tuple[Path, Path]) -> None:
    here, there = (tree / "polled" for tree in trees)
    here.write_text("0")
    wait_until(there.exists)
    contents: dict[int, set[str]] = {}
    for number in range(1, 4):
        here.write_text(str(number))
        until = str(number)
        while True:
            before = modified(there)
            content = there.read_text()
            if before == modified(there):
                contents.setdefault(before, set()).add(content)
            if content == until:
                break
            time.sleep(0.01)
    assert all(len(each) == 1 for each in contents.values()), contents


@pytest.mark.parametrize("kind", ["file", "directory"])
def test_a_time_that_was_set_back_is_set_back_elsewhere(trees: tuple[Path, Path], kind: str) -> None:
    here, there = (tree / f"dated {kind}" for tree in trees)
    if kind == "file":
        here.write_text("x")
    else:
        here.mkdir()
    wait_until(there.exists)
    wait_until(lambda: modified(there) == modified(here))
    for time_ns in (PAST + 7, PAST - 10**9):
        os.utime(here, ns=(time_ns, time_ns))
        wait_until(partial(is_of, there, time_ns))
    if kind == "file":
        here.write_text("y")
        wait_until(lambda: modified(there) == modified(here) > PAST)
        wait_until(lambda: seen(there, "y"))


def test_a_directory_moves_with_what_others_change_in_it(trees: tuple[Path, Path]) -> None:
    here, there = (tree / "watched" for tree in trees)
    here.mkdir()
    (here / "first").touch()
    wait_until((there / "first").exists)
    os.utime(here, ns=(PAST, PAST))
    wait_until(lambda: modified(there) == PAST)
    told = PAST
    for change, is_seen in (
        (lambda: (here / "second").touch(), (there / "second").exists),
        (lambda: (here / "inner").mkdir(), (there / "inner").exists),
        (lambda: (here / "second").rename(here / "third"), (there / "third").exists),
        (lambda: (here / "first").unlink(), lambda: not (there / "first").exists()),
    ):
        change()
        # Whoever looked for the name, or listed the directory, would have the kernel ask anew.
        wait_until(partial(is_later, there, told))
        assert is_seen()
        told = modified(there)
    assert set(os.listdir(there)) == {"third", "inner"}


def test_an_unpacked_directory_has_the_time_that_it_was_packed_with(trees: tuple[Path, Path]) -> None:
    here, there = (tree / "unpacked" for tree in trees)
    (here / "inner").mkdir(parents=True)
    for path in (here / "inner/file", here / "file", here / "inner", here):
        if path.name == "file":
            path.write_text("x")
        os.utime(path, ns=(PAST, PAST))
    for path in (there / "inner/file", there / "file", there / "inner", there):
        wait_until(path.exists)
        wait_until(partial(is_of, path, PAST))


def test_who_writes_what_is_there_already_has_written(tmp_path: Path) -> None:
    """A stamp, as build tools leave one; its time is kept, too."""
    with mounted(tmp_path, "--no-sync") as mount:
        for name, content in (("empty", b""), ("same", b"x")):
            path = mount.directory / name
            path.write_bytes(content)
            os.utime(path, ns=(PAST, PAST))
            path.write_bytes(content)
            wait_until(partial(is_later, path, PAST))
        path = mount.directory / "cut"
        path.touch()
        os.utime(path, ns=(PAST, PAST))
        os.truncate(path, 0)
        wait_until(partial(is_later, path, PAST))
        path = mount.directory / "patched"
        path.write_text("content")
        os.utime(path, ns=(PAST, PAST))
        with path.open("r+b") as file:
            file.write(b"content")
        wait_until(partial(is_later, path, PAST))
        told = {each.name: modified(each) for each in mount.directory.iterdir()}
        mount.stop()
        mount.start()
        assert {each.name: modified(each) for each in mount.directory.iterdir()} == told
        assert min(told.values()) > PAST
