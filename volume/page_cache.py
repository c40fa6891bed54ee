"""Cache: pages of one view in memory, bounded by bytes, least recently used out first."""

from __future__ import annotations

from collections.abc import Mapping

from .lru_cache import LruCache
from .pageset import PageSet


class PageCache(LruCache[int, bytes]):
    """Pages by index."""

    __slots__ = ()

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(limit_bytes, len)

    def update(self, pages: Mapping[int, bytes]) -> None:
        for page, data in pages.items():
            self.put(page, data)

    def forget(self, pages: PageSet) -> None:
        """Those of `pages` that are held."""
        for page in [page for page in self if page in pages]:
            self.drop(page)

    def cut(self, last: int) -> None:
        """Forget what lies after page `last`."""
        for page in [page for page in self if page > last]:
            self.drop(page)
