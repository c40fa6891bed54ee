"""Everything that may befall a volume, mixed: two homes, one store, and a dict of rows for every LSN there ever was.

Each step is what a user does with whatever is there: rows changed by SQL, pushes, pulls, forks of now and of then, the
ways out of a divergence, restores, renames, removals here and for everybody, imports of exports, retention and upkeep,
pushes whose answer is lost; plain or encrypted. Each of these has a machine or a test of its own; here they meet, and
one begins with what another left behind. After each, whoever looks here, at the other home, by the lite client or at an
old LSN finds the rows that the model has; and at the end everything, once more.

The steps are drawn by a seed, and a failure tells all of them: what meets here takes long
chains of steps, which hypothesis, that likes short ones, hardly comes to. MIXED_SEEDS=1000 tries as many.
"""

from __future__ import annotations

import os
import random
import sqlite3
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import anyio
import apsw
import pytest

import budwood
import budwood.lite
from budwood.cli.main import run
from budwood.cli.upkeep import opened
from budwood.remote.keyring import write_key
from budwood.rows.difference import diff
from budwood.rows.replay import replay
from budwood.server.upkeep.rounds import Rounds
from budwood.server.upkeep.upkeep import HASTY, Extent, Turn
from budwood.sync.edge import Edge
from budwood.sync.edge import open as open_edge
from budwood.sync.rebuild import rebuild
from budwood.sync.verify import verify
from budwood.sync.volume import Volume
from budwood.volume.calls import (
    ADVANCE,
    PIN,
    RETAIN,
    UNPIN,
    A,
    Call,
    PinRequest,
    Q,
    RetainRequest,
    SinceRequest,
    UnpinRequest,
)
from budwood.volume.errors import BadInput, BudwoodError, Diverged, Forgotten, NotFound, Unavailable
from budwood.volume.ids import PinId, VolumeId
from budwood.volume.retention_policy import RetentionPolicy

from ..lost_answers import unheard

SEEDS = int(os.environ.get("MIXED_SEEDS", "6"))
CHAIN = 150
KEYS = 30
SIZES = (0, 1, 100, 3000, 9000)
"""Of a row's text; 0: the row goes. The larger ones have pages of their own."""
MOST_HERE = 4
"""Volumes of one home."""

Rows = dict[int, str]


STEPS = (
    6 * ["write"] + 2 * ["write_there"] + 5 * ["push"] + 2 * ["pull"] + 2 * ["settle"] + 2 * ["clone"] + 3 * ["fork"]
    + 2 * ["rm"] + ["fork_past", "restore", "mv", "create", "export_and_import", "forget", "tend", "look_back"]
    + ["compare", "rebuild", "keep_little", "fetch", "compact", "verify", "connect", "connect", "connect"]
    + ["hold", "hold", "let_go"] + 2 * ["push_unheard"] + ["hear", "retain", "name_lsn", "look_back_by_name"]
    + ["write_confirmed"]
)  # fmt: skip


@dataclass
class There:
    """A volume as the store has it; the index is the LSN."""

    history: list[Rows]
    origin: There | None = None
    """What the store knows of, and this was forked from, at its LSN `start`."""
    start: int = 0
    known: bool = False
    removed: bool = False
    held: dict[int, PinId] = field(default_factory=dict[int, PinId])
    """LSNs that stay, whatever is forgotten, and what holds each."""
    named: dict[str, int] = field(default_factory=dict[str, int])
    """LSNs that stay, by their names."""

    def may_be_forgotten(self, lsn: int) -> bool:
        return lsn < len(self.history) - 1 and lsn not in self.held and lsn not in self.named.values()

    def read_by_name(self) -> dict[str, int]:
        """Its named LSNs, and those that it shares."""
        found, there, upto = dict[str, int](), self, len(self.history) - 1
        while True:
            found |= {name: lsn for name, lsn in there.named.items() if lsn <= upto}
            if there.origin is None:
                return found
            upto, there = min(upto, there.start), there.origin

    @property
    def is_gone(self) -> bool:
        """Whether there is nothing that its pages could come from."""
        return self.removed or (not self.known and self.origin is not None and self.origin.removed)

    def forked(self, lsn: int) -> There:
        if self.known:
            return There(self.history[: lsn + 1], self, lsn)
        return There(self.history[: lsn + 1], self.origin, min(lsn, self.start))


@dataclass
class Here:
    """A volume as one home has it."""

    there: There
    sync: int = 0
    unpushed: list[Rows] = field(default_factory=list[Rows])
    bound: str = ""
    unheard: int = 0
    """How many of the unpushed ones the remote has, which answered nobody; as `landed`."""
    landed: int = 0
    unheld: int = 0
    """An LSN that it came to when others had gone on: nobody held it for this home, which hadn't heard of it."""

    @property
    def rows(self) -> Rows:
        return self.unpushed[-1] if self.unpushed else self.there.history[self.sync]

    @property
    def head(self) -> int:
        return len(self.there.history) - 1

    @property
    def has_table(self) -> bool:
        return bool(self.sync or self.unpushed)

    @property
    def is_held(self) -> bool:
        """Whether what its unpushed commits were made on can be fetched, whoever forgets it: nobody holds anything for
        a fork that was never pushed."""
        there = self.there
        is_known = there.known or there.origin is None or self.sync == len(there.origin.history) - 1
        return not there.is_gone and is_known and (not self.sync or self.sync != self.unheld)

    @property
    def is_whole(self) -> bool:
        """Whether each page of it that isn't here can be fetched."""
        return self.is_held and self.sync == self.head


class Quiet:
    """Who waits for the upkeep, and hears of its failures alone."""

    def turned(self, log: str, turn: Turn) -> None:
        assert not turn.failures, f"{log}: {turn.failures}"

    def left(self, log: str, why: BudwoodError) -> None:
        """Another's, or another was quicker."""

    def failed(self, log: str, error: BudwoodError) -> None:
        raise AssertionError(f"{log}: {error}") from error

    def deleted(self, log: str, objects: int) -> None: ...


def rows_of(db: Any) -> Rows:
    if not db.execute("SELECT 1 FROM sqlite_schema WHERE name = 't'").fetchall():
        return {}
    return dict(db.execute("SELECT k, v FROM t").fetchall())


def merged(base: Rows, ours: Rows, theirs: Rows) -> Rows:
    """What was changed here since `base`, on `theirs`; where both have, ours."""
    changed = {key for key in {*base, *ours} if base.get(key) != ours.get(key)}
    kept = {key: value for key, value in theirs.items() if key not in changed}
    return kept | {key: ours[key] for key in changed if key in ours}


def refused(call: Callable[[], object], *errors: type[BudwoodError]) -> None:
    with pytest.raises(errors):
        call()


class Mixed:
    steps: ClassVar = STEPS

    def __init__(self, folder: Path, dice: random.Random) -> None:
        self.folder = folder
        self.dice = dice
        self.store = f"file://{folder}/store"
        (folder / "store").mkdir(exist_ok=True)
        self.url = self._remote()
        self.edges = [self._open(0), self._open(1)]
        self.here: list[dict[str, Here]] = [{}, {}]
        self.names: dict[str, There] = {}
        """The remote's."""
        self.said: list[str] = []
        """What was done."""
        self.connections: dict[tuple[int, str], apsw.Connection] = {}
        """That stay open, by home and name, while others change what they read."""
        self._count = 0

    def _remote(self) -> str:
        return self.store

    def _open(self, number: int) -> Edge:
        return open_edge(home=self.folder / f"home{number}", remote=self.url)

    def close(self) -> None:
        self.leave()

    def leave(self) -> None:
        self.disconnect()
        for edge in self.edges:
            edge.close()

    def run(self, steps: int) -> None:
        self.create()
        for _ in range(steps):
            getattr(self, self.dice.choice(self.steps))()
        for number, copies in enumerate(self.here):
            for name, copy in copies.items():
                self._look(number, name, copy)
        for name, there in self.names.items():
            for lsn in range(1, len(there.history)):
                self._look_back(name, there, lsn)
            for at, lsn in there.read_by_name().items():
                self._look_at(name, there, at, lsn)
        assert run(["scrub", "--store", self.store]) == 0

    def _pick(self, what: str, *, unheard: bool = False) -> tuple[int, str, Here, Volume]:
        """The volume that `what` is done to: its home, its name there, the model and itself."""
        return self._of(what, *self.dice.choice(self._standing(unheard=unheard)))

    def _pick_any(self, what: str) -> tuple[int, str, Here, Volume]:
        """For what the remote does, whatever its home has heard."""
        return self._of(what, *self.dice.choice(self._standing() + self._standing(unheard=True)))

    def _of(self, what: str, number: int, name: str) -> tuple[int, str, Here, Volume]:
        self.said.append(f"{what} {name}, home {number}")
        return number, name, self.here[number][name], self.edges[number].volume(name)

    def _standing(self, *, unheard: bool = False) -> list[tuple[int, str]]:
        """Those whose push is `unheard`, or isn't."""
        copies = [(number, name, copy) for number in (0, 1) for name, copy in sorted(self.here[number].items())]
        return [(number, name) for number, name, copy in copies if bool(copy.unheard) == unheard]

    @property
    def _is_last(self) -> bool:
        """Whether one more must not go."""
        return len(self._standing()) == 1

    def _pick_there(self, what: str) -> tuple[str, There]:
        name = self.dice.choice(sorted(self.names))
        self.said.append(f"{what} {name}, on the remote")
        return name, self.names[name]

    def _new_name(self) -> str:
        self._count += 1
        return f"v{self._count}"

    def _connected(self, number: int, name: str) -> Any:
        return self._connection(number, name)

    def _connection(self, number: int, name: str) -> apsw.Connection:
        return budwood.connect(name, home=self.folder / f"home{number}", remote=self.url, mode="rw")

    def _ask(self, call: Call[Q, A], request: Q) -> A:
        """The remote, for what no edge asks it."""
        return self.edges[0].connection().remote.ask(call, request)

    def _look(self, number: int, name: str, copy: Here) -> None:
        try:
            with closing(self._connected(number, name)) as db:
                assert rows_of(db) == copy.rows
        except NotFound:
            assert copy.there.is_gone, "pages that were never fetched"
        except Forgotten:
            assert not copy.is_whole, "pages that were never fetched"
        status = self.edges[number].volume(name).status()
        assert (status["unpushed"] or 0) == len(copy.unpushed), status
        if (number, name) in self.connections and copy.is_whole:
            assert rows_of(self.connections[number, name]) == copy.rows

    def connect(self) -> None:
        number, name, copy, _ = self._pick("connect to")
        if (number, name) not in self.connections and copy.is_whole:
            self.connections[number, name] = self._connection(number, name)
            self._look(number, name, copy)

    def _rename(self, number: int, name: str, new: str) -> None:
        self.here[number][new] = self.here[number].pop(name)
        if (number, name) in self.connections:
            self.connections[number, new] = self.connections.pop((number, name))

    def _disconnect_from(self, number: int, name: str) -> None:
        if (number, name) in self.connections:
            self.connections.pop((number, name)).close()

    def disconnect(self) -> None:
        for db in self.connections.values():
            db.close()
        self.connections.clear()

    def _look_back(self, name: str, there: There, lsn: int) -> None:
        try:
            with closing(budwood.lite.connect(self.url, name, lsn)) as db:
                assert rows_of(db) == there.history[lsn]
        except Forgotten:
            assert there.may_be_forgotten(lsn)

    # What happens to rows

    def _change(self, db: Any, rows: Rows) -> None:
        """Each row gets a text that no row ever had, or goes."""
        for key in self.dice.sample(range(1, KEYS + 1), self.dice.randint(1, 5)):
            size = self.dice.choice(SIZES)
            self._count += 1
            if size:
                rows[key] = f"{self._count} " + "x" * size
                db.execute("INSERT OR REPLACE INTO t VALUES (?, ?)", (key, rows[key]))
            else:
                rows.pop(key, None)
                db.execute("DELETE FROM t WHERE k = ?", (key,))

    def _write(self, number: int, name: str) -> None:
        copy = self.here[number][name]
        rows = dict(copy.rows)
        with closing(self._connected(number, name)) as db, db:
            db.execute("CREATE TABLE IF NOT EXISTS t(k INTEGER PRIMARY KEY, v TEXT)")
            self._change(db, rows)
        if rows != copy.rows or not copy.has_table:
            copy.unpushed.append(rows)
        self._look(number, name, copy)

    def create(self) -> None:
        number = self.dice.randrange(2)
        if len(self.here[number]) < MOST_HERE:
            name = self._new_name()
            self.said.append(f"create {name}, home {number}")
            self.edges[number].create(name)
            self.here[number][name] = Here(There([{}]))
            self._write(number, name)

    def write(self) -> None:
        number, name, copy, _ = self._pick("write")
        if not copy.there.is_gone:
            try:
                self._write(number, name)
            except Forgotten:
                assert not copy.is_whole, "pages that were never fetched"
                assert not copy.unpushed or not copy.is_held, "what it was made on is held"

    def write_there(self) -> None:
        """By the lite client, whose commit is the remote's."""
        if self.names:
            name, there = self._pick_there("write")
            rows = dict(there.history[-1])
            with closing(budwood.lite.connect(self.url, name)) as db, db:
                self._change(db, rows)
            if rows != there.history[-1]:
                there.history.append(rows)

    def write_confirmed(self) -> None:
        """A COMMIT that returns once the remote has it."""
        number, name, copy, _ = self._pick("write, confirmed,")
        if copy.unpushed or not copy.is_whole or not copy.bound or copy.there.removed:
            return
        rows = dict(copy.rows)
        with closing(self._confirming(number, name)) as db, db:
            self._change(db, rows)
        if rows != copy.rows:
            copy.there.history.append(rows)
            copy.sync = copy.head
        self._look(number, name, copy)

    def _confirming(self, number: int, name: str) -> apsw.Connection:
        home = self.folder / f"home{number}"
        return budwood.connect(name, home=home, remote=self.url, mode="rw", synchronous_commit=True)

    # What happens between homes

    def push(self) -> None:
        _, name, copy, volume = self._pick("push")
        self._push(name, copy, volume)

    def _push(self, name: str, copy: Here, volume: Volume) -> None:
        there = copy.there
        if there.is_gone and (copy.unpushed or not there.known):
            refused(volume.push, NotFound, Forgotten, Diverged)
            return
        if copy.unpushed and copy.sync != copy.head:
            refused(volume.push, Diverged)
            return
        try:
            volume.push()
        except Forgotten:
            assert not there.known, "a fork of what was forgotten before anybody heard of the fork"
            return
        if copy.unpushed:
            there.history.append(copy.unpushed[-1])
            copy.sync, copy.unpushed = copy.head, []
        if copy.sync and not copy.bound and not there.removed:
            there.known, copy.bound = True, name
            self.names[name] = there
        assert volume.status()["lsn"] == str(copy.sync)

    def pull(self) -> None:
        number, name, copy, volume = self._pick("pull")
        if copy.there.known:
            self._pull(number, name, copy, volume)

    def push_unheard(self) -> None:
        """Of one that nobody else has pushed to since; others may before its home hears what became of it."""
        ready = [each for each in self._standing() if self._may_land(self.here[each[0]][each[1]])]
        if not ready or self._is_last:
            return
        number, name, copy, volume = self._of("push, unheard,", *self.dice.choice(ready))
        if not self._lands_unheard(number, name):
            return
        copy.there.history.append(copy.unpushed[-1])
        copy.unheard, copy.landed = len(copy.unpushed), copy.head
        if self.dice.random() < 0.5:
            self.write_there()
            self._forget(volume.id, copy.head)
            for step in self.dice.choices(["write_there", "tend", "rebuild"], k=3):
                getattr(self, step)()
            self._hear(number, name, copy)

    def _may_land(self, copy: Here) -> bool:
        return bool(copy.unpushed and copy.bound and copy.sync == copy.head) and not copy.there.removed

    def _lands_unheard(self, number: int, name: str) -> bool:
        edge = self.edges[number]
        with unheard(edge.connection().remote) as landed:
            refused(edge.volume(name).push, Unavailable)
        return bool(landed)

    def hear(self) -> None:
        """By whatever asks the remote next, and maybe with more to send."""
        if not self._standing(unheard=True):
            return
        number, name, copy, _ = self._pick("hear of", unheard=True)
        self._hear(number, name, copy)

    def _hear(self, number: int, name: str, copy: Here) -> None:
        volume = self.edges[number].volume(name)
        way = self.dice.choice(["push", "pull"])
        if copy.there.removed:
            # Its outcome may be told still, if not all of it is gone.
            with suppress(NotFound, Forgotten, Diverged):
                getattr(volume, way)()
            if (volume.status()["unpushed"] or 0) < len(copy.unpushed):
                self._heard(copy)
            copy.unheard = 0
            return
        if self.dice.random() < 0.3:
            self._write(number, name)
        self._heard(copy)
        if way == "push":
            self._push(name, copy, volume)
        else:
            self._pull(number, name, copy, volume)

    def _heard(self, copy: Here) -> None:
        copy.sync, copy.unpushed = copy.landed, copy.unpushed[copy.unheard :]
        copy.unheld = copy.landed if copy.landed != copy.head else 0
        copy.unheard = 0

    def _pull(self, number: int, name: str, copy: Here, volume: Volume) -> None:
        if copy.there.removed:
            refused(volume.pull, NotFound)
        elif copy.unpushed and copy.sync != copy.head:
            refused(volume.pull, Diverged)
        else:
            volume.pull()
            copy.sync = copy.head
        self._look(number, name, copy)

    def settle(self) -> None:
        """What diverged, and what didn't."""
        way = self.dice.choice(["replay", "reset", "keep"])
        number, name, copy, volume = self._pick(way)
        there, base, ours = copy.there, copy.sync, copy.rows
        if not there.known or there.removed:
            return
        made = there.history[-1]
        if way == "replay":
            try:
                replay(volume, "ours")
            except Forgotten:
                assert copy.unpushed, "what it was made on was forgotten"
                return
            if base == copy.head:
                return
            made = merged(there.history[base], ours, made)
        elif way == "reset":
            volume.reset(discard=True)
        else:
            kept = self._new_name()
            volume.reset(keep_as=kept)
            if copy.unpushed:
                # It begins where the two parted.
                self.here[number][kept] = Here(there.forked(base), base, [ours], unheld=copy.unheld)
        copy.sync = copy.head
        copy.unpushed = [made] * (volume.status()["unpushed"] or 0)
        assert len(copy.unpushed) <= 1
        assert copy.unpushed or made == there.history[-1]
        self._look(number, name, copy)

    def clone(self) -> None:
        if not self.names:
            return
        number = self.dice.randrange(2)
        name, there = self._pick_there(f"clone to home {number}")
        if name not in self.here[number] and all(copy.there is not there for copy in self.here[number].values()):
            self.edges[number].clone(name)
            self.here[number][name] = Here(there, len(there.history) - 1, bound=name)
            self._look(number, name, self.here[number][name])

    # What happens to volumes

    def fork(self) -> None:
        number, name, copy, _ = self._pick("fork")
        new, edge, there = self._new_name(), self.edges[number], copy.there
        if there.is_gone or len(self.here[number]) >= MOST_HERE:
            return
        unpushed = [copy.rows] if copy.unpushed else []
        self.here[number][new] = Here(there.forked(copy.sync), copy.sync, unpushed, unheld=copy.unheld)
        edge.fork(name, new)
        self._look(number, new, self.here[number][new])

    def fork_past(self) -> None:
        """By the remote, where it has no name as yet."""
        number, name, copy, _ = self._pick("fork the past of")
        if not copy.there.known or copy.there.removed or len(self.here[number]) >= MOST_HERE:
            return
        new, lsn = self._new_name(), self.dice.randint(1, copy.head)
        try:
            self.edges[number].fork(name, new, lsn=lsn)
        except Forgotten:
            assert copy.there.may_be_forgotten(lsn)
            return
        made = self.here[number][new] = Here(copy.there.forked(lsn), lsn)
        made.there.known = True
        self._look(number, new, made)

    def restore(self) -> None:
        number, name, copy, volume = self._pick("restore")
        if not copy.there.known or copy.there.removed:
            return
        lsn = self.dice.randint(max(1, copy.head - 4), copy.head)
        if copy.unpushed:
            refused(lambda: volume.restore(lsn=lsn), Diverged)
            return
        try:
            volume.restore(lsn=lsn)
        except Forgotten:
            assert copy.there.may_be_forgotten(lsn)
            return
        finally:
            # It pulls first.
            copy.sync = int(volume.status()["lsn"].partition("+")[0])
        made = copy.there.history[lsn]
        copy.unpushed = [made] * (volume.status()["unpushed"] or 0)
        assert copy.unpushed or made == copy.rows
        self._look(number, name, copy)

    def mv(self) -> None:
        number, name, copy, _ = self._pick("mv")
        new = self._new_name()
        if copy.there.removed:
            return
        self.edges[number].mv(name, new)
        self._rename(number, name, new)
        if copy.bound == name:
            copy.bound = new
            if self.names.get(name) is copy.there:
                self.names[new] = self.names.pop(name)
        self._look(number, new, copy)

    def rm(self) -> None:
        everywhere = self.dice.random() < 0.3
        number, name, copy, _ = self._pick(f"rm{' everywhere' * everywhere}")
        edge = self.edges[number]
        if (copy.there.removed and everywhere) or self._is_last:
            return
        self._disconnect_from(number, name)
        if copy.unpushed:
            refused(lambda: edge.rm(name, remote=everywhere), Diverged)
        edge.rm(name, discard=True, remote=everywhere)
        del self.here[number][name]
        if everywhere and copy.there.known:
            copy.there.removed = True
            for gone in [each for each, there in self.names.items() if there is copy.there]:
                del self.names[gone]
                if gone == copy.bound:
                    refused(partial(edge.clone, gone), NotFound)

    def export_and_import(self) -> None:
        number, _, copy, volume = self._pick("export")
        path, new = self.folder / "exported.db", self._new_name()
        if not copy.is_whole:
            return
        volume.export(path, overwrite=True)
        with closing(sqlite3.connect(path)) as db:
            assert rows_of(db) == copy.rows
        if len(self.here[number]) < MOST_HERE:
            self.edges[number].import_(path, new)
            self.here[number][new] = Here(There([{}]), 0, [copy.rows])
            self._look(number, new, self.here[number][new])

    # What happens to the past

    def forget(self) -> None:
        _, _, copy, volume = self._pick_any("forget the past of")
        if copy.there.known and not copy.there.removed:
            since = max(1, copy.head - self.dice.randrange(4))
            self._forget(volume.id, since)

    def _forget(self, vid: VolumeId, since: int) -> None:
        self._ask(ADVANCE, SinceRequest(vid.raw, since=since))

    def hold(self) -> None:
        _, _, copy, volume = self._pick_any("hold an LSN of")
        there, lsn, pin = copy.there, self.dice.randint(1, max(copy.head, 1)), PinId.new()
        if not there.known or there.removed or lsn in there.held:
            return
        try:
            self._ask(PIN, PinRequest(volume.id.raw, lsn=lsn, pin=pin.raw, seconds=0, kind="named"))
        except Forgotten:
            assert there.may_be_forgotten(lsn)
            return
        there.held[lsn] = pin

    def name_lsn(self) -> None:
        _, _, copy, volume = self._pick_any("name an LSN of")
        there, lsn, name = copy.there, self.dice.randint(1, max(copy.head, 1)), f"@n{len(self.said)}"
        if there.known and not there.removed:
            try:
                self._ask(PIN, PinRequest(volume.id.raw, lsn=lsn, label=name[1:], seconds=0, kind="named"))
            except Forgotten:
                assert there.may_be_forgotten(lsn)
                return
            there.named[name] = lsn

    def look_back_by_name(self) -> None:
        if self.names:
            name, there = self._pick_there("look back, by a name, at")
            if named := there.read_by_name():
                at = self.dice.choice(sorted(named))
                self._look_at(name, there, at, named[at])

    def _look_at(self, name: str, there: There, at: str, lsn: int) -> None:
        with closing(budwood.lite.connect(self.url, name, at=at)) as db:
            assert rows_of(db) == there.history[lsn]

    def retain(self) -> None:
        """What is forgotten from here on, without being told to."""
        _, _, copy, volume = self._pick_any("retain little of")
        policy = self.dice.choice([None, RetentionPolicy(all_ms=1), RetentionPolicy(all_ms=1, hourly_ms=10**7)])
        if copy.there.known and not copy.there.removed:
            self._ask(RETAIN, RetainRequest(volume.id.raw, policy=policy))

    def let_go(self) -> None:
        _, _, copy, volume = self._pick_any("let go of an LSN of")
        there = copy.there
        if there.held and there.known and not there.removed:
            _, pin = there.held.popitem()
            self._ask(UNPIN, UnpinRequest(volume.id.raw, pin=pin.raw))

    def tend(self) -> None:
        """The edges' node ends, upkeep goes round, and they come back."""
        self.said.append("tend")
        if not self.names:
            return
        self.leave()
        anyio.run(self._tended, backend="asyncio")
        self.edges = [self._open(0), self._open(1)]

    def rebuild(self) -> None:
        """A home that nothing is wrong with, from what it holds."""
        self.disconnect()
        number = self.dice.randrange(2)
        self.said.append(f"rebuild home {number}")
        self.edges[number].close()
        rebuild(self.folder / f"home{number}", force=True)
        self.edges[number] = self._open(number)

    # What happens to a home's room

    def keep_little(self) -> None:
        """Of what the remote has."""
        number, kept_bytes = self.dice.randrange(2), self.dice.choice([1, 40_000, 0])
        self.said.append(f"home {number} keeps {kept_bytes} bytes")
        self.edges[number].environment.cache.set_limit(kept_bytes)

    def fetch(self) -> None:
        _, _, copy, volume = self._pick("fetch")
        if copy.is_whole:
            with suppress(BadInput):
                volume.fetch()

    def compact(self) -> None:
        number = self.dice.randrange(2)
        self.said.append(f"compact home {number}")
        self.edges[number].compact()

    def verify(self) -> None:
        for number in range(2):
            assert verify(self.folder / f"home{number}").findings == ()

    async def _tended(self) -> None:
        async with opened(self.store, HASTY) as node:
            await Rounds(node.logs, node.upkeep, Quiet(), Extent.ALL).once()

    def look_back(self) -> None:
        if self.names:
            name, there = self._pick_there("look back at")
            self._look_back(name, there, self.dice.randint(1, len(there.history) - 1))

    def compare(self) -> None:
        """Two LSNs."""
        number, name, copy, _ = self._pick("compare LSNs of")
        if not copy.there.known or copy.there.removed:
            return
        lsns = [self.dice.randint(max(1, copy.head - 3), copy.head) for _ in range(2)]
        before, after = (copy.there.history[lsn] for lsn in lsns)
        try:
            with diff(*(f"{name}@{lsn}" for lsn in lsns), home=self.folder / f"home{number}", remote=self.url) as found:
                changed = {change.key[0]: (change.old, change.new) for change in found.rows()}
        except Forgotten:
            assert any(map(copy.there.may_be_forgotten, lsns))
            return
        assert changed == {
            key: tuple((key, rows[key]) if key in rows else None for rows in (before, after))
            for key in {*before, *after}
            if before.get(key) != after.get(key)
        }


M = TypeVar("M", bound=Mixed)


@contextmanager
def mixing(kind: type[M], folder: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> Generator[M]:
    """Every second one is encrypted. A failure tells the steps that led to it."""
    if seed % 2:
        write_key(folder / "key")
        monkeypatch.setenv("BUDWOOD_KEY_FILE", str(folder / "key"))
    mixed = kind(folder, random.Random(seed))
    try:
        yield mixed
    except BaseException as error:
        error.add_note("\n".join(mixed.said))
        raise
    finally:
        mixed.close()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_whatever_befalls_volumes_everybody_reads_the_rows_of_their_lsn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    with mixing(Mixed, tmp_path, monkeypatch, seed) as mixed:
        mixed.run(CHAIN)
