"""Rollup: the local commits up to a captured end as one set of pages, the newest version of each.

The same record gives the same content to the byte, however often it is made and whatever is committed meanwhile: the
captured versions stay until the push is over (rows.Keep), and the commits' records too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..volume.errors import Corrupt
from ..volume.pageset import PageSet, beyond, decode_pages, page_count
from . import residency
from .environment import translated
from .local import Local
from .rows import AVAILABLE, EMPTY, PREFIX, Rows
from .tables import PushRecord

if TYPE_CHECKING:
    from .environment import Cursor, Txn

__all__ = ["Rollup"]

_REFRESH_EVERY: Final = 1024
"""Pages read in one LMDB transaction, so that a long push holds back none of the room that commits free meanwhile."""


class Rollup:
    """`skeleton` and `rest` part the pages: the B-tree's skeleton goes into the first frames. Close it."""

    def __init__(self, local: Local, push: PushRecord, page_size: int) -> None:
        self.local = local
        self.push = push
        self._rows: Rows = local.rows(page_size)
        self._txn: Txn | None = None
        self._tails: Cursor | None = None
        self._bodies: Cursor | None = None
        self._left = 0
        txn = self._renew()
        pages, skeleton = PageSet(), PageSet()
        with translated():
            for _, commit in local.commits(txn, push.start, push.end):
                written = decode_pages("local store", commit.pages)
                gone = beyond(pages, page_count(commit.floor, page_size)) | written
                pages = (pages - gone) | written
                skeleton = (skeleton - gone) | decode_pages("local store", commit.skeleton)
        self.pages = pages
        self.skeleton = skeleton & pages
        self.rest = pages - self.skeleton

    def read(self, page: int) -> bytes:
        """The newest version up to the captured end. Raises Corrupt where that is lost."""
        with translated():
            return self._read(page)

    def _read(self, page: int) -> bytes:
        self._left -= 1
        if self._left < 0:
            self._renew()
        tails, bodies, rows = self._tails, self._bodies, self._rows
        assert tails is not None
        assert bodies is not None
        wanted = rows.key(page, self.push.end)
        if tails.set_range(wanted):
            key, value = tails.item()
            # ~LSN sorts the newest first: above the key of `start` there is nothing that a commit wrote.
            if key[:PREFIX] == wanted[:PREFIX] and key < rows.key(page, self.push.start):
                if value[:1] == bytes((AVAILABLE,)):
                    return rows.page(page, key, value, (bodies.get(key) or b"") if rows.split else None)
                if rows.check_mark(page, key, value) == EMPTY:
                    return rows.zeros
        raise Corrupt("local store", f"page {page} of volume {self.local.vid} is gone, and it was not pushed yet")

    def close(self) -> None:
        txn, self._txn = self._txn, None
        self._tails = self._bodies = None
        if txn is not None:
            txn.abort()

    def _renew(self) -> Txn:
        self.close()
        tables = self.local.environment.tables
        self._txn = self.local.environment.read()
        self._tails, self._bodies = self._txn.cursor(tables.tails), self._txn.cursor(tables.bodies)
        self._left = _REFRESH_EVERY
        residency.stream(self.local.environment.data_path)
        return self._txn
