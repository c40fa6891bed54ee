"""Merge at the command line, and by autosync; a database is replayed instead."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest

from budwood.sync.edge import open as open_edge
from budwood.sync.shared_autosync import policy_of
from budwood.sync.volume import Volume
from budwood.volume.protocols import Durability

from ..waits import wait_until
from .cli import Command

PAGE = 512


def write(volume: Volume, page: int, letter: bytes) -> None:
    writer = volume.writer(page_size=PAGE)
    writer.write(page, letter * PAGE)
    made = writer.commit(Durability.ORDERED)
    assert made is not None
    made.close()


def letters(volume: Volume) -> bytes:
    with closing(volume.snapshot()) as view:
        return b"".join(view.read(page)[:1] for page in range(1, view.length // PAGE + 1))


def two_sides(folder: Path, remote: str, here: int) -> None:
    """Of four pages, the remote changed the second, and this home the one that is `here`."""
    with open_edge(home=folder / "ann", remote=remote) as one, open_edge(home=folder / "bob", remote=remote) as two:
        volume = one.create("v", page_size=PAGE)
        for page in range(1, 5):
            write(volume, page, b"-")
        volume.push()
        mine = two.volume("v")
        mine.pull()
        write(volume, 2, b"a")
        volume.push()
        write(mine, here, b"b")


def test_at_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    remote = (tmp_path / "store").as_uri()
    two_sides(tmp_path, remote, here=4)
    bob = Command(capsys, tmp_path / "bob", remote)
    assert bob.ok("merge", "v", "--dry-run").splitlines() == ["1 page would be laid over LSN 2"]
    assert json.loads(bob.ok("status", "v", "--json"))[0]["lsn"] == "1+1"
    told = bob.ok("merge", "v", "--keep-as", "mine").splitlines()
    assert told == ["1 page laid over LSN 2", "v is at LSN 2+1: push it"]
    assert json.loads(bob.ok("merge", "v", "--json")) == [{"onto": 0, "pages": 0, "lsn": "2+1", "dry_run": False}]
    with open_edge(home=tmp_path / "bob", remote=remote) as edge:
        assert letters(edge.volume("v")) == b"-a-b"
        assert letters(edge.volume("mine")) == b"---b"


def test_a_page_that_both_changed_is_named_and_nothing_has_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    remote = (tmp_path / "store").as_uri()
    two_sides(tmp_path, remote, here=2)
    bob = Command(capsys, tmp_path / "bob", remote)
    assert "`budwood replay v` (`merge`, if" in bob("push", "v").line(3)
    assert "budwood merge v" in bob.ok("status", "v")
    assert "since page 2 was changed here and on the remote: take" in bob("merge", "v").line(3)
    with open_edge(home=tmp_path / "bob", remote=remote) as edge:
        assert letters(edge.volume("v")) == b"-b--"


def test_a_database_is_replayed_instead(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    remote = (tmp_path / "store").as_uri()
    ann, bob = Command(capsys, tmp_path / "ann", remote), Command(capsys, tmp_path / "bob", remote)
    ann.sql_made("v")
    ann.ok("push", "v")
    bob.ok("clone", "v")
    for one, name in ((ann, "ann"), (bob, "bob")):
        one.sql("v", f"UPDATE t SET b = '{name}' WHERE a = 1")
    ann.ok("push", "v")
    assert "`budwood replay v`" in bob("merge", "v").line(2)


def test_autosync_merges_where_it_is_told_to(tmp_path: Path) -> None:
    remote = (tmp_path / "store").as_uri()
    two_sides(tmp_path, remote, here=4)
    with open_edge(home=tmp_path / "bob", remote=remote) as edge:
        volume = edge.volume("v")
        with edge.autosync(policy_of("merge")):
            wait_until(lambda: volume.status(count=False)["lsn"] == "3")
        assert letters(volume) == b"-a-b"
