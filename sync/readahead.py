"""Scan: pages read ahead from the local store while a reader goes through a volume in order.

A lone read costs two look-ups and the Python around them; a batch walks both tables side by side and pays for that
once. A table's leaves lie one after the other but for the odd interior page, so a read one or two pages behind the
last one counts as going on, and the fourth in a row starts a batch. What is held is at most `BATCH_BYTES` of pages,
all of the snapshot's own view.

The walk looks at no key. A row's checksum is seeded with its volume, page and LSN, so a page that matches under the LSN
of the row before it *is* the next page at that LSN, and, since newer versions come first, the newest there is; unless
damage took that away, which the unpushed commits' records tell. Whatever doesn't match (another LSN, a marker, damage)
ends the batch and is left to the ordinary read, which knows what to say.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

import xxhash

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
    __slots__ = ("_streak", "held", "last")

    def __init__(self) -> None:
        self.held: dict[int, bytes] = {}
        """Read ahead and not asked for yet."""
        self.last = 0
        """The page that was read last, out of `held` or not."""
        self._streak = 0

    def goes_on(self, page: int) -> bool:
        """Note a read that `held` could not answer: is it part of a scan?"""
        if not 0 < page - self.last <= _STEP:
            self._streak = min(self._streak, 0)
        self._streak += 1
        self.last = page
        return self._streak >= _STREAK

    def read_ahead(
        self, tails: Cursor, bodies: Cursor, rows: Rows, page: int, key: bytes, written: UnpushedIndex | None
    ) -> int:
        """Hold the pages behind `page`, at whose row, `key`, `tails` stands and `bodies` too. Returns how many."""
        held = self.held
        held.clear()
        inverse = int.from_bytes(key[PREFIX:])
        seed = rows.seed ^ inverse
        if not tails.next() or (rows.split and not bodies.next()):
            return 0
        ends = tails.iternext(keys=False)
        starts = bodies.iternext(keys=False) if rows.split else iter(lambda: b"", None)
        for start, end in islice(zip(starts, ends, strict=False), BATCH_BYTES // rows.page_size):
            page += 1
            data = start + end[9:]
            if end[:9] != b"\1" + _digest(data, seed=seed ^ page << 24):
                break
            if written is not None and (written.lsn(page) or MAX_LSN - inverse) != MAX_LSN - inverse:
                break
            held[page] = data
        if not held:
            self._streak = -_PATIENCE
        return len(held)
