"""Frame: up to 64 pages of one volume, compressed together and checksummed: the unit that is fetched.

A frame's pages lie in ascending page index, back to back, `page_size` bytes each, and are then stored in one of the
ways (`Encoding`). The checksum is the xxh3-64 of the bytes as stored, so that whoever passes a frame on can check it
without unpacking, and nobody between the writer and the reader compresses again. (DESIGN §1, §6)
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Iterable, Sequence
from enum import IntEnum
from itertools import accumulate, pairwise
from typing import Any, Final

import msgspec
import zstandard

from .envelope import checksum
from .errors import Corrupt, Locked
from .pageset import PageSet

FRAME_PAGES: Final = 64
"""No frame holds more pages."""

_FRAME_BYTES: Final = 256 * 1024
"""Nor more bytes before compression, one page apart, so that large pages don't make a small read fetch megabytes."""

ENCRYPTED_OVERHEAD_BYTES: Final = 41
"""What an encrypted page has beside its page, at most."""
_SIZE_BYTES: Final = 4

_LAST_PAGE: Final = 2**32 - 1

_LEVEL: Final = 1
_INDEX_LEVEL: Final = 3
"""zstd's level: 1 packs SQLite pages at 500 MB/s within 5 % of level 3's size."""


class Encoding(IntEnum):
    RAW = 0
    ZSTD = 1
    DICTIONARY = 2
    """Reserved: zstd with a dictionary that the segment names. This version refuses it."""
    ZERO = 3
    """All pages are zeros; no bytes are stored."""
    ENCRYPTED = 4
    """u32 size[pages], then the pages, each packed and encrypted for itself (encryption.py)."""


class FrameInfo(msgspec.Struct, frozen=True, array_like=True):
    """What a reader must know of a frame beside its bytes."""

    encoding: int
    length: int
    checksum: int
    pages: tuple[int, ...]
    """Page indexes, ascending."""


class Frame(msgspec.Struct, frozen=True):
    """On its way to a reader."""

    info: FrameInfo
    valid: PageSet
    """Which of its pages are the snapshot's."""
    stored: bytes


class _Codec(threading.local):
    """zstd contexts are not thread-safe and cost a millisecond to make: one pair a thread."""

    def __init__(self) -> None:
        self.compressor = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=False)
        self.index_compressor = zstandard.ZstdCompressor(level=_INDEX_LEVEL)
        self.decompressor = zstandard.ZstdDecompressor()


_codec: Final = _Codec()


def packed_index(plain: bytes) -> bytes:
    return _codec.index_compressor.compress(plain)


def unpacked(stored: bytes | memoryview) -> bytes:
    """What zstd packed. Raises ZstdError; whoever asks has looked at the size that it claims."""
    return _codec.decompressor.decompress(stored)


def page_packed(page: bytes | memoryview) -> bytes:
    return _codec.compressor.compress(page)


def pages_unpacked(stored: list[bytes], page_size: int) -> list[bytes]:
    """Pages that were packed one by one; all of them in one call, which leaves the GIL alone. Raises ZstdError unless
    each comes to a page."""
    for packed in stored:
        if zstandard.frame_content_size(packed) != page_size:
            raise zstandard.ZstdError("it claims another size than a page's")
    if len(stored) < 2 or "multi_decompress_to_buffer" not in zstandard.backend_features:
        return [_codec.decompressor.decompress(packed) for packed in stored]
    frames: list[Any] = [*stored]
    sizes = array("Q", [page_size]) * len(frames)
    pages = _codec.decompressor.multi_decompress_to_buffer(frames, decompressed_sizes=sizes.tobytes())
    return [pages[number].tobytes() for number in range(len(frames))]


def pages_per_frame(page_size: int) -> int:
    return max(1, min(FRAME_PAGES, _FRAME_BYTES // page_size))


def pack_frame(indexes: Sequence[int], pages: Iterable[bytes | memoryview]) -> tuple[FrameInfo, bytes]:
    """Pages, in ascending order of index, as one frame."""
    plain = b"".join(pages)
    if plain[0] == 0 and plain.count(0) == len(plain):
        return FrameInfo(Encoding.ZERO, 0, checksum(b""), tuple(indexes)), b""
    packed = _codec.compressor.compress(plain)
    encoding = Encoding.ZSTD
    if len(packed) >= len(plain):
        packed, encoding = plain, Encoding.RAW
    return FrameInfo(encoding, len(packed), checksum(packed), tuple(indexes)), packed


def join_encrypted(indexes: Sequence[int], pages: Sequence[bytes]) -> tuple[FrameInfo, bytes]:
    """Encrypted pages, in ascending order of index, as one frame. No key is needed."""
    sizes = array("I", map(len, pages))
    stored = b"".join((sizes.tobytes(), *pages))
    return FrameInfo(Encoding.ENCRYPTED, len(stored), checksum(stored), tuple(indexes)), stored


def split_encrypted(key: str, info: FrameInfo, stored: bytes | memoryview, page_size: int) -> list[bytes]:
    """The encrypted pages of such a frame, in the order of `info.pages`. Raises Corrupt as `check_frame`."""
    check_frame(key, info, stored, page_size)
    ends = [*accumulate(_encrypted_sizes(key, info, stored), initial=_SIZE_BYTES * len(info.pages))]
    return [bytes(stored[start:end]) for start, end in pairwise(ends)]


def split_frame(key: str, info: FrameInfo, stored: bytes | memoryview, page_size: int) -> list[bytes]:
    """The frame's pages, in the order of `info.pages`, as `join_frame` takes them: encrypted ones stay so. Raises
    Corrupt."""
    split = split_encrypted if info.encoding == Encoding.ENCRYPTED else unpack_frame
    return split(key, info, stored, page_size)


def join_frame(indexes: Sequence[int], pages: Sequence[bytes], *, encrypted: bool) -> tuple[FrameInfo, bytes]:
    """A frame of pages that others were split into."""
    return join_encrypted(indexes, pages) if encrypted else pack_frame(indexes, pages)


def most_frame_bytes(encoding: int, pages: int, page_size: int) -> int:
    """What a frame of so many pages takes at most, as stored."""
    beside = _SIZE_BYTES + ENCRYPTED_OVERHEAD_BYTES if encoding == Encoding.ENCRYPTED else 0
    return pages * (page_size + beside)


def check_info(key: str, info: FrameInfo) -> PageSet:
    """The pages that a frame says it holds. Raises Corrupt unless one can hold them."""
    pages = info.pages
    fits = 0 < len(pages) <= FRAME_PAGES and pages[0] > 0 and pages[-1] <= _LAST_PAGE
    if not fits or any(map(int.__ge__, pages, pages[1:])):
        raise Corrupt(key, "a frame names pages that none can hold")
    return PageSet(pages)


def verify_frame(key: str, info: FrameInfo, stored: bytes | memoryview) -> None:
    """Raises Corrupt unless these are the bytes that were stored."""
    if len(stored) != info.length or checksum(stored) != info.checksum:
        raise Corrupt(key, f"the frame of page {info.pages[0] if info.pages else '?'} does not match its checksum")


def check_frame(key: str, info: FrameInfo, stored: bytes | memoryview, page_size: int) -> None:
    """Raises Corrupt unless these are the bytes that were stored, and claim to be what those pages come to. Nothing is
    unpacked.
    """
    verify_frame(key, info, stored)
    if len(info.pages) > FRAME_PAGES:
        raise Corrupt(key, f"a frame names {len(info.pages)} pages, and none has more than {FRAME_PAGES}")
    expected = len(info.pages) * page_size
    match info.encoding:
        case Encoding.RAW:
            size = len(stored)
        case Encoding.ZERO:
            size = expected + len(stored)
        case Encoding.ZSTD:
            size = _claimed(key, stored)
        case Encoding.ENCRYPTED:
            # Whether each holds a page, only whoever has its key can tell.
            sizes = _encrypted_sizes(key, info, stored)
            whole = _SIZE_BYTES * len(sizes) + sum(sizes) == len(stored)
            fits = ENCRYPTED_OVERHEAD_BYTES < min(sizes) <= max(sizes) <= page_size + ENCRYPTED_OVERHEAD_BYTES
            size = expected if whole and fits else len(stored)
        case _:
            raise Corrupt(key, f"a frame has the unknown encoding {info.encoding}")
    if size != expected:
        raise Corrupt(key, f"a frame holds {size} bytes where {expected} belong")


def unpack_frame(key: str, info: FrameInfo, stored: bytes | memoryview, page_size: int) -> list[bytes]:
    """The frame's pages, in the order of `info.pages`. Raises Corrupt unless the bytes hold exactly those, and Locked
    where they are encrypted."""
    check_frame(key, info, stored, page_size)
    if info.encoding == Encoding.ENCRYPTED:
        raise Locked("the volume is encrypted: a node can't read its pages; ask for that where its key is")
    size = len(info.pages) * page_size
    if info.encoding == Encoding.ZSTD:
        try:
            plain = unpacked(stored)
        except zstandard.ZstdError as error:
            raise Corrupt(key, f"a frame can't be unpacked: {error}") from error
    else:
        plain = bytes(stored or size)
    return [plain[at : at + page_size] for at in range(0, size, page_size)]


def _encrypted_sizes(key: str, info: FrameInfo, stored: bytes | memoryview) -> array[int]:
    table = bytes(stored[: _SIZE_BYTES * len(info.pages)])
    if not table or len(table) < _SIZE_BYTES * len(info.pages):
        raise Corrupt(key, "a frame is too short for what it says of its pages")
    return array("I", table)


def _claimed(key: str, stored: bytes | memoryview) -> int:
    """The size that zstd's own header claims, which is what unpacking would allocate."""
    try:
        return zstandard.frame_content_size(stored)
    except zstandard.ZstdError as error:
        raise Corrupt(key, f"a frame can't be unpacked: {error}") from error
