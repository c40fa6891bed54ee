"""An edge of the bank that four share: commits at once, whatever the network does, and solves its divergences itself.

Run as `python -m tests.soak.edge_bank VERB …`. `work` makes transfers until its standard input ends, and says the
number of each that was committed here; now and then it syncs. It may be killed anywhere, and goes on where it was:
what it has to know lies in its home.

A way out of a divergence is a function of WAYS. After it, or a kill within it, `mend` must find every entry of this
edge in the bank again. `replay` applies the rows that were changed here, if nobody else changed the same ones. `fork`
keeps the unpushed entries as a volume, takes the remote's bank, and makes each kept entry once more: an entry follows
from its writer and number, so whoever makes it again makes the same.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from contextlib import closing, suppress
from typing import Any, Final

import apsw

import budwood
from budwood.rows.replay import replay
from budwood.sync.edge import Edge
from budwood.sync.edge import open as open_edge
from budwood.volume.errors import BudwoodError, Busy, Conflict, Diverged, Unavailable

from . import ledger
from .program import BUSY_SECONDS, say, stopped, told

BANK: Final = "bank"
_KEPT: Final = "kept-"
_ROUNDS: Final = 200
_AT_ONCE: Final = 100
"""LSNs that one process audits."""


def shift_clock(seconds: float) -> None:
    """This process lives so much earlier or later than the others."""
    now, now_ns = time.time, time.time_ns
    time.time = lambda: now() + seconds
    time.time_ns = lambda: now_ns() + int(seconds * 1e9)


def by_fork(edge: Edge, _writer: str) -> None:
    numbers = [int(row["name"].removeprefix(_KEPT)) for row in edge.ls() if row["name"].startswith(_KEPT)]
    edge.volume(BANK).reset(keep_as=f"{_KEPT}{max(numbers, default=0) + 1}")


def by_replay(edge: Edge, writer: str) -> None:
    """Where both sides changed the same account no policy keeps the sum: what is kept is made once more, as above."""
    try:
        replay(edge.volume(BANK), "abort")
    except (Diverged, Conflict):
        by_fork(edge, writer)


WAYS: Final[dict[str, Callable[[Edge, str], None]]] = {"fork": by_fork, "replay": by_replay}


def sync(edge: Edge, writer: str, way: str) -> bool:
    """Whether all that is committed here is the remote's, too. Raises Unavailable, Busy."""
    volume = edge.volume(BANK)
    try:
        volume.push()
        volume.pull()
    except (Diverged, Conflict):
        WAYS[way](edge, writer)
        mend(edge, writer)
        return False
    return not volume.status(count=False)["unpushed"]


def mend(edge: Edge, writer: str) -> None:
    """What this edge has kept apart is in its bank again."""
    for name in [row["name"] for row in edge.ls() if row["name"].startswith(_KEPT)]:
        with closing(_open(edge, name)) as db:
            last = _last(db, writer)
        with closing(_open(edge, BANK)) as db:
            for number in range(_last(db, writer) + 1, last + 1):
                ledger.transfer(db, writer, number)
        # Not before all of it is committed.
        edge.rm(name, discard=True)


def make(home: str, remote: str) -> None:
    with closing(budwood.connect(BANK, home=home, remote=remote, timeout=BUSY_SECONDS)) as db:
        ledger.make(db)
        db.execute("pragma budwood_push")
    say({"made": BANK})


def work(home: str, remote: str, writer: str, way: str, seed: str, shift: str) -> None:
    shift_clock(float(shift))
    dice = random.Random(seed)
    with open_edge(home=home, remote=remote) as edge:
        _patiently(lambda: mend(edge, writer))
        with closing(_open(edge, BANK)) as db:
            number = _last(db, writer)
            say(["found", number])
            while not stopped():
                if dice.random() < 0.15:
                    try:
                        sync(edge, writer, way)
                    except (Unavailable, Busy) as error:
                        say(told(error))
                    continue
                try:
                    ledger.transfer(db, writer, number + 1)
                except (Busy, Unavailable, apsw.BusyError):
                    with suppress(apsw.Error):
                        db.execute("rollback")
                    continue
                number += 1
                say(number)


def settle(home: str, remote: str, writer: str, way: str) -> None:
    """Without faults: all that this edge has committed is the remote's."""
    with open_edge(home=home, remote=remote) as edge:
        _patiently(lambda: mend(edge, writer))
        for _ in range(_ROUNDS):
            if sync(edge, writer, way):
                break
        with closing(_open(edge, BANK)) as db:
            found = ledger.audit(db)
        say({"counts": found.counts, "digest": found.digest, "status": edge.volume(BANK).status(count=False)})


def look(home: str, remote: str) -> None:
    """What the bank holds here, at this moment."""
    with open_edge(home=home, remote=remote) as edge, closing(_open(edge, BANK)) as db:
        found = ledger.audit(db)
        say({"counts": found.counts, "digest": found.digest})


def history(home: str, remote: str, first: str) -> None:
    """The total holds at every LSN from `first` on, so many of them; the last of these, and the newest there is."""
    with open_edge(home=home, remote=remote) as edge:
        volume = edge.volume(BANK)
        volume.pull()
        head = int(volume.status(count=False)["remote_lsn"])
    before: dict[str, int] = {}
    last = min(head, int(first) + _AT_ONCE)
    for lsn in range(int(first), last + 1):
        with closing(budwood.connect(BANK, home=home, remote=remote, lsn=lsn)) as db:
            counts = ledger.audit(db).counts
        if any(counts.get(writer, 0) < count for writer, count in before.items()):
            raise ledger.Wrong(f"at LSN {lsn} there are {counts}, and there were {before} before")
        before = counts
    say({"last": last, "head": head, "counts": before})


def _open(edge: Edge, name: str) -> Any:
    db = budwood.connect(name, home=edge.home, remote=edge.remote, mode="rw", timeout=BUSY_SECONDS)
    db.execute("pragma synchronous = full")
    return db


def _last(db: Any, writer: str) -> int:
    return int(db.execute("select coalesce(max(number), 0) from entry where writer = ?", (writer,)).fetchall()[0][0])


def _patiently(action: Callable[[], None]) -> None:
    """Pages may have to come from a remote that is away; nothing is done before they are here."""
    while True:
        try:
            return action()
        except (Unavailable, Busy, apsw.Error) as error:
            if stopped():
                raise
            say(told(error))


VERBS: Final[dict[str, Callable[..., None]]] = {
    "make": make,
    "work": work,
    "settle": settle,
    "look": look,
    "history": history,
}


if __name__ == "__main__":
    verb, *arguments = sys.argv[1:]
    try:
        VERBS[verb](*arguments)
    except (BudwoodError, apsw.Error, ledger.Wrong) as error:
        say(told(error))
