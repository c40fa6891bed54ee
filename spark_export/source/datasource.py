"""Data source: `spark.read.format("budwood")` and `spark.readStream.format("budwood")`.

`schema()` resolves everything (resolution.py) and keeps it; Spark pickles the source into the processes that plan and
read. It can't know yet whether it is read once or as a stream. What is read goes by the options:

    metadata=…              metadata.py   metadata_schema(settled) -> pa.Schema, MetadataReader(settled)
    readChangeFeed=true     feed.py       plan_feed(settled) -> Feed (.schema: pa.Schema), FeedReader(feed)
    readStream              stream.py     open_stream(settled, schema: pa.Schema) -> DataSourceStreamReader
    else                    scan.py       here

Partitions are planned once per `load()`: Spark keeps the first plan of a DataFrame for all later ones. Therefore
filters are pushed down only where `pushDownPredicate` says that the DataFrame serves one query (pushdown.py); without
it the reader has no `pushFilters`, which Spark refuses while its own setting is off.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    Filter,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from ...tables.scan_plan import Plan, Target
from ...volume.errors import BadInput
from .options import Request, check_read_once
from .resolution import Settled, plainly, settle
from .scan import Scan, ScanTask, plan_rows, plan_scan, run_scan

if TYPE_CHECKING:
    from .feed import Feed
    from .pushed import Pushed

__all__ = ["BudwoodDataSource"]

NAME = "budwood"


class BudwoodDataSource(DataSource):
    """What it settled is pickled with it."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        self._settled: Settled | None = None
        self._schema: pa.Schema | None = None
        self._feed: Feed | None = None
        self._found: Mapping[str, Target] = {}

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        with plainly():
            settled = settle(self.options)
            self._schema = self._schema_of(settled)
            self._settled = replace(settled, request=settled.request.with_found(self._found))
            return from_arrow_schema(self._schema, prefer_timestamp_ntz=True)

    def reader(self, schema: StructType) -> DataSourceReader:
        with plainly():
            settled = self._loaded()
            check_read_once(settled.request)
            if settled.request.metadata is not None:
                from .metadata import MetadataReader

                return MetadataReader(settled)
            if self._feed is not None:
                from .feed import FeedReader

                return FeedReader(self._feed)
            return _PushingReader(settled) if settled.request.push_down else _ScanReader(settled)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        with plainly():
            settled = self._loaded()
            if settled.request.metadata is not None or settled.request.query is not None:
                raise BadInput("a stream follows the rows of a table: give the option table")
            assert self._schema is not None
            from .stream import open_stream

            return open_stream(settled, self._schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        with plainly():
            raise BadInput(_READ_ONLY)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        with plainly():
            raise BadInput(_READ_ONLY)

    def _schema_of(self, settled: Settled) -> pa.Schema:
        request = settled.request
        if request.metadata is not None:
            from .metadata import metadata_schema

            return metadata_schema(settled)
        if request.feed:
            from .feed import plan_feed

            self._feed = plan_feed(settled)
            self._found = self._feed.followed.plan.found
            return self._feed.schema
        plan = plan_of(settled)
        self._found = plan.found
        return plan.schema

    def _loaded(self) -> Settled:
        if self._settled is None:
            raise BadInput(
                "the schema is the table's own: leave schema(…) out, and use the options columns and type.COLUMN"
            )
        return self._settled


_READ_ONLY = "volumes are read through Spark, not written: write with budwood.connect, which commits as SQLite does"


class Part(InputPartition):
    """A task as Spark sends it to an executor."""

    def __init__(self, task: ScanTask) -> None:
        super().__init__(task.number)
        self.task = task


class Nothing(InputPartition):
    """Stands for no partition at all: Spark takes an empty list for one partition that it makes itself."""

    def __init__(self) -> None:
        super().__init__(0)


class _ScanReader(DataSourceReader):
    def __init__(self, settled: Settled) -> None:
        self._settled = settled
        self._pushed: Pushed | None = None

    def partitions(self) -> Sequence[InputPartition]:
        with plainly():
            # From here on the whole lease is the job's.
            settled = replace(self._settled, hold=self._settled.hold.renew())
            return [Part(task) for task in scan_of(settled, self._pushed).tasks] or [Nothing()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, Part):
            with plainly():
                yield from run_scan(partition.task)


class _PushingReader(_ScanReader):
    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        from .pushdown import push

        with plainly():
            self._pushed, left = push(filters, plan_of(self._settled))
            return left


def scan_of(settled: Settled, pushed: Pushed | None = None) -> Scan:
    request = settled.request
    return plan_scan(
        settled.place,
        settled.view,
        count=request.partitions,
        split_bytes=request.split_bytes,
        pushed=pushed,
        hold=settled.hold,
        **_what(request),
    )


def plan_of(settled: Settled) -> Plan:
    return plan_rows(settled.place, settled.view, **_what(settled.request))[2]


def _what(request: Request) -> dict[str, Any]:
    return {
        "table": request.table,
        "query": request.query,
        "columns": request.columns,
        "options": request.types,
        "rowid": request.rowid,
        "engine": request.engine,
    }
