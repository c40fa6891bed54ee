"""Units: which tables of which volumes are exported. A unit is one table of one volume, as of one LSN.

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
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Final

import pyarrow as pa
import xxhash

from ...tables.page_source import PageSource, database
from ...tables.scan_plan import Options, make_plan
from ...tables.schema import Kind, Relation, Schema, read_relation, read_schema, same_name
from ...tables.type_inference import looked
from ...volume.calls import LIST_NAMES, NamesRequest
from ...volume.errors import BadInput, BudwoodError, NotFound
from ...volume.ids import VolumeId
from ...volume.wire import NameEntry, SnapshotInfo
from ..source.hold import Hold, hold
from ..source.page_reader import reach
from ..source.place import Place, find
from .arrow import fields
from .target import schema_digest

__all__ = ["Asked", "Chosen", "Lost", "Surveyed", "Unit", "choose", "folder_name", "is_pattern", "key_of", "survey"]

_OWNER: Final = "an export"
_PATTERN: Final = re.compile(r"[*?\[]")
_SAFE: Final = re.compile(r"[^\w.\-]|^[_.]")
_ROWID: Final = "_rowid"
_LONGEST: Final = 240
"""Bytes of a folder's name: file systems take 255."""
_KEPT: Final = 200


@dataclass(frozen=True, slots=True)
class Chosen:
    place: Place
    named: bool
    """Not only matched: what is asked for must be there."""


@dataclass(frozen=True, slots=True)
class Asked:
    """Of each volume; it pickles."""

    tables: tuple[str, ...] = ()
    lsn: int | None = None
    at_ms: int | None = None
    options: Options = field(default_factory=Options)
    lease_seconds: float = 3600.0


@dataclass(frozen=True, slots=True)
class Unit:
    """It pickles."""

    place: Place
    view: SnapshotInfo
    table: str
    schema: pa.Schema
    columns: str
    """The schema's digest, and how values are read that aren't of their column's class."""
    key: tuple[str, ...]
    rowid: str | None
    """The name of the further column."""
    by_rowid: bool
    """Its rows lie in the order of their rowids, and each is in the export."""
    options: Options
    hold: Hold


@dataclass(frozen=True, slots=True)
class Lost:
    """A table that can't be exported, and why."""

    table: str
    error: BudwoodError


@dataclass(frozen=True, slots=True)
class Surveyed:
    """One volume. `skipped` says why nothing of it is exported, or nothing."""

    place: Place
    lsn: int
    units: tuple[Unit, ...] = ()
    lost: tuple[Lost, ...] = ()
    hold: Hold | None = None
    skipped: str = ""


def choose(
    names: Sequence[str], *, every: bool = False, remote: str | None = None, home: str | None = None, token: str | None
) -> Iterator[Chosen | tuple[str, BudwoodError]]:
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
            yield Chosen(find(name, remote=remote, home=home, token=token), named=True)
        except BudwoodError as error:
            yield name, error
    if patterns:
        yield from _matching(patterns, seen, remote, token)


def _matching(patterns: list[str], seen: set[str], remote: str | None, token: str | None) -> Iterator[Chosen]:
    matched = set[str]()
    if not (remote or os.environ.get("BUDWOOD_REMOTE")):
        raise BadInput("a home's volumes are exported by name, one by one; patterns and --all need a remote: name it")
    # Any id will do for asking a remote after its names.
    asked = find(str(VolumeId.new()), remote=remote, token=token)
    for entry in _names(asked):
        fitting = [pattern for pattern in patterns if fnmatchcase(entry.name, pattern)]
        matched.update(fitting)
        if fitting and entry.name not in seen:
            yield Chosen(replace(asked, vid=VolumeId(entry.target), name=entry.name), named=False)
    for pattern in patterns:
        if pattern not in matched:
            raise NotFound(f"{asked.remote} has no volume whose name matches {pattern!r}: `budwood ls --remote` lists")


def _names(place: Place) -> Iterator[NameEntry]:
    """Of volumes: a mount's folders and links have names, too."""
    remote, after = reach(place).remote, ""
    while True:
        page = remote.ask(LIST_NAMES, NamesRequest(after=after))
        for entry in page.entries:
            mode = entry.attributes.get("mode", stat.S_IFREG)
            if isinstance(mode, int) and stat.S_ISREG(mode):
                yield entry
        if not page.next:
            return
        after = page.next


def is_pattern(name: str) -> bool:
    return _PATTERN.search(name) is not None


def survey(chosen: Chosen, asked: Asked) -> Surveyed:
    """What of a volume is to be exported, with a lease on the LSN that it is exported at. Runs anywhere."""
    place = chosen.place
    reached = reach(place)
    try:
        view = reached.snapshot(lsn=asked.lsn, at_ms=asked.at_ms)
    except NotFound as error:
        if chosen.named or asked.at_ms is None:
            raise
        return Surveyed(place, 0, skipped=str(error))
    try:
        if view.lsn == 0:
            raise BadInput("it has no commits yet" if asked.at_ms is None else "it had no commits then")
        source, header = database(reached.pages(view))
    except BadInput as error:
        if chosen.named:
            raise BadInput(f"volume {place.name!r} can't be exported: {error}") from error
        return Surveyed(place, view.lsn, skipped=str(error))
    lease = hold(place, view.lsn, asked.lease_seconds, _OWNER)
    try:
        schema = read_schema(source, header)
        units: list[Unit] = []
        lost: list[Lost] = []
        for table in asked.tables or schema.names():
            try:
                relation = read_relation(source, schema, table)
                again = any(unit.table == relation.name for unit in units)
                if not again and (asked.tables or relation.kind == Kind.TABLE):
                    units.append(_unit(place, view, (source, schema, relation), asked.options, lease))
            except NotFound as error:
                if chosen.named:
                    lost.append(Lost(table, error))
            except BudwoodError as error:
                lost.append(Lost(table, error))
    except BaseException:
        lease.release()
        raise
    none = "it has none of the tables that were asked for" if asked.tables else "it has no tables"
    return Surveyed(place, view.lsn, tuple(units), tuple(lost), lease, "" if units or lost else none)


def _unit(
    place: Place, view: SnapshotInfo, described: tuple[PageSource, Schema, Relation], options: Options, lease: Hold
) -> Unit:
    source, schema, relation = described
    # Types are named for columns of any of the tables.
    types = {name: kind for name, kind in options.types.items() if _has(relation, name)}
    # What was found goes along: all parts of an export read the same types.
    options = looked(source, schema, relation, replace(options, types=types))
    key, rowid = key_of(relation)
    plan = make_plan(schema, relation, options=options, rowid=rowid)
    types_read = {field.name: field.type for field in fields(plan.schema)}
    return Unit(
        place=place,
        view=view,
        table=relation.name,
        schema=plan.schema,
        columns=f"{schema_digest(plan.schema)} {options.mismatch}",
        key=key,
        rowid=rowid,
        by_rowid=bool(key) and not relation.without_rowid and types_read[key[0]] == pa.int64(),
        options=options,
        hold=lease,
    )


def _has(relation: Relation, name: str) -> bool:
    return any(same_name(column.name, name) for column in relation.columns)


def key_of(relation: Relation) -> tuple[tuple[str, ...], str | None]:
    """The columns of its key, and the name of the one that is added for it, if any."""
    if relation.kind not in (Kind.TABLE, Kind.SHADOW) or relation.root == 0:
        return (), None
    if relation.without_rowid:
        keys = sorted((column for column in relation.columns if column.key_place), key=lambda column: column.key_place)
        return tuple(column.name for column in keys), None
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
