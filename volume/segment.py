"""Segment: frames ‖ item hashes ‖ index ‖ 32-byte footer; may hold several volumes' frames.

    frames        back to back, as stored
    item hashes   32 bytes a page (setsum.py), in the order of the index
    index         zstd of: header, volume table, frame table, page columns
    footer        u64 index offset, u64 index size, u64 index checksum, u16 version, u16 zero, u32 magic

Offsets count from the segment's first byte. A segment stands alone as an object, or as the body of a log entry;
either way it ends its object, so that its tail tells where it starts. Everything is little-endian u32 or u64: no
count is capped at 16 bits (S2.18). Columns are read as they lie, so a big-endian machine is refused (S2.32).

    index header  16 B segment id, u64 required features, u64 offset and u64 checksum of the hashes,
                  u32 volumes, u32 frames, u32 pages, u32 zero
    volume        16 B volume id, u32 page size, u32 pages, u32 frames, u32 zero      (sorted by volume id; where a
                  segment has a volume's pages of several LSNs, each of these has a row of its own, in their order)
    frame         u64 offset, u64 checksum, u32 length, u32 pages << 8 | encoding
    columns       frame by frame, pages ascending in each: u32 index[pages], as the difference from the one before it
                  in the column, modulo 2^32, so that runs pack to nothing; then u64 lsn[pages], where 0 stands for
                  "that of the commit that names this segment"

The pages of a volume's frames may come in any order (the skeleton of a B-tree first), so a lookup goes by a sorted
list made when the index is opened. Index and frames are checked by checksum before a byte of them is believed; a reader
of one frame need not read the hashes.

Whoever makes a segment may be anybody, so nothing in it is taken for more than its bytes can bear: there are no more
pages than hashes lie in it, and no larger index than so many pages need; the frames lie one after another from the
first byte to the hashes, without a gap and without sharing a byte; and none is longer than its pages.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate, chain
from typing import Final, NamedTuple

import zstandard

from .envelope import checksum
from .errors import BadInput, Corrupt, Unsupported
from .frame import FRAME_PAGES, Encoding, FrameInfo, most_frame_bytes, packed_index, unpacked
from .ids import SegmentId, VolumeId
from .page import check_page_size
from .pageset import PageSet
from .setsum import HASH_SIZE

if sys.byteorder != "little":
    raise Unsupported("Budwood needs a little-endian machine: what it stores is little-endian, and read as it lies")

MAGIC: Final = int.from_bytes(b"BWSG", "little")
VERSION: Final = 1
SEVERAL_ROWS: Final = 1 << 0
"""Required feature of a segment that has a volume's pages in several rows: whoever took the first for all that there is
of it would miss pages."""
ENCRYPTED_FRAMES: Final = 1 << 1
"""And of one with encrypted pages, of which an older reader would say that they are damaged."""
KNOWN_FEATURES: Final = SEVERAL_ROWS | ENCRYPTED_FRAMES
MAX_INDEX_BYTES: Final = 1 << 28

_FOOTER: Final = struct.Struct("<QQQHHI")
_HEADER: Final = struct.Struct("<16sQQQIIII")
_VOLUME: Final = struct.Struct("<16sIIII")
_FRAME: Final = struct.Struct("<QQII")

FOOTER_SIZE: Final = _FOOTER.size

_COLUMNS: Final = 4 + 8
"""Bytes of each page in the columns."""

_U32: Final = "I"
_U64: Final = "Q"
_MASK: Final = 0xFFFFFFFF


class Footer(NamedTuple):
    index_offset: int
    index_size: int
    index_checksum: int

    @property
    def segment_size(self) -> int:
        return self.index_offset + self.index_size + FOOTER_SIZE


class FrameAt(NamedTuple):
    """Where a frame lies in its segment, and what it holds."""

    offset: int
    info: FrameInfo
    lsns: tuple[int, ...]


class VolumeIndex:
    """One volume's part of an index: which frame holds a page."""

    __slots__ = ("_frame_of", "_sorted", "frames", "page_size", "pages", "vid")

    def __init__(self, vid: VolumeId, page_size: int, frames: list[FrameAt]) -> None:
        self.vid = vid
        self.page_size = page_size
        self.frames = frames
        order = sorted((page, ordinal) for ordinal, frame in enumerate(frames) for page in frame.info.pages)
        self._sorted = array(_U32, (page for page, _ in order))
        self._frame_of = array(_U32, (ordinal for _, ordinal in order))
        self.pages = PageSet(self._sorted)

    @property
    def is_encrypted(self) -> bool | None:
        """Whether its frames are; None where some are and some aren't."""
        kinds = {frame.info.encoding == Encoding.ENCRYPTED for frame in self.frames}
        return kinds.pop() if len(kinds) == 1 else None

    def frame_of(self, page: int) -> int | None:
        """The ordinal of the frame that holds `page`."""
        at = bisect_left(self._sorted, page)
        if at == len(self._sorted) or self._sorted[at] != page:
            return None
        return self._frame_of[at]


class SegmentIndex:
    """An index as read. `volumes` is in the table's order: a location's slot is an index into it."""

    __slots__ = ("hashes_checksum", "hashes_offset", "page_total", "segment", "volumes")

    def __init__(
        self, segment: SegmentId, hashes_offset: int, hashes_checksum: int, volumes: list[VolumeIndex]
    ) -> None:
        self.segment = segment
        self.hashes_offset = hashes_offset
        self.hashes_checksum = hashes_checksum
        self.volumes = volumes
        self.page_total = sum(len(volume.pages) for volume in volumes)

    @classmethod
    def parse(cls, key: str, footer: Footer, stored: bytes | memoryview, *, most_pages: int = _MASK) -> SegmentIndex:
        """Raises Corrupt unless `stored` is the index that the footer speaks of, of no more pages than that."""
        if len(stored) != footer.index_size or checksum(stored) != footer.index_checksum:
            raise Corrupt(key, "its index does not match its checksum")
        most_pages = min(most_pages, footer.index_offset // HASH_SIZE)
        most_bytes = _HEADER.size + most_pages * (_VOLUME.size + _FRAME.size + _COLUMNS)
        try:
            if not 0 < zstandard.frame_content_size(stored) <= min(most_bytes, MAX_INDEX_BYTES):
                raise Corrupt(key, "its index claims an impossible size")
            return _parse_index(key, footer, most_pages, unpacked(stored))
        except (zstandard.ZstdError, struct.error, ValueError, BadInput) as error:
            raise Corrupt(key, f"its index can't be read: {error}") from error

    def hashes(self, key: str, data: bytes | memoryview) -> bytes:
        """The item hashes of all its pages, of a segment held whole. Raises Corrupt."""
        hashes = bytes(data[self.hashes_offset : self.hashes_offset + HASH_SIZE * self.page_total])
        self.check_hashes(key, hashes)
        return hashes

    def check_hashes(self, key: str, hashes: bytes | memoryview) -> None:
        """Raises Corrupt unless these are the item hashes of all its pages."""
        if checksum(hashes) != self.hashes_checksum:
            raise Corrupt(key, "its item hashes do not match their checksum")

    @classmethod
    def of_segment(cls, key: str, data: bytes | memoryview, *, most_pages: int = _MASK) -> SegmentIndex:
        """The index of a segment held whole."""
        footer = parse_footer(key, data)
        start = len(data) - footer.segment_size
        if start < 0:
            raise Corrupt(key, "its footer points before its beginning")
        at = start + footer.index_offset
        return cls.parse(key, footer, data[at : at + footer.index_size], most_pages=most_pages)


def parse_footer(key: str, tail: bytes | memoryview) -> Footer:
    """The footer from a segment's last bytes (32 at least)."""
    if len(tail) < FOOTER_SIZE:
        raise Corrupt(key, f"{len(tail)} bytes are too few for a segment")
    offset, size, index_checksum, version, _, magic = _FOOTER.unpack_from(tail, len(tail) - FOOTER_SIZE)
    if magic != MAGIC:
        raise Corrupt(key, "it does not end like a segment")
    if version > VERSION:
        raise Unsupported(f"{key} was written by a newer Budwood (segment format {version}): upgrade")
    if not version or not 0 < size <= MAX_INDEX_BYTES or offset > 1 << 48:
        raise Corrupt(key, "its footer is out of range")
    return Footer(offset, size, index_checksum)


def _parse_index(key: str, footer: Footer, most_pages: int, plain: bytes) -> SegmentIndex:
    segment, features, hashes_at, hashes_sum, volumes, frames, pages, _ = _HEADER.unpack_from(plain)
    if features & ~KNOWN_FEATURES:
        raise Unsupported(f"{key} needs features that this Budwood does not know ({features:#x}): upgrade")
    frames_at = _HEADER.size + volumes * _VOLUME.size
    pages_at = frames_at + frames * _FRAME.size
    lsns_at = pages_at + 4 * pages
    if len(plain) != pages_at + _COLUMNS * pages or hashes_at + HASH_SIZE * pages != footer.index_offset:
        raise Corrupt(key, "its index does not add up")
    if pages > most_pages:
        raise Corrupt(key, f"its index has {pages} pages, and {most_pages} is the most")
    if not volumes <= frames <= pages:
        # A small packed index could else stand for millions of volumes or frames that hold nothing.
        raise Corrupt(key, "its index has volumes or frames without a page")
    differences = array(_U32, plain[pages_at:lsns_at])
    indexes = [value & _MASK for value in accumulate(differences)]
    lsns = array(_U64, plain[lsns_at:])
    table = _FRAME.iter_unpack(plain[frames_at:pages_at])
    parsed: list[VolumeIndex] = []
    at = 0
    for raw, page_size, page_total, frame_total, _ in _VOLUME.iter_unpack(plain[_HEADER.size : frames_at]):
        first, found = at, list[FrameAt]()
        for _ in range(frame_total):
            offset, frame_sum, length, packed = next(table, (0, 0, 0, 0))
            count = packed >> 8
            held = tuple(indexes[at : at + count])
            most_bytes = most_frame_bytes(packed & 0xFF, len(held), page_size)
            fits = 0 < len(held) <= FRAME_PAGES and 0 not in held and length <= most_bytes
            if not fits or any(map(int.__ge__, held, held[1:])):
                raise Corrupt(key, "a frame of its index is out of range")
            if packed & 0xFF == Encoding.ENCRYPTED and not features & ENCRYPTED_FRAMES:
                raise Corrupt(key, "its index has an encrypted frame, and does not say that its reader must know it")
            info = FrameInfo(packed & 0xFF, length, frame_sum, held)
            found.append(FrameAt(offset, info, tuple(lsns[at : at + count])))
            at += count
        volume = VolumeIndex(VolumeId(raw), check_page_size(page_size), found)
        if at - first != page_total or len(volume.pages) != page_total:
            raise Corrupt(key, "a volume's pages in its index do not add up")
        parsed.append(volume)
    if not features & SEVERAL_ROWS and len({volume.vid for volume in parsed}) < len(parsed):
        raise Corrupt(key, "its index has a volume twice, and does not say that its reader must know it")
    if at != pages or next(table, None) is not None:
        raise Corrupt(key, "its index has frames that no volume owns")
    _check_contiguous(key, parsed, hashes_at)
    return SegmentIndex(SegmentId(segment), hashes_at, hashes_sum, parsed)


def _check_contiguous(key: str, volumes: list[VolumeIndex], end: int) -> None:
    """Each byte before the hashes belongs to one frame, so that what is copied frame by frame never grows."""
    at = 0
    for offset, length in sorted((frame.offset, frame.info.length) for volume in volumes for frame in volume.frames):
        if offset != at:
            raise Corrupt(key, f"a frame of its index begins at byte {offset}, where the one before ends at {at}")
        at += length
    if at != end:
        raise Corrupt(key, f"its frames end at byte {at}, and its item hashes begin at {end}")


class _Part:
    """What a writer knows of one volume."""

    __slots__ = ("frames", "hashes", "page_size", "seen", "vid")

    def __init__(self, vid: VolumeId, page_size: int) -> None:
        self.vid = vid
        self.page_size = page_size
        self.frames: list[FrameAt] = []
        self.hashes = bytearray()
        self.seen = PageSet()


class SegmentWriter:
    """Collects frames as they are stored and closes them with index and footer.

    The frames' bytes stay in `chunks` in the order they were added; `finish` appends the rest. The same page twice
    for one volume is refused (S2.22). Raises BadInput.
    """

    def __init__(self, segment: SegmentId) -> None:
        self.segment = segment
        self.chunks: list[bytes | memoryview] = []
        self.size = 0
        self._parts: dict[tuple[bytes, int], _Part] = {}
        """By volume and row."""

    def add(
        self,
        vid: VolumeId,
        page_size: int,
        info: FrameInfo,
        stored: bytes | memoryview,
        hashes: bytes,
        lsns: Sequence[int] | None = None,
        *,
        row: int = 0,
    ) -> None:
        """One frame: its stored bytes, and its pages' item hashes back to back. A volume has more rows than one where
        it may have a page twice, of different LSNs."""
        part = self._parts.setdefault((vid.raw, row), _Part(vid, page_size))
        added = PageSet(info.pages)
        if part.page_size != page_size or len(hashes) != HASH_SIZE * len(info.pages) or len(added) != len(info.pages):
            raise BadInput(f"a frame of volume {vid} does not fit its segment")
        if part.seen & added:
            raise BadInput(f"page {(part.seen & added).min()} of volume {vid} is in the segment twice")
        part.seen |= added
        part.frames.append(FrameAt(self.size, info, tuple(lsns or (0,) * len(info.pages))))
        part.hashes += hashes
        self.chunks.append(stored)
        self.size += len(stored)

    def merge(self, index: SegmentIndex, data: bytes | memoryview, hashes: bytes | None = None) -> None:
        """Every frame of another segment held whole (`data` starts at its first byte), as stored. `hashes` are its item
        hashes, if they were looked at already."""
        if hashes is None:
            hashes = index.hashes(str(index.segment), data)
        at = 0
        for volume in index.volumes:
            for offset, info, lsns in volume.frames:
                end = at + HASH_SIZE * len(info.pages)
                self.add(volume.vid, volume.page_size, info, data[offset : offset + info.length], hashes[at:end], lsns)
                at = end

    @property
    def slots(self) -> dict[VolumeId, int]:
        """Each volume's place in the volume table."""
        return {self._parts[key].vid: slot for slot, key in enumerate(sorted(self._parts))}

    def finish(self) -> bytes:
        """The whole segment."""
        parts = [self._parts[key] for key in sorted(self._parts)]
        hashes = b"".join(part.hashes for part in parts)
        offset = self.size + len(hashes)
        index = packed_index(self._index(parts, checksum(hashes)))
        footer = _FOOTER.pack(offset, len(index), checksum(index), VERSION, 0, MAGIC)
        return b"".join((*self.chunks, hashes, index, footer))

    def _index(self, parts: list[_Part], hashes_sum: int) -> bytes:
        frames = [frame for part in parts for frame in part.frames]
        indexes = [page for frame in frames for page in frame.info.pages]
        lsns = array(_U64, chain.from_iterable(frame.lsns for frame in frames))
        differences = array(_U32, _differences(indexes))
        raw = self.segment.raw
        features = SEVERAL_ROWS if len({part.vid for part in parts}) < len(parts) else 0
        if any(frame.info.encoding == Encoding.ENCRYPTED for frame in frames):
            features |= ENCRYPTED_FRAMES
        return b"".join(
            (
                _HEADER.pack(raw, features, self.size, hashes_sum, len(parts), len(frames), len(indexes), 0),
                *(_VOLUME.pack(p.vid.raw, p.page_size, len(p.seen), len(p.frames), 0) for p in parts),
                *(_FRAME.pack(f.offset, f.info.checksum, f.info.length, _packed(f.info)) for f in frames),
                differences.tobytes(),
                lsns.tobytes(),
            )
        )


def _packed(info: FrameInfo) -> int:
    return len(info.pages) << 8 | info.encoding


def _differences(indexes: Iterable[int]) -> Iterable[int]:
    previous = 0
    for index in indexes:
        yield (index - previous) & _MASK
        previous = index
