"""Page fetch: pages of a volume from its remote, unpacked; the edge, lite and Spark keep them each in its own way.

What is given back is what was asked for: of that volume, that LSN and page size, with every page that was named, and
neighbours besides. Anything else is Corrupt.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from ..volume.errors import Corrupt
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
    where = f"the answer of {remote.url}"
    found: dict[int, bytes] = {}
    stored_bytes = 0
    with begun or remote.read_pages(vid, lsn, pages, extra_bytes=extra_bytes) as answer:
        view = answer.snapshot
        size = view.page_size
        if view.vid != vid.raw or view.lsn != (lsn or view.lsn) or size != (page_size or size):
            raise Corrupt(where, f"it speaks of another view than LSN {lsn} of volume {vid}")
        found.update(dict.fromkeys(answer.zeros & pages, zeros(size)))
        for frame in answer.frames():
            stored_bytes += len(frame.stored)
            if aside is not None and not frame.valid.intersect(pages):
                aside(frame)
            else:
                found.update(unpack_valid(where, frame, size, view.encryption))
    lacking = pages - PageSet(found)
    if lacking:
        raise Corrupt(where, f"page {lacking.min()} of volume {vid} was asked for and is not in it")
    return Fetched(view, found, stored_bytes)


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
