"""A mount of a home that keeps less of what the remote has than one read asks for."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import budwood
from budwood.sync.edge import open as open_edge
from budwood.sync.free_room import room

from ..mounts import mounted, needs_fuse
from ..waits import wait_until

pytestmark = needs_fuse


@pytest.mark.parametrize("kept_bytes", [1, 100_000, 600_000])
def test_whoever_reads_a_file_gets_all_of_it_however_little_the_home_keeps(tmp_path: Path, kept_bytes: int) -> None:
    remote, home = f"file://{tmp_path}/store", tmp_path / "home"
    (tmp_path / "store").mkdir()
    with closing(budwood.connect("database", home=home, remote=remote)) as db:
        db.execute("CREATE TABLE t(x)")
        db.executemany("INSERT INTO t VALUES (?)", ((os.urandom(3000),) for _ in range(1000)))
        db.execute("PRAGMA budwood_push").fetchall()
    with open_edge(home=home, remote=remote, cache_bytes=kept_bytes) as edge:
        status = edge.volume("database").status()
        assert status["held_bytes"] <= 1_000_000, "what is kept is little"
    with mounted(tmp_path, remote=remote) as mount, closing(sqlite3.connect(mount.directory / "database")) as db:
        assert len((mount.directory / "database").read_bytes()) == status["length"]
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert db.execute("SELECT count(*) FROM t WHERE length(x) = 3000").fetchone() == (1000,)
        db.execute("INSERT INTO t VALUES (1)")
        db.commit()
        mount.ask("push")


def volumes_with_locks(home: Path) -> set[str]:
    found = {path.name.removesuffix(".sync") for path in (home / "locks").iterdir()}
    return {name for name in found if not name.startswith(("autosync", "names"))}


@pytest.mark.parametrize("with_remote", [False, True])
def test_files_that_came_and_went_leave_no_locks_in_the_home(tmp_path: Path, with_remote: bool) -> None:
    (tmp_path / "store").mkdir()
    with mounted(tmp_path, remote=f"file://{tmp_path}/store" if with_remote else "") as mount:
        stays = mount.directory / "stays"
        stays.write_text("here")

        def come_and_go(name: str) -> None:
            path = mount.directory / name
            path.write_text("one")
            with path.open("a") as still_open:
                path.rename(mount.directory / f"{name}-renamed")
                still_open.write("two")
                (mount.directory / f"{name}-renamed").unlink()
            with closing(sqlite3.connect(path)) as db:
                db.execute("PRAGMA journal_mode = WAL")
                db.execute("CREATE TABLE t(x)")
            path.unlink()

        for number in range(20):
            come_and_go(f"f{number}")
        if with_remote:
            mount.ask("push")
        wait_until(lambda: len(volumes_with_locks(mount.home)) == 1)
        assert stays.read_text() == "here"


def test_what_was_put_off_is_given_back_once_no_program_writes(tmp_path: Path) -> None:
    with mounted(tmp_path) as mount, open_edge(home=mount.home, remote="") as edge:
        file = mount.directory / "file"
        file.write_bytes(os.urandom(20_000_000))
        with closing(edge.volume("file").snapshot()) as view:
            assert view.length == 20_000_000
            file.write_bytes(os.urandom(20_000_000))
            file.write_bytes(os.urandom(20_000_000))
            seen: list[int] = []

            def stands_still() -> bool:
                seen.append(edge.environment.last_change())
                return seen[-50:] == [seen[-1]] * 50

            # The names follow: what each file's time is.
            wait_until(stands_still)
            assert room(edge.environment).is_due(), "the view holds what was there before"
        wait_until(lambda: not room(edge.environment).is_due())
