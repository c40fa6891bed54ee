"""Table selection: which tables of which volumes are exported, each as of its volume's LSN.

Volumes are named, or matched by a pattern as a shell's, or all that the remote has a name for. What of these holds no
database, or lacks a table that was asked for, is passed over and said; a volume that was named must have it.

Tables are all that a user made: not views, not virtual tables and what these keep their rows in, unless one is named.

The key of a table, by which later exports know its rows again:

    INTEGER PRIMARY KEY      that column
    WITHOUT ROWID            its primary key
    any other table          a further first column `_rowid`, which holds SQLite's own key of a row. (VACUUM may give
                             rows new ones; the next export then finds them changed.)
    a view, a virtual table  none: it is always written whole
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Final

import pyarrow as pa
import xxhash

from ...sqlite.names import same_name
from ...tables.page_source import PageSource, database
from ...tables.scan_plan import Options, make_plan
from ...tables.schema import Kind, Relation, Schema, read_relation, read_schema
from ...tables.type_inference import infer_types
from ...volume.calls import LIST_NAMES, NamesRequest
from ...volume.errors import BadInput, BudwoodError, NotFound
from ...volume.ids import VolumeId, is_pattern
from ...volume.name_attributes import is_of_volume
from ...volume.wire import NameEntry, SnapshotInfo
from ..source.lease import Lease, take_lease
from ..source.page_reader import open_volume
from ..source.volume_ref import VolumeRef, find_volume_ref
from .arrow import fields
from .target import schema_digest

_OWNER: Final = "an export"
_SAFE: Final = re.compile(r"[^\w.\-]|^[_.]")
_ROWID: Final = "_rowid"
_LONGEST: Final = 240
"""Bytes of a folder's name: file systems take 255."""
_KEPT: Final = 200


@dataclass(frozen=True, slots=True)
class ChosenVolume:
    ref: VolumeRef
    named: bool
    """Not only matched by a pattern: the tables that were named must be there."""


@dataclass(frozen=True, slots=True)
class Selection:
    """What is exported of each volume: tables, all unless named; and as of which LSN, time or label, the newest unless
    one is given. It pickles."""

    tables: tuple[str, ...] = ()
    lsn: int | None = None
    at_ms: int | None = None
    label: str = ""
    options: Options = field(default_factory=Options)
    lease_seconds: float = 3600.0


@dataclass(frozen=True, slots=True)
class SourceTable:
    """One table of one volume, as of one LSN; it pickles."""

    ref: VolumeRef
    view: SnapshotInfo
    name: str
    schema: pa.Schema
    columns: str
    """The schema's digest, and how values are read that aren't of their column's class."""
    key: tuple[str, ...]
    rowid: str | None
    """The name of the further column."""
    by_rowid: bool
    """Its rows lie in the order of their rowids, and each is in the export."""
    options: Options
    lease: Lease


@dataclass(frozen=True, slots=True)
class FailedTable:
    """A table that can't be exported, and why."""

    name: str
    error: BudwoodError


@dataclass(frozen=True, slots=True)
class SurveyedVolume:
    """One volume. `skipped` says why nothing of it is exported, or nothing."""

    ref: VolumeRef
    lsn: int
    tables: tuple[SourceTable, ...] = ()
    failed: tuple[FailedTable, ...] = ()
    lease: Lease | None = None
    skipped: str = ""


def choose(
    names: Sequence[str], *, every: bool = False, remote: str | None = None, home: str | None = None, token: str | None
) -> Iterator[ChosenVolume | tuple[str, BudwoodError]]:
    """The volumes, each once; or a name and why it leads to none. Raises BadInput where nothing is named."""
    if bool(names) == every:
        raise BadInput("name the volumes to export, or say that it is all of them")
    seen: set[str] = set()
    patterns: list[str] = ["*"] if every else []
    for name in dict.fromkeys(names):
        if is_pattern(name):
            patterns.append(name)
            continue
        seen.add(name)
        try:
            yield ChosenVolume(find_volume_ref(name, remote=remote, home=home, token=token), named=True)
        except BudwoodError as error:
            yield name, error
    if patterns:
        yield from _matching(patterns, seen, remote, token)


def _matching(patterns: list[str], seen: set[str], remote: str | None, token: str | None) -> Iterator[ChosenVolume]:
    matched = set[str]()
    if not (remote or os.environ.get("BUDWOOD_REMOTE")):
        raise BadInput("a home's volumes are exported by name, one by one; patterns and --all need a remote: name it")
    # Any id will do for asking a remote after its names.
    server = find_volume_ref(str(VolumeId.new()), remote=remote, token=token)
    for entry in _names(server):
        # A name may look like a pattern.
        fitting = [pattern for pattern in patterns if pattern == entry.name or fnmatchcase(entry.name, pattern)]
        matched.update(fitting)
        if fitting and entry.name not in seen:
            yield ChosenVolume(replace(server, vid=VolumeId(entry.target), name=entry.name), named=False)
    for pattern in patterns:
        if pattern not in matched:
            raise NotFound(f"{server.remote} has no volume whose name matches {pattern!r}: `budwood ls --remote` lists")


def _names(ref: VolumeRef) -> Iterator[NameEntry]:
    """Of volumes: a mount's folders and links have names, too."""
    remote, after = open_volume(ref).remote, ""
    while True:
        page = remote.ask(LIST_NAMES, NamesRequest(after=after))
        yield from filter(is_of_volume, page.entries)
        if not page.next:
            return
        after = page.next


def survey(chosen: ChosenVolume, selection: Selection) -> SurveyedVolume:
    """What of a volume is to be exported, with a lease on the LSN that it is exported at. Runs anywhere."""
    ref = chosen.ref
    volume = open_volume(ref)
    try:
        view = volume.snapshot(lsn=selection.lsn, at_ms=selection.at_ms, label=selection.label)
    except NotFound as error:
        if chosen.named or not (selection.label or selection.at_ms is not None):
            raise
        return SurveyedVolume(ref, 0, skipped=str(error))
    try:
        if view.lsn == 0:
            raise BadInput("it has no commits yet" if selection.at_ms is None else "it had no commits then")
        source, header = database(volume.pages(view))
    except BadInput as error:
        if chosen.named:
            raise BadInput(f"volume {ref.name!r} can't be exported: {error}") from error
        return SurveyedVolume(ref, view.lsn, skipped=str(error))
    lease = take_lease(ref, view.lsn, selection.lease_seconds, _OWNER)
    try:
        schema = read_schema(source, header)
        tables: list[SourceTable] = []
        failed: list[FailedTable] = []
        for name in selection.tables or schema.tables():
            try:
                relation = read_relation(source, schema, name)
                listed = any(table.name == relation.name for table in tables)
                if not listed and (selection.tables or relation.kind == Kind.TABLE):
                    tables.append(_source_table(ref, view, (source, schema, relation), selection.options, lease))
            except NotFound as error:
                if chosen.named:
                    failed.append(FailedTable(name, error))
            except BudwoodError as error:
                failed.append(FailedTable(name, error))
    except BaseException:
        lease.release()
        raise
    none = "it has none of the tables that were asked for" if selection.tables else "it has no tables"
    return SurveyedVolume(ref, view.lsn, tuple(tables), tuple(failed), lease, "" if tables or failed else none)


def _source_table(
    ref: VolumeRef, view: SnapshotInfo, described: tuple[PageSource, Schema, Relation], options: Options, lease: Lease
) -> SourceTable:
    source, schema, relation = described
    # Types are named for columns of any of the tables.
    types = {name: kind for name, kind in options.types.items() if _has(relation, name)}
    # What was found goes along: all parts of an export read the same types.
    options = infer_types(source, schema, relation, replace(options, types=types))
    key, rowid = key_of(relation)
    plan = make_plan(schema, relation, options=options, rowid=rowid)
    types_read = {field.name: field.type for field in fields(plan.schema)}
    return SourceTable(
        ref=ref,
        view=view,
        name=relation.name,
        schema=plan.schema,
        columns=f"{schema_digest(plan.schema)} {options.mismatch}",
        key=key,
        rowid=rowid,
        by_rowid=bool(key) and not relation.without_rowid and types_read[key[0]] == pa.int64(),
        options=options,
        lease=lease,
    )


def _has(relation: Relation, name: str) -> bool:
    return any(same_name(column.name, name) for column in relation.columns)


def key_of(relation: Relation) -> tuple[tuple[str, ...], str | None]:
    """The columns of its key, and the name of the one that is added for it, if any."""
    if relation.kind not in (Kind.TABLE, Kind.SHADOW) or relation.root == 0:
        return (), None
    if relation.without_rowid:
        return tuple(column.name for column in relation.key), None
    for column in relation.columns:
        if column.rowid:
            return (column.name,), None
    name, number = _ROWID, 1
    while _has(relation, name):
        number += 1
        name = f"{_ROWID}_{number}"
    return (name,), name


def folder_name(name: str) -> str:
    """A folder's name for a volume's or a table's: no two have the same, and none is one that readers pass over or
    take for a partition's. What isn't a letter, a digit, `.`, `-` or `_` becomes ~ and its bytes in hex; of a name that
    is then too long for a folder the rest is a digest; one without a letter is ~ alone."""
    if not name:
        return "~"
    safe = _SAFE.sub(lambda found: "".join(f"~{byte:02X}" for byte in found[0].encode()), name)
    if len(safe.encode()) <= _LONGEST:
        return safe
    # Of a letter of several bytes, none is kept alone.
    return f"{safe.encode()[:_KEPT].decode(errors='ignore')}~~{xxhash.xxh3_128_hexdigest(name.encode())}"
