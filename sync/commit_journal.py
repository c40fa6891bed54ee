"""Commit journal: small commits are appended to `store/journal`, and moved into LMDB by its next transaction
(docs/design/0110-the-commit-journal.md).

    append    one writer at a time, within LMDB's write lock; published only when it is as durable as was asked
    read      from where LMDB's position says up to what is published; each record whole, and naming the one before it
    restart   with another salt, where all that is published is in LMDB, which is durable: then nothing here is needed
    recover   by who has the home to itself: the commits are those that follow one another without a gap. What stands
              behind may have been written, and lost its predecessor: nothing is appended before a restart

After a flush that failed nobody trusts what the kernel has of this file to reach the disk: nothing is acknowledged, and
nothing appended until everything went through LMDB and its flushes.

Crash windows (each a fault point, each cut by tests/fault/test_edge_killed.py):
  journal: record written, not flushed · journal: record flushed, not published
  journal: published, the writer not told
  journal: about to begin anew · journal: header written, nothing appended
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from ..volume import faults
from ..volume.errors import Corrupt, Full, Unavailable
from .dirty_pages import write_all
from .folders import flush_folder
from .home_permissions import open_private
from .journal_format import (
    BLOCK_BYTES,
    FIRST_RECORD,
    RECORD_HEAD_BYTES,
    JournalHeader,
    JournalRecord,
    LostRecord,
    Place,
    blocks,
    lost_record,
    pack_header,
    record_bytes,
    record_head,
    unpack_header,
    unpack_record,
)
from .journal_tail import MovedRecord, Tail
from .lmdb_errors import NO_ROOM, os_error, system_errors
from .shared_words import (
    ANEW,
    DURABLE,
    FLUSHED,
    GENERATION,
    IDENTITY,
    PUBLISHED,
    identity_of,
    private_words,
    published_before,
    shared_words,
)
from .tables import HERE

FIRST_BYTES = 1024 * 1024
"""Room for records of a home's first journal. Tests make these small."""
MAX_BYTES = 8 * 1024 * 1024
"""As much memory a process may need for a tail."""
MAX_COMMIT_BYTES = 256 * 1024
"""Pages of one commit; a larger one costs LMDB less than its flush."""
_LOOK_BYTES: Final = 256 * 1024
"""After so many bytes it is looked what room the disk has."""
_RECORD_LIMIT: Final = 2 * 1024 * 1024
"""No record is as long: its page set and skeleton included."""

WRITTEN = faults.point("journal: record written, not flushed")
FLUSHED_NOW = faults.point("journal: record flushed, not published")
PUBLISHED_NOW = faults.point("journal: published, the writer not told")
BEFORE_RESTART = faults.point("journal: about to begin anew")
RESTARTED = faults.point("journal: header written, nothing appended")


class CommitJournal:
    """One process's hold on it. Threads take turns: by LMDB's write lock, or by the lock of who keeps the tail."""

    def __init__(
        self, data: Path, home: bytes, *, is_alone: bool, was_left: bool, can_write: bool, copy: bytes | None = None
    ) -> None:
        """`is_alone`: nobody else has the home open; `was_left`: and nobody has closed it. A `copy` of the journal is
        read instead of the file, and never written; empty where there was none.
        """
        self.path = data.with_name("journal")
        self._data = data
        self._home = home
        self._fd = -1
        self._header: JournalHeader | None = None
        self._slot = 0
        """The block that its header stands in."""
        self.words = private_words()
        self.is_shared = False
        """Whether what others append is told by words; else the file itself is looked at each time."""
        self.needs_recovery = True
        self._is_alone = is_alone
        self._was_left = was_left
        self._copy = copy
        self._unlooked_bytes = 0
        self._is_cramped = False
        if can_write:
            with suppress(OSError):
                # Where there is no room for them, commits go past the journal.
                self.words = shared_words(data)
                self.is_shared = True
        if self.is_shared:
            self.needs_recovery = is_alone or self.words[IDENTITY] != identity_of(data)

    @property
    def published(self) -> int:
        return self.words[PUBLISHED]

    def header(self) -> JournalHeader | None:
        """The one in force. Raises Corrupt, Unavailable."""
        generation = self.words[GENERATION]
        if self._header is None or self._header.generation != generation:
            self._header = None
            for slot, header in self._headers():
                if header.generation == generation:
                    self._header, self._slot = header, slot
        return self._header

    def recover(self, moved: MovedRecord) -> None:
        """Find out which records are commits; `moved` is what LMDB has. The caller holds LMDB's write lock, or shares
        no words. Raises Corrupt where commits were lost that had been acknowledged as durable, or as commits since the
        machine was booted.
        """
        words, header = self.words, self._newest_header()
        if header is None and (moved.generation or self._was_flushed_behind(moved.position)):
            raise self._damaged("it is gone" if self._fd < 0 else "it has no header that holds")
        end = moved.position
        generation = 0 if header is None else header.generation
        if header is not None and generation >= moved.generation:
            if header.home != self._home:
                raise self._damaged("it is another home's")
            tail = Tail(moved)
            place = tail.place(generation, header.salt, header.base)
            if place is None:
                raise self._damaged(f"it begins at {header.base}, and the store ends at {moved.position}")
            for record in self._read(header, place):
                end = record.end
            if self._was_left:
                self._check_lost(header, end)
        if self._was_left and self._published_before() > end:
            raise self._damaged(f"commits that were acknowledged are gone from it, at {end}")
        if header is not None and self.is_shared:
            self._mend_header(header)
        # A header that is older than what was moved is followed by one that is lost, and with it what is in LMDB.
        words[GENERATION], words[PUBLISHED], words[FLUSHED], words[ANEW] = generation, end, moved.position, 1
        # LMDB counts on from what is left of it: what was durable under these numbers is another transaction by now.
        words[DURABLE] = 0
        self._was_left = False
        if self.is_shared:
            words[IDENTITY] = identity_of(self._data)
            self.needs_recovery = False

    def behind(self, end: int) -> Iterator[JournalRecord | LostRecord]:
        """Of the newest journal, from `end` on, where its commits stop following one another: those that stand whole
        behind, and what is missing between. For who rescues a damaged home.
        """
        header = self._newest_header()
        if header is None:
            return
        for record in self._standing(header, end):
            if record.position > end:
                yield from self._missing(header, end, record.position)
            yield record
            end = record.end
        yield from self._missing(header, end, self._published_before())

    def read(self, tail: Tail) -> Iterator[JournalRecord]:
        """The records behind this tail, as far as they are whole."""
        header = self.header()
        place = None if header is None else tail.place(header.generation, header.salt, header.base)
        if header is not None and place is not None:
            yield from self._read(header, place)

    def room(self, tail: Tail, size_bytes: int) -> JournalHeader | None:
        """The header under which a record of that size can be appended; None where that needs a restart."""
        header = self.header()
        if header is None or self.words[ANEW] or tail.end + blocks(size_bytes) > header.base + header.capacity:
            return None
        return header

    def append(self, header: JournalHeader, tail: Tail, record: list[bytes], size: int, *, durable: bool) -> int:
        """The position behind a record that is written in these parts, `size` bytes in all. Within LMDB's write lock;
        `tail` reaches to what is published. Raises Full, Unavailable, with nothing committed.
        """
        words, at, end = self.words, FIRST_RECORD + tail.end - header.base, tail.end + size
        try:
            if (done := os.pwritev(self._fd, record, at)) < size:
                write_all(self._fd, b"".join(record)[done:], at + done)
            WRITTEN()
            if durable:
                os.fdatasync(self._fd)
            FLUSHED_NOW()
            words[PUBLISHED] = end
        except OSError as error:
            self._take_back(at)
            if error.errno in NO_ROOM:
                raise Full("no room on the disk for the local store's journal; nothing was changed") from error
            failure = Unavailable(f"the local store's journal {self.path} can't be written: {error.strerror}")
            failure.determinate = False
            raise failure from error
        except BaseException:
            # Ctrl-C, most likely while it was flushed: nobody was told of this commit, and nobody sees it.
            self._take_back(at)
            raise
        if durable:
            # Behind it: of what is never published nothing may be said to be flushed.
            words[FLUSHED] = end
        PUBLISHED_NOW()
        return end

    def _take_back(self, at: int) -> None:
        """Nobody who opens the home may take for a commit what isn't published, and what its writer was told isn't."""
        self.words[ANEW] = 1
        with suppress(OSError):
            write_all(self._fd, bytes(BLOCK_BYTES), at)
            os.fdatasync(self._fd)

    def is_cramped(self, tail: Tail, size: int) -> bool:
        """Whether the disk has so little room that LMDB might not take the tail, once so many bytes are appended: as
        long as that waits nothing can be removed, either.
        """
        self._unlooked_bytes += size
        if tail.is_empty or self._unlooked_bytes >= _LOOK_BYTES:
            self._unlooked_bytes = 0
            with suppress(OSError):
                disk = os.statvfs(self.path.parent)
                self._is_cramped = disk.f_bavail * disk.f_frsize < 2 * MAX_BYTES
        return self._is_cramped

    def restart(self, tail: Tail) -> JournalHeader | None:
        """Begin anew. Within LMDB's write lock; nothing is published that isn't in LMDB, and that is durable. None if
        there is no room on the disk for a journal. Raises Unavailable.
        """
        BEFORE_RESTART()
        words, before = self.words, self.header()
        # Whoever is cut off below leaves a header that isn't in force: nothing may be appended under the one that is.
        words[ANEW] = 1
        try:
            if self._fd < 0 and not self._open():
                self._make(tail)
            elif before is not None:
                # The header in force stays where it is, and is flushed before the other one is written over: of the
                # two one always holds.
                os.fdatasync(self._fd)
            capacity = FIRST_BYTES if before is None else self._enlarge(before)
            newest = self._newest_header()
            header = self._new_header(
                max(0 if newest is None else newest.generation, tail.moved.generation) + 1, tail.end, capacity
            )
            slot = self._slot ^ 1
            write_all(self._fd, pack_header(header), slot * BLOCK_BYTES)
        except OSError as error:
            if error.errno in NO_ROOM:
                return None
            raise os_error(error, f"the local store's journal {self.path} can't be written") from error
        self._header, self._slot = header, slot
        words[FLUSHED] = header.base
        words[GENERATION] = header.generation
        words[ANEW] = 0
        RESTARTED()
        return header

    def flush(self) -> None:
        """What is published survives a power loss. Raises Unavailable."""
        words, upto = self.words, self.words[PUBLISHED]
        if words[FLUSHED] >= upto or (self._fd < 0 and not self._open()):
            return
        try:
            os.fdatasync(self._fd)
        except OSError as error:
            words[ANEW] = 1
            raise os_error(error, f"the local store's journal {self.path} can't be flushed") from error

    def close(self) -> None:
        """Let go of its file, and of the words: as long as they are mapped, the home's file system is in use."""
        self.words = private_words()
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def _read(self, header: JournalHeader, place: Place) -> Iterator[JournalRecord]:
        position, link = place
        while True:
            record = self._record(header, position)
            if record is None or record.link != link:
                return
            yield record
            position, link = record.end, record.checksum

    def _record(self, header: JournalHeader, position: int) -> JournalRecord | None:
        at, left = FIRST_RECORD + position - header.base, header.base + header.capacity - position
        data = self._pread(2 * BLOCK_BYTES, at)
        size = record_bytes(data, min(left, _RECORD_LIMIT))
        if not size:
            return None
        if size > len(data):
            data += self._pread(size - len(data), at + len(data))
        return unpack_record(header.salt, position, data[:size]) if len(data) >= size else None

    def _published_before(self) -> int:
        """By those who have died; 0 while anybody goes on."""
        return published_before(self._data) if self._is_alone else 0

    def _check_lost(self, header: JournalHeader, end: int) -> None:
        """Raises Corrupt if a record behind `end` says that what is missing there had been flushed. A whole one, or any
        where a header is missing: it may have been written under that.
        """
        whole = any(record.flushed > end for record in self._standing(header, end))
        if whole or (len(self._headers()) < 2 and self._was_flushed_behind(end)):
            raise self._damaged(f"commits that were durable are gone from it, at {end}")

    def _was_flushed_behind(self, end: int) -> bool:
        """Whether anything that looks like a record behind `end`, of whatever generation, says so."""
        if self._fd < 0:
            return False
        blocks_at = range(FIRST_RECORD, os.fstat(self._fd).st_size, BLOCK_BYTES)
        heads = (record_head(self._pread(RECORD_HEAD_BYTES, at), _RECORD_LIMIT) for at in blocks_at)
        return any(head is not None and head.position >= end and head.flushed > end for head in heads)

    def _standing(self, header: JournalHeader, position: int) -> Iterator[JournalRecord]:
        """Whole records, whatever they follow."""
        while position < header.base + header.capacity - RECORD_HEAD_BYTES:
            record = self._record(header, position)
            if record is not None:
                yield record
            position = position + BLOCK_BYTES if record is None else record.end

    def _missing(self, header: JournalHeader, position: int, end: int) -> Iterator[LostRecord]:
        """By what can be read of their heads; of a volume that nobody knows where even that is gone."""
        while position < end:
            lost = lost_record(self._pread(RECORD_HEAD_BYTES, FIRST_RECORD + position - header.base), position, end)
            yield lost
            position = lost.end

    def _newest_header(self) -> JournalHeader | None:
        return max((header for _, header in self._headers()), key=lambda one: one.generation, default=None)

    def _headers(self) -> list[tuple[int, JournalHeader]]:
        """Those that hold, by the blocks that they stand in."""
        if self._fd < 0 and not self._open():
            return []
        data = self._pread(FIRST_RECORD, 0)
        both = ((slot, unpack_header(data[slot * BLOCK_BYTES : (slot + 1) * BLOCK_BYTES])) for slot in range(2))
        found = [(slot, header) for slot, header in both if header is not None]
        if len(found) == 1 and (newer := self._header_behind(found[0][1])) is not None:
            found.append((found[0][0] ^ 1, newer))
        return found

    def _header_behind(self, older: JournalHeader) -> JournalHeader | None:
        """The one that followed, if it is lost, and the first record that was written under it is not: that names its
        salt and its base.
        """
        head = record_head(self._pread(RECORD_HEAD_BYTES, FIRST_RECORD), _RECORD_LIMIT)
        if head is None or head.link == older.salt or head.position < older.base:
            return None
        capacity = os.fstat(self._fd).st_size - FIRST_RECORD
        newer = JournalHeader(older.home, older.generation + 1, head.link, head.position, capacity)
        return newer if self._record(newer, newer.base) is not None else None

    def _mend_header(self, header: JournalHeader) -> None:
        """It is in its block, though it had to be made out. Raises Unavailable."""
        slot = next(slot for slot, one in self._headers() if one == header)
        with system_errors(f"the local store's journal {self.path} can't be written"):
            if unpack_header(self._pread(BLOCK_BYTES, slot * BLOCK_BYTES)) is None:
                write_all(self._fd, pack_header(header), slot * BLOCK_BYTES)

    def _pread(self, size: int, offset: int) -> bytes:
        with system_errors(f"the local store's journal {self.path} can't be read"):
            return os.pread(self._fd, size, offset)

    def _open(self) -> bool:
        """False if there is none."""
        if self._copy is not None:
            if self._copy:
                self._fd = os.memfd_create("journal")
                write_all(self._fd, self._copy, 0)
            return bool(self._copy)
        try:
            self._fd = os.open(self.path, (os.O_RDWR if self.is_shared else os.O_RDONLY) | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise os_error(error, f"the local store's journal {self.path} can't be opened") from error
        return True

    def _new_header(self, generation: int, base: int, capacity: int) -> JournalHeader:
        return JournalHeader(self._home, generation, int.from_bytes(os.urandom(8)), base, capacity)

    def _make(self, tail: Tail) -> None:
        """A journal that begins behind `tail` and is full of zeros is there to stay once its name is: its header is the
        older one of the two, should a power loss take the next. Raises OSError.
        """
        temporary = self.path.with_name(".journal")
        fd = open_private(temporary, os.O_RDWR | os.O_TRUNC)
        try:
            write_all(fd, bytes(FIRST_RECORD + FIRST_BYTES), 0)
            write_all(fd, pack_header(self._new_header(tail.moved.generation + 1, tail.end, FIRST_BYTES)), 0)
            os.fsync(fd)
            os.rename(temporary, self.path)
        except BaseException:
            os.close(fd)
            with suppress(OSError):
                os.unlink(temporary)
            raise
        self._fd = fd
        flush_folder(self.path.parent)

    def _enlarge(self, before: JournalHeader) -> int:
        """Its capacity from now on. Nothing of what it holds is needed any more."""
        try:
            is_used = 2 * (self.words[PUBLISHED] - before.base) > before.capacity
            if before.capacity < MAX_BYTES and is_used:
                write_all(self._fd, bytes(MAX_BYTES - before.capacity), FIRST_RECORD + before.capacity)
                return MAX_BYTES
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
        return before.capacity

    def _damaged(self, what: str) -> Corrupt:
        return Corrupt(f"{HERE} {self.path}", f"it is the journal of this home, and {what}")
