"""The quickstart: two edges, one store, a table that travels.

.venv/bin/python examples/quickstart.py

A store may be a directory, a bucket or a node; here it is a directory, and the two homes stand for two machines.
"""

from __future__ import annotations

import tempfile
from contextlib import closing
from pathlib import Path

import budwood


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        remote = (folder / "store").as_uri()
        here, there = folder / "here", folder / "there"

        # A volume is a SQLite database. It is made when it is first opened, and a commit needs no network.
        with closing(budwood.connect("inventory", home=here, remote=remote)) as db:
            db.execute("CREATE TABLE parts (name TEXT PRIMARY KEY, count INT)")
            db.execute("INSERT INTO parts VALUES ('bolt', 40), ('nut', 60)")

        # A push makes what was committed here the remote's next commit.
        with budwood.open(home=here, remote=remote) as edge:
            print("pushed, LSN", edge.volume("inventory").push())

        # Another machine opens it by name; it gets the pages that it reads, when it reads them.
        with closing(budwood.connect("inventory", home=there, remote=remote)) as db:
            print("there: ", db.execute("SELECT * FROM parts").fetchall())
            db.execute("UPDATE parts SET count = count - 5 WHERE name = 'bolt'")
        with budwood.open(home=there, remote=remote) as edge:
            print("pushed, LSN", edge.volume("inventory").push())

        # The first machine pulls, and sees the change; what it was is still there.
        with budwood.open(home=here, remote=remote) as edge:
            print("pulled, LSN", edge.volume("inventory").pull())
        with closing(budwood.connect("inventory", home=here)) as db:
            print("here:  ", db.execute("SELECT * FROM parts").fetchall())
        with closing(budwood.connect("inventory", home=here, lsn=1)) as db:
            print("LSN 1: ", db.execute("SELECT * FROM parts").fetchall())


if __name__ == "__main__":
    main()
