"""Writer: a transaction in progress. It holds the volume's write lock from its making until commit or rollback."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ..sqlite.btree import is_skeleton
from ..volume.errors import BadInput, Busy, Conflict
from ..volume.page import DEFAULT_PAGE_SIZE, check_page_size, zeros
from ..volume.pageset import PageSet, page_count
from ..volume.protocols import Durability
from .commit import Change, commit
from .dirty_pages import DirtyPages
from .file_locks import Lock
from .local_volume import Local
from .snapshot import LocalSnapshot
from .stage import tidy

__all__ = ["MAX_PAGE", "LocalWriter"]

MAX_PAGE: Final = 2**32 - 2
"""SQLite's own limit."""


class LocalWriter:
    """Answers the protocol `Writer`. It reads through `snapshot`, which stays the caller's unless it is to `own` it.
    Not for two threads at once.

    Raises Busy when another connection writes, Conflict when the volume has moved on since the snapshot.
    """

    def __init__(
        self,
        local: Local,
        snapshot: LocalSnapshot,
        take: Callable[[], LocalSnapshot],
        *,
        page_size: int | None = None,
        own: bool = False,
    ) -> None:
        head = snapshot.head
        self.page_size = head.page_size or page_size or DEFAULT_PAGE_SIZE
        self.local = local
        self._snapshot = snapshot
        self._own = own
        self._take = take
        self._base = head
        self._length = self._floor = head.length
        self._skeleton = PageSet()
        self._dirty = DirtyPages(local.environment.home / "tmp", self.page_size)
        self._lock: Lock | None = None
        try:
            if page_size not in (None, self.page_size):
                raise BadInput(
                    f"volume {local.name!r} has pages of {head.page_size} bytes: {page_size} can't be had any more"
                )
            check_page_size(self.page_size)
            self._lock = local.write_lock()
            now = tidy(local)
            if (now.lsn, now.generation) != (head.lsn, head.generation):
                raise Conflict(f"volume {local.name!r} has moved on since this snapshot was taken", head=now.lsn)
        except BaseException:
            self.rollback()
            raise

    @property
    def length(self) -> int:
        return self._length

    @property
    def dirty(self) -> bool:
        return len(self._dirty) > 0 or self._length != self._base.length or self._floor < self._base.length

    def read(self, page: int) -> bytes:
        data = self._dirty.get(page)
        if data is not None:
            return data
        if page > page_count(self._floor, self.page_size):
            return zeros(self.page_size)
        return self._snapshot.read(page)

    def write(self, page: int, data: bytes) -> None:
        if len(data) != self.page_size:
            raise BadInput(f"a page of volume {self.local.name!r} has {self.page_size} bytes, not {len(data)}")
        if not 0 < page <= MAX_PAGE:
            raise BadInput(f"pages are counted from 1 to {MAX_PAGE}, not {page}")
        self._dirty.put(page, data)
        if is_skeleton(data, page):
            self._skeleton.add(page)
        else:
            self._skeleton.discard(page)
        self._length = max(self._length, page * self.page_size)

    def truncate(self, length: int) -> None:
        if not 0 <= length <= MAX_PAGE * self.page_size:
            raise BadInput(f"a volume can't be {length} bytes long")
        if length < self._length:
            last, rest = page_count(length, self.page_size), length % self.page_size
            if rest:
                # The rest of the last page is cut off too: were the volume to grow again, it must read as zeros.
                data = self.read(last)
                if data[rest:] != zeros(self.page_size)[rest:]:
                    self._dirty.put(last, data[:rest] + zeros(self.page_size)[rest:])
            self._dirty.cut(last)
            self._floor = min(self._floor, length)
        self._length = length

    def commit(self, durability: Durability) -> LocalSnapshot | None:
        """Raises Full or another StoreError with the volume as it was; the writer is over then too."""
        try:
            if self._lock is None:
                raise BadInput("this transaction is over")
            if not self.dirty:
                return None
            pages = PageSet(self._dirty.pages)
            change = Change(
                self._dirty.items(), pages, self._skeleton & pages, self._length, self._floor, self.page_size
            )
            commit(self.local, self._base, change, durability)
            # Taken under the lock, so that it is the view of exactly this commit.
            try:
                return self._take()
            except Busy:
                # LMDB's table of readers is full. The commit stands, and must not be reported as failed: the old view
                # makes room for the new one.
                self._snapshot.release()
                return self._take()
        finally:
            self.rollback()

    def rollback(self) -> None:
        self._dirty.close()
        if self._own:
            # A view that nobody closes would keep LMDB from reusing whatever is freed after it.
            self._snapshot.close()
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()
