"""Other ways from a SQLite file to Spark: JDBC, pandas, pyarrow; and Spark's own Parquet. All read one local file.

What isn't part of the project is taken if it is there: JDBC's jar where Debian puts it, pandas and ADBC where they are
installed, else from pip into a folder that goes with the run. What can't be had is said, and not compared.
"""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from importlib import import_module, invalidate_caches
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

JARS: Final = ("/usr/share/java/sqlite-jdbc.jar", "/usr/share/java/xerial-sqlite-jdbc.jar")
"""Of Debian's libxerial-sqlite-jdbc-java."""
_INSTALL_SECONDS: Final = 120.0
_PACKAGES: Final = {
    "pandas": ("pandas<3", "python-dateutil", "six", "pytz", "tzdata"),
    "adbc_driver_sqlite": ("adbc-driver-sqlite", "adbc-driver-manager"),
}
_FETCH: Final = 10_000


def jdbc_jar() -> str | None:
    named = os.environ.get("BUDWOOD_SQLITE_JDBC", "")
    return next((jar for jar in (named, *JARS) if jar and Path(jar).is_file()), None)


def adjoin(module: str, folder: Path) -> bool:
    """Whether a module can be imported, from a folder of this run if it isn't installed. It comes last on the path, so
    nothing that the project brings is replaced."""
    if find_spec(module) is not None:
        return True
    command = [sys.executable, "-P", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    try:
        subprocess.run(
            [*command, "--target", str(folder), *_PACKAGES[module]],
            check=True,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=_INSTALL_SECONDS,
        )
    except (OSError, subprocess.SubprocessError):
        return False
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    invalidate_caches()
    return find_spec(module) is not None


@dataclass(frozen=True)
class Rivals:
    """Ways to a DataFrame of table t of a file; each is planned anew for each query, as budwood's is."""

    session: SparkSession
    path: Path
    rows: int
    partitions: int

    def jdbc(self, *, first: int = 0, last: int | None = None) -> DataFrame:
        """In as many partitions, by ranges of rowids."""
        reader = self.session.read.format("jdbc").option("url", f"jdbc:sqlite:{self.path}")
        options = {
            "driver": "org.sqlite.JDBC",
            "dbtable": "t",
            "fetchsize": str(_FETCH),
            "partitionColumn": "id",
            "lowerBound": str(first),
            "upperBound": str(self.rows if last is None else last),
            "numPartitions": str(self.partitions),
        }
        return reader.options(**options).load()

    def pandas(self) -> DataFrame:
        pandas: Any = import_module("pandas")
        with closing(sqlite3.connect(self.path)) as db:
            return self.session.createDataFrame(pandas.read_sql_query("SELECT * FROM t", db))

    def pyarrow(self, columns: Sequence[str]) -> DataFrame:
        with closing(sqlite3.connect(self.path)) as db:
            rows = db.execute(f"SELECT {', '.join(columns)} FROM t").fetchall()
        made = {name: pa.array(values) for name, values in zip(columns, zip(*rows, strict=True), strict=True)}
        return self.session.createDataFrame(pa.table(made))

    def parquet(self, folder: Path) -> DataFrame:
        return self.session.read.parquet(str(folder))
