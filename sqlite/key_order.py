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

    __slots__ = ("_at", "_known", "_most", "_order", "_parents", "_places", "_reader")

    def __init__(self, page_size: int, most_bytes: int = MOST_BYTES) -> None:
        """`most_bytes` of pages come at once, or those of `FIRST` frames."""
        self._most = max(FIRST, most_bytes // (PLACE_PAGES * page_size))
        self._known: dict[int, list[int]] = {}
        """The children of pages that were looked at. If their tree has changed since, a worse guess is made."""
        self._reader: Reader | None = None
        """While it asks: else it would live as long as this."""
        self._order: list[int] = []
        """Pages of one level of one tree, in the order of their keys."""
        self._parents: list[int] = []
        """The pages above those that come after, in that order."""
        self._at = 0
        """Where the next miss is, if the reader goes on."""
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
        was_at_end = 0 < len(self._order) <= self._at
        at = self._place(page)
        if at is None and page in self._parents:
            return self._above(self._parents.index(page))
        goes_on = False
        if at is not None:
            goes_on = self._at <= at and not self._missing(self._order[self._at : at])
        else:
            at = self._begun(page, list(seen))
            if at is None:
                self._places = 0
                return PageSet([page])
            goes_on = was_at_end and not self._missing(self._order[:at])
        if not goes_on:
            self._places, self._at = 0, at + 1
            return PageSet([page])
        self._places = min(self._most, 2 * self._places or FIRST)
        while len(self._order) < at + _AHEAD and self._extend():
            pass
        ahead = self._order[at : at + _AHEAD]
        wanted, self._at = self._first_places(ahead), at + 1
        if len(wanted) > 1:
            self._at = at + 1 + max(number for number, each in enumerate(ahead) if each in wanted)
        return wanted

    def _missing(self, pages: list[int]) -> PageSet:
        assert self._reader is not None
        return self._reader.missing(PageSet(pages))

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

    def _above(self, at: int) -> PageSet:
        """A page above is missed, in its turn if it is the next one: those that come after it are missed next."""
        if at == 0:
            self._places = max(self._places, FIRST)
            return self._first_places(self._parents[:_AHEAD])
        page = self._parents[at]
        del self._parents[:at]
        self._order, self._at, self._places = [], 0, 0
        return PageSet([page])

    def _place(self, page: int) -> int | None:
        """Of the page in the order, as far as that is known and not too far away."""
        if self._at > _AHEAD:
            # What lies behind is not come back to: a tree may be as large as the volume.
            del self._order[: self._at]
            self._at = 0
        while page not in self._order:
            if len(self._order) > _FARTHEST or not self._extend():
                return None
        return self._order.index(page)

    def _begun(self, page: int, seen: list[int]) -> int | None:
        """The order of the tree's level that the page is in, by the pages above it among these; its place there."""
        for parent in seen:
            below = self._children(parent)
            if page in below:
                beside = next((line for each in seen if parent in (line := self._children(each))), [parent])
                self._order, self._parents, self._at = below.copy(), beside[beside.index(parent) + 1 :], 0
                return below.index(page)
        return None

    def _extend(self) -> bool:
        """By the children of what comes after, if that is here."""
        below = self._children(self._parents[0]) if self._parents else []
        if below:
            self._order += below
            del self._parents[0]
        return bool(below)

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
