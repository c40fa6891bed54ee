"""Prefetch: how much to ask for at a miss, and who asks.

A lone miss asks for its page: the frame that holds it brings up to 63 neighbours anyway. Page 1 asks for what lies
beside it too, which is the B-tree's skeleton (DESIGN §4): after that a point query misses once or twice. Misses that
follow one another are a scan, and ask for twice as much each time, up to a limit. Lone misses that go on and on are
look-ups at random, which have no use for neighbours: from the ninth on they ask for their pages alone, but
for places that were missed several times, of which the rest is fetched at once. Threads of one process that miss the
same page share one request.

A scan has the next window asked for before it misses it, and the answer waits until then (`Ahead`): the link is busy
while what came is unpacked and kept.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol

from ..volume.errors import BudwoodError, Unavailable
from ..volume.frame import FRAME_PAGES
from ..volume.pageset import PageSet
from ..volume.wire import ALONE
from .afterfork import forgets
from .tables import Head

if TYPE_CHECKING:
    from ..remote.portal import BlockingRead

SKELETON_BYTES: Final = 256 * 1024
"""Stored bytes that page 1 may bring along."""

_GAP: Final = 16
"""A scan steps over pages that are here already, as a B-tree's inner pages are from the first miss on."""

_FIRST: Final = 64
_MOST: Final = 1024
_MOST_BYTES: Final = 4 * 1024 * 1024

_LONE: Final = 8
_DENSE: Final = 6
"""Misses in one place, the last of which fetches all that is there."""
_FEW: Final = 16
_FAR: Final = 64
"""So few pages that lie so far apart each are a tree's whose order is followed (sqlite/key_order.py), and maybe not for
long: their frames would be many times what was asked for."""
_PLACES: Final = 65_536
"""Remembered."""


_inherited: Final[list[object]] = []
"""What a forked child must not let be collected, since it is the parent's."""


class MissRun:
    """How one reader's misses follow one another. No I/O."""

    __slots__ = ("_next", "_window")

    def __init__(self) -> None:
        self._next = -_GAP  # Nothing goes on at first.
        self._window = 1

    @property
    def is_scan(self) -> bool:
        """Whether misses have followed one another often enough that the next is worth asking for before it comes."""
        return self._window > _FIRST

    def ask(self, page: int, page_size: int) -> int:
        """How many pages, from `page` on, are worth asking for."""
        if 0 <= page - self._next <= _GAP:
            self._window = min(max(_FIRST, self._window * 2), _MOST, max(1, _MOST_BYTES // page_size))
        else:
            self._window = 1
        return self._window

    def got(self, page: int, pages: Mapping[int, bytes]) -> None:
        """What came: a scan goes on at `page`, the first after what was asked for, or after what came along."""
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
            return ALONE if len(pages) <= _FEW and pages.max() - page > _FAR * len(pages) else 0
        self._run += 1
        if self._run <= _LONE:
            return 0
        if len(self._places) >= _PLACES:
            self._places.clear()
        place = page // FRAME_PAGES
        self._places[place] = missed = self._places.get(place, 0) + 1
        return ALONE if missed < _DENSE else 0


class Ahead(Protocol):
    """Pages that are being fetched before anyone has missed them."""

    pages: PageSet

    def leave(self) -> None:
        """Whoever asked for them misses none of them any more. Harmless once they were taken."""
        ...


class _Fetch:
    """By whoever waits for it; or one that was asked ahead, whose answer the first to miss one of its pages reads."""

    __slots__ = ("begun", "done", "drop", "found", "pages")

    def __init__(self, pages: PageSet) -> None:
        self.done = threading.Event()
        self.pages = pages
        self.found: dict[int, bytes] | None = None
        """None until it has landed, and for ever if it failed."""
        self.begun: BlockingRead | None = None
        """What was asked ahead, until somebody reads it."""
        self.drop: Callable[[], None] | None = None

    def leave(self) -> None:
        """See Ahead."""
        if self.drop is not None:
            self.drop()


class SharedFetches:
    """The requests under way in this process for one volume."""

    def __init__(
        self,
        request: Callable[[Head, PageSet, int, BlockingRead | None], dict[int, bytes]],
        ask_ahead: Callable[[Head, PageSet], BlockingRead],
    ) -> None:
        self._request = request
        self._ask_ahead = ask_ahead
        self._fetches: dict[tuple[int, int], _Fetch] = {}
        self._lock = threading.RLock()
        """One that its holder may take again: the garbage collector may close a view in whatever thread it runs in."""
        self._lone = LoneMisses()
        forgets(self)

    def forget(self) -> None:
        """In a child after fork: the requests under way are the parent's."""
        _inherited.append(self._fetches)
        self._fetches = {}
        self._lock = threading.RLock()

    def fetch(self, head: Head, page: int, missing: PageSet) -> dict[int, bytes]:
        """See snapshot.Misses.fetch."""
        while True:
            with self._lock:
                flight = self._fetches.get((head.sync_remote, page))
                if is_mine := flight is None:
                    flight = _Fetch((missing | PageSet([page])) - self.under_way(head.sync_remote))
                    self._take_off(flight, head)
                begun, flight.begun = flight.begun, None
            if is_mine:
                return self._fly(flight, head)
            if begun is not None:
                with suppress(Unavailable):
                    return self._fly(flight, head, begun)
            flight.done.wait()
            if flight.found is not None and page in flight.found:
                return flight.found
            # Theirs failed: ours may fare better, and if not, the error is ours to raise.

    def ahead(self, head: Head, missing: PageSet) -> Ahead | None:
        """See snapshot.Misses.ahead."""
        flight = _Fetch(missing - self.under_way(head.sync_remote))
        if not flight.pages:
            return None
        try:
            flight.begun = self._ask_ahead(head, flight.pages)
        except BudwoodError:
            # Whoever misses them hears of it.
            return None
        with self._lock:
            # Asked for and known at once: nobody waits for an answer that nobody reads. Some of it others may have
            # asked for meanwhile, too.
            self._take_off(flight, head)

        def drop() -> None:
            with self._lock:
                begun, flight.begun = flight.begun, None
            if begun is not None:
                begun.leave()
                self._land(flight, head)

        flight.drop = drop
        return flight

    def under_way(self, sync_remote: int) -> PageSet:
        """The pages that are being fetched at that sync point."""
        with self._lock:
            return PageSet([page for lsn, page in list(self._fetches) if lsn == sync_remote])

    def _take_off(self, flight: _Fetch, head: Head) -> None:
        for page in flight.pages:
            self._fetches.setdefault((head.sync_remote, page), flight)

    def _fly(self, flight: _Fetch, head: Head, begun: BlockingRead | None = None) -> dict[int, bytes]:
        try:
            extra_bytes = 0 if begun else self._lone.extra_bytes(flight.pages)
            flight.found = self._request(head, flight.pages, extra_bytes, begun)
            return flight.found
        finally:
            self._land(flight, head)

    def _land(self, flight: _Fetch, head: Head) -> None:
        with self._lock:
            for page in flight.pages:
                if self._fetches.get((head.sync_remote, page)) is flight:
                    del self._fetches[head.sync_remote, page]
        flight.done.set()
