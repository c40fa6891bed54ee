"""WAL index: the header of a database's -shm (sqlite.org/walformat, section 2), in the machine's byte order.

    0, 48     the same header twice, so that a reader sees whether it was caught in the middle of a write:
              u32 version, u32 unused, u32 change counter, u8 whether it is filled in, u8 how the -wal counts its
              checksums, u16 page size, u32 last frame, u32 page count, two u32 of the last frame's checksum,
              8 bytes the -wal's salts (as they stand there), two u32 the checksum of the 40 bytes before
    96        u32 frames that were checkpointed, u32 how far each of five readers may read in the -wal
    120       8 bytes that exist to be locked: WRITE, CKPT, RECOVER, READ0 … READ4; the byte after them (128) is locked
              by whoever has the -shm open
    128       u32 frames that someone has begun to checkpoint

`restarted` is what SQLite writes after a checkpoint that let the -wal start over: no frame is in it any more, the salts
are others, and whoever has the database open learns at its next transaction that everything may have changed.

Who begins to read takes READ0 where every frame was checkpointed, else the last of the marks that allow the most. So
`gated` is what holds readers back: the last mark allows every frame, as a reader sets it that has it locked alone; and
a frame less is said to be checkpointed. (Of no frame: one more. It only has to differ; a reader that is let in by then
looks for a frame that it needn't, or for none.)
"""

from __future__ import annotations

import struct
import sys
from typing import Final, NamedTuple

from .wal_checksum import wal_checksum

HEADER_SIZE: Final = 48
INFO_SIZE: Final = 136
"""Both headers, and what follows them up to the first table."""
WRITE_LOCK: Final = 120
LOCKS: Final = range(120, 128)
OPEN_LOCK: Final = 128

_VERSION: Final = 3007000
_FIELDS: Final = struct.Struct("=IIIBBHIIII4s4s")
_SUMS: Final = struct.Struct("=II")
_MARKS: Final = struct.Struct("=6I")
_UNUSED: Final = 0xFFFFFFFF
_MASK: Final = 0xFFFFFFFF


class Restarted(NamedTuple):
    header: bytes
    """To be written as the second copy, then as the first."""
    marks: bytes
    """To be written at 96."""
    begun: bytes
    """To be written at 128."""


def restarted(index: bytes, length: int, salt: bytes) -> Restarted | None:
    """The index of a -wal that starts over beneath a database of `length` bytes; `salt` are 4 random bytes.

    None where the index doesn't hold: then SQLite makes it anew from the -wal before anyone reads.
    """
    first = _header(index)
    if first is None:
        return None
    version, unused, change, filled, order, page_size, _, _, sum1, sum2, salt1, _ = _FIELDS.unpack_from(first)
    size = 65536 if page_size == 1 else page_size
    count = -(-length // size) if size else 0
    salt1 = ((int.from_bytes(salt1) + 1) & _MASK).to_bytes(4)
    fields = _FIELDS.pack(
        version, unused, (change + 1) & _MASK, filled, order, page_size, 0, count, sum1, sum2, salt1, salt
    )
    marks = _MARKS.pack(0, 0, 0, *[_UNUSED] * 3)
    return Restarted(fields + _sums(fields), marks, bytes(4))


def gated(index: bytes) -> bytes | None:
    """What to write at 96 while WRITE, CKPT and the last READ are locked; what stood there is to come back before they
    are released. None where the index doesn't hold.
    """
    first = _header(index)
    if first is None:
        return None
    frames = int.from_bytes(first[16:20], sys.byteorder)
    done, *marks = _MARKS.unpack_from(index, 2 * HEADER_SIZE)
    if done == frames:
        done = frames - 1 if frames else 1
    return _MARKS.pack(done, *marks[:-1], frames)


def _header(index: bytes) -> bytes | None:
    """The header, if it holds and is filled in."""
    first, second = index[:HEADER_SIZE], index[HEADER_SIZE : 2 * HEADER_SIZE]
    if len(index) < INFO_SIZE or first != second or first[40:] != _sums(first):
        return None
    return first if first[:4] == _VERSION.to_bytes(4, sys.byteorder) and first[12] else None


def _sums(header: bytes) -> bytes:
    return _SUMS.pack(*wal_checksum(header[:40], (0, 0), big_endian=sys.byteorder == "big"))
