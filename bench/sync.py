"""What a long history of pulls costs a reader, and how much room the local store takes."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import apsw

import budwood

from .harness import Figure, compare, report, scratch

ROWS = 20_000


def pulled(folder: Path, remote: str, home: str, commits: int) -> apsw.Connection:
    """An edge that pulled that many commits, one by one, of an edge that made each of one row."""
    name = f"after{commits}"
    source = budwood.open(home=folder / "source", remote=remote)
    db = budwood.connect(name, home=folder / "source", remote=remote)
    with db:
        db.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT)")
        db.executemany("INSERT INTO t VALUES(?, ?)", ((i, "x" * 100) for i in range(ROWS)))
    from_ = source.volume(name)
    from_.push()
    reader = budwood.open(home=folder / home, remote=remote)
    to = reader.clone(name)
    to.fetch()
    keys = random.Random(5)
    for number in range(commits):
        db.execute("UPDATE t SET v = ? WHERE id = ?", (f"{number}" * 20, keys.randrange(ROWS)))
        from_.push()
        to.pull()
    to.fetch()
    db.close()
    source.close()
    reader.close()
    return budwood.connect(name, home=folder / home)


def point_reads(db: apsw.Connection) -> Callable[[], None]:
    keys = random.Random(9).choices(range(ROWS), k=20_000)
    # A cache of one page, so that every read goes to the local store.
    db.pragma("cache_size", 1)

    def run() -> None:
        for key in keys:
            assert db.execute("SELECT v FROM t WHERE id = ?", (key,)).fetchall()

    return run


def room(folder: Path) -> list[Figure]:
    """Bytes on disk against the pages held: after an import, and after an UPDATE of every row."""
    home = folder / "room"
    db = budwood.connect("room", home=home)
    with db:
        db.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, n INT, v TEXT)")
        db.executemany("INSERT INTO t VALUES(?, 0, ?)", ((i, "x" * 100) for i in range(300_000)))
    edge = budwood.open(home=home)

    def ratio() -> float:
        used = sum(path.stat().st_blocks * 512 for path in (home / "store").iterdir())
        held: int = edge.volume("room").status()["held_bytes"]
        return used / held

    fresh = ratio()
    for _ in range(3):
        db.execute("UPDATE t SET n = n + 1")
    keys = random.Random(2)
    for _ in range(500):
        db.execute("UPDATE t SET n = n + 1 WHERE id = ?", (keys.randrange(300_000),))
    worn = ratio()
    db.close()
    edge.close()
    return [
        Figure("local store against the pages it holds, after a bulk insert", fresh, "×", 1.3),
        Figure(
            "the same after three UPDATEs of all rows and 500 of one",
            worn,
            "×",
            1.3,
            note="both versions stand until the commit, and LMDB reuses room but gives none back",
        ),
    ]


def main() -> None:
    with scratch() as folder:
        remote = (folder / "store").as_uri()
        few, many = pulled(folder, remote, "few", 10), pulled(folder, remote, "many", 1000)
        figures = [
            compare(
                "warm read after 1,000 pulled commits against 10",
                point_reads(many),
                point_reads(few),
                1.1,
                note="20,000",
            )
        ]
        few.close()
        many.close()
        figures += room(folder)
    report("sync: a long history, and room", figures)


if __name__ == "__main__":
    main()
