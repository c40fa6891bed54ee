"""Rows: the page versions of one volume in the local store.

    key         16 B volume id ‖ u32 page index ‖ u64 ~LSN
    tails       u8 state ‖ 8 B checksum ‖ last 16 bytes of the page
    bodies      the first page_size - 16 bytes, which with LMDB's 16-byte header fill its overflow pages exactly: the
                file is as large as its pages, where a whole page as one value would take twice that (measured)

A page below 4 KiB lies whole in its tail and has no body. States: AVAILABLE; PENDING, its content is the remote's at
the sync point; EMPTY, it holds zeros. The checksum is the xxh3-64 of the page (of the state byte, where there is no
page), seeded with volume, index and LSN: a row that a damaged key or tree leads to is refused like a damaged page.

One version of a page is kept, the newest: older views live in their readers' LMDB transactions, whose pages LMDB reuses
only when the last of them has ended. The exceptions are a version that a push on its way has captured, and a change
that is being staged.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Final, NamedTuple

import xxhash

from ..volume.errors import Corrupt
from ..volume.ids import VolumeId
from ..volume.page import zeros
from ..volume.pageset import PageSet
from .lmdb_open import Tables
from .mapped_memory import WALK_EVERY, trim_scanned
from .tables import HERE, MAX_LSN, Cursor, Txn

AVAILABLE: Final = 1
PENDING: Final = 2
EMPTY: Final = 3

TAIL_BYTES: Final = 16
SPLIT_FROM: Final = 4096
PREFIX: Final = 20
"""Bytes of a key that name volume and page."""

_PLACE: Final = struct.Struct(">IQ")
_PAGE: Final = struct.Struct(">I")
_pack = _PLACE.pack
_digest = xxhash.xxh3_64_digest
_MARKS: Final = {PENDING: bytes((PENDING,)), EMPTY: bytes((EMPTY,))}


class Version(NamedTuple):
    page: int
    lsn: int
    state: int


class Keep(NamedTuple):
    """What a push on its way has captured: of each page the newest version with start < LSN <= end."""

    start: int
    end: int


class Rows:
    """How one volume's rows are named and checked."""

    __slots__ = ("page_size", "path", "prefix", "seed", "split", "zeros")

    def __init__(self, vid: bytes, page_size: int, path: Path) -> None:
        self.prefix = vid
        self.path = path
        self.seed = xxhash.xxh3_64_intdigest(vid)
        self.page_size = page_size
        self.split = page_size - TAIL_BYTES if page_size >= SPLIT_FROM else 0
        self.zeros = zeros(page_size)

    def key(self, page: int, lsn: int) -> bytes:
        return self.prefix + _pack(page, MAX_LSN - lsn)

    def checksum(self, page: int, inverse: int, data: bytes) -> bytes:
        """`inverse` is the key's last eight bytes as a number."""
        return _digest(data, seed=self.seed ^ inverse ^ page << 24)

    def damaged(self, page: int) -> Corrupt:
        return self._corrupt(page, "does not match its checksum")

    def lost(self, page: int) -> Corrupt:
        return self._corrupt(page, "is gone, and it was not pushed yet")

    def unplaced(self, page: int) -> Corrupt:
        return self._corrupt(page, "was written and is not found again; nothing was committed")

    def _corrupt(self, page: int, what: str) -> Corrupt:
        where = f"{HERE} {self.path}"
        return Corrupt(where, f"page {page} of volume {VolumeId(self.prefix)} {what}")

    def page(self, page: int, key: bytes, value: bytes, body: bytes | None) -> bytes:
        """An AVAILABLE row's page; raises Corrupt unless it is what was put."""
        data = value[9:] if body is None else body + value[9:]
        if len(data) != self.page_size or self.checksum(page, int.from_bytes(key[PREFIX:]), data) != value[1:9]:
            raise self.damaged(page)
        return data

    def check_mark(self, page: int, key: bytes, value: bytes) -> int:
        """The state of a row without a page; raises Corrupt unless it is what was put."""
        state = value[0] if value else 0
        mark = _MARKS.get(state)
        if mark is None or value[1:] != self.checksum(page, int.from_bytes(key[PREFIX:]), mark):
            raise self.damaged(page)
        return state


class Editor:
    """The rows of one volume within one write transaction."""

    def __init__(self, rows: Rows, tables: Tables, txn: Txn) -> None:
        self.rows = rows
        self._txn = txn
        self._bodies_table = tables.bodies
        self._tails: Cursor = txn.cursor(tables.tails)
        self._bodies: Cursor = txn.cursor(tables.bodies)

    def put(self, items: Sequence[tuple[int, bytes]], lsn: int) -> None:
        """Pages in ascending order, as versions `lsn`. A page of zeros takes no room."""
        if not items:
            return
        rows, inverse = self.rows, MAX_LSN - lsn
        prefix, split, nothing = rows.prefix, rows.split, rows.zeros
        tails, bodies = self._tails, self._bodies
        # Behind everything else, rows are appended: LMDB then fills its leaves instead of halving them.
        first = prefix + _pack(items[0][0], inverse)
        append = not tails.last() or tails.key() < first
        append_body = append and (not bodies.last() or bodies.key() < first)
        for page, data in items:
            key = prefix + _pack(page, inverse)
            if data == nothing:
                value = b"\3" + rows.checksum(page, inverse, b"\3")
            else:
                value = b"\1" + rows.checksum(page, inverse, data) + data[split:]
                if split:
                    bodies.put(key, data[:split], append=append_body)
            tails.put(key, value, append=append)

    def mark(self, pages: Iterable[int], lsn: int, state: int) -> None:
        """PENDING or EMPTY rows at `lsn`."""
        rows, inverse, mark = self.rows, MAX_LSN - lsn, _MARKS[state]
        for page in pages:
            self._tails.put(rows.prefix + _pack(page, inverse), mark + rows.checksum(page, inverse, mark))

    def check(self, pages: Iterable[int], lsn: int) -> None:
        """Raises Corrupt unless the rows just put at `lsn` are found again: a damaged leaf may take them where no
        reader looks, and what is committed then would be gone.
        """
        rows, tails, bodies = self.rows, self._tails, self._bodies
        inverse, split = MAX_LSN - lsn, rows.split
        for page in pages:
            key = rows.prefix + _pack(page, inverse)
            if not tails.set_key(key) or (split and tails.value()[:1] == b"\1" and not bodies.set_key(key)):
                raise rows.unplaced(page)

    def prune(self, pages: Iterable[int], upto: int, keep: Keep | None, *, newest: bool = True) -> None:
        """Of each page's versions up to `upto` leave only the newest (not even that one unless `newest`), and what
        `keep` says.
        """
        rows, tails = self.rows, self._tails
        inverse = MAX_LSN - upto
        for page in pages:
            start = rows.prefix + _pack(page, inverse)
            spare, captured = newest, keep
            found = tails.set_range(start)
            while found:
                key = tails.key()
                if key[:PREFIX] != start[:PREFIX]:
                    break
                lsn = MAX_LSN - int.from_bytes(key[PREFIX:])
                wanted = spare
                spare = False
                if captured is not None and lsn <= captured.end:
                    wanted = wanted or lsn > captured.start
                    captured = None
                if wanted:
                    found = tails.next()
                else:
                    self._drop_body(key)
                    found = tails.delete()

    def drop(self, pages: Iterable[int], lsn: int) -> None:
        """Remove the versions at exactly `lsn`."""
        for page in pages:
            key = self.rows.key(page, lsn)
            if self._tails.set_key(key):
                self._drop_body(key)
                self._tails.delete()

    def version(self, page: int, upto: int) -> Version | None:
        """The newest version up to `upto`."""
        key = self.rows.key(page, upto)
        if not self._tails.set_range(key):
            return None
        found, value = self._tails.item()
        if found[:PREFIX] != key[:PREFIX]:
            return None
        return Version(page, MAX_LSN - int.from_bytes(found[PREFIX:]), value[0] if value else 0)

    def known(self, pages: PageSet) -> PageSet:
        """Those of `pages` that have any row, markers included: O(the smaller of the two), by leaps over both."""
        return known(self.rows, self._tails, pages)

    def _drop_body(self, key: bytes) -> None:
        if self.rows.split:
            self._txn.delete(key, db=self._bodies_table)


def known(rows: Rows, tails: Cursor, pages: PageSet) -> PageSet:
    """See Editor.known."""
    found = PageSet()
    prefix = rows.prefix
    last = pages.max() if pages else 0
    page = pages.min() if pages else 0
    for step in count(1):
        if not page or not tails.set_range(prefix + _PAGE.pack(page)):
            break
        if step % WALK_EVERY == 0:
            trim_scanned(rows.path)
        key = tails.key()
        if key[:16] != prefix:
            break
        here = int.from_bytes(key[16:PREFIX])
        if here in pages:
            found.add(here)
            here += 1
        page = pages.next_set_bit(here) if here <= last else 0
    return found


def known_after(rows: Rows, tails: Cursor, last: int) -> PageSet:
    """The pages after `last` that have any row."""
    found = PageSet()
    for step, (page, _) in enumerate(_walk(rows, tails, last + 1), 1):
        found.add(page)
        if step % WALK_EVERY == 0:
            trim_scanned(rows.path)
    return found


def newest(rows: Rows, tails: Cursor, upto: int) -> Iterator[tuple[int, bytes, bytes]]:
    """Page, key and value of the newest version up to `upto` of every page that has one, ascending."""
    last = 0
    for page, key in _walk(rows, tails, 0):
        if page != last and MAX_LSN - int.from_bytes(key[PREFIX:]) <= upto:
            last = page
            yield page, key, tails.value()


def _walk(rows: Rows, tails: Cursor, page: int) -> Iterator[tuple[int, bytes]]:
    """Page and key of every row from `page` on."""
    more = tails.set_range(rows.prefix + _PAGE.pack(page))
    while more and (key := tails.key())[:16] == rows.prefix:
        yield int.from_bytes(key[16:PREFIX]), key
        more = tails.next()
