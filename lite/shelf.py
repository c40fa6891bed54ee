"""Shelf: frames that came along with others, packed as they came until one of their pages is asked for.

An answer of 256 KiB may hold thousands of pages, of which a point query needs three; unpacking them all costs more CPU
than the rest of opening a volume. A frame leaves the shelf when it is unpacked. Bounded by stored bytes, the oldest out
first.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from ..volume.frame import FrameInfo, unpack_frame
from ..volume.pageset import PageSet, beyond

__all__ = ["Shelf"]


@dataclass(slots=True, eq=False)
class _Frame:
    where: str
    """Who sent it, for an error's words."""
    info: FrameInfo
    stored: bytes
    valid: PageSet
    """Which of its pages are the view's."""


class Shelf:
    """Frames of one view. Not for two threads at once."""

    __slots__ = ("_frames", "_of_page", "bytes", "limit_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.bytes = 0
        self._frames: OrderedDict[_Frame, None] = OrderedDict()
        self._of_page: dict[int, _Frame] = {}

    def put(self, where: str, info: FrameInfo, stored: bytes, valid: PageSet) -> None:
        frame = _Frame(where, info, stored, valid)
        self._frames[frame] = None
        self._of_page.update(dict.fromkeys(valid, frame))
        self.bytes += len(stored)
        while self.bytes > self.limit_bytes:
            self._remove(next(iter(self._frames)))

    def take(self, page: int, page_size: int) -> dict[int, bytes] | None:
        """The pages of the frame that holds `page`. Raises Corrupt."""
        frame = self._of_page.get(page)
        if frame is None:
            return None
        self._remove(frame)
        pages = unpack_frame(frame.where, frame.info, frame.stored, page_size)
        return {at: data for at, data in zip(frame.info.pages, pages, strict=True) if at in frame.valid}

    def drop(self, pages: PageSet) -> None:
        """These are the view's no longer."""
        for frame in self._frames:
            for page in frame.valid & pages:
                self._of_page.pop(page, None)
            frame.valid = frame.valid - pages

    def cut(self, last: int) -> None:
        """Nor is what lies after page `last`."""
        if self._of_page:
            self.drop(beyond(PageSet(self._of_page), last))

    def clear(self) -> None:
        self._frames.clear()
        self._of_page.clear()
        self.bytes = 0

    def _remove(self, frame: _Frame) -> None:
        del self._frames[frame]
        self.bytes -= len(frame.stored)
        for page in frame.valid:
            if self._of_page.get(page) is frame:
                del self._of_page[page]
