"""Cache: pages of snapshots in this process's memory, bounded by bytes, the least recently used out first.

A page is keyed by its remote, its volume, LSN and index: what was read there once is so for ever. (The remote, since a
copy of a store has the same ids, and goes its own way from then on.)
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Mapping

from ...volume.pageset import PageSet

__all__ = ["Cache", "ViewKey"]

ViewKey = tuple[str, bytes, int]
"""A remote's URL, a volume, an LSN."""


class Cache:
    """For any thread, and across forks."""

    def __init__(self, limit_bytes: int = 0) -> None:
        self.limit_bytes = limit_bytes
        self.bytes = 0
        self._views: OrderedDict[ViewKey, OrderedDict[int, bytes]] = OrderedDict()
        self._lock = threading.Lock()
        os.register_at_fork(after_in_child=self._in_child)

    def _in_child(self) -> None:
        self._lock = threading.Lock()

    def get(self, key: ViewKey, pages: PageSet) -> dict[int, bytes]:
        """Those of the pages that are here."""
        with self._lock:
            held = self._views.get(key)
            if held is None:
                return {}
            self._views.move_to_end(key)
            found: dict[int, bytes] = {}
            for page in pages:
                data = held.get(page)
                if data is not None:
                    held.move_to_end(page)
                    found[page] = data
            return found

    def put(self, key: ViewKey, pages: Mapping[int, bytes]) -> None:
        with self._lock:
            held = self._views.setdefault(key, OrderedDict())
            self._views.move_to_end(key)
            for page, data in pages.items():
                before = held.pop(page, None)
                self.bytes += len(data) - (0 if before is None else len(before))
                held[page] = data
            self._shrink()

    def _shrink(self) -> None:
        while self.bytes > self.limit_bytes and self._views:
            oldest, held = next(iter(self._views.items()))
            while held and self.bytes > self.limit_bytes:
                self.bytes -= len(held.popitem(last=False)[1])
            if not held:
                del self._views[oldest]

    def clear(self) -> None:
        """Keep nothing, and no limit."""
        with self._lock:
            self._views.clear()
            self.bytes = self.limit_bytes = 0
