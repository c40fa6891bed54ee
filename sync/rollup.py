"""Rollup: the local commits up to a captured end as one set of pages, the newest version of each.

The same record gives the same content to the byte, however often it is made and whatever is committed meanwhile: the
captured versions stay until the push is over (rows.Keep), and the commits' records too. A page is the one that its
newest commit wrote, at that commit's LSN, or Corrupt: what were sent in its place would be everybody's.
"""

from __future__ import annotations

from typing import Final

import lmdb

from ..volume.pageset import PageSet, decode_pages
from . import mapped_memory
from .local_volume import Local
from .rows import AVAILABLE, EMPTY, Rows
from .tables import HERE, Cursor, PushRecord, Txn
from .unpushed_index import UnpushedIndex

_REFRESH_EVERY: Final = 1024
"""Pages read in one LMDB transaction, so that a long push holds back none of the room that commits free meanwhile."""


class Rollup:
    """`skeleton` and `rest` part the pages: the B-tree's skeleton goes into the first frames. Made, read and closed
    where the store's errors are `translated`."""

    def __init__(self, local: Local, push: PushRecord, page_size: int) -> None:
        self.local = local
        self.push = push
        self._rows: Rows = local.rows(page_size)
        self._txn: Txn | None = None
        self._tails: Cursor | None = None
        self._bodies: Cursor | None = None
        self._left = 0
        self._growths = 0
        self._written = UnpushedIndex(push.start, page_size)
        txn = self._renew()
        skeleton = PageSet()
        for lsn, commit in local.commits(txn, push.start, push.end):
            pages = self._written.add(lsn, commit)
            skeleton = (skeleton - pages) | decode_pages(HERE, commit.skeleton)
        self.pages = self._written.pages
        self.skeleton = skeleton & self.pages
        self.rest = self.pages - self.skeleton

    def read(self, page: int) -> bytes:
        """The version that the captured commits leave. Raises Corrupt where that is lost, and LMDB's errors as they
        are: to translate them page by page would take longer than to read."""
        self._left -= 1
        if self._left < 0:
            self._renew()
        try:
            return self._read(page)
        except lmdb.Error:
            if self._growths == self.local.environment.growths:
                raise
        # The map grew meanwhile, which ended the transaction.
        self._txn = None
        self._renew()
        return self._read(page)

    def _read(self, page: int) -> bytes:
        tails, bodies, rows = self._tails, self._bodies, self._rows
        assert tails is not None
        assert bodies is not None
        wanted = rows.key(page, self._written.lsn(page))
        if tails.set_key(wanted):
            value = tails.value()
            if value[:1] == bytes((AVAILABLE,)):
                return rows.page(page, wanted, value, (bodies.get(wanted) or b"") if rows.split else None)
            if rows.check_mark(page, wanted, value) == EMPTY:
                return rows.zeros
        raise rows.lost(page)

    def close(self) -> None:
        txn, self._txn = self._txn, None
        self._tails = self._bodies = None
        if txn is not None:
            txn.abort()

    def _renew(self) -> Txn:
        self.close()
        tables = self.local.environment.tables
        self._growths = self.local.environment.growths
        self._txn = self.local.environment.read()
        self._tails, self._bodies = self._txn.cursor(tables.tails), self._txn.cursor(tables.bodies)
        self._left = _REFRESH_EVERY
        mapped_memory.trim_scanned(self.local.environment.data_path)
        return self._txn
