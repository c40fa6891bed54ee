"""Power losses of a mount's home, a share of them: `python -m tests.power --mount STEPS` does as many as it is told."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from ..mounts import needs_fuse
from ..power.mount_program import Tree
from ..power.mount_run import found_in, found_mounted, record_mount, record_program, serving
from ..power.run import judge_promise, judge_states

pytestmark = needs_fuse

SEED, STEPS, STATES = 6, 100, 200


def make_folder(directory: Path, tree: Tree) -> None:
    (directory / "d1" / "in it").mkdir()
    tree["d1/in it"] = None


def move_folder(directory: Path, tree: Tree) -> None:
    (directory / "d1").rename(directory / "moved")
    tree["moved"] = tree.pop("d1")


def remove_folder(directory: Path, tree: Tree) -> None:
    (directory / "d1").rmdir()
    del tree["d1"]


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    folder = tmp_path / "scratch"
    folder.mkdir()
    return folder


def test_a_tree_is_what_it_was_after_some_step_and_none_before_what_was_flushed(tmp_path: Path, scratch: Path) -> None:
    recorded = record_program(tmp_path, STEPS, SEED)
    assert judge_states(recorded.recorded, partial(recorded.judge, 0.05), STATES, SEED, scratch) > STATES / 2


@pytest.mark.parametrize("content", [b"", b"x" * 5000])
def test_a_new_file_is_on_the_disk_once_it_was_flushed(tmp_path: Path, scratch: Path, content: bytes) -> None:
    def work(directory: Path, notes: Path, tree: Tree) -> Tree:
        fd = os.open(directory / "new", os.O_WRONLY | os.O_CREAT)
        os.write(fd, content)
        os.fsync(fd)
        notes.write_bytes(b"told")
        os.close(fd)
        return {"new": content}

    check_told(tmp_path, work, scratch)


@pytest.mark.parametrize("change", [make_folder, move_folder, remove_folder], ids=lambda change: change.__name__)
def test_names_are_on_the_disk_once_their_folder_was_flushed(
    tmp_path: Path, scratch: Path, change: Callable[[Path, Tree], None]
) -> None:
    def work(directory: Path, notes: Path, tree: Tree) -> Tree:
        change(directory, tree)
        fd = os.open(directory, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)
        notes.write_bytes(b"told")
        return {path: content for path, content in tree.items() if content is None}

    check_told(tmp_path, work, scratch)


def test_the_commits_of_a_home_that_a_mount_has_made_are_on_the_disk(tmp_path: Path, scratch: Path) -> None:
    def work(directory: Path, notes: Path, tree: Tree) -> None:
        with closing(sqlite3.connect(directory / "new.db")) as db:
            db.executescript("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; CREATE TABLE t(n)")
            db.execute("INSERT INTO t VALUES(1)")
            db.commit()
            notes.write_bytes(b"told")

    recorded, _ = record_mount(tmp_path, work, furnished=False)

    def judge(folder: Path, cut: int) -> None:
        with (
            serving(folder / "home", folder / "mounted") as mount,
            closing(sqlite3.connect(mount.directory / "new.db")) as db,
        ):
            assert db.execute("SELECT n FROM t").fetchall() == [(1,)]

    judge_promise(recorded, judge, STATES // 20, scratch)


def test_the_commits_of_a_wal_are_not_taken_for_those_of_the_one_before(tmp_path: Path, scratch: Path) -> None:
    """Which had started over, as this one never did."""

    def work(directory: Path, notes: Path, tree: Tree) -> None:
        for n in (1, 2):
            with closing(sqlite3.connect(directory / "full.db", isolation_level=None)) as db:
                db.execute("PRAGMA synchronous = FULL")
                db.execute("INSERT INTO t VALUES(?, 'row')", (n,))
                if n == 2:
                    notes.write_bytes(b"told")
                db.execute("PRAGMA wal_checkpoint(RESTART)")
                db.execute("UPDATE t SET payload = 'another'")

    recorded, _ = record_mount(tmp_path, work)

    def judge(folder: Path, cut: int) -> None:
        assert found_mounted(folder)["full.db"] == frozenset({1, 2})

    judge_promise(recorded, judge, STATES // 10, scratch)


def test_small_files_are_made_and_removed_by_two_flushes_each(tmp_path: Path) -> None:
    files = 20

    def work(directory: Path, notes: Path, tree: Tree) -> None:
        paths = [directory / f"small {number}" for number in range(files)]
        with notes.open("wb", buffering=0) as noted:
            noted.write(b"begun")
            for path in paths:
                path.write_bytes(b"small")
            noted.write(b"removing")
            for path in paths:
                path.unlink()
            noted.write(b"done")

    recorded, _ = record_mount(tmp_path, work)
    begun, removing, done = (
        step for step, what in enumerate(recorded.steps) if what[0] == "write" and what[1] in recorded.notes
    )
    for first, last in ((begun, removing), (removing, done)):
        flushes = sum(what[0] == "sync" for what in recorded.steps[first:last])
        # Times are stored, and room is looked for, now and then.
        assert 0 < flushes <= 2 * files + files // 2


def check_told(place: Path, work: Callable[[Path, Path, Tree], Tree], scratch: Path) -> None:
    """Of the kinds that are in the tree that `work` returned, what is there is so once it has noted something."""
    recorded, wanted = record_mount(place, work)
    kinds = {type(content) for content in wanted.values()}

    def judge(folder: Path, cut: int) -> None:
        found = {path: content for path, content in found_in(folder / "home").items() if type(content) in kinds}
        assert found == wanted

    judge_promise(recorded, judge, STATES // 5, scratch)
