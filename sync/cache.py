"""A bounded cache of pages in memory, least recently used out first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

__all__ = ["PageCache"]


class PageCache:
    """Not for two threads at once."""

    __slots__ = ("_pages", "bytes", "limit_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.bytes = 0
        self._pages: OrderedDict[int, bytes] = OrderedDict()

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
