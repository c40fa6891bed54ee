"""The ground that Spark's tests stand on: a session starts, and a data source in Python answers it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource

ROWS = 100


def numbers() -> type[DataSource]:
    """Within a function, since its workers couldn't import this file."""
    import pyarrow as pa
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    class Range(InputPartition):
        def __init__(self, first: int) -> None:
            super().__init__(first)
            self.first = first

    class Reader(DataSourceReader):
        def partitions(self) -> Sequence[InputPartition]:
            return [Range(0), Range(ROWS)]

        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
            assert isinstance(partition, Range)
            found = list(range(partition.first, partition.first + ROWS))
            columns: list[pa.Array[Any]] = [pa.array(found, pa.int64()), pa.array([sys.executable] * ROWS, pa.string())]
            yield pa.record_batch(columns, names=["n", "python"])

    class Numbers(DataSource):
        @classmethod
        def name(cls) -> str:
            return "session_numbers"

        def schema(self) -> str:
            return "n long, python string"

        def reader(self, schema: object) -> DataSourceReader:
            return Reader()

    return Numbers


def test_a_session_reads_a_python_source_with_this_python(spark: SparkSession) -> None:
    spark.dataSource.register(numbers())
    rows = spark.read.format("session_numbers").load().collect()
    assert sorted(row["n"] for row in rows) == list(range(2 * ROWS))
    assert {row["python"] for row in rows} == {sys.executable}
