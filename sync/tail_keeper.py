"""Tail keeper: the journal's tail, kept by one process for all its views, and moved into LMDB by what writes there.

Who looks reads first how far the journal is published and begins its LMDB transaction then. So that one has what was
moved by then, and the journal the rest, unless the journal has begun anew since: then a newer transaction has it all,
and the look is repeated. Under LMDB's write lock nothing moves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..volume.errors import Corrupt
from ..volume.ids import VolumeId
from .afterfork import ForkSafeLock
from .commit_journal import CommitJournal
from .journal_format import JournalRecord
from .journal_tail import MovedRecord, Tail
from .local_volume import Local
from .shared_words import GENERATION
from .tables import HERE, Txn

if TYPE_CHECKING:
    from .environment import Environment

_KEY: Final = b"journal"


class TailKeeper:
    """For any thread."""

    def __init__(self, environment: Environment, journal: CommitJournal) -> None:
        self._environment = environment
        self.journal = journal
        self.newest = -1, Tail(MovedRecord(position=-1))
        """The newest of LMDB's transactions that was seen, and the tail that continues it; read without the lock."""
        self._lock = ForkSafeLock()

    def moved(self, txn: Txn) -> MovedRecord:
        return self._environment.get(txn, "meta", _KEY, MovedRecord) or MovedRecord()

    def continued(self, txn: Txn, number: int, published: int) -> Tail | None:
        """The tail from LMDB's transaction `number` to `published` at least; None if that was overtaken."""
        seen, tail = self.newest
        if number == seen and tail.end >= published and self.journal.is_shared:
            return tail
        with self._lock.held:
            seen, tail = self.newest
            if number != seen:
                if number < seen:
                    return None
                moved = self.moved(txn)
                if moved.position != tail.moved.position:
                    tail = Tail(moved)
                self.newest = number, tail
            if not self.journal.is_shared:
                self.journal.recover(tail.moved)
                published = self.journal.published
            if tail.end < published:
                for record in self.journal.read(tail):
                    self._add(txn, tail, record)
                    if tail.end >= published:
                        break
            return tail if tail.end >= published else None

    def within(self, txn: Txn) -> Tail:
        """All of it, within LMDB's write transaction, which has written nothing yet. Raises Corrupt."""
        tail = self.continued(txn, txn.id() - 1, self.journal.published)
        if tail is None:
            raise self.damaged()
        return tail

    def appended(self, txn: Txn, tail: Tail, record: JournalRecord) -> None:
        """The tail grows by what was appended, within LMDB's write lock."""
        with self._lock.held:
            # Unless another thread has read it by now.
            if tail.end == record.position:
                self._add(txn, tail, record)

    def move(self, txn: Txn) -> bool:
        """All of it becomes LMDB's, in its write transaction, before anything else is written there. Whether there was
        something.
        """
        tail = self.within(txn)
        if tail.is_empty:
            return False
        for vid, part in tail.volumes.items():
            local = Local(self._environment, VolumeId(vid), str(VolumeId(vid)))
            now, keep = local.head(txn), local.keep(txn)
            editor = local.editor(txn, now.page_size)
            # One version of a page is kept, each at the LSN of its commit.
            lasting: dict[int, list[tuple[int, bytes]]] = {}
            for page in sorted(part.pages):
                lsn, data = part.pages[page][-1]
                lasting.setdefault(lsn, []).append((page, data))
            for lsn, items in lasting.items():
                pages = [page for page, _ in items]
                editor.put(items, lsn)
                editor.check(pages, lsn)
                editor.prune(pages, lsn, keep)
            for lsn, commit in part.commits:
                local.put_commit(txn, lsn, commit)
            if (now.lsn + 1, now.generation) != (part.commits[0][0], part.head.generation):
                raise Corrupt(HERE, f"its journal does not continue volume {local.vid}")
            local.put_head(txn, part.head)
        moved = MovedRecord(position=tail.end, link=tail.link, generation=self.journal.words[GENERATION])
        self._environment.put(txn, "meta", _KEY, moved)
        return True

    def damaged(self) -> Corrupt:
        return Corrupt(f"{HERE} {self.journal.path}", "commits that it was to hold are not whole")

    def _add(self, txn: Txn, tail: Tail, record: JournalRecord) -> None:
        part = tail.volumes.get(record.vid)
        if part is not None:
            tail.add(record, part.head)
            return
        local = Local(self._environment, VolumeId(record.vid), str(VolumeId(record.vid)))
        head = local.head(txn)
        local.check_newest(txn, head)
        tail.add(record, head)
