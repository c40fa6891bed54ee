"""Header: the first 100 bytes of a SQLite database, and page 1 as the VFS shows and stores it.

All numbers are big-endian (sqlite.org/fileformat2, section 1.3):

    0   16  magic                          44  4  schema format
    16  2   page size; 1 stands for 65536  48  4  default cache size (not kept here)
    18  1   write version: 2 means WAL     52  4  largest root page; nonzero = auto-vacuum
    19  1   read version: 2 means WAL      56  4  text encoding
    20  1   reserved bytes per page        60  4  user version
    21  3   64, 32, 32                     64  4  incremental vacuum
    24  4   change counter                 68  4  application id
    28  4   page count                     72  20 zeros
    32  4   first freelist trunk           92  4  version-valid-for: the change counter when bytes 28-31 were written
    36  4   freelist pages                 96  4  the library that wrote last
    40  4   schema cookie

Why page 1 is shown otherwise than it is stored:

- SQLite keeps its cache for as long as bytes 24-27 stand still. Two histories may carry the same counter, so the stored
  one can't say whether a cache is still good; the VFS puts there a number that it derives from the snapshot.
- A file marked WAL can't be opened without shared memory. Shown as 1/1 it can, and what is stored stays 2/2, so that no
  commit is made for the mark and whoever opens it elsewhere finds it as it was.
- The page count holds only while both counters agree; libraries before 3.7.0 left it behind. As both are shown equal, a
  count that did not hold is shown as 0, for which SQLite asks the file's length.
- A page that lacks the magic is passed through, so that SQLite refuses it in its own words.
"""

from __future__ import annotations

import struct
from typing import Final

import msgspec

from ..volume.errors import BadInput, Corrupt, Unsupported
from ..volume.page import MAX_PAGE_SIZE, MIN_PAGE_SIZE

MAGIC: Final = b"SQLite format 3\0"
HEADER_SIZE: Final = 100
DATABASE: Final = "a SQLite database"
"""What Corrupt names when the caller gives no better key."""

_FIELDS: Final = struct.Struct(">16sHBBB3sIIIIII4xIIiIi20xII")
_FRACTIONS: Final = bytes((64, 32, 32))
_MIN_USABLE: Final = 480
_WAL: Final = 2
_CODECS: Final = ("utf-8", "utf-8", "utf-16-le", "utf-16-be")
"""By text encoding; 0 stands in a database that never had a table."""

_TO_ROLLBACK: Final = bytes.maketrans(b"\2", b"\1")
_UNKNOWN: Final = bytes(4)


class Header(msgspec.Struct, frozen=True, gc=False):
    """Sizes in bytes, counts in pages; `user_version` and `application_id` are signed, as their pragmas are."""

    page_size: int
    write_version: int
    read_version: int
    reserved_bytes: int
    change_counter: int
    page_count: int
    freelist_head: int
    freelist_count: int
    schema_cookie: int
    schema_format: int
    largest_root: int
    text_encoding: int
    user_version: int
    incremental_vacuum: int
    application_id: int
    version_valid_for: int
    library_version: int

    @property
    def usable_bytes(self) -> int:
        """What cells and chains may use of each page."""
        return self.page_size - self.reserved_bytes

    @property
    def wal(self) -> bool:
        return self.read_version == _WAL

    @property
    def auto_vacuum(self) -> bool:
        return self.largest_root != 0

    @property
    def codec(self) -> str:
        """Python's name for the text encoding."""
        return _CODECS[self.text_encoding]

    @property
    def page_count_holds(self) -> bool:
        """Whether `page_count` may be believed; else the file's length tells."""
        return self.page_count != 0 and self.change_counter == self.version_valid_for


def is_sqlite(first16: bytes | memoryview) -> bool:
    return first16[: len(MAGIC)] == MAGIC


def parse_header(data: bytes | memoryview, key: str = DATABASE) -> Header:
    """The header in the first 100 bytes of `data`. Raises Corrupt unless the format allows it.

    A read version above 2 is no damage: it is for the caller to refuse.
    """
    if len(data) < HEADER_SIZE:
        raise Corrupt(key, f"its header has {len(data)} bytes instead of {HEADER_SIZE}")
    magic, page_size, write, read, reserved, fractions, *numbers = _FIELDS.unpack_from(data)
    if magic != MAGIC:
        raise Corrupt(key, f"it starts with {magic!r}, not with {MAGIC!r}")
    if page_size == 1:
        page_size = MAX_PAGE_SIZE
    if page_size < MIN_PAGE_SIZE or page_size & (page_size - 1):
        raise Corrupt(key, f"its page size is {page_size}")
    if page_size - reserved < _MIN_USABLE:
        raise Corrupt(key, f"it reserves {reserved} bytes of pages of {page_size}")
    if fractions != _FRACTIONS:
        raise Corrupt(key, f"its payload fractions are {tuple(fractions)} instead of {tuple(_FRACTIONS)}")
    header = Header(page_size, write, read, reserved, *numbers)
    if header.text_encoding >= len(_CODECS):
        raise Corrupt(key, f"its text encoding is {header.text_encoding}")
    return header


def check_database_file(head: bytes, length_bytes: int, *, wal_bytes: int = 0, journal_head: bytes = b"") -> Header:
    """The header of a file that may be imported: its first bytes (100 or more), its length, and what lies beside it.

    `wal_bytes` is the length of its -wal, `journal_head` the first byte or more of its -journal; leave them out where
    there is none. Raises BadInput, in words that say what to do, when the file is not a database or not whole without
    its neighbours; Unsupported when its format is newer. A file marked WAL whose -wal is empty or gone is whole.
    """
    if length_bytes == 0:
        raise BadInput("the file is empty: there is no database to read; make one by creating a volume instead")
    if not is_sqlite(head):
        raise BadInput(
            f"not a SQLite file: it starts with {bytes(head[:16])!r} (an encrypted database looks like this too)"
        )
    if min(len(head), length_bytes) < HEADER_SIZE:
        raise BadInput(f"the file is cut short: {min(len(head), length_bytes)} bytes don't hold a SQLite header")
    try:
        header = parse_header(head, "the file")
    except Corrupt as error:
        raise BadInput(f"not a SQLite file that can be read: {error.what}") from error
    if header.read_version > _WAL:
        raise Unsupported(
            f"the file's read version is {header.read_version}: a newer SQLite wrote it, and {_WAL} is known here"
        )
    if length_bytes % header.page_size:
        raise BadInput(
            f"the file's length, {length_bytes} bytes, is no multiple of its page size, {header.page_size}: "
            "it was cut or is still being copied"
        )
    pages = length_bytes // header.page_size
    if header.page_count_holds and header.page_count > pages:
        raise BadInput(f"the file is cut short: its header counts {header.page_count} pages, and it has {pages}")
    if header.wal and wal_bytes:
        raise BadInput(
            "the database is in WAL mode and its -wal holds commits that may not be in the file yet: "
            "run `PRAGMA wal_checkpoint(TRUNCATE)` on it first"
        )
    if journal_head[:1] not in (b"", b"\0"):
        raise BadInput(
            "the database has a -journal, so a transaction is open or was cut off: "
            "open it once with SQLite, which rolls it back"
        )
    return header


def show(page1: bytes, counter: int) -> bytes:
    """Page 1 as SQLite shall see it: not WAL, both counters = `counter` (a u32). Raises BadInput below 512 bytes."""
    _check_length(page1)
    if page1[:16] != MAGIC:
        return page1
    shown = counter.to_bytes(4, "big")
    pages = page1[28:32] if page1[24:28] == page1[92:96] else _UNKNOWN
    versions = page1[18:20].translate(_TO_ROLLBACK)
    return b"".join((page1[:18], versions, page1[20:24], shown, pages, page1[32:92], shown, page1[96:]))


def hide(written: bytes, before: bytes | None) -> bytes:
    """What is stored of a page 1 that SQLite wrote; `before` is the stored page that it replaces, None for the first.

    The mark 2/2 stays when the writer, who was shown 1/1, wrote 1/1. Bytes 24-27 == 92-95 in what is stored; where they
    were not, the page count beside them didn't hold, and 0 is stored for it. Raises BadInput below 512 bytes.
    """
    _check_length(written)
    if written[:16] != MAGIC:
        return written
    if before is not None and before[:16] == MAGIC:
        versions = before[18:20]
        if versions != written[18:20] == versions.translate(_TO_ROLLBACK):
            written = b"".join((written[:18], versions, written[20:]))
    counter = written[24:28]
    if counter != written[92:96]:
        written = b"".join((written[:28], _UNKNOWN, written[32:92], counter, written[96:]))
    return written


def only_counters_differ(a: bytes, b: bytes) -> bool:
    """Whether two pages 1 are equal but for bytes 24-27, 92-95 and 96-99: then the write between them is no change."""
    return a[28:92] == b[28:92] and a[:24] == b[:24] and a[HEADER_SIZE:] == b[HEADER_SIZE:]


def _check_length(page1: bytes) -> None:
    if len(page1) < MIN_PAGE_SIZE:
        raise BadInput(f"page 1 has {len(page1)} bytes; a page has at least {MIN_PAGE_SIZE}")
