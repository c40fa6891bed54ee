"""Target: one table of one volume in a lake, in one format, and what the driver does to it.

An export goes the same way whatever the format: executors write Parquet files into the target's `folder` of this run,
where no reader looks; then the driver makes them the table with one call, which is atomic. So a run that is killed
leaves the table as it was, or as it is to be, and files that nobody reads, which the next run's `sweep` removes.

A target remembers, together with its rows, whose they are and of which LSN (`State`). That is what makes an export
idempotent: a run that finds its own LSN there has nothing to do, and one that finds an older LSN can merge what changed
since: data files tell which rowids lie in them (`files`), those that hold a changed row are written anew from the
source, and the others stay (incremental.py).

The driver calls a target from one thread, and holds the target's lock (lock.py) from `state` to `sweep`.

Crash windows (each a fault point, each cut by tests/fault/test_export_killed.py):
  export: files written, not committed · export: committed, not swept
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Protocol

import pyarrow as pa
import xxhash

from ...volume import faults
from ...volume.errors import BadInput, Unsupported

WRITTEN: Final = faults.point("export: files written, not committed")
COMMITTED: Final = faults.point("export: committed, not swept")

METADATA_FOLDER: Final = "_budwood"
"""The folder in a table's own in which budwood keeps what is no data: readers pass over what begins so."""

PROPERTY: Final = "budwood"
"""Where a format keeps named properties with a commit, the state stands under this name, as JSON."""

_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class State:
    """What a target remembers of its last commit."""

    volume: str
    """The volume's id: a name may come to mean another volume."""
    name: str
    table: str
    lsn: int
    time_ms: int
    """When that LSN was committed."""
    rows: int
    checksum: int
    """Of all rows, whatever their order: checksum.py. Below 2^64."""
    columns: str
    """The digest of the schema, and how values were read that aren't of their column's class."""
    key: tuple[str, ...] = ()
    """The columns whose values tell a row from all others; none for a view. Of a table with rowids, their column."""

    def to_json(self) -> str:
        return json.dumps({"version": _VERSION, **asdict(self), "checksum": f"{self.checksum:016x}"}, sort_keys=True)

    @classmethod
    def from_json(cls, text: str | bytes, where: str) -> State:
        """Raises BadInput for what isn't one, Unsupported for a newer one."""
        try:
            found = json.loads(text)
            if not isinstance(found["version"], int) or found["version"] > _VERSION:
                raise Unsupported(f"{where} was written by a newer budwood: update this one")
            return cls(
                volume=str(found["volume"]),
                name=str(found["name"]),
                table=str(found["table"]),
                lsn=int(found["lsn"]),
                time_ms=int(found["time_ms"]),
                rows=int(found["rows"]),
                checksum=int(found["checksum"], 16),
                columns=str(found["columns"]),
                key=tuple(map(str, found["key"])),
            )
        except (ValueError, TypeError, KeyError) as error:
            raise BadInput(f"{where} holds no export's state that can be read: take another folder") from error


class StateLost(BadInput):
    """An export wrote the table, and nothing says any more which."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file that an executor wrote, whole and closed."""

    path: str
    """As a URL, within a target's folder; of files that a target has taken in, what it calls them."""
    rows: int
    size_bytes: int
    checksum: int | None = None
    """The sum over its rows, modulo 2^64; None where a format doesn't keep it."""
    rowids: tuple[int, int] | None = None
    """The first and the last rowid that its rows may have, if that is known."""


class Target(Protocol):
    """What every format does. `url` is the table's folder."""

    @property
    def format(self) -> str: ...

    @property
    def url(self) -> str: ...

    def state(self) -> State | None:
        """None if nothing is there. Raises BadInput if something is there that no export wrote, and StateLost if one
        did and nothing says any more which."""
        ...

    def folder(self, run: str) -> str:
        """The URL of a folder for this run's files, within the target's own file system; readers don't see it. Whoever
        writes there makes it. Selection for once, after `state`, before anything is written."""
        ...

    def written(self, schema: pa.Schema) -> pa.Schema:
        """The same columns, with what the format wants said of them in its data files."""
        ...

    def replace(self, files: Sequence[DataFile], schema: pa.Schema, state: State, *, force: bool = False) -> None:
        """The table becomes the rows of these files, of this schema, and its state this one; all or nothing. Those of
        `files()` may be among them: they stay. If it has this state already, nothing happens, but with `again`: what it
        holds may not be what it believes."""
        ...

    def files(self) -> tuple[DataFile, ...]:
        """Those that readers read now. Without `rowids` where a file alone doesn't tell the rows that it stands for."""
        ...

    def advance(self, state: State) -> None:
        """The rows stay; the state becomes this one: nothing that is exported changed up to its LSN."""
        ...

    def refresh(self) -> None:
        """All stays; the state is said again where what says it may be cleaned away with time."""
        ...

    def read(self) -> pa.RecordBatchReader:
        """All rows, by the format's own reader."""
        ...

    def retain(self, seconds: float) -> None:
        """Versions that were replaced longer ago may be read no more, and what only they have goes."""
        ...

    def sweep(self) -> None:
        """Remove what runs that were killed left, and what this one needs no more. Nothing that a reader may be reading
        where the format keeps older versions."""
        ...


def schema_digest(schema: pa.Schema) -> str:
    """Equal for the same columns, in this order, of the same types."""
    fields: list[pa.Field[Any]] = list(schema)
    lines = [f"{field.name}\0{field.type}\0{field.nullable}" for field in fields]
    return xxhash.xxh3_128_hexdigest("\n".join(lines).encode())
