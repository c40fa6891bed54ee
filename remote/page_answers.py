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
from ..volume.frame import Frame, check_info
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
    wanted, left_bytes = PageSet(requested.pages), requested.extra_bytes
    async for part, stored in parts:
        if not isinstance(part, FramePart):
            raise Corrupt(source, "it has two heads")
        held = check_info(source, part.info)
        valid = decode_pages(source, part.valid)
        if not valid <= held:
            raise Corrupt(source, "a frame is valid for pages that it doesn't hold")
        if valid.intersect(wanted):
            wanted -= valid
        else:
            left_bytes -= len(stored) + 4 * len(held)
        if left_bytes < 0:
            raise Corrupt(source, "it brings more than was asked for")
        yield Frame(part.info, valid, stored)
