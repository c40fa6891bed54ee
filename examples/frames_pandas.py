"""pandas: data frames into a volume and out of it, by SQLAlchemy and by DB-API.

.venv/bin/python examples/frames_pandas.py

A directory stands in for a node or a bucket. It needs `pip install 'budwood[sqlalchemy]' pandas`.
"""

from __future__ import annotations

import tempfile
from contextlib import closing
from pathlib import Path

import pandas
from sqlalchemy import URL, create_engine

from budwood import dbapi


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        remote = (folder / "store").as_uri()
        place = {"home": str(folder / "here"), "remote": remote}
        parts = pandas.DataFrame({"name": ["bolt", "nut", "washer"], "count": [40, 60, 7]})

        # By an engine: what pandas knows of SQLAlchemy goes for it.
        engine = create_engine(URL.create("budwood", database="inventory", query=place))
        parts.to_sql("parts", engine, index=False)
        print("rows:", len(pandas.read_sql_table("parts", engine)))
        engine.dispose()

        # By DB-API: it is a sqlite3.Connection.
        with closing(dbapi.connect("inventory", home=folder / "here", remote=remote)) as db:
            print("pushed, LSN", db.push()["lsn"])
            more = pandas.DataFrame({"name": ["screw"], "count": [9]})
            more.to_sql("parts", db, index=False, if_exists="append")
            print("pushed, LSN", db.push()["lsn"])
        for lsn in (1, 2):
            with closing(dbapi.connect("inventory", home=folder / "there", remote=remote, lsn=lsn)) as db:
                frame = pandas.read_sql("SELECT sum(count) AS total FROM parts", db)
                print(f"LSN {lsn}:", frame["total"].to_list())


if __name__ == "__main__":
    main()
