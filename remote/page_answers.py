"""Pages: a node's answer to read_pages, held to what was asked for.

Whoever answers may be anybody. So room is made for nothing that it merely says: its snapshot is one that can be, its
frames name pages that can be and are valid for no others, and each holds a page that was asked for and hasn't come
yet, or is counted against the extra bytes that the reader welcomes. What goes beyond is Corrupt. Whether a frame's
bytes are what they should be shows when it is unpacked.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from typing import NamedTuple, TypeAlias

from ..volume.errors import Corrupt
from ..volume.frame import Frame, FrameInfo, check_info
from ..volume.pageset import PageSet, decode_pages
from ..volume.wire import FramePart, PagesHead, SnapshotInfo, check_view

Parts: TypeAlias = AsyncGenerator[tuple[PagesHead | FramePart, bytes], None]


class PagesRequested(NamedTuple):
    """What a call of read_pages asks for."""

    pages: PageSet
    extra_bytes: int


class Read:
    """An answer to read_pages on its way."""

    def __init__(self, source: str, head: PagesHead, requested: PagesRequested, frames: AsyncIterator[Frame]) -> None:
        self.snapshot: SnapshotInfo = check_view(source, head.snapshot)
        self.zeros = decode_pages(source, head.zeros)
        if not self.zeros <= requested.pages:
            raise Corrupt(source, "it speaks of pages that were not asked for")
        self._frames = frames

    def frames(self) -> AsyncIterator[Frame]:
        return self._frames


async def frames_of(source: str, parts: Parts, requested: PagesRequested) -> AsyncGenerator[Frame, None]:
    """The frames that follow the head. Raises Corrupt."""
    checked = FrameCheck(source, requested)
    async for part, stored in parts:
        if not isinstance(part, FramePart):
            raise Corrupt(source, "it has two heads")
        yield checked.frame(part.info, part.valid, stored)


class FrameCheck:
    """Holds the frames of one answer, as they come, to what was asked for."""

    def __init__(self, source: str, requested: PagesRequested) -> None:
        self._source = source
        self.wanted = PageSet(requested.pages)
        """What has not come yet."""
        self._left_bytes = max(0, requested.extra_bytes)

    def frame(self, info: FrameInfo, valid_pages: bytes, stored: bytes) -> Frame:
        """Raises Corrupt."""
        held = check_info(self._source, info)
        valid = decode_pages(self._source, valid_pages)
        if not valid <= held:
            raise Corrupt(self._source, "a frame is valid for pages that it doesn't hold")
        if valid.intersect(self.wanted):
            self.wanted -= valid
        else:
            self._left_bytes -= len(stored) + 4 * len(held)
        if self._left_bytes < 0:
            raise Corrupt(self._source, "it brings more than was asked for")
        return Frame(info, valid, stored)
