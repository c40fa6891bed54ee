"""Merge: the rows that changed, put into data files that can't be changed.

Delta and Iceberg tables are sets of immutable files, so a merge is a smaller set taken out and another put in, in one
commit. Every file that holds a row which was updated or deleted is written anew without it; the rows as they are now,
and the new ones, go to further files. Nothing but files named in the commit is ever seen.

    changes (Parquet, by executors) ─┬─ keys of updated and deleted rows ─► which files hold them ─► without those rows
                                     └─ inserted and updated rows ────────► new files

All of it goes through the driver, as a stream: change files, those data files that hold changed rows, and what is
written. What stays in memory is eight bytes a changed key (sixteen where it is one integer), and a row group. Where the
key is one integer, files whose least and greatest value exclude all changed keys aren't opened. Rows that were only
inserted open none.

Keys are compared by 64-bit hashes, the checksum's; and each updated or deleted key must be found exactly once. Keys
that collide, a key that isn't there, one that is there twice, rows that somebody else took out or added: each makes the
numbers differ, and then nothing is committed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from ...volume.errors import BadInput
from .arrow import batches, fields, is_one_of, recast
from .checksum import row_hashes
from .files import join, locate, reading, remove, settle
from .job import go_on
from .target import CHANGE_TYPE, Changes

__all__ = ["Merged", "Piece", "Standing", "merge_rows"]

FILE_BYTES: Final = 128 << 20
_ROW_GROUP_ROWS: Final = 1 << 17
_ROW_GROUP_BYTES: Final = 64 << 20
_GONE: Final = pa.array(["update_postimage", "delete"])
_STAYS: Final = pa.array(["insert", "update_postimage"])


@dataclass(frozen=True, slots=True)
class Piece:
    """A data file for a commit to add."""

    url: str
    rows: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Standing:
    """A data file of the table as it stands. `bounds`: no key lies outside of them, if the key is one integer."""

    path: str
    rows: int
    bounds: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Merged:
    """What a commit is to take out, by the paths that were given, and to put in."""

    removed: tuple[str, ...]
    added: tuple[Piece, ...]


Opener = Callable[[str], Any]
"""Opens a data file of the table, by its path, for pyarrow to read."""


def merge_rows(
    standing: Sequence[Standing],
    opener: Opener,
    changes: Changes,
    schema: pa.Schema,
    rows_wanted: int,
    folder: str,
) -> Merged:
    """Writes into `folder`, a URL, files of `schema`. Raises BadInput where the table isn't what changed."""
    gone = _Gone(changes)
    removed: list[str] = []
    added: list[Piece] = []
    lost = 0
    for number, old in enumerate(standing):
        if not gone.may_be_in(old):
            continue
        with _Output(join(folder, f"kept-{number:05}"), schema) as output:
            taken = _copy(opener, old, gone, output)
        if not taken:
            output.discard()
            continue
        lost += taken
        removed.append(old.path)
        added += output.pieces
    with _Output(join(folder, "new"), schema, roll_bytes=FILE_BYTES) as output:
        for batch in _change_batches(changes, schema.names, _STAYS):
            output.write(batch)
    added += output.pieces
    if lost != len(gone):
        raise _other_rows(f"{lost} of the {len(gone)} rows that changed were found in it")
    rows = sum(old.rows for old in standing) - lost + sum(piece.rows for piece in output.pieces)
    if rows != rows_wanted:
        raise _other_rows(f"it would have {rows} rows, where the volume's table has {rows_wanted}")
    return Merged(tuple(removed), tuple(added))


def _other_rows(found: str) -> BadInput:
    return BadInput(
        f"the table isn't what was exported last: {found}. Somebody else changed it, or its keys are read as one value "
        "where they are two: export it whole, without --incremental"
    )


class _Gone:
    """The keys of rows that the table is to lose, as they stand in it."""

    def __init__(self, changes: Changes) -> None:
        self._key = list(changes.key)
        hashes: list[npt.NDArray[np.uint64]] = []
        numbers: list[npt.NDArray[np.int64]] | None = []
        for batch in _change_batches(changes, self._key, _GONE):
            hashes.append(row_hashes(batch))
            if len(self._key) == 1 and fields(batch.schema)[0].type == pa.int64() and numbers is not None:
                numbers.append(batch.column(0).to_numpy(zero_copy_only=False))
            else:
                numbers = None
        self._hashes = np.sort(np.concatenate(hashes)) if hashes else np.zeros(0, np.uint64)
        self._numbers = np.sort(np.concatenate(numbers)) if numbers else None

    def __len__(self) -> int:
        return len(self._hashes)

    def may_be_in(self, file: Standing) -> bool:
        if not len(self):
            return False
        if self._numbers is None or file.bounds is None:
            return True
        first, end = (
            np.searchsorted(self._numbers, file.bounds[0]),
            np.searchsorted(self._numbers, file.bounds[1], "right"),
        )
        return bool(first < end)

    def mask(self, batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        """Which rows are to go."""
        hashes = row_hashes(batch.select(self._key))
        places = np.minimum(np.searchsorted(self._hashes, hashes), len(self) - 1)
        return cast("npt.NDArray[np.bool_]", self._hashes[places] == hashes)


def _copy(opener: Opener, old: Standing, gone: _Gone, output: _Output) -> int:
    """The rows of a file that stay; how many don't."""
    taken = 0
    with (
        reading(old.path, "export it whole, without --incremental"),
        opener(old.path) as source,
        pq.ParquetFile(source) as file,
    ):
        missing = set(output.schema.names) - set(file.schema_arrow.names)
        if missing:
            raise _other_rows(f"{old.path} has no column {min(missing)!r}")
        for batch in batches(file, output.schema.names, _ROW_GROUP_ROWS):
            go_on()
            mask = gone.mask(batch)
            lost = int(mask.sum())
            taken += lost
            output.write(batch.filter(pa.array(~mask)) if lost else batch)
    return taken


def _change_batches(changes: Changes, columns: Sequence[str], types: pa.Array[Any]) -> Iterator[pa.RecordBatch]:
    """These columns of the changes of these types."""
    for change in changes.files:
        system, path = locate(change.path)
        with system.open_input_file(path) as source, pq.ParquetFile(source) as file:
            for batch in batches(file, [*columns, CHANGE_TYPE], _ROW_GROUP_ROWS):
                found = batch.filter(is_one_of(batch.column(CHANGE_TYPE), types)).select(list(columns))
                if found.num_rows:
                    yield found


class _Output:
    """Data files of one schema, written one after the other; none for no rows. Row groups are of a fair size."""

    def __init__(self, stem: str, schema: pa.Schema, *, roll_bytes: int | None = None) -> None:
        self.schema = schema
        self.pieces: list[Piece] = []
        self._stem = stem
        self._roll_bytes = roll_bytes
        self._held: list[pa.RecordBatch] = []
        self._held_rows = self._held_bytes = self._rows = 0
        self._url = ""
        self._sink: pa.NativeFile | None = None
        self._writer: pq.ParquetWriter | None = None

    def __enter__(self) -> _Output:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._flush()
        self._end()

    def write(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        self._held.append(recast(batch, self.schema))
        self._held_rows += batch.num_rows
        self._held_bytes += batch.nbytes
        if self._held_rows >= _ROW_GROUP_ROWS or self._held_bytes >= _ROW_GROUP_BYTES:
            self._flush()

    def discard(self) -> None:
        for piece in self.pieces:
            remove(piece.url)
        self.pieces = []

    def _flush(self) -> None:
        if not self._held:
            return
        if self._writer is None or self._sink is None:
            self._url = f"{self._stem}-{len(self.pieces):05}.parquet"
            system, path = locate(self._url)
            system.create_dir(path.rpartition("/")[0], recursive=True)
            self._sink = system.open_output_stream(path)
            self._writer = pq.ParquetWriter(self._sink, self.schema, compression="zstd")
            self._rows = 0
        self._writer.write_table(pa.Table.from_batches(self._held, schema=self.schema), row_group_size=self._held_rows)
        self._rows += self._held_rows
        self._held, self._held_rows, self._held_bytes = [], 0, 0
        if self._roll_bytes is not None and self._sink.tell() >= self._roll_bytes:
            self._end()

    def _end(self) -> None:
        if self._writer is None or self._sink is None:
            return
        self._writer.close()
        size = self._sink.tell()
        self._sink.close()
        self._writer = self._sink = None
        settle(self._url)
        self.pieces.append(Piece(self._url, self._rows, size))
