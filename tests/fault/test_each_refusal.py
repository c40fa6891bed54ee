"""A disk that refuses a write, a flush or a name, each that a home asks for in its turn: what was told is there, the
same process goes on once the disk takes writes again, and what was refused can be done again by the same words.

By default each tenth is refused; `REFUSALS=1` takes each of them.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Final, NamedTuple

import apsw
import pytest

import budwood
from budwood.rows.replay import replay
from budwood.sync import commit_journal
from budwood.sync.edge import Edge
from budwood.sync.rebuild import rebuild
from budwood.sync.verify import verify
from budwood.volume.errors import BudwoodError, Diverged

from ..failing_disk import FLUSH, NAME, WRITE, fail, failing_disk, refused_file
from ..mounts import needs_fuse
from ..power.program import small_journal

pytestmark = needs_fuse

EACH = int(os.environ.get("REFUSALS", "10"))
LARGE = 400_000


class Place:
    """A home on the failing disk, a store that isn't, and which rows each volume must have, and may."""

    def __init__(self, home: Path, store: Path, told: dict[str, set[int]]) -> None:
        self.home = home
        self.remote = f"file://{store}"
        self.told = {name: set(rows) for name, rows in told.items()}
        self.perhaps: dict[str, set[int]] = {}
        self._edge: Edge | None = None

    @property
    def edge(self) -> Edge:
        if self._edge is None:
            self._edge = budwood.open(home=self.home, remote=self.remote)
        return self._edge

    @property
    def names(self) -> set[str]:
        return {str(row["name"]) for row in self.edge.ls()}

    def close(self) -> None:
        edge, self._edge = self._edge, None
        if edge is not None:
            edge.close()

    def insert(self, name: str, n: int, size: int = 3000) -> None:
        self.perhaps.setdefault(name, set()).add(n)
        with closing(budwood.connect(name, home=self.home, remote=self.remote)) as db:
            db.pragma("synchronous", "full")
            db.execute("CREATE TABLE IF NOT EXISTS t(n INTEGER PRIMARY KEY, payload BLOB)")
            db.execute("INSERT OR IGNORE INTO t VALUES(?, randomblob(?))", (n, size))
        self.told.setdefault(name, set()).add(n)

    def rows(self, name: str, home: Path | None = None) -> set[int]:
        with closing(budwood.connect(name, home=home or self.home, remote=self.remote, mode="rw")) as db:
            assert db.execute("PRAGMA integrity_check").get == "ok"
            return {n for (n,) in db.execute("SELECT n FROM t WHERE length(payload) > 0")}

    def check(self) -> None:
        for name, told in self.told.items():
            assert told <= self.rows(name) <= told | self.perhaps.get(name, set()), name


def commit(place: Place) -> None:
    place.insert("ours", 10)
    place.insert("ours", 11, LARGE)
    place.insert("fresh", 1)


def push(place: Place) -> None:
    place.edge.volume("ours").push()
    place.edge.volume("alone").push()


def keep(place: Place) -> None:
    """A reset: what is unpushed and the remote's newest change places in one transaction."""
    volume = place.edge.volume("shared")
    if volume.status()["unpushed"]:
        assert "kept" not in place.names
        place.told["shared"], place.perhaps["shared"] = {0}, {1, 2}
        volume.reset(keep_as="kept")
    place.told["shared"], place.told["kept"] = {0, 1}, {0, 2}


def replayed(place: Place) -> None:
    """What is unpushed comes on top of the remote's newest, and stays as it was beside, in one transaction."""
    volume = place.edge.volume("shared")
    place.perhaps["shared"] = {1}
    if volume.status()["unpushed"] and volume.status()["remote_lsn"] == 1:
        assert "kept" not in place.names
        replay(volume, keep_as="kept")
    place.told["shared"], place.told["kept"] = {0, 1, 2}, {0, 2}


def fork(place: Place) -> None:
    if "forked" not in place.names:
        place.edge.fork("ours", "forked")
    place.told["forked"] = set(place.told["ours"])


def compact(place: Place) -> None:
    place.told.pop("large", None)
    if "large" in place.names:
        place.edge.rm("large", discard=True)
    place.edge.compact()
    place.close()


def make_anew(place: Place) -> None:
    place.close()
    rebuild(place.home, force=True)


def begin(place: Place) -> None:
    """Another home, where there was none."""
    place.close()
    place.home = place.home.with_name("another")
    place.told, place.perhaps = {}, {}
    place.insert("first", 1)


STEPS: Final = {each.__name__: each for each in (commit, push, keep, replayed, fork, compact, make_anew, begin)}


class Origin(NamedTuple):
    disk: Path
    control: Path
    home: Path
    store: Path
    told: dict[str, set[int]]


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Origin]:
    folder = tmp_path_factory.mktemp("origin")
    place = make_origin(folder)
    with failing_disk(folder) as (disk, control):
        yield Origin(disk, control, place.home, folder / "store", place.told)


def make_origin(folder: Path) -> Place:
    """`shared` has diverged, `ours` has an unpushed commit, `alone` was never pushed, `large` is in the way."""
    place, other = Place(folder / "home", folder / "store", {}), Place(folder / "other", folder / "store", {})
    for name in ("shared", "ours"):
        place.insert(name, 0)
        place.edge.volume(name).push()
    other.edge.clone("shared")
    other.insert("shared", 1)
    other.edge.volume("shared").push()
    other.close()
    place.insert("shared", 2)
    place.insert("ours", 1)
    place.insert("alone", 0)
    place.insert("large", 0, 3 * LARGE)
    place.close()
    return place


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize(("code", "times"), [(errno.EIO, 1), (errno.ENOSPC, None)], ids=["once", "from then on"])
def test_whatever_is_refused_nothing_told_is_lost_and_it_can_be_done_again(
    origin: Origin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, code: int, times: int | None
) -> None:
    for name in ("FIRST_BYTES", "MAX_BYTES", "MAX_COMMIT_BYTES"):
        monkeypatch.setattr(commit_journal, name, getattr(commit_journal, name))
    small_journal()
    after = 0
    while refused_at(origin, tmp_path, STEPS[step], code, after, times):
        after += EACH
    assert after


def proven(place: Place, fresh: Path, untouched: dict[str, set[int]]) -> None:
    """The home is sound and holds what it must; what was touched is pushed, and a new home reads the same."""
    place.check()
    place.close()
    assert verify(place.home).findings == ()
    place.check()
    for name, told in place.told.items():
        if untouched.get(name) == told:
            continue
        with suppress(Diverged):
            place.edge.volume(name).push()
            assert place.rows(name, fresh) == place.rows(name) >= told
    place.close()


def refused_at(
    origin: Origin, folder: Path, step: Callable[[Place], None], code: int, after: int, times: int | None
) -> bool:
    """Whether anything was refused."""
    work, store = origin.disk / f"case-{after}", folder / "store"
    work.mkdir()
    shutil.copytree(origin.home, work / "home")
    shutil.copytree(origin.store, store)
    place = Place(work / "home", store, origin.told)
    fail(origin.control, code, WRITE, FLUSH, NAME, after=after, times=times)
    with suppress(BudwoodError, apsw.Error):
        step(place)
    origin.control.unlink()
    is_refused = refused_file(origin.control).exists()
    if step is not make_anew:
        # Which may stand between its renames, and says so.
        place.check()
    step(place)
    proven(place, folder / "fresh", {})
    for each in (work, store, folder / "fresh"):
        shutil.rmtree(each)
    return is_refused
