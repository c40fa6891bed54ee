"""Connections to one volume against dicts: each sees exactly one view, and the head is what was committed.

Three connections read, write, savepoint, commit and roll back; commits fail; other histories take the volume's
place, as a pull or reset does, with whatever counters they carry. SQLite's caches live through all of it, small
enough to spill in the middle of transactions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import apsw
import msgspec
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from budwood.testing.databases import MemoryDatabases
from budwood.testing.memory_pages import MemorySnapshot, MemoryWriter
from budwood.volume.errors import BudwoodError, Conflict, Full, Unavailable
from budwood.volume.protocols import Durability

Rows = dict[int, str]

WHO = st.integers(0, 2)
KEY = st.integers(1, 30)
PAD = 300
"""So that a few rows make many pages."""


@dataclass
class Client:
    db: apsw.Connection
    open: bool = False
    """In a transaction."""
    view: Rows | None = None
    """What it sees, own writes included; None until its first statement."""
    head: int = 0
    """The LSN that its view was taken at."""
    writes: bool = False
    saved: list[Rows] = field(default_factory=list[Rows])


class Machine(RuleBasedStateMachine):
    @initialize(cache=st.sampled_from([3, 10, 2000]), page_size=st.sampled_from([512, 1024, 4096]))
    def start(self, cache: int, page_size: int) -> None:
        self.databases = MemoryDatabases()
        self.clients = [Client(self.databases.connect()) for _ in range(3)]
        first = self.clients[0].db
        first.execute(f"pragma page_size = {page_size}; create table t(k integer primary key, v text)")
        for client in self.clients:
            client.db.execute(f"pragma cache_size = {cache}")
        self.volume = self.databases.volumes["memory"]
        self.rows: Rows = {}
        self.past = [(self.volume.content(), dict(self.rows))]

    @property
    def writer(self) -> Client | None:
        return next((client for client in self.clients if client.writes), None)

    @rule(who=WHO)
    def begin(self, who: int) -> None:
        client = self.clients[who]
        if not client.open:
            client.db.execute("begin")
            client.open = True

    @rule(who=WHO)
    def read(self, who: int) -> None:
        self._check(self.clients[who])

    @rule(who=WHO, key=KEY, value=st.integers(0, 99), many=st.booleans())
    def write(self, who: int, key: int, value: int, many: bool) -> None:
        client = self.clients[who]
        changes = {at: f"{value}-{at}".ljust(PAD, ".") for at in range(key, key + (25 if many else 1))}
        rows = msgspec.json.encode(list(changes.items())).decode()

        def run() -> None:
            client.db.execute("insert or replace into t select value ->> 0, value ->> 1 from json_each(?)", (rows,))

        self._change(client, run, lambda rows: rows.update(changes))

    @rule(who=WHO, low=KEY)
    def delete(self, who: int, low: int) -> None:
        client = self.clients[who]

        def drop(rows: Rows) -> None:
            for key in [key for key in rows if key >= low]:
                del rows[key]

        self._change(client, lambda: client.db.execute("delete from t where k >= ?", (low,)), drop)

    def _change(self, client: Client, run: Callable[[], object], change: Callable[[Rows], object]) -> None:
        if self.writer not in (None, client) or (client.view is not None and client.head != self.volume.head):
            with pytest.raises(apsw.BusyError):
                run()
            self._look(client)
            return
        run()
        if client.open:
            self._look(client)
            assert client.view is not None
            change(client.view)
            client.writes = True
        else:
            change(self.rows)
            self._remember()

    def _look(self, client: Client) -> None:
        """A statement takes its transaction's view; one that finds the lock taken before it has read gives it back."""
        if client.open and client.view is None and self.writer in (None, client):
            client.view, client.head = dict(self.rows), self.volume.head

    @rule(who=WHO)
    def savepoint(self, who: int) -> None:
        client = self.clients[who]
        if client.writes:
            client.db.execute(f"savepoint s{len(client.saved)}")
            assert client.view is not None
            client.saved.append(dict(client.view))

    @rule(who=WHO)
    def roll_back_to_savepoint(self, who: int) -> None:
        client = self.clients[who]
        if client.saved:
            client.view = client.saved.pop()
            client.db.execute(f"rollback to s{len(client.saved)}; release s{len(client.saved)}")

    @rule(who=WHO, error=st.sampled_from([None, None, None, Full("full"), Conflict("late"), Unavailable("gone")]))
    def commit(self, who: int, error: BudwoodError | None) -> None:
        client = self.clients[who]
        if not client.open:
            return
        if error is None or not client.writes:
            client.db.execute("commit")
            if client.writes:
                assert client.view is not None
                self.rows = client.view
                self._remember()
        else:
            before = self.volume.head
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(MemoryWriter, "commit", _failing(error))
                try:
                    client.db.execute("commit")
                except type(error):
                    pass
                else:
                    raise AssertionError("a commit that failed was taken for one that did not")
            assert self.volume.head == before
        self._ended(client)

    @rule(who=WHO)
    def roll_back(self, who: int) -> None:
        client = self.clients[who]
        if client.open:
            client.db.execute("rollback")
            self._ended(client)

    @precondition(lambda self: self.writer is None)
    @rule(which=st.integers(0, 1000))
    def another_history(self, which: int) -> None:
        content, rows = self.past[which % len(self.past)]
        assert self.volume.page_size
        self.volume.replace(*content, page_size=self.volume.page_size)
        self.rows = dict(rows)

    @rule(who=WHO)
    def vacuum(self, who: int) -> None:
        client = self.clients[who]
        if not client.open and self.writer is None:
            client.db.execute("vacuum")
            self._remember()

    def _remember(self) -> None:
        self.past.append((self.volume.content(), dict(self.rows)))

    def _ended(self, client: Client) -> None:
        client.open = client.writes = False
        client.view = None
        client.saved.clear()

    def _check(self, client: Client) -> None:
        expected = self.rows if client.view is None else client.view
        found: Rows = dict(client.db.execute("select k, v from t").fetchall())  # type: ignore[arg-type]
        assert found == expected
        if client.open and client.view is None:
            client.view, client.head = dict(self.rows), self.volume.head

    @invariant()
    def only_a_writer_holds_the_lock(self) -> None:
        if hasattr(self, "volume"):
            assert self.volume.locked == (self.writer is not None)

    def teardown(self) -> None:
        if hasattr(self, "clients"):
            for client in self.clients:
                if client.open:
                    client.db.execute("rollback")
                    self._ended(client)
                self._check(client)
                assert client.db.execute("pragma integrity_check").fetchall() == [("ok",)]
                client.db.close()
            self.databases.close()


def _failing(error: BudwoodError) -> object:
    def commit(self: MemoryWriter, durability: Durability) -> MemorySnapshot:
        raise error

    return commit


TestMachine = Machine.TestCase
