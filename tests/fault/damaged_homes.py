"""A home whose data.mdb is damaged in one place, used as a program uses it, in a process of its own.

    python damaged_homes.py FOLDER FIRST COUNT      prints a line for each seed: the seed, what was damaged, the outcome

`make` makes the home once: three volumes, names, rows that were pushed and rows that were not. Each case damages a copy
by its seed and looks at it in a forked child: every volume is read whole and compared, a row is committed at FULL, all
is pushed, and another edge reads what the remote has. Outcomes:

    sound       every row was there, at this edge and at the other one
    told        Corrupt, which names the home; nothing of what was said before it was wrong
    else        what was wrong: a signal, another error, a wrong row, a row that was acknowledged and is gone
"""

from __future__ import annotations

import os
import random
import shutil
import sys
import traceback
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import apsw

import budwood
from budwood.sync.edge import open as open_edge
from budwood.volume.errors import Corrupt

VOLUMES = ("alpha", "beta", "gamma")
PAGE = 4096


def make(folder: Path) -> str:
    home, remote = folder / "home", f"file://{folder}/store"
    for volume in VOLUMES:
        with closing(budwood.connect(volume, home=home, remote=remote)) as db:
            db.execute("create table t(a integer primary key, b); create table more(a, b)")
            for first in range(0, 300, 50):
                db.execute("begin")
                db.executemany("insert into t values(?, ?)", ((n, value(volume, n)) for n in range(first, first + 50)))
                db.execute("commit")
    with open_edge(home=home, remote=remote) as edge:
        edge.volume("alpha").push()
        edge.volume("beta").push()
        for number in range(40):
            edge.create(f"names/{number}")
    for volume in ("beta", "gamma"):
        for number in range(10):
            with closing(budwood.connect(volume, home=home, remote=remote)) as db:
                db.execute("insert into more values(?, ?)", (number, value(volume, number)))
    return "made"


def value(volume: str, number: int) -> str:
    return f"{volume}-{number}-" * (8 + number % 90)


def damage(path: Path, seed: int) -> str:
    """Where and how, in words."""
    randomness = random.Random(seed)
    size = path.stat().st_size
    pages = size // PAGE
    kind = randomness.choice(("zeros", "zeros", "bit", "bit", "noise", "cut", "swap", "old", "header"))
    page = randomness.randrange(pages)
    at = page * PAGE + 512 * randomness.randrange(8)
    with path.open("r+b") as file:
        if kind == "cut":
            size = randomness.randrange(1, pages) * PAGE - randomness.choice((0, 0, 100))
            file.truncate(size)
            return f"cut to {size}"
        if kind in {"swap", "old"}:
            other = randomness.randrange(2, pages)
            file.seek(other * PAGE)
            data = file.read(PAGE)
            if kind == "swap":
                file.seek(page * PAGE)
                mine = file.read(PAGE)
                file.seek(other * PAGE)
                file.write(mine)
            else:
                # As if the disk had put another page's bytes here, with this page's own number.
                data = page.to_bytes(8, "little") + data[8:]
            file.seek(page * PAGE)
            file.write(data)
            return f"{kind} {page} {other}"
        if kind == "header":
            at = page * PAGE + randomness.choice((0, 8, 10, 12, 14, 16, 18))
            data = randomness.randbytes(2)
        elif kind == "bit":
            at = page * PAGE + randomness.randrange(PAGE)
            file.seek(at)
            data = bytes([file.read(1)[0] ^ 1 << randomness.randrange(8)])
        else:
            data = bytes(512) if kind == "zeros" else randomness.randbytes(64)
        file.seek(at)
        file.write(data)
    return f"{kind} in page {page} at {at % PAGE}"


def use(folder: Path) -> str:
    """Raises what the edge raises; else what was wrong, or "sound"."""
    home, remote = folder / "home", f"file://{folder}/store"
    wanted: dict[str, int] = {}
    for volume in VOLUMES:
        more = 0 if volume == "alpha" else 10
        with closing(budwood.connect(volume, home=home, remote=remote, mode="rw")) as db:
            for _ in range(2):
                if wrong := rows(db, volume, more):
                    return f"here {wrong}"
                db.execute("pragma synchronous = full")
                db.execute("insert into more values(?, ?)", (more, value(volume, more)))
                more += 1
        wanted[volume] = more
    with open_edge(home=home, remote=remote) as edge:
        for volume in VOLUMES:
            edge.volume(volume).push()
        if len(edge.ls()) != len(VOLUMES) + 40:
            return "a name is gone"
    with open_edge(home=folder / "other", remote=remote) as edge:
        for volume in VOLUMES:
            edge.volume(volume)
    for volume, more in wanted.items():
        for where in ("home", "other"):
            with closing(budwood.connect(volume, home=folder / where, remote=remote, mode="ro")) as db:
                if wrong := rows(db, volume, more):
                    return f"{where} {wrong} after the push"
    return "sound"


def rows(db: apsw.Connection, volume: str, more: int) -> str:
    found = db.execute("select a, b from t order by a").fetchall()
    if found != [(n, value(volume, n)) for n in range(300)]:
        return f"{volume}.t is wrong"
    found = db.execute("select a, b from more order by rowid").fetchall()
    if found != [(n, value(volume, n)) for n in range(more)]:
        return f"{volume}.more is wrong: {len(found)} of {more} rows"
    return ""


def outcome(folder: Path) -> str:
    try:
        return use(folder)
    except Exception as error:
        named: BaseException | None = error
        while named is not None:
            if isinstance(named, Corrupt) and str(folder / "home") in str(named):
                return "told"
            named = named.__cause__ or named.__context__
        if os.environ.get("BUDWOOD_DEBUG"):
            traceback.print_exc()
        return f"{type(error).__name__}: {error}"


def in_child(action: Callable[[], str]) -> str:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        os.write(writing, action().encode()[:2000])
        # Nothing is closed: a program may end so too.
        os._exit(0)
    os.close(writing)
    with open(reading, "rb") as answer:
        text = answer.read().decode()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return text if status == 0 else f"ended with {status} {text}"


def main(folder: Path, first: int, count: int) -> None:
    if not (folder / "origin").exists():
        in_child(partial(make, folder / "origin"))
    for seed in range(first, first + count):
        case = folder / f"case{seed}"
        shutil.copytree(folder / "origin", case)
        words = damage(case / "home" / "store" / "data.mdb", seed)
        print(seed, words, in_child(partial(outcome, case)), sep="\t", flush=True)
        shutil.rmtree(case)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
