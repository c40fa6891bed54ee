"""Arrow: the calls of pyarrow whose stubs say less than is known, with the types that they have."""

from __future__ import annotations

from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq


def fields(schema: pa.Schema) -> list[pa.Field[Any]]:
    return list(schema)


def with_metadata(field: pa.Field[Any], metadata: dict[bytes, bytes]) -> pa.Field[Any]:
    return field.with_metadata(cast("dict[bytes | str, bytes | str]", metadata))


def footer(source: Any) -> pq.FileMetaData:
    """Of an open Parquet file."""
    read = cast("Any", pq.read_metadata)  # pyright: ignore[reportUnknownMemberType]
    return cast("pq.FileMetaData", read(source))


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
