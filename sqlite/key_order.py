"""Key order: the pages that a reader wants next which goes through a B-tree whose leaves lie anywhere.

Rows that came in no order, as keys that are random do, leave a tree's neighbours far apart: misses that follow one
another there look like look-ups at random. What tells them apart is the page above: SQLite has read it just before the
first miss below it. From there on this knows the order. The first miss in a tree asks for its page alone, so that a
point query costs what it did; one that goes on where the last one ended asks for what follows in twice as many places
each time, up to a limit, and steps over what is here.

No I/O of its own: pages are looked up by what the reader gives it, and none is fetched for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Final, Protocol

from ..volume.errors import Corrupt
from ..volume.pageset import PageSet
from .btree import children, is_skeleton

PLACE_PAGES: Final = 64
"""As many as a frame holds, which comes along with any of them."""
FIRST: Final = 4
MOST_BYTES: Final = 8 * 1024 * 1024
_AHEAD: Final = 512
"""Pages that are looked at for those that are missing."""
_FARTHEST: Final = 4096
_KNOWN: Final = 1024
SEEN: Final = 64
"""So many pages that were read last tell enough."""


class Reader(Protocol):
    """Whose misses these are."""

    def held(self, page: int) -> bytes | None:
        """The page, if it is here."""
        ...

    def missing(self, pages: PageSet) -> PageSet:
        """Those that aren't."""
        ...


class KeyOrder:
    """Of one reader."""

    __slots__ = ("_after", "_at", "_before", "_is_turned", "_known", "_last", "_most", "_order", "_places", "_reader")

    def __init__(self, page_size: int, most_bytes: int = MOST_BYTES) -> None:
        """`most_bytes` of pages come at once, or those of `FIRST` frames."""
        self._most = max(FIRST, most_bytes // (PLACE_PAGES * page_size))
        self._known: dict[int, list[int]] = {}
        """The children of pages that were looked at. If their tree has changed since, a worse guess is made."""
        self._reader: Reader | None = None
        """While it asks: else it would live as long as this."""
        self._order: list[int] = []
        """Pages of one level of one tree, in the order in which the reader goes: that of their keys, or turned."""
        self._after: list[int] = []
        """The pages above those that come after, and before, the nearest first."""
        self._before: list[int] = []
        self._is_turned = False
        self._last = 0
        """The place of the last miss."""
        self._at = 0
        """Where the next one is, if the reader goes on."""
        self._places = 0
        """That were asked for the last time; 0 where nothing was beyond the page."""

    def ask(self, reader: Reader, page: int, seen: Iterable[int]) -> PageSet:
        """What to ask for at a miss of this page, itself among them. `seen` are the pages that were read last, newest
        first."""
        self._reader = reader
        try:
            return self._ask(page, seen)
        finally:
            self._reader = None

    def _ask(self, page: int, seen: Iterable[int]) -> PageSet:
        is_at_end = 0 < len(self._order) <= self._at and not self._after
        at = self._next(page)
        if at is None:
            self._turn()
            at = self._next(page)
        goes_on = at is not None
        if at is None:
            self._turn()
            if page in self._before:
                self._turn()
            if page in self._after:
                return self._above(page)
            at = self._begun(page, list(seen))
            if at is None:
                self._places = 0
                return PageSet([page])
            goes_on = is_at_end and not self._missing(self._order[:at])
        self._last, self._at = at, at + 1
        if not goes_on:
            self._places = 0
            return PageSet([page])
        self._places = min(self._most, 2 * self._places or FIRST)
        while len(self._order) < at + _AHEAD and self._extend():
            pass
        ahead = self._order[at : at + _AHEAD]
        wanted = self._first_places(ahead)
        self._at = at + 1 + max(number for number, each in enumerate(ahead) if each in wanted)
        return wanted

    def _next(self, page: int) -> int | None:
        """The page's place, if nothing is missing between the last miss and it, the way that the reader goes."""
        if self._at > _AHEAD:
            # What lies behind is hardly come back to: a tree may be as large as the volume.
            del self._order[: self._last]
            self._at, self._last, self._before = self._at - self._last, 0, []
        farthest = _FARTHEST if self._places else self._at + 1
        while page not in self._order:
            if len(self._order) >= farthest or not self._extend():
                return None
        at = self._order.index(page)
        return at if self._at <= at and not self._missing(self._order[self._at : at]) else None

    def _turn(self) -> None:
        """The same order from behind; what is next is what lies beside the last miss."""
        self._order.reverse()
        self._after, self._before, self._is_turned = self._before, self._after, not self._is_turned
        self._at = len(self._order) - self._last
        self._last = self._at - 1

    def _first_places(self, pages: list[int]) -> PageSet:
        """The first of these pages, and those that are missing behind it, in so many places."""
        missing, wanted, places = self._missing(pages), PageSet(pages[:1]), {pages[0] // PLACE_PAGES}
        for each in pages:
            if each in missing:
                places.add(each // PLACE_PAGES)
                if len(places) > self._places:
                    break
                wanted.add(each)
        return wanted

    def _above(self, page: int) -> PageSet:
        """A page above is missed: if it is the next one, those that come after it are missed next."""
        at = self._after.index(page)
        if at == 0:
            self._places = max(self._places, FIRST)
            return self._first_places(self._after[:_AHEAD])
        del self._after[:at]
        self._order, self._at, self._last, self._places, self._before = [], 0, 0, 0, []
        return PageSet([page])

    def _begun(self, page: int, seen: list[int]) -> int | None:
        """The order of the tree's level that the page is in, by the pages above it among these; its place there."""
        for parent in seen:
            below = self._children(parent)
            if page in below:
                beside = next((line for each in seen if parent in (line := self._children(each))), [parent])
                at = beside.index(parent)
                self._order = below.copy()
                self._before, self._after = beside[:at][::-1], beside[at + 1 :]
                if self._is_turned:
                    self._order.reverse()
                    self._before, self._after = self._after, self._before
                return self._order.index(page)
        return None

    def _extend(self) -> bool:
        """By the children of what comes after, if that is here."""
        below = self._children(self._after[0]) if self._after else []
        if below:
            self._order += reversed(below) if self._is_turned else below
            del self._after[0]
        return bool(below)

    def _missing(self, pages: list[int]) -> PageSet:
        assert self._reader is not None
        return self._reader.missing(PageSet(pages))

    def _children(self, page: int) -> list[int]:
        """Those of a page above; none of any other, and of one that isn't here."""
        known = self._known.get(page)
        if known is not None:
            return known
        assert self._reader is not None
        data = self._reader.held(page) if page else None
        if data is None:
            return []
        below: list[int] = []
        if is_skeleton(data, page):
            # Or it only looks like one: overflow pages may.
            with suppress(Corrupt):
                below = children(data, page)
        if len(self._known) >= _KNOWN:
            self._known.clear()
        self._known[page] = below
        return below
