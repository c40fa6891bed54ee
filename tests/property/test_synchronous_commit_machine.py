"""Two homes that commit synchronously, in any order and with answers lost, against a plain list of states.

What the remote has is the list; each home stands at one of its states, with commits of its own on top where one was
made without asking. A synchronous commit adds to the list exactly if its home stands at the end of it; a commit whose
answer got lost adds to it all the same, once, and its home stays where it was. Whatever happened, a reader in either
home sees its state, whole, and a new home sees the list's last.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import apsw
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import budwood
from budwood.volume import faults
from budwood.volume.errors import Diverged, Unavailable

State = dict[int, int]
HOMES = st.sampled_from(["ann", "bob"])
KEYS = st.integers(0, 3)
STEPS = ("commit", "commit", "commit of several statements", "lost", "alone", "pull", "pull", "drop", "open anew")


@dataclass
class Home:
    db: apsw.Connection
    base: int
    """Where in the list it stands."""
    own: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """What it committed on top without asking, oldest first: key and value."""


def after(state: State, *writes: tuple[int, int]) -> State:
    return {**state, **dict(writes)}


class Synchronous(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory()
        self.homes: dict[str, Home] = {}
        self.states: list[State] = [{}]
        self.value = 0

    def connect(self, home: str) -> apsw.Connection:
        folder = Path(self.folder.name)
        return budwood.connect("v", home=folder / home, remote=f"file://{folder}/store", synchronous_commit=True)

    @initialize()
    def begin(self) -> None:
        for name in ("ann", "bob"):
            db = self.connect(name)
            db.execute("create table if not exists t(k integer primary key, v, filler default (zeroblob(900)))")
            self.homes[name] = Home(db, 0)

    def seen(self, home: Home) -> State:
        return after(self.states[home.base], *home.own)

    def write(self, home: Home, key: int, *, alone: bool) -> Callable[[], None]:
        self.value += 1
        value = self.value

        def run() -> None:
            statement = "insert into t(k, v) values(?, ?) on conflict(k) do update set v = excluded.v"
            if alone:
                home.db.execute(statement, (key, value))
                return
            with home.db:
                home.db.execute("create table scratch as select * from t")
                home.db.execute(statement, (key, value))
                home.db.execute("drop table scratch")

        return run

    @rule(name=HOMES, key=KEYS, what=st.sampled_from(STEPS))
    def step(self, name: str, key: int, what: str) -> None:
        """One rule, since hypothesis leaves some rules out of each run, and what matters is their order."""
        match what:
            case "commit" | "commit of several statements":
                self.commit(name, key, what == "commit")
            case "lost":
                self.commit_with_the_answer_lost(name, key)
            case "alone":
                self.commit_without_asking(name, key)
            case "pull":
                self.pull(name)
            case "drop":
                self.drop_what_is_unpushed(name)
            case _:
                self.open_anew(name)

    def commit(self, name: str, key: int, alone: bool) -> None:
        home = self.homes[name]
        write = self.write(home, key, alone=alone)
        if home.base < len(self.states) - 1:
            with pytest.raises(apsw.BusyError) as refused:
                write()
            assert vars(refused.value)["extendedresult"] == apsw.SQLITE_BUSY_SNAPSHOT
            assert isinstance(refused.value, Diverged) is bool(home.own)
            return
        write()
        self.push_own(home)
        self.add(home, (key, self.value))

    def commit_with_the_answer_lost(self, name: str, key: int) -> None:
        home = self.homes[name]
        write = self.write(home, key, alone=True)

        def lost() -> None:
            raise Unavailable("lost", determinate=False)

        faults.arm("confirm: acknowledged, nothing committed here", lost)
        try:
            with pytest.raises(apsw.BusyError if home.base < len(self.states) - 1 else Unavailable):
                write()
        finally:
            faults.disarm()
        if home.base == len(self.states) - 1:
            self.push_own(home)
            self.states.append(after(self.states[-1], (key, self.value)))

    def commit_without_asking(self, name: str, key: int) -> None:
        home = self.homes[name]
        home.db.execute("pragma budwood_synchronous_commit = off")
        self.write(home, key, alone=True)()
        home.db.execute("pragma budwood_synchronous_commit = on")
        home.own.append((key, self.value))

    def pull(self, name: str) -> None:
        home = self.homes[name]
        if not home.own:
            home.db.execute("pragma budwood_pull")
            home.base = len(self.states) - 1
        elif home.base < len(self.states) - 1:
            with pytest.raises(Diverged):
                home.db.execute("pragma budwood_pull")

    def drop_what_is_unpushed(self, name: str) -> None:
        home = self.homes[name]
        if not home.own:
            return
        folder = Path(self.folder.name)
        with budwood.open(home=folder / name, remote=f"file://{folder}/store") as edge:
            edge.volume("v").reset(discard=True)
        home.own.clear()
        home.base = len(self.states) - 1

    def open_anew(self, name: str) -> None:
        home = self.homes[name]
        home.db.close()
        home.db = self.connect(name)

    @invariant()
    def each_home_sees_its_state(self) -> None:
        for home in self.homes.values():
            assert dict(home.db.execute("select k, v from t")) == self.seen(home)

    def push_own(self, home: Home) -> None:
        """As one commit, before the one that was asked for."""
        if home.own:
            self.add(home, *home.own)
            home.own.clear()

    def add(self, home: Home, *writes: tuple[int, int]) -> None:
        self.states.append(after(self.states[-1], *writes))
        home.base = len(self.states) - 1

    def teardown(self) -> None:
        for home in self.homes.values():
            assert home.db.execute("pragma integrity_check").fetchall() == [("ok",)]
            home.db.close()
        if self.homes:
            with closing(self.connect("new")) as db:
                assert dict(db.execute("select k, v from t")) == self.states[-1]
                (told,) = json.loads(str(db.execute("pragma budwood_status").get))
                assert told["remote_lsn"] == len(self.states), "each commit once"
        with suppress(OSError):
            self.folder.cleanup()


TestSynchronous = Synchronous.TestCase
TestSynchronous.settings = settings(max_examples=8, stateful_step_count=20, deadline=None)
