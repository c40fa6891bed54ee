"""Frame cache: frames that came along with others, packed as they came until one of their pages is asked for.

An answer of 256 KiB may hold thousands of pages, of which a point query needs three; unpacking them all costs more CPU
than the rest of opening a volume. A frame leaves the cache when it is unpacked. Bounded by stored bytes, the oldest out
first.
"""

from __future__ import annotations

from collections import OrderedDict

import msgspec

from ..remote.page_fetch import unpack_valid
from ..volume.frame import Frame
from ..volume.pageset import PageSet, beyond


class _Held(msgspec.Struct, eq=False):
    where: str
    """Who sent it, for an error's words."""
    frame: Frame
    valid: PageSet
    """Which of its pages are the view's still."""


class FrameCache:
    """Frames of one view. Not for two threads at once."""

    __slots__ = ("_frames", "_of_page", "bytes", "limit_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.bytes = 0
        self._frames: OrderedDict[_Held, None] = OrderedDict()
        self._of_page: dict[int, _Held] = {}

    def put(self, where: str, frame: Frame) -> None:
        held = _Held(where, frame, frame.valid)
        self._frames[held] = None
        self._of_page.update(dict.fromkeys(held.valid, held))
        self.bytes += len(frame.stored)
        while self.bytes > self.limit_bytes:
            self._remove(next(iter(self._frames)))

    def __contains__(self, page: int) -> bool:
        return page in self._of_page

    def take(self, page: int, page_size: int, encryption: bytes = b"") -> dict[int, bytes] | None:
        """The pages of the frame that holds `page`. Raises Corrupt."""
        held = self._of_page.get(page)
        if held is None:
            return None
        self._remove(held)
        pages = unpack_valid(held.where, held.frame, page_size, encryption)
        return {at: data for at, data in pages.items() if at in held.valid}

    def drop(self, pages: PageSet) -> None:
        """These are the view's no longer."""
        for held in self._frames:
            for page in held.valid & pages:
                self._of_page.pop(page, None)
            held.valid = held.valid - pages

    def cut(self, last: int) -> None:
        """Nor is what lies after page `last`."""
        if self._of_page:
            self.drop(beyond(PageSet(self._of_page), last))

    def clear(self) -> None:
        self._frames.clear()
        self._of_page.clear()
        self.bytes = 0

    def _remove(self, held: _Held) -> None:
        del self._frames[held]
        self.bytes -= len(held.frame.stored)
        for page in held.valid:
            if self._of_page.get(page) is held:
                del self._of_page[page]
