"""Local: one volume of this home, as the local store knows it. No network here.

What is read from one read transaction is one state: head, records and rows always agree in it.

`expected` guards against rows that got lost in a damaged store: a page that an unpushed commit wrote can be had nowhere
else, so its absence is Corrupt and must not be taken for "never written" or "ask the remote".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from ..volume.errors import Corrupt, NotFound
from ..volume.ids import VolumeId
from ..volume.pageset import PageSet, beyond, decode_pages, page_count
from .environment import Environment
from .locks import FileLock, Lock, Tenure, sync_lock, write_lock
from .residency import WALK_EVERY, stream
from .rows import EMPTY, PENDING, Editor, Keep, Rows, newest
from .tables import (
    CommitRecord,
    Head,
    PushRecord,
    VolumeRecord,
    commit_key,
    name_key,
    open_row,
    pack_head,
    seal_row,
    unpack_head,
)

if TYPE_CHECKING:
    from .environment import Txn

__all__ = ["Local", "find_volume", "list_volumes", "raw_heads", "store_record"]


class _Expected(NamedTuple):
    """Pages that must have a row: those of the unpushed commits (start, end], less what later ones cut off."""

    generation: int
    start: int
    end: int
    pages: PageSet


class Local:
    """One volume. Any thread may use it; its methods that take a transaction speak of that state."""

    def __init__(self, environment: Environment, vid: VolumeId, name: str) -> None:
        self.environment = environment
        self.vid = vid
        self.name = name
        self._id = str(vid)
        self._rows: Rows | None = None
        self._tenure: Tenure | None = None
        self._expected = _Expected(-1, 0, 0, PageSet())

    @property
    def raw(self) -> bytes:
        return self.vid.raw

    def write_lock(self) -> Lock:
        """Raises Busy while another connection or process writes."""
        tenure = self._tenure
        if tenure is not None:
            return tenure.inner()
        return write_lock(self.environment.home, self._id, self.name)

    def begin_tenure(self) -> bool:
        """Keep others from writing until `end_tenure`; write locks are then had from within. False if it has begun
        before. Raises Busy.
        """
        if self._tenure is not None:
            return False
        lock = write_lock(self.environment.home, self._id, self.name)
        self._tenure = Tenure(lock, f"volume {self.name!r} is being written: try again when that is done")
        return True

    def end_tenure(self) -> None:
        """The caller has no write lock from within."""
        tenure, self._tenure = self._tenure, None
        if tenure is not None:
            tenure.release()

    def sync_lock(self) -> FileLock:
        """Raises Busy while another connection or process pushes, pulls or resets."""
        return sync_lock(self.environment.home, self._id, self.name)

    def raw_head(self, txn: Txn) -> bytes:
        """Raises NotFound when the volume was removed."""
        raw = txn.get(self.vid.raw, db=self.environment.tables.heads)
        if raw is None:
            raise NotFound(f"volume {self.name!r} is gone from this home")
        return raw

    def head(self, txn: Txn) -> Head:
        return unpack_head(self.vid.raw, self.raw_head(txn))

    def peek(self) -> Head:
        """The head as it stands now."""
        with self.environment.view() as txn:
            return self.head(txn)

    def record(self, txn: Txn | None = None) -> VolumeRecord:
        if txn is None:
            with self.environment.view() as txn:
                return self.record(txn)
        raw = txn.get(self.vid.raw, db=self.environment.tables.volumes)
        if raw is None:
            raise NotFound(f"volume {self.name!r} is gone from this home")
        return open_row("volumes", self.vid.raw, raw, VolumeRecord)

    def rows(self, page_size: int) -> Rows:
        if self._rows is None or self._rows.page_size != page_size:
            self._rows = Rows(self.vid.raw, page_size, self.environment.data_path)
        return self._rows

    def editor(self, txn: Txn, page_size: int) -> Editor:
        return Editor(self.rows(page_size), self.environment.tables, txn)

    def put_head(self, txn: Txn, head: Head) -> None:
        txn.put(self.vid.raw, pack_head(self.vid.raw, head), db=self.environment.tables.heads)

    def put_record(self, txn: Txn, record: VolumeRecord) -> None:
        store_record(self.environment, txn, record)

    def commits(self, txn: Txn, after: int, upto: int) -> Iterator[tuple[int, CommitRecord]]:
        """The unpushed commits with after < local LSN <= upto, oldest first."""
        vid = self.vid.raw
        cursor = txn.cursor(self.environment.tables.commits)
        more = cursor.set_range(commit_key(vid, after + 1))
        while more:
            key, value = cursor.item()
            lsn = int.from_bytes(key[16:])
            if key[:16] != vid or lsn > upto:
                return
            yield lsn, open_row("commits", key, value, CommitRecord)
            more = cursor.next()

    def put_commit(self, txn: Txn, lsn: int, commit: CommitRecord) -> None:
        key = commit_key(self.vid.raw, lsn)
        txn.put(key, seal_row(key, commit), db=self.environment.tables.commits)

    def drop_commits(self, txn: Txn, after: int, upto: int) -> None:
        for lsn in [lsn for lsn, _ in self.commits(txn, after, upto)]:
            txn.delete(commit_key(self.vid.raw, lsn), db=self.environment.tables.commits)

    def push(self, txn: Txn) -> PushRecord | None:
        """The push whose outcome isn't known yet."""
        raw = txn.get(self.vid.raw, db=self.environment.tables.pushes)
        return None if raw is None else open_row("pushes", self.vid.raw, raw, PushRecord)

    def put_push(self, txn: Txn, push: PushRecord | None) -> None:
        table = self.environment.tables.pushes
        if push is None:
            txn.delete(self.vid.raw, db=table)
        else:
            txn.put(self.vid.raw, seal_row(self.vid.raw, push), db=table)

    def keep(self, txn: Txn) -> Keep | None:
        """What must survive for the push on its way."""
        push = self.push(txn)
        return None if push is None else Keep(push.start, push.end)

    def unpushed(self, txn: Txn, head: Head, upto: int | None = None) -> PageSet:
        """Every page that the unpushed commits wrote, cut off since or not."""
        pages = PageSet()
        for _, commit in self.commits(txn, head.sync_local, head.lsn if upto is None else upto):
            pages |= decode_pages("local store", commit.pages)
        return pages

    def expected(self, txn: Txn, head: Head) -> PageSet:
        """The pages that must have a row in this state because an unpushed commit wrote them. Not to be changed."""
        if head.unpushed == 0:
            return PageSet()
        known = self._expected
        fits = known.generation == head.generation and known.start == head.sync_local and known.end <= head.lsn
        if not fits:
            known = _Expected(head.generation, head.sync_local, head.sync_local, PageSet())
        elif known.end == head.lsn:
            return known.pages
        pages, found = PageSet(known.pages), 0
        for _, commit in self.commits(txn, known.end, head.lsn):
            pages -= beyond(pages, page_count(commit.floor, head.page_size))
            pages |= decode_pages("local store", commit.pages)
            found += 1
        if not fits and found != head.unpushed:
            raise Corrupt(
                "local store", f"volume {self.vid} has {head.unpushed} unpushed commits, and {found} are found"
            )
        # One assignment: another thread sees the set before or the set after, and neither is ever changed.
        self._expected = _Expected(head.generation, head.sync_local, head.lsn, pages)
        return pages

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
            return True

        return self.environment.update(keep)

    def counts(self) -> tuple[int, int]:
        """Pages that are held here, and how many of them are zeros."""
        with self.environment.view() as txn:
            head = self.head(txn)
            if head.page_size == 0:
                return 0, 0
            held = nothing = 0
            rows, tails = self.rows(head.page_size), txn.cursor(self.environment.tables.tails)
            for number, (_, _, value) in enumerate(newest(rows, tails, head.lsn), 1):
                held += value[0] != PENDING
                nothing += value[0] == EMPTY
                if number % WALK_EVERY == 0:
                    stream(rows.path)
            return held, nothing


def store_record(environment: Environment, txn: Txn, record: VolumeRecord) -> None:
    txn.put(record.vid, seal_row(record.vid, record), db=environment.tables.volumes)


def find_volume(environment: Environment, name: str, txn: Txn | None = None) -> VolumeRecord | None:
    """The volume of that name in this home. A place of that name is none (places.py)."""
    if txn is None:
        with environment.view() as txn:
            return find_volume(environment, name, txn)
    vid = txn.get(name_key(name), db=environment.tables.names)
    if vid is None:
        return None
    raw = txn.get(vid, db=environment.tables.volumes)
    if raw is None:
        if txn.get(vid, db=environment.tables.places) is not None:
            return None
        raise Corrupt("local store", f"the name {name!r} leads to no volume")
    record = open_row("volumes", vid, raw, VolumeRecord)
    if record.name != name:
        raise Corrupt("local store", f"the name {name!r} leads to the volume {record.name!r}")
    return record


def raw_heads(environment: Environment) -> dict[bytes, bytes]:
    """The head of every volume by its id, as it is stored: to be compared with what was there before."""
    with environment.view() as txn:
        return dict(txn.cursor(environment.tables.heads))


def list_volumes(environment: Environment, txn: Txn) -> Iterator[VolumeRecord]:
    """Every volume of this home, by id; those that are gone too."""
    for key, value in txn.cursor(environment.tables.volumes):
        yield open_row("volumes", key, value, VolumeRecord)
