"""Type inference: what the columns hold whose declaration doesn't say it, by a look at some of their rows.

A column of NUMERIC affinity (DATE, DECIMAL, BOOLEAN, STRING …), a BLOB, one without a type and an expression of a query
may hold anything, and in each database it is mostly one thing: dates are text here and seconds there, and `count(*)` is
a number. So they are read as what most of the values met are; INTEGER and REAL are one thing, number:

    TEXT                          string
    BLOB                          binary
    numbers, a REAL among them    double
    INTEGER alone                 long; declared as DECIMAL, NUMERIC or NUMBER double, which takes the fraction that is
                                  still to come, unless one was met that no double equals
    nothing but NULL              string, double for other numbers, binary for a BLOB: `scan_plan.default_target`

Any other value is a mismatch, as in a column that is declared: nothing is turned into what was found.

What is looked at, the same for everyone who reads the snapshot:

    a table, WITHOUT ROWID too     64 KiB of leaves, at least eight: a third of them at its start, in its middle and at
                                   its end each, since neighbours share frames; in one request, no chain is followed
    a view, a query, a virtual     its first 1,000 rows, for which SQLite gets all the pages that it gets for the scan
    table                          itself: so a query whose columns aren't told is answered twice
    a column generated when read   the rows of the first leaf, by SQLite
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from ..sqlite.btree import cells, parse_page
from ..sqlite.header import DATABASE
from ..volume.pageset import PageSet
from .conversion import BLOB, INTEGER, Values
from .general_engine import GeneralEngine, rowid_name
from .leaf_rows import Buffer, Ints, Rows, varints
from .page_source import PageSource, read_pages
from .record_columns import Stored, walk_records
from .scan_plan import Engine, Options, Target, chosen_columns, default_target, has_known_type, make_plan
from .schema import Column, Kind, Relation, Schema
from .splits import GREATEST_ROWID, LEAST_ROWID
from .trees import Tree, walk

SAMPLE_BYTES: Final = 64 * 1024
LEAST_LEAVES: Final = 8
RUNS: Final = 3
ROWS: Final = 1000
_FRACTIONS: Final = ("DEC", "NUMERIC", "NUMBER")


@dataclass(slots=True)
class _Counts:
    """How many values of each class were met, and whether an INTEGER among them equals no double."""

    of_class: Ints = field(default_factory=lambda: np.zeros(BLOB + 1, np.int64))
    beyond: bool = False

    def add(self, classes: npt.NDArray[np.uint8], values: Values | None = None) -> None:
        self.of_class += np.bincount(classes, minlength=BLOB + 1)
        if values is not None:
            large = [int(each) for each in values.integers()[classes == INTEGER] if abs(int(each)) > 1 << 53]
            self.beyond |= any(int(float(each)) != each for each in large)

    def target(self, column: Column) -> Target:
        _, integers, reals, texts, blobs = self.of_class.tolist()
        most = max(integers + reals, texts, blobs)
        if most == 0:
            return default_target(column)
        if most == integers + reals:
            fractions = any(part in column.declared.upper() for part in _FRACTIONS)
            return Target.DOUBLE if reals or (fractions and not self.beyond) else Target.LONG
        return Target.STRING if most == texts else Target.BINARY


def infer_types(
    source: PageSource,
    schema: Schema,
    relation: Relation,
    options: Options | None = None,
    columns: Sequence[str] | None = None,
    directory: Path | None = None,
) -> Options:
    """The options with all that `make_plan` needs for these columns, all unless named. Reads nothing where every column
    is told, or was looked at already.

    Raises NotFound, and for what is read Corrupt, Unsupported, BadInput, as a scan.
    """
    options = options or Options()
    wanted = [
        column
        for column in chosen_columns(relation, columns)
        if column.name not in options.inferred and not has_known_type(column, options)
    ]
    if not wanted:
        return options
    counts = {column.name: _Counts() for column in wanted}
    has_tree = relation.kind in (Kind.TABLE, Kind.SHADOW) and relation.root > 1
    lying = [column for column in wanted if has_tree and column.stored >= 0]
    computed = [column for column in wanted if column not in lying]
    tree = walk(source, relation.root, schema.header) if has_tree else None
    if tree and lying:
        _count_in_leaves(source, schema, relation, tree, lying, counts)
    if computed:
        _count_by_sqlite(source, schema, relation, tree, computed, counts, directory)
    return replace(options, inferred={**options.inferred, **{c.name: counts[c.name].target(c) for c in wanted}})


def _count_in_leaves(
    source: PageSource,
    schema: Schema,
    relation: Relation,
    tree: Tree,
    columns: list[Column],
    counts: dict[str, _Counts],
) -> None:
    rows = _rows_of(source, schema, _sample(tree, source.page_size))
    places = _places(relation)
    wanted = {places[column.name] for column in columns}
    whole = rows.select(rows.local == rows.size)
    fields = walk_records(whole, wanted, DATABASE)
    for column in columns:
        values = Stored(whole.buffer, fields[places[column.name]], column)
        counts[column.name].add(values.classes, values)
    # Of rows with a chain the header tells classes, where it lies in the page itself.
    long = rows.select(rows.local < rows.size)
    head, after = varints(long.buffer, long.at)
    long = long.select((head >= 0) & (head <= long.local) & (after <= long.at + long.local))
    fields = walk_records(long, wanted, DATABASE, check_ends=False)
    for column in columns:
        counts[column.name].add(fields[places[column.name]].stored_classes())


def _sample(tree: Tree, page_size: int) -> list[int]:
    count, leaves = max(LEAST_LEAVES, SAMPLE_BYTES // page_size), len(tree.leaves)
    if leaves <= count:
        return list(tree.leaves)
    # Runs of nearly one length; the room between them is the same everywhere.
    starts = [run * (leaves - count) // (RUNS - 1) + run * count // RUNS for run in range(RUNS)]
    ends = [start + (run + 1) * count // RUNS - run * count // RUNS for run, start in enumerate(starts)]
    return [tree.leaves[place] for start, end in zip(starts, ends, strict=True) for place in range(start, end)]


def _rows_of(source: PageSource, schema: Schema, leaves: list[int]) -> Rows:
    """What lies in the leaves themselves, of either kind of tree."""
    found = [
        (number, cell)
        for number, page in read_pages(source, PageSet(leaves)).items()
        for cell in cells(page, parse_page(page, number), schema.header.usable_bytes)
    ]
    local: Ints = np.array([len(cell.local) for _, cell in found], np.int64)
    return Rows(
        Buffer([cell.local for _, cell in found]),
        np.array([number for number, _ in found], np.int64),
        np.array([cell.rowid or 0 for _, cell in found], np.int64),
        np.cumsum(local) - local,
        np.array([cell.payload_bytes for _, cell in found], np.int64),
        local,
    )


def _places(relation: Relation) -> dict[str, int]:
    """Where in a record each column lies: WITHOUT ROWID the primary key comes first."""
    if not relation.without_rowid:
        return {column.name: column.stored for column in relation.columns}
    stored = [column for column in relation.columns if column.stored >= 0]
    order = [*relation.key, *(column for column in stored if not column.key_place)]
    return {column.name: place for place, column in enumerate(order)}


def _count_by_sqlite(
    source: PageSource,
    schema: Schema,
    relation: Relation,
    tree: Tree | None,
    columns: list[Column],
    counts: dict[str, _Counts],
    directory: Path | None,
) -> None:
    plan = make_plan(schema, relation, columns=[column.name for column in columns], engine=Engine.GENERAL)
    rowids = None
    if tree and tree.table and rowid_name(relation) is not None:
        rowids = (LEAST_ROWID, tree.bounds[0] if len(tree.bounds) else GREATEST_ROWID)
    for name, values in GeneralEngine(source, schema, plan, directory).first(ROWS, rowids).items():
        if name in counts:
            counts[name].add(values.classes, values)
