"""File: a volume as the database file that SQLite reads and writes.

**Views.** Lock SHARED holds a snapshot; between transactions it rests and is renewed if the volume stood still, so
that a reader's transaction costs no new one. Every read of a transaction comes from that one snapshot, or from the
writer over it: never a mixture. A fixed file (an LSN, a time, or `immutable=1`) holds its snapshot from open to
close and tells SQLite that it can't change, which then asks for no locks at all.

**Commit** is SQLITE_FCNTL_COMMIT_PHASETWO: by then SQLite has written everything and can no longer fail. Whoever
gives the lock back without it has rolled back; what a full cache spilled by xWrite is dropped with the writer.

**Page 1** is stored with counters and a WAL mark of its own and shown with others (sqlite/header.py). SQLite
believes its cache if bytes 24 to 27 are those it saw or wrote last. They are shown as `snapshot.identity + shift`,
and after a commit `shift` is set so that the new snapshot shows the number that SQLite itself wrote: its cache
survives its own commits, whatever the store counted meanwhile, and every other change flushes it. After a failed
commit the cache holds what nobody committed, and after a write that was rolled back SQLite may have the number in
mind that it wrote: `shift` jumps, so that no snapshot to come shows it. Page 1 is handed to the writer at the
commit, and only if more than its counters changed: a commit of one row is then one page, here and on the wire. When
it is stored, its counter counts on from the stored page's. What a commit compares it with is looked up once, and then
is what the last commit left. Where local commits were discarded, another schema cookie is shown
(sqlite/shown_cookie.py).

**Synchronous commits** are the remote's first (`Writer.confirm`): at SQLITE_FCNTL_SYNC, by which SQLite ends its first
phase. It has written everything by then, and has its journal still: what is refused there is rolled back like any
statement, SQLite's cache included, and the error's own number reaches the caller. A rollback syncs, too, once it has
written back what a full cache spilled. Then page 1, if it was written at all, is the one that was read, and shows the
view's counter; a commit has counted on. A file that was empty is cut to nothing by a rollback, and page 1 goes with it.

**Warm pages.** Where a plain file has the system's page cache behind it, a volume has a store in which each page is
looked up and checked. So pages that were read out of order (point queries; a scan would only wash them out) are
held, up to a limit, while their view is current: a new view drops them, a write drops its page, a truncation all.

**Two volumes** written in one transaction would commit one after the other, so the second one's first write is
refused (`_writing`), and all is rolled back.

**Exceptions at any instruction** (Ctrl-C, the time limit of a task that the program runs in) come where Python calls
something, and to a callback before it has begun, too; the program may go on with its connection. So what belongs
together is looked up first and then assigned without a call in between (`_adopt`, `_discard`), an unlock that was never
made is made up for by the next lock (locks.py), and after whatever goes wrong about a commit `shift` jumps.

Not for two threads at once: SQLite's connection mutex sees to that.
"""

# The methods' names are SQLite's.
# ruff: noqa: N802

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import Final

import apsw

from ..sqlite.header import hide, is_sqlite, only_counters_differ, show
from ..sqlite.shown_cookie import ShownCookie
from ..volume.errors import BadInput, BudwoodError, Busy, UsageError
from ..volume.page import DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE
from ..volume.protocols import Pages, Snapshot, Writer
from .codes import as_sqlite
from .locks import LEVELS, LOCKS, UNLOCKS, Act, Lock
from .pragmas import Pragmas

_COUNTER_MASK: Final = 0xFFFFFFFF
_FAR: Final = 1 << 31
_VERSION_OFFSET: Final = 24
_VERSION_SIZE: Final = 16

_CHARACTERISTICS: Final = (
    # Nothing reaches the volume before the commit, and the journal is never read by another process: there is no
    # order to keep by syncs.
    apsw.SQLITE_IOCAP_POWERSAFE_OVERWRITE | apsw.SQLITE_IOCAP_SAFE_APPEND | apsw.SQLITE_IOCAP_SEQUENTIAL
)

_writing: Final[dict[int, VolumeFile]] = {}
"""By connection (its sqlite3*), the file that its transaction has written to."""

# Looked up once: an Enum's members cost a transaction as much as its locks.
_NOTHING: Final = Act.NOTHING
_TAKE_VIEW: Final = Act.TAKE_VIEW
_TAKE_VIEW_ANEW: Final = Act.TAKE_VIEW_ANEW
_TAKE_WRITER: Final = Act.TAKE_WRITER
_DROP_ALL: Final = Act.DROP_ALL

_NOTHING_AHEAD: Final[dict[int, bytes]] = {}
"""A writer's pages are not its view's."""

_generation = 0


def _after_fork() -> None:
    global _generation
    _generation += 1


os.register_at_fork(after_in_child=_after_fork)


class VolumeFile:
    """The methods that SQLite calls on a main database. Raises twins of our errors (codes.py)."""

    __slots__ = (
        "_ahead",
        "_born",
        "_close",
        "_confirmed",
        "_confirmed_page1",
        "_connection",
        "_cookie",
        "_dirty",
        "_fixed",
        "_length",
        "_lock",
        "_next",
        "_page1",
        "_page_size",
        "_pages",
        "_read",
        "_refused",
        "_shift",
        "_stored_page1",
        "_version",
        "_view",
        "_warm",
        "_warm_bytes",
        "_warm_pages",
        "_writer",
        "pragmas",
    )

    _view: Snapshot
    _version: bytes | None
    """Bytes 24 to 39 as they are shown for the view: what SQLite asks for at the start of each transaction."""
    _stored_page1: bytes | None
    """As the view has it; None where nobody has looked, or there is none."""

    def __init__(
        self,
        pages: Pages,
        close: Callable[[], None],
        *,
        fixed: bool,
        warm_bytes: int = 0,
        synchronous_commit: bool = False,
    ) -> None:
        self._pages = pages
        self._close = close
        self._fixed = fixed
        self.pragmas = Pragmas(pages, synchronous_commit=synchronous_commit)
        self._born = _generation
        self._warm: dict[int, bytes] = {}
        self._warm_bytes = warm_bytes
        self._next = 0
        self._connection = -id(self)
        self._lock = int(Lock.NONE)
        self._writer: Writer | None = None
        self._page1: bytes | None = None
        self._confirmed = False
        self._confirmed_page1: bytes | None = None
        self._refused: BudwoodError | None = None
        self._dirty = False
        self._shift = 0
        self._cookie = ShownCookie()
        self._adopt(pages.snapshot())
        if not fixed:
            self._view.release()

    # Reading

    def xRead(self, amount: int, offset: int) -> bytes:
        if offset == _VERSION_OFFSET and amount == _VERSION_SIZE and self._version is not None and self._lock:
            # How each transaction begins.
            return self._version
        try:
            if not self._lock and not self._fixed:
                return self._read_unlocked(amount, offset)
            if amount == self._page_size and offset and not offset % amount:
                page = offset // amount + 1
                data = self._ahead.pop(page, None)
                if data is not None:
                    self._next = page + 1
                    return data
                data = self._warm.get(page)
                if data is None:
                    data = self._read(page)
                    if page != self._next and self._writer is None:
                        self._keep_warm(page, data)
                    self._next = page + 1
                return data
            return self._slice(amount, offset)
        except BudwoodError as error:
            raise as_sqlite(error) from None

    def _keep_warm(self, page: int, data: bytes) -> None:
        warm = self._warm
        if len(warm) >= self._warm_pages:
            warm.clear()
            if not self._warm_pages:
                return
        warm[page] = data

    def xFileSize(self) -> int:
        writer = self._writer
        if writer is None:
            if not self._lock and not self._fixed:
                self._begin_read()
                self._view.release()
            return self._length
        return max(writer.length, self._page_size) if self._page1 is not None else writer.length

    def _read_unlocked(self, amount: int, offset: int) -> bytes:
        """SQLite reads the header once before it has locked anything."""
        self._begin_read()
        try:
            return self._slice(amount, offset)
        finally:
            self._view.release()

    def _slice(self, amount: int, offset: int) -> bytes:
        """Any bytes, fewer at the end of the file."""
        end = min(offset + amount, self.xFileSize() if self._writer else self._length)
        if offset >= end:
            return b""
        size = self._page_size
        first = offset // size
        found = b"".join(self._shown(page + 1) for page in range(first, (end - 1) // size + 1))
        cut = found[offset - first * size : end - first * size]
        if offset == _VERSION_OFFSET and amount == _VERSION_SIZE and self._writer is None:
            self._version = cut
        return cut

    def _shown(self, page: int) -> bytes:
        if page > 1:
            return self._read(page)
        if self._page1 is not None:
            return self._page1
        return show(self._cookie.show(self._read(1)), self._counter)

    @property
    def _counter(self) -> int:
        return (self._view.identity + self._shift) & _COUNTER_MASK

    # Locks

    def xLock(self, level: int) -> None:
        lock, act = LOCKS[self._lock * LEVELS + level]
        try:
            if act is _TAKE_VIEW or act is _TAKE_VIEW_ANEW:
                if self._born != _generation:
                    raise UsageError(
                        f"volume {self._pages.name!r} was opened before os.fork(): open a new connection in the child"
                    )
                if act is _TAKE_VIEW_ANEW or self._writer is not None:
                    self._roll_back()
                    self._view.release()
                if not self._view.renew():
                    self._take_view()
            elif act is _TAKE_WRITER:
                if self._writer is not None:
                    self._roll_back()
                self._begin_write()
        except BudwoodError as error:
            raise as_sqlite(error) from None
        self._lock = lock

    def xUnlock(self, level: int) -> None:
        self._lock, act = UNLOCKS[self._lock * LEVELS + level]
        if act is _NOTHING:
            return
        if self._writer is not None:
            self._roll_back()
        if act is _DROP_ALL:
            self._view.release()

    def xCheckReservedLock(self) -> bool:
        """Asked only about a journal that was left behind, and none ever is."""
        return self._writer is not None

    def _begin_read(self) -> None:
        if not self._view.renew():
            self._take_view()

    def _take_view(self) -> None:
        before, newest = self._view, self._pages.snapshot()
        self._warm.clear()
        self._adopt(newest)
        before.close()

    def _adopt(self, view: Snapshot) -> None:
        self._cookie.follow(view.history)
        read, ahead, length = view.read, view.ahead, view.length
        page_size = view.page_size if length else self._pages.page_size or DEFAULT_PAGE_SIZE
        # All or nothing: see above.
        self._view = view
        self._read = read
        self._ahead = ahead
        self._length = length
        self._page_size = page_size
        self._version = None
        self._stored_page1 = None
        self._warm_pages = self._warm_bytes // page_size

    def _begin_write(self) -> None:
        wished = None if self._length else self._pages.page_size or self.pragmas.page_size
        writer = self._pages.writer(self._view, page_size=wished)
        read = writer.read
        # All or nothing: see above.
        self._writer = writer
        self._read = read
        self._ahead = _NOTHING_AHEAD
        self._version = None
        if wished is not None:
            self._page_size = wished

    def _roll_back(self) -> None:
        if self._dirty or self._refused is not None:
            self._shift += _FAR
        self._discard()

    def _discard(self) -> None:
        """End the writer's time without a commit."""
        writer, read, ahead = self._writer, self._view.read, self._view.ahead
        # All or nothing: see above.
        self._writer = None
        self._page1 = self._confirmed_page1 = None
        self._confirmed = False
        self._read = read
        self._ahead = ahead
        self._version = None
        self._refused = None
        self._dirty = False
        if _writing.get(self._connection) is self:
            del _writing[self._connection]
        if writer is not None:
            writer.rollback()

    # Writing

    def xWrite(self, data: bytes, offset: int) -> None:
        try:
            writer = self._writer
            if not self._dirty:
                writer = self._first_write(len(data))
            if writer is None:
                return
            size = self._page_size
            page, rest = divmod(offset, size)
            if len(data) != size or rest:
                raise self._other_page_size(len(data))
            if page:
                self._warm.pop(page + 1, None)
                writer.write(page + 1, data)
            else:
                named = int.from_bytes(data[16:18], "big") & 0xFFFE or MAX_PAGE_SIZE
                if named != size and is_sqlite(data):
                    # A copy of another database, cut into our pages: SQLite would go on in its pages.
                    raise self._other_page_size(named)
                self._page1 = data
        except BudwoodError as error:
            raise as_sqlite(error) from None

    def _other_page_size(self, wanted: int) -> BadInput:
        has = f"volume {self._pages.name!r} has {self._page_size}-byte pages"
        if not self._length:
            # SQLite can't see it in an empty file.
            return BadInput(
                f"{has}, settled when it was made, and SQLite is about to write pages of {wanted}: "
                f"run `PRAGMA page_size = {self._page_size}` first"
            )
        return BadInput(
            f"{has}, settled by its first commit, and can't be rewritten with pages of {wanted}: "
            "export it, VACUUM the file into that page size, and import it under a new name"
        )

    def xTruncate(self, size: int) -> None:
        try:
            writer = self._writer
            if not self._dirty:
                writer = self._first_write(self._page_size)
            if writer is not None:
                self._warm.clear()
                writer.truncate(size)
                if not size:
                    self._page1 = None
        except BudwoodError as error:
            raise as_sqlite(error) from None

    def xSync(self, flags: int) -> None:
        """The commit makes things durable, as far as `PRAGMA synchronous` asks."""

    def _first_write(self, size: int) -> Writer | None:
        """What has to be settled once a transaction, before its first write of `size` bytes.

        A refusal is raised once and again at the commit. In between, SQLite writes back what it had changed, and
        that may go anywhere: it is dropped at the unlock, or, where there is no writer to take it (None), here.
        """
        if self._refused is not None:
            return self._writer
        try:
            if self._writer is None:
                # In locking_mode=EXCLUSIVE, SQLite never gives its lock back, and a commit ended ours.
                self._begin_write()
            if not self._length and size != self._page_size and self._pages.page_size is None:
                # SQLite chose another size for this new database than was foreseen: a copy of another database does
                # that.
                self._discard()
                self.pragmas.page_size = size
                self._begin_write()
            other = _writing.get(self._connection)
            if other is not None and other is not self and other._dirty:
                raise _two_volumes(other._pages.name, self._pages.name)
            _writing[self._connection] = self
        except BudwoodError as error:
            self._refused = error
            raise
        self._dirty = True
        return self._writer

    # Commit, and what else SQLite has to say

    def xFileControl(self, op: int, pointer: int) -> bool:
        if op == apsw.SQLITE_FCNTL_COMMIT_PHASETWO:
            if self._writer is not None or self._refused is not None:
                self._commit()
            return True
        if op == apsw.SQLITE_FCNTL_SYNC:
            if self.pragmas.synchronous_commit and self._is_committing():
                try:
                    self._confirm(joint=pointer != 0)
                except BudwoodError as error:
                    if not isinstance(error, Busy):
                        # It will be rolled back. Whoever is told that a lock is held may ask for the commit again.
                        self._refused = error
                    raise as_sqlite(error) from None
            return True
        if op == apsw.SQLITE_FCNTL_PRAGMA:
            return self._pragma(pointer)
        if op == apsw.SQLITE_FCNTL_PDB:
            self._connection = ctypes.c_void_p.from_address(pointer).value or -id(self)
        return False

    def _commit(self) -> None:
        page1, writer = self._page1, self._writer
        try:
            if self._refused is not None or writer is None:
                raise self._refused or AssertionError("SQLite wrote nothing and commits")
            if self.pragmas.synchronous_commit and not self._confirmed:
                self._confirm(joint=False)
            stored = self._confirmed_page1 if self._confirmed else self._store(writer)
            snapshot = writer.commit(self.pragmas.durability)
            known = self._counter if page1 is None else int.from_bytes(page1[24:28], "big")
            before = self._view
            if snapshot is not None:
                self._adopt(snapshot)
            self._discard()
            identity = self._view.identity
        except BaseException as error:
            self._shift += _FAR
            self._discard()
            raise as_sqlite(error, at_commit=True) if isinstance(error, BudwoodError) else error from None
        self._stored_page1 = stored
        self._shift = (known - identity) & _COUNTER_MASK
        if page1 is not None:
            self._version = page1[_VERSION_OFFSET : _VERSION_OFFSET + _VERSION_SIZE]
            self._cookie.wrote(page1)
        if snapshot is not None:
            before.close()

    def _is_committing(self) -> bool:
        """Whether what SQLite ends by a sync is a commit's first phase, and not a rollback."""
        if not self._dirty or self._confirmed or self._refused is not None or self._page1 is None:
            return False
        return not self._length or int.from_bytes(self._page1[24:28], "big") != self._counter

    def _confirm(self, *, joint: bool) -> None:
        writer = self._writer
        assert writer is not None
        if joint:
            raise BadInput(
                f"a synchronous commit can't be joint with other databases, as that of volume {self._pages.name!r} was "
                "to be: it was rolled back; write to each in a transaction of its own"
            )
        stored = self._store(writer)
        writer.confirm()
        self._confirmed, self._confirmed_page1 = True, stored

    def _store(self, writer: Writer) -> bytes | None:
        return None if self._page1 is None else self._store_page1(writer, self._page1)

    def _store_page1(self, writer: Writer, page1: bytes) -> bytes:
        """Page 1 as it will stand: as it did, if nothing but its counters was changed."""
        before = self._stored_page1 or (self._view.read(1) if self._length else None)
        if before is None:
            stored = hide(page1, None)
        elif page1[24:28] == page1[92:96] and only_counters_differ(page1, before):
            return before
        else:
            counter = int.from_bytes(before[24:28], "big") + 1
            stored = hide(show(page1, counter & _COUNTER_MASK), before)
            if only_counters_differ(stored, before):
                return before
        writer.write(1, stored)
        return stored

    def _pragma(self, pointer: int) -> bool:
        pragma = apsw.VFSFcntlPragma(pointer)
        try:
            view = self._view if self._lock or self._fixed else None
            answer = self.pragmas.answer(pragma.name, pragma.value, view=view, writing=self._writer is not None)
        except BudwoodError as error:
            raise as_sqlite(error) from None
        if answer is None:
            return False
        pragma.result = answer
        return True

    def xSectorSize(self) -> int:
        return 512

    def xDeviceCharacteristics(self) -> int:
        return apsw.SQLITE_IOCAP_IMMUTABLE if self._fixed else _CHARACTERISTICS

    def xClose(self) -> None:
        if self._born != _generation:
            return  # What the parent opened is the parent's to close.
        try:
            self._discard()
            self._view.close()
        finally:
            self._close()


def _two_volumes(first: str, second: str) -> BadInput:
    return BadInput(
        f"one transaction can't write to two volumes ({first!r} and {second!r}), since they could not be "
        "committed together; it was rolled back: write to each in a transaction of its own"
    )
