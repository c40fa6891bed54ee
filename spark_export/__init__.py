"""Volumes as tables in Spark: any snapshot, read in parallel by its pages, and what changed since another.

    spark.read.format("budwood").option("remote", …).option("volume", …).option("table", …).load()

A session finds the format by itself, since the top-level package pyspark_budwood is installed beside this one. One that
was started before that, or whose workers don't look (a notebook's), learns of it when this is imported, or by
`register`. Either makes Spark's workers this Python where nobody has chosen another (python.py). Nothing else is
imported here: the parts that decode pages need no Spark, and Spark takes a second to
import; so only where a program has loaded it already is there a session to register with. Tables go into a lake by
`export_tables`, which is loaded when it is asked for:

    budwood.spark_export.export_tables("shop", to="s3://bucket/lake", format="delta", incremental=True, remote=…)
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from .python import name_to_java, name_to_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from .export.run import export as export_tables

__all__ = ["export_tables", "register"]


def register(session: SparkSession) -> None:
    """Make the format `budwood` known to a session, and which Python reads it; harmless if it is."""
    from .source.datasource import BudwoodDataSource

    name_to_session(session)
    session.dataSource.register(BudwoodDataSource)


def _register_with_active_session() -> None:
    loaded = sys.modules.get("pyspark.sql")
    # While pyspark is being loaded there is no session yet.
    sessions = getattr(loaded, "SparkSession", None)
    session = sessions.getActiveSession() if sessions is not None else None
    if session is not None:
        register(session)


name_to_java()
_register_with_active_session()


if not TYPE_CHECKING:  # a checker that saw this would believe in any name

    def __getattr__(name: str) -> object:
        if name != "export_tables":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from .session import check_libraries

        check_libraries()
        from .export.run import export

        return export
