"""Snapshot: a fixed view of a volume, held by an LMDB read transaction and the journal's tail that continues it.

While the transaction is held, LMDB reuses none of the pages that it sees, so writers may delete old versions at once
and LMDB's own table of readers is the registry of live snapshots. `release` ends the transaction, `renew` begins a new
one and compares the volume's head: the same head is the same view. The tail is memory, and stays what it was
(journal_tail.py); no commit in it cuts anything off or moves the sync point: what LMDB's head says of those holds.

A missing page is fetched. It is saved only while the volume's sync point still is this snapshot's (Local.save, B10);
the snapshot then moves to a transaction that sees it, if the head is unchanged there. If the volume has moved on,
or nothing can be written, the page is kept in memory, for this snapshot alone.

    read(page)   in the tail → the newest version there with LSN <= head.lsn
                 newest row with LSN <= LMDB's head: not the one that the unpushed commits' records name → Corrupt, that
                 was lost; AVAILABLE → the page, EMPTY → zeros
                 PENDING, or no row:  written by an unpushed commit → Corrupt
                                      beyond the length, or beyond the floor since the sync point → zeros
                                      never synced → zeros
                                      else → the remote's page at the sync point
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol

import lmdb
import xxhash

from ..sqlite.key_order import MOST_BYTES, KeyOrder
from ..volume.errors import BadInput, Corrupt, Full, NotFound, ReadOnly, Unavailable
from ..volume.page import zeros
from ..volume.page_cache import PageCache
from ..volume.pageset import PageSet, page_count, span
from . import mapped_memory
from .afterfork import forgets
from .journal_tail import NO_TAIL, PageVersions, Tail, newest_version
from .lmdb_errors import named, translate, translated
from .local_volume import Local
from .prefetch import Ahead, MissRun
from .readahead import Scan
from .rows import PENDING, PREFIX, Rows, known
from .tables import MAX_LSN, Cursor, Head, Txn, unpack_head
from .unpushed_index import UnpushedIndex

OVERLAY_BYTES: Final = 16 * 1024 * 1024

_digest = xxhash.xxh3_64_digest


def _nothing(key: bytes) -> bytes | None:
    """Stands for the bodies' cursor while no transaction is held."""
    return None


class Misses(Protocol):
    """Where missing pages come from."""

    def fetch(self, head: Head, page: int, missing: PageSet) -> dict[int, bytes]:
        """At least `page`, and of `missing` and their neighbours what came along, as of the head's sync point."""
        ...

    def ahead(self, head: Head, missing: PageSet) -> Ahead | None:
        """Have these fetched meanwhile, for a miss of one of them; None if that isn't done. Waits for nothing."""
        ...


class HeadView:
    """What a fixed view of a volume says of itself, by its head."""

    head: Head
    ahead: dict[int, bytes]

    @property
    def length(self) -> int:
        return self.head.length

    @property
    def page_size(self) -> int:
        return self.head.page_size

    @property
    def identity(self) -> int:
        return self.head.lsn

    @property
    def history(self) -> int:
        return self.head.generation

    @property
    def label(self) -> str:
        return self.head.label


class LocalSnapshot(HeadView):
    """Answers the protocol `Snapshot`. Not for two threads at once."""

    def __init__(
        self, local: Local, misses: Misses, *, settled: bool = False, before: LocalSnapshot | None = None
    ) -> None:
        """`settled`: what was committed before is in LMDB by now, and the view is LMDB's alone, for who reads rows and
        records by its `transaction`. `before` is an earlier view of the volume, whose head in LMDB may still be right.
        """
        self.local = local
        self.misses = misses
        self._settled = settled
        if settled:
            local.environment.settle()
        self._txn: Txn | None = None
        self._tails: Cursor | None = None
        self._bodies: Cursor | None = None
        self._body: Callable[[bytes], bytes | None] = _nothing
        self._written: UnpushedIndex | None = None
        """None until the first look at the rows, and while nothing is unpushed."""
        self._overlay: PageCache | None = None
        self._path = local.environment.data_path
        self._run: MissRun | None = None
        self._order: KeyOrder | None = None
        self._fetching: Ahead | None = None
        """What a scan is about to miss."""
        self.ahead = {}
        self._scan = self._new_scan()
        self._verified: dict[bytes, int] = {}
        """The environment's, while the view is held."""
        self._until_trim = mapped_memory.CHECK_EVERY
        self._growths = 0
        self._raw = b""
        """LMDB's head, as it is stored."""
        self._fresh: PageVersions | None = None
        """What the tail has of the volume, while the view is held."""
        txn, tail = self._begin()
        self._number = txn.id(), tail.end
        """Of the last transaction that the head was found unchanged in, and the end of its tail."""
        try:
            self._raw = local.raw_head(txn)
            if before is not None and before._raw == self._raw:
                self._base: Head = before._base
                if before._number[0] == self._number[0]:
                    # LMDB is what it was: so is what its unpushed commits left.
                    self._written = before._written
            else:
                self._base = unpack_head(local.raw, self._raw)
        except BaseException as error:
            txn.abort()
            with translated(self._path):
                raise error
        part = self._part = tail.volumes.get(local.raw)
        self.head = self._base if part is None else part.head
        self._fresh = None if part is None else part.pages
        self._rows: Rows | None = local.rows(self.head.page_size) if self.head.page_size else None
        self._prefix = local.raw
        self._count = page_count(self.head.length, self.head.page_size) if self.head.page_size else 0
        self._suffix = (MAX_LSN - self._base.lsn).to_bytes(8)
        self._txn = txn
        forgets(self)

    @property
    def transaction(self) -> Txn:
        """The transaction that holds the view. Raises BadInput while it is released."""
        if self._txn is None:
            raise BadInput("this snapshot is released: renew it before reading")
        return self._txn

    def read(self, page: int) -> bytes:
        """One page; raises Corrupt, Unavailable, Forgotten."""
        if page > self._count:
            return self._beyond(page)
        fresh = self._fresh
        if fresh is not None and page in fresh:
            data = newest_version(fresh[page], self.head.lsn)
            if data is not None:
                return data
        ahead = self.ahead.pop(page, None)
        if ahead is not None:
            return ahead
        scan = self._scan
        rows: Rows = self._rows  # type: ignore[assignment]
        at = self._prefix + page.to_bytes(4)
        try:
            tails = self._tails
            if tails is None:
                tails = self._look()
            if tails.set_range(at + self._suffix):
                found, value = tails.item()
                if found.startswith(at):
                    self._until_trim -= 1
                    if self._until_trim <= 0:
                        self._trim()
                    # Rows.page, spelled out: this is the line that every read of every program goes through.
                    if self._written is not None:
                        self._check_written(page, MAX_LSN - int.from_bytes(found[PREFIX:]))
                    if value[:1] == b"\1":
                        if rows.split:
                            body = self._body(found)
                            data = value[9:] if body is None else body + value[9:]
                        else:
                            data = value[9:]
                        if _digest(data, seed=rows.seed ^ int.from_bytes(found[PREFIX:]) ^ page << 24) == value[1:9]:
                            if scan.goes_on(page, data) and self._bodies is not None:
                                self._until_trim -= scan.read_ahead(
                                    tails, self._bodies, rows, page, found, self._written, self._verified
                                )
                                if fresh is not None:
                                    scan.hide(fresh, self.head.lsn)
                            return data
                        raise rows.damaged(page)
                    if rows.check_mark(page, found, value) == PENDING:
                        return self._missing(page)
                    return rows.zeros
        except lmdb.Error as error:
            return self._after(error, page)
        return self._missing(page)

    def is_newest(self) -> bool:
        """Nothing was changed in the home since the view was taken or renewed, and nothing begun that is to be tidied.
        To be asked by who holds the write lock.
        """
        if self._txn is None or self._settled or self.local.environment.position() != self._number:
            return False
        return self._txn.get(self._prefix, db=self.local.environment.tables.stages) is None

    def release(self) -> None:
        """What is fetched ahead goes on: whoever renews may be in the middle of a scan, statement by statement."""
        txn = self._txn
        self._txn = self._tails = self._bodies = self._fresh = None
        self._body = _nothing
        if txn is not None:
            txn.abort()

    def renew(self) -> bool:
        if self._txn is not None:
            return True
        environment = self.local.environment
        self._growths = environment.growths
        txn, tail = (environment.read(), NO_TAIL) if self._settled else environment.read_with_tail()
        # LMDB counts its commits: under the same number, and the same tail, nothing in the home has changed.
        number, end = self._number
        if (number == txn.id() and end == tail.end) or self._is_current(txn, tail):
            # As `_hold` does; here it counts.
            self._txn, held = txn, self._part
            self._fresh = None if held is None else held.pages
            return True
        txn.abort()
        return False

    def refresh(self) -> bool:
        """Hold the same view by a newer transaction, so that LMDB may reuse what was freed since.

        False, with nothing changed, if the volume has moved on: then the old one alone has the view.
        """
        if self._txn is None:
            return False
        txn, tail = self._begin()
        if not self._is_current(txn, tail):
            txn.abort()
            return False
        self.release()
        self._hold(txn)
        return True

    def close(self) -> None:
        if self._fetching is not None:
            self._fetching.leave()
            self._fetching = None
        self.release()

    def forget(self) -> None:
        """In a child after fork: as if released, without touching the parent's transaction."""
        self._txn = self._tails = self._bodies = self._fresh = self._fetching = None
        self._body = _nothing

    def missing(self, pages: PageSet) -> PageSet:
        """Those of `pages` that a read would fetch."""
        head, rows = self.head, self._rows
        if rows is None or head.sync_remote == 0:
            return PageSet()
        wanted = pages & span(1, page_count(min(head.length, head.floor), head.page_size))
        for page, versions in list((self._fresh or {}).items()):
            if versions[0][0] <= head.lsn:
                wanted.discard(page)
        with translated(self._path):
            tails = self._tails or self._look()
            for page in known(rows, tails, wanted):
                at = rows.key(page, self._base.lsn)
                if tails.set_range(at) and tails.key()[:PREFIX] == at[:PREFIX] and tails.value()[:1] != b"\2":
                    wanted.discard(page)
        return wanted

    def accept(self, pages: dict[int, bytes]) -> None:
        """Keep fetched pages: in the store if that may be, else in memory."""
        self.adopt(pages, self.save(pages))

    def save(self, pages: dict[int, bytes]) -> bool:
        """The first half of `accept`, for any thread: whether the store took them."""
        # The volume may be gone by now, and the disk may be full, or not ours to write: this view goes on.
        with suppress(NotFound, Full, ReadOnly):
            return self.local.save(self.head.sync_remote, pages)
        return False

    def adopt(self, pages: dict[int, bytes], saved: bool) -> None:
        """The second half: see what was saved, or hold what was not."""
        if saved:
            # Begin the new transaction before the old one ends: if the head has moved, the old view is the only one
            # that has it.
            txn, tail = self._begin()
            if self._is_current(txn, tail):
                self.release()
                self._hold(txn)
                pages = self._evicted(pages)
                if not pages:
                    return
            else:
                txn.abort()
        if self._overlay is None:
            self._overlay = PageCache(OVERLAY_BYTES)
        self._overlay.update(pages)

    def _evicted(self, saved: dict[int, bytes]) -> dict[int, bytes]:
        """What was saved and went again at once, as the home keeps little: whoever fetched it reads it all the same."""
        assert self._txn is not None
        if not self.local.environment.cache.limit_bytes(self._txn):
            return {}
        return {page: saved[page] for page in self.missing(PageSet(saved))}

    def _begin(self) -> tuple[Txn, Tail]:
        environment = self.local.environment
        self._growths = environment.growths
        return (environment.read(), NO_TAIL) if self._settled else environment.read_with_tail()

    def _hold(self, txn: Txn) -> None:
        """One in which the view was found current."""
        self._txn = txn
        self._fresh = None if self._part is None else self._part.pages

    def _is_current(self, txn: Txn, tail: Tail) -> bool:
        # LMDB counts its commits: under the same number, and the same tail, nothing in the home has changed, this
        # volume's head included. That number is ten times quicker to have than the head.
        number = txn.id(), tail.end
        if number == self._number:
            return True
        try:
            raw = txn.get(self._prefix, db=self.local.environment.tables.heads)
        except lmdb.Error as error:
            raise translate(error, self._path) from error
        if raw is None:
            return False
        part = tail.volumes.get(self._prefix)
        base = self._base if raw == self._raw else unpack_head(self._prefix, raw)
        head = base if part is None else part.head
        if (head.lsn, head.generation) != (self.head.lsn, self.head.generation):
            return False
        self._number, self._part = number, part
        if raw != self._raw:
            # The journal was moved. Or a push moved the sync point: the same content under another remote LSN; what was
            # fetched at the old one may hold pages that this view cut off; the old floor, which hid them, is gone.
            self._raw, self._base, self.head, self._overlay, self._written = raw, base, head, None, None
            self._suffix = (MAX_LSN - base.lsn).to_bytes(8)
            # Read ahead of what the tail had newer.
            self._scan = self._new_scan()
        return True

    def _new_scan(self) -> Scan:
        self.ahead.clear()
        return Scan(self.ahead, self.local.environment.cache.recency, self.local.raw)

    def _look(self) -> Cursor:
        txn, tables = self.transaction, self.local.environment.tables
        if self._written is None and self._base.unpushed:
            with named(self._path):
                self._written = self.local.written(txn, self._base)
        bodies = self._bodies = txn.cursor(tables.bodies)
        tails = self._tails = txn.cursor(tables.tails)
        self._body = bodies.get
        self._verified = self.local.environment.verified(txn.id())
        return tails

    def _beyond(self, page: int) -> bytes:
        if self.head.page_size == 0:
            raise BadInput("the volume is empty: it has no page size yet")
        return zeros(self.head.page_size) if page > 0 else self._missing(page)

    def _missing(self, page: int) -> bytes:
        head, rows = self.head, self._rows
        assert rows is not None
        if page < 1:
            raise BadInput(f"pages are counted from 1, not {page}")
        if self._written is not None:
            with translated(self._path):
                self._check_written(page, 0)
        if head.sync_remote == 0 or page > page_count(head.floor, head.page_size):
            return rows.zeros
        kept = self._overlay.get(page) if self._overlay is not None else None
        if kept is not None:
            return kept
        run = self._run = self._run or MissRun()
        window, fetching = run.ask(page, head.page_size), self._fetching
        last = fetching.pages.max() if fetching is not None and page in fetching.pages else page + window - 1
        wanted = span(page, last) if last > page else self._in_key_order(page)
        missing, self._fetching = self.missing(wanted), None
        if run.is_scan:
            self._fetching = self.misses.ahead(head, self.missing(span(last + 1, last + window)))
        pages = self.misses.fetch(head, page, missing)
        if fetching is not None:
            fetching.leave()
        run.got(last + 1, pages)
        self.accept(pages)
        if window == 1:
            self._scan.came(page, pages[page])
        return pages[page]

    def _in_key_order(self, page: int) -> PageSet:
        if self._order is None:
            limit = self.local.environment.cache.limit_bytes(self.transaction)
            # What comes along with many pages would push out what it goes on from.
            self._order = KeyOrder(self.head.page_size, min(MOST_BYTES, limit) // 4 if limit else MOST_BYTES)
        return self._order.ask(self, page, reversed(list(self._scan.seen)))

    def held(self, page: int) -> bytes | None:
        """A page that is here. Damage is told to whoever wants to read it."""
        with suppress(Corrupt):
            return None if self.missing(PageSet([page])) else self.read(page)
        return None

    def _check_written(self, page: int, lsn: int) -> None:
        """Raises Corrupt unless the row at `lsn` (0: there is none with a page) is what the unpushed commits left."""
        head, written = self._base, self._written
        assert written is not None
        wanted = written.lsn(page)
        if lsn == wanted or (not wanted and lsn <= head.sync_local):
            return
        # Commits newer than this view may be among them: from here on, only those up to it.
        with named(self._path):
            self._written = self.local.written_at(self.transaction, head)
        wanted = self._written.lsn(page)
        if lsn != wanted and (wanted or (lsn > head.sync_local and not self._is_cut(page))):
            rows = self._rows
            assert rows is not None
            raise rows.lost(page)

    def _is_cut(self, page: int) -> bool:
        """Unpushed commits cut off pages like this one, which may have left an EMPTY row where it was."""
        return page > page_count(self.head.floor, self.head.page_size)

    def _trim(self) -> None:
        self._until_trim = mapped_memory.CHECK_EVERY
        mapped_memory.trim(self.local.environment.data_path)

    def _after(self, error: lmdb.Error, page: int) -> bytes:
        if self._growths == self.local.environment.growths or self._txn is None:
            raise translate(error, self._path) from error
        # The map grew under us, or is another one, which ended the transaction: go on if nothing has changed.
        self.forget()
        if not self.renew():
            raise Unavailable(
                "the local store was mapped anew while this view was read, and the volume has moved on: begin again"
            ) from error
        return self.read(page)
