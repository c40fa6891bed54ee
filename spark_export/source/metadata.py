"""Metadata: `option("metadata", …)`, what is known of a volume beside its rows, as Spark reads it (inventory.py)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from .inventory import SCHEMAS, MetadataTask, plan_metadata, run_metadata
from .resolution import Settled, plainly

__all__ = ["MetadataReader", "metadata_schema"]


class _Part(InputPartition):
    """A task as Spark sends it to an executor; None where there is nothing to read: Spark takes an empty list for one
    partition that it makes itself."""

    def __init__(self, task: MetadataTask | None) -> None:
        super().__init__(task.number if task else 0)
        self.task = task


class MetadataReader(DataSourceReader):
    def __init__(self, settled: Settled) -> None:
        self._settled = settled

    def partitions(self) -> Sequence[InputPartition]:
        settled, request = self._settled, self._settled.request
        assert request.metadata is not None
        with plainly():
            tasks = plan_metadata(
                settled.place,
                settled.view,
                request.metadata,
                pages=request.pages,
                count=request.partitions,
                split_bytes=request.split_bytes,
                hold=settled.hold.renew(),
            )
            return [_Part(task) for task in tasks] or [_Part(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Part)
        if partition.task is not None:
            with plainly():
                yield from run_metadata(partition.task)


def metadata_schema(settled: Settled) -> pa.Schema:
    assert settled.request.metadata is not None
    return SCHEMAS[settled.request.metadata]
