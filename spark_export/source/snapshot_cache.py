"""Snapshot cache: pages of snapshots in this process's memory, bounded by bytes, the least recently used out first.

A page is keyed by its remote, its volume, LSN and index: what was read there once is so for ever. (The remote, since a
copy of a store has the same ids, and goes its own way from then on.)

What is known of two LSNs of a volume can be told (`link`): a page that didn't change between them is the same at both,
so that who follows a volume from LSN to LSN fetches what changed and not its trees.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Final, NamedTuple

from ...volume.pageset import PageSet

ViewKey = tuple[str, bytes, int]
"""A remote's URL, a volume, an LSN."""


_LINKS: Final = 256
"""Pairs of LSNs that are remembered."""
_FAR: Final = 16
"""Links that are followed for one page."""


class _Link(NamedTuple):
    older: ViewKey
    changed: PageSet


class Cache:
    """For any thread, and across forks."""

    def __init__(self, limit_bytes: int = 0) -> None:
        self.limit_bytes = limit_bytes
        self.bytes = 0
        self._views: OrderedDict[ViewKey, OrderedDict[int, bytes]] = OrderedDict()
        self._links: OrderedDict[ViewKey, _Link] = OrderedDict()
        self._lock = threading.Lock()
        os.register_at_fork(after_in_child=self._in_child)

    def _in_child(self) -> None:
        self._lock = threading.Lock()

    def get(self, key: ViewKey, pages: PageSet) -> dict[int, bytes]:
        """Those of the pages that are here."""
        with self._lock:
            found = self._held(key, pages)
            at, missing = key, pages - PageSet(found)
            for _ in range(_FAR):
                link = self._links.get(at)
                if not missing or link is None:
                    break
                at, missing = link.older, missing - link.changed
                same = self._held(at, missing)
                self._keep(key, same)
                found |= same
                missing -= PageSet(same)
            return found

    def put(self, key: ViewKey, pages: Mapping[int, bytes]) -> None:
        with self._lock:
            self._keep(key, pages)

    def link(self, older: ViewKey, newer: ViewKey, changed: PageSet) -> None:
        """All other pages are the same in both."""
        with self._lock:
            self._links[newer] = _Link(older, changed)
            self._links.move_to_end(newer)
            while len(self._links) > _LINKS:
                self._links.popitem(last=False)

    def _held(self, key: ViewKey, pages: PageSet) -> dict[int, bytes]:
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

    def _keep(self, key: ViewKey, pages: Mapping[int, bytes]) -> None:
        if not pages:
            return
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
            self._links.clear()
            self.bytes = self.limit_bytes = 0
