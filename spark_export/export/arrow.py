"""Arrow: the calls of pyarrow whose stubs say less than is known, with the types that they have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

__all__ = ["batches", "fields", "footer", "is_one_of", "plain", "recast", "with_metadata"]


def fields(schema: pa.Schema) -> list[pa.Field[Any]]:
    return list(schema)


def with_metadata(field: pa.Field[Any], metadata: dict[bytes, bytes]) -> pa.Field[Any]:
    return field.with_metadata(cast("dict[bytes | str, bytes | str]", metadata))


def footer(source: Any) -> pq.FileMetaData:
    """Of an open Parquet file."""
    read = cast("Any", pq.read_metadata)  # pyright: ignore[reportUnknownMemberType]
    return cast("pq.FileMetaData", read(source))


def batches(source: pq.ParquetFile, columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
    """These columns, and perhaps others whose names begin with one of theirs and a dot. No batch is more than a row
    group, which is of so many bytes, where so many rows may be of any."""
    read = cast("Any", source.iter_batches)  # pyright: ignore[reportUnknownMemberType]
    for group in range(source.num_row_groups):
        yield from cast("Iterator[pa.RecordBatch]", read(batch_size=rows, row_groups=[group], columns=list(columns)))


def is_one_of(column: Any, values: pa.Array[Any]) -> pa.BooleanArray:
    found = cast("Any", pc.is_in)  # pyright: ignore[reportUnknownMemberType]
    return cast("pa.BooleanArray", found(column, value_set=values))


def recast(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The columns that the schema names, in its order and types."""
    columns: list[Any] = [batch.column(field.name).cast(field.type) for field in fields(schema)]
    return pa.record_batch(columns, schema=schema)


def plain(reader: pa.RecordBatchReader) -> pa.RecordBatchReader:
    """Text and bytes as string and binary, whichever of their forms a reader gives; nothing but names and types."""
    columns = [pa.field(field.name, _plain(field.type), field.nullable) for field in fields(reader.schema)]
    return reader.cast(pa.schema(columns))


def _plain(kind: Any) -> pa.DataType:
    if pa.types.is_string_view(kind) or pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_binary_view(kind) or pa.types.is_large_binary(kind):
        return pa.binary()
    return cast("pa.DataType", kind)
