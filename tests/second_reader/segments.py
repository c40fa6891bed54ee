"""Segments: frames ‖ item hashes ‖ index ‖ footer, at the end of the object that holds them."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from typing import NamedTuple

import zstandard

from .basics import MOST_PAGE, SEGMENT, VOLUME, Damaged, TooNew, check_id, xxh3

FOOTER = struct.Struct("<QQQHHI")
HEADER = struct.Struct("<16sQQQIIII")
VOLUME_ROW = struct.Struct("<16sIIII")
FRAME_ROW = struct.Struct("<QQII")
MAGIC = int.from_bytes(b"BWSG", "little")
RAW, ZSTD, ZEROS = 0, 1, 3
PAGE_SIZES = {512 << shift for shift in range(8)}


class Frame(NamedTuple):
    offset: int
    checksum: int
    length: int
    encoding: int
    pages: list[int]
    hashes: list[bytes]
    lsns: list[int]


class Part(NamedTuple):
    """One volume's frames."""

    vid: bytes
    page_size: int
    frames: list[Frame]

    @property
    def hashes(self) -> dict[int, bytes]:
        """Item hashes by page."""
        return {page: item for each in self.frames for page, item in zip(each.pages, each.hashes, strict=True)}


class Segment:
    """Everything is checked but the frames' own bytes, which are when they are read."""

    def __init__(self, key: str, data: bytes) -> None:
        self.key = key
        if len(data) < FOOTER.size:
            raise Damaged(key, "it is too short for a segment")
        index_at, index_size, checksum, version, zero, magic = FOOTER.unpack(data[-FOOTER.size :])
        start = len(data) - (index_at + index_size + FOOTER.size)
        if magic != MAGIC or start < 0:
            raise Damaged(key, "it does not end as a segment does")
        if version > 1:
            raise TooNew(f"{key}: segment format {version}")
        if version < 1 or zero:
            raise Damaged(key, "its footer is none that was ever written")
        self._data = data[start:]
        index = self._data[index_at : index_at + index_size]
        if xxh3(index) != checksum:
            raise Damaged(key, "its index does not match its checksum")
        self.parts = self._parse(index_at, index)

    def pages(self, slot: int, wanted: set[int]) -> dict[int, bytes]:
        """Of the volume at that place in the volume table."""
        found: dict[int, bytes] = {}
        part = self.parts[slot]
        for frame in part.frames:
            if wanted & set(frame.pages):
                found |= self._unpack(frame, part.page_size)
        if not wanted <= set(found):
            raise Damaged(self.key, f"it lacks pages {sorted(wanted - set(found))}")
        return {page: found[page] for page in wanted}

    def _parse(self, index_at: int, stored: bytes) -> list[Part]:
        try:
            plain = zstandard.ZstdDecompressor().decompress(stored, max_output_size=1 << 28)
        except zstandard.ZstdError as error:
            raise Damaged(self.key, f"its index can't be unpacked: {error}") from error
        if len(plain) < HEADER.size:
            raise Damaged(self.key, "its index is too short")
        segment, features, hashes_at, hashes_sum, volumes, frames, pages, _ = HEADER.unpack_from(plain)
        if features & ~1:
            raise TooNew(f"{self.key}: segment features {features:#x}")
        check_id(self.key, segment, SEGMENT)
        volumes_end = HEADER.size + volumes * VOLUME_ROW.size
        frames_end = volumes_end + frames * FRAME_ROW.size
        if len(plain) != frames_end + 12 * pages or hashes_at + 32 * pages != index_at:
            raise Damaged(self.key, "its index does not add up")
        hashes = self._data[hashes_at:index_at]
        if xxh3(hashes) != hashes_sum:
            raise Damaged(self.key, "its item hashes do not match their checksum")
        columns = zip(
            _indexes(plain[frames_end : frames_end + 4 * pages]),
            (hashes[at : at + 32] for at in range(0, len(hashes), 32)),
            struct.unpack(f"<{pages}Q", plain[frames_end + 4 * pages :]),
            strict=True,
        )
        rows = FRAME_ROW.iter_unpack(plain[volumes_end:frames_end])
        parts = list[Part]()
        for vid, page_size, page_total, frame_total, _ in VOLUME_ROW.iter_unpack(plain[HEADER.size : volumes_end]):
            check_id(self.key, vid, VOLUME)
            found = [self._frame(next(rows, None), columns, page_size) for _ in range(frame_total)]
            numbers = [page for frame in found for page in frame.pages]
            if len(numbers) != page_total or len(set(numbers)) != page_total or page_size not in PAGE_SIZES:
                raise Damaged(self.key, "a volume of its index does not add up")
            parts.append(Part(vid, page_size, found))
        if next(rows, None) is not None or next(columns, None) is not None:
            raise Damaged(self.key, "its index has frames of no volume")
        vids = [part.vid for part in parts]
        if vids != sorted(vids) or (len(set(vids)) < len(vids) and not features & 1):
            raise Damaged(self.key, "its volumes are not sorted")
        self._check_contiguous(parts, hashes_at)
        return parts

    def _frame(
        self, row: tuple[int, int, int, int] | None, columns: Iterator[tuple[int, bytes, int]], page_size: int
    ) -> Frame:
        if row is None:
            raise Damaged(self.key, "its index lacks a frame")
        offset, checksum, length, packed = row
        mine = [entry for _, entry in zip(range(packed >> 8), columns, strict=False)]
        pages = [entry[0] for entry in mine]
        if not 0 < len(pages) <= 64 or len(pages) != packed >> 8 or pages != sorted(set(pages)) or 0 in pages:
            raise Damaged(self.key, "a frame of its index holds pages that none can hold")
        if length > len(pages) * page_size:
            raise Damaged(self.key, "a frame of its index is longer than its pages")
        hashes, lsns = [entry[1] for entry in mine], [entry[2] for entry in mine]
        return Frame(offset, checksum, length, packed & 0xFF, pages, hashes, lsns)

    def _check_contiguous(self, parts: list[Part], end: int) -> None:
        at = 0
        for offset, length in sorted((frame.offset, frame.length) for part in parts for frame in part.frames):
            if offset != at:
                raise Damaged(self.key, f"no frame begins at byte {at}")
            at += length
        if at != end:
            raise Damaged(self.key, "its frames don't end where its item hashes begin")

    def _unpack(self, frame: Frame, page_size: int) -> dict[int, bytes]:
        stored = self._data[frame.offset : frame.offset + frame.length]
        if xxh3(stored) != frame.checksum:
            raise Damaged(self.key, f"the frame of page {frame.pages[0]} does not match its checksum")
        size = len(frame.pages) * page_size
        match frame.encoding:
            case 0:
                plain = stored
            case 1:
                try:
                    plain = zstandard.ZstdDecompressor().decompress(stored, max_output_size=size)
                except zstandard.ZstdError as error:
                    raise Damaged(self.key, f"a frame can't be unpacked: {error}") from error
            case 3:
                plain = bytes(size)
            case other:
                raise TooNew(f"{self.key}: a frame of encoding {other}")
        if len(plain) != size:
            raise Damaged(self.key, "a frame holds other than its pages")
        pages: dict[int, bytes] = {}
        for number, (page, item) in enumerate(zip(frame.pages, frame.hashes, strict=True)):
            pages[page] = plain[number * page_size : (number + 1) * page_size]
            if hashlib.sha3_256(struct.pack("<I", page) + pages[page]).digest() != item:
                raise Damaged(self.key, f"page {page} does not match its item hash")
        return pages


def _indexes(column: bytes) -> Iterator[int]:
    page = 0
    for (step,) in struct.iter_unpack("<I", column):
        page = (page + step) & MOST_PAGE
        yield page
