"""Scan: pages read ahead from the local store while a reader goes through a volume in order.

A lone read costs two look-ups and the Python around them; a batch walks both tables side by side and pays for that
once. A table's leaves lie one after the other but for the odd interior page, so a read one or two pages behind the
last one counts as going on, and the fourth in a row starts a batch. What is held is at most `BATCH_BYTES` of pages,
all of the snapshot's own view.

The walk looks at no key. A row's checksum is seeded with its volume, page and LSN, so a page that matches under the LSN
of the row before it *is* the next page at that LSN, and, since newer versions come first, the newest there is; unless
damage took that away, which the unpushed commits' records tell. Whatever doesn't match (another LSN, a marker, damage)
ends the batch and is left to the ordinary read, which knows what to say.

A checksum costs as much as all the rest of a page. So the environment keeps, of one version of LMDB (its transaction's
number), from which rows on how many were found whole (`Environment.verified`): a walk of the same rows in the same
version need not look at them twice. Any write to LMDB ends that, and so does its being closed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import islice, repeat
from typing import Final

import xxhash

from ..sqlite.btree import INTERIOR
from ..sqlite.key_order import SEEN
from .journal_tail import PageVersions
from .recency import AGAIN, ASKED, Recency
from .rows import PREFIX, Rows
from .tables import MAX_LSN, Cursor
from .unpushed_index import UnpushedIndex

BATCH_BYTES: Final = 256 * 1024
_STREAK: Final = 4
_STEP: Final = 2
_PATIENCE: Final = 64
"""After a batch of nothing, so many reads go by before the next try."""

_digest = xxhash.xxh3_64_digest


class Scan:
    __slots__ = ("_base", "_recency", "_streak", "held", "last", "seen")

    def __init__(self, held: dict[int, bytes], recency: Recency | None = None, vid: bytes = b"") -> None:
        """`recency` is told what is read out of order: by it the cache knows what to keep."""
        self._recency = recency
        self._base = 0 if recency is None else recency.base(vid)
        self.held = held
        """Read ahead and not asked for yet."""
        self.last = 0
        """The page that was read last; while some are held, or were, the last of those."""
        self.seen = deque[int](maxlen=SEEN)
        """Of the pages that were read those that lie above others in a B-tree, newest last."""
        self._streak = 0

    def goes_on(self, page: int, data: bytes) -> bool:
        """Note a read that `held` could not answer, and what it found: is it part of a scan?"""
        if data[0] in INTERIOR:
            self.seen.append(page)
        if not 0 < page - self.last <= _STEP:
            self._streak = min(self._streak, 0)
            if self._recency is not None:
                self._recency.marks[self._base + page & self._recency.mask] = AGAIN
        self._streak += 1
        self.last = page
        return self._streak >= _STREAK

    def came(self, page: int, data: bytes) -> None:
        """A page that was fetched because it was asked for, and not along a scan's way."""
        if data[0] in INTERIOR:
            self.seen.append(page)
        if self._recency is not None:
            at = self._base + page & self._recency.mask
            self._recency.marks[at] = self._recency.marks[at] or ASKED

    def read_ahead(
        self,
        tails: Cursor,
        bodies: Cursor,
        rows: Rows,
        page: int,
        key: bytes,
        written: UnpushedIndex | None,
        verified: dict[bytes, int],
    ) -> int:
        """Hold the pages behind `page`, at whose row, `key`, `tails` stands and `bodies` too. Returns how many."""
        held = self.held
        held.clear()
        if not tails.next() or (rows.split and not bodies.next()):
            return 0
        ends = tails.iternext(keys=False)
        starts = bodies.iternext(keys=False) if rows.split else repeat(b"")
        known = verified.get(key)
        if known is None:
            # Up to the next multiple: wherever a walk begins, its batches soon are those of the walks before it.
            most = BATCH_BYTES // rows.page_size
            pairs = islice(zip(starts, ends, strict=False), most - page % most)
            self._check(pairs, rows, page, MAX_LSN - int.from_bytes(key[PREFIX:]), written)
            verified[key] = len(held)
        else:
            pages = [start + end[9:] for start, end in islice(zip(starts, ends, strict=False), known)]
            held.update(enumerate(pages, page + 1))
        count = len(held)
        self.last = page + count
        if not held:
            self._streak = -_PATIENCE
        return count

    def hide(self, fresh: PageVersions, lsn: int) -> None:
        """Of these pages, the journal's, there are newer versions up to `lsn`."""
        for page in [page for page in self.held if page in fresh and fresh[page][0][0] <= lsn]:
            del self.held[page]

    def _check(
        self, pairs: Iterable[tuple[bytes, bytes]], rows: Rows, page: int, lsn: int, written: UnpushedIndex | None
    ) -> None:
        held, seed = self.held, rows.seed ^ (MAX_LSN - lsn)
        for start, end in pairs:
            page += 1
            data = start + end[9:]
            if end[:9] != b"\1" + _digest(data, seed ^ page << 24):
                break
            if written is not None and (written.lsn(page) or lsn) != lsn:
                break
            held[page] = data
