"""Which remote a volume is looked for at, and what is said where another one is named than a volume's own."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import apsw
import pytest

import budwood
import budwood.vfs
from budwood.sync.edge import open as open_edge
from budwood.volume.errors import AlreadyExists, NotFound, Unavailable, WrongStore

from .cli import Command

READ = "SELECT a FROM t"
NOBODY = "http://127.0.0.1:9"
"""Where no node listens."""


@pytest.fixture
def store(tmp_path: Path) -> str:
    (tmp_path / "store").mkdir()
    with closing(budwood.connect("inventory", home=tmp_path / "maker", remote=f"file://{tmp_path}/store")) as db:
        db.execute("CREATE TABLE t(a); INSERT INTO t VALUES ('theirs')")
        db.execute("PRAGMA budwood_push")
    return f"file://{tmp_path}/store"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def rows(home: Path, name: str = "inventory", remote: str | None = None) -> list[str]:
    with closing(budwood.connect(name, home=home, remote=remote)) as db:
        if db.execute("SELECT count(*) FROM sqlite_schema").fetchone() == (0,):
            return []
        return [str(row[0]) for row in db.execute(READ)]


def make(home: Path, name: str, text: str = "ours", remote: str | None = None) -> None:
    with closing(budwood.connect(name, home=home, remote=remote)) as db:
        db.execute("CREATE TABLE t(a)")
        db.execute("INSERT INTO t VALUES (?)", (text,))


def test_an_untouched_volume_gives_its_name_to_the_remotes(home: Path, store: str) -> None:
    """Opened before anything was known of the remote, as mode=rwc makes it."""
    assert rows(home) == []
    assert rows(home) == []
    assert rows(home, remote=store) == ["theirs"]
    assert rows(home) == ["theirs"]
    with open_edge(home=home) as edge:
        assert [row["name"] for row in edge.ls()] == ["inventory"]
        assert edge.environment.home.exists()


def test_a_volume_that_is_being_written_keeps_its_name(home: Path, store: str) -> None:
    with closing(budwood.connect("inventory", home=home)) as first:
        first.execute("BEGIN IMMEDIATE")
        assert rows(home, remote=store) == []
        first.execute("CREATE TABLE t(a); INSERT INTO t VALUES ('ours'); COMMIT")
        with pytest.raises(AlreadyExists, match="--as NEW"), open_edge(home=home, remote=store) as edge:
            edge.volume("inventory").push()
    assert rows(home, remote=store) == ["ours"], "never dropped, and never mixed"


def test_what_was_written_before_is_refused_the_name_in_words_and_kept(home: Path, store: str) -> None:
    make(home, "inventory")
    with open_edge(home=home, remote=store) as edge:
        with pytest.raises(AlreadyExists, match="budwood push inventory --as NEW"):
            edge.volume("inventory").push()
        assert edge.volume("inventory").push(as_name="ours") == "1"
        assert sorted(row["name"] for row in edge.ls(remote=True)) == ["inventory", "ours"]


def test_a_name_is_looked_up_at_the_remote_that_the_home_remembers(home: Path, store: str) -> None:
    make(home, "other", remote=store)
    with open_edge(home=home, remote=store) as edge:
        edge.volume("other").push()
    assert rows(home) == ["theirs"]
    with open_edge(home=home) as edge, pytest.raises(NotFound, match="knows none"):
        edge.volume("missing")


def test_a_new_volume_is_made_where_the_remembered_remote_is_silent(home: Path, tmp_path: Path, store: str) -> None:
    make(home, "other", remote=store)
    with open_edge(home=home, remote=store) as edge:
        edge.volume("other").push()
    (tmp_path / "store").rename(tmp_path / "away")
    make(home, "offline")
    assert rows(home) == []
    with open_edge(home=home) as edge, pytest.raises((Unavailable, WrongStore)):
        edge.volume("missing")
    (tmp_path / "away").rename(tmp_path / "store")
    assert rows(home) == ["theirs"]
    assert rows(home, "offline") == ["ours"]


def test_a_new_volume_is_refused_where_the_remote_that_was_named_is_silent(home: Path) -> None:
    with pytest.raises(Unavailable, match="can't reach"):
        budwood.connect("inventory", home=home, remote=NOBODY)
    with open_edge(home=home) as edge:
        assert edge.ls() == []


# Another remote than the volume's own


def by_connect(home: Path, remote: str) -> None:
    budwood.connect("inventory", home=home, remote=remote).close()


def by_uri(home: Path, remote: str) -> None:
    budwood.vfs.register(home=home, name="named")
    apsw.Connection(
        f"file:inventory?vfs=named&remote={remote}", flags=apsw.SQLITE_OPEN_URI | apsw.SQLITE_OPEN_READWRITE
    ).close()


def by_register(home: Path, remote: str) -> None:
    budwood.vfs.register(home=home, remote=remote, name="named")
    flags = apsw.SQLITE_OPEN_URI | apsw.SQLITE_OPEN_READWRITE
    apsw.Connection("file:inventory?vfs=named", flags=flags).close()


def by_edge(home: Path, remote: str) -> None:
    with open_edge(home=home, remote=remote) as edge:
        edge.volume("inventory")


WAYS = [by_connect, by_uri, by_register, by_edge]


@pytest.mark.parametrize("way", WAYS)
def test_another_store_is_refused_at_once(
    home: Path, tmp_path: Path, store: str, way: Callable[[Path, str], None]
) -> None:
    assert rows(home, remote=store) == ["theirs"]
    other = f"file://{tmp_path}/other"
    with pytest.raises(WrongStore, match="belongs to store") as refused:
        way(home, other)
    assert store in str(refused.value), "it names the one that the volume has"
    assert not (tmp_path / "other").exists()
    make(tmp_path / "second", "x", remote=other)
    (tmp_path / "other").mkdir()
    with open_edge(home=tmp_path / "second", remote=other) as edge:
        edge.volume("x").push()
    with pytest.raises(WrongStore, match="belongs to store"):
        way(home, other)
    assert rows(home) == ["theirs"]


@pytest.mark.parametrize("way", WAYS)
def test_the_same_store_at_another_address_is_none(
    home: Path, tmp_path: Path, store: str, way: Callable[[Path, str], None]
) -> None:
    assert rows(home, remote=store) == ["theirs"]
    (tmp_path / "store").rename(tmp_path / "moved")
    way(home, f"file://{tmp_path}/moved")


@pytest.mark.parametrize("way", WAYS)
def test_one_that_does_not_answer_is_asked_when_it_is_needed(
    home: Path, store: str, way: Callable[[Path, str], None]
) -> None:
    """Who is offline goes on."""
    assert rows(home, remote=store) == ["theirs"]
    way(home, NOBODY)
    with open_edge(home=home, remote=NOBODY) as edge, pytest.raises(Unavailable):
        edge.volume("inventory").pull()


def test_the_command_says_so_whatever_the_verb(
    home: Path, tmp_path: Path, store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Command(capsys, home, store).ok("clone", "inventory")
    other = Command(capsys, home, f"file://{tmp_path}/other")
    for arguments in (["status", "inventory"], ["sql", "inventory", READ], ["push", "inventory"], ["log", "inventory"]):
        assert "belongs to store" in other(*arguments).line()


def test_what_a_mount_of_the_home_syncs_with_was_not_named(home: Path, tmp_path: Path, store: str) -> None:
    """A home may have volumes of several stores, and a command takes the mount's remote for want of another."""
    assert rows(home, remote=store) == ["theirs"]
    with open_edge(home=home, fallback=f"file://{tmp_path}/other") as edge:
        edge.was_named = False
        assert edge.volume("inventory").status()["remote"] == store


def test_a_volume_that_was_never_pushed_goes_to_the_remote_that_was_named_last(
    home: Path, tmp_path: Path, store: str
) -> None:
    make(home, "new", remote=f"file://{tmp_path}/typo")
    assert rows(home, "new", remote=store) == ["ours"]
    with open_edge(home=home) as edge:
        assert edge.volume("new").push() == "1"
        assert edge.volume("new").status()["remote"] == store
    assert not os.path.exists(tmp_path / "typo")
