"""A disk that is full: what is removed makes room, and nothing else is lost."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, suppress
from itertools import count
from pathlib import Path

import pytest

import budwood
from budwood.sync.ballast import BALLAST_BYTES
from budwood.sync.edge import open as open_edge
from budwood.sync.verify import verify
from budwood.volume.errors import Full

from ..mounts import mounted, needs_fuse
from ..small_disk import fill, relieve, small_disk

DISK_KIB = 40 << 10


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", DISK_KIB) as disk:
        yield disk


@needs_fuse
def test_files_of_a_mount_are_removed_and_others_written_in_their_place(disk: Path, tmp_path: Path) -> None:
    with mounted(tmp_path, "--no-sync", home="disk/home") as mount:
        written: dict[str, bytes] = {}

        def write() -> None:
            name = f"{len(written)}"
            (mount.directory / name).write_bytes(content := os.urandom(40_000))
            written[name] = content

        def write_until_refused() -> None:
            while True:
                write()

        with pytest.raises(OSError, match="No space left"):
            write_until_refused()
        fill(disk)
        (mount.directory / f"{len(written)}").unlink(missing_ok=True)
        for gone in list(written)[:20]:
            (mount.directory / gone).unlink()
            del written[gone]
        (mount.directory / "new").write_bytes(b"there is room again")
        written["new"] = b"there is room again"
        mount.kill()
        # It may take a little to start.
        relieve(disk)
        mount.start()
        assert {path.name: path.read_bytes() for path in mount.directory.iterdir()} == written


def test_a_home_on_a_full_disk_is_relieved(disk: Path) -> None:
    home = disk / "home"
    with open_edge(home=home, remote="") as edge:
        for name in ("large", "kept"):
            edge.create(name)
        with closing(budwood.connect("large", home=home, remote="")) as db:
            db.execute("CREATE TABLE t(x)")
            for _ in range(300):
                db.execute("INSERT INTO t VALUES (randomblob(40000))")
        with closing(budwood.connect("kept", home=home, remote="")) as db:
            db.execute("CREATE TABLE t(x)")
    ballast = home / "store/ballast"
    with open_edge(home=home, remote="") as edge:
        assert ballast.stat().st_size == BALLAST_BYTES
        fill(disk)
        with suppress(Full):
            for number in count():
                edge.create(f"{number:0200}")
        # What only writes leaves it alone.
        assert ballast.exists()
        edge.rm("large", discard=True)
        edge.create("new")
        relieve(disk)
    with open_edge(home=home, remote="") as edge:
        names = {row["name"] for row in edge.ls()}
        assert {"kept", "new"} <= names
        assert "large" not in names
    assert not verify(home).is_damaged


def test_small_commits_that_fill_the_disk_leave_it_possible_to_remove(disk: Path) -> None:
    """They go to the journal, which LMDB has to take before it changes anything."""
    home = disk / "home"
    with open_edge(home=home, remote="") as edge, closing(budwood.connect("a", home=home, remote="")) as db:
        edge.create("b")
        db.execute("PRAGMA synchronous = NORMAL")
        db.execute("CREATE TABLE t(x)")
        rows = 0
        with suppress(Full):
            while True:
                db.execute("INSERT INTO t VALUES (randomblob(20000))")
                rows += 1
        fill(disk)
        assert (home / "store/journal").exists()
        edge.rm("b")
        assert db.execute("SELECT count(*) FROM t").fetchone() == (rows,)
    assert not verify(home).is_damaged
