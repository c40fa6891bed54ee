"""A program that is interrupted at any instruction, catches that, and goes on with its connection.

As in a notebook, where Ctrl-C ends a cell and not the process; or in a worker whose tasks have a time limit. Whatever
was under way is done or not done; nothing else is to be told from a program that wasn't interrupted.

    TEST_INTERRUPTED=yes make test ARGS=tests/fault/test_interrupted.py

By itself only: exceptions are raised by Python's tracing, within what apsw calls, which took the interpreter down once
in dozens of runs. By signals (tens of thousands of them) it never went down.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest

import budwood
import budwood.lite

from ..interrupts import Interruption, can_interrupt, interrupted

pytestmark = [
    can_interrupt,
    pytest.mark.skipif("TEST_INTERRUPTED" not in os.environ, reason="TEST_INTERRUPTED isn't set"),
]

Rows = frozenset[int]


class Program:
    """Two connections to one volume, and another home."""

    def __init__(self, folder: Path, synchronous: str) -> None:
        (folder / "store").mkdir()
        self.remote = f"file://{folder}/store"
        self._folder = folder
        self._synchronous = synchronous
        self.last = 0
        self.db = self.opened()
        self.db.execute("CREATE TABLE t(n INTEGER PRIMARY KEY, pad); CREATE TABLE held(n INT)")
        self.db.execute("INSERT INTO held VALUES (0)")
        self.other = self.opened()
        self.add(self.db)

    def opened(self, home: str = "home") -> apsw.Connection:
        db = budwood.connect("rows", home=self._folder / home, remote=self.remote)
        db.execute(f"PRAGMA synchronous = {self._synchronous}")
        return db

    def add(self, db: apsw.Connection, *, end: str = "COMMIT") -> int:
        self.last += 1
        db.execute("BEGIN; INSERT INTO t VALUES (?, zeroblob(9000))", (self.last,))
        db.execute(f"UPDATE held SET n = n + 1; {end}")
        return self.last

    def goes_on(self, *may_be: Rows) -> None:
        """What it finds is one of these, whole, at both connections; and what it writes now is seen by both."""
        if self.db.in_transaction:
            self.db.execute("ROLLBACK")
        found = rows(self.db)
        assert found in may_be
        assert rows(self.other) == found
        added = self.add(self.db)
        assert rows(self.other) == rows(self.db) == found | {added}

    def close(self) -> None:
        self.db.close()
        self.other.close()


def rows(db: apsw.Connection) -> Rows:
    """Raises unless the file is whole, and both tables are of one snapshot."""
    assert db.pragma("integrity_check") == "ok"
    found = frozenset(n for (n,) in db.execute("SELECT n FROM t"))
    assert db.execute("SELECT n FROM held").get == len(found)
    return found


@pytest.fixture
def program(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Program]:
    program = Program(tmp_path, getattr(request, "param", "OFF"))
    yield program
    program.close()


@pytest.fixture(autouse=True)
def told_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """apsw prints what comes to a callback whose error SQLite has no use for."""
    print_it = sys.unraisablehook

    def told(unraisable: sys.UnraisableHookArgs) -> None:
        if not isinstance(unraisable.exc_value, Interruption):
            print_it(unraisable)

    monkeypatch.setattr(sys, "unraisablehook", told)


each_way = pytest.mark.parametrize("program", ["OFF", "FULL"], indirect=True)


def each_point(call: Callable[[], object], then: Callable[[], None], *, step: int = 1, least: int) -> None:
    """Interrupt the call at one point after another until it has no more of them, of which there are at `least` so
    many; after each goes what comes `then`."""
    at = 1
    while interrupted(call, at) is not None:
        then()
        at += step
    assert at > least
    then()


@each_way
def test_a_transaction(program: Program) -> None:
    before: Rows = rows(program.db)

    def then() -> None:
        nonlocal before
        program.goes_on(before, before | {program.last})
        before = rows(program.db)

    each_point(lambda: program.add(program.db), then, least=200)


def test_a_transaction_that_is_rolled_back(program: Program) -> None:
    before: Rows = rows(program.db)

    def then() -> None:
        nonlocal before
        program.goes_on(before)
        before = rows(program.db)

    each_point(lambda: program.add(program.db, end="ROLLBACK"), then, least=50)


@pytest.mark.parametrize("program", ["FULL"], indirect=True)
def test_what_was_found_after_an_interrupted_commit_is_found_by_whoever_opens_the_home_next(program: Program) -> None:
    def then() -> None:
        if program.db.in_transaction:
            program.db.execute("ROLLBACK")
        found = rows(program.db)
        program.close()
        program.db, program.other = program.opened(), program.opened()
        assert rows(program.db) == found

    each_point(lambda: program.add(program.db), then, step=2, least=200)


@each_way
@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
def test_a_transaction_that_is_larger_than_sqlites_cache(program: Program, end: str) -> None:
    program.db.execute("PRAGMA cache_size = 3")
    for _ in range(8):
        program.add(program.db)
    before: Rows = rows(program.db)

    def change_all() -> None:
        program.db.execute("BEGIN; UPDATE t SET pad = zeroblob(9001)")
        program.db.execute(f"UPDATE t SET pad = zeroblob(9000) WHERE n < 9; {end}")

    def then() -> None:
        nonlocal before
        program.goes_on(before)
        program.db.execute("BEGIN; DELETE FROM t WHERE n > 8; UPDATE held SET n = (SELECT count(*) FROM t); COMMIT")
        before = rows(program.db)

    each_point(change_all, then, step=3, least=300)


def test_a_read_of_what_another_connection_has_written(program: Program) -> None:
    program.add(program.other)

    def then() -> None:
        program.goes_on(rows(program.other))
        program.add(program.other)

    each_point(lambda: program.db.execute("SELECT sum(length(pad)) FROM t WHERE n < 2").get, then, least=50)


def test_a_connection_that_is_opened_and_closed(program: Program) -> None:
    before, files = rows(program.db), 0

    def then() -> None:
        nonlocal before, files
        program.goes_on(before)
        before = rows(program.db)
        files = files or len(os.listdir("/proc/self/fd"))

    each_point(lambda: program.opened().close(), then, step=3, least=200)
    assert len(os.listdir("/proc/self/fd")) < files + 10


def test_a_push(program: Program) -> None:
    program.db.execute("PRAGMA budwood_push")
    there = program.opened("there")
    before = rows(program.db) | {program.add(program.db)}

    def then() -> None:
        nonlocal before
        program.goes_on(before)
        before = rows(program.db)
        program.db.execute("PRAGMA budwood_push")
        there.execute("PRAGMA budwood_pull")
        assert rows(there) == before
        before |= {program.add(program.db)}

    each_point(lambda: program.db.execute("PRAGMA budwood_push").get, then, step=17, least=500)
    there.close()


def test_a_pull(program: Program) -> None:
    program.db.execute("PRAGMA budwood_push")
    there = program.opened("there")
    before: Rows = rows(program.db)
    added = {program.add(there)}
    there.execute("PRAGMA budwood_push")

    def then() -> None:
        nonlocal before, added
        program.db.execute("PRAGMA budwood_pull")
        program.goes_on(before | added)
        before = rows(program.db)
        program.db.execute("PRAGMA budwood_push")
        there.execute("PRAGMA budwood_pull")
        added = {program.add(there)}
        there.execute("PRAGMA budwood_push")

    each_point(lambda: program.db.execute("PRAGMA budwood_pull").get, then, step=7, least=200)
    there.close()


def test_a_read_without_local_state(program: Program) -> None:
    program.db.execute("PRAGMA budwood_push")
    before = rows(program.db)
    lite = budwood.lite.connect(program.remote, "rows", refresh=0)

    def then() -> None:
        nonlocal lite
        assert rows(lite) == before
        lite.close()
        lite = budwood.lite.connect(program.remote, "rows", refresh=0)

    each_point(lambda: lite.execute("SELECT sum(length(pad)) FROM t").get, then, least=50)
    lite.close()


def test_a_write_without_local_state(program: Program) -> None:
    program.db.execute("PRAGMA budwood_push")
    before: Rows = rows(program.db)
    lite = budwood.lite.connect(program.remote, "rows", refresh=0)

    def then() -> None:
        nonlocal before
        if lite.in_transaction:
            lite.execute("ROLLBACK")
        program.db.execute("PRAGMA budwood_pull")
        assert rows(program.db) in (before, before | {program.last})
        added = program.add(lite)
        before = rows(lite)
        program.db.execute("PRAGMA budwood_pull")
        assert added in before
        assert rows(program.db) == before

    each_point(lambda: program.add(lite), then, step=3, least=300)
    lite.close()
