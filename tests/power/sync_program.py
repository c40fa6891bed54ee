"""Sync program: a home in FOLDER works with a store, as another home does, and says in FOLDER/notes.sync what it does.

    python -P -m budwood.tests.power.sync_program FOLDER PLACE STEPS SEED

    {"begin": 3, "volume": "oak", "full": true}      commit 3 of this home to that volume, which inserts (here, 3)
    {"done": 3, "volume": "oak"}
    {"pushed": "oak", "upto": 3}                     the remote has them all
    {"others": 2, "volume": "shared"}                the other home has pushed (there, 2)
    {"kept": "kept 17"}                              what was unpushed goes there, and the remote's head is taken
    {"object": "..."}                                the store has it

The store is PLACE/store, the other home PLACE/other. Neither loses its power: at a cut the store holds what was placed
until then. Nothing is removed from it.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import sys
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final

import apsw

import budwood
from budwood.rows.replay import replay
from budwood.server.store.directory_tree import Tree
from budwood.sync.edge import Edge
from budwood.volume.errors import Diverged

from .program import small_journal

OWN: Final = {"oak": "full", "elm": "normal"}
"""The volumes that this home alone writes, and their `synchronous`."""
SHARED: Final = "shared"
"""Both write it, at FULL."""
SURE: Final = "sure"
"""This home writes it, and COMMIT waits for the remote."""
THEIRS: Final = "theirs"
"""The other home alone writes it."""
HERE, THERE = "here", "there"


class SyncProgram:
    def __init__(self, folder: Path, place: Path, seed: int) -> None:
        self._dice = random.Random(seed)
        self._remote = f"file://{place}/store"
        self._homes = {HERE: folder / "home", THERE: place / "other"}
        self._count: dict[tuple[str, str], int] = {}
        self._forks: list[str] = []
        self._numbers = itertools.count(1)
        self._notes = os.open(folder / "notes.sync", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        self._noted = 0

    def run(self, steps: int) -> None:
        with self._opened(HERE) as here, self._opened(THERE) as there:
            self._follow_store()
            for name in (SHARED, THEIRS):
                self._insert_there(there, name)
            here.clone(SHARED)
            for name in (*OWN, SURE):
                self._insert_here(name)
            kinds = [lambda: self._insert_here(self._dice.choice(list(OWN)))] * 6
            kinds += [lambda: self._insert_here(SHARED)] * 3 + [lambda: self._insert_here(SURE)] * 2
            kinds += [lambda: self._insert_there(there, self._dice.choice((SHARED, THEIRS)))] * 4
            kinds += [lambda: self._push(here)] * 5 + [lambda: self._pull(here)] * 2 + [lambda: self._fork(here)]
            kinds += [lambda: self._take_theirs(here), here.compact, self._vacuum]
            for _ in range(steps):
                self._dice.choice(kinds)()
        os.close(self._notes)

    def _opened(self, who: str) -> Edge:
        return budwood.open(home=self._homes[who], remote=self._remote)

    def _note(self, **what: object) -> None:
        self._noted += os.pwrite(self._notes, json.dumps(what).encode() + b"\n", self._noted)

    def _follow_store(self) -> None:
        place = Tree.place

        def placed(tree: Tree, key: str, data: Any) -> None:
            place(tree, key, data)
            self._note(object=key)

        def stays(tree: Tree, key: str) -> None:
            """What a probe removes may as well."""

        for name, instead in (("place", placed), ("remove", stays)):
            setattr(Tree, name, instead)

    # Steps

    def _insert(self, who: str, volume: str, synchronous: str) -> int:
        self._count[who, volume] = n = self._count.get((who, volume), 0) + 1
        if who == HERE:
            self._note(begin=n, volume=volume, full=synchronous == "full")
        with closing(self._database(who, volume)) as db:
            db.pragma("synchronous", synchronous)
            with db:
                db.execute("CREATE TABLE IF NOT EXISTS t(who TEXT, n INT, payload BLOB, PRIMARY KEY(who, n))")
                db.execute("INSERT INTO t VALUES(?, ?, ?)", (who, n, self._dice.randbytes(self._size())))
                if volume != SHARED and self._dice.random() < 0.3:
                    db.execute("UPDATE t SET payload = randomblob(?) WHERE n % 5 = 1", (self._size(),))
        if who == HERE:
            self._note(done=n, volume=volume)
        return n

    def _insert_here(self, volume: str) -> None:
        self._insert(HERE, volume, OWN.get(volume, "normal" if volume == SURE else "full"))

    def _insert_there(self, there: Edge, volume: str) -> None:
        if (THERE, volume) in self._count:
            there.volume(volume).pull()
        n = self._insert(THERE, volume, "full")
        there.volume(volume).push()
        self._note(others=n, volume=volume)

    def _push(self, here: Edge) -> None:
        name = self._dice.choice((*OWN, SHARED))
        upto = self._count.get((HERE, name), 0)
        push(here, name)
        self._note(pushed=name, upto=upto)

    def _pull(self, here: Edge) -> None:
        name = self._dice.choice((SHARED, THEIRS))
        with suppress(Diverged):
            here.volume(name).pull()
        with closing(self._database(HERE, name)) as db:
            least = self._dice.randrange(self._count[THERE, name])
            db.execute("SELECT sum(length(payload)) FROM t WHERE n > ?", (least,)).fetchall()

    def _take_theirs(self, here: Edge) -> None:
        if here.volume(SHARED).status(count=False)["unpushed"]:
            new = f"kept {next(self._numbers)}"
            # Noted before: where the reset was cut, the volume is here or its commits are where they were.
            self._note(kept=new)
            here.volume(SHARED).reset(keep_as=new)

    def _fork(self, here: Edge) -> None:
        if self._forks and self._dice.random() < 0.5:
            here.rm(self._forks.pop(), discard=True)
            return
        new = f"fork {next(self._numbers)}"
        here.fork(self._dice.choice(list(OWN)), new)
        self._forks.append(new)
        if self._dice.random() < 0.5:
            here.volume(new).push()

    def _vacuum(self) -> None:
        with closing(self._database(HERE, self._dice.choice(list(OWN)))) as db:
            db.execute("VACUUM")

    def _database(self, who: str, volume: str) -> apsw.Connection:
        db = budwood.connect(
            volume, home=self._homes[who], remote=self._remote, synchronous_commit=(who, volume) == (HERE, SURE)
        )
        db.set_busy_timeout(60_000)
        return db

    def _size(self) -> int:
        return self._dice.choice((5, 300, 300, 5000, 60_000))


def push(edge: Edge, name: str) -> None:
    """What is unpushed is on the remote, on top of whatever is there."""
    try:
        edge.volume(name).push()
    except Diverged:
        replay(edge.volume(name))
        edge.volume(name).push()


if __name__ == "__main__":
    small_journal()
    SyncProgram(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[4])).run(int(sys.argv[3]))
