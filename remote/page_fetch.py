"""Page fetch: pages of a volume from its remote, unpacked; the edge, lite and Spark keep them each in its own way.

What is given back is what was asked for: of that volume, that LSN and page size, with every page that was named, and
neighbours besides. Anything else is Corrupt.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, NamedTuple

from ..volume.errors import Corrupt, Unavailable
from ..volume.frame import Encoding, Frame, split_encrypted, unpack_frame
from ..volume.ids import VolumeId
from ..volume.page import zeros
from ..volume.pageset import PageSet
from ..volume.wire import SnapshotInfo
from .keyring import keys_of

if TYPE_CHECKING:
    from .portal import BlockingRead, BlockingRemote


class Fetched(NamedTuple):
    view: SnapshotInfo
    pages: dict[int, bytes]
    stored_bytes: int
    """What came for them, as stored."""


def fetch_pages(
    remote: BlockingRemote,
    vid: VolumeId,
    lsn: int,
    pages: PageSet,
    page_size: int,
    *,
    extra_bytes: int = 0,
    begun: BlockingRead | None = None,
    aside: Callable[[Frame], object] | None = None,
) -> Fetched:
    """The pages at that LSN, and the neighbours that come along. `lsn` 0 is the newest, `page_size` 0 any. Where the
    same was asked for before, `begun` is the answer. A frame with none of the pages asked for is given to `aside`,
    where there is one, as it came.
    """
    reading = begun or remote.read_pages(vid, lsn, pages, extra_bytes=extra_bytes)
    [fetched] = unpacked(reading, Asked(f"the answer of {remote.url}", vid, lsn, pages, page_size), aside=aside)
    return fetched


class Asked(NamedTuple):
    """What an answer is held to."""

    where: str
    vid: VolumeId
    lsn: int
    pages: PageSet
    page_size: int


def unpacked(
    reading: BlockingRead,
    asked: Asked,
    *,
    part_bytes: int | None = None,
    aside: Callable[[Frame], object] | None = None,
) -> Generator[Fetched]:
    """All that was asked for, in parts of so many bytes, or in one. Raises Corrupt."""
    where, lacking = asked.where, asked.pages
    with reading as answer:
        view = answer.snapshot
        size = view.page_size
        if view.vid != asked.vid.raw or view.lsn != (asked.lsn or view.lsn) or size != (asked.page_size or size):
            raise Corrupt(where, f"it speaks of another view than LSN {asked.lsn} of volume {asked.vid}")
        found = dict.fromkeys(answer.zeros & asked.pages, zeros(size))
        stored_bytes = 0
        try:
            for frame in answer.frames():
                stored_bytes += len(frame.stored)
                if aside is not None and not frame.valid.intersect(asked.pages):
                    aside(frame)
                    continue
                found.update(unpack_valid(where, frame, size, view.encryption))
                if part_bytes is not None and len(found) * size >= part_bytes:
                    lacking = lacking - PageSet(found)
                    yield Fetched(view, found, stored_bytes)
                    found, stored_bytes = {}, 0
        except Unavailable:
            if part_bytes is not None and found:
                # What has come is whole, and need not come again.
                yield Fetched(view, found, stored_bytes)
            raise
    lacking = lacking - PageSet(found)
    if lacking:
        raise Corrupt(where, f"page {lacking.min()} of volume {asked.vid} was asked for and is not in it")
    yield Fetched(view, found, stored_bytes)


def unpack_valid(where: str, frame: Frame, page_size: int, encryption: bytes) -> dict[int, bytes]:
    """Those of a frame's pages that are the snapshot's, whose encryption header that is. Raises Corrupt, of `where`,
    and Locked."""
    info, valid = frame.info, frame.valid
    if info.encoding != Encoding.ENCRYPTED:
        if encryption:
            raise Corrupt(where, "it has pages that aren't encrypted, of a volume that is")
        unpacked = unpack_frame(where, info, frame.stored, page_size)
        return {page: data for page, data in zip(info.pages, unpacked, strict=True) if page in valid}
    if not encryption:
        raise Corrupt(where, "it has encrypted pages, of a volume that isn't")
    pages = zip(info.pages, split_encrypted(where, info, frame.stored, page_size), strict=True)
    wanted = (pair for pair in pages if pair[0] in valid)
    return keys_of(encryption).decrypt_pages(where, wanted, page_size)
