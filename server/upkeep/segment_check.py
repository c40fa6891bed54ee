"""Segment check: a segment from its bytes: footer, index, item hashes, and every page, unpacked and hashed anew.

What is wrong with one frame is no matter to the others. So it is known which pages are as they were written, and which
are not. Encrypted pages are opened where the volume's keys are at hand; without them they are as they were written as
far as anybody can tell.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from ...volume.encryption import VolumeKeys
from ...volume.errors import Corrupt, Unsupported
from ...volume.frame import Encoding, check_frame, split_encrypted, unpack_frame
from ...volume.ids import VolumeId
from ...volume.pageset import PageSet
from ...volume.segment import FrameAt, SegmentIndex, VolumeIndex, parse_footer
from ...volume.setsum import HASH_SIZE, item_hash
from ..in_thread import in_thread
from .findings import Wrong, words_of
from .objects import Objects
from .reach import Reach

Keys: TypeAlias = Mapping[VolumeId, VolumeKeys]

_VERSION: Final = slice(-8, -4)
"""The footer's version, and the zero behind it."""


class CheckedPart(NamedTuple):
    """One volume's part of a segment."""

    vid: bytes
    page_size: int
    pages: PageSet
    """All that it says it holds."""
    hashes: dict[int, bytes]
    """Of those that are as they were written: their item hashes, by index, made of their bytes."""
    lsns: dict[int, int]
    """Of all: the LSN that its index has for each page, 0 where that is its commit's."""


class CheckedSegment(NamedTuple):
    segment: str
    """Its id; "" where nothing can be known of it."""
    parts: tuple[CheckedPart, ...]
    problems: tuple[str, ...]

    def part(self, slot: int, vid: bytes) -> CheckedPart | None:
        """A volume's, if it lies there."""
        found = self.parts[slot] if slot < len(self.parts) else None
        return found if found is not None and found.vid == vid else None


NOTHING = CheckedSegment("", (), ())


async def read_segment(objects: Objects, reach: Reach, size: int, wrong: Wrong, told_by: str) -> CheckedSegment:
    """The segment that is the object in question, of that size. Raises Unavailable, Unauthorized."""
    key = wrong.key
    data = await objects.get(key) if key else None
    if data is None:
        wrong.add(f"it is missing, though {told_by}")
        return NOTHING
    if len(data) != size:
        wrong.add(f"it has {len(data)} bytes where {size} belong")
        # Whoever reads it goes by the length that was told.
        data = data[:size]
    checked = await checked_segment(reach, key, data)
    for problem in checked.problems:
        wrong.add(problem)
    if checked.segment and key.rpartition("/")[2] != checked.segment:
        wrong.add("it is another segment's than its key says")
        return NOTHING
    return checked


async def checked_segment(reach: Reach, key: str, data: bytes) -> CheckedSegment:
    """As `check_segment`, in a thread, with the keys that are at hand."""
    keys = dict[VolumeId, VolumeKeys]()
    if reach.unlock is not None:
        for vid in await in_thread(partial(_encrypted_in, key, data)):
            found = await reach.keys_of(str(vid))
            if found is not None:
                keys[vid] = found
    return await in_thread(partial(check_segment, key, data, keys))


def _encrypted_in(key: str, data: bytes) -> list[VolumeId]:
    try:
        return [volume.vid for volume in SegmentIndex.of_segment(key, data).volumes if volume.is_encrypted]
    except (Corrupt, Unsupported):
        return []


def check_segment(key: str, data: bytes | memoryview, keys: Keys | None = None) -> CheckedSegment:
    """Of bytes that are to be one segment and nothing else."""
    view = memoryview(data)
    try:
        index = SegmentIndex.of_segment(key, view)
    except (Corrupt, Unsupported) as error:
        return CheckedSegment("", (), (words_of(key, error),))
    problems: list[str] = []
    if bytes(view[_VERSION]) != b"\x01\0\0\0":
        # No reader minds.
        problems.append("its footer has another version than any that was written")
    if parse_footer(key, view).segment_size != len(view):
        problems.append("it is longer than its segment")
        view = view[len(view) - parse_footer(key, view).segment_size :]
    hashes: bytes | None = None
    try:
        hashes = index.hashes(key, view)
    except Corrupt as error:
        problems.append(error.what)
    parts: list[CheckedPart] = []
    at = 0
    for volume in index.volumes:
        parts.append(_check_part(key, view, volume, hashes, at, problems, (keys or {}).get(volume.vid)))
        at += HASH_SIZE * len(volume.pages)
    return CheckedSegment(str(index.segment), tuple(parts), tuple(problems))


def _check_part(
    key: str,
    view: memoryview,
    volume: VolumeIndex,
    hashes: bytes | None,
    at: int,
    problems: list[str],
    keys: VolumeKeys | None,
) -> CheckedPart:
    whole: dict[int, bytes] = {}
    written: dict[int, int] = {}
    for frame in volume.frames:
        offset, info, lsns = frame
        written.update(zip(info.pages, lsns, strict=True))
        end = at + HASH_SIZE * len(info.pages)
        stored = view[offset : offset + info.length]
        try:
            if info.encoding == Encoding.ENCRYPTED:
                check_frame(key, info, stored, volume.page_size)
                # What they should be is the word of whoever has their key: they are as they were written.
                found: list[bytes | None] = [
                    (hashes or b"")[place : place + HASH_SIZE] for place in range(at, end, HASH_SIZE)
                ]
                if keys is not None:
                    found = _opened(key, frame, stored, volume.page_size, found, keys, problems)
            else:
                pages = unpack_frame(key, info, stored, volume.page_size)
                found = [item_hash(page, plain) for page, plain in zip(info.pages, pages, strict=True)]
        except Corrupt as error:
            problems.append(error.what)
        else:
            for number, (page, item) in enumerate(zip(info.pages, found, strict=True)):
                told = at + HASH_SIZE * number
                if item is None:
                    continue
                if hashes is None or hashes[told : told + HASH_SIZE] == item:
                    whole[page] = item
                else:
                    problems.append(f"page {page} does not match its item hash")
        at = end
    return CheckedPart(volume.vid.raw, volume.page_size, volume.pages, whole, written)


def _opened(
    key: str,
    frame: FrameAt,
    stored: memoryview,
    page_size: int,
    hashes: list[bytes | None],
    keys: VolumeKeys,
    problems: list[str],
) -> list[bytes | None]:
    """The item hashes, of those pages that open with the keys, and are what their hashes are of."""
    found = list[bytes | None]()
    split = split_encrypted(key, frame.info, stored, page_size)
    for page, lsn, data, item in zip(frame.info.pages, frame.lsns, split, hashes, strict=True):
        try:
            plain = keys.decrypt(key, page, data, page_size)
        except Corrupt:
            problems.append(f"page {page} does not open with its volume's key")
            found.append(None)
            continue
        # One that its commit will name takes that LSN in, which is not known here: the commit's sums tell.
        found.append(keys.item_hash(lsn, page, plain) if lsn and item else item)
    return found
