"""Spark check: whether Spark works on this machine, shown by working: a session starts, and a worker in Python answers.

It runs in a process of its own, with time to do it in. What Spark prints stays out of sight unless it fails, a Java
that hangs is ended, and the caller's own session is left alone.

    python -P -m budwood.spark_export.spark_check       prints one line of JSON, after whatever Java has to say
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from ..volume.errors import Unavailable, UsageError
from . import java
from .session import check_libraries, java_of, start

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSource

_LIMIT_SECONDS: Final = 180.0
_NAME: Final = "budwood_trial"
_ROWS: Final = 1000


@dataclass(frozen=True, slots=True)
class SparkCheck:
    java: str
    """As the session says: 17.0.15."""
    spark: str
    start_seconds: float
    job_seconds: float
    """The first job, with the start of a worker."""


def run(limit_seconds: float = _LIMIT_SECONDS) -> SparkCheck:
    """Raises UsageError if something is missing, Unavailable with Spark's own reason if it doesn't work."""
    check_libraries()
    java.find()
    with tempfile.TemporaryDirectory(prefix="budwood-spark-") as folder:
        # Java is a grandchild: a group of their own, so that all of them can be ended.
        child = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__, folder],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        try:
            out, said = child.communicate(timeout=limit_seconds)
        except subprocess.TimeoutExpired:
            raise Unavailable(f"Spark did not start and answer within {limit_seconds:g} s: try again") from None
        finally:
            _end(child)
    lines = out.strip().splitlines()
    if child.returncode != 0 or not lines:
        raise Unavailable(f"Spark doesn't work here: {reason(said)}")
    return SparkCheck(**json.loads(lines[-1]))


def _end(child: subprocess.Popen[str]) -> None:
    if child.poll() is None:
        os.killpg(child.pid, signal.SIGKILL)
        child.communicate()


def reason(said: str) -> str:
    """The line of a log that tells most: the last error; where Java itself didn't start, what it said of that."""
    if "JAVA_GATEWAY_EXITED" in said:
        said = said.partition("Traceback")[0] or said
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    errors = [line for line in lines if "Error" in line or "Exception" in line]
    return (errors or lines or ["it said nothing"])[-1]


def _source() -> type[DataSource]:
    import pyarrow as pa
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    class Reader(DataSourceReader):
        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
            yield pa.record_batch({"n": pa.array(range(_ROWS), pa.int64())})

    class Source(DataSource):
        @classmethod
        def name(cls) -> str:
            return _NAME

        def schema(self) -> str:
            return "n long"

        def reader(self, schema: object) -> DataSourceReader:
            return Reader()

    return Source


def _try(folder: str) -> SparkCheck:
    from pyspark import __version__ as spark_version

    begun = time.perf_counter()
    session = start(
        "budwood doctor", master="local[1]", settings={"spark.local.dir": folder, "spark.sql.warehouse.dir": folder}
    )
    started = time.perf_counter()
    try:
        # A worker in Python gives Arrow batches to Spark, as those do that read volumes.
        session.dataSource.register(_source())
        count = session.read.format(_NAME).load().count()
        assert count == _ROWS, f"of {_ROWS} rows {count} came back"
        done = time.perf_counter()
        return SparkCheck(java_of(session), spark_version, started - begun, done - started)
    finally:
        session.stop()


if __name__ == "__main__":
    try:
        print(json.dumps(asdict(_try(sys.argv[1]))))
    except UsageError as error:
        sys.exit(str(error))
