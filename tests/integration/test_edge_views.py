"""What must not be mixed or lost when a volume moves on, leaves or comes back beside a view or a question."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from budwood.sync.edge import Edge
from budwood.sync.edge import open as open_edge
from budwood.sync.snapshot import LocalSnapshot
from budwood.sync.volume import Volume
from budwood.sync.volume_lifecycle import remove
from budwood.volume.errors import Busy, Diverged
from budwood.volume.protocols import Durability

SIZE = 4096


@pytest.fixture
def one(tmp_path: Path) -> Iterator[Edge]:
    with open_edge(home=tmp_path / "one", remote=f"file://{tmp_path}/store") as edge:
        yield edge


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Edge]:
    with open_edge(home=tmp_path / "two", remote=f"file://{tmp_path}/store") as edge:
        yield edge


def put(volume: Volume, pages: dict[int, int], *, cut: int | None = None, grow: int | None = None) -> None:
    """One commit: cut to so many pages, write, then grow to so many."""
    writer = volume.writer()
    if cut is not None:
        writer.truncate(cut * SIZE)
    for page, value in pages.items():
        writer.write(page, bytes([value]) * SIZE)
    if grow is not None:
        writer.truncate(grow * SIZE)
    made = writer.commit(Durability.ORDERED)
    assert made is not None
    made.close()


def values(volume: Volume) -> list[int]:
    snapshot = volume.snapshot()
    try:
        return [snapshot.read(page)[0] for page in range(1, snapshot.length // SIZE + 1)]
    finally:
        snapshot.close()


def test_a_view_that_rests_while_its_volume_leaves_and_comes_back_is_not_taken_for_the_new_one(
    one: Edge, two: Edge
) -> None:
    """Both begin at the same local LSN; what the old view has read must not be mixed with the new one's pages."""
    first = one.create("v")
    put(first, {1: 1, 2: 2})
    first.push()
    view = two.volume("v").snapshot()
    assert view.read(1)[0] == 1
    view.release()
    put(first, {1: 3, 2: 4})
    first.push()
    two.rm("v")
    assert values(two.volume("v")) == [3, 4]
    assert not view.renew()
    view.close()


def test_a_commit_made_while_its_volume_is_removed_is_not_lost(one: Edge, monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes between the question and the removal; Diverged says so, and everything stands."""
    volume = one.create("v")
    put(volume, {1: 1})
    volume.push()

    def late(*arguments: Any, **options: Any) -> None:
        put(volume, {1: 2})
        remove(*arguments, **options)

    monkeypatch.setattr("budwood.sync.edge.remove", late)
    with pytest.raises(Diverged, match="1 unpushed commit"):
        one.rm("v")
    assert values(volume) == [2]
    one.rm("v", discard=True)
    assert one.ls() == []


def test_a_view_that_a_push_moves_on_shows_nothing_that_was_cut_off(
    one: Edge, two: Edge, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B9, B10: pages that came along at the old sync point, beyond the floor, read as zeros at the new one too."""
    first = one.create("v")
    put(first, dict.fromkeys(range(1, 61), 7))
    first.push()
    volume = two.volume("v")
    put(volume, {60: 8}, cut=20, grow=60)
    view = volume.snapshot()
    assert isinstance(view, LocalSnapshot)
    fetch = view.misses.fetch

    def late(*arguments: Any) -> dict[int, bytes]:
        pages = fetch(*arguments)
        volume.push()
        return pages

    monkeypatch.setattr(view.misses, "fetch", late)
    assert view.read(10)[0] == 7
    monkeypatch.setattr(view.misses, "fetch", fetch)
    assert view.read(40)[0] == 0
    view.release()
    assert view.renew()
    assert [view.read(page)[0] for page in (20, 21, 40, 60)] == [7, 0, 0, 8]
    view.close()


def test_a_commit_that_stands_is_not_reported_as_failed_for_want_of_a_reader(
    one: Edge, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LMDB's table of readers may be full: the writer's own place in it serves for the view after the commit."""
    volume = one.create("v")
    put(volume, {1: 1})
    writer = volume.writer()
    writer.write(1, bytes([2]) * SIZE)
    held = writer._snapshot  # pyright: ignore[reportPrivateUsage]
    read = one.environment.read

    def full() -> Any:
        if held._txn is not None:  # pyright: ignore[reportPrivateUsage]
            raise Busy("the local store has no room for another reader")
        return read()

    monkeypatch.setattr(one.environment, "read", full)
    monkeypatch.setattr(one.environment, "flush", lambda: None)
    made = writer.commit(Durability.ORDERED)
    assert made is not None
    assert made.read(1)[0] == 2
    made.close()
