"""Listening as programs without a loop do it: a volume of a home, any volume of a remote, and the command (S3.16)."""

from __future__ import annotations

import json
import re
import signal
import threading
from contextlib import closing
from pathlib import Path

import pytest

import budwood
from budwood import lite
from budwood.remote.blocking_listening import BlockingListener
from budwood.sync.edge import open as open_edge
from budwood.volume.errors import NotFound

from ..waits import LIMIT_SECONDS, wait_until
from .cli import Command, serving


@pytest.fixture
def remote(tmp_path: Path) -> str:
    return (tmp_path / "store").as_uri()


@pytest.fixture
def ann(tmp_path: Path, remote: str, capsys: pytest.CaptureFixture[str]) -> Command:
    """With a volume of two commits on the remote."""
    ann = Command(capsys, tmp_path / "ann", remote)
    ann.sql_made("v")
    ann.ok("push", "v")
    insert(ann, 4)
    return ann


def insert(user: Command, number: int) -> None:
    user.sql("v", f"INSERT INTO t VALUES ({number}, 'x')")
    user.ok("push", "v")


def pages_of(path: Path) -> dict[int, bytes]:
    data = path.read_bytes()
    return {1 + at // 4096: data[at : at + 4096] for at in range(0, len(data), 4096)}


def heard(listener: BlockingListener, count: int) -> list[int]:
    return [next(listener).lsn for _ in range(count)]


def test_a_snapshot_and_what_is_heard_after_it_are_the_file(ann: Command, remote: str, tmp_path: Path) -> None:
    """S3.17, of a real database: by a home's volume, and with no home."""
    ann.ok("export", "v", str(tmp_path / "one"), "--lsn", "1")
    ann.ok("export", "v", str(tmp_path / "two"))
    with open_edge(home=ann.home, remote=remote) as edge, budwood.listen(remote, "v", after=1) as without:
        for listener in (edge.volume("v").listen(after=1), without):
            commit = next(listener)
            assert (commit.lsn, commit.length) == (2, (tmp_path / "two").stat().st_size)
            assert pages_of(tmp_path / "one") | dict(commit.read()) == pages_of(tmp_path / "two")
            assert listener.after == 2
    assert lite.listen is budwood.listen


def test_a_home_hears_what_another_pushes_from_now_on(
    ann: Command, remote: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bob = Command(capsys, tmp_path / "bob", remote)
    bob.ok("clone", "v")
    with open_edge(home=ann.home, remote=remote) as edge:
        volume = edge.volume("v")
        listener = volume.listen()
        insert(bob, 5)
        assert heard(listener, 1) == [3]
        assert volume.status()["lsn"] == "2", "it moves by a pull, and by nothing else"


def test_a_view_of_an_lsn_that_is_to_come_is_awaited(
    ann: Command, remote: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """S3.17: by a home's volume, and by the command; without waiting it is not there, as before."""
    bob = Command(capsys, tmp_path / "bob", remote)
    bob.ok("clone", "v")
    assert "has no LSN 3" in bob("sql", "v", "SELECT count(*) FROM t", "--lsn", "3").line()
    assert "say which with --lsn" in bob("sql", "v", "SELECT 1", "--wait", "3").line(2)
    assert "has no LSN 3" in bob("sql", "v", "SELECT 1", "--lsn", "3", "--wait", "0.1").line()
    with bob.start("sql", "v", "SELECT count(*) FROM t", "--lsn", "4", "--wait", str(LIMIT_SECONDS)) as waiting:
        with open_edge(home=ann.home, remote=remote) as edge:
            told = list[str]()

            def wait() -> None:
                with closing(edge.volume("v").snapshot(lsn=3, wait_seconds=LIMIT_SECONDS)) as view:
                    told.append(str(view.length))

            thread = threading.Thread(target=wait)
            thread.start()
            assert not told
            insert(ann, 5)
            thread.join(LIMIT_SECONDS)
            assert len(told) == 1
        assert waiting.poll() is None, "LSN 3 isn't LSN 4"
        insert(ann, 6)
        out, error = waiting.communicate(timeout=LIMIT_SECONDS)
    assert (waiting.returncode, out, error) == (0, "6\n", "")


def test_what_was_never_pushed_tells_nothing(tmp_path: Path, remote: str) -> None:
    with open_edge(home=tmp_path / "home", remote=remote) as edge, pytest.raises(NotFound, match="never pushed"):
        edge.create("new").listen()
    with pytest.raises(NotFound):
        budwood.listen(remote, "new")


@pytest.mark.parametrize("waits", [True, False])
def test_it_ends_when_it_is_closed_from_wherever(ann: Command, remote: str, waits: bool) -> None:
    listener, lsns = budwood.listen(remote, "v", after=0), list[int]()

    def hear() -> None:
        lsns.extend(commit.lsn for commit in listener)
        lsns.append(-1)

    thread = threading.Thread(target=hear)
    if waits:
        thread.start()
        wait_until(lambda: listener.after == 2)
    listener.close()
    listener.close()
    if not waits:
        thread.start()
    thread.join(LIMIT_SECONDS)
    assert lsns == ([1, 2, -1] if waits else [-1])


def test_the_command_prints_a_line_for_each(ann: Command) -> None:
    text = ann.ok("listen", "v", "--after", "0", "--count", "2").splitlines()
    assert len(text) == 2
    assert re.fullmatch(r"2  \d{4}-\d\d-\d\d \d\d:\d\d:\d\d  \d pages? changed  8\.0 KiB", text[1])
    rows = [json.loads(line) for line in ann.ok("listen", "v", "--after", "0", "-n", "2", "--json").splitlines()]
    assert [row["lsn"] for row in rows] == [1, 2]
    assert set(rows[1]) == {"lsn", "time", "length", "floor", "pages", "client"}


def test_the_command_says_in_a_line_what_ends_it(ann: Command) -> None:
    assert "newest is 2" in ann("listen", "v", "--after", "9").line()
    assert "no volume 'w'" in ann("listen", "w").line()
    ann.ok("retain", "v", "--since", "2")
    assert "forgotten" in ann("listen", "v", "--after", "0").line()
    assert "'--count'" in ann("listen", "v", "--count", "0").line(2)


def test_an_interrupt_ends_the_command_with_where_to_go_on(ann: Command) -> None:
    with ann.start("listen", "v", "--after", "1") as child:
        assert child.stdout is not None
        assert child.stdout.readline().startswith("2  ")
        insert(ann, 5)
        assert child.stdout.readline().startswith("3  ")
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=LIMIT_SECONDS)
    assert (child.returncode, out, err) == (130, "", "budwood: stopped: --after 3 goes on from here\n")


def test_a_reader_that_leaves_ends_the_command_in_silence_though_nothing_is_committed(ann: Command) -> None:
    with ann.start("listen", "v", "--after", "1") as child:
        assert child.stdout is not None
        assert child.stderr is not None
        assert child.stdout.readline().startswith("2  ")
        child.stdout.close()
        assert child.wait(LIMIT_SECONDS) == 141
        assert child.stderr.read() == ""


def test_the_command_goes_on_when_its_node_comes_back(
    ann: Command, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(tmp_path / "store") as address:
        bob = Command(capsys, tmp_path / "bob", address)
        bob.ok("clone", "v")
        child = bob.start("listen", "v", "--after", "1")
        assert child.stdout is not None
        assert child.stderr is not None
        assert child.stdout.readline().startswith("2  ")
    with child:
        assert "waiting for it to come back" in child.stderr.readline()
        with serving(tmp_path / "store", listen=address.removeprefix("http://")):
            insert(bob, 5)
            assert child.stdout.readline().startswith("3  ")
            child.send_signal(signal.SIGINT)
            out, err = child.communicate(timeout=LIMIT_SECONDS)
    assert (child.returncode, out, err) == (130, "", "budwood: stopped: --after 3 goes on from here\n")


def test_the_command_ends_when_its_patience_does(
    ann: Command, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(tmp_path / "store") as address:
        bob = Command(capsys, tmp_path / "bob", address)
        bob.ok("clone", "v")
        child = bob.start("listen", "v", "--after", "1", "--patience", "0.1")
        assert child.stdout is not None
        assert child.stdout.readline().startswith("2  ")
    with child:
        _, err = child.communicate(timeout=LIMIT_SECONDS)
    assert child.returncode == 1
    assert [line.startswith("budwood: ") for line in err.splitlines()] == [True, True]
