"""A home that was copied, or brought back from a backup, is a home like any other: nothing that was pushed is lost, and
nothing is pushed twice."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

import pytest

import budwood
from budwood.rows.replay import replay
from budwood.sync.edge import open as open_edge
from budwood.volume.errors import Diverged, Unavailable

from ..lost_answers import unheard


@pytest.fixture
def store(tmp_path: Path) -> str:
    return (tmp_path / "store").as_uri()


def sql(home: Path, store: str, statement: str) -> list[int]:
    with closing(budwood.connect("v", home=home, remote=store)) as db:
        return [row[0] for row in db.execute(statement)]


def push(home: Path, store: str) -> None:
    with open_edge(home=home, remote=store) as edge:
        edge.volume("v").push()


def pull(home: Path, store: str) -> None:
    with open_edge(home=home, remote=store) as edge:
        edge.volume("v").pull()


@pytest.fixture
def home(tmp_path: Path, store: str) -> Path:
    """With a commit that was pushed and one that was not."""
    home = tmp_path / "home"
    sql(home, store, "CREATE TABLE t(a INTEGER PRIMARY KEY)")
    push(home, store)
    sql(home, store, "INSERT INTO t VALUES (1)")
    return home


def test_of_two_copies_each_pushes_its_own_and_what_both_had_stands_once(
    tmp_path: Path, home: Path, store: str
) -> None:
    copied = Path(shutil.copytree(home, tmp_path / "copied"))
    for place, key in ((home, 2), (copied, 3)):
        sql(place, store, f"INSERT INTO t VALUES ({key})")
    push(home, store)
    with pytest.raises(Diverged):
        push(copied, store)
    with open_edge(home=copied, remote=store) as edge:
        replay(edge.volume("v"), "abort")
    push(copied, store)
    pull(home, store)
    assert sql(home, store, "SELECT a FROM t") == sql(copied, store, "SELECT a FROM t") == [1, 2, 3]


def test_a_push_that_nobody_heard_of_is_known_by_each_copy(tmp_path: Path, home: Path, store: str) -> None:
    with open_edge(home=home, remote=store) as edge:
        with unheard(edge.connection().remote) as landed, pytest.raises(Unavailable):
            edge.volume("v").push()
        assert landed
    copied = Path(shutil.copytree(home, tmp_path / "copied"))
    for place, key in ((home, 2), (copied, 3)):
        pull(place, store)
        sql(place, store, f"INSERT INTO t VALUES ({key})")
        push(place, store)
    assert sql(copied, store, "SELECT a FROM t") == [1, 2, 3]


def test_a_home_from_a_backup_goes_on_where_the_remote_is(tmp_path: Path, home: Path, store: str) -> None:
    backup = Path(shutil.copytree(home, tmp_path / "backup"))
    push(home, store)
    sql(home, store, "INSERT INTO t VALUES (2)")
    push(home, store)
    with pytest.raises(Diverged):
        push(backup, store)
    with open_edge(home=backup, remote=store) as edge:
        replay(edge.volume("v"), "theirs")
    assert sql(backup, store, "SELECT a FROM t") == [1, 2]
    with open_edge(home=backup, remote=store) as edge:
        assert edge.volume("v").status()["unpushed"] == 0
