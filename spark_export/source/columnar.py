"""Columnar: fixed schemas, and rows laid into batches of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

TIME: Final = pa.timestamp("us", "UTC")


def needed(kind: pa.DataType) -> tuple[pa.DataType, bool]:
    """A column that is never null."""
    return kind, False


def schema_of(columns: Mapping[str, pa.DataType | tuple[pa.DataType, bool]]) -> pa.Schema:
    return pa.schema(_fields(columns))


def list_of(columns: Mapping[str, pa.DataType | tuple[pa.DataType, bool]]) -> pa.DataType:
    """Of structs with these fields, none of them null."""
    return pa.list_(pa.field("element", pa.struct(_fields(columns)), nullable=False))


def batch(schema: pa.Schema, rows: Sequence[Mapping[str, object]]) -> pa.RecordBatch:
    """What a row lacks is null."""
    arrays: list[pa.Array[Any]] = [
        pa.array([row.get(name) for row in rows], kind) for name, kind in zip(schema.names, schema.types, strict=True)
    ]
    return pa.record_batch(arrays, schema=schema)


def _fields(columns: Mapping[str, pa.DataType | tuple[pa.DataType, bool]]) -> list[pa.Field[Any]]:
    parts = {name: kind if isinstance(kind, tuple) else (kind, True) for name, kind in columns.items()}
    return [pa.field(name, kind, nullable=nullable) for name, (kind, nullable) in parts.items()]
