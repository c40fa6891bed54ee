"""What goes on underneath a mount: pushes and pulls beneath programs that have files open, other processes on the same
home, resets, and the past. The programs are processes of their own, with the standard library's sqlite3.

Every snapshot of the databases here has one number in all of its rows: a program that sees two numbers in a transaction
has seen a mixture.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Generator, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from datetime import datetime
from functools import partial
from pathlib import Path

import pytest

import budwood
from budwood.fuse.exchange.autosync import MOST_WATCHED
from budwood.sync.autosync_election import leader
from budwood.sync.edge import open as open_edge
from budwood.volume.calls import LIST_NAMES, LOOKUP, LookupRequest, NamesRequest
from budwood.volume.errors import Busy, Diverged, Unavailable

from .. import fork_server
from ..mounts import ENTRY, Mount, mounted, needs_fuse
from ..waits import LIMIT_SECONDS, wait_until
from .cli import serving

pytestmark = needs_fuse

MODES = ("delete", "truncate", "persist", "wal")
ROWS = 300

READER = """
import json, sqlite3, sys, time
path, last, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
db = sqlite3.connect(path, isolation_level=None, timeout=300)
look = "select min(v), max(v), count(*), sum(length(body)) from item"
seen, deadline = [], time.monotonic() + seconds
while time.monotonic() < deadline and (not seen or seen[-1] < last):
    db.execute("begin")
    first = db.execute(look).fetchone()
    time.sleep(0.01)
    again = db.execute("select v, count(*) from item group by v").fetchall()
    db.execute("end")
    if first[0] != first[1] or again != [(first[0], first[2])]:
        print(json.dumps({"mixture": [first, again]}))
        sys.exit(1)
    if not seen:
        open(sys.argv[4], "w").close()
    if not seen or seen[-1] != first[0]:
        seen.append(first[0])
    time.sleep(0.003)
whole = db.execute("pragma integrity_check").fetchone()[0]
print(json.dumps({"seen": seen, "whole": whole}))
"""
"""Reads in transactions until it has seen the last number; the file that it makes says that it has begun."""

OVERLAPPING = """
import json, os, sqlite3, sys, time
path, stop, n = sys.argv[1], sys.argv[2], int(sys.argv[3])
db, done = sqlite3.connect(path, isolation_level=None, timeout=300), 0
while True:
    last = os.path.exists(stop)
    db.execute("begin")
    first = db.execute("select min(v), max(v) from item").fetchone()
    time.sleep(0.1 + 0.03 * n)
    again = db.execute("select min(v), max(v) from item").fetchone()
    db.execute("commit")
    assert first == again and first[0] == first[1], (first, again)
    done += 1
    if last:
        break
print(json.dumps({"done": done, "last": first[0]}))
"""
"""Is within a transaction nearly always."""

WRITER = """
import json, os, sqlite3, sys, time
path, stop = sys.argv[1], sys.argv[2]
db = sqlite3.connect(path, isolation_level=None, timeout=0.05)
told, done = {}, 0
while not (os.path.exists(stop) and done):
    try:
        db.execute("begin immediate")
        before = db.execute("select min(v), max(v) from item").fetchone()
        assert before[0] == before[1], before
        db.execute("update item set v = -1, body = randomblob(900)")
        time.sleep(0.005)
        db.execute("rollback")
        assert db.execute("select min(v), max(v) from item where v >= 0").fetchone()[0] >= before[0]
        done += 1
    except sqlite3.OperationalError as error:
        told[error.sqlite_errorname] = told.get(error.sqlite_errorname, 0) + 1
        if db.in_transaction:
            db.execute("rollback")
    time.sleep(0.02)
print(json.dumps({"told": told, "done": done}))
"""
"""Writes, and takes it back, until told to stop; once at least."""


@contextmanager
def program(text: str, *arguments: object) -> Generator[subprocess.Popen[str]]:
    command = [sys.executable, "-I", "-c", text, *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        try:
            yield child
        finally:
            if child.poll() is None:
                child.kill()


def said(child: subprocess.Popen[str], seconds: float = LIMIT_SECONDS) -> dict[str, object]:
    out, err = child.communicate(timeout=seconds)
    assert child.returncode == 0, out + err
    result: dict[str, object] = json.loads(out)
    return result


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(tmp_path_factory.mktemp("node") / "store") as url:
        yield url


@contextmanager
def pair(folder: Path, remote: str, *options: str) -> Generator[tuple[Mount, Mount]]:
    """Two mounts of two homes over one remote."""
    with (
        mounted(folder, *options, remote=remote, home="home-a", directory="a") as one,
        mounted(folder, *options, remote=remote, home="home-b", directory="b") as two,
    ):
        yield one, two


def connect(path: Path, timeout: float = LIMIT_SECONDS) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None, timeout=timeout)


def make(path: Path, mode: str) -> sqlite3.Connection:
    db = connect(path)
    assert db.execute(f"pragma journal_mode = {mode}").fetchone() == (mode,)
    db.execute("begin")
    db.execute("create table item(id integer primary key, v, body blob)")
    db.executemany("insert into item values(?, 0, randomblob(900))", ((n,) for n in range(ROWS)))
    db.execute("commit")
    return db


def set_all(db: sqlite3.Connection, number: int) -> None:
    """A snapshot of another size, too: rows come and go."""
    db.execute("begin immediate")
    db.execute("delete from item where id >= ?", (ROWS - 20,))
    extra = ((ROWS + n,) for n in range(number % 3 * 40))
    db.executemany("insert or replace into item values(?, 0, randomblob(900))", extra)
    db.execute("update item set v = ?, body = randomblob(900)", (number,))
    db.execute("commit")


def number(db: sqlite3.Connection) -> int:
    low, high = db.execute("select min(v), max(v) from item").fetchone()
    assert low == high
    return int(low)


def row(mount: Mount, name: str) -> dict[str, object]:
    found: list[dict[str, object]] = mount.ask("status", name)
    return found[0]


def pushed(mount: Mount, name: str) -> int:
    """The remote LSN that everything committed so far has become."""
    return int(mount.ask("push", name)["lsn"])


def reads(db: sqlite3.Connection, wanted: int) -> bool:
    # What was pushed first may be the state before there was a table.
    there = db.execute("select count(*) from sqlite_schema where name = 'item'").fetchone() == (1,)
    return there and number(db) == wanted


def has_pulled(mount: Mount, name: str, lsn: int) -> bool:
    return int(str(row(mount, name)["remote_lsn"])) >= lsn


def shows(path: Path, wanted: int) -> bool:
    """Whether a connection that is made now finds that number."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=LIMIT_SECONDS)) as db:
        return number(db) == wanted


# Databases


@pytest.mark.parametrize("mode", MODES)
def test_pulls_land_under_readers_and_writers_and_nobody_sees_a_mixture(tmp_path: Path, node: str, mode: str) -> None:
    name, last, stop = f"shop-{mode}", 6, tmp_path / "stop"
    with pair(tmp_path, node) as (one, two):
        with closing(make(one.directory / name, mode)) as db:
            one.ask("push", name)
            wait_until(lambda: (two.directory / name).exists())
            path = two.directory / name
            with (
                program(READER, path, last, LIMIT_SECONDS, tmp_path / "first") as first,
                program(READER, path, last, LIMIT_SECONDS, tmp_path / "second") as second,
                program(WRITER, path, stop) as writer,
            ):
                wait_until((tmp_path / "first").exists)
                wait_until((tmp_path / "second").exists)
                for n in range(1, last + 1):
                    set_all(db, n)
                    wait_until(partial(has_pulled, two, name, pushed(one, name)))
                for each in (first, second):
                    heard = said(each)
                    assert heard["whole"] == "ok"
                    assert heard["seen"] == sorted(heard["seen"]), "it went back in time"  # type: ignore[call-overload]
                    assert heard["seen"][-1] == last  # type: ignore[index]
                stop.touch()
                heard = said(writer)
            assert heard["done"], "the writer never got on"
            # SQLite's own errors that a program may try again after, and no other.
            assert set(heard["told"]) <= {"SQLITE_BUSY", "SQLITE_BUSY_SNAPSHOT", "SQLITE_BUSY_RECOVERY"}  # type: ignore[call-overload]
        assert two.ask("metrics")["moved_open_total"] >= last
        assert row(two, name)["unpushed"] == 0


@pytest.mark.parametrize("mode", MODES)
def test_a_transaction_that_is_open_keeps_its_snapshot_and_the_pull_waits(tmp_path: Path, node: str, mode: str) -> None:
    name = f"held-{mode}"
    with pair(tmp_path, node, "--no-sync") as (one, two), closing(make(one.directory / name, mode)) as ours:
        one.ask("push", name)
        two.ask("pull")
        with closing(connect(two.directory / name)) as theirs, closing(connect(two.directory / name)) as idle:
            assert number(idle) == 0
            theirs.execute("begin")
            assert number(theirs) == 0
            set_all(ours, 1)
            one.ask("push", name)
            with pytest.raises(Busy, match="within transactions"):
                two.ask("pull", name)
            assert (number(theirs), number(idle)) == (0, 0)
            theirs.execute("commit")
            two.ask("pull", name)
            assert (number(theirs), number(idle)) == (1, 1)
            # And on from there.
            set_all(theirs, 2)
            assert number(idle) == 2
            two.ask("push", name)
            one.ask("pull", name)
            assert number(ours) == 2
            assert ours.execute("pragma integrity_check").fetchone() == ("ok",)


@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_readers_that_always_overlap_hold_a_pull_up_for_a_moment_only(tmp_path: Path, node: str, mode: str) -> None:
    name, stop = f"overlap-{mode}", tmp_path / "stop"
    with pair(tmp_path, node, "--no-sync") as (one, two), closing(make(one.directory / name, mode)) as ours:
        one.ask("push", name)
        two.ask("pull")
        with ExitStack() as programs:
            readers = [programs.enter_context(program(OVERLAPPING, two.directory / name, stop, n)) for n in range(4)]
            wait_until(lambda: two.ask("metrics")["handles_open"] >= len(readers))
            for n in range(1, 5):
                set_all(ours, n)
                one.ask("push", name)
                two.ask("pull", name)
            stop.touch()
            for reader in readers:
                heard = said(reader)
                assert heard["done"]
                assert heard["last"] == 4


@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_a_reset_leaves_old_connections_their_history_and_refuses_what_they_write(
    tmp_path: Path, node: str, mode: str
) -> None:
    name, kept = f"reset-{mode}", f"mine-{mode}"
    with pair(tmp_path, node, "--no-sync") as (one, two), closing(make(one.directory / name, mode)) as ours:
        one.ask("push", name)
        two.ask("pull")
        path = two.directory / name
        with closing(connect(path)) as old:
            set_all(old, 5)
            set_all(ours, 1)
            one.ask("push", name)
            with pytest.raises(Diverged):
                two.ask("pull", name)
            assert row(two, name)["diverged"] is True
            with pytest.raises(Diverged):
                two.ask("reset", name)
            before = path.stat().st_ino
            set_all(old, 6)
            two.ask("reset", name, "--keep-as", kept)
            assert path.stat().st_ino != before
            assert number(old) == 6
            with pytest.raises(sqlite3.OperationalError) as failed:
                set_all(old, 7)
            # In the rollback modes SQLite itself finds that the path leads elsewhere by now.
            assert failed.value.sqlite_errorname.startswith(("SQLITE_IOERR", "SQLITE_READONLY_DBMOVED"))
            with suppress(sqlite3.OperationalError):
                old.execute("rollback")
            with closing(connect(path)) as fresh:
                assert number(fresh) == 1
                set_all(fresh, 8)
                assert number(fresh) == 8
        with closing(connect(two.directory / kept)) as mine:
            assert number(mine) == 6
        two.ask("push")
        one.ask("pull", name)
        assert number(ours) == 8


def test_a_mount_takes_over_from_whoever_synced_its_home(tmp_path: Path, node: str) -> None:
    home = tmp_path / "home-a"
    with open_edge(home=home, remote=node) as edge, edge.autosync() as syncing:
        wait_until(lambda: syncing.is_leader)
        with mounted(tmp_path, remote=node, home="home-a", directory="a") as mount:
            assert mount.process is not None
            pid = mount.process.pid
            wait_until(lambda: (found := leader(home)) is not None and found.is_mount and found.pid == pid)
            assert not syncing.is_leader
            with closing(make(mount.directory / "led", "delete")):
                wait_until(lambda: row(mount, "led")["remote_lsn"] != 0 and row(mount, "led")["unpushed"] == 0)
        wait_until(lambda: syncing.is_leader)


@pytest.mark.parametrize("policy", ["fork", "replay"])
def test_a_mount_settles_what_diverged_under_those_who_have_it_open(tmp_path: Path, node: str, policy: str) -> None:
    """S2.30: the mount's engine is the one that `budwood autosync` has, with the same policies."""
    name, there = f"settled-{policy}", tmp_path / "there"
    look = "SELECT v FROM item WHERE id IN (1, 2) ORDER BY id"
    with (
        open_edge(home=there, remote=node) as edge,
        mounted(tmp_path, f"--on-diverged={policy}", remote=node, home="home-a", directory="a") as mount,
        open_edge(home=mount.home, remote=node) as here,
    ):
        make(mount.directory / name, "delete").close()
        mount.ask("push")
        here.volume_here(name).set_mode("disabled")
        with budwood.connect(name, home=there, remote=node) as theirs:
            theirs.execute("UPDATE item SET v = 7 WHERE id = 1")
        edge.volume(name).push()
        with closing(connect(mount.directory / name)) as ours:
            ours.execute("UPDATE item SET v = 9 WHERE id = 2")
            assert ours.execute(look).fetchall() == [(0,), (9,)]
            here.volume_here(name).set_mode("both")
            wait_until(lambda: row(mount, name)["unpushed"] == 0 and row(mount, name)["remote_lsn"] not in (0, 1))
            assert ours.execute(look).fetchall() == [(0,), (9,)], "who has it open stays in that history"
        with closing(connect(mount.directory / name)) as ours:
            assert ours.execute(look).fetchall() == ([(7,), (9,)] if policy == "replay" else [(7,), (0,)])
        if policy == "fork":
            wait_until(lambda: list(mount.directory.glob("*conflict*")))
            (kept,) = mount.directory.glob("*conflict*")
            with closing(connect(kept)) as copy:
                assert copy.execute(look).fetchall() == [(0,), (9,)]


def test_commits_arrive_at_the_other_edge_unasked_and_so_do_names(tmp_path: Path, node: str) -> None:
    with pair(tmp_path, node) as (one, two):
        with closing(make(one.directory / "auto", "wal")) as ours:
            wait_until(lambda: (two.directory / "auto").exists())
            with closing(connect(two.directory / "auto")) as theirs:
                set_all(ours, 1)
                wait_until(lambda: reads(theirs, 1))
                set_all(theirs, 2)
                wait_until(lambda: reads(ours, 2))
        (one.directory / "notes").mkdir(mode=0o750)
        (one.directory / "notes/a").write_text("one")
        os.symlink("notes/a", one.directory / "link")
        wait_until(lambda: (two.directory / "link").exists() and (two.directory / "notes/a").read_text() == "one")
        wait_until(lambda: (two.directory / "notes").stat().st_mode & 0o777 == 0o750)
        (two.directory / "notes/a").rename(two.directory / "notes/b")
        wait_until(lambda: os.listdir(one.directory / "notes") == ["b"])
        (one.directory / "notes/b").write_text("two")
        wait_until(lambda: (two.directory / "notes/b").read_text() == "two")


def test_what_a_name_tells_of_a_file_is_true_though_the_mount_was_killed_before_it_could_tell(
    tmp_path: Path, node: str
) -> None:
    def told() -> tuple[int, int]:
        with closing(open_edge(home=tmp_path / "other", remote=node)) as other:
            entry = other.connection().lookup("f")
        return (-1, 0) if entry is None else (entry.attributes.get("size", 0), entry.attributes["mtime_ns"])

    with mounted(tmp_path, remote=node) as mount:
        path = mount.directory / "f"
        path.write_bytes(b"long before")
        before = path.stat().st_mtime_ns
        wait_until(lambda: told() == (11, before))
        path.write_bytes(b"x")
        mount.kill()
        mount.start()
        assert path.read_bytes() == b"x"
        shown = path.stat().st_mtime_ns
        assert shown > before
        wait_until(lambda: told() == (1, shown))
        assert path.stat().st_mtime_ns == shown


@pytest.mark.parametrize("mode", MODES)
def test_a_database_that_was_opened_when_it_was_empty_shows_what_another_edge_makes_of_it(
    tmp_path: Path, node: str, mode: str
) -> None:
    name = f"empty-{mode}"
    with pair(tmp_path, node) as (one, two):
        (one.directory / name).touch()
        wait_until(lambda: (two.directory / name).exists())
        with closing(connect(two.directory / name)) as theirs:
            assert theirs.execute("select count(*) from sqlite_schema").fetchone() == (0,)
            assert row(two, name)["writers"] == 1
            with closing(make(one.directory / name, mode)) as ours:
                lsn = pushed(one, name)
                two.ask("pull", name)
                assert has_pulled(two, name, lsn)
                assert number(theirs) == 0
                set_all(ours, 1)
                wait_until(lambda: reads(theirs, 1))
        wait_until(lambda: shows(one.directory / name, 1))


def test_a_database_that_was_opened_where_its_empty_file_was_made_shows_what_another_edge_makes_of_it(
    tmp_path: Path, node: str
) -> None:
    with pair(tmp_path, node) as (one, two):
        (two.directory / "made").touch()
        with closing(sqlite3.connect(f"file:{two.directory / 'made'}?mode=ro", uri=True)) as theirs:
            assert theirs.execute("select count(*) from sqlite_schema").fetchone() == (0,)
            wait_until(lambda: (one.directory / "made").exists())
            with closing(make(one.directory / "made", "delete")) as ours:
                set_all(ours, 1)
                wait_until(lambda: reads(theirs, 1))
                set_all(ours, 2)
                wait_until(lambda: reads(theirs, 2))


def test_an_empty_file_that_is_open_for_reading_is_followed_once_others_have_it(tmp_path: Path, node: str) -> None:
    with pair(tmp_path, node) as (one, two):
        (two.directory / "list").touch()
        with (two.directory / "list").open() as reader:
            wait_until(lambda: (one.directory / "list").exists())
            (one.directory / "list").write_text("one")
            wait_until(lambda: (two.directory / "list").stat().st_size == 3)
            assert reader.read() == "", "who has it open reads on in what they opened"
        assert (two.directory / "list").read_text() == "one"


def test_what_a_program_is_about_to_write_to_an_empty_file_meets_no_database(tmp_path: Path, node: str) -> None:
    with pair(tmp_path, node) as (one, two):
        (one.directory / "copy").touch()
        wait_until(lambda: (two.directory / "copy").exists())
        copy = os.open(two.directory / "copy", os.O_WRONLY)
        try:
            make(one.directory / "copy", "delete").close()
            pushed(one, "copy")
            with pytest.raises(Busy):
                two.ask("pull", "copy")
            os.write(copy, b"text")
            assert (two.directory / "copy").read_bytes() == b"text"
        finally:
            os.close(copy)
        assert row(two, "copy")["lsn"] == "0+1"


def test_a_database_made_before_the_names_were_known_leaves_them_to_one_with_content(tmp_path: Path) -> None:
    """As `sqlite3 team.db` does, when it is run before the network is there."""
    store = tmp_path / "store"
    with serving(store) as url:
        port = url.rpartition(":")[2]
        with mounted(tmp_path, remote=url, home="home-a", directory="a") as one:
            make(one.directory / "team.db", "delete").close()
            pushed(one, "team.db")
    with (
        mounted(tmp_path, remote=url, home="home-a", directory="a") as one,
        mounted(tmp_path, remote=url, home="home-b", directory="b") as two,
    ):
        with closing(connect(two.directory / "team.db")) as early:
            assert early.execute("select count(*) from sqlite_schema").fetchone() == (0,)
        assert (two.directory / "team.db").stat().st_size == 0
        with serving(store, listen=f"127.0.0.1:{port}"):
            wait_until(lambda: (two.directory / "team.db").stat().st_size > 0)
            assert shows(two.directory / "team.db", 0)
            two.ask("push")
            assert os.listdir(two.directory) == os.listdir(one.directory) == ["team.db"]


@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_a_mount_for_reading_follows_and_who_has_a_database_open_stays(tmp_path: Path, node: str, mode: str) -> None:
    name = f"readable-{mode}"
    with (
        mounted(tmp_path, "--no-sync", remote=node, home="home-a", directory="a") as one,
        closing(make(one.directory / name, mode)) as ours,
    ):
        one.ask("push", name)
        with mounted(tmp_path, "--read-only", remote=node, home="home-b", directory="b") as two:
            path = two.directory / name
            with closing(connect(path)) as old:
                assert number(old) == 0
                set_all(ours, 1)
                wait_until(partial(has_pulled, two, name, pushed(one, name)))
                wait_until(partial(shows, path, 1))
                assert number(old) == 0
                with pytest.raises(sqlite3.OperationalError, match="readonly"):
                    set_all(old, 2)


def test_what_another_edge_removes_or_renames_goes_on_for_those_who_have_it_open(tmp_path: Path, node: str) -> None:
    with pair(tmp_path, node, "--no-sync") as (one, two):
        (one.directory / "gone").write_bytes(b"old" * 1000)
        with closing(make(one.directory / "moving", "wal")):
            one.ask("push")
        two.ask("pull")
        with (two.directory / "gone").open("rb") as reader, closing(connect(two.directory / "moving")) as db:
            assert reader.read(3) == b"old"
            assert number(db) == 0
            inode = (two.directory / "moving").stat().st_ino
            (one.directory / "gone").unlink()
            (one.directory / "moving").rename(one.directory / "moved")
            one.ask("push")
            two.ask("pull")
            wait_until(lambda: not (two.directory / "gone").exists())
            wait_until(lambda: not (two.directory / "moving").exists())
            assert reader.read() == (b"old" * 1000)[3:]
            assert (two.directory / "moved").stat().st_ino == inode
            with closing(connect(two.directory / "moved")) as other:
                set_all(other, 1)
                assert number(db) == 1
        wait_until(lambda: [each["name"] for each in two.ask("status") if each["name"] == "moved"] == ["moved"])
        two.ask("push", "moved")
        one.ask("pull", "moved")
        assert shows(one.directory / "moved", 1)


# Plain files


def test_readers_of_a_plain_file_go_on_in_their_snapshot_and_writers_hold_the_pull_off(
    tmp_path: Path, node: str
) -> None:
    with pair(tmp_path, node, "--no-sync") as (one, two):
        ours, theirs = one.directory / "plain", two.directory / "plain"
        ours.write_bytes(b"one" * 50_000)
        one.ask("push")
        two.ask("pull")
        with theirs.open("rb") as reader:
            start = reader.read(10)
            before = os.fstat(reader.fileno()).st_ino
            ours.write_bytes(b"two" * 60_000)
            one.ask("push")
            two.ask("pull", "plain")
            assert start + reader.read() == b"one" * 50_000
            assert theirs.stat().st_ino != before
            assert theirs.read_bytes() == b"two" * 60_000
        with theirs.open("r+b") as writer:
            ours.write_bytes(b"three")
            one.ask("push")
            with pytest.raises(Busy, match="open for writing"):
                two.ask("pull", "plain")
            assert writer.read() == b"two" * 60_000
        two.ask("pull", "plain")
        assert theirs.read_bytes() == b"three"


def test_a_pull_that_nobody_asked_for_waits_for_who_has_a_plain_file_open_for_writing(
    tmp_path: Path, node: str
) -> None:
    with pair(tmp_path, node) as (one, two):
        ours, theirs = one.directory / "unasked", two.directory / "unasked"
        ours.write_bytes(b"one" * 50_000)
        wait_until(lambda: theirs.exists() and theirs.read_bytes() == b"one" * 50_000)
        with theirs.open("r+b") as writer:
            assert writer.read(3) == b"one"
            ours.write_bytes(b"three")
            one.ask("push")
            wait_until(lambda: "open for writing: close it first" in str(row(two, "unasked")["sync_error"]))
            assert writer.read() == b"one" * 49_999
        wait_until(lambda: theirs.read_bytes() == b"three")


def test_a_file_that_was_not_watched_is_opened_as_the_remote_has_it(tmp_path: Path, node: str) -> None:
    with mounted(tmp_path, "--no-sync", remote=node, home="home-a", directory="a") as one:
        (one.directory / "note").write_text("yesterday")
        one.ask("push")
        with mounted(tmp_path, remote=node, home="home-b", directory="b") as two:
            assert (two.directory / "note").read_text() == "yesterday"
            two.stop()
            (one.directory / "note").write_text("today, and longer")
            one.ask("push")
            two.start()
            assert (two.directory / "note").read_text() == "today, and longer"


def test_of_more_open_databases_than_are_watched_all_move_on(tmp_path: Path, node: str) -> None:
    names = [f"many/{number}.db" for number in range(MOST_WATCHED + 6)]

    def write(*statements: str) -> None:
        for name in names:
            with closing(budwood.connect(name, home=tmp_path / "elsewhere", remote=node)) as db:
                for statement in statements:
                    db.execute(statement)
                db.execute("pragma budwood_push").fetchall()

    write("create table item(v)", "insert into item values (1)")
    with mounted(tmp_path, remote=node) as mount, ExitStack() as opened:
        databases = [opened.enter_context(closing(connect(mount.directory / name))) for name in names]

        def shown() -> set[int]:
            return {int(db.execute("select v from item").fetchone()[0]) for db in databases}

        assert shown() == {1}
        write("update item set v = 2")
        wait_until(lambda: shown() == {2})


def test_what_editors_leave_behind_for_a_moment_never_reaches_the_remote(tmp_path: Path, node: str) -> None:
    with mounted(tmp_path, remote=node) as mount:
        folder = mount.directory / "essay"
        folder.mkdir()
        for n in range(5):
            (folder / ".swap").write_bytes(b"never to be seen")
            (folder / "text.tmp").write_text(f"version {n}")
            (folder / "text.tmp").rename(folder / "text")
            (folder / ".swap").unlink()
        wait_until(lambda: row(mount, "essay/text")["remote_name"] == "essay/text")
        mount.ask("push")
    with open_edge(home=tmp_path / "other", remote=node) as edge:
        remote = edge.connection().remote
        assert [each.name for each in remote.ask(LIST_NAMES, NamesRequest(prefix="essay")).entries] == [
            "essay",
            "essay/text",
        ]
        entry = remote.ask(LOOKUP, LookupRequest("essay/text")).entry
        assert entry is not None
        volume = edge.volume("essay/text")
        assert volume.snapshot().read(1)[:9] == b"version 4"


# The network


def test_without_a_network_work_goes_on_and_is_pushed_when_it_is_back(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as spare:
        address = f"127.0.0.1:{spare.getsockname()[1]}"
    remote = f"http://{address}"
    with mounted(tmp_path, remote=remote) as mount:
        with closing(make(mount.directory / "db", "delete")) as db:
            wait_until(lambda: mount.ask("about")["offline_because"])
            set_all(db, 1)
            assert row(mount, "db")["unpushed"] == 2
            with pytest.raises(Unavailable):
                mount.ask("push", "db")
            with serving(tmp_path / "store", listen=address):
                wait_until(lambda: row(mount, "db")["unpushed"] == 0)
                wait_until(lambda: mount.ask("about")["online"] is True)
            set_all(db, 2)
        mount.stop()
    assert mount.said().count("can't be reached") <= 3, mount.said()


def test_names_that_were_never_opened_here_are_listed_without_a_network(tmp_path: Path) -> None:
    """As long as their names tell, and empty where those don't; to open one is an error until the network is back."""
    with socket.create_server(("127.0.0.1", 0)) as spare:
        address = f"127.0.0.1:{spare.getsockname()[1]}"
    remote, content = f"http://{address}", b"twenty bytes of text"
    with serving(tmp_path / "store", listen=address):
        with mounted(tmp_path, remote=remote, home="other home", directory="other") as other:
            (other.directory / "told").write_bytes(content)
            wait_until(lambda: row(other, "told")["unpushed"] == 0)
            other.ask("push")
        with open_edge(home=tmp_path / "a third", remote=remote) as edge:
            with closing(sqlite3.connect(tmp_path / "one.db")) as db:
                db.execute("create table t(a)")
            edge.import_(tmp_path / "one.db", "imported").push()
        with mounted(tmp_path, remote=remote) as mount:
            assert sorted(os.listdir(mount.directory)) == ["imported", "told"]
            mount.kill()
    with mounted(tmp_path, remote=remote) as mount:
        for _ in range(2):
            found = {each.name: each.stat() for each in os.scandir(mount.directory)}
            assert {name: each.st_size for name, each in found.items()} == {"imported": 0, "told": len(content)}
            assert all(stat.S_ISREG(each.st_mode) for each in found.values())
        for name in ("imported", "told"):
            with pytest.raises(OSError, match="Input/output error"):
                (mount.directory / name).read_bytes()
        with serving(tmp_path / "store", listen=address):
            assert (mount.directory / "told").read_bytes() == content
            assert (mount.directory / "imported").stat().st_size == (tmp_path / "one.db").stat().st_size


def test_a_mount_that_syncs_nothing_unasked_pushes_and_pulls_when_told(tmp_path: Path, node: str) -> None:
    with mounted(tmp_path, "--no-sync", remote=node) as mount:
        (mount.directory / "quiet").write_text("here")
        assert mount.ask("about")["syncs"] is False
        with open_edge(home=tmp_path / "other", remote=node) as edge:
            # As long as one takes that does sync.
            with mounted(tmp_path, remote=node, home="home-eager", directory="eager") as eager:
                (eager.directory / "loud").write_text("here")
                wait_until(lambda: edge.connection().remote.ask(LOOKUP, LookupRequest("loud")))
            assert edge.connection().remote.ask(LOOKUP, LookupRequest("quiet")).entry is None
            assert mount.ask("push")["pushed"] == [{"name": "quiet", "lsn": "1"}]
            assert edge.connection().remote.ask(LOOKUP, LookupRequest("quiet")).entry is not None


# One home


def test_programs_with_the_vfs_and_the_mount_see_one_another_or_are_refused(tmp_path: Path) -> None:
    home = tmp_path / "home"

    def command(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [*ENTRY, "--home", str(home), *arguments]
        return fork_server.run(command, timeout=LIMIT_SECONDS)

    with mounted(tmp_path) as mount:
        path = mount.directory / "shop"
        made = command("sql", "shop", "create table item(v); insert into item values(0)")
        assert made.returncode == 1, "sql makes no volume unless there is one"
        make(path, "delete").close()
        assert command("sql", "shop", "update item set v = 1").returncode == 0
        with closing(connect(path)) as db:
            assert number(db) == 1
            db.execute("update item set v = 2")
            assert command("sql", "shop", "select max(v) from item").stdout == "2\n"
            refused = command("sql", "shop", "update item set v = 3")
            assert refused.returncode == 1
            assert "locked" in refused.stderr
            assert number(db) == 2
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=LIMIT_SECONDS)) as reader:
            assert number(reader) == 2
            assert command("sql", "shop", "update item set v = 4").returncode == 0
            wait_until(lambda: number(reader) == 4)
        inode = path.stat().st_ino
        assert command("mv", "shop", "deep/er/shop").returncode == 0
        moved = mount.directory / "deep/er/shop"
        wait_until(moved.exists)
        wait_until(lambda: not path.exists())
        assert moved.stat().st_ino == inode
        assert command("rm", "deep/er/shop", "--discard").returncode == 0
        wait_until(lambda: not (mount.directory / "deep").exists())


def test_a_home_is_mounted_once(tmp_path: Path) -> None:
    with mounted(tmp_path) as mount:
        (tmp_path / "second").mkdir()
        command = [*ENTRY, "--home", str(mount.home), "mount", str(tmp_path / "second"), "--foreground"]
        done = fork_server.run(command, timeout=LIMIT_SECONDS)
        assert done.returncode != 0
        assert str(mount.directory) in done.stderr
        (mount.directory / "a").write_text("still here")


def test_a_mount_that_is_killed_while_it_pulls_shows_one_snapshot_or_the_other(tmp_path: Path, node: str) -> None:
    name = "killed"
    with (
        mounted(tmp_path, "--no-sync", remote=node, home="home-a", directory="a") as one,
        closing(make(one.directory / name, "wal")) as ours,
    ):
        one.ask("push", name)
        two = Mount(tmp_path / "home-b", tmp_path / "b", remote=node)
        try:
            for n in range(1, 5):
                set_all(ours, n)
                one.ask("push", name)
                two.start("--no-sync")
                two.ask("pull")
                with closing(connect(two.directory / name)) as theirs:
                    assert number(theirs) == n
                    set_all(ours, n + 100)
                    one.ask("push", name)
                    pull = fork_server.Popen(
                        [*ENTRY, "--home", str(two.home), "pull", name],
                        stdout=subprocess.DEVNULL,
                        stderr=subprocess.DEVNULL,
                    )
                    with pull:
                        with suppress(subprocess.TimeoutExpired):
                            pull.wait(0.35 + 0.05 * n)
                        assert two.process is not None
                        two.process.send_signal(signal.SIGKILL)
                        two.died()
                    with suppress(sqlite3.OperationalError):
                        number(theirs)
                two.start("--no-sync")
                with closing(connect(two.directory / name)) as theirs:
                    assert number(theirs) in (n, n + 100)
                    assert theirs.execute("pragma integrity_check").fetchone() == ("ok",)
                two.stop()
        finally:
            two.end()


# The past


def test_the_past_is_mounted_as_it_was(tmp_path: Path, node: str) -> None:
    moments: list[str] = []
    with mounted(tmp_path, "--no-sync", remote=node, home="home-a", directory="a") as one:
        with closing(make(one.directory / "then", "wal")) as db:
            for n in range(1, 5):
                set_all(db, n)
                one.ask("push", "then")
                time.sleep(0.005)  # A time means the last LSN not later, in milliseconds.
                moments.append(datetime.now().isoformat())
                time.sleep(0.005)
        (one.directory / "late").write_text("not yet")
        one.ask("push")
    for home in ("home-a", "home-fresh"):
        if home == "home-fresh":
            with mounted(tmp_path, remote=node, home=home, directory="past") as fresh:
                assert {"then", "late"} <= set(os.listdir(fresh.directory))
        for option, shown in (("--lsn=2", 2), (f"--at={moments[2]}", 3), ("--lsn=4", 4)):
            with mounted(tmp_path, option, remote=node, home=home, directory="past") as past:
                path = past.directory / "then"
                with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
                    assert number(db) == shown
                    assert db.execute("pragma integrity_check").fetchone() == ("ok",)
                before, made = (datetime.fromisoformat(each).timestamp() for each in moments[shown - 2 : shown])
                assert before < path.stat().st_mtime <= made
                assert not (past.directory / "late").exists()
                with pytest.raises(OSError, match="Read-only"):
                    path.write_bytes(b"")
