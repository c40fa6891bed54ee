"""Parquet: a table as a folder of files, which whoever reads such folders reads as exactly one copy.

    {table}/0000000000000007-….parquet     the rows: every file here is part of the table
    {table}/_budwood/state.json            whose rows they are, and which files; readers pass over the folder
    {table}/_budwood/intent.json           what a commit is about to do, while it does it
    {table}/_budwood/run-…/                files that a run has written and not committed

A folder has no one place where a reader looks first, so a commit is a journal: the intent (files to take in, files to
give up, the new state) is put there whole, and from then on the commit stands. Then the files are moved in, the old
ones removed, the state put, the intent removed; each of these can be done twice. Whoever comes next and finds an intent
finishes it first (`sweep`, with which every run begins). So after a crash at any moment the next run finds the table as
it was, or makes it as it was to be.

What a reader may see: before the intent and after its end, one snapshot. In between, which takes a rename for each file
and on object stores, which can't rename, a copy of each new file, someone who lists the folder may find new files
beside old ones and count rows twice; one who has listed it may miss a file that is gone, which is an error. A reader
that must never see that waits while `_budwood/intent.json` is there, or reads Delta or Iceberg. A run that is killed in
between leaves the folder so until the next.

Data files stay as long as no row of theirs changes.

Crash windows (each a fault point, each cut by tests/fault/test_export_killed.py):
  parquet: intent recorded, nothing moved in · parquet: a file moved in, others not · parquet: moved in, old ones not
  removed · parquet: old ones removed, state not recorded · parquet: state recorded, intent not removed
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from ...volume import faults
from ...volume.errors import BadInput, Corrupt
from .files import file_errors, get, join, locate, make_durable, name_of, names_in, put, remove
from .target import METADATA_FOLDER, DataFile, State, schema_digest

_INTENT: Final = "intent.json"
_STATE: Final = "state.json"
_RUN: Final = "run-"
_DELTA: Final = "_delta_log"

_RECORDED: Final = faults.point("parquet: intent recorded, nothing moved in")
_ONE_MOVED: Final = faults.point("parquet: a file moved in, others not")
_MOVED: Final = faults.point("parquet: moved in, old ones not removed")
_REMOVED: Final = faults.point("parquet: old ones removed, state not recorded")
_STATED: Final = faults.point("parquet: state recorded, intent not removed")


@dataclass(frozen=True, slots=True)
class _Table:
    """What state.json says. The files' paths are their names in the folder."""

    state: State
    files: tuple[DataFile, ...]

    def to_json(self) -> dict[str, Any]:
        return {"state": self.state.to_json(), "files": [asdict(file) for file in self.files]}

    @classmethod
    def from_json(cls, found: dict[str, Any], where: str) -> _Table:
        try:
            return cls(State.from_json(found["state"], where), tuple(_read_file(file) for file in found["files"]))
        except (KeyError, TypeError) as error:
            raise _damaged(where) from error


class ParquetTarget:
    """The folder at `url`. Answers the protocol target.Target."""

    format = "parquet"

    def __init__(self, url: str) -> None:
        self.url = url

    def folder(self, run: str) -> str:
        return join(self.url, METADATA_FOLDER, f"{_RUN}{run}")

    def state(self) -> State | None:
        """None too where a file of the last export is gone: it is to be written again."""
        table = self._table()
        there = {name for name in names_in(self.url) if not name.startswith(("_", ".")) or name == _DELTA}
        ours = {file.path for file in table.files} if table else set[str]()
        foreign = sorted(there - ours)
        if foreign:
            raise BadInput(
                f"{self.url} holds what no export wrote, as {foreign[0]!r}: take another folder, or move it away"
            )
        return table.state if table and ours <= there else None

    def files(self) -> tuple[DataFile, ...]:
        table = self._table()
        return table.files if table else ()

    def written(self, schema: pa.Schema) -> pa.Schema:
        return schema

    def replace(self, files: Sequence[DataFile], schema: pa.Schema, state: State, *, force: bool = False) -> None:
        before = self._table()
        if not force and before is not None and before.state == state and self.state() is not None:
            return
        kept = {file.path for file in before.files} if before else set[str]()
        given = list(files) or [self._empty(schema)]
        new = [file for file in given if file.path not in kept]
        after = _Table(state, tuple(_named(file) for file in given))
        assert len({file.path for file in after.files}) == len(given), "two data files have one name"
        gone = kept - {file.path for file in after.files}
        self._commit(after, [locate(file.path)[1] for file in new], sorted(gone))

    def advance(self, state: State) -> None:
        table = self._table()
        assert table is not None, "nothing was exported yet"
        put(self._own(_STATE), _dumped(_Table(state, table.files).to_json()))

    def refresh(self) -> None:
        """Nobody cleans its state away."""

    def read(self) -> pa.RecordBatchReader:
        system, path = locate(self.url)
        with file_errors(self.url):
            dataset = pads.dataset(path, filesystem=system, format="parquet")
            return dataset.scanner().to_reader()

    def retain(self, seconds: float) -> None:
        """It has no older versions."""

    def sweep(self) -> None:
        """Finish what a killed run had committed; remove what it hadn't."""
        intent = self._read(_INTENT)
        if intent is not None:
            after = _Table.from_json(intent.get("after", {}), self._own(_INTENT))
            try:
                take, give = list(intent["take"]), list(intent["give"])
            except (KeyError, TypeError) as error:
                raise _damaged(self._own(_INTENT)) from error
            self._apply(after, take, give)
        for name in names_in(join(self.url, METADATA_FOLDER)):
            if name.startswith(_RUN):
                remove(self._own(name))

    def _commit(self, after: _Table, take: list[str], give: list[str]) -> None:
        put(self._own(_INTENT), _dumped({"after": after.to_json(), "take": take, "give": give}))
        _RECORDED()
        self._apply(after, take, give)

    def _apply(self, after: _Table, take: list[str], give: list[str]) -> None:
        """Every step may have been done before."""
        system, path = locate(self.url)
        for file in take:
            self._move(system, file, posixpath.join(path, posixpath.basename(file)))
            _ONE_MOVED()
        if take:
            make_durable(self.url)
        _MOVED()
        for name in give:
            remove(join(self.url, name))
        _REMOVED()
        put(self._own(_STATE), _dumped(after.to_json()))
        _STATED()
        remove(self._own(_INTENT))

    def _move(self, system: pafs.FileSystem, file: str, to: str) -> None:
        with file_errors(self.url):
            staged, taken = system.get_file_info([file, to])
            if staged.type == pafs.FileType.File:
                system.move(file, to)
            elif taken.type != pafs.FileType.File:
                raise Corrupt(self._own(_INTENT), f"{posixpath.basename(file)}, which it takes in, is gone")

    def _empty(self, schema: pa.Schema) -> DataFile:
        """A table without rows still has its columns."""
        url = join(self.folder("empty"), f"empty-{schema_digest(schema)}.parquet")
        system, path = locate(url)
        with file_errors(url):
            system.create_dir(posixpath.dirname(path), recursive=True)
            with pq.ParquetWriter(path, schema, filesystem=system):
                pass
            make_durable(url)
            return DataFile(url, 0, system.get_file_info(path).size or 0, 0)

    def _table(self) -> _Table | None:
        found = self._read(_STATE)
        return None if found is None else _Table.from_json(found, self._own(_STATE))

    def _read(self, name: str) -> dict[str, Any] | None:
        data = get(self._own(name))
        if data is None:
            return None
        try:
            return dict(json.loads(data))
        except (ValueError, TypeError) as error:
            raise _damaged(self._own(name)) from error

    def _own(self, name: str) -> str:
        return join(self.url, METADATA_FOLDER, name)


def _damaged(where: str) -> Corrupt:
    return Corrupt(where, "it isn't what an export wrote there: remove the table's folder and export it again")


def _named(file: DataFile) -> DataFile:
    """As it is called once it is taken in."""
    return DataFile(name_of(file.path), file.rows, file.size_bytes, file.checksum, file.rowids)


def _read_file(found: dict[str, Any]) -> DataFile:
    rowids: list[int] | None = found.pop("rowids")
    return DataFile(**found, rowids=(rowids[0], rowids[1]) if rowids else None)


def _dumped(found: dict[str, Any]) -> bytes:
    return json.dumps(found, indent=1, sort_keys=True).encode()
