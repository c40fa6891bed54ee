"""Spark: a volume's table as one commit left it, and what later ones changed.

.venv/bin/python examples/spark.py

A directory stands in for the bucket, and this machine for the cluster. Spark comes with `pip install 'budwood[spark]'`.
"""

from __future__ import annotations

import tempfile
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import budwood
from budwood.spark_export.export.quiet_session import start_quietly
from budwood.spark_export.session import end

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COMMITS = [
    "CREATE TABLE parts (name TEXT PRIMARY KEY, count INT); INSERT INTO parts VALUES ('bolt', 40), ('nut', 60)",
    "UPDATE parts SET count = 35 WHERE name = 'bolt'",
    "INSERT INTO parts VALUES ('washer', 7); DELETE FROM parts WHERE name = 'nut'",
]


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        remote = (folder / "store").as_uri()

        # An edge, which knows nothing of Spark, makes three commits: LSN 1, 2 and 3.
        for commit in COMMITS:
            with closing(budwood.connect("inventory", home=folder / "home", remote=remote)) as db:
                db.execute(commit)
                db.execute("PRAGMA budwood_push")

        try:
            # On a cluster there is a session already, and any will do.
            spark = start_quietly("budwood example", master="local[2]", settings={"spark.local.dir": name})
        except budwood.UsageError as error:
            print(f"skipped: {error}")
            return
        try:
            show(spark, remote)
        finally:
            end(spark)


def show(spark: SparkSession, remote: str) -> None:
    parts = {"remote": remote, "volume": "inventory", "table": "parts"}

    then = spark.read.format("budwood").options(**parts, versionAsOf=1).load()
    print("LSN 1: ", [(row["name"], row["count"]) for row in then.orderBy("name").collect()])

    now = spark.read.format("budwood").options(**parts).load()
    print("now:   ", [(row["name"], row["count"]) for row in now.orderBy("name").collect()])

    changes = spark.read.format("budwood").options(**parts, readChangeFeed=True, startingVersion=2).load()
    for row in changes.orderBy("_commit_version", "name", "_change_type").collect():
        print(f"LSN {row['_commit_version']}:  {row['_change_type']} {row['name']} {row['count']}")


if __name__ == "__main__":
    main()
