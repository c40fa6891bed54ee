"""Restore, migration and rebuild, killed at each of their fault points: a fresh process finds the volume before or
after it, and what was cut is done again.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

import budwood
from budwood.sync.rebuild import rebuild
from budwood.sync.tables import FORMAT_VERSION
from budwood.sync.verify import verify
from budwood.volume.errors import Corrupt

from .crash_harness import WORK, Place, cut, finish, look, rows_of

OLD_HOME = Path(__file__).parents[1] / "stored" / "home-format-1.tar.xz"
"""Made by the Budwood before the journal: `pushed`, `mixed` with two unpushed commits, `alone` never pushed."""

RESTORE = {
    "restore: pages fetched, nothing committed": False,
    "restore: committed, caller not told": True,
}
"""Each window, and whether the old snapshot is the head after a kill in it."""

MIGRATE = {
    "home: about to become another format": 1,
    "home: of another format, its marker not": 1,
}
"""Each window, and which format the marker names after a kill in it."""

REBUILD = {
    "rebuild: new store built, old one in place": False,
    "rebuild: old store set aside, new one not in place": True,
    "rebuild: new marker in place, new store not": True,
    "rebuild: new store in place, caller not told": True,
}
"""Each window, and whether the damaged store is aside after a kill in it."""

CUTS: list[Iterable[str]] = [RESTORE, MIGRATE, REBUILD]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path)
    place.execute("create table ledger(entry)", remote=place.store)
    for number in range(3):
        place.execute("insert into ledger values(?)", f"row {number}")
        with place.edge() as edge:
            edge.volume("ledger").push()
    return place


@pytest.mark.parametrize("point", RESTORE)
def test_restore_is_whole_or_not_at_all(place: Place, point: str) -> None:
    cut(point, WORK, "restore", place.home(), place.store, "2")
    old = ["row 0", "row 1"]
    assert rows_of(place) == (old if RESTORE[point] else [*old, "row 2"])
    if not RESTORE[point]:
        finish(WORK, "restore", place.home(), place.store, "2")
    found = look(place)
    assert (found.rows, found.integrity) == (old, "ok")
    assert found.remote == [*old, "after"]
    assert found.history[:3] == [["row 0"], old, [*old, "row 2"]]


@pytest.mark.parametrize("point", MIGRATE)
def test_an_old_home_is_of_one_format_or_the_next(tmp_path: Path, point: str) -> None:
    home = unpacked(tmp_path)
    cut(point, WORK, "open_home", home, "")
    assert marked(home) == MIGRATE[point]
    check_old_home(tmp_path)


def test_a_home_that_an_older_budwood_made_is_read_written_and_pushed(tmp_path: Path) -> None:
    home = unpacked(tmp_path)
    assert verify(home).format == 1
    assert verify(home, modes=False).findings == ()
    check_old_home(tmp_path)


def check_old_home(folder: Path) -> None:
    home, store = folder / "home", f"file://{folder}/store"
    for name, count in (("pushed", 50), ("mixed", 52), ("alone", 50)):
        with closing(budwood.connect(name, home=home, remote=store, mode="rw")) as db:
            assert db.execute("select count(*), min(a), max(a) from t").fetchall() == [(count, 0, count - 1)]
            db.execute("insert into t values(100, 'new')")
            assert db.pragma("integrity_check") == "ok"
    assert marked(home) == FORMAT_VERSION
    with budwood.open(home=home, remote=store) as edge:
        assert [edge.volume(name).status()["unpushed"] for name in ("pushed", "mixed", "alone")] == [1, 3, 52]
        for name in ("pushed", "mixed", "alone"):
            edge.volume(name).push()
    assert verify(home).findings == ()


@pytest.mark.parametrize("point", REBUILD)
def test_a_rebuild_that_is_cut_is_finished_or_done_again(place: Place, point: str) -> None:
    place.execute("insert into ledger values('unpushed')")
    damage_a_page(place.home())
    cut(point, WORK, "rebuild", place.home(), place.store)
    assert (place.home() / "store.damaged-1").exists() == REBUILD[point]
    if point != "rebuild: new store in place, caller not told":
        rebuild(place.home())
    assert sorted(path.name for path in place.home().glob("store*")) == ["store", "store.damaged-1"]
    assert not (place.home() / "rebuilt").exists()
    rows = ["row 0", "row 1", "row 2", "unpushed"]
    found = look(place)
    assert (found.rows, found.integrity, found.unpushed) == (rows, "ok", 1)
    assert found.remote == [*rows, "after"]


def test_a_rebuild_is_not_built_on_what_another_one_left(place: Place) -> None:
    place.execute("create table ledger(entry)", name="other", home="home/rebuilt")
    damage_a_page(place.home())
    rebuild(place.home())
    with place.edge() as edge:
        assert [row["name"] for row in edge.ls()] == ["ledger"]


def test_what_opens_a_home_between_the_renames_makes_nothing_that_lasts(place: Place) -> None:
    damage_a_page(place.home())
    cut("rebuild: old store set aside, new one not in place", WORK, "rebuild", place.home(), place.store)
    with pytest.raises(Corrupt, match="its tables are gone"):
        place.execute("select 1")
    rebuild(place.home())
    assert rows_of(place) == ["row 0", "row 1", "row 2"]


def damage_a_page(home: Path) -> None:
    """Of what the remote has: verify finds it, a rebuild fetches it."""
    data = home / "store" / "data.mdb"
    found, at = data.read_bytes(), 0
    while (at := found.find(b"ledger(entry)", at)) >= 0:
        with data.open("r+b") as file:
            file.seek(at)
            file.write(b"LEDGER(entry)")
        at += 1
    assert any("ledger" in each.volume and not each.lost for each in verify(home).findings)


def unpacked(folder: Path) -> Path:
    with tarfile.open(OLD_HOME) as archive:
        archive.extractall(folder, filter="data")
    return folder / "home"


def marked(home: Path) -> int:
    return int(msgspec.json.decode((home / "home.json").read_bytes())["format"])
