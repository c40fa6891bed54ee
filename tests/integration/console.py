"""A store for the node's pages to show, with names and values that would be markup."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import budwood
from budwood.sync.edge import open as open_edge

MARKUP = "<b>&\"'"
VIEWS = (
    "/ui/",
    "/ui/?prefix=shop",
    "/ui/volume?name=shop/orders",
    "/ui/volume?name=shop/orders&upto=2",
    "/ui/pages?name=shop/orders",
    "/ui/pages?name=shop/orders&lsn=1",
    "/ui/tables?name=shop/orders",
    "/ui/tables?name=shop/orders&lsn=2&table=item",
    "/ui/tables?name=shop/orders&table=item&offset=50",
    "/ui/changes?name=shop/orders",
    "/ui/changes?name=shop/orders&after=0&lsn=4",
    "/ui/pages?name=shop/orders&by=heat",
    "/ui/store",
    "/ui/costs",
    "/ui/node",
    "/ui/login",
    "/ui/tables?name=nothing",
)


def fill(home: Path, url: str, token: str = "") -> None:
    with (
        closing(budwood.connect("shop/orders", home=home, remote=url, token=token)) as db,
        open_edge(home=home, remote=url, token=token) as edge,
    ):
        db.execute("CREATE TABLE item(id INTEGER PRIMARY KEY, name TEXT, note BLOB)")
        db.execute(f'CREATE TABLE "{MARKUP.replace(chr(34), chr(34) * 2)}"(x)')
        for number in range(1, 5):
            db.executemany("INSERT INTO item(name, note) VALUES (?, ?)", [(f"{MARKUP} {number}", bytes(200))] * 40)
            edge.volume("shop/orders").push()
    with closing(budwood.connect(f"shop/{MARKUP}", home=home, remote=url, token=token)) as db:
        db.execute("CREATE TABLE t(x)")
        db.execute("PRAGMA budwood_push")
