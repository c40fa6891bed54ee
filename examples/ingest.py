"""Ingest: lines of a file become rows of a volume, each exactly once, however often this is killed and begun again.

    .venv/bin/python examples/ingest.py FILE REMOTE VOLUME

The volume exists (`budwood push`). The file only grows; what is behind its last line break is not a line yet. How far
it was read is bound by the commit that brings the rows: both stand, or neither. Two at once do no harm: what one has
brought is refused to the other, which reads on from there.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import apsw

import budwood
import budwood.lite

LINES = 100
"""In one commit."""


def ingest(path: Path, db: apsw.Connection) -> int:
    """The offset of what is not there yet."""
    source = path.name
    while True:
        done = offset_of(db, source)
        with path.open("rb") as file:
            file.seek(done)
            lines = [line for line in file.readlines(LINES * 80)[:LINES] if line.endswith(b"\n")]
        if not lines:
            return done
        try:
            bring(db, source, done, lines)
        except budwood.Conflict:
            continue  # Another was quicker: see how far it has come.


def offset_of(db: apsw.Connection, source: str) -> int:
    rows: list[dict[str, Any]] = json.loads(db.pragma("budwood_bind"))
    return next((row["offset"] for row in rows if row["source"] == source), 0)


def bring(db: apsw.Connection, source: str, offset: int, lines: list[bytes]) -> None:
    """In one transaction: the rows, and how far they come."""
    db.execute("BEGIN IMMEDIATE")
    try:
        if offset_of(db, source) != offset:
            raise budwood.Conflict(f"{source} was read on by another")
        db.execute("CREATE TABLE IF NOT EXISTS lines(text TEXT)")
        db.executemany("INSERT INTO lines VALUES(?)", ((line.decode().rstrip("\n"),) for line in lines))
        offset += sum(map(len, lines))
        db.pragma("budwood_bind", f"{offset} {source}")
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
    print(f"{source} up to {offset}", flush=True)


def main() -> None:
    path, remote, volume = sys.argv[1:]
    db = budwood.lite.connect(remote, volume)
    try:
        ingest(Path(path), db)
    finally:
        db.close()


if __name__ == "__main__":
    main()
