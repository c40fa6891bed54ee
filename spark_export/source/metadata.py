"""Metadata: `option("metadata", …)`, what is known of a volume beside its rows, as Spark reads it (inventory.py)."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from .inventory import SCHEMAS, MetadataTask, plan_metadata, run_metadata
from .partitions import TaskReader
from .resolution import Resolved


class MetadataReader(TaskReader[MetadataTask]):
    def __init__(self, resolved: Resolved) -> None:
        self._resolved = resolved

    def plan(self) -> list[MetadataTask]:
        resolved, request = self._resolved, self._resolved.request
        assert request.metadata is not None
        return plan_metadata(
            resolved.ref,
            resolved.view,
            request.metadata,
            pages=request.pages,
            count=request.partitions,
            split_bytes=request.split_bytes,
            lease=resolved.lease.renew(),
        )

    def run(self, task: MetadataTask) -> Iterator[pa.RecordBatch]:
        return run_metadata(task)


def metadata_schema(resolved: Resolved) -> pa.Schema:
    assert resolved.request.metadata is not None
    return SCHEMAS[resolved.request.metadata]
