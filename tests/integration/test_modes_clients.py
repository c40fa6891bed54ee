"""Modes and bindings from the outside: a lite client, a home, the command line."""

from __future__ import annotations

import json
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

import budwood
import budwood.lite
from budwood.sync.edge import open as open_edge

from .cli import Command


@pytest.fixture
def store(tmp_path: Path) -> str:
    return (tmp_path / "store").as_uri()


@pytest.fixture
def home(tmp_path: Path, store: str) -> Path:
    """With volume v, which the remote has at LSN 1."""
    home = tmp_path / "home"
    with closing(budwood.connect("v", home=home, remote=store)) as db:
        db.execute("CREATE TABLE t(x)")
        db.pragma("budwood_push")
    return home


@pytest.fixture
def user(capsys: pytest.CaptureFixture[str], home: Path) -> Command:
    return Command(capsys, home)


@contextmanager
def lite(store: str, **options: Any) -> Generator[apsw.Connection]:
    with closing(budwood.lite.connect(store, "v", **options)) as db:
        yield db


def bring(db: apsw.Connection, text: str, bound: str) -> None:
    db.execute("BEGIN IMMEDIATE")
    try:
        db.execute("INSERT INTO t VALUES(?)", (text,))
        db.pragma("budwood_bind", bound)
        db.execute("COMMIT")
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")


def rows(db: apsw.Connection) -> list[str]:
    return [str(text) for (text,) in db.execute("SELECT x FROM t ORDER BY rowid")]


def bound(db: apsw.Connection) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(db.pragma("budwood_bind"))
    return found


def test_a_transaction_binds_what_it_brings(home: Path, store: str) -> None:
    """S3.34. The same offset again is a Conflict, since what is written then is nowhere; so is one that goes back."""
    with lite(store) as db, lite(store) as other:
        bring(db, "one", "10 orders of May")
        assert bound(db) == bound(other) == [{"source": "orders of May", "offset": 10, "lsn": 2}]
        with pytest.raises(
            budwood.Conflict, match="has 'orders of May' up to 10 since LSN 2, from another transaction"
        ):
            bring(other, "uno", "10 orders of May")
        assert rows(other) == rows(db) == ["one"]
        with pytest.raises(budwood.BudwoodError, match="doesn't go back to 9"):
            bring(other, "zero", "9 orders of May")
        bring(other, "two", "20 orders of May")
        assert rows(other) == ["one", "two"]
        db.pragma("budwood_pull")
        assert rows(db) == ["one", "two"]


def test_what_is_rolled_back_binds_nothing(home: Path, store: str) -> None:
    with lite(store) as db:
        db.execute("BEGIN IMMEDIATE")
        db.pragma("budwood_bind", "10 orders")
        db.execute("ROLLBACK")
        db.execute("INSERT INTO t VALUES('one')")
        assert bound(db) == []


@pytest.mark.parametrize(
    ("said", "words"),
    [("orders", "say OFFSET SOURCE"), ("10", "say OFFSET SOURCE"), ("-1 orders", "say OFFSET SOURCE"),
     (f"{1 << 64} orders", "from 0 to"), ("10 orders", "BEGIN IMMEDIATE first")],
)  # fmt: skip
def test_what_binds_nothing_is_refused_in_words(home: Path, store: str, said: str, words: str) -> None:
    with lite(store) as db, pytest.raises(budwood.BudwoodError, match=words):
        db.pragma("budwood_bind", said)
    with (
        closing(budwood.connect("v", home=home)) as db,
        pytest.raises(budwood.BudwoodError, match=r"use budwood\.lite\.connect for that"),
    ):
        db.pragma("budwood_bind", said)


def test_whoever_opens_an_exclusive_volume_last_writes_it(user: Command, home: Path, store: str) -> None:
    """Of lite clients and homes alike; what the other home had not pushed stays."""
    assert user.ok("mode", "v", "--exclusive") == "v is exclusive, and this home its writer (writer epoch 1)\n"
    with closing(budwood.connect("v", home=home)) as db:
        db.execute("INSERT INTO t VALUES('home')")
        db.pragma("budwood_push")
    with lite(store) as outsider:
        with pytest.raises(budwood.ReadOnly, match="writer epoch 1 stands, not 0"):
            outsider.execute("INSERT INTO t VALUES('outsider')")
        with lite(store, exclusive=True) as db:
            db.execute("INSERT INTO t VALUES('lite')")
            assert rows(db) == ["home", "lite"]
        outsider.pragma("budwood_pull")
        assert rows(outsider) == ["home", "lite"]
    user.ok("pull", "v")
    with closing(budwood.connect("v", home=home)) as db:
        db.execute("INSERT INTO t VALUES('late')")
        with pytest.raises(budwood.ReadOnly, match="writer epoch 2 stands, not 1: take the next one"):
            db.pragma("budwood_push")
    user.ok("mode", "v", "--exclusive")
    user.ok("push", "v")
    with lite(store, mode="ro") as db:
        assert rows(db) == ["home", "lite", "late"]


def test_homes_that_push_the_same_all_succeed(user: Command, home: Path, store: str, tmp_path: Path) -> None:
    """S3.12: one lands, the rest are told of it, and go on from there."""
    user.ok("mode", "v", "--replicated")
    homes = [home, tmp_path / "second", tmp_path / "third"]
    for each in homes[1:]:
        with open_edge(home=each, remote=store) as edge:
            edge.volume("v").pull()
    for text in ("one", "two"):
        for each in homes:
            with closing(budwood.connect("v", home=each)) as db:
                db.execute("INSERT INTO t VALUES(?)", (text,))
                db.pragma("budwood_push")
    for each in homes:
        with open_edge(home=each) as edge:
            volume = edge.volume("v")
            assert volume.pull() == "3"
            assert volume.status()["unpushed"] == 0
        with closing(budwood.connect("v", home=each)) as db:
            assert rows(db) == ["one", "two"]


def test_the_command_line_says_them_and_asks(user: Command, store: str) -> None:
    assert json.loads(user.ok("bindings", "v", "--json")) == []
    with lite(store) as db:
        bring(db, "one", "10 orders")
    assert user.ok("bindings", "v").splitlines()[1].split() == ["orders", "10", "2"]
    assert json.loads(user.ok("bindings", "v", "--json")) == [{"source": "orders", "offset": 10, "lsn": 2}]
    assert json.loads(user.ok("mode", "v", "--json")) == [{"name": "v", "mode": "optimistic", "writer_epoch": 0}]
    assert user.ok("mode", "v", "--replicated") == "v is replicated\n"
    assert user.ok("mode", "v", "--optimistic") == "v is optimistic\n"
