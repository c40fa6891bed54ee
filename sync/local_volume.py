"""Local: one volume of this home, as the local store knows it. No network here.

What is read from one read transaction is one state: head, records and rows always agree in it. It is the newest one
together with the journal's tail (`head_at`), which a write transaction has moved into LMDB already.

`written` guards against rows that got lost in a damaged store: a page that an unpushed commit wrote can be had nowhere
else, so whatever isn't the row of exactly that commit is Corrupt, and is not taken for an older version, for "never
written" or for "ask the remote". Commit records have no gaps: each that is missing is Corrupt too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from ..volume.errors import Corrupt, NotFound
from ..volume.ids import VolumeId
from ..volume.page import zeros
from ..volume.pageset import PageSet, decode_pages, page_count
from .afterfork import ForkSafeLock
from .environment import Environment
from .file_locks import FileLock, Lock, ProcessWriteLock, has_sync_lock, sync_lock, write_lock
from .journal_tail import Tail
from .mapped_memory import WALK_EVERY, trim_scanned
from .rows import EMPTY, PENDING, Editor, Keep, Rows, newest
from .tables import (
    HERE,
    CommitRecord,
    Head,
    PushRecord,
    Table,
    Txn,
    VolumeRecord,
    commit_key,
    open_row,
    pack_head,
    seal_row,
    unpack_head,
)
from .unpushed_index import UnpushedIndex


class SyncState(NamedTuple):
    """What a sync begins with, of one state."""

    head: Head
    record: VolumeRecord
    pending: PushRecord | None
    """The push whose outcome isn't known yet."""

    @property
    def is_under_way(self) -> bool:
        """Some of the push's pages were sent, and no commit yet: it can be gone on with."""
        return self.pending is not None and bool(self.pending.sent) and not self.pending.token


class Local:
    """One volume. Any thread may use it; its methods that take a transaction speak of that state."""

    def __init__(self, environment: Environment, vid: VolumeId, name: str) -> None:
        self.environment = environment
        self.vid = vid
        self.raw = vid.raw
        self.name = name
        self._id = str(vid)
        self._rows: Rows | None = None
        self._kept_lock: ProcessWriteLock | None = None
        self._written: tuple[int, UnpushedIndex] = (-1, UnpushedIndex(0, 1))
        """With the generation that it speaks of."""
        self._adding = ForkSafeLock()

    def write_lock(self) -> Lock:
        """Raises Busy while another connection or process writes."""
        kept = self._kept_lock
        if kept is not None:
            return kept.inner()
        return write_lock(self.environment.home, self._id, self.name, self.environment.idle_files(self._id))

    def keep_write_lock(self) -> bool:
        """Keep others from writing until `drop_write_lock`; write locks are then had from within. False if it has begun
        before. Raises Busy.
        """
        if self._kept_lock is not None:
            return False
        lock = write_lock(self.environment.home, self._id, self.name)
        self._kept_lock = ProcessWriteLock(lock, f"volume {self.name!r} is being written: try again when that is done")
        return True

    def drop_write_lock(self) -> None:
        """The caller has no write lock from within."""
        kept, self._kept_lock = self._kept_lock, None
        if kept is not None:
            kept.release()

    def sync_lock(self) -> FileLock:
        """Raises Busy while another connection or process pushes, pulls or resets; NotFound when the volume was
        removed, if nobody has looked."""
        was_locked = has_sync_lock(self.environment.home, self._id)
        lock = sync_lock(self.environment.home, self._id, self.name)
        if not was_locked:
            # For the first time; or the volume was removed, and its lock file with it.
            try:
                with self.environment.view() as txn:
                    self.raw_head(txn)
            except NotFound:
                lock.remove()
                raise
            except BaseException:
                lock.release()
                raise
        return lock

    def raw_head(self, txn: Txn) -> bytes:
        """Raises NotFound when the volume was removed."""
        raw = txn.get(self.raw, db=self.environment.tables.heads)
        if raw is None:
            raise self._gone(txn, self.environment.tables.volumes)
        return raw

    def head(self, txn: Txn) -> Head:
        return unpack_head(self.raw, self.raw_head(txn))

    def head_at(self, txn: Txn, tail: Tail) -> Head:
        """What the tail says that continues this transaction."""
        part = tail.volumes.get(self.raw)
        return self.head(txn) if part is None else part.head

    def peek(self) -> Head:
        """The head as it stands now."""
        with self.environment.look() as (txn, tail):
            return self.head_at(txn, tail)

    def record(self, txn: Txn | None = None) -> VolumeRecord:
        if txn is None:
            with self.environment.view() as txn:
                return self.record(txn)
        record = self.environment.get(txn, "volumes", self.raw, VolumeRecord)
        if record is None:
            raise self._gone(txn, self.environment.tables.heads)
        return record

    def _gone(self, txn: Txn, other: Table) -> NotFound | Corrupt:
        """Removed; or lost, if the other one of its two records stands."""
        if txn.get(self.raw, db=other) is not None:
            return Corrupt(HERE, f"one of the two records of volume {self.name!r} is gone")
        return NotFound(f"volume {self.name!r} is gone from this home")

    def sync_state(self) -> SyncState:
        """All of it as it stands now, by one look."""
        with self.environment.look() as (txn, tail):
            return SyncState(self.head_at(txn, tail), self.record(txn), self.push(txn))

    def rows(self, page_size: int) -> Rows:
        if self._rows is None or self._rows.page_size != page_size:
            self._rows = Rows(self.raw, page_size, self.environment.data_path)
        return self._rows

    def editor(self, txn: Txn, page_size: int) -> Editor:
        return Editor(self.rows(page_size), self.environment.tables, txn)

    def put_head(self, txn: Txn, head: Head) -> None:
        self._put(txn, self.environment.tables.heads, self.raw, pack_head(self.raw, head))

    def change_record(self, **fields: object) -> None:
        """Set these fields of the record as it stands by now."""
        self.environment.update(lambda txn: self.put_record(txn, msgspec.structs.replace(self.record(txn), **fields)))

    def put_record(self, txn: Txn, record: VolumeRecord) -> None:
        self.environment.put(txn, "volumes", self.raw, record)

    def commits(self, txn: Txn, after: int, upto: int) -> Iterator[tuple[int, CommitRecord]]:
        """The unpushed commits with after < local LSN <= upto, oldest first; `after` isn't below the sync point. Raises
        Corrupt where one is missing.
        """
        cursor = txn.cursor(self.environment.tables.commits)
        more = cursor.set_range(commit_key(self.raw, after + 1))
        for lsn in range(after + 1, upto + 1):
            wanted = commit_key(self.raw, lsn)
            key, value = cursor.item() if more else (b"", b"")
            if key != wanted:
                raise Corrupt(HERE, f"the record of commit {lsn} of volume {self.vid} is gone")
            yield lsn, open_row("commits", key, value, CommitRecord)
            more = cursor.next()

    def put_commit(self, txn: Txn, lsn: int, commit: CommitRecord) -> None:
        key = commit_key(self.raw, lsn)
        self._put(txn, self.environment.tables.commits, key, seal_row(key, commit))

    def drop_commits(self, txn: Txn, after: int, upto: int) -> None:
        """Unread: they may be damaged."""
        cursor, last = txn.cursor(self.environment.tables.commits), commit_key(self.raw, upto)
        more = cursor.set_range(commit_key(self.raw, after + 1))
        while more and cursor.key() <= last:
            more = cursor.delete()

    def push(self, txn: Txn) -> PushRecord | None:
        """The push whose outcome isn't known yet."""
        return self.environment.get(txn, "pushes", self.raw, PushRecord)

    def put_push(self, txn: Txn, push: PushRecord | None) -> None:
        table = self.environment.tables.pushes
        if push is None:
            txn.delete(self.raw, db=table)
        else:
            self._put(txn, table, self.raw, seal_row(self.raw, push))

    def keep(self, txn: Txn) -> Keep | None:
        """What must survive for the push on its way."""
        push = self.push(txn)
        return None if push is None else Keep(push.start, push.end)

    def unpushed(self, txn: Txn, head: Head) -> PageSet:
        """Every page that the unpushed commits wrote, cut off since or not."""
        pages = PageSet()
        for _, commit in self.commits(txn, head.sync_local, head.lsn):
            pages |= decode_pages(HERE, commit.pages)
        return pages

    def _put(self, txn: Txn, table: Table, key: bytes, value: bytes) -> None:
        """Found again at once: a damaged leaf may take a record where no reader looks."""
        txn.put(key, value, db=table)
        if txn.get(key, db=table) != value:
            raise Corrupt(HERE, f"a record of volume {self.vid} was written and is not found again")

    def check_newest(self, txn: Txn, head: Head) -> None:
        """Raises Corrupt if a commit stands above the head: the newest head was lost, and an older one is read."""
        if txn.get(commit_key(self.raw, head.lsn + 1), db=self.environment.tables.commits) is not None:
            raise Corrupt(HERE, f"volume {self.vid} stands at {head.lsn}, and has a later commit")

    def written(self, txn: Txn, head: Head) -> UnpushedIndex | None:
        """The LSNs of the unpushed pages up to `head`, and maybe of later commits. None where nothing is unpushed."""
        if head.unpushed == 0:
            return None
        with self._adding.held:
            generation, known = self._written
            if generation != head.generation or known.start != head.sync_local:
                known = UnpushedIndex(head.sync_local, head.page_size)
            # What others see meanwhile has some of the later commits, and is checked against their own view.
            for lsn, commit in self.commits(txn, known.end, head.lsn):
                known.add(lsn, commit)
            self.check_newest(txn, head)
            self._written = head.generation, known
            return known

    def written_at(self, txn: Txn, head: Head) -> UnpushedIndex:
        """The LSNs of the unpushed pages as of exactly `head`."""
        exact = UnpushedIndex(head.sync_local, head.page_size)
        for lsn, commit in self.commits(txn, head.sync_local, head.lsn):
            exact.add(lsn, commit)
        return exact

    def save(self, sync_remote: int, pages: dict[int, bytes]) -> bool:
        """Keep pages that were fetched at the remote LSN `sync_remote`; whether the sync point still is that one (B10).

        A page is kept only where it is missing: what a local commit wrote or cut off since stays as it is.
        """

        def keep(txn: Txn) -> bool:
            head = self.head(txn)
            if head.sync_remote != sync_remote:
                return False
            editor = self.editor(txn, head.page_size)
            last = page_count(min(head.floor, head.length), head.page_size)
            fresh: dict[int, list[tuple[int, bytes]]] = {}
            for page in sorted(pages):
                version = editor.version(page, head.lsn)
                if page > last or (version is not None and version.state != PENDING):
                    continue
                fresh.setdefault(version.lsn if version else head.sync_local, []).append((page, pages[page]))
            for lsn, items in fresh.items():
                editor.put(items, lsn)
                # put() leaves the marker's row to be overwritten, which it is: same page, same LSN.
            self.environment.cache.make_room(txn, (self.raw, pages))
            return True

        return self.environment.update(keep)

    def counts(self) -> tuple[int, int]:
        """Pages that are held here, and how many of them are zeros."""
        with self.environment.look() as (txn, tail):
            head, part = self.head(txn), tail.volumes.get(self.raw)
            if head.page_size == 0:
                return 0, 0
            fresh = {} if part is None else {page: versions[-1][1] for page, versions in list(part.pages.items())}
            held, nothing = len(fresh), sum(data == zeros(head.page_size) for data in fresh.values())
            rows, tails = self.rows(head.page_size), txn.cursor(self.environment.tables.tails)
            for number, (page, _, value) in enumerate(newest(rows, tails, head.lsn), 1):
                held += value[0] != PENDING and page not in fresh
                nothing += value[0] == EMPTY and page not in fresh
                if number % WALK_EVERY == 0:
                    trim_scanned(rows.path)
            return held, nothing


def state_hashes(environment: Environment) -> dict[bytes, int]:
    """Of every volume by its id: a number that is another once its record or its head is, within this process."""
    with environment.look() as (txn, tail):
        heads = dict(txn.cursor(environment.tables.heads)) | _later_heads(tail)
        return {vid: hash((record, heads.get(vid, b""))) for vid, record in txn.cursor(environment.tables.volumes)}


def raw_heads(environment: Environment) -> dict[bytes, bytes]:
    """The head of every volume by its id, as it is stored: to be compared with what was there before."""
    with environment.look() as (txn, tail):
        return dict(txn.cursor(environment.tables.heads)) | _later_heads(tail)


def _later_heads(tail: Tail) -> dict[bytes, bytes]:
    return {vid: pack_head(vid, part.head) for vid, part in list(tail.volumes.items())}
