"""What other processes of a home change while it is mounted: whoever opens the file finds all of it, however soon."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

import pytest

import budwood
from budwood.fuse.host.lost_commits import losses, note_loss
from budwood.sync.edge import Edge
from budwood.sync.edge import open as open_edge
from budwood.sync.namespace import Namespace
from budwood.sync.verify import verify
from budwood.volume.errors import Busy

from ..mounts import MODULE_SECONDS, Mount, mounted, needs_fuse
from ..waits import wait_until

pytestmark = needs_fuse

TIMES = 10
"""The mount notices within a tenth of a second: who is to be quicker than that tries as often."""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mount]:
    with mounted(tmp_path_factory.mktemp("others"), "--no-sync", limit_seconds=MODULE_SECONDS) as mount:
        yield mount


def execute(home: Path, name: str, *statements: str) -> None:
    """Beside the mount."""
    with closing(budwood.connect(name, home=home, remote="")) as db, db:
        for statement in statements:
            db.execute(statement)


def count(path: Path, mode: str) -> int:
    with closing(sqlite3.connect(f"file:{path}?mode={mode}", uri=True)) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        return int(db.execute("SELECT count(*) FROM t").fetchone()[0])


def removed(edge: Edge, name: str) -> bool:
    """The mount hears after the program of a file that it closed, and then writes to it no more."""
    with suppress(Busy):
        edge.rm(name, discard=True)
        return True
    return False


@pytest.mark.parametrize("mode", ["ro", "rw"])
@pytest.mark.parametrize("looked", [False, True])
def test_an_empty_file_that_has_just_become_a_database_is_one(shared: Mount, mode: str, looked: bool) -> None:
    for number in range(TIMES):
        path = shared.directory / f"empty {mode} {looked} {number}"
        with open_edge(home=shared.home) as edge:
            edge.create(path.name)
        wait_until(path.exists)
        if looked:
            assert path.read_bytes() == b""
        execute(shared.home, path.name, "CREATE TABLE t(x)", "INSERT INTO t VALUES (1)")
        assert count(path, mode) == 1
        assert path.stat().st_size == 8192


@pytest.mark.parametrize("mode", ["ro", "rw"])
def test_what_was_just_added_is_read_with_what_was_there(shared: Mount, mode: str) -> None:
    path = shared.directory / f"growing {mode}"
    execute(shared.home, path.name, "CREATE TABLE t(x)")
    wait_until(path.exists)
    for number in range(TIMES):
        before = len(path.read_bytes())
        execute(shared.home, path.name, *(3 * ["INSERT INTO t VALUES (zeroblob(4000))"]))
        content = path.read_bytes()
        assert len(content) == int.from_bytes(content[28:32]) * 4096 > before
        assert count(path, mode) == 3 * (number + 1)


def test_what_is_appended_to_a_file_that_has_just_grown_stands_at_its_end(shared: Mount) -> None:
    path = shared.directory / "appended to"
    execute(shared.home, path.name, "CREATE TABLE t(x)")
    wait_until(path.exists)
    for number in range(TIMES):
        before = path.stat().st_size
        execute(shared.home, path.name, *(3 * ["INSERT INTO t VALUES (zeroblob(4000))"]))
        fd = os.open(path, os.O_WRONLY | os.O_APPEND)
        os.write(fd, f"the {number}th".encode())
        os.close(fd)
        content = path.read_bytes()
        assert len(content) > before + 4000
        assert content.endswith(f"the {number}th".encode())
        # Else it is no database's any more.
        os.truncate(path, len(content) // 4096 * 4096)


def test_a_file_that_has_just_changed_is_cut_by_its_name(shared: Mount) -> None:
    path = shared.directory / "cut"
    for number in range(TIMES):
        execute(shared.home, path.name, f"CREATE TABLE t{number}(x)")
        wait_until(path.exists)
        os.truncate(path, 4096)
        assert len(path.read_bytes()) == 4096
        path.write_bytes(b"")


def test_what_is_written_over_a_file_that_has_just_changed_is_all_there_is(shared: Mount) -> None:
    path = shared.directory / "written over"
    for number in range(TIMES):
        execute(shared.home, path.name, f"CREATE TABLE t{number}(x)")
        wait_until(path.exists)
        path.write_bytes(b"plain")
        assert path.read_bytes() == b"plain"
        path.write_bytes(b"")


@pytest.mark.parametrize("opened", [False, True])
def test_a_name_that_was_just_given_to_another_leads_there(shared: Mount, opened: bool) -> None:
    with open_edge(home=shared.home, remote="") as edge:
        for number in range(TIMES):
            path = shared.directory / f"replaced {opened} {number}"
            execute(shared.home, path.name, "CREATE TABLE t(x)")
            wait_until(path.exists)
            if opened:
                assert count(path, "ro") == 0
            edge.rm(path.name, discard=True)
            execute(shared.home, path.name, "CREATE TABLE t(x)", "INSERT INTO t VALUES (1), (2)")
            assert count(path, "rw") == 2


def test_a_name_that_was_just_made_is_there(shared: Mount) -> None:
    with open_edge(home=shared.home, remote="") as edge:
        for number in range(TIMES):
            path = shared.directory / f"made {number}"
            execute(shared.home, path.name, "CREATE TABLE t(x)", "INSERT INTO t VALUES (1)")
            assert path.name in os.listdir(shared.directory)
            assert count(path, "rw") == 1
            edge.mv(path.name, f"moved {number}")
            assert count(shared.directory / f"moved {number}", "rwc") == 1
            wait_until(partial(removed, edge, f"moved {number}"))
            with pytest.raises(FileNotFoundError):
                (shared.directory / f"moved {number}").read_bytes()


def test_a_volume_that_a_directory_hides_appears_when_that_goes(shared: Mount) -> None:
    """Whether programs remove or rename the directory, or other processes what is below it."""
    with open_edge(home=shared.home, remote="") as edge:
        for name in ("shop", "shop/archive", "desk", "desk/notes", "desk/more", "barn", "barn/hay"):
            edge.create(name)
        wait_until((shared.directory / "barn/hay").exists)
        shop, desk, barn = (shared.directory / name for name in ("shop", "desk", "barn"))
        (shop / "archive").unlink()
        assert os.listdir(shop) == []
        shop.rmdir()
        wait_until(shop.is_file)

        with pytest.raises(PermissionError):
            desk.chmod(0o700)
        desk.rename(shared.directory / "table")
        wait_until(desk.is_file)
        assert sorted(os.listdir(shared.directory / "table")) == ["more", "notes"]
        (shared.directory / "table" / "notes").write_bytes(b"goes on")

        edge.rm("barn/hay")
        wait_until(barn.is_file)
        assert {"shop", "desk", "table/more", "table/notes", "barn"} <= {volume.name for volume in edge.volumes()}


def test_a_volume_that_was_removed_from_the_home_alone_comes_back_as_the_remote_has_it(tmp_path: Path) -> None:
    with mounted(tmp_path, remote=(tmp_path / "store").as_uri()) as mount:
        path = mount.directory / "letter"
        path.write_bytes(b"dear")
        wait_until(lambda: mount.ask("status", "letter")[0]["remote_lsn"] == 1)
        with path.open("rb") as file, open_edge(home=mount.home) as edge:
            assert file.read(2) == b"de"
            wait_until(lambda: removed(edge, "letter"))
            # The remote has the name still, which comes back with its names.
            wait_until(lambda: Namespace(edge).entry("letter"))
            assert path.read_bytes() == b"dear"
            assert file.read() == b"ar"
            with path.open("ab") as appended:
                appended.write(b" friend")
            assert path.read_bytes() == b"dear friend"


def test_its_time_moves_though_its_length_does_not_and_nobody_has_opened_it(shared: Mount) -> None:
    execute(shared.home, "timed", "CREATE TABLE t(x)", "INSERT INTO t VALUES (1)")
    path = shared.directory / "timed"
    wait_until(lambda: path.exists() and path.stat().st_size == 8192)
    before = path.stat().st_mtime_ns
    execute(shared.home, "timed", "UPDATE t SET x = 2")
    wait_until(lambda: path.stat().st_mtime_ns > before)
    assert path.stat().st_size == 8192


def test_who_opens_it_quicker_than_the_mount_notices_finds_its_time_moved(shared: Mount) -> None:
    path = shared.directory / "timed at once"
    execute(shared.home, path.name, "CREATE TABLE t(x)", "INSERT INTO t VALUES (0)")
    wait_until(path.exists)
    for number in range(TIMES):
        before = os.stat(path).st_mtime_ns
        execute(shared.home, path.name, f"UPDATE t SET x = {number + 1}")
        with path.open("rb") as file:
            assert os.fstat(file.fileno()).st_mtime_ns > before


def test_a_home_is_found_sound_while_it_is_mounted(shared: Mount) -> None:
    with closing(sqlite3.connect(shared.directory / "in use", isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = wal")
        db.execute("CREATE TABLE t(x)")
        note_loss(shared.home, "of nobody", "words")
        assert losses(shared.home) == {"of nobody": "words"}
        assert verify(shared.home).findings == ()


def test_content_of_a_removed_file_goes_once_nobody_syncs_it(shared: Mount) -> None:
    path = shared.directory / "removed meanwhile"
    path.write_bytes(b"x" * 10_000)
    with open_edge(home=shared.home, remote="") as edge:
        local = edge.volume(path.name).local

        def is_here() -> bool:
            with edge.environment.view() as txn:
                return txn.get(local.raw, db=edge.environment.tables.volumes) is not None

        with local.sync_lock():
            path.unlink()
            assert is_here()
        wait_until(lambda: not is_here())
