"""Cache: pages of snapshots in this process's memory, bounded by bytes, the least recently used out first.

A page is keyed by volume, LSN and index: what was read there once is so for ever.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Mapping

from ...volume.pageset import PageSet
from ...volume.wire import SnapshotInfo

__all__ = ["Cache"]


class Cache:
    """For any thread, and across forks."""

    def __init__(self, limit_bytes: int = 0) -> None:
        self.limit_bytes = limit_bytes
        self.bytes = 0
        self._views: OrderedDict[tuple[bytes, int], OrderedDict[int, bytes]] = OrderedDict()
        self._lock = threading.Lock()
        os.register_at_fork(after_in_child=self._in_child)

    def _in_child(self) -> None:
        self._lock = threading.Lock()

    def get(self, view: SnapshotInfo, pages: PageSet) -> dict[int, bytes]:
        """Those of the pages that are here."""
        with self._lock:
            held = self._views.get((view.vid, view.lsn))
            if held is None:
                return {}
            self._views.move_to_end((view.vid, view.lsn))
            found: dict[int, bytes] = {}
            for page in pages:
                data = held.get(page)
                if data is not None:
                    held.move_to_end(page)
                    found[page] = data
            return found

    def put(self, view: SnapshotInfo, pages: Mapping[int, bytes]) -> None:
        with self._lock:
            held = self._views.setdefault((view.vid, view.lsn), OrderedDict())
            self._views.move_to_end((view.vid, view.lsn))
            for page, data in pages.items():
                before = held.pop(page, None)
                self.bytes += len(data) - (0 if before is None else len(before))
                held[page] = data
            self._shrink()

    def _shrink(self) -> None:
        while self.bytes > self.limit_bytes and self._views:
            key, held = next(iter(self._views.items()))
            while held and self.bytes > self.limit_bytes:
                self.bytes -= len(held.popitem(last=False)[1])
            if not held:
                del self._views[key]

    def clear(self) -> None:
        """Keep nothing, and no limit."""
        with self._lock:
            self._views.clear()
            self.bytes = self.limit_bytes = 0
