"""Iceberg's schemas and its statistics of data files, made from Arrow's.

A column keeps its id as long as its name, its type and whether it may be null stay; else it is a new column, with an id
that none ever had, even under an old name. The ids are written into the data files (as PARQUET:field_id), so older
snapshots read, for ever, what they held: by names alone, text that once was a number would be looked for as text.

Importing this needs pyiceberg.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.conversions import from_bytes
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    IcebergType,
    LongType,
    NestedField,
    StringType,
    TimestamptzType,
)

from ...volume.errors import BadInput, Unsupported
from .arrow import fields, with_metadata
from .target import DataFile as WrittenFile

_FIELD_ID = b"PARQUET:field_id"


def evolved(metadata: TableMetadata | None, schema: pa.Schema) -> Schema:
    """The table's schema as it is to be. Its own, if that has these columns."""
    current = metadata.schema() if metadata is not None else Schema()
    known = {field.name: field for field in current.fields}
    newest = metadata.last_column_id if metadata is not None else 0
    columns: list[NestedField] = []
    for name, kind, nullable in _columns(schema):
        field = known.get(name)
        if field is None or field.field_type != kind or field.required == nullable:
            newest += 1
            field = NestedField(field_id=newest, name=name, field_type=kind, required=not nullable)
        columns.append(field)
    if metadata is not None and tuple(columns) == current.fields:
        return current
    number = max((found.schema_id for found in metadata.schemas), default=-1) + 1 if metadata is not None else 0
    return Schema(*columns, schema_id=number)


def same_columns(metadata: TableMetadata, schema: pa.Schema) -> bool:
    return evolved(metadata, schema) is metadata.schema()


def with_ids(schema: pa.Schema, evolved: Schema) -> pa.Schema:
    """The Arrow schema in which data files are to be written."""
    ids = {field.name: {_FIELD_ID: str(field.field_id).encode()} for field in evolved.fields}
    return pa.schema([with_metadata(field, ids[field.name]) for field in fields(schema)])


def added(file: WrittenFile, location: str, footer: pq.FileMetaData, metadata: TableMetadata) -> DataFile:
    """A data file as a commit adds it; `metadata` is the table's as the commit makes it."""
    schema = metadata.schema()
    columns = [(field.name, field.field_id) for field in schema.fields]
    if footer.num_rows != file.rows or _columns_of(footer) != columns:
        raise BadInput(f"{file.path} doesn't hold the columns or the number of rows that it was said to")
    statistics = data_file_statistics_from_parquet_metadata(
        footer, compute_statistics_plan(schema, metadata.properties), parquet_path_to_id_mapping(schema)
    )
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=location,
        file_format=FileFormat.PARQUET,
        partition=Record(),
        file_size_in_bytes=file.size_bytes,
        sort_order_id=None,
        spec_id=metadata.default_spec_id,
        equality_ids=None,
        key_metadata=None,
        **statistics.to_serialized_dict(),
    )


def bounds(file: DataFile, schema: Schema, key: tuple[str, ...]) -> tuple[int, int] | None:
    """Between which the key lies, if it is one integer and that is known."""
    if len(key) != 1:
        return None
    field = next((field for field in schema.fields if field.name == key[0]), None)
    if field is None:
        return None
    low, high = (file.lower_bounds or {}).get(field.field_id), (file.upper_bounds or {}).get(field.field_id)
    if not isinstance(field.field_type, LongType) or low is None or high is None:
        return None
    return int(from_bytes(field.field_type, low)), int(from_bytes(field.field_type, high))


def _columns(schema: pa.Schema) -> list[tuple[str, IcebergType, bool]]:
    return [(field.name, _type(field), field.nullable) for field in fields(schema)]


def _columns_of(footer: pq.FileMetaData) -> list[tuple[str, int]]:
    found = fields(footer.schema.to_arrow_schema())
    return [(field.name, int((field.metadata or {}).get(_FIELD_ID, b"-1"))) for field in found]


def _type(field: pa.Field[Any]) -> IcebergType:
    kind: Any = field.type
    if pa.types.is_int64(kind):
        return LongType()
    if pa.types.is_float64(kind):
        return DoubleType()
    if pa.types.is_string(kind):
        return StringType()
    if pa.types.is_binary(kind):
        return BinaryType()
    if pa.types.is_decimal128(kind):
        return DecimalType(kind.precision, kind.scale)
    if pa.types.is_boolean(kind):
        return BooleanType()
    if pa.types.is_date32(kind):
        return DateType()
    if pa.types.is_timestamp(kind) and kind.tz == "UTC":
        return TimestamptzType()
    raise Unsupported(f"column {field.name} is {kind}, which no export to Iceberg has")
