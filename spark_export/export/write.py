"""Write: rows of a source become Parquet files in a target's folder; what executors do.

A file is written under a name of its own, whoever else writes the same rows at the same time, and is whole once it has
been answered: closed, and flushed where the file system needs it. Row groups hold about GROUP_BYTES of values, so that
a reader of one needs a bounded memory and one that selects passes over others by their statistics.
"""

from __future__ import annotations

import posixpath
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..source.scan import ScanTask, run_scan
from .checksum import Sum, sum_of
from .files import file_errors, join, locate, make_durable
from .target import DataFile

GROUP_BYTES: Final = 64 * 1024 * 1024
GROUP_ROWS: Final = 1_000_000

_SAMPLE_ROWS: Final = 4096
_compute: Final[Any] = pc
"""Its annotations leave the types of values open."""

Compression = Literal["zstd", "snappy"]
COMPRESSIONS: Final[tuple[Compression, ...]] = ("zstd", "snappy")


@dataclass(frozen=True, slots=True)
class Write:
    """A piece of work: it pickles."""

    task: ScanTask
    schema: pa.Schema
    """As the format wants it said in the file."""
    folder: str
    compression: Compression
    rowid: str | None
    """The column whose values its rows are in the order of, and by which its file is told from others."""


def write_rows(piece: Write) -> DataFile | None:
    """None where there was no row."""
    return write_file(run_scan(piece.task), piece.schema, piece.folder, piece.compression, piece.rowid)


def write_file(
    batches: Iterable[pa.RecordBatch],
    schema: pa.Schema,
    folder: str,
    compression: Compression,
    rowid: str | None = None,
) -> DataFile | None:
    """Raises Full, Unavailable, and whatever the batches raise; a file that was begun is never part of a table then."""
    rows = (batch for batch in batches if batch.num_rows)
    first = next(rows, None)
    if first is None:
        return None
    url = join(folder, f"part-{uuid.uuid4().hex}.parquet")
    found = Sum()
    last = first

    def counted() -> Iterator[pa.RecordBatch]:
        nonlocal found, last
        for last in _chain(first, rows):
            found += sum_of(last)
            yield last

    system, path = locate(url)
    with file_errors(folder):
        system.create_dir(posixpath.dirname(path), recursive=True)
        # The stubs know a flag only.
        repeating: Any = _repeating(first)
        with pq.ParquetWriter(
            path, schema, filesystem=system, compression=compression, use_dictionary=repeating
        ) as writer:
            for group in _groups(counted()):
                # The columns are the same; what is said of them may not be.
                writer.write_table(group.cast(schema), row_group_size=group.num_rows)
        make_durable(url)
        size_bytes = system.get_file_info(path).size or 0
    ends: tuple[int, int] | None = None
    if rowid is not None:
        columns: list[Any] = [first.column(rowid), last.column(rowid)]  # pyright: ignore[reportUnknownMemberType]
        ends = columns[0][0].as_py(), columns[1][-1].as_py()
    return DataFile(url, found.rows, size_bytes, found.checksum, ends)


def _repeating(batch: pa.RecordBatch) -> list[str] | bool:
    """The columns worth a dictionary: for the others the writer would fill one and throw it away, which takes as long
    as all the rest. All of them where too few rows are known."""
    rows = batch.slice(0, _SAMPLE_ROWS)
    if rows.num_rows < _SAMPLE_ROWS // 4:
        return True
    return [name for name in rows.schema.names if _distinct(rows, name) <= rows.num_rows // 2]


def _distinct(rows: pa.RecordBatch, name: str) -> int:
    return int(_compute.count_distinct(rows.column(rows.schema.names.index(name)), mode="all").as_py())


def _chain(first: pa.RecordBatch, rest: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from rest


def _groups(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    waiting: list[pa.RecordBatch] = []
    rows = size_bytes = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        size_bytes += batch.nbytes
        if rows >= GROUP_ROWS or size_bytes >= GROUP_BYTES:
            yield pa.Table.from_batches(waiting)
            waiting, rows, size_bytes = [], 0, 0
    if waiting:
        yield pa.Table.from_batches(waiting)
