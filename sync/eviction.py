"""Eviction: a home's cache is kept to a limit: pages that the remote has too go, those that are read least first.

What may go is what a read would fetch again and find the same: rows at or below the sync point. So what no commit has
pushed yet stays, and what a push has captured, both of which are above it. What unpushed commits build on stays too,
unless a lease keeps the remote from forgetting it. Rows that go leave none behind: no row means "as the remote has it
at the sync point", as a marker would. Older versions beneath go with them, so that none comes to light; a volume in the
midst of a change of several transactions is passed by. Views that are held go on reading what they see, from their LMDB
transactions.

Which pages go, a hand tells that goes round all rows (CLOCK): it takes those that were not read again since they came
(recency.py), and only when these are few it takes marks away as it goes by. So a scan through more than fits pushes
nothing out but what it brought itself. The hand lies in the store, with the limit; all processes move the same one.

It goes round where pages are saved, within the same transaction: that costs no flush of its own.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import msgspec

from ..volume.errors import BadInput
from ..volume.ids import VolumeId
from .lmdb_tree_check import PAGE_BYTES
from .local_volume import Local
from .recency import Recency, open_recency
from .rows import AVAILABLE, PREFIX
from .tables import MAX_LSN, Cursor, Head, Txn, VolumeRecord, unpack_head

if TYPE_CHECKING:
    from .environment import Environment

_KEY: Final = b"cache"
_ROOM: Final = 32
"""So small a part of the limit is made free beyond what is needed."""
_FEW: Final = 8
"""If less than one in so many rows of a round were unmarked, marks are taken away in the next."""
_ROUNDS: Final = 5
_MOST_PAGES: Final = 4096
_MOST_ROWS: Final = 65_536
"""In one transaction: 65 ms."""
_MOST_BYTES: Final = (1 << 63) - 1


class CacheRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How much of what the remote has the home keeps, and how far the hand is."""

    limit_bytes: int = 0
    """0: all of it."""
    hand: bytes = b""
    """The key of the row that it stands before."""
    ages: bool = False
    """It takes marks away in this round."""
    rows: int = 0
    """It passed in this round, of those that may go."""
    unmarked: int = 0


class PageCache:
    """One process's hold on the cache of a home; within write transactions, which take turns."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._locals: dict[bytes, Local] = {}
        """Those with unpushed commits, which remember where these wrote."""
        self.recency: Recency | None = None
        """None where there is no limit, or it can't be mapped."""

    def limit_bytes(self, txn: Txn) -> int:
        """0: none."""
        return self._record(txn).limit_bytes

    def set_limit(self, limit_bytes: int) -> None:
        """For all processes of the home, and from now on. Raises BadInput."""
        is_whole = isinstance(limit_bytes, int)  # pyright: ignore[reportUnnecessaryIsInstance]
        if not is_whole or not 0 <= limit_bytes <= _MOST_BYTES:
            raise BadInput(f"{limit_bytes!r} is no size in bytes: say 500_000_000 or 500M; 0 for no limit")

        def put(txn: Txn) -> bool:
            now = self._record(txn)
            if now.limit_bytes != limit_bytes:
                self._put(txn, msgspec.structs.replace(now, limit_bytes=limit_bytes))
            return now.limit_bytes != limit_bytes

        with self._environment.view() as txn:
            same = self.limit_bytes(txn) == limit_bytes
        with self._environment.ballast.making_room():
            if not same and self._environment.update(put):
                self.evict()
        self.note(limit_bytes)

    def check_fits(self, size_bytes: int) -> None:
        """Raises BadInput if that is more than the home may keep."""
        with self._environment.view() as txn:
            limit = self.limit_bytes(txn)
        if limit and size_bytes > limit:
            raise BadInput(
                f"this home keeps {limit:,} bytes of what the remote has, and that has {size_bytes:,}: "
                "allow more with --cache-bytes, or 0 for no limit"
            )

    def note(self, limit_bytes: int) -> None:
        """Reads are marked from now on, if there is a limit."""
        if limit_bytes and self.recency is None:
            try:
                self.recency = open_recency(self._environment.data_path, limit_bytes)
            except OSError:
                # No room for it: then pages go as they came.
                return

    def evict(self) -> None:
        """Until the limit is kept, or nothing more may go."""
        with self._environment.view() as txn:
            if not self.limit_bytes(txn):
                return
        with self._environment.ballast.making_room():
            while self._environment.update(self.make_room):
                pass

    def make_room(self, txn: Txn, saved: tuple[bytes, dict[int, bytes]] = (b"", {})) -> int:
        """As far as one transaction goes; how many pages went. Not those that were `saved` by it, of this volume,
        unless they alone are most of the limit.
        """
        record = self._record(txn)
        limit = record.limit_bytes
        if not limit:
            return 0
        self.note(limit)
        over = self.held_bytes(txn) - limit
        if over > 0:
            over -= self._unpushed_bytes(txn)
        if over <= 0:
            return 0
        if 2 * sum(map(len, saved[1].values())) > limit:
            saved = (b"", {})
        sweep = _Sweep(self._environment, txn, record, self.recency, saved)
        sweep.run(over + limit // _ROOM)
        self._put(txn, sweep.record)
        return sweep.pages

    def held_bytes(self, txn: Txn) -> int:
        """What all rows take in the store."""
        tables, pages = self._environment.tables, 0
        for table in (tables.tails, tables.bodies):
            stat = txn.stat(table)
            pages += stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"]
        return pages * PAGE_BYTES

    def close(self) -> None:
        recency, self.recency = self.recency, None
        if recency is not None:
            recency.close()

    def _unpushed_bytes(self, txn: Txn) -> int:
        """What is no cache: pages that are here alone."""
        total = 0
        before, self._locals = self._locals, {}
        for vid, raw in txn.cursor(self._environment.tables.heads):
            head = unpack_head(vid, raw)
            if not head.unpushed:
                continue
            local = before.get(vid) or Local(self._environment, VolumeId(vid), str(VolumeId(vid)))
            self._locals[vid] = local
            written = local.written(txn, head)
            total += 0 if written is None else len(written.pages) * head.page_size
        return total

    def _record(self, txn: Txn) -> CacheRecord:
        return self._environment.get(txn, "meta", _KEY, CacheRecord) or CacheRecord()

    def _put(self, txn: Txn, record: CacheRecord) -> None:
        self._environment.put(txn, "meta", _KEY, record)


class _Sweep:
    """The hand's way within one transaction."""

    def __init__(
        self,
        environment: Environment,
        txn: Txn,
        record: CacheRecord,
        recency: Recency | None,
        saved: tuple[bytes, dict[int, bytes]],
    ) -> None:
        self.record = record
        self.pages = 0
        self._environment = environment
        self._txn = txn
        self._tails: Cursor = txn.cursor(environment.tables.tails)
        self._recency = recency
        self._saved = saved
        self._vid = b""
        self._upto = -1
        """LSNs of this volume's rows that may go."""
        self._page_size = 0
        self._base = 0

    def run(self, size_bytes: int) -> None:
        """The record says afterwards how far it came."""
        hand, ages, rows, unmarked = self.record.hand, self.record.ages, self.record.rows, self.record.unmarked
        tails, left, rounds = self._tails, size_bytes, 0
        more = tails.set_range(hand) if hand else tails.first()
        for _ in range(_MOST_ROWS):
            if left <= 0 or self.pages >= _MOST_PAGES:
                break
            if not more:
                rounds += 1
                more = tails.first()
                if not more or rounds > _ROUNDS:
                    break
                ages, rows, unmarked = unmarked * _FEW < rows or rounds > 1, 0, 0
            key = tails.key()
            if key[:16] != self._vid:
                self._enter(key[:16])
            if self._upto < 0:
                more = tails.set_range(_after(key[:16]))
            elif MAX_LSN - int.from_bytes(key[PREFIX:]) > self._upto or tails.value()[0] != AVAILABLE:
                more = tails.next()
            else:
                rows += 1
                mark = self._mark(key, ages)
                unmarked += not mark
                page = int.from_bytes(key[16:PREFIX])
                if mark or (page in self._saved[1] and key[:16] == self._saved[0]):
                    more = tails.next()
                else:
                    more = self._drop(key[:PREFIX])
                    left -= self._page_size
        hand = tails.key() if more else b""
        self.record = msgspec.structs.replace(self.record, hand=hand, ages=ages, rows=rows, unmarked=unmarked)

    def _enter(self, vid: bytes) -> None:
        """The hand comes to another volume."""
        self._vid, self._upto = vid, -1
        environment, txn = self._environment, self._txn
        raw = txn.get(vid, db=environment.tables.heads)
        if raw is None or txn.get(vid, db=environment.tables.stages) is not None:
            return
        head = unpack_head(vid, raw)
        record = environment.get(txn, "volumes", vid, VolumeRecord)
        if record is None or not head.sync_remote or not _comes_back(record, head):
            return
        self._upto, self._page_size = head.sync_local, head.page_size
        self._base = 0 if self._recency is None else self._recency.base(vid)

    def _mark(self, key: bytes, ages: bool) -> int:
        if self._recency is None:
            return 0
        at = self._base + int.from_bytes(key[16:PREFIX]) & self._recency.mask
        mark = self._recency.marks[at]
        if mark and ages:
            self._recency.marks[at] = mark - 1
        return mark

    def _drop(self, page: bytes) -> bool:
        """All rows of a page, at the newest of which the cursor stands. Whether more follow."""
        tails, bodies = self._tails, self._environment.tables.bodies
        self.pages += 1
        while (key := tails.key())[:PREFIX] == page:
            self._txn.delete(key, db=bodies)
            # Behind the last row it stands at an empty key.
            tails.delete()
        return bool(key)


def _comes_back(record: VolumeRecord, head: Head) -> bool:
    """Whether what is fetched again is sure to be there as long as it is needed. Where nothing is unpushed, a pull
    takes its place.
    """
    if record.created and (not head.unpushed or (record.parent and head.sync_remote == record.parent_lsn)):
        return True
    now_ms = time.time_ns() // 1_000_000
    return any(lease.lsn == head.sync_remote and lease.expiry_ms > now_ms for lease in record.leases)


def _after(vid: bytes) -> bytes:
    """The least key behind a volume's."""
    return (int.from_bytes(vid) + 1).to_bytes(17)[1:] if vid != b"\xff" * 16 else b"\xff" * 32
