"""Data source: `spark.read.format("budwood")` and `spark.readStream.format("budwood")`.

`schema()` resolves everything (resolution.py) and keeps it; Spark pickles the source into the processes that plan and
read. It can't know yet whether it is read once or as a stream. What is read goes by the options:

    metadata=…              metadata.py       metadata_schema, MetadataReader
    readChangeFeed=true     change_feed.py    plan_feed, ChangeFeedReader
    readStream              stream.py         open_stream
    else                    scan.py           here

Partitions are planned once per `load()`: Spark keeps the first plan of a DataFrame for all later ones. Therefore
filters are pushed down only where `pushDownPredicate` says that the DataFrame serves one query (pushdown.py); without
it the reader has no `pushFilters`, which Spark refuses while its own setting is off.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    Filter,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from ...tables.scan_plan import Plan, Target
from ...volume.errors import BadInput
from .options import check_read_once
from .partitions import TaskReader
from .resolution import Resolved, plain_errors, resolve
from .scan import Scan, ScanTask, plan_rows, plan_scan, run_scan

if TYPE_CHECKING:
    from .change_feed import ChangeFeed
    from .pushed_filters import PushedFilters

NAME = "budwood"


class BudwoodDataSource(DataSource):
    """What it resolved is pickled with it."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        self._resolved: Resolved | None = None
        self._schema: pa.Schema | None = None
        self._feed: ChangeFeed | None = None
        self._inferred: Mapping[str, Target] = {}

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        with plain_errors():
            resolved = resolve(self.options)
            self._schema = self._schema_of(resolved)
            self._resolved = replace(resolved, request=resolved.request.with_inferred(self._inferred))
            return from_arrow_schema(self._schema, prefer_timestamp_ntz=True)

    def reader(self, schema: StructType) -> DataSourceReader:
        with plain_errors():
            resolved = self._loaded()
            check_read_once(resolved.request)
            if resolved.request.metadata is not None:
                from .metadata import MetadataReader

                return MetadataReader(resolved)
            if self._feed is not None:
                from .change_feed import ChangeFeedReader

                return ChangeFeedReader(self._feed)
            return _PushingReader(resolved) if resolved.request.push_down else _ScanReader(resolved)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        with plain_errors():
            resolved = self._loaded()
            if resolved.request.metadata is not None or resolved.request.query is not None:
                raise BadInput("a stream follows the rows of a table: give the option table")
            assert self._schema is not None
            from .stream import open_stream

            return open_stream(resolved, self._schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        with plain_errors():
            raise BadInput(_READ_ONLY)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        with plain_errors():
            raise BadInput(_READ_ONLY)

    def _schema_of(self, resolved: Resolved) -> pa.Schema:
        request = resolved.request
        if request.metadata is not None:
            from .metadata import metadata_schema

            return metadata_schema(resolved)
        if request.feed:
            from .change_feed import plan_feed

            self._feed = plan_feed(resolved)
            self._inferred = self._feed.feed_table.plan.inferred
            return self._feed.schema
        plan = plan_of(resolved)
        self._inferred = plan.inferred
        return plan.schema

    def _loaded(self) -> Resolved:
        if self._resolved is None:
            raise BadInput(
                "the schema is the table's own: leave schema(…) out, and use the options columns and type.COLUMN"
            )
        return self._resolved


_READ_ONLY = "volumes are read through Spark, not written: write with budwood.connect, which commits as SQLite does"


class _ScanReader(TaskReader[ScanTask]):
    def __init__(self, resolved: Resolved) -> None:
        self._resolved = resolved
        self._pushed: PushedFilters | None = None

    def plan(self) -> list[ScanTask]:
        # From here on the whole lease is the job's.
        resolved = replace(self._resolved, lease=self._resolved.lease.renew())
        return scan_of(resolved, self._pushed).tasks

    def run(self, task: ScanTask) -> Iterator[pa.RecordBatch]:
        return run_scan(task)


class _PushingReader(_ScanReader):
    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        from .pushdown import push

        with plain_errors():
            self._pushed, left = push(filters, plan_of(self._resolved))
            return left


def scan_of(resolved: Resolved, pushed: PushedFilters | None = None) -> Scan:
    request = resolved.request
    return plan_scan(
        resolved.ref,
        resolved.view,
        count=request.partitions,
        split_bytes=request.split_bytes,
        pushed=pushed,
        lease=resolved.lease,
        **request.scan_options(),
    )


def plan_of(resolved: Resolved) -> Plan:
    return plan_rows(resolved.ref, resolved.view, **resolved.request.scan_options())[2]
