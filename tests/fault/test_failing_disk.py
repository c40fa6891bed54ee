"""A disk that refuses what a home writes, now and then: nothing is lost that was told, and once it takes writes again
the same process goes on.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import NamedTuple

import apsw
import pytest

import budwood
from budwood.sync.edge import Edge
from budwood.volume.errors import BudwoodError, Full

from ..failing_disk import KINDS, SOCKET, WRITE, fail, failing_disk
from ..mounts import Mount, needs_fuse

pytestmark = needs_fuse

META_BYTES = 2 * 4096
"""LMDB's meta pages."""
STEPS = 120
NAMES = ("a", "b")


class Failing(NamedTuple):
    home: Path
    control: Path
    remote: str

    def open(self) -> Edge:
        return budwood.open(home=self.home, remote=self.remote)

    def connect(self, name: str, *, fresh: bool = False) -> apsw.Connection:
        home = self.home.parent.with_name("fresh") if fresh else self.home
        return budwood.connect(name, home=home, remote=self.remote)

    def rows(self, name: str, *, fresh: bool = False) -> set[int]:
        with closing(self.connect(name, fresh=fresh)) as db:
            assert db.execute("PRAGMA integrity_check").get == "ok"
            return {n for (n,) in db.execute("SELECT n FROM t")}


@pytest.fixture
def failing(tmp_path: Path) -> Iterator[Failing]:
    with failing_disk(tmp_path) as (disk, control):
        place = Failing(disk / "home", control, f"file://{tmp_path}/store")
        for name in NAMES:
            with closing(place.connect(name)) as db:
                db.execute("CREATE TABLE t(n INTEGER PRIMARY KEY, payload BLOB)")
        yield place


def test_a_commit_whose_last_page_is_refused_is_not_made_and_the_process_goes_on(failing: Failing) -> None:
    """LMDB itself does nothing more after that."""
    with failing.open() as edge, closing(failing.connect("a")) as db:
        db.execute("INSERT INTO t VALUES(1, zeroblob(300000))")
        reader = failing.connect("a")
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM t").get == 1
        fail(failing.control, errno.ENOSPC, WRITE, below=META_BYTES)
        with pytest.raises(apsw.FullError):
            db.execute("INSERT INTO t VALUES(2, zeroblob(300000))")
        with pytest.raises(Full):
            edge.create("c")
        assert db.execute("SELECT count(*) FROM t").get == 1
        assert reader.execute("SELECT n FROM t WHERE payload = zeroblob(300000)").fetchall() == [(1,)]
        reader.close()
        failing.control.unlink()
        db.execute("INSERT INTO t VALUES(3, zeroblob(300000))")
        edge.create("d")
        edge.volume("a").push()
        assert failing.rows("a") == {1, 3}
        assert {row["name"] for row in edge.ls()} == {"a", "b", "d"}
    assert failing.rows("a", fresh=True) == {1, 3}


def test_a_mount_says_so_where_the_file_system_of_its_home_holds_no_sockets(failing: Failing, tmp_path: Path) -> None:
    fail(failing.control, errno.EPERM, SOCKET)
    mount = Mount(failing.home, tmp_path / "mounted")
    try:
        with pytest.raises(AssertionError, match="on this file system: take a home on another one, with --home"):
            mount.start("--no-sync")
        assert "Traceback" not in mount.said()
    finally:
        mount.end()


@pytest.mark.parametrize("seed", range(int(os.environ.get("FAILING_SEEDS", "5"))))
def test_what_was_told_is_there_whatever_the_disk_refused(failing: Failing, seed: int) -> None:
    dice, told, perhaps = (
        random.Random(seed),
        {name: set[int]() for name in NAMES},
        {name: set[int]() for name in NAMES},
    )
    edge, open_now = failing.open(), dict[str, apsw.Connection]()

    def check() -> None:
        failing.control.unlink(missing_ok=True)
        for name in NAMES:
            rows = failing.rows(name)
            assert told[name] <= rows <= told[name] | perhaps[name]
            told[name], perhaps[name] = rows, set()

    def close() -> None:
        for db in open_now.values():
            db.close()
        open_now.clear()

    for n in range(STEPS):
        name, what = dice.choice(NAMES), dice.random()
        if what < 0.15:
            kinds = dice.choice(KINDS)
            chance, below = dice.choice((0.02, 0.2, 1)), dice.choice((None, None, META_BYTES))
            fail(failing.control, dice.choice((errno.EIO, errno.ENOSPC)), *kinds, chance=chance, below=below)
        elif what < 0.3:
            failing.control.unlink(missing_ok=True)
        elif what < 0.8:
            perhaps[name].add(n)
            with suppress(BudwoodError, apsw.Error):
                if name not in open_now:
                    open_now[name] = failing.connect(name)
                    open_now[name].pragma("synchronous", dice.choice(("full", "normal")))
                size = dice.choice((10, 3000, 400_000))
                open_now[name].execute("INSERT INTO t VALUES(?, zeroblob(?))", (n, size))
                told[name].add(n)
        elif what < 0.88:
            with suppress(BudwoodError):
                edge.volume(name).push()
        elif what < 0.92:
            with suppress(BudwoodError):
                edge.compact()
        elif what < 0.96:
            check()
        else:
            failing.control.unlink(missing_ok=True)
            close()
            edge.close()
            edge = failing.open()
            check()
    close()
    check()
    for name in NAMES:
        edge.volume(name).push()
    edge.close()
    assert {name: failing.rows(name, fresh=True) for name in NAMES} == told
