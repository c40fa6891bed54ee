"""Serverless: a request handler over a volume, with no disk and no state of its own.

    BUDWOOD_REMOTE=https://node .venv/bin/python examples/serverless.py

Without BUDWOOD_REMOTE it makes a store of its own, for the occasion.

A platform imports this module once and calls `handle` for each request. The connection is opened by the first and
kept for the next: a warm request reads from memory, and looks for newer commits once a second at most. A write is
one commit at the remote; where another instance committed first, it is simply done again.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import apsw

import budwood
import budwood.lite

VOLUME = "stock"
ATTEMPTS = 10

_db: apsw.Connection | None = None


def handle(event: dict[str, Any]) -> dict[str, Any]:
    """{"item": NAME} answers how many there are; {"item": NAME, "take": N} takes them."""
    db = _connection()
    if "take" not in event:
        rows = db.execute("SELECT count FROM stock WHERE item = ?", (event["item"],)).fetchall()
        return {"item": event["item"], "count": rows[0][0]} if rows else {"error": "no such item"}
    for _ in range(ATTEMPTS):
        try:
            rows = db.execute(
                "UPDATE stock SET count = count - :take WHERE item = :item AND count >= :take RETURNING count", event
            ).fetchall()
        except budwood.Conflict:
            continue  # Another instance was quicker; the next try sees what it did.
        return {"item": event["item"], "count": rows[0][0]} if rows else {"error": "not enough of them"}
    return {"error": "too busy, try again"}


def _connection() -> apsw.Connection:
    global _db
    if _db is None:
        _db = budwood.lite.connect(os.environ["BUDWOOD_REMOTE"], VOLUME, token=os.environ.get("BUDWOOD_TOKEN"))
    return _db


def stock_up(home: Path) -> None:
    """What someone did before at an edge: make the volume, and push it."""
    db = budwood.connect(VOLUME, home=home)
    db.execute("CREATE TABLE IF NOT EXISTS stock(item TEXT PRIMARY KEY, count INT) WITHOUT ROWID")
    db.execute("INSERT OR REPLACE INTO stock VALUES('apple', 12), ('pear', 3)")
    db.execute("PRAGMA budwood_push").fetchall()
    db.close()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        if "BUDWOOD_REMOTE" not in os.environ:
            os.environ["BUDWOOD_REMOTE"] = (Path(folder) / "store").as_uri()
            stock_up(Path(folder) / "home")
        for event in ({"item": "apple"}, {"item": "apple", "take": 5}, {"item": "pear", "take": 4}, {"item": "plum"}):
            print(event, "→", handle(event))
        _connection().close()


if __name__ == "__main__":
    main()
