"""Cache: pages of one view in memory, bounded by bytes, least recently used out first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

from .pageset import PageSet

__all__ = ["PageCache"]


class PageCache:
    """Not for two threads at once. One page is kept whatever its size."""

    __slots__ = ("_pages", "bytes", "limit_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.bytes = 0
        self._pages: OrderedDict[int, bytes] = OrderedDict()

    def __len__(self) -> int:
        return len(self._pages)

    def get(self, page: int) -> bytes | None:
        data = self._pages.get(page)
        if data is not None:
            self._pages.move_to_end(page)
        return data

    def update(self, pages: Mapping[int, bytes]) -> None:
        for page, data in pages.items():
            before = self._pages.pop(page, None)
            self.bytes += len(data) - (0 if before is None else len(before))
            self._pages[page] = data
        while self.bytes > self.limit_bytes and len(self._pages) > 1:
            self.bytes -= len(self._pages.popitem(last=False)[1])

    def drop(self, pages: PageSet) -> None:
        """Forget those of `pages` that are held."""
        for page in [page for page in self._pages if page in pages]:
            self.bytes -= len(self._pages.pop(page))

    def cut(self, last: int) -> None:
        """Forget what lies after page `last`."""
        for page in [page for page in self._pages if page > last]:
            self.bytes -= len(self._pages.pop(page))

    def clear(self) -> None:
        self._pages.clear()
        self.bytes = 0
