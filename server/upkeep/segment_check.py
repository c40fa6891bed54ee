"""Segment check: a segment from its bytes: footer, index, item hashes, and every page, unpacked and hashed anew.

What is wrong with one frame is no matter to the others. So it is known which pages are as they were written, and which
are not.
"""

from __future__ import annotations

from functools import partial
from typing import Final, NamedTuple

from anyio import to_thread

from ...volume.errors import Corrupt, Unsupported
from ...volume.frame import Encoding, check_frame, unpack_frame
from ...volume.pageset import PageSet
from ...volume.segment import SegmentIndex, VolumeIndex, parse_footer
from ...volume.setsum import HASH_SIZE, item_hash
from .findings import Wrong, words_of
from .objects import Objects

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


async def read_segment(objects: Objects, size: int, wrong: Wrong, told_by: str) -> CheckedSegment:
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
    checked = await to_thread.run_sync(partial(check_segment, key, data))
    for problem in checked.problems:
        wrong.add(problem)
    if checked.segment and key.rpartition("/")[2] != checked.segment:
        wrong.add("it is another segment's than its key says")
        return NOTHING
    return checked


def check_segment(key: str, data: bytes | memoryview) -> CheckedSegment:
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
        parts.append(_check_part(key, view, volume, hashes, at, problems))
        at += HASH_SIZE * len(volume.pages)
    return CheckedSegment(str(index.segment), tuple(parts), tuple(problems))


def _check_part(
    key: str, view: memoryview, volume: VolumeIndex, hashes: bytes | None, at: int, problems: list[str]
) -> CheckedPart:
    whole: dict[int, bytes] = {}
    written: dict[int, int] = {}
    for offset, info, lsns in volume.frames:
        written.update(zip(info.pages, lsns, strict=True))
        end = at + HASH_SIZE * len(info.pages)
        stored = view[offset : offset + info.length]
        try:
            if info.encoding == Encoding.ENCRYPTED:
                check_frame(key, info, stored, volume.page_size)
                # What they should be is the word of whoever has their key: they are as they were written.
                found = [(hashes or b"")[place : place + HASH_SIZE] for place in range(at, end, HASH_SIZE)]
            else:
                pages = unpack_frame(key, info, stored, volume.page_size)
                found = [item_hash(page, plain) for page, plain in zip(info.pages, pages, strict=True)]
        except Corrupt as error:
            problems.append(error.what)
        else:
            for number, (page, item) in enumerate(zip(info.pages, found, strict=True)):
                told = at + HASH_SIZE * number
                if hashes is None or hashes[told : told + HASH_SIZE] == item:
                    whole[page] = item
                else:
                    problems.append(f"page {page} does not match its item hash")
        at = end
    return CheckedPart(volume.vid.raw, volume.page_size, volume.pages, whole, written)
