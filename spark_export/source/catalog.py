"""Catalog: the tables of a snapshot's database, as rows.

Told from interior pages and a few leaves, never by reading a table. So `rows` and `overflow_pages` are counted where a
tree has few leaves, and projected from evenly spaced ones where it has many: `exact` says which.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from ...sqlite.btree import cells, parse_page
from ...sqlite.header import Header
from ...sqlite.overflow import chain_pages
from ...tables.page_source import PageSource, read_pages
from ...tables.scan_plan import Options, Plan, Reading, Target, has_known_type, make_plan
from ...tables.schema import Entry, Generated, Kind, Relation, Schema, read_relation
from ...tables.trees import Tree, walk
from ...tables.type_inference import infer_types
from ...volume.errors import BudwoodError, StoreError
from ...volume.pageset import PageSet
from .columnar import batch, list_of, needed, schema_of

SAMPLE_LEAVES: Final = 32
"""Leaves of one tree that are read."""
LARGE_BYTES: Final = 256 * 1024 * 1024
"""A virtual table's columns are asked of its module, which reads what it likes: not where the snapshot is larger."""

_COLUMNS: Final = list_of(
    {
        "name": needed(pa.string()),
        "declared": needed(pa.string()),
        "type": pa.string(),
        "not_null": needed(pa.bool_()),
        "key": pa.int32(),
        "collation": needed(pa.string()),
        "generated": needed(pa.bool_()),
    }
)
TABLES: Final = schema_of(
    {
        "name": needed(pa.string()),
        "kind": needed(pa.string()),
        "columns": _COLUMNS,
        "without_rowid": pa.bool_(),
        "strict": pa.bool_(),
        "engine": pa.string(),
        "reason": needed(pa.string()),
        "root": pa.int64(),
        "interior_pages": pa.int64(),
        "leaf_pages": pa.int64(),
        "overflow_pages": pa.int64(),
        "index_pages": pa.int64(),
        "bytes": pa.int64(),
        "rows": pa.int64(),
        "exact": pa.bool_(),
        "sql": pa.string(),
    }
)


@dataclass(frozen=True, slots=True)
class Size:
    """A tree's, in pages and rows."""

    interior: int
    leaves: int
    overflow: int
    rows: int
    exact: bool


def tables(source: PageSource, schema: Schema, names: Sequence[str]) -> pa.RecordBatch:
    """These tables and views; `source` in pages of the database's size. Raises StoreErrors."""
    return batch(TABLES, [_table(source, schema, name) for name in names])


def _table(source: PageSource, schema: Schema, name: str) -> dict[str, object]:
    entry = schema.entry(name)
    assert entry is not None
    row: dict[str, object] = {"name": name, "kind": _kind(entry), "sql": entry.sql or None}
    if entry.root == 0 and schema.has_virtual_tables and source.page_count * source.page_size > LARGE_BYTES:
        # A view may stand on a virtual table: that can't be told without its module either.
        row |= {"engine": "general", "reason": "its columns are not asked for: that might read all of a large snapshot"}
        return row
    try:
        relation = read_relation(source, schema, name)
        # A view would have to be answered, and a module asked: too much for a list of tables.
        options = infer_types(source, schema, relation) if entry.root else Options()
        plan = make_plan(schema, relation, options=options)
    except StoreError:
        raise
    except BudwoodError as error:
        # A module that isn't here, a view on a table that is gone: there is such a table, and nobody can read it.
        return row | {"reason": str(error)}
    row |= {
        "kind": str(relation.kind),
        "columns": _columns(relation, plan),
        "without_rowid": relation.without_rowid,
        "strict": relation.strict,
        "engine": str(plan.engine),
        "reason": plan.reason,
    }
    return row | _sizes(source, schema, entry) if entry.root else row


def _kind(entry: Entry) -> str:
    if entry.root == 0:
        return str(Kind.VIEW if entry.type == "view" else Kind.VIRTUAL)
    return str(Kind.TABLE)


def _columns(relation: Relation, plan: Plan) -> list[dict[str, object]]:
    return [
        {
            "name": reading.column.name,
            "declared": reading.column.declared,
            "type": _type(reading) if relation.root or has_known_type(reading.column, Options()) else None,
            "not_null": reading.column.not_null,
            "key": reading.column.key_place or None,
            "collation": reading.column.collation,
            "generated": reading.column.generated in (Generated.VIRTUAL, Generated.STORED),
        }
        for reading in plan.readings
    ]


def _type(reading: Reading) -> str:
    if reading.target is Target.DECIMAL:
        return f"decimal({reading.precision},{reading.scale})"
    return str(reading.target)


def _sizes(source: PageSource, schema: Schema, entry: Entry) -> dict[str, object]:
    own = _size(source, entry.root, schema.header)
    indexes = [_size(source, root, schema.header) for root in schema.roots_of(entry.name) if root != entry.root]
    pages = own.interior + own.leaves + own.overflow
    return {
        "root": entry.root,
        "interior_pages": own.interior,
        "leaf_pages": own.leaves,
        "overflow_pages": own.overflow,
        "index_pages": sum(index.interior + index.leaves + index.overflow for index in indexes),
        "bytes": pages * source.page_size,
        "rows": own.rows,
        "exact": own.exact and all(index.exact for index in indexes),
    }


def _size(source: PageSource, root: int, header: Header) -> Size:
    """Of the interior pages of an index all rows are counted, since every one was read."""
    counted = [0, 0]

    def visit(number: int, page: bytes) -> None:
        parsed = parse_page(page, number)
        if not parsed.kind.table:
            _count(page, number, header, counted)

    tree = walk(source, root, header, visit)
    sample = _sample(tree)
    below = [0, 0]
    for number, page in read_pages(source, PageSet(sample)).items():
        _count(page, number, header, below)
    rows, overflow = (
        inner + round(number * len(tree.leaves) / len(sample)) for inner, number in zip(counted, below, strict=True)
    )
    return Size(len(tree.interior), len(tree.leaves), overflow, rows, len(sample) == len(tree.leaves))


def _sample(tree: Tree) -> list[int]:
    count = min(SAMPLE_LEAVES, len(tree.leaves))
    return [tree.leaves[place * len(tree.leaves) // count] for place in range(count)]


def _count(page: bytes, number: int, header: Header, counted: list[int]) -> None:
    """Add a page's rows, and the pages of their chains."""
    for cell in cells(page, parse_page(page, number), header.usable_bytes):
        counted[0] += 1
        if cell.overflow:
            counted[1] += chain_pages(cell.payload_bytes - len(cell.local), header.usable_bytes)
