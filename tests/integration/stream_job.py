"""A streaming query in a session and a process of its own, for a test that kills it: stream_job.py FOLDER OPTIONS N.

Its sink keeps each batch in a file of its own, whole or not at all. Of batch N it says that it has written it, and
never comes back to Spark, which therefore never learns that the batch is done.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter


def into_files(folder: Path, then: Callable[[int], object] = lambda number: None) -> Callable[[DataFrame, int], None]:
    """A sink that may be given a batch twice. `then` is called when a batch is in its file."""

    def write(frame: DataFrame, number: int) -> None:
        rows: list[tuple[Any, ...]] = [tuple(row) for row in frame.collect()]
        written = folder / f"{number}.new"
        written.write_text(json.dumps([[str(value) for value in row] for row in sorted(rows)]))
        written.rename(folder / f"{number}.json")
        then(number)

    return write


def stream(
    spark: SparkSession, folder: Path, options: dict[str, str], sink: Callable[[DataFrame, int], None]
) -> DataStreamWriter:
    frame = spark.readStream.format("budwood").options(**options).load()
    return frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(folder / "checkpoint"))


def main(folder: Path, options: dict[str, str], last: int) -> None:
    from budwood.spark_export.session import start

    def stay(number: int) -> None:
        print(f"written {number}", flush=True)
        if number == last:
            # Its parent kills it, or has ended.
            sys.stdin.read()
            os._exit(1)

    spark = start("a stream that is killed", master="local[1]", settings={"spark.local.dir": str(folder / "local")})
    spark.sparkContext.setLogLevel("OFF")
    stream(spark, folder, options, into_files(folder / "out", stay)).start().awaitTermination()


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]), int(sys.argv[3]))
