"""Program: what the soak's children do; run as `python -m tests.soak.program VERB …`.

A verb prints one line of JSON: what it found, or the error that it met as {"error": class, "said": words}. Writers
print the number of each commit that they were told of, and end when their standard input does. Any other exception
ends the process with a traceback, which the soak counts as a violation.
"""

from __future__ import annotations

import json
import random
import select
import sqlite3
import sys
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import apsw

import budwood
import budwood.lite
from budwood.remote.portal import open_remote
from budwood.volume.calls import LOOKUP, SNAPSHOT, LookupRequest, SnapshotRequest
from budwood.volume.errors import BudwoodError, Busy, NotFound, Unavailable

from . import ledger
from .disk_steps import DiskSteps, files_of, flush
from .mirror_steps import MirrorSteps, shown
from .tree_steps import TreeSteps, read_tree

PACE_SECONDS = 0.03
BUSY_SECONDS = 60.0


def say(what: object) -> None:
    print(what if isinstance(what, int) else json.dumps(what), flush=True)


def told(error: BaseException) -> dict[str, str]:
    """An error as a program sees it: Budwood's own class where there is one."""
    ours = [each for each in (error, error.__cause__, error.__context__) if isinstance(each, BudwoodError)]
    # What a statement raises is of a class made of ours and SQLite's.
    classes = [cls for each in ours[:1] for cls in type(each).__mro__ if cls.__module__ == BudwoodError.__module__]
    return {"error": (*classes, type(error))[0].__name__, "said": str(error)}


def stopped() -> bool:
    return bool(select.select([sys.stdin], [], [], PACE_SECONDS)[0])


def write(db: Any, writer: str, start: str) -> None:
    """Entries from `start` on; who has the lock, or a network that is away, is waited for."""
    number = int(start)
    while not stopped():
        try:
            ledger.transfer(db, writer, number)
        except (Busy, Unavailable, apsw.BusyError):
            with suppress(apsw.Error):
                db.execute("rollback")
            continue
        say(number)
        number += 1


def make(home: str, remote: str, *names: str) -> None:
    for name in names:
        with closing(budwood.connect(name, home=home, remote=remote, timeout=BUSY_SECONDS)) as db:
            ledger.make(db)
            db.execute("pragma budwood_push")
    say({"made": names})


def write_vfs(home: str, remote: str, name: str, writer: str, start: str) -> None:
    with closing(budwood.connect(name, home=home, remote=remote, mode="rw", timeout=BUSY_SECONDS)) as db:
        write(db, writer, start)


def write_file(path: str, mode: str, writer: str, start: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None, timeout=BUSY_SECONDS)) as db:
        db.execute(f"pragma journal_mode = {mode}").fetchall()
        ledger.make(db)
        write(db, writer, start)


def look_vfs(home: str, remote: str, name: str) -> None:
    with closing(budwood.connect(name, home=home, remote=remote, mode="rw", timeout=BUSY_SECONDS)) as db:
        say(asdict(ledger.audit(db)))


def look_file(path: str) -> None:
    if not Path(path).exists():
        say({"absent": True})
        return
    with closing(sqlite3.connect(f"file:{path}?mode=rw", uri=True, isolation_level=None, timeout=BUSY_SECONDS)) as db:
        say(asdict(ledger.audit(db)))


def sync(home: str, remote: str, *names: str) -> None:
    """Push and pull each; whether any has unpushed commits still."""
    with budwood.open(home=home, remote=remote) as edge:
        for name in names:
            volume = edge.volume(name)
            volume.push()
            volume.pull()
        say({"unpushed": sum(edge.volume(name).status()["unpushed"] for name in names)})


def pull(home: str, remote: str, name: str) -> None:
    with budwood.open(home=home, remote=remote) as edge:
        say({"lsn": edge.volume(name).pull()})


def reset(home: str, remote: str, name: str, keep_as: str) -> None:
    with budwood.open(home=home, remote=remote) as edge:
        say({"lsn": edge.volume(name).reset(keep_as=keep_as)})


def names(home: str) -> None:
    with budwood.open(home=home, remote="") as edge:
        say({"names": [row["name"] for row in edge.ls()]})


def heads(remote: str, *names: str) -> None:
    """Their newest LSNs."""
    found: dict[str, int] = {}
    with closing(open_remote(remote)) as reader:
        for name in names:
            entry = reader.ask(LOOKUP, LookupRequest(name)).entry
            if entry is None:
                raise NotFound(f"there is no volume {name}")
            found[name] = reader.ask(SNAPSHOT, SnapshotRequest(entry.target)).lsn
    say({"heads": found})


def digests(remote: str, *wanted: str) -> None:
    """Of LSNs, each given as NAME@LSN."""
    found: dict[str, str] = {}
    for at in wanted:
        name, _, lsn = at.rpartition("@")
        with closing(budwood.lite.connect(remote, name, int(lsn))) as db:
            found[at] = ledger.audit(db).digest
    say({"digests": found})


def change_trees(seed: str, what: str, *trees: str) -> None:
    steps = TreeSteps(seed, random.Random(seed), [Path(tree) for tree in trees], only_databases=what == "databases")
    while not (stopped() and steps.made):
        steps.step()
    say({"made": steps.made, "gone": steps.gone})


def look_at_tree(tree: str) -> None:
    say({"tree": read_tree(Path(tree))})


def mirror_steps(seed: str, steps: str, plain: str, mount: str) -> None:
    mirror, wrong = MirrorSteps(random.Random(seed), Path(plain), Path(mount)), ""
    try:
        mirror.run(int(steps))
    except AssertionError as error:
        wrong = str(error)
    say({"did": mirror.did, "wrong": wrong})


def differences(plain: str, *mounts: str) -> None:
    """By mount and name; what differs in a mount from the plain directory: both, shortened."""
    wanted = shown(Path(plain))
    found: dict[str, list[str]] = {}
    for mount in mounts:
        there = shown(Path(mount))
        for name in sorted(wanted.keys() | there.keys()):
            if wanted.get(name) != there.get(name):
                found[f"{Path(mount).name}: {name}"] = [str(each.get(name))[:100] for each in (wanted, there)]
    say({"differences": found})


def disk_steps(seed: str, steps: str, tree: str, disk: str, rows: str) -> None:
    on_disk, wrong = DiskSteps(random.Random(seed), Path(tree), Path(disk), json.loads(rows)), ""
    try:
        on_disk.run(int(steps))
    except AssertionError as error:
        wrong = str(error)
    say({"did": on_disk.did, "wrong": wrong, "rows": on_disk.rows})


def files_of_tree(tree: str) -> None:
    """Once what was written to them is committed."""
    flush(Path(tree))
    say({"files": files_of(Path(tree))})


VERBS: dict[str, Callable[..., None]] = {
    "make": make,
    "write-vfs": write_vfs,
    "write-file": write_file,
    "look-vfs": look_vfs,
    "look-file": look_file,
    "sync": sync,
    "pull": pull,
    "reset": reset,
    "names": names,
    "heads": heads,
    "digests": digests,
    "change-trees": change_trees,
    "read-tree": look_at_tree,
    "mirror-steps": mirror_steps,
    "differences": differences,
    "disk-steps": disk_steps,
    "files-of": files_of_tree,
}


def main(arguments: Iterable[str]) -> None:
    verb, *rest = arguments
    try:
        VERBS[verb](*rest)
    except (BudwoodError, apsw.Error, sqlite3.Error, OSError, ledger.Wrong) as error:
        say(told(error))


if __name__ == "__main__":
    main(sys.argv[1:])
