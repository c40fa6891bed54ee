"""WAL: the committed transactions of a write-ahead log (sqlite.org/fileformat2, section 4).

    header, 32 bytes         u32 magic, whose last bit says that checksums read words big-endian
                             u32 format, 3007000
                             u32 page size
                             u32 sequence
                             8 bytes salts
                             two u32, the checksum of the 24 bytes before
    frame, 24 bytes          u32 page
      and one page           u32 page count of the database after the commit, 0 where none ends here
                             8 bytes salts
                             two u32, the checksum

A frame holds when its salts are the header's and its checksum, which runs on from the frame before (the first: from the
header) over its first 8 bytes and its page, is right. A transaction is committed when every frame from the last commit
up to one with a page count holds. Whatever follows is a transaction under way, one that was rolled back, or what an
older generation left; nothing tells them apart, and all of it is no commit.

Frames after the last commit may still be rewritten in place: a rollback after a spill, or a page spilled twice. So the
reader keeps its place at the last commit and reads what follows anew each time it is asked. When the log starts over,
its header gets new salts; the reader, which looks at the header first, then begins at the front. What it reads must not
change under it meanwhile: ask it when a frame with a page count has been written, or under SQLite's lock. (FACTS:
agreed with SQLite at every commit mark)
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from ..volume.errors import Corrupt, Unsupported
from ..volume.page import MAX_PAGE_SIZE, MIN_PAGE_SIZE
from .wal_checksum import wal_checksum

WAL_HEADER_SIZE: Final = 32
FRAME_HEADER_SIZE: Final = 24

_MAGIC: Final = 0x377F0682
_FORMAT: Final = 3007000
_WAL: Final = "a write-ahead log"
_HEADER: Final = struct.Struct(">IIII8sII")
_FRAME: Final = struct.Struct(">II8sII")


@dataclass(frozen=True, slots=True)
class WalHeader:
    page_size: int
    sequence: int
    """Counts the times that the log started over."""
    salts: bytes
    sums: tuple[int, int]
    big_endian: bool
    """How checksums read words; all other numbers are big-endian."""


@dataclass(frozen=True, slots=True)
class FrameHeader:
    page: int
    page_count: int
    """Pages of the database after the commit that this frame ends; 0 in all other frames."""
    salts: bytes
    sums: tuple[int, int]


@dataclass(frozen=True, slots=True)
class WalCommit:
    """One committed transaction: of each of its pages the place of the newest content, in bytes from the log's front.

    Pages beyond `page_count` were cut off by the same transaction and are left out. It takes the log's bytes
    `start_bytes` … `end_bytes`.
    """

    pages: dict[int, int]
    page_count: int
    start_bytes: int
    end_bytes: int


def parse_wal_header(data: bytes, key: str = _WAL) -> WalHeader:
    """Raises Corrupt where SQLite takes the log for empty (garbage, a wrong sum), Unsupported for another format."""
    if len(data) < WAL_HEADER_SIZE:
        raise Corrupt(key, f"its header has {len(data)} bytes instead of {WAL_HEADER_SIZE}")
    magic, version, page_size, sequence, salts, *sums = _HEADER.unpack_from(data)
    if magic & ~1 != _MAGIC:
        raise Corrupt(key, f"it starts with {magic:#x}, not with {_MAGIC:#x} or the number after it")
    if not MIN_PAGE_SIZE <= page_size <= MAX_PAGE_SIZE or page_size & (page_size - 1):
        raise Corrupt(key, f"its page size is {page_size}")
    big_endian = bool(magic & 1)
    found = wal_checksum(bytes(data[:24]), (0, 0), big_endian=big_endian)
    if found != tuple(sums):
        raise Corrupt(key, "its header does not match its checksum")
    if version != _FORMAT:
        raise Unsupported(f"{key} has format {version}; {_FORMAT} is known here")
    return WalHeader(page_size, sequence, salts, found, big_endian)


def parse_frame_header(data: bytes, key: str = _WAL) -> FrameHeader:
    """The 24 bytes before a page. They alone don't say whether the frame holds. Raises Corrupt when there are fewer."""
    if len(data) < FRAME_HEADER_SIZE:
        raise Corrupt(key, f"a frame's header has {len(data)} bytes instead of {FRAME_HEADER_SIZE}")
    page, page_count, salts, s0, s1 = _FRAME.unpack_from(data)
    return FrameHeader(page, page_count, salts, (s0, s1))


class WalReader:
    """Yields each commit once, as the log grows, is rewritten behind its last commit, and starts over.

    `read(offset_bytes, size_bytes)` gives that part of the log, less where it ends.
    """

    __slots__ = ("_raw_header", "_read", "_sums", "end_bytes", "header")

    def __init__(self, read: Callable[[int, int], bytes]) -> None:
        self._read = read
        self._raw_header: bytes = b""
        self._sums = (0, 0)
        self.header: WalHeader | None = None
        """That of the log's present generation; None while it has none that holds."""
        self.end_bytes = 0
        """Where the last commit ended."""

    def commits(self, *, until: int = sys.maxsize) -> Iterator[WalCommit]:
        """The commits that were not yielded before, oldest first; of those that end by `until`, in bytes. Raises
        Unsupported for a log of another format.
        """
        header = self._look()
        if header is None:
            return
        while (commit := self._next(header, until)) is not None:
            yield commit

    def _look(self) -> WalHeader | None:
        raw = self._read(0, WAL_HEADER_SIZE)
        if raw == self._raw_header:
            return self.header
        self.header, self.end_bytes, self._raw_header = None, 0, raw
        try:
            self.header = parse_wal_header(raw)
        except Corrupt:
            # No damage: a log looks so while its header is being written, and SQLite too takes it for empty.
            return None
        self.end_bytes, self._sums = WAL_HEADER_SIZE, self.header.sums
        return self.header

    def _next(self, header: WalHeader, until: int) -> WalCommit | None:
        size = FRAME_HEADER_SIZE + header.page_size
        start = at = self.end_bytes
        sums = self._sums
        pages: dict[int, int] = {}
        while at + size <= until and len(frame := self._read(at, size)) == size:
            page, page_count, salts, *stored = _FRAME.unpack_from(frame)
            if page == 0 or salts != header.salts:
                return None
            sums = wal_checksum(frame[:8], sums, big_endian=header.big_endian)
            sums = wal_checksum(frame[FRAME_HEADER_SIZE:], sums, big_endian=header.big_endian)
            if sums != tuple(stored):
                return None
            pages[page] = at + FRAME_HEADER_SIZE
            at += size
            if page_count:
                self.end_bytes, self._sums = at, sums
                if max(pages) > page_count:
                    pages = {page: place for page, place in pages.items() if page <= page_count}
                return WalCommit(pages, page_count, start, at)
        return None
