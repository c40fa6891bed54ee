"""What tests of exports to a lake share: rows as a table has them, the files that executors would write of them, and a
target that is driven as the driver does it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from budwood.spark_export.export.checksum import total
from budwood.spark_export.export.files import join, locate
from budwood.spark_export.export.incremental import TargetFiles, touched
from budwood.spark_export.export.target import DataFile, State, Target, schema_digest

Rows = Mapping[int, Mapping[str, Any]]
"""By the value of their first column, which is the key."""

_SIMPLE: list[pa.Field[Any]] = [
    pa.field("id", pa.int64(), nullable=False),
    pa.field("name", pa.string()),
    pa.field("price", pa.float64()),
]
SIMPLE = pa.schema(_SIMPLE)

_ODD: list[pa.Field[Any]] = [
    pa.field("id", pa.int64(), nullable=False),
    pa.field("odd name;.x=%{}", pa.int64()),
    pa.field("Größe", pa.string()),
    pa.field("raw", pa.binary()),
    pa.field("real", pa.float64()),
    pa.field("money", pa.decimal128(38, 2)),
    pa.field("at", pa.timestamp("us", "UTC")),
    pa.field("day", pa.date32()),
    pa.field("ok", pa.bool_()),
]
ODD = pa.schema(_ODD)
_ODD_VALUES: tuple[tuple[Any, ...], ...] = (
    (2**63 - 1, 2**63 - 1, "", b"", float("inf"), Decimal("1.25"), datetime(1969, 12, 31, tzinfo=UTC), date.min, True),
    (-(2**63), -(2**63), "ä" * 40, b"\0\xff" * 300, -0.0, Decimal("-" + "9" * 36 + ".99"), None, date.max, False),
    (0, 0, "\0", None, float("nan"), None, datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC), None, None),
    (1, None, None, b"\x80", None, Decimal(0), datetime(1, 1, 1, 0, 0, 0, 1, tzinfo=UTC), date(1970, 1, 1), None),
    (2, 2**53 + 1, "'\"`\\\n", b"x", 5e-324, Decimal("0.01"), datetime(2026, 1, 1, tzinfo=UTC), None, True),
)
ODD_ROWS: Rows = {values[0]: dict(zip(ODD.names, values, strict=True)) for values in _ODD_VALUES}


def made(keys: range, price: float = 0.5) -> dict[int, dict[str, Any]]:
    return {key: {"id": key, "name": f"n{key}", "price": price} for key in keys}


@dataclass
class Export:
    """One table of one volume, on its way to `target`. Each `to` is a run of its own."""

    target: Target
    schema: pa.Schema = SIMPLE
    key: tuple[str, ...] = ("id",)
    rows_a_file: int = 1000
    runs: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def state(self, lsn: int, rows: Rows) -> State:
        found = total([self.batch(list(rows.values()))])
        columns = schema_digest(self.schema)
        return State("vid", "shop", "orders", lsn, 1000 * lsn, found.rows, found.checksum, columns, self.key)

    def batch(self, rows: Sequence[Mapping[str, Any]], schema: pa.Schema | None = None) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist([dict(row) for row in rows], schema=schema or self.schema)

    def expected(self, rows: Rows) -> list[str]:
        """As `rows_of` a reader that reads just these."""
        batch = self.batch(list(rows.values()))
        return rows_of(pa.RecordBatchReader.from_batches(batch.schema, [batch]))

    def write(self, folder: str, rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> list[DataFile]:
        files: list[DataFile] = []
        system, path = locate(folder)
        system.create_dir(path, recursive=True)
        for number, start in enumerate(range(0, len(rows), self.rows_a_file)):
            batch = self.batch(rows[start : start + self.rows_a_file], schema)
            name = f"part-{number:05}.parquet"
            with pq.ParquetWriter(f"{path}/{name}", schema, filesystem=system) as writer:
                writer.write_batch(batch)
            size = system.get_file_info(f"{path}/{name}").size or 0
            files.append(DataFile(join(folder, name), batch.num_rows, size, total([batch]).checksum))
        return files

    def begin(self, rows: Sequence[Mapping[str, Any]], schema: pa.Schema | None = None) -> list[DataFile]:
        """A run up to where its files are written."""
        folder = self.target.folder(f"run{next(self.runs)}")
        return self.write(folder, rows, schema or self.target.written(self.schema))

    def begin_merge(self, old: Rows, new: Rows) -> list[DataFile]:
        """A run up to where the files are written that a merge is to leave: kept ones, and those with changed rows."""
        standing = TargetFiles(self.target.files())
        assert standing.has_rowids
        keys = [key for key in old.keys() | new.keys() if repr(old.get(key)) != repr(new.get(key))]
        numbers = touched(standing.firsts, np.array(keys, np.int64))
        ranges = standing.ranges(numbers)
        rows = [row for key, row in new.items() if any(low <= key <= high for low, high in ranges)]
        return [*standing.kept(numbers), *self.begin(rows)]

    def replace(self, lsn: int, rows: Rows) -> None:
        self.target.sweep()
        self.target.replace(self.begin(list(rows.values())), self.schema, self.state(lsn, rows))
        self.target.sweep()

    def merge(self, lsn: int, old: Rows, new: Rows) -> None:
        self.target.sweep()
        self.target.replace(self.begin_merge(old, new), self.schema, self.state(lsn, new))
        self.target.sweep()


def rows_of(reader: pa.RecordBatchReader) -> list[str]:
    """All rows as words, sorted: NaN equals itself, 0.0 isn't -0.0, and rows that are there twice count twice."""
    return sorted(repr(sorted(row.items())) for row in reader.read_all().to_pylist())
