"""Program: commits to the home in FOLDER, and says in FOLDER/notes.NAME what it begins and is told of it.

    python -P -m budwood.tests.power.program FOLDER NAME SYNCHRONOUS COMMITS SEED

    {"begin": 3, "volume": "oak", "full": true}
    {"done": 3, "volume": "oak"}

Commit number n of a program inserts (NAME, n) into a volume of its own, or into one that all write to. Between small
commits there are large ones, ones that shrink the volume, and changes that go to the local store itself.
"""

from __future__ import annotations

import json
import os
import random
import sys
from pathlib import Path

import apsw

import budwood
from budwood.sync import commit_journal

SHARED = "shared"
PAYLOAD = 300
SMALL_JOURNAL = 192 * 1024
"""So that it is full every few dozen commits."""


def small_journal() -> None:
    commit_journal.FIRST_BYTES = SMALL_JOURNAL // 2
    commit_journal.MAX_BYTES = SMALL_JOURNAL
    commit_journal.MAX_COMMIT_BYTES = 48 * 1024


def opened(home: Path, volume: str) -> apsw.Connection:
    db = budwood.connect(volume, home=home, remote="")
    db.set_busy_timeout(60_000)
    db.execute("CREATE TABLE IF NOT EXISTS t(who TEXT, n INT, payload BLOB, PRIMARY KEY(who, n))")
    return db


def run(folder: Path, name: str, synchronous: str, commits: int, seed: int) -> None:
    small_journal()
    randomness = random.Random(f"{seed} {name}")
    home = folder / "home"
    notes = os.open(folder / f"notes.{name}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    offset = 0

    def note(**what: object) -> None:
        nonlocal offset
        offset += os.pwrite(notes, json.dumps(what).encode() + b"\n", offset)

    with budwood.open(home=home, remote="") as edge:
        dbs = {volume: opened(home, volume) for volume in (name, SHARED)}
        for db in dbs.values():
            db.pragma("synchronous", synchronous)
        for n in range(1, commits + 1):
            volume = randomness.choice((name, name, SHARED))
            db = dbs[volume]
            what = randomness.random()
            note(begin=n, volume=volume, full=synchronous == "full")
            while True:
                try:
                    with db:
                        payload = randomness.randbytes(randomness.randrange(PAYLOAD))
                        db.execute("INSERT INTO t VALUES(?, ?, ?)", (name, n, payload))
                        if what < 0.08:
                            # More than the journal takes.
                            db.execute("UPDATE t SET payload = zeroblob(?) WHERE n % 3 = 0", (PAYLOAD * 6,))
                        elif what < 0.3:
                            db.execute("UPDATE t SET payload = randomblob(40) WHERE n % 7 = 1")
                    break
                except apsw.BusyError:
                    continue
            note(done=n, volume=volume)
            if what > 0.96:
                db.execute("VACUUM")
            elif what > 0.92:
                edge.create(f"{name} {n}")
            elif what > 0.88 and volume == name:
                edge.volume(name).local.change_record(mode="both")
        for db in dbs.values():
            db.close()
    os.close(notes)


if __name__ == "__main__":
    run(Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
