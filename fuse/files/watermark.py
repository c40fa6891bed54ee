"""Watermark: what the local store remembers of a database's -wal: up to where its commits are in the volume.

It is written in the LMDB transaction that takes them over, so that after a crash they are gone on with exactly there.
It says nothing of a -wal with other salts, unless that one's sequence is lower: then it is an earlier one, and all of
it was taken over.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from ...sqlite.wal import WalHeader
from ...sync.folders import flush_folder
from ...sync.local_volume import Local
from ...sync.tables import Txn
from .wal_commit_count import counts_beside

Moment = tuple[int, int]
"""(LSN, generation) of a volume."""

Write = Callable[["Txn"], None]


class Watermark(msgspec.Struct, frozen=True):
    salts: bytes
    end_bytes: int
    sequence: int = 0
    """Counts the times that the -wal started over: what was flushed last may have been an earlier one."""
    commits: int = 0
    """How many the -wal holds up to there."""
    parted: Moment | None = None
    """Where the file and its -wal are parted (wal_tail.py): what the volume was then, by the file's own bytes."""

    @classmethod
    def of(cls, header: WalHeader, end_bytes: int, commits: int, parted: Moment | None = None) -> Watermark:
        return cls(header.salts, end_bytes, header.sequence, commits, parted)


def load(local: Local) -> Watermark | None:
    with local.environment.view() as txn:
        return local.environment.get(txn, "meta", _key(local), Watermark)


def note(local: Local, mark: Watermark) -> Write:
    """What writes it, in a transaction of the caller's."""
    return lambda txn: local.environment.put(txn, "meta", _key(local), mark)


def forget(local: Local, folder: Path) -> None:
    """The -wal was removed from `folder`, and everything that was in it is in the local store. Each step is on the disk
    before the next, and all of them before there is another -wal. Were the -wal to come back without its mark, it would
    be taken over once more, and undo what was committed since; by a mark that came back, the next one would be taken
    for one before it.
    """
    flush_folder(folder)
    # Before the mark: a count without one counts commits that nobody has.
    counts = counts_beside(folder)
    with suppress(FileNotFoundError):
        (counts / str(local.vid)).unlink()
        flush_folder(counts)
    key = _key(local)
    local.environment.update(lambda txn: txn.delete(key, db=local.environment.tables.meta), durable=True)


def _key(local: Local) -> bytes:
    return b"wal:" + local.raw
