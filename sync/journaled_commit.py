"""Journaled commit: a small commit, appended to the home's journal (commit_journal.py).

All within LMDB's write lock, to which nothing is written: the head is looked at, LMDB's last transaction made durable
if it isn't known to be, the record written, flushed if that was asked for, and published. What builds on an LMDB that a
power loss may take back would not fit what is left then.
"""

from __future__ import annotations

import lmdb
import msgspec

from ..volume.errors import Conflict, Corrupt
from ..volume.protocols import Durability
from . import commit_journal
from .change import Change
from .journal_format import RECORD_HEAD_BYTES, JournalRecord, pack_record
from .lmdb_errors import translated
from .local_volume import Local
from .shared_words import DURABLE, FLUSHED
from .tables import CommitRecord, Head


def append(
    local: Local, head: Head, change: Change, items: list[tuple[int, bytes]], record: CommitRecord, durable: Durability
) -> Head | None:
    """The head after it; None if this one has to go into LMDB itself. Raises what `commit` raises."""
    environment = local.environment
    keeper = environment.keeper
    if keeper is None or not keeper.journal.is_shared:
        return None
    journal, packed = keeper.journal, msgspec.msgpack.encode(record)
    size = RECORD_HEAD_BYTES + len(packed) + change.page_size * len(items)
    txn = environment.lock()
    try:
        tail = keeper.within(txn)
        now = local.head_at(txn, tail)
        if (now.lsn, now.generation) != (head.lsn, head.generation):
            raise moved_on(local, now)
        if local.raw not in tail.volumes:
            local.check_newest(txn, now)
        if now.page_size != change.page_size or journal.is_cramped(tail, size):
            return None
        header = journal.room(tail, size)
        if header is None and not tail.is_empty:
            return None
        words, number = journal.words, txn.id() - 1
        if words[DURABLE] < number:
            environment.flush_store()
            words[DURABLE] = number
        if header is None:
            header = journal.restart(tail)
            if header is None or size > header.capacity:
                return None
        place = tail.place(header.generation, header.salt, header.base)
        if place is None:
            raise keeper.damaged()
        flushed = min(words[FLUSHED], place.position)
        parts, size, checksum = pack_record(
            header.salt, place, flushed, local.raw, now.lsn + 1, now.generation, now.page_size, packed, items
        )
        end = journal.append(header, tail, parts, size, durable=durable is Durability.DURABLE)
        made = JournalRecord(
            *place, flushed, now.lsn + 1, local.raw, now.generation, now.page_size, record, dict(items), checksum, end
        )
        keeper.appended(txn, tail, made)
        return now.advanced(record)
    except (lmdb.Error, Corrupt) as error:
        with translated(environment.data_path):
            raise error
    finally:
        txn.abort()


def moved_on(local: Local, now: Head) -> Conflict:
    return Conflict(f"volume {local.name!r} has moved on since this transaction began", head=now.lsn)


def is_journaled(change: Change, head: Head) -> bool:
    """Whether a commit of this kind may go into the journal."""
    return (
        bool(head.page_size)
        and change.floor >= head.length
        and len(change.pages) * change.page_size <= commit_journal.MAX_COMMIT_BYTES
    )
