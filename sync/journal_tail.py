"""Journal tail: the commits of the journal that aren't in LMDB, as one process holds them in memory.

A tail begins where a version of LMDB ends, and grows as commits are appended; what was in it once never changes. So a
view of a volume is an LMDB transaction, the tail that continues it, and a local LSN: of each page the newest version up
to that LSN, else LMDB's. A view keeps its tail whatever becomes of the journal.
"""

from __future__ import annotations

from typing import Final

import msgspec

from ..volume.errors import Corrupt
from .journal_format import JournalRecord, Place
from .tables import HERE, CommitRecord, Head

PageVersions = dict[int, list[tuple[int, bytes]]]
"""By page its versions, each with its LSN, oldest first."""


class MovedRecord(msgspec.Struct, frozen=True, kw_only=True):
    """How far the journal was moved into LMDB; written with what was moved."""

    position: int = 0
    link: int = 0
    """The checksum of the record that ends there."""
    generation: int = 0
    """Of the journal that it was moved from; 0: none ever was."""


class VolumeTail:
    """One volume's part of it."""

    __slots__ = ("commits", "head", "pages")

    def __init__(self, head: Head) -> None:
        self.head = head
        """After the last of its commits; before the first it is LMDB's."""
        self.pages: PageVersions = {}
        self.commits: list[tuple[int, CommitRecord]] = []

    def page(self, page: int, upto: int) -> bytes | None:
        return newest_version(self.pages.get(page, ()), upto)


class Tail:
    """It grows under its keeper's lock, and may be read without."""

    def __init__(self, moved: MovedRecord) -> None:
        self.moved = moved
        self.end = moved.position
        self.link = 0
        """The checksum of its last record."""
        self.volumes: dict[bytes, VolumeTail] = {}

    @property
    def is_empty(self) -> bool:
        return self.end == self.moved.position

    def place(self, generation: int, salt: int, base: int) -> Place | None:
        """Where its next record is, in that generation of the journal; None if it can't be in that one."""
        if not self.is_empty:
            return Place(self.end, self.link)
        if self.moved.generation == generation:
            return Place(self.end, self.moved.link)
        return Place(self.end, salt) if base == self.end else None

    def add(self, record: JournalRecord, head: Head) -> None:
        """The record at its end; `head` is LMDB's of that volume. Raises Corrupt if it doesn't follow from there."""
        volume = self.volumes.get(record.vid) or VolumeTail(head)
        before = volume.head
        if (record.lsn, record.generation, record.page_size) != (before.lsn + 1, before.generation, before.page_size):
            raise Corrupt(HERE, f"its journal holds commit {record.lsn} of a volume that stands at {before.lsn}")
        for page, data in record.pages.items():
            volume.pages.setdefault(page, []).append((record.lsn, data))
        volume.commits.append((record.lsn, record.commit))
        # Last: whoever sees this head finds everything up to it.
        volume.head = before.advanced(record.commit)
        self.volumes[record.vid] = volume
        self.end, self.link = record.end, record.checksum


def newest_version(versions: list[tuple[int, bytes]] | tuple[()], upto: int) -> bytes | None:
    for lsn, data in reversed(versions):
        if lsn <= upto:
            return data
    return None


NO_TAIL: Final = Tail(MovedRecord())
