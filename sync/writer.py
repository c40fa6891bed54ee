"""Writer: a transaction in progress. It holds the volume's write lock from its making until commit or rollback."""

from __future__ import annotations

from collections.abc import Callable

from ..volume.errors import BadInput, BudwoodError, Busy, Conflict
from ..volume.page import DEFAULT_PAGE_SIZE, check_page_size
from ..volume.protocols import Durability
from .commit import commit
from .commit_journal import MAX_BYTES as JOURNAL_BYTES
from .confirm import Confirm, Confirmed
from .file_locks import Lock
from .local_volume import Local
from .overlay import MAX_PAGE, Overlay
from .snapshot import LocalSnapshot
from .stage import tidy


class LocalWriter:
    """Answers the protocol `Writer`. It reads through `snapshot`, which stays the caller's unless it is to `own` it.
    Not for two threads at once.

    Raises Busy when another connection writes, Conflict when the volume has moved on since the snapshot.
    """

    def __init__(
        self,
        local: Local,
        snapshot: LocalSnapshot,
        take: Callable[[LocalSnapshot], LocalSnapshot],
        confirm: Confirm,
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
        self._confirm = confirm
        self._confirmed: Confirmed | None = None
        self._base = head
        self._overlay = Overlay(snapshot, self.page_size, local.environment.spill)
        self._lock: Lock | None = None
        try:
            if not head.page_size:
                check_page_size(self.page_size)
            elif page_size not in (None, self.page_size):
                raise BadInput(
                    f"volume {local.name!r} has pages of {head.page_size} bytes: {page_size} can't be had any more"
                )
            self._lock = local.write_lock()
            # Where nothing moved in the home since the view was taken, nobody left anything behind either.
            now = head if snapshot.is_newest() else tidy(local)
            if (now.lsn, now.generation) != (head.lsn, head.generation):
                raise Conflict(f"volume {local.name!r} has moved on since this snapshot was taken", head=now.lsn)
        except BaseException:
            self.rollback()
            raise

    @property
    def length(self) -> int:
        return self._overlay.length

    def read(self, page: int) -> bytes:
        return self._overlay.read(page)

    def write(self, page: int, data: bytes) -> None:
        if len(data) != self.page_size:
            raise BadInput(f"a page of volume {self.local.name!r} has {self.page_size} bytes, not {len(data)}")
        if not 0 < page <= MAX_PAGE:
            raise BadInput(f"pages are counted from 1 to {MAX_PAGE}, not {page}")
        self._overlay.write((page - 1) * self.page_size, data)

    def truncate(self, length: int) -> None:
        if not 0 <= length <= MAX_PAGE * self.page_size:
            raise BadInput(f"a volume can't be {length} bytes long")
        self._overlay.truncate(length)

    def confirm(self) -> None:
        """Have the remote acknowledge what was written, before it is committed here (confirm.py): then `commit`, with
        nothing written in between. Raises Conflict where the remote has moved on, Diverged, Busy while the volume is
        being pushed or pulled, Unavailable; the transaction goes on, and nothing of it is here.
        """
        if self._lock is None:
            raise BadInput("this transaction is over")
        if not self._overlay.is_empty:
            self._confirmed = self._confirm(self._overlay)

    def commit(self, durability: Durability) -> LocalSnapshot | None:
        """Raises Full or another StoreError with the volume as it was; the writer is over then too."""
        try:
            if self._lock is None:
                raise BadInput("this transaction is over")
            if self._overlay.is_empty:
                return None
            self._commit(durability)
            taken = self._after_commit()
            if not self.local.environment.room.has_room:
                # The old view, which nobody comes back to, keeps from the disk what the commit has replaced.
                self._snapshot.release()
                self.local.environment.room.catch_up(JOURNAL_BYTES)
            return taken
        finally:
            self.rollback()

    def _commit(self, durability: Durability) -> None:
        confirmed, change = self._confirmed, self._overlay.change()
        if confirmed is None:
            commit(self.local, self._base, change, durability)
            return
        try:
            commit(self.local, self._base, change, durability, also=confirmed.land)
        except BudwoodError as error:
            raise confirmed.told(error) from error
        confirmed.finish()

    def _after_commit(self) -> LocalSnapshot:
        # Taken under the lock, so that it is the view of exactly this commit.
        try:
            return self._take(self._snapshot)
        except Busy:
            # LMDB's table of readers is full. The commit stands, and must not be reported as failed: the old view makes
            # room for the new one.
            self._snapshot.release()
            return self._take(self._snapshot)

    def rollback(self) -> None:
        self._overlay.close()
        if self._own:
            # A view that nobody closes would keep LMDB from reusing whatever is freed after it.
            self._snapshot.close()
        confirmed, self._confirmed = self._confirmed, None
        if confirmed is not None:
            confirmed.close()
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()
