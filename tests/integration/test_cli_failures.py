"""What fails beyond the command - bytes, remotes, disks, other processes: one line, a nonzero status, nothing lost.

Each test looks again afterwards: what stood before is read back.
"""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import socket
import sqlite3
import subprocess
import threading
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from budwood.remote import http
from budwood.remote.exchange import Timing
from budwood.testing.clock import ManualClock

from ..small_disk import small_disk
from ..waits import LIMIT_SECONDS
from .cli import ENTRY, Command, serving

ROWS = ["1\tone", "2\ttwo", "3\t"]
READ = "SELECT * FROM t"


@pytest.fixture
def user(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    """With an unpushed volume `v`, and a store that nothing was sent to."""
    user = Command(capsys, tmp_path / "home", (tmp_path / "store").as_uri())
    user.sql_made("v")
    return user


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A good SQLite file."""
    path = tmp_path / "file.db"
    with closing(sqlite3.connect(path)) as db:
        db.executescript("PRAGMA user_version = 7; CREATE TABLE t (a); INSERT INTO t VALUES (1)")
    return path


def unharmed(user: Command) -> None:
    """The volume `v` is as it was, and alone."""
    assert user.sql("v", READ) == ROWS
    assert [line.split()[0] for line in user.ok("ls").splitlines()] == ["name", "v"]


# Damage


def objects(store: Path) -> list[Path]:
    return sorted(path for path in store.rglob("*") if path.is_file())


def flip(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]


@pytest.mark.slow
def test_a_flipped_or_missing_byte_in_any_object_is_told_and_never_read(user: Command, tmp_path: Path) -> None:
    user.sql("v", "INSERT INTO t (b) SELECT hex(randomblob(2000)) FROM t")
    user.ok("push", "v")
    user.sql("v", "UPDATE t SET b = 'x' WHERE a > 3")
    user.ok("push", "v")
    user.ok("fork", "v", "w", "--lsn", "1")
    rows = user.sql("v", READ)
    told = set[Path]()
    everything = objects(tmp_path / "store")
    assert len(everything) >= 6
    for number, path in enumerate(everything):
        good = path.read_bytes()
        spoilt = [flip(good, at) for at in (0, len(good) // 3, len(good) * 2 // 3, len(good) - 1)]
        for attempt, bad in enumerate([*spoilt, good[:-1], good[1:]]):
            path.write_bytes(bad)
            reader = Command(user.capsys, tmp_path / f"reader-{number}-{attempt}", user.options[-1])
            for arguments in (["ls", "--remote"], ["sql", "v", READ], ["sql", "v", READ, "--lsn", "1"], ["log", "v"]):
                said = reader(*arguments)
                if said.code:
                    said.line()
                    told.add(path)
                elif arguments == ["sql", "v", READ]:
                    assert said.out.splitlines() == rows
        path.write_bytes(good)
    # What only another reader needs (the fork's own objects) may be passed over; the rest is noticed.
    assert len(told) >= len(everything) - 3, f"unnoticed: {set(everything) - told}"
    assert "root" in {path.name for path in told}
    reader = Command(user.capsys, tmp_path / "reader", user.options[-1])
    assert reader.sql("v", READ) == rows


def test_of_volumes_that_are_all_fetched_a_damaged_one_stops_no_other(user: Command, tmp_path: Path) -> None:
    assert user.ok("fetch", "--all") == "nothing to fetch: no volume here was ever pushed or pulled\n"
    user.sql("v", "INSERT INTO t (b) SELECT hex(randomblob(90000)) FROM t")
    user.ok("push", "v")
    before = set(objects(tmp_path / "store"))
    for name in ("u", "w"):
        user.ok("fork", "v", name)
        user.sql(name, "UPDATE t SET b = hex(randomblob(90000))")
        user.ok("push", name)
    # Its name is the first that is fetched.
    segments = [path for path in set(objects(tmp_path / "store")) - before if path.stat().st_size > 100_000]
    reader = Command(user.capsys, tmp_path / "reader", user.options[-1])
    for name in ("u", "w"):
        reader.ok("clone", name)
    vid = next(row["id"] for row in json.loads(user.ok("ls", "--remote", "--json")) if row["name"] == "u")
    (spoilt,) = [path for path in segments if vid in str(path)]
    spoilt.write_bytes(flip(spoilt.read_bytes(), 50_000))
    said = reader("fetch", "--all")
    assert said.code == 1
    assert "u: " in said.err.splitlines()[0]
    assert "is damaged" in said.err.splitlines()[0]
    assert "1 of 2 volumes failed" in said.err.splitlines()[1]
    assert reader.ok("fetch", "w") == "nothing to fetch: all of w is here\n"


@pytest.mark.slow
def test_a_flipped_byte_in_the_local_store_is_told_or_harmless_and_never_read(user: Command, tmp_path: Path) -> None:
    user.ok("push", "v")
    user.sql("v", "INSERT INTO t (b) SELECT hex(randomblob(2000)) FROM t")
    rows = user.sql("v", READ)
    data = (user.home / "store" / "data.mdb").read_bytes()
    used = [at for at in range(len(data)) if data[at]]
    told = 0
    chosen = random.Random(7).sample(used, 14)
    for number, at in enumerate([*chosen, 16, 4096 + 24]):
        home = tmp_path / f"spoilt-{number}"
        shutil.copytree(user.home, home, ignore=shutil.ignore_patterns("lock.mdb"))
        (home / "store" / "data.mdb").write_bytes(flip(data, at))
        said = Command(user.capsys, home).process("sql", "v", READ)
        if said.code:
            said.line()
            told += 1
        else:
            assert (said.out.splitlines(), said.err) == (rows, ""), f"at {at}"
    assert told
    assert user.sql("v", READ) == rows


@pytest.mark.slow
def test_a_local_store_that_was_cut_short_is_told(user: Command, tmp_path: Path) -> None:
    data = (user.home / "store" / "data.mdb").read_bytes()
    for number, size in enumerate((0, 100, 4096, len(data) // 2, len(data) - 4096, len(data) - 1)):
        home = tmp_path / f"cut-{number}"
        shutil.copytree(user.home, home, ignore=shutil.ignore_patterns("lock.mdb"))
        (home / "store" / "data.mdb").write_bytes(data[:size])
        said = Command(user.capsys, home).process("sql", "v", READ)
        if said.code:
            said.line()
        else:
            assert said.out.splitlines() == ROWS
    unharmed(user)


# Remotes


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


ASKING: list[list[str]] = [["push", "v"], ["clone", "w"], ["ls", "--remote"], ["sql", "w", "SELECT 1"]]


def test_a_remote_that_is_down_is_told_within_five_seconds(user: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of waiting: a refusal itself comes at once."""
    clock = ManualClock(jumps=True)
    monkeypatch.setattr(http, "Timing", partial(Timing, now=clock.now, sleep=clock.sleep))
    url = f"http://127.0.0.1:{free_port()}"
    offline = Command(user.capsys, user.home, url)
    for arguments in ASKING:
        began = clock.now()
        assert url in offline(*arguments).line()
        assert clock.now() - began < 5
    unharmed(user)


@contextmanager
def answering(answer: bytes | None) -> Generator[str]:
    """Something at an address that answers everything with these bytes, or with nothing and keeps the line open."""
    listener = socket.create_server(("127.0.0.1", 0))
    held: list[socket.socket] = []

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            held.append(connection)
            if answer is not None:
                connection.recv(65536)
                connection.sendall(answer)
                with suppress(OSError):
                    # Whoever has heard enough may have left.
                    connection.shutdown(socket.SHUT_WR)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()
        for connection in held:
            connection.close()


OK = b"HTTP/1.1 200 OK\r\ncontent-type: application/msgpack\r\ncontent-length: %d\r\n\r\n"
GARBAGE: dict[str, bytes] = {
    "noise": b"\x00\xff\x17" * 100,
    "nothing": b"",
    "a page": b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 20\r\n\r\n<html>Log in!</html>",
    "no map": OK % 3 + b"\xc1\xc1\xc1",
    "another map": OK % 5 + b"\x81\xa3xyz",
    "cut short": OK % 500 + b"\x81",
    "an error page": b"HTTP/1.1 500 Oops\r\ncontent-length: 4\r\n\r\nOops",
    "not found": b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n",
}


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that waits a little, and not half a minute."""
    timing = partial(Timing, connect_seconds=0.3, read_seconds=0.3, retry_seconds=0.2)
    monkeypatch.setattr(http, "Timing", timing)


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("answer", GARBAGE.values(), ids=GARBAGE.keys())
def test_a_remote_that_answers_garbage_is_told(user: Command, answer: bytes) -> None:
    with answering(answer) as url:
        for arguments in ASKING:
            assert url in Command(user.capsys, user.home, url)(*arguments).line()
    unharmed(user)
    assert user.ok("push", "v") == "pushed 2 commits of v: LSN 1\n"


@pytest.mark.slow
@pytest.mark.usefixtures("hurried")
def test_a_remote_that_never_answers_is_given_up(user: Command) -> None:
    with answering(None) as url:
        for arguments in ASKING:
            assert url in Command(user.capsys, user.home, url)(*arguments).line()
    unharmed(user)
    assert user.ok("push", "v") == "pushed 2 commits of v: LSN 1\n"


def test_a_remote_that_is_no_url_is_refused(user: Command) -> None:
    for url in ("here", "ftp://x", "http://", "http://x:99999", "file://host/x", "file:relative", "s3://"):
        said = Command(user.capsys, user.home, url)("push", "v")
        assert said.line(2)
    unharmed(user)


@pytest.mark.slow
def test_a_volume_in_a_node_s_log_is_refused_to_others_once_the_node_is_gone(user: Command, tmp_path: Path) -> None:
    with serving(tmp_path / "store") as url:
        there = Command(user.capsys, user.home, url)
        there.ok("push", "v")
    user.sql("v", "INSERT INTO t (b) VALUES ('late')")
    line = user("push", "v").line()
    assert "budwood move" in line
    assert "main" in line
    assert user.sql("v", "SELECT count(*) FROM t") == ["4"]
    user.ok("move", "v", "--log", "private", "--takeover")
    assert user.ok("push", "v") == "pushed 1 commit of v: LSN 2\n"


# Full disks


BIG = "INSERT INTO t (b) VALUES (hex(randomblob(3000000)))"


def test_a_full_disk_under_the_home_loses_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], file: Path
) -> None:
    with small_disk(tmp_path / "disk", 4096) as disk:
        user = Command(capsys, disk / "home", (tmp_path / "store").as_uri())
        user.sql_made("v")
        assert "room" in user("sql", "v", BIG).line()
        unharmed(user)
        user.sql("v", "INSERT INTO t (b) VALUES ('small')")
        assert user.ok("push", "v").startswith("pushed")
        with closing(sqlite3.connect(file)) as db, db:
            db.execute("INSERT INTO t VALUES (randomblob(6000000))")
        assert "room" in user("import", str(file), "w").line()
        assert user.sql("v", "SELECT count(*) FROM t") == ["4"]


def test_a_full_disk_under_the_store_loses_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with small_disk(tmp_path / "disk", 2048) as disk:
        user = Command(capsys, tmp_path / "home", (disk / "store").as_uri())
        user.sql_made("v")
        user.ok("push", "v")
        user.sql("v", BIG)
        assert "room" in user("push", "v").line()
        assert user.sql("v", "SELECT count(*) FROM t") == ["4"]
        subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True)
        assert user.ok("push", "v") == "pushed 1 commit of v: LSN 2\n"
        other = Command(capsys, tmp_path / "other", user.options[-1])
        assert other.sql("v", "SELECT sum(length(b)) FROM t") == ["6000006"]


def test_a_file_size_limit_loses_nothing(user: Command) -> None:
    limit = (user.home / "store" / "data.mdb").stat().st_size + 65536
    limited = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (limit, limit))
    said = user.process("sql", "v", BIG, preexec_fn=limited)
    said.line()
    unharmed(user)


# Two at once


def test_of_two_processes_that_import_one_name_one_wins(user: Command, file: Path) -> None:
    with closing(sqlite3.connect(file)) as db, db:
        db.execute("INSERT INTO t SELECT randomblob(200000) FROM (VALUES (1), (2), (3), (4), (5), (6), (7), (8))")
    children = [user.start("import", str(file), "w") for _ in range(2)]
    ended: list[tuple[int, str]] = []
    for child in children:
        with child:
            _, err = child.communicate(timeout=LIMIT_SECONDS)
            ended.append((child.returncode, err))
    assert sorted(code for code, _ in ended) == [0, 1]
    (loser,) = (err for code, err in ended if code)
    assert loser.count("\n") == 1
    assert loser.startswith("budwood: there is a volume 'w' here already")
    assert user.sql("w", "SELECT count(*) FROM t; PRAGMA integrity_check") == ["9", "ok"]
    assert user.sql("v", READ) == ROWS


def test_a_terminal_that_has_not_every_letter_is_shown_the_others_in_ascii(user: Command) -> None:
    user.ok("create", "Größe")
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}

    def said(*words: str) -> str:
        line = [*ENTRY, *user.options, *words]
        done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=LIMIT_SECONDS)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    assert r"Gr\xf6\xdfe" in said("ls")
    assert "Größe" in [row["name"] for row in json.loads(said("ls", "--json"))]
    assert json.loads(said("sql", "v", "SELECT 'ü😀' AS 'ö'", "--json")) == [{"ö": "ü😀"}]


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_standard_streams_do_no_harm(user: Command, closed: str) -> None:
    """The shell ends at once, and what is printed doesn't go into a file that took the stream's number."""
    for arguments in (["shell", "v"], ["push", "v"], ["ls"], ["status", "nope"]):
        line = ["sh", "-c", f'exec "$@" {closed}', "sh", *ENTRY, *user.options, *arguments]
        done = subprocess.run(line, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT_SECONDS)
        assert done.returncode == (arguments[-1] == "nope"), done
        assert "Traceback" not in done.stderr
    unharmed(user)
