"""mount, umount and mounts as a user types them, what other commands do while a mount runs, and mount(8)."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from budwood.fuse.files.wal_commit_count import CommitCount, write_count
from budwood.fuse.host import mount_client
from budwood.sync.edge import open as open_edge

from ..documented import documented
from ..exposed import families
from ..mounts import is_mounted, needs_fuse
from ..waits import LIMIT_SECONDS, wait_until
from .cli import ENTRY, Command, Said

pytestmark = needs_fuse

ROW = "CREATE TABLE IF NOT EXISTS t (a INTEGER PRIMARY KEY); INSERT INTO t DEFAULT VALUES"


class User(Command):
    """A user with a mount at `directory`."""

    directory: Path

    def mount(self, *options: str) -> Said:
        self.directory.mkdir(exist_ok=True)
        return self.process("mount", str(self.directory), *options)

    def umount(self, *options: str) -> Said:
        return self("umount", str(self.directory), *options)

    def listed(self) -> list[dict[str, Any]]:
        rows = json.loads(self.ok("mounts", "--json"))
        return [row for row in rows if row["home"] == str(self.home)]

    def status(self, name: str) -> dict[str, Any]:
        (row,) = json.loads(self.ok("status", name, "--json"))
        return dict(row)

    @contextmanager
    def mounted(self, *options: str) -> Generator[Path]:
        said = self.mount(*options)
        assert (said.code, said.err) == (0, ""), said
        yield self.directory
        assert self.umount().code == 0

    def end(self) -> None:
        """Whatever a test that failed has left."""
        pid = mount_client.serving(self.home)
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
        if is_mounted(self.directory):
            subprocess.run(["fusermount3", "-u", "-z", str(self.directory)], check=False)


@pytest.fixture
def make(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Generator[Callable[[str], User]]:
    users: list[User] = []

    def made(name: str) -> User:
        user = User(capsys, tmp_path / name, (tmp_path / "store").as_uri())
        user.directory = tmp_path / f"{name}'s files"
        users.append(user)
        return user

    yield made
    for user in users:
        user.end()


@pytest.fixture
def ann(make: Callable[[str], User]) -> User:
    return make("ann")


@pytest.fixture
def bob(make: Callable[[str], User]) -> User:
    return make("bob")


def write_row(path: Path, *, mode: str = "delete") -> None:
    with closing(sqlite3.connect(path)) as db:
        assert db.execute(f"PRAGMA journal_mode={mode}").fetchall() == [(mode,)]
        db.executescript(ROW)


def ended(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    # A child of ours that nobody has waited for.
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


@pytest.mark.parametrize("there", [False, True])
def test_another_remote_than_that_of_the_homes_names_is_refused_at_once(ann: User, tmp_path: Path, there: bool) -> None:
    assert ann.mount().code == 0
    write_row(ann.directory / "db")
    ann.ok("umount", str(ann.directory), "--push")
    other = tmp_path / "other"
    if there:
        stranger = Command(ann.capsys, tmp_path / "stranger", other.as_uri())
        stranger.ok("create", "x")
        stranger.ok("sql", "x", "CREATE TABLE t(a)")
        stranger.ok("push", "x")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ann, "options", ["--home", str(ann.home), "--remote", other.as_uri()])
        line = ann.mount().line()
    assert "the names of this home are those of store" in line
    assert (tmp_path / "store").as_uri() in line
    assert not is_mounted(ann.directory)
    assert ann.mount().code == 0


def test_a_mount_tells_once_how_many_commits_a_missing_wal_has_lost(ann: User) -> None:
    with ann.mounted() as files:
        write_row(files / "db")
    with open_edge(home=ann.home) as edge:
        vid = edge.volume("db").id
    write_count(ann.home / "mount" / "tallies" / str(vid), CommitCount(bytes(8), 0, 4))
    said = ann.mount()
    assert said.code == 0
    assert said.out == f"budwood: {ann.directory} mounted (home {ann.home})\n"
    lost = "db: 4 commits that a program was told of are lost: the -wal that held them is missing"
    assert said.err == f"budwood: {lost}\n"
    assert ann.umount().code == 0
    assert ann.mount().err == ""


def test_a_mount_goes_on_after_its_command_and_ends_with_umount(ann: User) -> None:
    said = ann.mount()
    assert (said.code, said.err) == (0, "")
    assert said.out == f"budwood: {ann.directory} mounted (home {ann.home})\n"
    (row,) = ann.listed()
    assert (row["dir"], row["mode"], row["alive"], row["remote"]) == (
        str(ann.directory),
        "read-write",
        True,
        ann.options[-1],
    )
    assert os.getsid(row["pid"]) == row["pid"]
    (ann.directory / "a").write_text("one")
    assert (ann.directory / "a").read_text() == "one"
    assert ann.umount().code == 0
    assert ended(row["pid"])
    assert not is_mounted(ann.directory)
    assert ann.listed() == []
    assert list(ann.directory.iterdir()) == []
    assert (mount_client.folder(ann.home) / mount_client.LOG).exists()


def test_a_home_is_mounted_once_and_the_second_is_told_where(ann: User, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with ann.mounted():
        for again in (["mount", str(tmp_path / "other")], ["mount", "--foreground", str(tmp_path / "other")]):
            line = ann(*again).line()
            assert line == f"the home {ann.home} is mounted at {ann.directory} already: one mount serves all of a home"
        assert "is a mount of" in ann("mount", str(ann.directory)).line()
        assert not is_mounted(tmp_path / "other")
        assert len(ann.listed()) == 1
    with ann.mounted():
        assert len(ann.listed()) == 1


def test_what_keeps_a_mount_from_starting_is_told_by_the_command(ann: User, bob: User) -> None:
    ann.directory.mkdir()
    assert ann("mount", str(ann.directory), "--lsn", "1", "--at", "2030-01-01").line(2).startswith("--lsn and --at")
    (ann.directory / "file").touch()
    assert "--nonempty" in ann("mount", str(ann.directory)).line(2)
    (ann.directory / "file").unlink()
    (ann.home / "data").mkdir(parents=True)
    assert "lies in the home" in ann("mount", str(ann.home / "data")).line(2)
    assert "is a file" in ann("mount", str(Path(__file__))).line(2)
    assert "there is no directory" in ann("mount", str(ann.directory / "nothing")).line()
    # What only the process itself can find, it says, and the command hands it on.
    bob.directory.mkdir()
    bob.home.write_text("a file where the home should be")
    assert str(bob.home) in bob.process("mount", str(bob.directory)).line()
    ann.ok("create", "v")
    assert ann.process("mount", str(ann.directory), "--at", "yesterday").line(2).startswith("'yesterday' is no time")
    refused = ann.process("mount", str(ann.directory), "--fuse-option", "colour=blue").line()
    assert "can't be mounted" in refused
    assert "unknown option 'colour=blue'" in refused
    assert not is_mounted(ann.directory)
    assert mount_client.stated(ann.home) == {}


def test_umount_refuses_while_a_program_uses_a_file_and_names_it(ann: User) -> None:
    with ann.mounted() as directory:
        (directory / "a").write_text("one")
        with open(directory / "a"):
            line = ann.umount().line()
            assert f"{directory} is in use by" in line
            assert f"({os.getpid()})" in line
            assert (directory / "a").read_text() == "one"
        inside = subprocess.Popen(["sleep", "60"], cwd=directory)
        try:
            assert f"sleep ({inside.pid})" in ann.umount().line()
        finally:
            inside.kill()
            inside.wait()


def test_umount_says_what_is_unpushed_and_sends_it_when_told(ann: User, bob: User) -> None:
    ann.mount("--no-sync")
    write_row(ann.directory / "shop")
    write_row(ann.directory / "shop")
    (row,) = ann.listed()
    assert row["unpushed"] >= 2
    told = ann.umount()
    assert (told.code, told.err) == (0, "")
    assert told.out == (f"unmounted {ann.directory}\nshop has {row['unpushed']} commits to push: budwood push shop\n")
    ann.mount("--no-sync")
    (ann.directory / "notes").write_text("n")
    (ann.directory / "empty").mkdir()
    told = ann.umount("--push")
    pushed = f"pushed {row['unpushed'] + 1} commits of 2 volumes\n"
    assert (told.code, told.out, told.err) == (0, f"{pushed}unmounted {ann.directory}\n", "")
    assert bob.sql("shop", "SELECT count(*) FROM t") == ["2"]
    assert ann.status("notes")["unpushed"] == 0
    with bob.mounted("--no-sync") as directory:
        mount_client.ask(bob.home, "pull", timeout_seconds=LIMIT_SECONDS)
        assert (directory / "empty").is_dir()


def test_umount_stays_mounted_when_it_cannot_push(ann: User, tmp_path: Path) -> None:
    (tmp_path / "store").write_text("no store")
    with ann.mounted("--no-sync"):
        write_row(ann.directory / "shop")
        assert "can't open the store" in ann.umount("--push").line(2)
        assert is_mounted(ann.directory)


def test_umount_pushes_what_it_can_and_says_once_that_it_stays_for_the_rest(ann: User, bob: User) -> None:
    with ann.mounted("--no-sync") as directory:
        for name in ("first", "shop", "zoo"):
            write_row(directory / name)
        mount_client.ask(ann.home, "push")
        for name in ("first", "shop"):
            bob.sql(name, "DELETE FROM t")
            bob.ok("push", name)
        (directory / "notes").write_text("n")
        for name in ("first", "shop", "zoo"):
            write_row(directory / name)
        (directory / "folder").mkdir()
        told = ann.umount("--push")
        assert (told.code, told.out) == (3, "pushed 2 commits of 2 volumes\n"), told
        assert told.line(3).startswith(f"{directory} stays mounted: volume 'first' has")
        assert told.line(3).endswith("; nor can 1 other volume be pushed: budwood status")
        assert is_mounted(directory)
        with bob.mounted("--no-sync") as theirs:
            mount_client.ask(bob.home, "pull")
            assert (theirs / "folder").is_dir(), "names are pushed all the same"
        for name in ("first", "shop"):
            ann.ok("reset", name, "--discard")


def test_a_mount_whose_process_died_is_shown_taken_away_and_lost_nothing(ann: User) -> None:
    ann.mount("--no-sync")
    write_row(ann.directory / "shop", mode="wal")
    (row,) = ann.listed()
    os.kill(row["pid"], signal.SIGKILL)
    wait_until(lambda: ended(row["pid"]))
    with pytest.raises(OSError, match="connect") as gone:
        (ann.directory / "shop").read_bytes()
    assert gone.value.errno in (errno.ENOTCONN, errno.ECONNABORTED)
    (row,) = ann.listed()
    assert (row["alive"], row["pid"], row["unpushed"]) == (False, None, None)
    assert "dead" in ann.ok("mounts")
    assert "budwood umount" in ann("mount", str(ann.directory)).line()
    assert "had died" in ann.ok("umount", str(ann.directory))
    assert not is_mounted(ann.directory)
    with ann.mounted("--no-sync"), closing(sqlite3.connect(ann.directory / "shop")) as db:
        assert db.execute("SELECT count(*) FROM t").fetchall() == [(1,)]


def test_a_home_and_a_directory_of_any_name_are_mounted_and_listed(make: Callable[[str], User]) -> None:
    user = make('a, "b" \\c\n d')
    with user.mounted() as directory:
        (row,) = user.listed()
        assert (row["dir"], row["alive"]) == (str(directory), True)


def test_umount_of_what_is_no_mount_of_ours_says_so(ann: User, tmp_path: Path) -> None:
    assert "nothing is mounted on" in ann("umount", str(tmp_path)).line()
    assert "another kind (proc)" in ann("umount", "/proc").line()


def test_a_read_only_mount_follows_and_refuses_to_write(ann: User) -> None:
    ann.sql_made("v")
    with ann.mounted("--read-only") as directory:
        (row,) = ann.listed()
        assert row["mode"] == "read-only"
        with pytest.raises(OSError, match="Read-only"):
            (directory / "a").write_text("one")
        with closing(sqlite3.connect(f"file:{directory / 'v'}?mode=ro", uri=True)) as db:
            assert db.execute("SELECT count(*) FROM t").fetchall() == [(3,)]


def test_the_past_is_shown_beside_the_present(ann: User, make: Callable[[str], User]) -> None:
    ann.sql_made("v")
    ann.ok("push", "v")
    first, second = make("first"), make("second")
    for lsn, past in (("1", first), ("2", second)):
        past.home = ann.home
        past.options = ann.options
        assert past.mount("--lsn", lsn).code == 0
        if past is first:
            ann.sql("v", "DELETE FROM t WHERE a > 1")
            ann.ok("push", "v")
    for past, rows in ((first, 3), (second, 1)):
        with closing(sqlite3.connect(f"file:{past.directory / 'v'}?mode=ro", uri=True)) as db:
            assert db.execute("SELECT count(*) FROM t").fetchall() == [(rows,)]
    assert "is a mount of" in first.mount("--lsn", "2").line()
    with ann.mounted("--no-sync") as directory:
        write_row(directory / "v")
        listed = {row["dir"]: (row["mode"], row["alive"], row["unpushed"]) for row in ann.listed()}
        assert listed == {
            str(directory): ("read-write", True, 1),
            str(first.directory): ("at LSN 1", True, 0),
            str(second.directory): ("at LSN 2", True, 0),
        }
        assert ann.ok("push", "v") == "pushed 1 commit of v: LSN 3\n", "by the mount, which alone is asked"
        assert first.umount("--push").out == f"unmounted {first.directory}\n"
        assert second.umount().out == f"unmounted {second.directory}\n"
        assert [row["dir"] for row in ann.listed()] == [str(directory)]
    assert not list(mount_client.folder(ann.home).glob("past-*"))


def test_a_mount_of_the_past_alone_leaves_its_home_to_commands(ann: User) -> None:
    ann.sql_made("v")
    ann.ok("push", "v")
    with ann.mounted("--lsn", "1") as directory:
        ann.sql("v", "DELETE FROM t")
        assert ann.ok("push", "v") == "pushed 1 commit of v: LSN 2\n"
        assert ann.sql("v", "SELECT count(*) FROM t") == ["0"]
        with closing(sqlite3.connect(f"file:{directory / 'v'}?mode=ro", uri=True)) as db:
            assert db.execute("SELECT count(*) FROM t").fetchall() == [(3,)]


def test_a_new_home_shows_the_past_of_whatever_the_remote_has_a_name_for(ann: User, bob: User) -> None:
    with ann.mounted() as directory:
        (directory / "letters").mkdir()
        (directory / "letters" / "a").write_text("one")
        assert ann.umount("--push").code == 0
        ann.mount()
    with bob.mounted("--lsn", "1") as directory:
        assert (directory / "letters" / "a").read_text() == "one"


def test_a_mount_at_a_time_shows_the_names_of_that_time(ann: User, bob: User, make: Callable[[str], User]) -> None:
    files = ann.directory
    with ann.mounted("--no-sync"):
        (files / "letters").mkdir()
        for name in ("letters/removed", "saved", "moved", "later"):
            (files / name).write_text(name)
        (files / "empty").touch()
        write_row(files / "shop", mode="wal")
        ann.ok("push", "shop")
        mount_client.ask(ann.home, "push")
        # Each change of names is a millisecond later than the one before, at least.
        time.sleep(0.05)
        at = datetime.now(UTC).isoformat()
        (files / "letters" / "removed").unlink()
        (files / "letters").rmdir()
        (files / ".saved~").write_text("anew")
        (files / ".saved~").replace(files / "saved")
        (files / "moved").rename(files / "elsewhere")
        write_row(files / "shop")
        (files / "late").write_text("late")
        mount_client.ask(ann.home, "push")
        here = {row["name"] for row in json.loads(ann.ok("status", "--json"))}
        other = make("other")
        other.home, other.options = ann.home, ann.options
        for then in (other, bob):
            with then.mounted("--at", at) as directory:
                found = {str(path.relative_to(directory)) for path in directory.rglob("*")}
                found = {name for name in found if not name.startswith(".budwood")}
                assert found == {"letters", "letters/removed", "saved", "moved", "later", "empty", "shop"}
                # What is here as it was then is read from the remote once it isn't any more.
                (files / "later").unlink(missing_ok=True)
                for name in ("letters/removed", "saved", "moved", "later"):
                    assert (directory / name).read_text() == name
                assert (directory / "empty").read_bytes() == b""
                with closing(sqlite3.connect(f"file:{directory / 'shop'}?mode=ro", uri=True)) as db:
                    assert db.execute("SELECT count(*) FROM t").fetchall() == [(1,)]
        left = {row["name"] for row in json.loads(ann.ok("status", "--json"))}
        assert left == here - {"later"}, "the past brings nothing in"
        assert (files / "saved").read_text() == "anew"


def test_what_a_killed_mount_of_the_past_left_is_removed_by_the_next(ann: User, make: Callable[[str], User]) -> None:
    ann.sql_made("v")
    ann.ok("push", "v")
    ann.mount("--lsn", "1")
    (row,) = ann.listed()
    os.kill(row["pid"], signal.SIGKILL)
    wait_until(lambda: ended(row["pid"]))
    (row,) = ann.listed()
    assert (row["mode"], row["alive"], row["unpushed"]) == ("at LSN 1", False, 0)
    other = make("other")
    other.home, other.options = ann.home, ann.options
    with other.mounted("--lsn", "1"):
        assert {row["dir"] for row in ann.listed() if row["mode"] == "at LSN 1"} == {
            str(ann.directory),
            str(other.directory),
        }, "it is known for what it was as long as it stands there"
        assert ann.umount().out == f"unmounted {ann.directory}, whose process had died\n"
    left = list(mount_client.folder(ann.home).glob("past-*"))
    assert left == [mount_client.folder(ann.home, ann.directory)]
    with ann.mounted("--no-sync"):
        (row,) = ann.listed()
        assert (row["mode"], row["alive"]) == ("read-write", True), "what died on that directory was another"
    with other.mounted("--lsn", "1"):
        assert not left[0].exists()


def test_commands_see_what_programs_have_committed(ann: User, tmp_path: Path) -> None:
    with ann.mounted("--no-sync") as directory, closing(sqlite3.connect(directory / "shop")) as db:
        db.execute("PRAGMA journal_mode=wal")
        db.execute("PRAGMA synchronous=off")
        db.executescript(ROW)
        for count in range(2, 30):
            db.executescript(ROW)
            before = ann.status("shop")["unpushed"]
            ann.ok("export", "shop", str(tmp_path / "out"), "--overwrite")
            with closing(sqlite3.connect(tmp_path / "out")) as out:
                assert out.execute("SELECT count(*) FROM t").fetchall() == [(count,)]
            assert len(json.loads(ann.ok("log", "shop", "--json"))) == before


def test_a_command_pushes_and_pulls_through_the_mount(ann: User, bob: User) -> None:
    with ann.mounted("--no-sync") as directory:
        write_row(directory / "shop")
        assert ann.ok("push", "shop").startswith("pushed")
        bare = Command(ann.capsys, ann.home)
        assert bare.ok("push", "shop") == "nothing to push: shop is at LSN 1\n", "the mount knows the remote"
        bob.sql("shop", "INSERT INTO t DEFAULT VALUES; CREATE TABLE u AS SELECT randomblob(2000000) AS b")
        bob.ok("push", "shop")
        with closing(sqlite3.connect(directory / "shop")) as db:
            assert db.execute("SELECT count(*) FROM t").fetchall() == [(1,)]
            assert bare.ok("pull", "shop") == "pulled shop: LSN 1 to 2\n"
            assert db.execute("SELECT count(*) FROM t").fetchall() == [(2,)], "an open connection sees it"
        assert bare.ok("fetch", "shop").startswith("fetched")
        assert bare.ok("fetch", "shop").startswith("nothing to fetch")


def test_what_the_mount_lists_is_fetched_though_nobody_looked_at_it(ann: User, bob: User, tmp_path: Path) -> None:
    store, aside = tmp_path / "store", tmp_path / "aside"
    with ann.mounted() as directory:
        for name in ("a", "b"):
            (directory / name).write_text(name)
        assert ann.umount("--push").code == 0
        with bob.mounted():
            assert bob.ok("fetch", "--all") == "fetched 2 pages of 2 volumes\n"
        ann.mount()
        (directory / "c").write_text("c")
        assert ann.umount("--push").code == 0
        with bob.mounted() as theirs:
            wait_until(lambda: "c" in os.listdir(theirs))
        assert bob.ok("fetch", "--all") == "fetched 1 page of 3 volumes\n", "as it does when it isn't mounted"
        assert bob.ok("fetch", "--all") == "nothing to fetch: all of 3 volumes is here\n"
        store.rename(aside)
        with bob.mounted("--no-sync") as theirs:
            assert [(theirs / name).read_text() for name in ("a", "b", "c")] == ["a", "b", "c"]
        aside.rename(store)
        ann.mount()


def test_a_command_resets_through_the_mount(ann: User, bob: User) -> None:
    with ann.mounted("--no-sync") as directory:
        write_row(directory / "shop")
        ann.ok("push", "shop")
        write_row(directory / "shop")
        bob.sql("shop", "DELETE FROM t")
        bob.ok("push", "shop")
        assert "unpushed" in ann("pull", "shop").line(3)
        assert ann.ok("reset", "shop", "--keep-as", "mine").startswith("reset shop to LSN 2")
        for name, count in (("shop", 0), ("mine", 2)):
            with closing(sqlite3.connect(directory / name)) as db:
                assert db.execute("SELECT count(*) FROM t").fetchall() == [(count,)]


def test_what_a_program_writes_is_busy_for_commands(ann: User) -> None:
    with ann.mounted("--no-sync") as directory:
        write_row(directory / "shop")
        with open(directory / "shop", "r+b"):
            assert "locked by another connection" in ann("sql", "shop", "DELETE FROM t").line()
            assert ann.sql("shop", "SELECT count(*) FROM t") == ["1"]
        assert ann.sql("shop", "DELETE FROM t") == []


def test_sql_sees_what_programs_have_committed(ann: User) -> None:
    with ann.mounted("--no-sync") as directory, closing(sqlite3.connect(directory / "shop")) as db:
        db.execute("PRAGMA journal_mode=wal")
        for count in range(1, 20):
            db.executescript(ROW)
            assert ann.sql("shop", "SELECT count(*) FROM t") == [str(count)]


def test_the_virtual_files_answer(ann: User) -> None:
    with ann.mounted("--no-sync") as directory:
        write_row(directory / "shop")
        files = directory / ".budwood"
        (row,) = json.loads((files / "status").read_text())
        assert row["name"] == "shop"
        wanted = {name for name, row in documented("Metrics of an edge").items() if row.told_by != "autosync"}
        assert families((files / "metrics").read_text()).keys() == wanted
        (files / "control").write_text("push shop\n")
        assert "ok" in json.loads((files / "control").read_text())
        (row,) = json.loads((files / "status").read_text())
        assert row["unpushed"] == 0
        with pytest.raises(OSError, match="Invalid argument"):
            (files / "control").write_text("dance\n")
        assert json.loads((files / "control").read_text())["error"]["code"] == "BadInput"


# mount(8)


def bin_folder(tmp_path: Path) -> Path:
    """A folder with the two scripts that an installation brings."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, entry in (("budwood", "main"), ("mount.fuse.budwood", "mount_helper")):
        script = folder / name
        code = f"from budwood.cli.launch import {entry}; {entry}()"
        script.write_text(f"#!/bin/sh\nexec {sys.executable} -P -c '{code}' \"$@\"\n")
        script.chmod(0o755)
    return folder


def needs_mount_program() -> str:
    """Why mount(8) can't be tried; "" if it can."""
    if os.geteuid() != 0:
        return "only root may mount by mount(8)"
    if shutil.which("mount.fuse") is None and not Path("/sbin/mount.fuse").exists():
        return "there is no mount.fuse (package fuse3)"
    tried = subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False)
    return "" if tried.returncode == 0 else "no mount namespace can be made here"


# mount(8) clears PATH, so that the command must lie where the shell looks by itself. The namespace is this test's own.
BY_MOUNT = """
mount --bind "$1" /usr/local/bin
mount -t fuse.budwood "$2" "$3" -o "$4"
cat "$3/a"
findmnt -n -o FSTYPE,SOURCE,TARGET "$3"
if echo two 2>&1 >"$3/a"; then echo written; fi
umount "$3"
printf '%s %s fuse.budwood %s 0 0\\n' "$2" "$3" "noauto,$4" >"$1/fstab"
mount -T "$1/fstab" "$3"
cat "$3/a"
umount "$3"
"""


@pytest.mark.skipif(bool(needs_mount_program()), reason=needs_mount_program() or "it can be tried")
def test_mount_and_fstab_mount_a_home(ann: User, tmp_path: Path) -> None:
    ann.directory = tmp_path / "plain"
    with ann.mounted("--no-sync") as directory:
        (directory / "a").write_text("one\n")
    options = f"ro,remote={ann.options[-1]},nosync,noexec,nofail,_netdev,x-systemd.automount"
    arguments = [str(bin_folder(tmp_path)), str(ann.home), str(ann.directory), options]
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-ec", BY_MOUNT, "sh", *arguments],
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stderr
    assert lines[0] == "one"
    assert lines[1].split() == ["fuse.budwood", str(ann.home), str(ann.directory)]
    assert "Read-only" in done.stderr + done.stdout
    assert "written" not in lines
    assert lines[-1] == "one"
    wait_until(lambda: mount_client.serving(ann.home) is None)


def test_the_helper_mounts_as_mount_calls_it(ann: User) -> None:
    ann.directory.mkdir()
    helper = [*ENTRY[:-1], "from budwood.cli.launch import mount_helper; mount_helper()"]

    def called(*arguments: str) -> Said:
        done = subprocess.run([*helper, *arguments], capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False)
        return Said(done.returncode, done.stdout, done.stderr)

    where = [str(ann.home), str(ann.directory)]
    assert "is no mount option" in called(*where, "-o", "rw,colour=blue").line(2)
    assert called(*where, "-f", "-o", "rw") == Said(0, "", "")
    assert not is_mounted(ann.directory)
    assert called(*where, "-n", "-o", "rw,nosync,relatime,user=root").code == 0
    (row,) = ann.listed()
    assert row["mode"] == "read-write"
    assert ann.umount().code == 0
