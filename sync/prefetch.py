"""Prefetch: how much to ask for at a miss, and who asks.

A lone miss asks for its page: the frame that holds it brings up to 63 neighbours anyway. Page 1 asks for what lies
beside it too, which is the B-tree's skeleton (DESIGN §4): after that a point query misses once or twice. Misses that
follow one another are a scan, and ask for twice as much each time, up to a limit. Lone misses that go on and on are
look-ups at random, which have no use for neighbours: from the ninth on they ask for their pages alone, but
for places that were missed several times, of which the rest is fetched at once. Threads of one process that miss the
same page share one request.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Final

from ..volume.pageset import PageSet
from ..volume.wire import ALONE
from .afterfork import forgets
from .tables import Head

SKELETON_BYTES: Final = 256 * 1024
"""Stored bytes that page 1 may bring along."""

_GAP: Final = 16
"""A scan steps over pages that are here already, as a B-tree's inner pages are from the first miss on."""

_FIRST: Final = 64
_MOST: Final = 1024
_MOST_BYTES: Final = 4 * 1024 * 1024

_LONE: Final = 8
_PLACE_PAGES: Final = 64
"""As many as a frame holds."""
_DENSE: Final = 6
"""Misses in one place, the last of which fetches all that is there."""
_PLACES: Final = 65_536
"""Remembered."""


class MissRun:
    """How one reader's misses follow one another. No I/O."""

    __slots__ = ("_next", "_window")

    def __init__(self) -> None:
        self._next = -_GAP  # Nothing goes on at first.
        self._window = 1

    def ask(self, page: int, page_size: int) -> int:
        """How many pages, from `page` on, are worth asking for."""
        if 0 <= page - self._next <= _GAP:
            self._window = min(max(_FIRST, self._window * 2), _MOST, max(1, _MOST_BYTES // page_size))
        else:
            self._window = 1
        return self._window

    def got(self, page: int, pages: Mapping[int, bytes]) -> None:
        """What came: a scan goes on at the first page after what was asked for, and what came along."""
        page += self._window
        while page in pages:
            page += 1
        self._next = page


class LoneMisses:
    """Whether lone misses have use for what lies beside their pages. No I/O; a count that two threads get wrong costs
    some bytes."""

    __slots__ = ("_places", "_run")

    def __init__(self) -> None:
        self._run = 0
        self._places: dict[int, int] = {}
        """How often each was missed in."""

    def extra_bytes(self, pages: PageSet) -> int:
        """How much more than these pages to ask for."""
        page = pages.min()
        if page == 1:
            return SKELETON_BYTES
        if len(pages) > 1:
            self._run = 0
            return 0
        self._run += 1
        if self._run <= _LONE:
            return 0
        if len(self._places) >= _PLACES:
            self._places.clear()
        place = page // _PLACE_PAGES
        self._places[place] = missed = self._places.get(place, 0) + 1
        return ALONE if missed < _DENSE else 0


class _Fetch:
    __slots__ = ("done", "pages")

    def __init__(self) -> None:
        self.done = threading.Event()
        self.pages: dict[int, bytes] | None = None
        """None until it has landed, and for ever if it failed."""


class SharedFetches:
    """The requests under way in this process for one volume."""

    def __init__(self, request: Callable[[Head, PageSet, int], dict[int, bytes]]) -> None:
        self._request = request
        self._fetches: dict[tuple[int, int], _Fetch] = {}
        self._lock = threading.Lock()
        self._lone = LoneMisses()
        forgets(self)

    def forget(self) -> None:
        """In a child after fork: the requests under way are the parent's."""
        self._fetches = {}
        self._lock = threading.Lock()

    def fetch(self, head: Head, page: int, missing: PageSet) -> dict[int, bytes]:
        """See snapshot.Misses.fetch."""
        while True:
            flight = _Fetch()
            mine = PageSet()
            with self._lock:
                other = self._fetches.get((head.sync_remote, page))
                if other is None:
                    mine |= PageSet([i for i in missing if (head.sync_remote, i) not in self._fetches])
                    mine.add(page)
                    for i in mine:
                        self._fetches[head.sync_remote, i] = flight
            if other is None:
                return self._fly(flight, head, mine)
            other.done.wait()
            if other.pages is not None and page in other.pages:
                return other.pages
            # Theirs failed: ours may fare better, and if not, the error is ours to raise.

    def _fly(self, flight: _Fetch, head: Head, pages: PageSet) -> dict[int, bytes]:
        try:
            flight.pages = self._request(head, pages, self._lone.extra_bytes(pages))
            return flight.pages
        finally:
            with self._lock:
                for i in pages:
                    del self._fetches[head.sync_remote, i]
            flight.done.set()
