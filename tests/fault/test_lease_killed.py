"""An edge killed at every fault point of a lease on its sync point: whoever comes next leaves one, which holds."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from budwood.volume.calls import ADVANCE, PINS, SinceRequest, VolumeRequest
from budwood.volume.protocols import Durability

from .crash_harness import WORK, Place, cut, finish

PAGES = 250
"""Of what can't be compressed: more than one fetch brings along."""

TAKEN = {
    "lease: recorded, not asked for": [],
    "lease: made, its expiry not recorded": [1],
}
"""Each window, and the LSNs that are held after a kill in it."""

MOVED = {
    "lease: recorded, not asked for": [1],
    "lease: made, its expiry not recorded": [1, 2],
    "lease: moved, the old one not released": [1, 2],
    "lease: released, still recorded": [2],
}

CUTS = (TAKEN, MOVED)


def put(place: Place, home: str, value: int, *pages: int) -> None:
    with place.edge(home) as edge:
        volume = edge.volume("wide") if value else edge.create("wide", page_size=4096)
        writer = volume.writer()
        for page in pages:
            writer.write(page, bytes([value]) + Random(page).randbytes(4095))
        made = writer.commit(Durability.ORDERED)
        assert made is not None
        made.close()
        volume.push()


def held(place: Place) -> list[int]:
    """The LSNs that have a lease."""
    with place.edge("writer") as edge:
        found = edge.connection().remote.ask(PINS, VolumeRequest(edge.volume("wide").id.raw)).pins
        return sorted(pin.lsn for pin in found if pin.kind == "sync")


def forget(place: Place, since: int) -> None:
    with place.edge("writer") as edge:
        edge.connection().remote.ask(ADVANCE, SinceRequest(edge.volume("wide").id.raw, since=since))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A volume that one home has written, at LSN 1."""
    place = Place(tmp_path_factory.mktemp("written"))
    put(place, "writer", 0, *range(1, PAGES + 1))
    return place


@pytest.fixture
def place(written: Place, tmp_path: Path) -> Place:
    return written.copy(tmp_path / "copy")


def read(place: Place, page: int) -> list[str]:
    return finish(WORK, "read", place.home(), place.store, "wide", page)


@pytest.mark.parametrize(("point", "stands"), TAKEN.items())
def test_a_lease_that_was_cut_as_it_was_taken_is_one_when_it_is_needed_again(
    place: Place, point: str, stands: list[int]
) -> None:
    assert cut(point, WORK, "read", place.home(), place.store, "wide", 1) == ["0"]
    assert held(place) == stands
    assert read(place, 100) == ["0"]
    assert held(place) == [1]
    put(place, "writer", 9, 7)
    forget(place, 2)
    assert read(place, PAGES) == ["0"]


@pytest.mark.parametrize(("point", "stands"), MOVED.items())
def test_a_lease_that_was_cut_as_it_moved_holds_the_new_sync_point_alone_in_the_end(
    place: Place, point: str, stands: list[int]
) -> None:
    assert read(place, 1) == ["0"]
    put(place, "writer", 9, 7)
    assert cut(point, WORK, "pull", place.home(), place.store, "wide") == ["2"]
    assert held(place) == stands
    assert read(place, 100) == ["0"]
    assert held(place) == [2]
    put(place, "writer", 8, 7)
    forget(place, 3)
    assert read(place, PAGES) == ["0"]
    assert read(place, 7) == ["9"]
