"""Lock files of volumes: they go with their volume, and never let two hold what one may."""

from __future__ import annotations

import os
import threading
from contextlib import closing
from pathlib import Path

import pytest

import budwood
from budwood.sync import stage
from budwood.sync.edge import Edge
from budwood.sync.file_locks import FileLock, IdleFiles, write_lock
from budwood.volume import faults
from budwood.volume.errors import Busy, NotFound
from budwood.volume.ids import VolumeId

from ..waits import LIMIT_SECONDS


def lock_files(home: Path) -> set[str]:
    """Those of volumes."""
    return {path.name for path in (home / "locks").iterdir() if not path.name.startswith(("autosync", "names"))}


def written(edge: Edge, name: str) -> None:
    with closing(budwood.connect(name, home=edge.home, remote=edge.remote)) as db:
        db.execute("CREATE TABLE t(x)")


@pytest.fixture
def lock(tmp_path: Path) -> str:
    return str(tmp_path / "lock")


def test_who_opened_the_file_of_a_lock_that_was_removed_locks_the_next_one(lock: str) -> None:
    idle = IdleFiles()
    FileLock(lock, "held", idle).release()
    FileLock(lock, "held").remove()
    assert not os.path.exists(lock)
    with FileLock(lock, "held", idle), pytest.raises(Busy):
        FileLock(lock, "held")


def test_a_lock_that_was_released_removes_nothing(lock: str) -> None:
    released = FileLock(lock, "held")
    released.release()
    with FileLock(lock, "held"):
        released.remove()
        with pytest.raises(Busy):
            FileLock(lock, "held")


def test_however_often_it_is_removed_one_holds_it(lock: str) -> None:
    holders: list[int] = []
    most: list[int] = []

    def take(number: int) -> None:
        taken = 0
        while taken < 300:
            try:
                held = FileLock(lock, "held")
            except Busy:
                continue
            holders.append(number)
            most.append(len(holders))
            holders.remove(number)
            (held.remove if taken % 2 else held.release)()
            taken += 1

    takers = [threading.Thread(target=take, args=(number,)) for number in range(4)]
    for taker in takers:
        taker.start()
    for taker in takers:
        taker.join(LIMIT_SECONDS)
    assert len(most) == 1200
    assert set(most) == {1}


def test_a_volume_that_is_removed_leaves_no_lock_file(tmp_path: Path) -> None:
    with budwood.open(home=tmp_path / "home", remote=(tmp_path / "store").as_uri()) as edge:
        written(edge, "v")
        volume = edge.volume("v")
        volume.push()
        assert len(lock_files(edge.home)) == 2
        edge.rm("v")
        assert lock_files(edge.home) == set()
        # Who still has it comes too late.
        with pytest.raises(NotFound):
            volume.push()
        assert lock_files(edge.home) == set()
        # It may come again, under the same id.
        edge.clone("v").push()
        edge.rm("v", remote=True)
        assert lock_files(edge.home) == set()


def test_a_removal_that_was_cut_leaves_no_lock_file_once_the_home_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut() -> None:
        raise faults.Cut

    # What goes in one transaction leaves two empty files, which `compact` removes.
    monkeypatch.setattr(stage, "TIDY_ROWS", 1)
    with budwood.open(home=tmp_path / "home", remote="") as edge:
        written(edge, "v")
        faults.arm("remove: name gone, some rows left", cut)
        with pytest.raises(faults.Cut):
            edge.rm("v", discard=True)
        faults.disarm()
    assert lock_files(tmp_path / "home")
    with budwood.open(home=tmp_path / "home", remote=""):
        assert lock_files(tmp_path / "home") == set()


def test_compact_removes_what_no_volume_needs_and_nobody_holds(tmp_path: Path) -> None:
    with budwood.open(home=tmp_path / "home", remote="") as edge:
        written(edge, "v")
        kept = lock_files(edge.home)
        held = VolumeId.new()
        for name in (f"{VolumeId.new()}", f"{VolumeId.new()}.sync", "autosync"):
            (edge.home / "locks" / name).touch()
        with write_lock(edge.home, str(held), "w"):
            edge.compact()
            assert lock_files(edge.home) == {*kept, str(held)}
        edge.compact()
        assert lock_files(edge.home) == kept
        assert (edge.home / "locks" / "autosync").exists()
        written(edge, "w")
