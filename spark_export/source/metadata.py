"""Metadata: `option("metadata", …)`, what is known of a volume beside its rows, as Spark reads it (inventory.py)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from .inventory import SCHEMAS, MetadataTask, plan_metadata, run_metadata
from .resolution import Resolved, plain_errors

__all__ = ["MetadataReader", "metadata_schema"]


class _Part(InputPartition):
    """A task as Spark sends it to an executor; None where there is nothing to read: Spark takes an empty list for one
    partition that it makes itself."""

    def __init__(self, task: MetadataTask | None) -> None:
        super().__init__(task.number if task else 0)
        self.task = task


class MetadataReader(DataSourceReader):
    def __init__(self, resolved: Resolved) -> None:
        self._resolved = resolved

    def partitions(self) -> Sequence[InputPartition]:
        resolved, request = self._resolved, self._resolved.request
        assert request.metadata is not None
        with plain_errors():
            tasks = plan_metadata(
                resolved.ref,
                resolved.view,
                request.metadata,
                pages=request.pages,
                count=request.partitions,
                split_bytes=request.split_bytes,
                lease=resolved.lease.renew(),
            )
            return [_Part(task) for task in tasks] or [_Part(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Part)
        if partition.task is not None:
            with plain_errors():
                yield from run_metadata(partition.task)


def metadata_schema(resolved: Resolved) -> pa.Schema:
    assert resolved.request.metadata is not None
    return SCHEMAS[resolved.request.metadata]
