"""Storage: which objects of the store hold which pages of a snapshot, as rows.

Told from interior pages and the store's indexes, never by reading a table. Every page of the snapshot has its place in
one row at least: in a tree's, or in one for pages that belong to no tree. Whose a chain is only the leaf knows that it
begins in, so the chains of all tables are told together. Where the volume's pages are larger than the database's, one
may hold pages of two tables, and is counted for each.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

from ...sqlite.freelist import trunk
from ...sqlite.header import Header, is_sqlite
from ...sqlite.pointer_map import lock_page, pointer_map_pages
from ...tables.page_source import PageSource, database, read_pages
from ...tables.schema import Schema, read_schema
from ...tables.trees import pages_of, walk
from ...volume.calls import LOCATE, LocateRequest
from ...volume.errors import Corrupt
from ...volume.ids import VolumeId
from ...volume.pageset import PageSet, decode_pages, encode_pages, rescaled, span
from ...volume.wire import SnapshotInfo
from .columnar import batch, needed, schema_of

if TYPE_CHECKING:
    from ...remote.portal import BlockingRemote

FILES: Final = schema_of(
    {
        "table": pa.string(),
        "index": pa.string(),
        "part": needed(pa.string()),
        "object": pa.string(),
        "object_bytes": pa.int64(),
        "volume": pa.string(),
        "pages": needed(pa.int64()),
        "frames": pa.int64(),
        "stored_bytes": pa.int64(),
        "first_lsn": pa.int64(),
        "last_lsn": pa.int64(),
    }
)


class Owned(NamedTuple):
    """Pages of the volume, and what they are."""

    table: str | None
    of_index: str | None
    part: str
    pages: PageSet


def owned(source: PageSource) -> Iterator[Owned]:
    """Every page of the snapshot, by what it belongs to; of a volume that holds no database, all pages at once.
    `source` is in the volume's own pages."""
    everything = span(1, source.page_count)
    if not everything or not is_sqlite(source.read(PageSet((1,)))[1]):
        if everything:
            yield Owned(None, None, "pages", everything)
        return
    inner, header = database(source)
    schema = read_schema(inner, header)
    left = everything.copy()
    for each in _parts(inner, schema):
        pages = rescaled(each.pages, inner.page_size, source.page_size)
        left -= pages
        yield each._replace(pages=pages & everything)
    if left:
        yield Owned(None, None, "overflow", left)


def _parts(source: PageSource, schema: Schema) -> Iterator[Owned]:
    """In pages of the database."""
    header = schema.header
    yield Owned("sqlite_schema", None, "schema", pages_of(walk(source, 1, header)))
    for entry in schema.entries:
        if entry.root:
            index = entry.name if entry.type == "index" else None
            yield Owned(entry.table, index, "index" if index else "table", pages_of(walk(source, entry.root, header)))
    special = {
        "free": _free(source, header),
        "pointer map": pointer_map_pages(header, source.page_count) if header.auto_vacuum else PageSet(),
        "lock": PageSet((lock_page(header.page_size),)) & span(1, source.page_count),
    }
    for part, pages in special.items():
        if pages:
            yield Owned(None, None, part, pages)


def _free(source: PageSource, header: Header) -> PageSet:
    found, at = PageSet(), header.freelist_head
    while at:
        if at in found:
            raise Corrupt("a SQLite database", f"its free list comes to page {at} twice")
        found.add(at)
        at, leaves = trunk(read_pages(source, PageSet((at,)))[at], at, header.usable_bytes)
        found.update(leaves)
    return found & span(1, source.page_count)


class _Sum:
    """What one object holds of some pages."""

    def __init__(self) -> None:
        self.bytes = self.pages = self.frames = self.stored_bytes = 0
        self.lsns: list[int] = []


def files(remote: BlockingRemote, view: SnapshotInfo, each: Owned) -> pa.RecordBatch:
    """A row for each object, and one without an object for pages of zeros, which lie nowhere."""
    found: defaultdict[tuple[str | None, bytes | None], _Sum] = defaultdict(_Sum)
    for vid, lsn, key, size, pages, frames, stored_bytes in placed(remote, view, each.pages, measure=True):
        one = found[key, vid]
        one.bytes = size
        one.pages += len(pages)
        one.frames += frames
        one.stored_bytes += stored_bytes
        one.lsns += [lsn] if lsn else []
    rows = [
        {
            "table": each.table,
            "index": each.of_index,
            "part": each.part,
            "object": key,
            "object_bytes": one.bytes if key else None,
            "volume": str(VolumeId(vid)) if vid else None,
            "pages": one.pages,
            "frames": one.frames if key else None,
            "stored_bytes": one.stored_bytes if key else None,
            "first_lsn": min(one.lsns, default=None),
            "last_lsn": max(one.lsns, default=None),
        }
        for (key, vid), one in found.items()
    ]
    return batch(FILES, rows)


class Placed(NamedTuple):
    """Of pages of zeros there is no more than `pages`."""

    vid: bytes | None
    lsn: int
    object: str | None
    size: int
    pages: PageSet
    frames: int
    stored_bytes: int


def placed(remote: BlockingRemote, view: SnapshotInfo, pages: PageSet, *, measure: bool = False) -> Iterator[Placed]:
    """Where these pages lie; each is told once. Raises NotFound where an older node doesn't know the question."""
    rest = pages
    while rest:
        located = remote.ask(LOCATE, LocateRequest(view.vid, lsn=view.lsn, pages=encode_pages(rest), measure=measure))
        where = f"the answer of {remote.url}"
        before, rest = rest, decode_pages(where, located.rest) if located.rest else PageSet()
        if len(rest) >= len(before):
            raise Corrupt(where, "it says nothing of the pages that were asked for")
        zeros = decode_pages(where, located.zeros)
        if zeros:
            yield Placed(None, 0, None, 0, zeros, 0, 0)
        for one in located.placements:
            held = decode_pages(where, one.pages)
            yield Placed(one.vid, one.lsn, one.object, one.size, held, one.frames, one.stored_bytes)
