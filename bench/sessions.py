"""Sessions: Spark as the bench uses it: quiet, in a folder of the run; and a table of a volume as a DataFrame in it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from budwood.spark_export import register
from budwood.spark_export.export.quiet_session import start_quietly

from .rivals import jdbc_jar

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SETTINGS: Final = {
    "spark.driver.memory": "2g",
    "spark.sql.shuffle.partitions": "4",
    # Both are for the rivals' and the sources' good alike: nothing is slowed down by a setting that nobody would keep.
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.python.filterPushdown.enabled": "true",
}


def session_of(master: str, folder: Path) -> SparkSession:
    """The caller ends it (session.end)."""
    # Workers in Python start where this does, where folders would shadow modules.
    os.environ["PYTHONSAFEPATH"] = "1"
    settings = {
        **_SETTINGS,
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={folder}",
    }
    jar = jdbc_jar()
    if jar is not None:
        settings["spark.driver.extraClassPath"] = jar
    session = start_quietly("budwood bench", master=master, settings=settings)
    register(session)
    return session


def load(session: SparkSession, remote: str, volume: str, **options: object) -> DataFrame:
    reader = session.read.format("budwood").option("remote", remote).option("volume", volume).option("table", "t")
    return reader.options(**{name: str(value) for name, value in options.items()}).load()


def drain(frame: DataFrame) -> None:
    """Every row, with all its columns, and nothing else."""
    frame.write.format("noop").mode("overwrite").save()
