"""Journal format: the bytes of `store/journal`. No I/O.

    0, 4096     two headers, a block each: the newer one that holds is the journal's
    8192 …      records, each from the beginning of a block

    header      8 B magic ‖ u32 version ‖ u32 0 ‖ 16 B home ‖ u64 generation ‖ u64 salt ‖ u64 base ‖ u64 capacity
                ‖ u64 checksum of what stands before it
    record      u64 checksum ‖ 4 B magic ‖ u32 bytes ‖ u64 position ‖ u64 link ‖ u64 flushed ‖ u64 LSN ‖ 16 B volume
                ‖ u32 generation of the volume ‖ u32 page size ‖ u32 bytes of the commit ‖ u32 0 ‖ commit ‖ pages

Little-endian. A *position* counts bytes since the home's first journal; a generation's first record has `base`, and
lies at 8192. A record's `bytes` are all of it without what fills its last block; `link` is the checksum of the record
before it, the salt for the first; its checksum, xxh3-64, covers everything behind itself and has the salt as its seed,
so that no record of another generation passes for one of this. `flushed` is the position up to which the journal was
flushed when the record was written. `commit` is the CommitRecord as in LMDB's table; the pages follow in the order of
its page set.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

import msgspec
import xxhash

from ..volume.decoded_kinds import decodable
from ..volume.envelope import UNREADABLE
from ..volume.errors import Corrupt, Unsupported
from ..volume.pageset import decode_pages
from .tables import HERE, CommitRecord

BLOCK_BYTES: Final = 4096
"""No block holds two records: what is acknowledged is never written again, whatever a disk does to blocks on which it
loses power."""
FIRST_RECORD: Final = 2 * BLOCK_BYTES
JOURNAL_VERSION: Final = 1

_HEADER_MAGIC: Final = b"bwjournl"
_RECORD_MAGIC: Final = b"bwjr"
_HEADER: Final = struct.Struct("<8sII16sQQQQ")
_SUM: Final = struct.Struct("<Q")
_RECORD: Final = struct.Struct("<4sIQQQQ16sIIII")
RECORD_HEAD_BYTES: Final = _SUM.size + _RECORD.size

_FILL: Final = bytes(BLOCK_BYTES)

_number = xxhash.xxh3_64_intdigest


class JournalHeader(NamedTuple):
    home: bytes
    generation: int
    """Of the journal, from 1 on."""
    salt: int
    base: int
    """The position of the first record."""
    capacity: int
    """Bytes for records."""


class JournalRecord(NamedTuple):
    position: int
    link: int
    flushed: int
    lsn: int
    vid: bytes
    generation: int
    """The volume's."""
    page_size: int
    commit: CommitRecord
    pages: dict[int, bytes]
    """Ascending."""
    checksum: int
    end: int
    """The position of the next record."""


class LostRecord(NamedTuple):
    """One that doesn't hold, by its head, which nothing vouches for."""

    vid: bytes
    """Empty where it can't be read."""
    lsn: int
    end: int


class Place(NamedTuple):
    """Where a record goes, or is looked for."""

    position: int
    link: int


def blocks(size_bytes: int) -> int:
    """As bytes of whole blocks."""
    return -(-size_bytes // BLOCK_BYTES) * BLOCK_BYTES


def pack_header(header: JournalHeader) -> bytes:
    packed = _HEADER.pack(_HEADER_MAGIC, JOURNAL_VERSION, 0, *header)
    return (packed + _SUM.pack(_number(packed))).ljust(BLOCK_BYTES, b"\0")


def unpack_header(block: bytes) -> JournalHeader | None:
    """None if it isn't whole. Raises Unsupported for a newer format."""
    packed, summed = block[: _HEADER.size], block[_HEADER.size : _HEADER.size + _SUM.size]
    if len(summed) != _SUM.size or _SUM.unpack(summed)[0] != _number(packed):
        return None
    magic, version, _, *fields = _HEADER.unpack(packed)
    if magic != _HEADER_MAGIC:
        return None
    if version != JOURNAL_VERSION:
        raise Unsupported(
            f"the local store's journal is of format {version}, and this Budwood knows {JOURNAL_VERSION}: upgrade it"
        )
    return JournalHeader(*fields)


def pack_record(
    salt: int,
    place: Place,
    flushed: int,
    vid: bytes,
    lsn: int,
    generation: int,
    page_size: int,
    commit: bytes,
    items: list[tuple[int, bytes]],
) -> tuple[list[bytes], int, int]:
    """Whole blocks, in parts that are written one after the other; how many bytes they are; the record's checksum."""
    size = RECORD_HEAD_BYTES + len(commit) + page_size * len(items)
    fixed = _RECORD.pack(
        _RECORD_MAGIC, size, place.position, place.link, flushed, lsn, vid, generation, page_size, len(commit), 0
    )
    parts = [fixed, commit, *[data for _, data in items]]
    state = xxhash.xxh3_64(seed=salt)
    for part in parts:
        state.update(part)
    whole, checksum = blocks(size), state.intdigest()
    return [_SUM.pack(checksum), *parts, _FILL[: whole - size]], whole, checksum


def record_bytes(head: bytes, limit: int) -> int:
    """How long the record is that begins with `head`; 0 if it can't be one."""
    if len(head) < RECORD_HEAD_BYTES:
        return 0
    magic, size = _RECORD.unpack_from(head, _SUM.size)[:2]
    return size if magic == _RECORD_MAGIC and RECORD_HEAD_BYTES <= size <= limit else 0


class RecordHead(NamedTuple):
    """What the head of a record says, which nothing vouches for."""

    position: int
    link: int
    flushed: int


def record_head(head: bytes, limit: int) -> RecordHead | None:
    """None if no record begins with `head`."""
    if not record_bytes(head, limit):
        return None
    return RecordHead(*_RECORD.unpack_from(head, _SUM.size)[2:5])


def lost_record(head: bytes, position: int, end: int) -> LostRecord:
    """What the head of the record at `position` says of it; no record reaches beyond `end`."""
    size = record_bytes(head, end - position)
    if size:
        _, _, where, _, _, lsn, vid, *_ = _RECORD.unpack_from(head, _SUM.size)
        if where == position:
            return LostRecord(vid, lsn, position + blocks(size))
    return LostRecord(b"", 0, end)


def unpack_record(salt: int, position: int, data: bytes) -> JournalRecord | None:
    """The record that stands at `position`, from exactly its bytes; None if it isn't whole, or another's. Raises
    Corrupt for one that is whole and makes no sense.
    """
    checksum = _SUM.unpack_from(data)[0]
    if checksum != _number(memoryview(data)[_SUM.size :], seed=salt):
        return None
    _, size, where, link, flushed, lsn, vid, generation, page_size, packed_bytes, _ = _RECORD.unpack_from(
        data, _SUM.size
    )
    if where != position or size != len(data):
        return None
    start = RECORD_HEAD_BYTES + packed_bytes
    try:
        commit = msgspec.msgpack.decode(data[RECORD_HEAD_BYTES:start], type=decodable(CommitRecord))
    except UNREADABLE as error:
        raise Corrupt(HERE, f"a record of its journal can't be read: {error}") from error
    numbers = decode_pages(HERE, commit.pages)
    if size != start + len(numbers) * page_size:
        raise Corrupt(HERE, "a record of its journal has not the pages that it says")
    pages = {
        number: data[at : at + page_size]
        for number, at in zip(numbers, range(start, size, page_size or 1), strict=True)
    }
    return JournalRecord(
        position, link, flushed, lsn, vid, generation, page_size, commit, pages, checksum, position + blocks(size)
    )
