"""Polars: data frames into a volume and out of it, by SQLAlchemy and by DB-API.

.venv/bin/python examples/frames_polars.py

A directory stands in for a node or a bucket. It needs `pip install 'budwood[sqlalchemy]' polars`.
"""

from __future__ import annotations

import tempfile
from contextlib import closing
from pathlib import Path

import polars
from sqlalchemy import URL, create_engine

from budwood import dbapi


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        remote = (folder / "store").as_uri()
        place = {"home": str(folder / "here"), "remote": remote}
        parts = polars.DataFrame({"name": ["bolt", "nut", "washer"], "count": [40, 60, 7]})

        # In, by DB-API: a row for each of the frame's.
        with closing(dbapi.connect("inventory", home=folder / "here", remote=remote)) as db, db:
            db.execute("CREATE TABLE parts (name TEXT PRIMARY KEY, count INT)")
            db.executemany("INSERT INTO parts VALUES (?, ?)", parts.iter_rows())

        # Out, by an engine or by DB-API.
        engine = create_engine(URL.create("budwood", database="inventory", query=place))
        frame = polars.read_database("SELECT * FROM parts WHERE count > 10 ORDER BY name", engine)
        print("by an engine:", frame.rows())
        engine.dispose()
        with closing(dbapi.connect("inventory", home=folder / "here", remote=remote)) as db:
            frame = polars.read_database("SELECT * FROM parts ORDER BY count", db)
            print("by DB-API:   ", frame.select(polars.col("count").sum()).item(), list(frame.schema.items()))
            print("pushed, LSN", db.push()["lsn"])


if __name__ == "__main__":
    main()
